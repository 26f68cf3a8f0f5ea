"""Studies of many hospitals, some of which are down in each round: which rounds finish, and whose rows count."""

import json
from collections import Counter

import numpy as np
import pytest
from masked_jobs import in_blocks, nodes

from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import TRUSTING, MockNetwork, StudyPlan

CRASHED = CallOutcome(status="crashed")
K, SIZE, ROUNDS, MISSES, SEED = 50, 5, 20, 0.03, 5
BLOCKS = in_blocks(K, SIZE)


def down(seed: int) -> set[tuple[int, int]]:
    """Hospitals and rounds in which they are down, the preparation (round 0) included."""
    drawn = np.random.default_rng(seed).random((K + 1, ROUNDS + 1)) < MISSES
    return {(k, t) for k in range(1, K + 1) for t in range(ROUNDS + 1) if drawn[k, t]}


def misses(absent, calls: int = 2):
    """A hospital that is down does not answer a request and its repetition; it is back when it is asked once more."""
    asked: Counter[tuple[int, int, str]] = Counter()

    def outcome(organization, message):
        key = organization, message["kwargs"]["round"], message["method"]
        asked[key] += 1
        return CRASHED if key[:2] in absent and key[2] != "forget" and asked[key] <= calls else CallOutcome()

    return outcome


def run(outcomes, k: int = K, size: int = SIZE, package: str = "v6_fedavg", **settings):
    options = {"environment": TRUSTING, "on_round": lambda row: None, "outcomes": outcomes, "study": StudyPlan(size)}
    with MockNetwork(package, nodes(k), **options) as network:
        return network.run(**{"classes": [0, 1], "holdout": 0, "aggregation": "pinned", **settings})


def whole(absent, t: int) -> list[list[int]]:
    """The blocks in which no hospital is down."""
    return [block for block in BLOCKS if not any((k, t) in absent for k in block)]


def test_a_job_of_fifty_hospitals_of_which_some_miss_each_round_reaches_its_last_round():
    """With defaults. In one of the rounds only five of ten blocks are whole until the others are asked once more."""
    absent = down(SEED)
    few = [t for t in range(1, ROUNDS + 1) if len(whole(absent, t)) < 6]
    assert few, "a seed with such a round"
    result = run(misses(absent), rounds=ROUNDS)
    assert "stopped" not in result and len(result["history"]) == ROUNDS
    rows, since = {k: len(table) for k, table in nodes(K).items()}, {}
    for row in result["history"]:
        counted = [block for block in BLOCKS if {*block} <= {*row["participants"]}]
        assert sorted(row["participants"]) == sorted(k for block in counted for k in block), "whole blocks"
        assert row["n"] == sum(rows[k] for k in row["participants"]) and len(counted) >= 6
        since |= {block[0]: row["round"] for block in counted if block[0] not in since}
        expected = BLOCKS if row["round"] in few else whole(absent, row["round"])
        assert counted == [block for block in expected if block[0] in since]
        named = {k for missing in row["missing"] for k in [missing["organization_id"]]}
        assert named == {*range(1, K + 1)} - {*row["participants"]}
    late = [block[0] for block in BLOCKS if any((k, 0) in absent for k in block)]
    assert late and all(2 <= since[first] <= 9 for first in late), "blocks that were absent at first have joined"
    shares = [row["n"] / sum(rows.values()) for row in result["history"]]
    print(f"rows that counted, in percent by round: {[round(100 * share) for share in shares]}")  # `pytest -s` shows it
    assert 0.6 < np.mean(shares) < 1


def test_the_same_job_ends_where_all_blocks_are_needed():
    """As every job did by default, if a hospital is down for a whole round."""
    absent = down(SEED) - {(k, 0) for k in range(1, K + 1)}
    with pytest.raises(Exception, match="round 1, client_update: organization 14: .*a sum needs all"):
        run(misses(absent, calls=99), rounds=ROUNDS, min_responses=1)


@pytest.mark.parametrize(("package", "joins"), [("v6_fedavg", True), ("v6_scaffold", True), ("v6_pca", False)])
def test_a_block_joins_later_where_a_round_needs_no_earlier_one(package, joins):
    of_package = {"classes": None, "holdout": 0.2, "components": 2} if package == "v6_pca" else {"rounds": 4}
    result = run(misses({(1, 0), (1, 1)}), 12, 4, package, **of_package)
    assert "stopped" not in result, result.get("stopped")
    took_part = [1 in row["participants"] for row in result["history"]]
    assert took_part == ([False, True, True, True] if joins else [False] * len(took_part))


def test_a_block_that_joins_counts_as_if_it_had_been_there():
    """From the model of the round in which it joins: one more round of all rows."""
    late = run(misses({(1, 0), (1, 1)}), 12, 4, rounds=2)
    first = run(misses({(1, 0), (1, 1)}), 12, 4, rounds=1)
    both = run(None, 12, 4, rounds=2, resume=json.loads(json.dumps(first)))
    assert late["history"][1]["n"] == both["history"][1]["n"] == sum(len(t) for t in nodes(12).values())
    assert late["history"][1]["train_loss"] == pytest.approx(both["history"][1]["train_loss"], rel=1e-5)
