"""Benchmarks go on where they were stopped, say how far they are, and get their data checked."""

import functools
import gzip
import hashlib
import http.server
import importlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zipfile
from unittest import mock

import numpy as np
import pytest

from v6_federated.base.errors import SafeError
from v6_workbench.network.images import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks import (
    download,
    garst2021,
    mcmahan2017,
    mcmahan2017_shakespeare,
    reddy2020_boxes,
    reddy2020_differences,
    report,
    runs,
    starts,
    tables,
)
from benchmarks.__main__ import NAMES

from v6_federated import models
from v6_federated.node import local_training
from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A small mnist.npz, every class as often."""
    rng = np.random.default_rng(0)
    y, y_test = np.arange(700) % 10, np.arange(100) % 10
    images = rng.integers(0, 256, (10, 28, 28))
    path = tmp_path_factory.mktemp("data") / "mnist.npz"
    X, X_test = ((0.5 * images[c] + rng.integers(0, 128, (len(c), 28, 28))).astype(np.uint8) for c in (y, y_test))
    np.savez(path, x_train=X, y_train=y.astype(np.uint8), x_test=X_test, y_test=y_test.astype(np.uint8))
    return path


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks", *map(str, arguments)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_a_benchmark_that_was_stopped_goes_on(digits, tmp_path):
    """Stopped by a signal in the middle and started again: finished runs are kept, the table is the same."""
    stopped, straight = tmp_path / "stopped", tmp_path / "straight"
    first = start("reddy2020", "--data", digits, "--out", stopped)
    deadline = time.monotonic() + 120
    while len(list(stopped.glob("reddy2020/*.json"))) < 2:
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130 and err.endswith("stopped; the same command goes on from here\n")
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


def test_the_differences_of_reddy_can_be_run_anew(digits, tmp_path, monkeypatch):
    """Their readings reach into the methods, whose runs are kept: nobody would see that they have ceased to run."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    for name, value in {
        "NODES": (7,),
        "PASSES": {"logreg": 2, "nn_reddy": 2},
        "STEPS": {"3": 3},
        "STEPS_A_PASS": 2,
        "ALIKE_STEPS": (("logreg", "sorted-balanced", (7,)),),
        "PARTITIONS": ("balanced", "sorted-balanced"),
        "protocols": lambda model, optimizer: [
            ("FedAvg rho = 1", "fedavg", {"epochs": 1, "rounds": 2}),
            ("DynAvg svd", "dynavg", {"protocol": "svd", "rounds": 2}),
        ],
    }.items():
        monkeypatch.setattr(reddy2020_differences, name, value)
    dataset = datasets.load(str(digits))
    for table in ("readings", "alike_steps", "readings_of_adam", "starts", "gaps", "gaps_of_rounds"):
        lines = [*getattr(reddy2020_differences, table)(dataset)]
        assert [line for line in lines if line.startswith("| ")][2:] and "nan" not in "".join(lines), table
    monkeypatch.setattr(reddy2020_boxes, "PASSES", {"logreg": 2})
    monkeypatch.setattr(reddy2020_boxes, "CHOSEN", (("sgd", "sorted-balanced", 7),))
    (row,) = [line for line in reddy2020_boxes.lines(dataset) if line.startswith("| sgd")]
    assert "nan" not in row


