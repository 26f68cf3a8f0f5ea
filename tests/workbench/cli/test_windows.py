"""The commands of researchers on Windows, whose Python lacks much that Linux has, and prints in the code page 1252."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

import v6_workbench
from v6_federated.base import vantage6_api
from v6_workbench.cli import results

WINDOWS = Path(__file__).parents[2] / "as_on_windows"  # its sitecustomize.py hides what Windows lacks
ALGORITHMS = Path(v6_workbench.__file__).parents[1]
NAME = "C:\\rows\\Łódź.csv"  # here the name of one file, which is read as a path on Windows is
LABELLED = ("--label", "benign", "--preprocess", "standardize", "--partition", "column:hospital")


def command(folder, *words, **environment):
    """Run a command as on Windows; returns its exit status, what it printed, and its errors."""
    path = os.pathsep.join([str(WINDOWS), str(ALGORITHMS)])
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-m", "v6_workbench.cli.main", *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "cp1252", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="cp1252",
        check=False,
    )
    own = re.findall(rf"{re.escape(str(ALGORITHMS))}/v6_.*EncodingWarning.*", done.stderr)
    assert not own, "text that is written in one encoding and read in another"
    errors = [line for line in done.stderr.splitlines() if "EncodingWarning" not in line and not line.startswith("  ")]
    return done.returncode, done.stdout, "\n".join(errors)


def last(said):
    """The last line that a command printed, which is JSON."""
    return json.loads(said.splitlines()[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table of three hospitals whose names code page 1252 does not have, and a result in ``out``."""
    made = tmp_path_factory.mktemp("windows")
    table = load_breast_cancer(as_frame=True).frame.iloc[:, [0, 1, 4, -1]].rename(columns={"target": "benign"})
    table["hospital"] = [["Łódź", "Kraków", "Gdańsk"][i % 3] for i in range(len(table))]
    table.to_csv(made / NAME, index=False)
    status, said, errors = command(
        made, "run", "fedavg", "--data", NAME, *LABELLED, "--rounds", 3, "--processes", 2, "--out", "out"
    )
    assert status == 0, errors
    assert "\\u0141\xf3d\\u017a (190)" in said and last(said)["rounds"] == 3
    return made


def test_what_a_terminal_cannot_print_is_whole_in_the_files(folder):
    shown = json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))
    assert "Łódź" in json.dumps(shown, ensure_ascii=False)


def test_one_process_trains_the_same_as_two(folder):
    words = ("run", "fedavg", "--data", NAME, *LABELLED, "--rounds", 3, "--out", "one", "--page", "page.html")
    status, _, errors = command(folder, *words)
    assert status == 0, errors
    one, two = (json.loads((folder / name / "result.json").read_text("utf-8")) for name in ("one", "out"))
    assert one["model"] == two["model"]
    assert "Łódź" in (folder / "page.html").read_text("utf-8")


def test_careful_nodes_lock_their_files(folder):
    """They agree on keys, and write an audit log."""
    careful = ("--node-env", "V6_FEDERATED_PROFILE=careful", "--set", "aggregation=masked")
    status, said, errors = command(folder, "run", "fedavg", "--data", NAME, *LABELLED, "--rounds", 1, *careful)
    assert status == 0, errors
    assert "aggregation masked: central has seen sums" in said


def test_report_export_and_predict(folder):
    assert command(folder, "report", "out", "--out", "a", "--html", "a.html", "--csv", "a")[0] == 0
    assert "Łódź" in (folder / "a.html").read_text("utf-8")
    assert b"\r" not in (folder / "a" / "rounds.csv").read_bytes()
    assert command(folder, "export", "out", "--to", "model.npz")[0] == 0
    predicted = ("predict", "model.npz", "--data", NAME, "--out", "C:\\Łódź.csv", "--keep", "hospital")
    status, said, errors = command(folder, *predicted)
    assert status == 0, errors
    assert last(said) | {"rows": 569, "predictions": "C:\\Łódź.csv"} == last(said)
    assert {*pd.read_csv(folder / "C:\\Łódź.csv")["hospital"]} == {"Łódź", "Kraków", "Gdańsk"}


def test_compare(folder):
    status, said, errors = command(
        folder, "compare", "fedavg:lr=0.3", "centralized:fedavg", "--data", NAME, *LABELLED, "--rounds", 2, "--out", "b"
    )
    assert status == 0, errors
    assert {*last(said)} == {"fedavg:lr=0.3", "centralized:fedavg"}
    assert {file.name for file in (folder / "b").iterdir() if file.is_dir()} == {
        "1-fedavg-lr=0.3",
        "2-centralized-fedavg",
    }


def test_a_schema_is_drafted(folder):
    status, _, errors = command(folder, "schema", "new", NAME, "--label", "benign", "--out", "schema.json")
    assert status == 0, errors
    assert "hospital" in (folder / "schema.json").read_text("utf-8")


@pytest.mark.parametrize("words", [("submit", "fedavg", "--organization", 1, "--image", "a"), ("watch", 3)], ids=str)
def test_a_server_that_is_not_there(folder, words):
    there = ("--server", "http://127.0.0.1:9", "--username", "me", "--collaboration", 1)
    there += ("--auth", "http://127.0.0.1:9") if vantage6_api.FIVE else ()
    status, _, errors = command(folder, *words, *there, V6_FEDERATED_PASSWORD="secret")
    assert status == 1 and errors.startswith("v6-federated: no vantage6 server answers at http://127.0.0.1:9")


def test_settings(folder):
    assert last(command(folder, "settings", "km")[1])["method"] == "km"


def test_modules_of_this_project_find_only_what_windows_has(folder):
    """Otherwise the tests above show nothing."""
    (folder / "v6_probe.py").write_text(
        "import os, signal; print(hasattr(os, 'fork'), hasattr(signal, 'SIGKILL'), os.sep); import fcntl"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import fcntl, v6_probe"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(WINDOWS)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stdout == "False False /\n" and "No module named 'fcntl' on Windows" in done.stderr


def test_a_real_network_needs_linux(refused, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    refused("network up needs Linux; on Windows, run it in WSL", "network", "up", "--data", "digits")


@pytest.mark.parametrize("name", ["fedavg:file=C:\\a", 'a<b>|"c"?*/d', "a. . ", "x" * 59 + " y"])
def test_the_folder_of_a_result_has_a_name_that_windows_accepts(name):
    made = results.folder_of(2, name)
    assert made.startswith("2-") and not re.search(r'[<>:"/\\|?*]', made) and made[-1] not in ". "
