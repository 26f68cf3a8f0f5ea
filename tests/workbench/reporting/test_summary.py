"""Numbers that sum up a result."""

import pytest

from v6_workbench.reporting import summary


@pytest.mark.parametrize(
    ("accuracies", "uploads", "target", "spent"),
    [
        ([0.5, 0.8, 0.7, 0.9], [1, 1, 1, 1], 0.85, 3.5),  # best so far .5 .8 .8 .9: .85 is halfway from 3 to 4
        ([0.5, 0.5, 0.9], [0, 0, 5], 0.8, 3.75),  # rounds without uploads
        ([0.9], [1], 0.85, 1),
        ([0.5, None, 0.9], [1, 1, 1], 0.7, 2),  # from round 1 to 3, as round 2 was not evaluated
        ([0.5], [1], 0.85, None),
    ],
)
def test_what_was_spent_until_the_target_is_counted_as_mcmahan_does(accuracies, uploads, target, spent):
    history = [{"accuracy": a, "uploads": u, "participants": []} for a, u in zip(accuracies, uploads, strict=True)]
    assert summary.to_target({"history": history}, target, "uploads") == pytest.approx(spent)