def test_networks_of_mcmahan_from_other_starts(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    cells, rates = [("2nn", "iid", 0.0, 1, 50), ("cnn_mcmahan", "iid", 0.0, 1, 50)], (0.2, 0.1)
    monkeypatch.setattr(mcmahan2017, "ROWS", [mcmahan2017.Row("1", *cell, 50, 1, seeds=(1,)) for cell in cells])
    monkeypatch.setattr(mcmahan2017, "OTHER_STARTS", {c: dict.fromkeys(mcmahan2017.STARTS, rates) for c in cells})
    monkeypatch.setattr(mcmahan2017, "TARGET", {"2nn": 1.0, "cnn_mcmahan": 1.0})
    few = datasets.load(str(digits))
    dataset = datasets.Dataset("digits", few.take(np.arange(6000) % 700), few.test)
    lines = [line for line in mcmahan2017.other_starts(dataset) if line.startswith("| ")][2:]
    assert len(lines) == 6 and all("| 0.1: (0." in line and "; 0.2: (0." in line for line in lines)
    losses = {json.loads(file.read_text())["history"][0][1] for file in tmp_path.glob("mcmahan2017/*.json")}
    assert len(losses) == 12  # two models, three starts, two rates
    model = models.build({"name": "cnn_mcmahan", "features": 784, "classes": 10})
    w = starts.weights("tutorial", model, np.random.default_rng(0))
    assert np.abs(w).max() <= np.float32(0.2) and (w == np.float32(0.1)).sum() >= 32 + 64 + 512 + 10
    np.testing.assert_allclose(w.std(), 0.088, atol=0.001)  # of a normal deviate of 0.1, cut at two


def test_figure_1_of_mcmahan(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    few = datasets.load(str(digits))
    dataset = datasets.Dataset("digits", few.take(np.arange(1200) % 700), few.test)
    lines = [*mcmahan2017.figure_1(dataset, tmp_path / "figure.png")][2:]
    found = {tuple(float(cell) for cell in line.split(" | ")[2:5]) for line in lines}
    assert len(lines) == len(found) == 6 and (tmp_path / "figure.png").exists()


def test_readings_of_reddy_differ_from_ours_as_they_say(digits):
    """Moments that are kept change Adam's second pass, not its first."""
    dataset = datasets.load(str(digits))
    for rounds, same in ((1, True), (2, False)):
        experiment = Experiment(dataset, 2, "balanced", 1, 1, processes=1)
        values = {"model": "logreg", "optimizer": "adam", "lr": 0.01, "batch_size": 32, "delta": 9.0, "rounds": rounds}
        ours = experiment.federated("dynavg", values, None)
        kept = reddy2020_differences.with_moments_kept(experiment, values, None)
        assert (ours["weights"] == kept["weights"]) is same


def test_a_pass_in_a_circle_has_its_steps(digits):
    """Seven steps of 32 rows a pass at each of three nodes, of which the smallest has fewer rows."""
    taken = []
    dataset = datasets.load(str(digits))
    step = local_training.optimizer

    def counted(local, rates, w_t):
        taken.append(0)
        own = step(local, rates, w_t)

        def one(w, g):
            taken[-1] += 1
            own(w, g)

        return one

    experiment = Experiment(dataset, 3, "size", 1, 1, processes=1)
    values = {"model": "logreg", "lr": 0.01, "batch_size": 32, "delta": 9.0, "rounds": 2}
    with mock.patch.object(local_training, "optimizer", counted):
        reddy2020_differences.in_a_circle(experiment, values, 7, None)
    assert taken == [7] * 6


@pytest.mark.parametrize("method", ["fedavg", "loadaboost", "colearning"])
@pytest.mark.parametrize("target", [None, 0.99])
def test_a_long_run_goes_on_within(method, target, digits, tmp_path, monkeypatch):
    """Stopped between two segments, it ends with the history of one that was not; nothing else is left of it."""
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


def test_all_names_the_data_that_are_not_there(tmp_path):
    """And puts the pages that are there into a report, reduced ones too."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "reddy2020-reduced.md").write_text("# Reddy\n")
    process = start("all", "--data", tmp_path, "--out", tmp_path / "out")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and out.endswith("REPORT.md\n")
    for line in (
        "mcmahan2017: no mnist.npz in",
        "garst2021_gbdt: no fashion_mnist.npz in",
        "garst2021_pca: no golub.npz",
    ):
        assert f"left out, {line}" in err
    for name in NAMES:
        assert callable(importlib.import_module(f"benchmarks.{name}").main)


def test_kept_runs_alone_make_a_page(digits, tmp_path, monkeypatch):
    """With --kept nothing is run; each line whose run is not there says so, and the report counts it as not run."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    experiment = Experiment(datasets.load(str(digits)), 4, "iid", 1, 1)

    def cells(lr):
        run = runs.kept("d", "fedavg", experiment, {"model": "logreg", "lr": lr, "rounds": 1})
        return f"{run.history[0]['accuracy']:.3f}", len(run.history)

    def page():
        lines = [*tables.head("rate", "paper's rounds", "ours, by seed", "rounds")]
        lines += [tables.trained((lr, 9), lambda lr=lr: cells(lr), 2) for lr in (0.1, 0.2)]
        tables.page("d", "D", True, lines, "", 2)
        return (tmp_path / "d.md").read_text()

    whole = page()
    monkeypatch.setattr(runs, "only_kept", True)
    assert page() == whole and "not run yet" not in whole
    gone = next(f for f in (tmp_path / "d").iterdir() if json.loads(f.read_text())["settings"]["lr"] == 0.2)
    gone.unlink()
    partly = page()
    assert "| 0.2 | 9 | not run yet | - |" in partly and not gone.exists()
    assert partly.splitlines()[:9] == whole.splitlines()[:9], "the other line is as it was"
    assert report.counted(partly, dict(report.PAGES)["mcmahan2017"][0])[3] == 1


def test_kept_of_the_command(digits, tmp_path):
    """A line whose table takes all of its runs is not there: the page is not finished."""
    process = start("garst2021", "--data", digits, "--out", tmp_path, "--kept")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    page = (tmp_path / "garst2021-reduced.md").read_text()
    assert page.count("| not run yet | - | - |") == len(garst2021.MNIST) and "(Not finished; " in page
    assert not (tmp_path / "garst2021").exists()


def test_a_report_counts_what_comes_near(tmp_path, monkeypatch):
    """The mean of several seeds counts; what was not reached, or is far off, is named; pictures are in the HTML."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    rows = (
        "a | 1 | 100 | 110, 130",
        "b | 2 | 100 | 120, 140",
        "c | 3 | 100 | not reached in 50",
        "d | 4 | - | 3",
        "e | 5",
        "f | 6 | 100 | 20",
    )
    table = ["| model | E | paper's rounds | ours, by seed |", "| :-- | --- | --- | --- |", *(f"| {r} |" for r in rows)]
    page = ["# M", "", *table, "", "![p](p.png)"]
    (tmp_path / "mcmahan2017.md").write_text("\n".join(page))
    (tmp_path / "p.png").write_bytes(b"\x89PNG")
    points = [
        "| rows | accuracy Garst | accuracy |",
        "| --- | --- | --- |",
        "| x | 0.930 | 0.910 |",
        "| y | 0.95 | 0.929 |",
    ]
    (tmp_path / "garst2021-reduced.md").write_text("\n".join(points))
    text = report.write().read_text()
    counted = "2 of 4 (1 of them with 0.8 times as many or more)"
    assert f"| [mcmahan2017](mcmahan2017.md) | {counted} | within 1.25 times" in text
    assert "| b, 2: 100 / 120, 140; c, 3: 100 / not reached in 50 |" in text
    assert "| [garst2021-reduced](garst2021-reduced.md) | 1 of 2 | accuracies" in text and "| y: 0.95 / 0.929 |" in text
    assert "Not run yet in full: mcmahan2017_shakespeare, nilsson2018, " in text and ", garst2021, " in text
    shown = (tmp_path / "REPORT.html").read_text()
    assert "<td>110, 130</td>" in shown and 'src="data:image/png;base64,iVBORw=="' in shown
    monkeypatch.setattr(runs, "RESULTS", tmp_path / "nothing")
    with pytest.raises(SafeError, match="no tables in"):
        report.write()


def test_the_report_is_of_the_pages_beside_it():
    """``python -m benchmarks report`` after every benchmark."""
    assert (runs.RESULTS / "REPORT.md").read_text() == "\n".join(report.lines(runs.RESULTS)) + "\n"


@pytest.fixture
def home(tmp_path):
    """A server of four idx files; its address, their arrays, their digests."""
    rng = np.random.default_rng(1)
    arrays, digests = {}, []
    folder = tmp_path / "home"
    folder.mkdir()
    for key, file in download.FILES.items():
        shape = (6, 4, 4) if key.startswith("x") else (6,)
        arrays[key] = rng.integers(0, 256, shape).astype(np.uint8)
        idx = struct.pack(f">I{len(shape)}I", 2048 + len(shape), *shape) + arrays[key].tobytes()
        (folder / file).write_bytes(gzip.compress(idx))
        digests.append(hashlib.sha256(idx).hexdigest())

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", arrays, digests
        server.shutdown()


def test_data_are_downloaded_and_checked(home, tmp_path):
    url, arrays, digests = home
    (tmp_path / "data").mkdir()
    path = download.images("mnist", tmp_path / "data", url, digests)
    with np.load(path, allow_pickle=False) as found:
        assert set(found.files) == set(arrays)
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[key], array)
    with pytest.raises(
        SafeError, match=r"train-images-idx3-ubyte.gz is another file than the one known; expected sha256"
    ):
        download.images("mnist", tmp_path / "other", url)
    with pytest.raises(SafeError, match=r"nothing/train-images-idx3-ubyte.gz cannot be read"):
        download.images("mnist", tmp_path / "other", f"{url}nothing/", digests)
    assert not (tmp_path / "other").exists()


def test_golubs_patients_are_read_from_rs_format(tmp_path):
    """A list of x, a matrix by columns, and y, a factor, as R writes it in ASCII."""
    text = "262153 {} {}"  # a string: its length and itself
    name = "1026 1 " + text  # of what follows in a list
    x = f"526 6 1 2 3 4 5 6.5 {name.format(3, 'dim')} 13 2 2 3 254"
    levels = f"{name.format(6, 'levels')} 16 2 {text.format(3, 'ALL')} {text.format(3, 'AML')}"
    y = f"781 2 2 1 {levels} {name.format(5, 'class')} 16 1 {text.format(6, 'factor')} 254"
    names = f"{name.format(5, 'names')} 16 2 {text.format(1, 'x')} {text.format(1, 'y')} 254"
    file = tmp_path / "golub.RData"
    file.write_text(f"RDA2 A 2 196865 131840 {name.format(5, 'golub')} 531 2 {x} {y} {names} 254 ".replace(" ", "\n"))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with np.load(download.golub(tmp_path, file.as_uri(), digest), allow_pickle=False) as found:
        np.testing.assert_array_equal(found["x"], np.array([[1, 3, 5], [2, 4, 6.5]], np.float32))
        assert found["y"].tolist() == [1, 0] and found["x"].dtype == np.float32
    with pytest.raises(SafeError, match="another file than the one known"):
        download.golub(tmp_path, file.as_uri())


def test_shakespeares_roles_are_read_from_the_plays(tmp_path):
    """Speeches of two are a role of their own, stage directions go, roles of one line too; rows follow each other."""
    speech = "<SPEECH>{}</SPEECH>"
    long_lines = "".join(f"<LINE>Line  {i} of<STAGEDIR>Aside</STAGEDIR> many, <i/>all alike.</LINE>" for i in range(20))
    play = "<PLAY><TITLE>A Play</TITLE>" + "".join(
        speech.format(words)
        for words in (
            f"<SPEAKER>One</SPEAKER>{long_lines}",
            "<SPEAKER>two</SPEAKER><LINE>No.</LINE>",
            "<SPEAKER>One</SPEAKER><SPEAKER>Two</SPEAKER><LINE>Yes.</LINE><LINE>Yes!</LINE>",
        )
    )
    archive = tmp_path / "plays.zip"
    with zipfile.ZipFile(archive, "w") as plays:
        plays.writestr("a.xml", play + "</PLAY>")
        plays.writestr("play.dtd", "")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    file = download.shakespeare(tmp_path, archive.as_uri(), digest)
    roles = json.loads(gzip.decompress(file.read_bytes()))
    assert list(roles) == ["A Play|ONE", "A Play|ONE & TWO"]
    assert roles["A Play|ONE"][3] == "Line 3 of many, all alike." and roles["A Play|ONE & TWO"] == ["Yes.", "Yes!"]
    dataset = mcmahan2017_shakespeare.load(file)
    X, y = dataset.rows
    text = "\n".join(roles["A Play|ONE"][:16])
    characters = sorted(set("".join(map("\n".join, roles.values()))))
    assert X.shape == ((len(text) - 1) // 80, 80) and dataset.roles.tolist() == [0] * len(X)
    assert "".join(characters[c] for c in X.flatten()) == text[: X.size]
    assert [characters[c] for c in y] == [text[80 * (i + 1)] for i in range(len(y))]
    with pytest.raises(SafeError, match="another file than the one known"):
        download.shakespeare(tmp_path, archive.as_uri())
    assert len(dataset.test[1]) == 1
    for content in (
        b"no",
        gzip.compress(b"{}"),
        gzip.compress(b'{"a": ["b"]}'),
        gzip.compress(b"[]")[:-9] + b"123456789",
    ):
        archive.with_suffix(".json.gz").write_bytes(content)
        with pytest.raises(SafeError, match=r"plays.json.gz is no gzipped JSON of roles and their lines; expected"):
            mcmahan2017_shakespeare.load(archive.with_suffix(".json.gz"))


def test_a_character_that_only_test_rows_have(tmp_path):
    """As in Shakespeare's plays, whose characters the benchmark names."""
    words = [f"Line {i} of many, all alike." for i in range(40)]
    roles = {f"A Play|{k}": words[k:] + words[:k] for k in range(20)}
    roles["A Play|20"] = words[:32] + ["!" * 100] * 8
    file = tmp_path / "shakespeare.json.gz"
    file.write_bytes(gzip.compress(json.dumps(roles).encode()))
    dataset = mcmahan2017_shakespeare.load(file)
    assert set(dataset.test[1]) - set(dataset.rows[1])
    process = start("mcmahan2017_shakespeare", "--data", file, "--out", tmp_path / "out")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert (
        "| roles | 1 | 10 | 164 | not in 3 |" in (tmp_path / "out" / "mcmahan2017_shakespeare-reduced.md").read_text()
    )
