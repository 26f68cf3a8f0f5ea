"""Every command that reads results, over every kind of result: it works, or says in one line why it cannot."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers import server_of_four, table

from v6_workbench.cli import console, results
from v6_workbench.cli.main import main
from v6_workbench.cli.place import Place
from v6_workbench.reporting import pictures

DIGEST = f"sha256:{'0a' * 32}"
ROUNDS = 2
EVERY = {"report", "page", "npz", "safetensors", "predict", "predict exported", "beside", "resume"}
NO_FOLDER = {"report", "page", "beside"}  # of several results: no single model to export or resume

# kind of result: how it is made, and which commands must work; all others must be refused
LINEAR = ["fedavg", "fsvrg", "coop", "dynavg"]  # the results of the others are like the first
PRIVATE = ["--set", "clip=1", "--set", "noise=5", "--set", "aggregation=masked"]
KINDS = {
    **{method: ([method], EVERY) for method in LINEAR},
    "many classes": (["fedavg", "--model", "2nn"], EVERY),
    "steps": (["fedavg", "--preprocess", "standardize", "--preprocess", "pca:2"], EVERY),
    "gbdt": (["gbdt"], EVERY | {"txt"}),
    "regression": (["gbdt", "--set", "objective=regression"], EVERY | {"txt"}),
    "pca": (["pca", "--set", "components=2"], EVERY - {"resume"}),
    "glm": (["glm"], EVERY),
    "glm of numbers": (["glm", "--set", "family=gaussian"], EVERY),
    "cox": (["cox"], EVERY),
    "not evaluated": (["fedavg", "--holdout", "0"], EVERY),
    "masked": (["fedavg", "--set", "aggregation=masked"], EVERY),
    "private": (["fedavg", *PRIVATE], EVERY),
    "two limits": (["fedavg", "--node-env", "2:V6_FEDERATED_MINIMUM_ROWS=12"], EVERY),
    "interrupted": (["fedavg"], EVERY),
    "network": (["fedavg"], EVERY),
    "network, unnamed": (["scaffold"], EVERY),
    "repeats": (["fedavg", "--repeats", "2"], NO_FOLDER),
    "compared": (["fedavg", "centralized:fedavg", "alone:fedavg"], NO_FOLDER),
    "tested": (["fedavg", "gbdt", "--test", "1", "--folds", "3"], set()),
}


def rows_of(kind: str) -> pd.DataFrame:
    rows = table(150, seed=3)
    if kind == "many classes":
        rows["label"] = np.array(["one", "two", "three"])[np.arange(150) % 3]
    if kind in ("regression", "glm of numbers"):
        rows["label"] = 2.0 * rows["x0"] + rows["x1"]
    if kind == "cox":
        rows["label"] = np.random.default_rng(0).exponential(np.exp(-rows["x0"]))
    return rows.drop(columns="label") if kind == "pca" else rows


class Client:
    """A client of a server with one task, as vantage6 4.15 describes it."""

    collaboration_id = 1

    def __init__(self, names):
        self.names = names

    def request(self, endpoint, params=None):
        task = {
            "id": 7,
            "name": "v6-federated fedavg",
            "description": f"fedavg, {ROUNDS} rounds, image {DIGEST}",
            "image": "v6-fedavg",
            "status": "completed",
            "created_at": "2026-11-25T09:00:00",
            "parent": None,
            "init_user": None,
            "init_org": {"id": 1},
            "collaboration": {"id": 1},
        }
        run = {"organization": {"id": 1}, "started_at": "2026-11-25T09:00:01", "finished_at": "2026-11-25T09:09:00"}
        listed = {
            "task/7": task,
            "task": {"data": []},
            "run": {"data": [run]},
            "organization": {"data": self.names} if self.names else {"msg": "You lack the permission to do that!"},
        }
        return listed[endpoint]


def made(kind, arguments, data, out, monkeypatch) -> None:
    """Write a result of this kind to the folder."""
    where = ["--data", str(data), "--nodes", "3", "--partition", "iid", "--out", str(out)]
    if kind != "pca":
        where += ["--rounds", str(ROUNDS)]
    with monkeypatch.context() as patched:
        without_pictures(patched)
        if kind == "interrupted":
            patched.setattr(console.Bar, "on_round", press)
        command = "compare" if kind in ("compared", "tested") else "run"
        assert main([command, *arguments, *where]) == (130 if kind == "interrupted" else 0)
        if kind.startswith("network"):
            names = [] if "unnamed" in kind else [{"id": k, "name": f"hospital {k}"} for k in (1, 2, 3)]
            place = Place(Client(names), 1, "network here", ("--network", "here"), SimpleNamespace(encrypted=False))
            result = {name: value for name, value in results.read(out).items() if name not in ("started", "ended")}
            results.write(out, place.labelled({**result, "experiment": {}}, 7))


def without_pictures(patched) -> None:
    """Draw no curves, which take most of the time and have tests of their own; the page draws all others."""
    for name in ("curves", "comparison", "of_one"):
        patched.setattr(pictures, name, lambda *arguments, **named: None)


def press(bar, row):
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A result of another kind, to be reported side by side."""
    folder = tmp_path_factory.mktemp("other")
    run = ["run", "fedavg", "--data", "wine", "--rounds", "1", "--preprocess", "standardize", "--out", str(folder)]
    with pytest.MonkeyPatch.context() as patched:
        without_pictures(patched)
        assert main(run) == 0
    return folder


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=server_of_four) if kind.startswith("network") else kind for kind in KINDS]
)
def test_every_command_works_or_says_why(kind, call, capsys, tmp_path, monkeypatch, other):
    arguments, works = KINDS[kind]
    data, out, made_there = tmp_path / "rows.csv", tmp_path / "result", tmp_path / "made"
    rows = rows_of(kind)
    rows.to_csv(data, index=False)
    made_there.mkdir()
    made(kind, arguments, data, out, monkeypatch)
    without_pictures(monkeypatch)
    method, page = arguments[0], made_there / "page.html"
    capsys.readouterr()
    commands = {
        "report": ["report", out],
        "page": ["report", out, "--html", page, "--csv", made_there, "--out", made_there, "--format", "svg"],
        "beside": ["report", out, other, "--out", made_there, "--format", "pdf"],
        "npz": ["export", out, "--to", made_there / "m.npz"],
        "safetensors": ["export", out, "--to", made_there / "m.safetensors"],
        "txt": ["export", out, "--to", made_there / "m.txt"],
        "predict": ["predict", out, "--data", data, "--out", made_there / "p.csv"],
        "predict exported": ["predict", made_there / "m.npz", "--data", data, "--out", made_there / "q.csv"],
        "resume": ["run", method, "--data", data, "--nodes", 3, "--resume", out, "--rounds", ROUNDS + 1],
    }
    if kind == "two limits":
        commands["resume"] += arguments[1:]
    for name, words in commands.items():
        status, found, err = call(*words)
        assert "Traceback" not in err, (name, err)
        if name in works:
            assert status == 0, (name, err)
        else:
            said = [line for line in err.splitlines() if not line.startswith("taken over from the earlier job: ")]
            assert status == 2 and len(said) == 1 and said[0].startswith("v6-federated: "), (name, status, err)
        if name == "report" and status == 0:
            assert all(reported["rounds"] >= 1 for reported in found.values())
    if "predict" in works:
        assert len(pd.read_csv(made_there / "p.csv")) == len(rows)
        pd.testing.assert_frame_equal(pd.read_csv(made_there / "p.csv"), pd.read_csv(made_there / "q.csv"), atol=1e-6)
    if "page" in works:
        assert page.read_text().count("<article") == {"repeats": 2, "compared": 5}.get(kind, 1)


@server_of_four
def test_a_result_of_a_network_has_its_names(tmp_path, call, monkeypatch):
    data = tmp_path / "rows.csv"
    rows_of("network").to_csv(data, index=False)
    made("network", ["fedavg"], data, tmp_path / "r", monkeypatch)
    kept = json.loads((tmp_path / "r" / "result.json").read_text())
    assert kept["image"] == {"name": "v6-fedavg", "digest": DIGEST}
    assert call("report", tmp_path / "r", "--html", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    for words in ("hospital 1, hospital 2, hospital 3", DIGEST, "2026-11-25T09:00:01+00:00", "no hospital tells them"):
        assert words in page, words
