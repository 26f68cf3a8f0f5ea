"""``report``: results on disk."""

import json

import pytest

from v6_federated.base import files
from v6_workbench.cli.main import main
from v6_workbench.reporting import page

RUN = ["run", "fedavg", "--data", "breast-cancer", "--rounds", "2"]


def test_a_folder_that_compare_wrote_stands_for_all_its_results(call, tmp_path):
    rows = ["--data", "wine", "--nodes", 2, "--rounds", 1, "--out", tmp_path]
    assert call("compare", "fedavg", "fedavg:lr=0", "alone:fedavg", *rows)[0] == 0
    status, line, _ = call("report", tmp_path, "--out", tmp_path / "again")
    folders = ["1-fedavg", "2-fedavg-lr=0", "3-1 alone-fedavg", "4-2 alone-fedavg"]
    assert status == 0 and list(line) == [str(tmp_path / name) for name in folders]
    drawn = {path.name for path in (tmp_path / "again").iterdir()}
    of_one = {f"{kind}-{i}.png" for kind in ("distances", "hospitals") for i in (1, 2)}  # three classes: no curves
    assert drawn == {"curves.png", "comparison.png", *of_one}


def test_a_format_that_is_none_is_refused(refused, tmp_path):
    refused("--format gif is no format of the pictures; expected png, svg, pdf", "report", tmp_path, "--format", "gif")


def test_pictures_of_an_earlier_report_are_removed(call, tmp_path):
    for folder in ("a", "b"):
        assert call(*RUN, "--out", tmp_path / folder)[0] == 0
    both = [tmp_path / "a", tmp_path / "b"]
    out = tmp_path / "out"
    out.mkdir()
    (out / "distances-final.png").touch()  # not a report's
    assert call("report", *both, "--out", out)[0] == 0
    assert {path.name for path in out.glob("distances*")} == {
        "distances-1.png",
        "distances-2.png",
        "distances-final.png",
    }
    assert call("report", both[0], "--out", out)[0] == 0
    assert {path.name for path in out.glob("distances*")} == {"distances.png", "distances-final.png"}


def test_a_run_next_to_a_comparison_is_reported_too(call, tmp_path):
    assert call(*RUN, "--out", tmp_path)[0] == 0
    assert call("compare", "fedavg", "scaffold", *RUN[2:], "--out", tmp_path)[0] == 0
    status, line, _ = call("report", tmp_path)
    assert status == 0
    assert list(line) == [str(tmp_path), str(tmp_path / "1-fedavg"), str(tmp_path / "2-scaffold")]


def test_report_names_the_experiment(capsys, tmp_path):
    compare = ["compare", "centralized:fedavg", "alone:fedavg", "--data", "wine", "--nodes", "2", "--rounds", "1"]
    assert main([*compare, "--out", str(tmp_path)]) == 0
    assert main(["report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert (
        "1-centralized-fedavg: fedavg, centralized on wine, iid, partition seed 0, seed 0; 2 nodes: 1 (89), 2 (89)"
        in out
    )
    assert "2-1 alone-fedavg: fedavg, alone: 1 on wine" in out


def test_a_result_of_a_task_is_reported(capsys, tmp_path):
    """Its experiment is the server and the task: it has no partition, and nodes do not tell their rows' names."""
    assert main([*RUN, "--out", str(tmp_path)]) == 0
    file = tmp_path / "result.json"
    result = json.loads(file.read_text())
    file.write_text(json.dumps({**result, "experiment": {"network": "network default", "task": 7}}))
    assert main(["report", str(tmp_path)]) == 0
    assert (
        f"{tmp_path}: fedavg on the organizations 1, 2, 3, 4, 5, task 7 at network default" in capsys.readouterr().out
    )


@pytest.mark.parametrize(("target", "heading"), [("0.995", "rounds to 99.5%"), ("0.9", "rounds to 90%")])
def test_the_table_has_the_rounds_to_a_target(target, heading, call, tmp_path, capsys):
    assert call(*RUN, "--out", tmp_path)[0] == 0
    assert main(["report", str(tmp_path), "--target", target]) == 0
    assert heading in capsys.readouterr().out


def test_a_folder_with_a_test_only_says_what_it_holds(refused, tmp_path):
    (tmp_path / "test.json").touch()
    refused("holds a test of `v6-federated compare --test` and no result", "report", tmp_path)


def changed(result, path, value):
    """The result with another value at a path; None removes what is there."""
    *parents, last = path
    part = result
    for key in parents:
        part = part[key]
    if value is None:
        del part[last]
    else:
        part[last] = value
    return result


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["method"], 5, "(method: it should be a valid string)"),
        (["settings"], None, "(settings: it is missing)"),
        (["settings", "seed"], "x", "(settings.seed: it should be a valid integer)"),
        (["organizations"], 5, "(organizations: it should be a valid list)"),
        (["weights"], {}, "(weights: "),
        (["model", "features"], "x", "(model.features: it should be a valid integer)"),
        (["data", "features"], 5, "(data.features: it should be a valid list)"),
        (["data", "preprocess"], ["x"], "(data.preprocess.0: it should be a valid dictionary)"),
        (["data", "classes", 0], {}, "(data: its classes are not texts or numbers)"),
        (["data", "classes"], None, "(data.classes: it is missing)"),
        (["history"], [], "(history: it should have at least 1 item, not 0)"),
        (["history", 0, "bytes_up"], "x", "(history.0.bytes_up: it should be a valid integer)"),
        (["history", 0, "participants"], 5, "(history.0.participants: it should be a valid list)"),
        (["history", 0, "n"], None, "(history.0.n: it is missing)"),
        (["history", 1, "round"], 5, "(history: its rounds are not 1, 2, ...)"),
        (["per_node", 0, "round"], None, "(per_node.0.round: it is missing)"),
        (["traffic", "evaluation"], 5, "(traffic.evaluation: it should be a valid dictionary)"),
        (["final"], 5, "(final: it should be a valid dictionary)"),
        (["final", "confusion"], [[1]], "(final: its confusion does not fit the classes of data)"),
        (["experiment"], 5, "(experiment: it should be a valid dictionary)"),
        (["experiment", "nodes"], None, "(experiment: it lacks the partition, its seed, the nodes or their rows)"),
    ],
    ids=str,
)
def test_a_damaged_result_is_refused_by_all_readers_with_the_name_of_its_part(
    path, value, says, call, refused, tmp_path
):
    assert call(*RUN, "--out", tmp_path)[0] == 0
    file = tmp_path / "result.json"
    file.write_text(json.dumps(changed(json.loads(file.read_text()), path, value)))
    for command in (
        ["report", file],
        ["export", file, "--to", tmp_path / "m.npz"],
        ["predict", file, "--data", "breast-cancer", "--out", tmp_path / "p.csv"],
        [*RUN[:-1], "3", "--resume", file],
    ):
        refused(f"{file} is not a result {says}", *command)


