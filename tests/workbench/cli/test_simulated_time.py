"""``--speeds``: nodes of different speeds, in simulated time."""

import json

import pytest

from v6_workbench.cli.main import main


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_simulated_time_is_that_of_nodes_that_train(seed, call):
    """One of two nodes is ten times slower than the other, whoever evaluates; alone each takes its own time."""
    data = ["--data", "wine", "--nodes", 2, "--rounds", 4, "--partition-seed", seed, "--speeds", 10]
    status, found, _ = call("compare", "fedavg", "centralized:fedavg", "alone:fedavg", *data)
    seconds = {name: line["seconds"] for name, line in found.items()}
    assert status == 0 and 2.5 < seconds["centralized:fedavg"] < 6.5
    alone = sorted([seconds["1 alone:fedavg"], seconds["2 alone:fedavg"]])
    assert 2.5 < alone[0] < 6.5 and 25 < alone[1] < 65 and seconds["fedavg"] == pytest.approx(alone[1], rel=0.3)


def test_methods_are_compared_in_simulated_time(capsys, tmp_path):
    data = ["--data", "digits", "--nodes", "4", "--rounds", "3", "--target", "0.3"]
    assert main(["compare", "coop", "fedavg", *data, "--out", str(tmp_path), "--speeds", "10"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert "s to 30%" in out
    for line, folder in zip(found.values(), ("1-coop", "2-fedavg"), strict=True):
        result = json.loads((tmp_path / folder / "result.json").read_text())
        assert result["experiment"]["speeds"] == 10 and line["seconds"] == pytest.approx(
            sum(row["seconds"] for row in result["history"]), abs=1e-3
        )
        assert 0 < line["seconds_to_target"] <= line["seconds"]
    assert found["coop"]["seconds"] < found["fedavg"]["seconds"], "waiting for the slowest takes longest"
    assert main(["run", "fedavg", "--speeds", "10", *data]) == 0
    assert "s of simulated time" in capsys.readouterr().out
