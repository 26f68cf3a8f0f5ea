"""Benchmarks go on where they were stopped, say how far they are, and get their data checked."""

import functools
import gzip
import hashlib
import http.server
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from v6_federated.errors import SafeError
from v6_federated.images import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks import download, report, runs


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
        [sys.executable, "-m", "benchmarks", *map(str, arguments)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


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


def test_a_report_counts_what_comes_near(tmp_path, monkeypatch):
    """The mean of several seeds counts; what was not reached, or is far off, is named; pictures are in the HTML."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    rows = (
        "a | 1 | 100 | 110, 130",
        "b | 2 | 100 | 120, 140",
        "c | 3 | 100 | not reached in 50",
        "d | 4 | - | 3",
        "e | 5",
    )
    table = ["| model | E | paper's rounds | ours, by seed |", "| :-- | --- | --- | --- |", *(f"| {r} |" for r in rows)]
    page = ["# M", "", *table, "", "![p](p.png)"]
    (tmp_path / "mcmahan2017.md").write_text("\n".join(page))
    (tmp_path / "p.png").write_bytes(b"\x89PNG")
    points = [
        "| rows | accuracy Garst | ours |",
        "| --- | --- | --- |",
        "| x | 0.930 | 0.910 |",
        "| y | 0.95 | 0.929 |",
    ]
    (tmp_path / "garst2021-reduced.md").write_text("\n".join(points))
    text = report.write().read_text()
    assert "| [mcmahan2017](mcmahan2017.md) | 1 of 3 | within 1.25 times" in text
    assert "| b, 2: 100 / 120, 140; c, 3: 100 / not reached in 50 |" in text
    assert "| [garst2021-reduced](garst2021-reduced.md) | 1 of 2 | accuracies" in text and "| y: 0.95 / 0.929 |" in text
    assert "Not run yet in full: nilsson2018, " in text and ", garst2021, " in text
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
    path = download.download("mnist", tmp_path / "data", url, digests)
    with np.load(path, allow_pickle=False) as found:
        assert set(found.files) == set(arrays)
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[key], array)
    with pytest.raises(
        SafeError, match=r"train-images-idx3-ubyte.gz is another file than the one known; expected sha256"
    ):
        download.download("mnist", tmp_path / "other", url)
    with pytest.raises(SafeError, match=r"nothing/train-images-idx3-ubyte.gz cannot be read"):
        download.download("mnist", tmp_path / "other", f"{url}nothing/", digests)
    assert not (tmp_path / "other").exists()
