"""``--repeats``: the same rows, dealt and held out in different ways."""

import json

import numpy as np
import pytest
from scipy import stats

from v6_workbench.reporting import repeats
from v6_workbench.reporting.repeats import Spread, table
from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.repeats import repeated

RUN = ["run", "fedavg", "--data", "wine", "--nodes", 3, "--rounds", 2, "--preprocess", "standardize"]


def test_the_t_interval():
    values = [0.9, 0.92, 0.97, 0.88]
    spread = Spread.of(values)
    mean, error = np.mean(values), stats.sem(values)
    assert (spread.low, spread.high) == pytest.approx(stats.t.interval(0.95, 3, mean, error))
    assert Spread.of([0.5, 0.5, 0.5]).low == 0.5


def test_two_repeats_have_no_interval():
    """With one degree of freedom t is 12.7, and two equal values would have an interval without a width."""
    spread = Spread.of([0.8118, 0.8118])
    assert (spread.mean, spread.deviation, spread.low, spread.high) == (0.8118, 0, None, None)
    results = [{"history": [{"accuracy": a, "loss": b}]} for a, b in ((0.8, 0.4), (0.9, 0.5))]
    made = table({"one": results, "two": results})
    measure, interval, apart = (list(made.columns[i].cells) for i in (1, 4, 5))
    assert measure[:2] == ["accuracy", "loss"] and interval == ["-"] * 4 and apart[2:] == ["+0.0000", "+0.0000"]
    assert repeats.as_json({"one": results})["results"]["one"]["loss"]["low"] is None
    assert "fewer than 3 repeats" in repeats.ESTIMATES


def test_intervals_end_where_a_measure_does():
    results = [{"history": [{"accuracy": a, "r2": a, "loss": b}]} for a, b in ((0.99, 0.01), (1.0, 0.4), (0.6, 0.9))]
    found = repeats.spreads(results)
    assert found["loss"].low == 0 < found["loss"].mean, "no loss is negative"
    assert found["accuracy"].high == found["r2"].high == 1 and found["r2"].low < found["r2"].mean


def test_every_repeat_deals_and_holds_out_other_rows(tmp_path):
    """With nodes of a column, the deal is fixed, and the rows held out vary."""
    table = datasets.load("wine").rows.assign(hospital=["a", "b"] * 89)
    table = table[["hospital", *table.columns[:-1]]]
    held = []
    for one in repeated(Experiment(datasets.Dataset("wine", table), partition="column:hospital"), 3):
        assert {name: len(rows) for name, rows in one.named().items()} == {"a": 89, "b": 89}
        held.append(sorted(one.train_and_test()[1]["alcohol"]))
    assert held[0] != held[1] != held[2] != held[0]


def test_the_last_line_has_no_interval_of_two_repeats(call):
    status, last, _ = call(*RUN, "--repeats", 2)
    assert status == 0 and {"accuracy", "loss"} <= {*last["fedavg"]}
    assert not [key for key in last["fedavg"] if key.endswith("_interval")]


def test_run_writes_every_repeat_and_says_what_the_interval_means(call, tmp_path):
    status, last, err = call(*RUN, "--repeats", 3, "--out", tmp_path)
    assert status == 0 and "each repeat holds out other rows" in err
    found = json.loads((tmp_path / "repeats.json").read_text())
    spread = found["results"]["fedavg"]["accuracy"]
    each = [json.loads((tmp_path / f"repeat-{r}" / "result.json").read_text()) for r in (1, 2, 3)]
    assert spread["values"] == [result["final"]["accuracy"] for result in each]
    assert [result["settings"]["seed"] for result in each] == [0, 1, 2]
    assert len({result["experiment"]["digest"] for result in each}) == 3
    assert last["repeats"] == 3 and last["fedavg"]["accuracy_interval"] == [spread["low"], spread["high"]]
    assert "if these same rows were dealt and split again" in found["estimates"]
    first = call(*RUN, "--out", tmp_path / "once")
    assert first[0] == 0
    once = json.loads((tmp_path / "once" / "result.json").read_text())
    assert once["weights"] == each[0]["weights"], "the first repeat is the run without --repeats"
    assert call("report", tmp_path / "repeat-1")[0] == 0


def test_compare_shows_paired_differences(call, tmp_path, monkeypatch):
    words = ["compare", "fedavg", "centralized:fedavg", *RUN[2:], "--repeats", 2, "--out", tmp_path]
    monkeypatch.setattr(repeats, "ESTIMATES", "")
    shown = []
    monkeypatch.setattr(repeats, "table", lambda found: shown.append(table(found)) or shown[0])
    assert call(*words)[0] == 0 and shown[0].columns[-1].header == "minus the first, repeat by repeat"
    assert (tmp_path / "repeat-2" / "2-centralized-fedavg" / "result.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([*RUN, "--repeats", 1], "--repeats 1 is out of range; expected 2 to 1000"),
        ([*RUN, "--repeats", 2, "--resume", "x"], "--repeats cannot be used with --resume"),
        (["run", "pca", "--data", "wine", "--repeats", 2], "pca trains no model"),
        (["compare", "fedavg", *RUN[2:], "--repeats", 2, "--test"], "--repeats cannot be used with --test"),
        (["submit", "fedavg", "--repeats", 2], "hospitals hold out the same rows in every job"),
    ],
)
def test_repeats_that_make_no_sense_are_refused(words, says, call):
    status, _, err = call(*words)
    assert status == 2 and says in err and len(err.strip().splitlines()) == 1
