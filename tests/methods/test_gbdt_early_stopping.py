"""Boosted trees: ending training at the smallest loss on held-out rows."""

import numpy as np
import pytest
from boosted import SMALL, ensemble
from helpers import table, train
from vantage6.algorithm.tools.exceptions import UserInputError


def test_early_stopping_goes_back_to_the_best_round():
    rng = np.random.default_rng(0)
    nodes = {k: table(60, seed=k).assign(label=rng.integers(0, 2, 60)) for k in (1, 2, 3)}  # nothing to learn
    result = train("v6_gbdt", nodes, rounds=60, lr=0.5, early_stopping=3, **SMALL)
    losses = [row["loss"] for row in result["history"]]
    best = int(np.argmin(losses[:-1]))
    assert len(losses) < 60
    assert result["history"][-1]["trees"] == best + 1
    assert losses[-1] == pytest.approx(losses[best])
    assert len(losses) == best + 1 + 3 + 1, "three rounds without a smaller loss, and the one that goes back"
    model, w = ensemble(result)
    assert len(model.split(w)) == best + 1


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_early_stopping_of_a_resumed_job(cut):
    """The last model of the first job was evaluated out of turn; an uninterrupted job would not know."""
    others = 0
    for seed in range(4):
        nodes = {k: table(60, seed=10 * seed + k, shift=0.2 * k) for k in (1, 2, 3)}
        settings = {"lr": 0.5, "early_stopping": 1, "evaluate_every": 2, **SMALL}
        whole = train("v6_gbdt", nodes, rounds=16, **settings)
        first = train("v6_gbdt", nodes, rounds=cut, **settings)
        assert train("v6_gbdt", nodes, rounds=16, resume=first, **settings)["weights"] == whole["weights"]
        told = [row["loss"] for row in whole["history"]]
        others += len(told) > cut and first["history"][-1]["loss"] is not None is told[cut - 1]
    assert others, "somewhere the first job knows a loss that the whole one does not"


def test_a_resumed_job_that_is_evaluated_more_often():
    """No round of the first was due by the second's count."""
    nodes = {k: table(60, seed=k) for k in (1, 2, 3)}
    first = train("v6_gbdt", nodes, rounds=6, evaluate_every=10, **SMALL)
    result = train("v6_gbdt", nodes, rounds=12, evaluate_every=5, early_stopping=5, resume=first, **SMALL)
    assert len(result["history"]) > 6 and "stopped" not in result


@pytest.mark.parametrize(
    ("unfit", "says"),
    [
        ({"holdout": 0}, "holdout or evaluators: models are evaluated on rows that"),
        ({"evaluate_every": 4}, "losses in time"),
    ],
)
def test_early_stopping_needs_rows_held_out(unfit, says, hospitals):
    with pytest.raises(UserInputError, match=f"early_stopping=2 needs {says}"):
        train("v6_gbdt", hospitals, rounds=6, early_stopping=2, **{**SMALL, **unfit})


def test_early_stopping_where_no_node_can_hold_rows_out(hospitals):
    """What was trained until that is known is not lost."""
    strict = {k: {"V6_FEDERATED_MINIMUM_ROWS": "10"} for k in hospitals}
    few = {k: rows[:15] for k, rows in hospitals.items()}
    result = train("v6_gbdt", few, stops=True, rounds=6, early_stopping=2, environments=strict, **SMALL)
    assert "early_stopping=2: no loss on held-out rows after 3 rounds; no node has rows enough" in result["stopped"]
    assert len(result["history"]) == 3
