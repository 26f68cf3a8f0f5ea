"""A stopped benchmark continues, shows its progress, and makes its pages from the runs that it kept."""

import functools
import importlib
import json
import signal
import time

import pytest
from benchmarks import garst2021, runs, tables
from benchmarks.__main__ import NAMES, main

from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment


@pytest.mark.long
def test_a_stopped_benchmark_continues(start, digits, tmp_path):
    """Stopped by a signal in the middle and started again: finished runs are kept, the table is the same."""
    stopped, straight = tmp_path / "stopped", tmp_path / "straight"
    first = start("reddy2020", "--data", digits, "--out", stopped)
    deadline = time.monotonic() + 120
    while len(list(stopped.glob("reddy2020/*.json"))) < 2:
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130 and err.endswith("stopped; the same command continues from here\n")
    assert "Traceback" not in err
    kept = {file.name: file.stat().st_mtime_ns for file in stopped.glob("reddy2020/*.json")}
    assert 2 <= len(kept) < 7
    assert "Not finished" in (stopped / "reddy2020-reduced.md").read_text()
    for folder in (stopped, straight):
        process = start("reddy2020", "--data", digits, "--out", folder)
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
    assert "reddy2020: run 7 of at most 7 done in" in err and "min left" in err
    tables = [(folder / "reddy2020-reduced.md").read_text() for folder in (stopped, straight)]
    assert tables[0] == tables[1] and "Not finished" not in tables[0]
    assert tables[0].count("| balanced | 7 |") == 7 and out.count("| balanced | 7 |") == 7
    assert kept.items() <= {file.name: file.stat().st_mtime_ns for file in stopped.glob("reddy2020/*.json")}.items()


@pytest.mark.parametrize("method", ["fedavg", "loadaboost", "colearning"])
@pytest.mark.parametrize("target", [None, 0.99])
def test_a_long_run_continues_after_its_last_segment(method, target, digits, tmp_path, monkeypatch):
    """Stopped between two segments, it ends with the history of a straight run, and no other file."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    experiment = Experiment(datasets.load(str(digits)), 4, "iid", 1, 1)
    values = {"model": "logreg", "lr": 0.1, "batch_size": 20, "rounds": 5, "fraction": 0.5, "target": target}

    def untimed(run):
        return [{**row, "seconds": None} for row in run.history]

    straight = runs.kept("straight", method, experiment, values)
    train, calls = Experiment.federated, []

    def stopped(self, method, values, on_round):
        calls.append(values["rounds"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return train(self, method, values, on_round)

    monkeypatch.setattr(Experiment, "federated", stopped)
    with pytest.raises(KeyboardInterrupt):
        runs.kept("parts", method, experiment, values, segment=2)
    (part,) = (tmp_path / "parts").iterdir()
    assert part.name.endswith(".part.json")
    part.write_text(json.dumps({**json.loads(part.read_text()), "seconds": 5000.0}))
    monkeypatch.setattr(runs, "machine", lambda model: "another")
    parts = runs.kept("parts", method, experiment, values, segment=2)
    assert calls == [2, 4, 5, 5], "from round 4 on"
    assert parts.machine == f"another; rounds 1 to 4: {straight.machine}"
    assert untimed(parts) == untimed(straight)
    (file,) = (tmp_path / "parts").iterdir()
    assert [file.name] == [file.name for file in (tmp_path / "straight").iterdir()]
    assert 5000 <= json.loads(file.read_text())["wall_seconds"] < 5100, "of both sittings"


def test_all_names_the_missing_data(tmp_path, monkeypatch, capsys):
    """It runs what needs no data, and makes a report of the pages in the folder, also of reduced ones."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "reddy2020-reduced.md").write_text("# Reddy\n")
    (tmp_path / "out" / "reddy2020-reduced.json").write_text('{"title": "Reddy", "finished": true, "comparisons": []}')
    ran = []
    monkeypatch.setattr("benchmarks.__main__._benchmark", lambda name, data, full: ran.append(name))
    monkeypatch.setattr(runs, "RESULTS", runs.RESULTS)  # --out sets it
    monkeypatch.setattr("sys.argv", ["benchmarks", "all", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    assert main() == 1
    out, err = capsys.readouterr()
    assert ran == ["careful", "cox_bins", "folding", "log_rank", "poisoning"] and out.endswith("README.md\n")
    for line in (
        "mcmahan2017: no mnist.npz in",
        "garst2021_gbdt: no fashion_mnist.npz in",
        "garst2021_pca: no golub.npz",
    ):
        assert f"left out: {line}" in err
    for name in NAMES:
        assert callable(importlib.import_module(f"benchmarks.{name}").main)


def test_kept_runs_alone_make_a_page(digits, tmp_path, monkeypatch):
    """With --kept nothing is run, and a line whose run is missing says so."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    experiment = Experiment(datasets.load(str(digits)), 4, "iid", 1, 1)

    def cells(lr):
        run = runs.kept("d", "fedavg", experiment, {"model": "logreg", "lr": lr, "rounds": 1})
        return f"{run.history[0]['accuracy']:.3f}", len(run.history)

    def lines():
        yield from tables.head("rate", "paper's rounds", "ours, by seed", "rounds")
        for lr in (0.1, 0.2):
            yield tables.trained((lr, 9), functools.partial(cells, lr), 2)

    def page():
        tables.page(tables.Page("d", "D", True, "About."), lines(), 2)
        return (tmp_path / "d.md").read_text()

    whole = page()
    monkeypatch.setattr(runs, "only_kept", True)
    assert page() == whole and "not run yet" not in whole
    gone = next(f for f in (tmp_path / "d").iterdir() if json.loads(f.read_text())["settings"]["lr"] == 0.2)
    gone.unlink()
    partly = page()
    assert "| 0.2 | 9 | not run yet | - |" in partly and not gone.exists()
    line = "| 0.1 | 9 |"
    assert [row for row in partly.splitlines() if row.startswith(line)] == [
        row for row in whole.splitlines() if row.startswith(line)
    ]
    assert "2 runs" in whole and "1 run," in partly


def test_the_kept_option(start, digits, tmp_path):
    """If a table needs a missing run, the page ends there and says that it is not finished."""
    process = start("garst2021", "--data", digits, "--out", tmp_path, "--kept")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    page = (tmp_path / "garst2021-reduced.md").read_text()
    assert page.count("| not run yet |") == 2 * len(garst2021.MNIST) and "(Not finished; " in page
    assert not (tmp_path / "garst2021").exists()
