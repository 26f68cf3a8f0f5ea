"""The mock network."""

import pytest
from helpers import table, train


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_fault_of_the_mock_network_is_told(nodes, monkeypatch):
    """It is no server that is away for a moment."""
    monkeypatch.delattr("v6_fedavg.client_update")
    with pytest.raises(AttributeError, match="v6_fedavg/__init__.py exports no client_update; expected it there"):
        train("v6_fedavg", {k: table(seed=k) for k in range(1, nodes + 1)}, rounds=1, retries=0)
