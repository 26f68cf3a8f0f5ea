"""``report``: results on disk."""

import json

import pytest

from v6_workbench.cli.main import main

RUN = ["run", "fedavg", "--data", "breast-cancer", "--rounds", "2"]


def test_a_folder_that_compare_wrote_stands_for_all_its_results(call, tmp_path):
    rows = ["--data", "wine", "--nodes", 2, "--rounds", 1, "--out", tmp_path]
    assert call("compare", "fedavg", "fedavg:lr=0", "alone:fedavg", *rows)[0] == 0
    status, line, _ = call("report", tmp_path, "--out", tmp_path / "again")
    folders = ["1-fedavg", "2-fedavg-lr=0", "3-1 alone-fedavg", "4-2 alone-fedavg"]
    assert status == 0 and list(line) == [str(tmp_path / name) for name in folders]
    drawn = {path.name for path in (tmp_path / "again").iterdir()}
    assert drawn == {"curves.png", "comparison.png", "distances-1.png", "distances-2.png"}


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
