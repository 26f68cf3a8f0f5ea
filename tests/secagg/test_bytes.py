"""The bytes in a result are those that left the nodes, whichever requests a masked job needs."""

import pytest
from masked_jobs import nodes, run
from test_equal import METHODS

from v6_federated.rules import audit


@pytest.mark.parametrize("name", METHODS)
def test_a_result_counts_every_answer(tmp_path, name):
    package, settings = METHODS[name]
    result = run(package, nodes(3), "masked", tmp_path, **settings)
    counted = sum(row["bytes_up"] for row in [*result["history"], *result["traffic"].values()])
    logs = [entry for k in (1, 2, 3) for entry in audit.read(tmp_path / f"node-{k}" / audit.NAME)]
    assert counted == sum(entry.bytes for entry in logs) > 0
