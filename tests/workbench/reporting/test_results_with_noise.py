"""What is shown of a result whose counts have noise: no loss, counts that are not whole, shares that mean nothing."""

import json

import pytest
from rich.console import Console

from v6_federated.base.errors import SafeError
from v6_federated.messages.result import check
from v6_workbench.cli import results
from v6_workbench.reporting import diagnostics, intervals, pictures, summary, tables

PRIVACY = {"plan": {"evaluations": 2}, "epsilon": 3.0, "delta": 1e-5}
FINAL = {
    "evaluated": 120,
    "loss": None,
    "accuracy": 0.9,
    "accuracy_error": 0.05,  # 6 rows
    "auc": None,
    "auc_error": None,
    "auc_variance": None,
    "confusion": [[20.2, -4.4], [6.1, 76.4]],
}


def result(accuracy=(None, 0.9), final=FINAL):
    row = {"participants": [1, 2], "n": 449, "train_loss": None, "loss": None, "auc": None}
    more = {"bytes_up": 1, "bytes_down": 1, "seconds": 0.1}
    history = [{"round": t, "accuracy": a, **row, **more} for t, a in enumerate(accuracy, start=1)]
    data = {"classes": ["well", "ill"], "preprocess": [], "features": ["x"], "categories": None}
    return {
        "method": "fedavg",
        "history": history,
        "per_node": [],
        "final": final,
        "privacy": PRIVACY,
        "data": data,
        "settings": {"seed": 0},
        "model": None,
        "weights": {},
    }


def printed(table):
    console = Console(width=140)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_columns_without_a_number_are_left_out():
    heading, first, last = printed(tables.rounds_table(result())).splitlines()
    assert heading.split() == ["round", "nodes", "rows", "accuracy", "kB", "up", "kB", "down"]
    assert first.split()[3] == "-" and last.split()[3] == "0.9000"


def test_counts_are_rounded_and_shares_that_are_mostly_noise_are_not_shown():
    _, well, ill = printed(tables.classes_table(result())).splitlines()
    # the sum of a line has the noise of the diagonal, 6 rows: 15.8 and 26.3 rows are too few, 82.5 and 72 enough
    assert well.split() == ["well", "16", "20", "-", "26", "-"]
    assert ill.split() == ["ill", "82", "76", "0.926", "72", "1.000"]  # 76.4 / 72 is above 1


def test_the_auc_has_the_largest_noise_that_it_may_have():
    final = {**FINAL, "auc": 0.9}
    confusion = [[30.0, 10.0], [5.0, 75.0]]
    low, high = intervals.auc_interval(result(final={**final, "confusion": confusion}))
    assert low < 0.9 - 1.96 * 0.05 and high == pytest.approx(min(1, 0.9 + 1.96 * 0.05), abs=0.02)
    assert intervals.auc_interval(result(final={**final, "confusion": [[-3.0, 1.0], [5.0, 75.0]]})) is None


def test_remarks_speak_of_noise():
    [said, *_] = diagnostics.rounded(result())
    assert "added noise" in said and "evaluate_every" in said and "losses" not in said
    [said] = diagnostics.rounded({**result(), "privacy": {**PRIVACY, "plan": {"evaluations": 1}}})
    assert said.endswith("to less; hold out more rows")
    assert any("added noise" in line for line in intervals.explained(result()))
    assert summary.most_frequent(result()) == ("ill", pytest.approx(82.5 / (15.8 + 82.5)))
    hidden = result(final={**FINAL, "accuracy_error": 0.3})
    assert summary.most_frequent(hidden) is None and diagnostics.poor(hidden) == []
    assert diagnostics.warnings_about(result())  # none of them needs a loss


def test_the_last_line_says_what_it_cost():
    line = summary.summary(result())
    assert (line["loss"], line["epsilon"], line["delta"]) == (None, 3.0, 1e-5)


def test_pictures_without_losses():
    [axis] = pictures.curves({"fedavg": result()}).axes
    assert axis.get_xlim()[0] == 0 and axis.get_xlim()[1] > 2, "one point stands at its round"
    with_auc = result(accuracy=(0.8, 0.9))
    for row in with_auc["history"]:
        row["auc"] = 0.7
    assert pictures.curves({"fedavg": with_auc}).axes[1].get_ylabel() == "AUC on held-out rows"


def test_a_written_result_is_read_again(tmp_path):
    """Counts below zero and with a fraction are counts with noise; what is no number stays refused."""
    from helpers import table, train

    written = train("v6_fedavg", {k: table(60, seed=k) for k in (1, 2)}, rounds=1)
    written["final"]["confusion"] = FINAL["confusion"]
    (tmp_path / "result.json").write_text(json.dumps(written))
    assert results.read(tmp_path)["final"]["confusion"] == FINAL["confusion"]
    for wrong in ("7", None, float("nan"), 1e17, -(10**17)):
        written["final"]["confusion"] = [[wrong]]
        with pytest.raises(SafeError, match="confusion"):
            check(json.loads(json.dumps(written)))
