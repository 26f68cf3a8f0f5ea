"""Answers of any form: none ends a job in which the other nodes are enough, and nothing long of them is kept."""

import functools
import json
import math

import pytest
from four_nodes import at, edited, run

from v6_workbench.reporting import pictures
from v6_workbench.simulation.call_outcomes import CallOutcome

HUGE = 2**62  # sums of it wrap around in 64 bits
COUNTS = {"n": 10, "loss": 0.1, "confusion": [[5, 0], [0, 5]], "bands": []}
ODD = [
    {"train_loss": "x"},
    {"train_loss": [1]},
    {"train_loss": -1.0},
    {"n": 10**400},
    {"evaluation": "x"},
    {"evaluation": {"n": 10}},
    {"evaluation": {**COUNTS, "confusion": [[1, 2], [3]]}},
    {"evaluation": {**COUNTS, "loss": "0"}},
    {"evaluation": {**COUNTS, "confusion": [[1, -2], [3, 8]]}},
    {"evaluation": {**COUNTS, "confusion": [[HUGE, HUGE], [HUGE, HUGE + 10]]}},
    {"evaluation": {**COUNTS, "bands": [[[HUGE, HUGE], [HUGE, 9]]]}},
    {"evaluation": {**COUNTS, "bands": [[[1, 1], [1, 1]]]}},
    {"note": functools.reduce(lambda inner, _: [inner], range(600), 0)},
    {"organization_id": "A" * 1_000_000},
    {"K" * 1_000_000: 1},
    {f"k{i}": "x" * 190 for i in range(5_000)},
    {"nobody_asked": 1.0},
]
NAMES = [f"{i}-{next(iter(values))[:20]}" for i, values in enumerate(ODD)]


@pytest.mark.parametrize("values", ODD, ids=NAMES)
def test_a_node_that_answers_anything_is_missing(values):
    result = run(at([2], edited(**values)), min_responses=2, cooldown_rounds=1)
    assert [[m["organization_id"] for m in row["missing"]] for row in result["history"]] == [[2]] * 2
    assert len(json.dumps(result)) < 20_000, "nothing long that a node says is kept"


@pytest.mark.parametrize("values", ODD, ids=NAMES)
def test_an_asynchronous_node_that_answers_anything_ends_no_job(values):
    """The others may have been merged before it answers; then it is not missing."""
    result = run(at([2], edited(**values)), "coop", min_responses=2, cooldown_rounds=1)
    assert [m["organization_id"] for m in result["history"][0]["missing"]] in ([2], [])
    assert all(2 not in row["participants"] for row in result["history"])
    assert len(result["history"]) == 2 and len(json.dumps(result)) < 20_000


@pytest.mark.parametrize("value", ["x", [1], {"a": 1}, "x" * 1000, 2**53, -(2**60), math.inf])
def test_only_values_of_a_table_are_kept(value):
    """SCAFFOLD's nodes may answer a drift: a number, a truth value or null, and nothing else."""
    answers = {k: run(at([2], edited(drift=k)), "scaffold") for k in (-1.5, 7, True, None)}
    for drift, result in answers.items():
        assert [row["drift"] for row in result["per_node"] if row["organization_id"] == 2] == [drift] * 2
    history = run(at([2], edited(drift=value)), "scaffold", min_responses=2, retries=0)["history"]
    assert [m["reason"] for row in history for m in row["missing"]] == [
        "sent no proper drift; expected a number, true, false or null"
    ] * 2


def test_a_picture_of_distances_leaves_out_what_is_no_number(tmp_path):
    result = run()
    rows = [{**row, "distance": "x"} if row["organization_id"] == 2 else row for row in result["per_node"]]
    assert pictures.write(pictures.distances({**result, "per_node": rows}), tmp_path / "distances.png")


@pytest.mark.parametrize(
    "change",
    [
        {"confusion": [[1, 2, 3], [4, 5, 6], [7, 8, 9]]},
        {"confusion": [[1, 1], [1, 1]]},
        {"bands": [[[1, 2], [3, 4]]] * 3},
        {"loss": None},
    ],
    ids=["other classes", "other rows", "other problems", "no loss"],
)
def test_an_evaluation_of_other_classes_or_rows_is_refused(change):
    def alter(answer):
        return {**answer, "evaluation": {**answer["evaluation"], **change}} if "evaluation" in answer else answer

    history = run(at([2], CallOutcome(1.0, alter=alter)), retries=0, min_responses=2, holdout=0.5)["history"]
    assert history[0]["missing"] == [], "the initial model is not evaluated"
    [missing] = history[1]["missing"]
    assert missing["organization_id"] == 2 and missing["reason"].startswith("sent a malformed evaluation")
