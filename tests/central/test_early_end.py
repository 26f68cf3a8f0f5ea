"""A method that ends its rounds before the last leaves them with ``break``, and no round is lost or added."""

import numpy as np
import pytest
from helpers import table

from v6_workbench.conformance.interruptions import lost_and_started_again
from v6_workbench.conformance.jobs import OPEN, difference
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

ROUNDS = 40
EARLY = {  # what ends their rounds: coefficients that have converged, and a loss that falls no more
    "v6_glm": {"holdout": 0.2},
    "v6_gbdt": {"mode": "random", "early_stopping": 3, "lr": 1.0},
}
MOMENTS = {
    "before the last evaluation": lambda kept: kept["ended"] and kept["final"] is None,
    "after the last evaluation": lambda kept: kept["final"] is not None,
}


def hospitals():
    """There is little to learn."""
    rng = np.random.default_rng(0)
    return {k: table(60, seed=k).assign(label=rng.integers(0, 2, 60)) for k in (1, 2, 3)}


def run(package, outcomes=None):
    with MockNetwork(package, hospitals(), environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        return network.run(rounds=ROUNDS, classes=[0, 1], retries=0, **EARLY[package])


@pytest.fixture(scope="module", params=EARLY)
def straight(request):
    """A method's package, and its result without disturbance."""
    result = run(request.param)
    assert len(result["history"]) < ROUNDS
    return request.param, result


def test_the_last_round_is_in_the_result_if_the_last_evaluation_fails(straight):
    """For trees, the last round is the one that goes back to the best ensemble."""
    package, whole = straight

    def fails(organization, message):
        last = message["method"] == "evaluate" and message["kwargs"].get("last")
        return CallOutcome(status="failed" if last else "completed")

    result = run(package, fails)
    assert "evaluate: organizations 1, 2, 3: run failed" in result["stopped"]
    assert result["weights"] == whole["weights"] and result["state"] == whole["state"]
    assert len(result["history"]) == len(whole["history"])


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_restart_runs_no_further_round(moment, straight):
    package, whole = straight
    settings = {"rounds": ROUNDS, "classes": [0, 1], "retries": 0, **EARLY[package]}
    job = lost_and_started_again(package, hospitals(), lost_once_kept=MOMENTS[moment], **settings)
    assert not any(call.own for call in job.after)
    assert difference({**whole, "traffic": 0}, {**job.result, "traffic": 0}) == ""
