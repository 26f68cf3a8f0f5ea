"""A regression under masks: its errors and labels are summed at every scale, and nothing else leaves."""

import functools
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from masked_jobs import Tape, apart, learned, nodes, run, without_masks

from v6_federated.gate import call, under_masks
from v6_federated.masks import summing
from v6_federated.masks.summands import Part, ladder
from v6_federated.models import metrics
from v6_federated.rules.schema import Column, Schema
from v6_workbench.conformance.jobs import without_times
from v6_workbench.conformance.tables import with_numbers
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

PACKAGE = "v6_least_squares"
SETTINGS = {"rounds": 6, "lr": 0.05}
CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}
MASKED = {"organization_id", "round", "T", "y32", "y64"}


@functools.cache
def clinics(K: int, scale: float = 1.0, mean: float = 1.0) -> dict[int, pd.DataFrame]:
    """K hospitals whose label has about a standard deviation of 18 scales and a mean of ``mean`` scales."""
    tables = {k: with_numbers(rows) for k, rows in nodes(K, 30).items()}
    return {k: rows.assign(label=scale * (rows["label"] - 100 + mean)) for k, rows in tables.items()}


def agreed(mode: str, folder) -> dict:
    """How hospitals agree."""
    return {"mode": "masked"} if mode == "masked" else {"mode": "pinned", "folder": folder, "size": 5}


def check(found: dict, plain: dict, within: float = 1e-5) -> None:
    """Compare what two jobs have learned, and how they measure it: the error relative, R squared as it is."""
    assert apart(learned(found)["weights"], learned(plain)["weights"]) < within
    rows = [*zip(found["history"], plain["history"], strict=True), (found["final"], plain["final"])]
    for mine, row in rows:
        assert mine.get("n") == row.get("n") and mine["evaluated"] == row["evaluated"] > 0
        errors = [{k: one[k] for k in ("loss", "train_loss") if one.get(k) is not None} for one in (mine, row)]
        assert errors[0] == pytest.approx(errors[1], rel=within)
        assert mine["r2"] == pytest.approx(row["r2"], abs=within)
        assert mine["accuracy"] is None and mine["auc"] is None


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-3])
@pytest.mark.parametrize(("mode", "K"), [("masked", 4), ("pinned", 10)])
def test_it_is_the_plain_one(mode, K, scale, tmp_path, monkeypatch):
    how, databases = agreed(mode, tmp_path), clinics(K, scale)
    found = run(PACKAGE, databases, **how, **SETTINGS)
    assert found["privacy"]["aggregation"] == mode and found["per_node"] == []
    with monkeypatch.context() as patch:
        patch.setattr(under_masks.keystreams, "masked", without_masks)
        assert without_times(run(PACKAGE, databases, **how, **SETTINGS)) == without_times(found)
    check(found, run(PACKAGE, databases, "plain", **SETTINGS))


@pytest.mark.parametrize("mean", [1e4, -1e5])
def test_labels_far_from_zero_keep_their_digits(mean):
    """Squares about zero hold the digits of the spread too. Models do not move, so that only the sums are compared."""
    settings = {"rounds": 1, "lr": 0.0}
    plain, found = (run(PACKAGE, clinics(4, 1.0, mean), mode, **settings)["final"] for mode in ("plain", "masked"))
    assert found["loss"] == pytest.approx(plain["loss"], rel=1e-12)
    assert found["r2"] == pytest.approx(plain["r2"], rel=1e-5)


def test_labels_without_spread_have_no_r_squared():
    databases = {k: rows.assign(label=0.1) for k, rows in clinics(4).items()}
    final = run(PACKAGE, databases, "masked", **SETTINGS)["final"]
    assert final["r2"] is None and final["loss"] > 0


def test_with_every_limit_of_a_careful_node(tmp_path):
    """With plain answers each node rounds its mean, error and squares; a sum over a block of a study is exact."""
    schema = Schema(tuple(Column(f"x{i}", "number", -20, 20) for i in range(4)), label="label", bounds=(-200, 300))
    databases = {k: with_numbers(rows) for k, rows in nodes(4, 60).items()}
    final = {}
    plain = {"V6_FEDERATED_AGGREGATION": "plain"}
    for mode, more in (("exact", {**plain, "V6_FEDERATED_ROUND_EVALUATIONS": "0"}), ("plain", plain), ("pinned", {})):
        with MockNetwork(  # one folder, whose secret says which rows are held out
            PACKAGE,
            databases,
            hospital_folder=tmp_path,
            study=StudyPlan(schema=schema),
            environment={**CAREFUL, **more},
        ) as network:
            asked = "pinned" if mode == "pinned" else "plain"
            result = network.run(aggregation=asked, **{**SETTINGS, "lr": 0.0})
        assert "stopped" not in result and result["privacy"]["aggregation"] == asked
        final[mode] = result["final"]
    assert final["plain"]["loss"] == pytest.approx(final["exact"]["loss"], rel=1 / 3)
    assert final["pinned"]["loss"] == pytest.approx(final["exact"]["loss"], rel=1e-9) != final["plain"]["loss"]
    assert final["pinned"]["r2"] == pytest.approx(final["exact"]["r2"], rel=1e-5) != final["plain"]["r2"]


