"""The folder of ``--out``: checked before anything is trained."""

import pytest

FEDAVG = ["fedavg", "--data", "wine", "--rounds", "1"]


@pytest.mark.parametrize("command", [["run", *FEDAVG], ["compare", *FEDAVG], ["demo"]], ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("/dev/fd", "cannot write to --out /dev/fd ("),  # not even root makes a file in it
        (__file__, f"--out {__file__} is a file; expected a folder"),
    ],
)
def test_a_folder_that_cannot_be_written_to_is_refused_first(command, folder, says, trained, refused):
    refused(f"v6-federated: {says}", *command, "--out", folder)
    assert not trained


@pytest.mark.parametrize("folder", ["new", "new/deeper/still", "there"])
@pytest.mark.parametrize(
    "more", [["--set", "speed=3"], ["--node-env", "V6_FEDERATED_PROFILE=careful", "--set", "batch_size=1"]]
)
def test_a_refused_run_leaves_no_folder(folder, more, call, tmp_path):
    """Refused by this machine, or by nodes; a folder that was there stays."""
    (tmp_path / "there").mkdir()
    assert call("run", *FEDAVG, *more, "--out", tmp_path / folder)[0] != 0
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_the_folder_of_a_file_is_made(call, tmp_path):
    assert call("run", *FEDAVG, "--out", tmp_path, "--page", tmp_path / "a" / "page.html")[0] == 0
    assert call("report", tmp_path, "--html", tmp_path / "b" / "report.html")[0] == 0
    assert call("export", tmp_path, "--to", tmp_path / "c" / "model.npz")[0] == 0
    assert call("predict", tmp_path, "--data", "wine", "--out", tmp_path / "d" / "p.csv")[0] == 0
    assert {file.name for file in tmp_path.glob("[a-d]/*")} == {"page.html", "report.html", "model.npz", "p.csv"}


def test_demo_writes_its_files_and_ends_near_centralized(call, tmp_path):
    status, line, _ = call("demo", "--out", tmp_path / "new" / "folder")
    assert status == 0
    assert line["accuracy"] > line["centralized"]["accuracy"] - 0.02
    assert all(line[f"hospital {k} alone"]["accuracy"] <= line["accuracy"] for k in range(1, 6))
    written = {file.name for file in (tmp_path / "new" / "folder").iterdir()}
    pictures = {f"{kind}.png" for kind in ("curves", "distances", "scores", "hospitals", "comparison")}
    assert written == {"result.json", *pictures}
