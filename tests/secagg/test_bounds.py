"""The bounds of 32-bit numbers: chosen from public sums, for each block, and never a reason to refuse."""

import numpy as np
import pytest
from helpers import table
from masked_jobs import QUICK, Tape, apart, learned, nodes, run


def exponents(tape: Tape, first: int) -> list[int]:
    """e of the update, round by round, as a block's first member was asked."""
    asked = [m["kwargs"]["sums"]["parts"] for k, m in tape.calls if k == first and m["method"] == "client_update"]
    return [part[4] for parts in asked for part in parts if part[:3] == ["weights", "share", 32]]


def test_large_numbers_are_clamped_and_counted_and_the_bound_rises():
    """The first update is beyond 2^3. The job goes on, says so, and fits from then on."""
    settings = {**QUICK, "rounds": 4, "lr": 60.0, "holdout": 0}
    tape = Tape()
    result = run("v6_fedavg", nodes(4), "masked", outcomes=tape, **settings)
    clamped = [row["clamped"] for row in result["history"]]
    assert 0 < clamped[0] <= 4 * 5 and clamped[1:] == [0, 0, 0]
    assert exponents(tape, 1)[0] == 3 and exponents(tape, 1)[1] >= 9


def test_each_block_has_its_own_bound(tmp_path):
    """One block's numbers are large. The other's are neither clamped nor made coarse."""
    databases = nodes(10)
    for k in range(1, 6):
        databases[k] = databases[k].assign(x0=lambda rows: 300 * rows["x0"])
    tape = Tape()
    settings = {**QUICK, "rounds": 5, "holdout": 0}
    result = run("v6_fedavg", databases, "pinned", tmp_path, size=5, outcomes=tape, **settings)
    large, small = exponents(tape, 1), exponents(tape, 6)
    assert result["history"][0]["clamped"] > 0 and large[0] == 3 and large[1] >= 9
    assert small[0] == 3 and max(small) <= 9 and not any(row["clamped"] for row in result["history"][2:])


@pytest.mark.parametrize("package", ["v6_fedavg", "v6_scaffold"])
def test_opposite_hospitals_do_not_end_a_job(package):
    """Their updates cancel, so that the sum is far below each: bounds do not fall to it at once, and rise again."""
    one, three = table(40, seed=1), table(40, seed=3)
    mirrored = one.assign(label=1 - one["label"])
    three = three.assign(label=np.random.default_rng(0).permutation(three["label"]))
    settings = {"rounds": 12, "lr": 0.5, "epochs": 10, "batch_size": 10, "classes": [0, 1], "holdout": 0}
    databases = {1: one, 2: mirrored, 3: three}
    result = run(package, databases, "masked", **settings)
    assert apart(learned(result)["weights"], learned(run(package, databases, "plain", **settings))["weights"]) < 1e-4
    assert sum(row["clamped"] for row in result["history"]) < 20


def test_training_that_diverges_ends_with_a_reason():
    settings = {**QUICK, "rounds": 9, "lr": 1e30, "model": "fnn:hidden=5"}
    with np.errstate(all="ignore"):
        result = run("v6_fedavg", nodes(3), "masked", stops=True, **settings)
    assert "diverge" in result["stopped"]