def test_components_of_other_columns_are_refused(call, refused, tmp_path):
    assert call("run", "pca", "--data", "wine", "--rounds", "2", "--out", tmp_path)[0] == 0
    file = tmp_path / "result.json"
    file.write_text(json.dumps(changed(json.loads(file.read_text()), ["data", "features", 0], None)))
    refused("the result has components of 13 columns and the names of 12; expected a result.json", "report", file)


def test_a_report_has_the_intervals_and_the_remark_of_the_run(capsys, tmp_path):
    """Twice the same, and of several results in one table."""
    assert main([*RUN, "--preprocess", "standardize", "--out", str(tmp_path / "a")]) == 0
    trained = capsys.readouterr()
    assert main(["report", str(tmp_path / "a")]) == 0
    reported = capsys.readouterr()
    lines = [line for line in trained.out.splitlines() if "interval" in line and not line.startswith("{")]
    assert len(lines) == 2 and all(line in reported.out.splitlines() for line in lines)
    assert "not converged: the training loss still falls by" in trained.err
    assert trained.err.splitlines()[-1] == reported.err.splitlines()[-1]
    (line,) = json.loads(reported.out.splitlines()[-1]).values()
    numbers = json.loads(trained.out.splitlines()[-1])
    assert line["accuracy_interval"] == numbers["accuracy_interval"] and line["auc_interval"] == numbers["auc_interval"]
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "a" / "result.json")]) == 0
    both = capsys.readouterr().out
    cell = "{:.4f} to {:.4f}".format(*numbers["accuracy_interval"])
    assert both.count(cell) == 2 and both.count(lines[1]) == 1


def test_a_full_disk_is_a_line_for_each_file_and_the_table_is_shown(call, tmp_path, monkeypatch):
    from v6_workbench.reporting import pictures

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    assert call("run", "fedavg", "--data", "wine", "--rounds", 1, "--out", tmp_path / "r")[0] == 0
    (tmp_path / "page.html").write_text("before")
    monkeypatch.setattr(pictures, "curves", full)
    monkeypatch.setattr(files.os, "replace", full)
    words = ["--html", tmp_path / "page.html", "--csv", tmp_path / "csv", "--out", tmp_path / "p"]
    monkeypatch.setattr(page, "page", lambda *results: "after")
    status, out, err = call("report", tmp_path / "r", *words)
    lines = [line for line in err.splitlines() if line.startswith("v6-federated: ")]
    assert status == 1 and len(lines) == 3, err
    for line, option in zip(lines, ("--out", "--html", "--csv"), strict=True):
        assert line.startswith(f"v6-federated: {option} {tmp_path}/") and "(No space left on device); make room" in line
    assert (tmp_path / "page.html").read_text() == "before" and not (tmp_path / "csv").exists()
    assert "fedavg" in out and out.strip().endswith("}")
