"""Ctrl-C and other ends of a command: what it says, what it leaves, and its exit status."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import requests

from v6_workbench.cli import console, parser
from v6_workbench.cli.main import main
from v6_workbench.simulation.experiments import Experiment

IMPORTS = """
import sys
from v6_workbench.cli.main import main
assert not {'numpy', 'pandas', 'rich', 'argparse', 'v6_workbench.cli.parser'} & set(sys.modules)
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == 'v6_workbench.cli.parser':
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
sys.exit(main(['demo']))
"""


def test_ctrl_c_while_libraries_are_imported():
    """``main`` imports what is slow, so that it is there to catch Ctrl-C."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "v6-federated: interrupted\n")


@pytest.fixture
def ends_with(monkeypatch):
    """Lets a command end with an error."""

    def ends_with(error):
        def fail(arguments):
            raise error

        monkeypatch.setattr(parser, "parse", fail)

    return ends_with


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "No space left on device"),
        (OSError(errno.EIO, "Input/output error", "a.csv"), 1, "Input/output error: a.csv"),
        (
            OSError(errno.EACCES, "Permission denied", "a.csv"),
            2,
            "a.csv cannot be read or written (permission denied); close it elsewhere, correct its permissions, or name "
            "another",
        ),
        (OSError(errno.EISDIR, "Is a directory", "a"), 2, "a is a folder; expected a file"),
        (requests.exceptions.ReadTimeout("no answer in time"), 1, "ReadTimeout: no answer in time"),
        (RuntimeError("a\nb"), 1, "RuntimeError: a b (set V6_FEDERATED_DEBUG=1 to see the traceback)"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_any_error_is_one_line(error, status, says, ends_with, call, monkeypatch):
    monkeypatch.delenv("V6_FEDERATED_DEBUG", raising=False)
    ends_with(error)
    assert call("demo") == (status, "", f"v6-federated: {says}\n")


def test_a_traceback_on_request(ends_with, call, monkeypatch):
    monkeypatch.setenv("V6_FEDERATED_DEBUG", "1")
    ends_with(RuntimeError("a"))
    with pytest.raises(RuntimeError, match="a"):
        call("demo")


COMPARE = ["compare", "fedavg", "scaffold", "--data", "wine", "--nodes", 2, "--rounds", 3]


def test_an_interruption_before_the_first_round_names_no_results(call, tmp_path, monkeypatch):
    """Those in the folder are of an earlier command."""

    def interrupt(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "federated", interrupt)
    tmp_path.joinpath("result.json").touch()
    status, _, err = call(*COMPARE, "--out", tmp_path)
    assert status == 130 and err.endswith("v6-federated: interrupted\n")


def test_an_interruption_names_the_folder_of_finished_results(call, tmp_path, monkeypatch):
    rounds = []

    def interrupt(bar, row):
        rounds.append(row)
        if len(rounds) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(console.Bar, "on_round", interrupt)
    status, _, err = call(*COMPARE, "--out", tmp_path)
    says = f"the results so far are in {tmp_path}, of which the last may be of a training that was interrupted"
    assert status == 130 and err.endswith(f"v6-federated: interrupted; {says}\n")
    kept = [len(json.loads(file.read_text())["history"]) for file in sorted(tmp_path.glob("*/result.json"))]
    assert kept == [3, 2], "the first is whole; the second ended after its second round"


def test_an_interruption_of_tune_says_that_the_same_command_goes_on(call, tmp_path, monkeypatch):
    rounds = []

    def interrupt(bar, row):
        rounds.append(row)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    tune = ["tune", "fedavg", "--data", "wine", "--nodes", 2, "--rounds", 2, "--grid", "lr=0.1,1", "--out", tmp_path]
    with monkeypatch.context() as patch:
        patch.setattr(console.Bar, "on_round", interrupt)
        status, _, err = call(*tune)
    says = f"interrupted; what is known so far is in {tmp_path}, and the same command goes on from there"
    assert status == 130 and err.endswith(f"{says}\n")
    status, _, err = call(*tune)
    assert status == 0 and "1 of the 2 scores are known" in err


@pytest.mark.parametrize(("method", "sent"), [("fedavg", signal.SIGINT), ("scaffold", signal.SIGTERM)])
def test_an_interruption_keeps_the_last_round_and_leaves_no_process(method, sent, hospitals_csv, tmp_path):
    """The job goes on from there as if it had not been interrupted."""
    file, _ = hospitals_csv
    out = tmp_path / "out"
    run = ["run", method, "--data", file, "--label", "outcome", "--features", "x,z", "--nodes", "3", "--rounds"]
    command = [sys.executable, "-m", "v6_workbench.cli.main", *map(str, run), "100000", "--out", str(out)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells let jobs in the background ignore it
        start_new_session=True,
    )
    while "round" not in (line := process.stderr.readline()):
        assert line or process.poll() is None
    process.send_signal(sent)
    said, err = process.communicate(timeout=60)
    for _ in range(100):  # loky's own helper notices it a moment later
        if not (left := subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True).stdout):
            break
        time.sleep(0.1)
    assert not left
    rounds = len(json.loads((out / "result.json").read_text())["history"])
    assert process.returncode == 130
    assert f"interrupted; the model is that of round {rounds}; resume it with --resume {out}" in err
    assert json.loads(said.splitlines()[-1])["rounds"] == rounds > 0
    if method == "fedavg":
        assert main([str(a) for a in [*run, rounds + 2, "--resume", out, "--out", tmp_path / "on"]]) == 0
        assert len(json.loads((tmp_path / "on" / "result.json").read_text())["history"]) == rounds + 2


def test_a_reader_may_close_the_pipe():
    command = f"{sys.executable} -m v6_workbench.cli.main settings fedavg | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.split()[0] == "setting" and not done.stderr


@pytest.mark.parametrize("output", [">&-", "> /dev/full", "2> /dev/full", "2>&1 | true"])
def test_a_job_ends_though_nobody_can_read_what_it_prints(output, tmp_path):
    run = f"{sys.executable} -m v6_workbench.cli.main run fedavg --data wine --rounds 1 --out {tmp_path} {output}"
    subprocess.run(run, shell=True, capture_output=True, check=False)
    assert (tmp_path / "result.json").exists()


def test_nothing_is_left_in_the_temporary_folder(call, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = ["run", "fedavg", "--data", "breast-cancer", "--rounds", "2"]
    assert call(*run)[0] == 0
    assert call(*run, "--nodes", 200)[0] == 1
    assert not list(tmp_path.glob("v6-federated-*"))
