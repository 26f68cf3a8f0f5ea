"""Mock nodes on a Ray cluster, which gives the bits of this process also if its workers are killed."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from helpers import OPEN

from v6_workbench.conformance.jobs import difference
from v6_workbench.errors import EngineError
from v6_workbench.simulation import cluster
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

pytest.importorskip("ray", reason="Ray, 240 MB, is not installed: pip install .[ray]")


def processes(pattern):
    """Processes by their command lines."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended
            continue
        if re.search(pattern, line) and int(folder.name) != os.getpid():
            yield int(folder.name)


def kill(pattern):
    killed = 0
    for pid in processes(pattern):
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            continue
    return killed


@pytest.fixture(scope="module")
def head():
    """A Ray cluster of this machine alone."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the names of Ray's sockets must be short
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    words = ["start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false", "--block"]
    words += ["--disable-usage-stats", "--object-store-memory=100000000", f"--temp-dir={folder}"]
    words += ["--min-worker-port=0", "--max-worker-port=0"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).absolute()) for p in sys.path if p)}
    log = Path(folder) / "log"
    with log.open("wb") as stream:
        started = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *words], cwd=folder, env=env, stdout=stream, stderr=stream
        )
    try:
        until = time.monotonic() + 60
        while "Ray runtime started" not in log.read_text():
            assert started.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        found = re.search(r"--address='([^']+)'", log.read_text())
        assert found is not None
        yield found[1]
    finally:
        started.kill()
        started.wait()
        kill(re.escape(folder))
        shutil.rmtree(folder, ignore_errors=True)


def run(nodes, outcomes=lambda organization, input_: CallOutcome(), **settings):
    options = {"environment": OPEN, "on_round": lambda row: None, "cluster": settings.pop("cluster", None)}
    with MockNetwork("v6_scaffold", nodes, outcomes=outcomes, **options) as network:
        return network.run(rounds=4, seed=5, batch_size=10, **settings)


def test_the_bits_are_those_of_this_process(head, hospitals):
    assert difference(run(hospitals), run(hospitals, cluster=f"ray:{head}")) == ""


def test_workers_that_die_are_replaced(head, hospitals):
    """All are killed again and again while rounds 2 and 3 run, until one was at a call of ours."""
    killed, ended = [], threading.Event()

    def hunt():
        while not ended.wait(0.001) and sum(killed) < 2:
            killed.append(kill(r"^ray::run"))

    hunter = threading.Thread(target=hunt)

    def outcomes(organization, input_):
        round_ = input_["kwargs"]["round"]
        if round_ == 2 and not hunter.ident:
            hunter.start()
        return CallOutcome()

    try:
        there = run(hospitals, outcomes, cluster=f"ray:{head}", epochs=50)
    finally:
        ended.set()
        hunter.join()
    assert sum(killed) >= 1
    assert difference(run(hospitals, epochs=50), there) == ""


def test_nobody_answers():
    with pytest.raises(EngineError, match="no Ray cluster answers at 127.0.0.1:9; start one with `ray start --head`"):
        cluster.connect("ray:127.0.0.1:9")
    with pytest.raises(EngineError, match="no Ray cluster answers at somewhere"):
        cluster.connect("ray:somewhere")
