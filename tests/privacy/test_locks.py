"""Locks of files: the same as before on Linux, so that containers of different versions at one node agree."""

import errno
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from v6_federated.base.errors import SafeError
from v6_federated.base.files import locked
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.gate import under_masks
from v6_federated.rules import audit
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy

fcntl = pytest.importorskip("fcntl")

HOLDS = """
import os, sys, time
from v6_federated.base.files import locked
with locked(os.open(sys.argv[1], os.O_RDWR)):
    print("locked", flush=True)
    time.sleep(600)
"""


def write(folder, key="a" * 32):
    audit.write(HospitalFolder(folder, own=True), audit.entry(Policy.of("careful"), 1, "describe", 0, {"key": key}))


def test_who_uses_flock_itself_and_we_wait_for_each_other(tmp_path):
    (tmp_path / audit.NAME).touch()
    with (tmp_path / audit.NAME).open("rb+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        writer = threading.Thread(target=write, args=(tmp_path,))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive() and not (tmp_path / audit.NAME).read_bytes()
        fcntl.flock(stream, fcntl.LOCK_UN)
        writer.join(30)
        assert len((tmp_path / audit.NAME).read_bytes().splitlines()) == 1
        with locked(stream.fileno()), (tmp_path / audit.NAME).open("rb+") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with (tmp_path / audit.NAME).open("rb+") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_lock_of_a_killed_process_ends(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        with file.open("rb+") as stream:
            with pytest.raises(BlockingIOError):
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process.send_signal(signal.SIGKILL)
            with locked(stream.fileno()):
                pass


def test_without_locks_nothing_leaves(tmp_path, monkeypatch):
    """As on some network shares: no other kind of lock takes their place."""

    def flock(descriptor, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(NodePermissionException, match=r"cannot be written \(No locks available\), so nothing leaves"):
        write(tmp_path)
    assert not (tmp_path / audit.NAME).read_bytes()
    node = SimpleNamespace(state=SimpleNamespace(folder=tmp_path, name="job"))
    with pytest.raises(SafeError, match="cannot be written: No locks available"), under_masks._agreeing(node):
        raise AssertionError("agreed without a lock")


def test_one_run_at_a_time_agrees_on_keys(tmp_path):
    node = SimpleNamespace(state=SimpleNamespace(folder=tmp_path / "new", name="job"))
    inside, most = [], []

    def agree():
        for _ in range(20):
            with under_masks._agreeing(node):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=agree) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1] * 80


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path):
    node = SimpleNamespace(state=SimpleNamespace(folder=tmp_path, name="job"))
    (tmp_path / "job-keys.lock").symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(SafeError, match="cannot be written: Too many levels of symbolic links"),
        under_masks._agreeing(node),
    ):
        raise AssertionError("agreed through a link")
    assert not (tmp_path / "elsewhere").exists()
