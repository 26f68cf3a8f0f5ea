"""During a masked job, central cannot ask a hospital for other columns than those that all have agreed on."""

from dataclasses import replace

import pytest

from v6_federated.gate import under_masks
from v6_federated.messages.job import SPECIAL, DataSpec, Job


@pytest.mark.parametrize("name", SPECIAL)
def test_a_masked_job_cannot_change_a_special_column(name):
    """With another column of events at one hospital, the sum would differ by what this column says there."""
    spec = DataSpec("months", ["age"], **{name: "a"})
    job = Job("cox", "0" * 32, 0, [1, 2, 3], [], 3, None, spec, None, "float64")
    other = replace(job, data=replace(job.data, **{name: "b"}))
    assert under_masks._told(job) != under_masks._told(other)