def test_central_holds_sums_and_nothing_else(monkeypatch):
    """Words, and of the block: rows, errors, and sums of labels and of their squares. No label is in what it holds."""
    tape, seen, real = Tape(), [], metrics.regression_of_sums
    monkeypatch.setattr(metrics, "regression_of_sums", lambda sums: seen.append(dict(sums)) or real(sums))
    added_up, encoded = [], summing.encoded
    monkeypatch.setattr(summing, "encoded", lambda sums, *a, **b: added_up.append(sums) or encoded(sums, *a, **b))
    databases = clinics(4)
    result = run(PACKAGE, databases, "masked", outcomes=tape, **SETTINGS)
    for function, _, answer in tape.masked():
        assert {*answer} == MASKED, function
    assert len(seen) == SETTINGS["rounds"] and all({*sums} == {"n", "loss", "first", "second"} for sums in seen)
    asked = {part.name for sums in added_up for part in sums.parts}
    evaluation = {"evaluation.n", "evaluation.loss", "evaluation.first", "evaluation.second"}
    assert asked == {"n", "train_loss", "has train_loss", "weights", *evaluation}
    text = str({"tape": tape.answers, "result": {**result, "settings": None}})
    assert not any(repr(v) in text for rows in databases.values() for v in rows["label"].tolist())


@pytest.mark.parametrize("part", ["confusion", "bands", "squares", "mean"])
def test_other_parts_of_an_evaluation_do_not_exist(part, monkeypatch):
    """A node adds noise, as for anything that it does not compute."""
    real = call._summands
    names = []
    monkeypatch.setattr(call, "_summands", lambda *a: names.append(found := real(*a)) or found)
    run(PACKAGE, clinics(3), "masked", **{**SETTINGS, "rounds": 2})
    assert not any(f"evaluation.{part}" in found for found in names)
    asked = summing.Sums(1, 0, None, (Part(f"evaluation.{part}", "one", 64, (2,), 10),))
    with pytest.raises(Exception, match=f"declares a sum of evaluation.{part}, and does not return it"):
        summing.encoded(asked, names[-1], 30, 3, b"s" * 32, b"T" * 32)


def test_a_squared_error_beyond_all_units_ends_the_job():
    """A sum of such errors could wrap at every scale. Each row is compared alone, so that no sum decides."""
    databases = {k: rows.assign(x0=1e37 * rows["x0"]) for k, rows in clinics(3).items()}
    with np.errstate(all="ignore"), pytest.raises(Exception, match="could not compute their part|diverge"):
        run(PACKAGE, databases, "masked", stops=None, **{**SETTINGS, "rounds": 3, "lr": 1.0})


def added(parts, values, secrets, T=b"T" * 32) -> tuple[dict, np.ndarray]:
    """The decoded sums of hospitals' values, and their words of 64 bits."""
    sums = summing.Sums(1, 0, None, tuple(parts))
    words = [summing.encoded(sums, {"x": x}, 30, len(values), s, T)[1] for x, s in zip(values, secrets, strict=True)]
    total = np.sum(words, axis=0, dtype=np.uint64)
    return summing.decoded(sums, {32: np.empty(0, np.uint32), 64: total}, T)[2], total


RUNGS = ladder("x", (200,))


@pytest.mark.parametrize("K", [1, 2, 7, 100])
def test_a_ladder_has_all_digits_of_a_sum(K):
    """At every size, also if terms cancel: the sum of K values in units of 2^-76, whatever the hospitals' secrets."""
    rng, unit = np.random.default_rng(K), 2.0 ** (summing.RUNGS[0] - 56)
    for largest in (-60, -10, 0, 40, 130, 255):
        x = rng.normal(size=(K, 200)) * 2.0 ** rng.uniform(largest - 60, largest, size=(K, 200))
        found = [added(RUNGS, x, [bytes([s, k] * 16) for k in range(K)])[0]["one x"] for s in (1, 2)]
        exact = [float(sum(map(Fraction, (np.rint(column / unit) * unit).tolist()))) for column in x.T]
        assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], exact), largest


def test_coarse_words_do_not_show_how_a_sum_is_divided():
    """Two hospitals have 6 and 6, or 3 and 9: rounded to units of 16 one by one, that would be 0, or 1."""
    secrets, hidden = [b"a" * 32, b"b" * 32], []
    part = next(part for part in RUNGS if part.exponent == 60)
    place = summing.HEADER + 200 * RUNGS.index(part)
    for split in ([6.0, 6.0], [3.0, 9.0]):
        _, total = added(RUNGS, [np.full(200, v) for v in split], secrets)
        hidden.append(total[place : place + 200].view(np.int64))
        assert np.std(hidden[-1].astype(float)) > 2**34  # units
    assert np.abs(hidden[0] - hidden[1]).max() <= 1  # the same noise, as T is the same here; in a job it never is
    _, other = added(RUNGS, [np.full(200, 6.0)] * 2, secrets, b"U" * 32)
    assert np.median(np.abs(other[place : place + 200].view(np.int64) - hidden[0])) > 2**34
