"""Mock nodes on a cluster of Dask: workers in processes and folders of their own give the bits of this process."""

import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import OPEN, table

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_workbench.conformance.jobs import difference
from v6_workbench.errors import EngineError
from v6_workbench.simulation import cluster, mock_node
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.cluster import ClusterWorkers, remote
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.mock_node import Ended, Image, MockNode
from v6_workbench.simulation.row_store import RowStore
from v6_workbench.simulation.workers import Call

distributed = pytest.importorskip("distributed", reason="Dask's library is not installed: pip install .[dask]")
SECONDS = 60  # in which a process starts


@contextmanager
def process(folder: Path, *words: str):
    """A process with a folder of its own, in which it finds nothing of this one's."""
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).absolute()) for p in sys.path if p)}
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen([sys.executable, "-m", *words], cwd=folder, env=env, stdout=log, stderr=log)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


class Cluster:
    """A scheduler and its workers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._folder, self._stack, self._workers = folder, stack, []
        words = ["--host", self.address, "--no-dashboard", "--no-jupyter"]
        stack.enter_context(process(folder / "scheduler", "distributed.cli.dask_scheduler", *words))

    def workers(self, wanted: int) -> list[subprocess.Popen]:
        """Start workers until there are so many."""
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        while len(self._workers) < wanted:
            room = self._folder / f"worker-{time.monotonic_ns()}"
            words = [self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
            self._workers.append(self._stack.enter_context(process(room, "distributed.cli.dask_worker", *words)))
        with distributed.Client(self.address, timeout=SECONDS, set_as_default=False) as client:
            client.wait_for_workers(wanted, timeout=SECONDS) if wanted else None
        return self._workers


@pytest.fixture(scope="module")
def dask(tmp_path_factory):
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("dask"), stack)


def run(package, nodes, *, cluster=None, environment=OPEN, outcomes=None, **settings):
    options = {"environment": environment, "on_round": lambda row: None, "outcomes": outcomes}
    with MockNetwork(package, nodes, cluster=cluster, **options) as network:
        result = network.run(**settings)
        left = [f.relative_to(network.folder).as_posix() for f in network.folder.rglob("*") if f.is_file()]
        return result, sorted(re.sub("[0-9a-f]{32}", "KEY", name) for name in left)  # of a job, or of a study


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        ("v6_fedavg", {"preprocess": ["standardize"], "batch_size": 10}),
        ("v6_scaffold", {"batch_size": 10}),  # nodes keep a control variate
        ("v6_dynavg", {"protocol": "divergence", "batch_size": 10}),  # nodes keep their models
        ("v6_glm", {}),
    ],
)
def test_the_bits_are_those_of_this_process(package, settings, dask, hospitals):
    dask.workers(2)
    here, _ = run(package, hospitals, rounds=3, seed=5, **settings)
    there, left = run(package, hospitals, cluster=f"dask:{dask.address}", rounds=3, seed=5, **settings)
    assert difference(here, there) == "" and left == ["rows"]


def test_arrays_and_words_as_labels(dask):
    dask.workers(2)
    rng = np.random.default_rng(0)
    nodes = {k: (rng.integers(0, 256, (30, 4, 4), dtype=np.uint8), rng.choice(["a", "b"], 30)) for k in (1, 2, 3)}
    here, _ = run("v6_fedavg", nodes, rounds=2, model="2nn", holdout=0.0)
    there, _ = run("v6_fedavg", nodes, cluster=f"dask:{dask.address}", rounds=2, model="2nn", holdout=0.0)
    assert difference(here, there) == ""


@pytest.mark.parametrize("package", ["v6_fedavg", "v6_scaffold"])
def test_a_worker_that_dies_is_replaced(package, dask, hospitals):
    """It is killed while round 2 is sent: the other worker gets the rows and the files of its nodes."""
    victim, survivor = dask.workers(2)
    killed = []

    def outcomes(organization, input_):
        if input_["method"] == "client_update" and input_["kwargs"]["round"] == 2 and not killed:
            killed.append(victim.send_signal(signal.SIGKILL))
        return CallOutcome()

    settings = {"rounds": 4, "seed": 5, "batch_size": 10}
    here, _ = run(package, hospitals, outcomes=lambda organization, input_: CallOutcome(), **settings)
    there, _ = run(package, hospitals, cluster=f"dask:{dask.address}", outcomes=outcomes, **settings)
    assert victim.wait(SECONDS) == -signal.SIGKILL and survivor.poll() is None
    assert difference(here, there) == ""


def test_the_last_worker_ends(tmp_path, monkeypatch, hospitals):
    from v6_workbench.simulation.cluster import on_dask

    monkeypatch.setattr(on_dask, "WATCH_SECONDS", 1)
    monkeypatch.setattr(on_dask, "PATIENCE_SECONDS", 2)
    with ExitStack() as stack:
        alone = Cluster(tmp_path, stack)
        [only] = alone.workers(1)

        def outcomes(organization, input_):
            only.send_signal(signal.SIGKILL)
            return CallOutcome()

        with pytest.raises(EngineError, match=r"has lost its last worker; start others with `dask worker tcp://"):
            run("v6_fedavg", hospitals, outcomes=outcomes, cluster=f"dask:{alone.address}", rounds=2)


def test_a_slow_call_is_waited_for(dask, monkeypatch, hospitals):
    from v6_workbench.simulation.cluster import on_dask

    dask.workers(1)
    monkeypatch.setattr(on_dask, "WATCH_SECONDS", 0.001)
    here, _ = run("v6_fedavg", hospitals, rounds=2)
    there, _ = run("v6_fedavg", hospitals, cluster=f"dask:{dask.address}", rounds=2)
    assert difference(here, there) == ""


def test_what_a_hospital_counts_and_logs_comes_back(dask, hospitals):
    dask.workers(2)
    careful = {"V6_FEDERATED_PROFILE": "careful"}
    settings = {"rounds": 2, "model": "logreg", "batch_size": 10}
    _, left = run("v6_fedavg", hospitals, cluster=f"dask:{dask.address}", environment=careful, **settings)
    _, here = run("v6_fedavg", hospitals, environment=careful, **settings)
    assert left == here and {f"hospitals/node-{k}/audit.jsonl" for k in hospitals} < {*left}


def test_a_model_that_only_the_caller_has_registered(dask, hospitals):
    dask.workers(2)

    def build(features, classes):
        return models.MODELS["logreg"](features, classes)

    models.register("only_here", build)
    try:
        here, _ = run("v6_fedavg", hospitals, rounds=1, model="only_here")
        there, _ = run("v6_fedavg", hospitals, cluster=f"dask:{dask.address}", rounds=1, model="only_here")
    finally:
        del models.MODELS["only_here"]
    assert here["weights"] == there["weights"]


# ---- one mechanism, without a cluster


class InOrder:
    """A library that runs calls in this process and notes which ran together."""

    def __init__(self) -> None:
        self.waves, self.handed = [], 0

    def hand_over(self, function, *arguments):
        self.handed += 1
        return function(*arguments)

    def run(self, calls):
        self.waves.append([sent.number for sent, _, _ in calls])
        yield from [remote.run(*call) for call in calls]

    def close(self) -> None:
        pass


@pytest.fixture
def node(tmp_path):
    store = RowStore(tmp_path / "rows")
    record = mock_node.stored(1, table(30), store)
    store.flush()
    return MockNode(1, tmp_path / "node-1", record, {**OPEN, "TEMPORARY_FOLDER": str(tmp_path / "node-1" / "tmp")})


def test_calls_of_one_node_run_one_after_the_other_and_rows_are_handed_over_once(node, tmp_path):
    message = tmp_path / "task-1.json"
    message.write_text('{"method": "describe", "kwargs": {}}')
    library = InOrder()
    workers = ClusterWorkers(library)
    other = replace(node, organization_id=2)
    ended = workers.work(
        Image("v6_fedavg", ""), [Call(node, message, 1), Call(other, message, 2), Call(node, message, 3)]
    )
    assert [one.number for one in ended] == [1, 2, 3] and library.waves == [[1, 2], [3]]
    assert library.handed == 2  # a message, and the record that both nodes have


def test_files_come_back_as_they_are(tmp_path, monkeypatch):
    kept = {"state": (7_000_000_001, b"old"), "gone": (1, b"x"), "deep/file": (5, b"same")}

    def call(image, organization, environment, request, source, number):
        folder = Path(environment["TEMPORARY_FOLDER"])
        assert remote.pack(folder) == kept
        (folder / "state").write_bytes(b"new")
        (folder / "gone").unlink()
        return Ended(number, "completed", answer=b"{}")

    monkeypatch.setattr("v6_workbench.simulation.mock_node.call", call)
    sent = remote.Sent(remote.versions(), Image("", ""), 1, {}, {"TEMPORARY_FOLDER": kept}, 9)
    changes = remote.run(sent, {}, None).changes["TEMPORARY_FOLDER"]
    assert [*changes.written] == ["state"] and changes.removed == ["gone"]
    remote.unpack(kept, tmp_path / "there")
    changes.apply(tmp_path / "there")
    found = remote.pack(tmp_path / "there")
    assert found == {"state": changes.written["state"], "deep/file": kept["deep/file"]}


# ---- what is refused


def test_other_versions_are_named():
    versions = {**remote.versions(), "numpy": "1.0"}
    problem = remote.run(remote.Sent(versions, Image("", ""), 1, {}, {}, 1), {}, None).problem
    assert problem.startswith("a worker of the cluster, on ") and "numpy " in problem
    assert problem.endswith("(here 1.0); install the same versions there")


@pytest.mark.parametrize("named", ["dask", "dask:", "spark:x", "", "tcp://127.0.0.1:8786"])
def test_a_cluster_of_no_kind(named):
    with pytest.raises(SafeError, match=f"--cluster '{named}' is not understood; expected dask:ADDRESS, for example"):
        cluster.check(named)


@pytest.mark.parametrize("named", ["ray:10.0.0.1", "ray:ray://head", "ray:head:"])
def test_a_ray_cluster_without_a_port(named):
    with pytest.raises(SafeError, match=f"--cluster '{named}' names no port; expected for example ray:10.0.0.1:6379"):
        cluster.check(named)


@pytest.mark.parametrize(("named", "library"), [("dask:tcp://x:1", "distributed"), ("ray", "ray")])
def test_a_library_that_is_not_installed(named, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    kind = named.partition(":")[0]
    with pytest.raises(SafeError, match=rf"needs the library {library}; run: pip install 'v6-federated\[{kind}\]'"):
        cluster.check(named)


def test_nobody_answers(monkeypatch):
    from v6_workbench.simulation.cluster import on_dask

    monkeypatch.setattr(on_dask, "CONNECT_SECONDS", 1)
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9; start one with `dask sch"):
        cluster.connect("dask:tcp://127.0.0.1:9")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x00" * 64])
def test_a_server_that_is_no_scheduler_is_refused_in_one_line(answer, monkeypatch):
    from v6_workbench.simulation.cluster import on_dask

    def serve(listening):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # the test has ended
                return
            with connection:
                connection.sendall(answer)

    printed = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    monkeypatch.setattr(on_dask, "CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=[listening], daemon=True).start()
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(EngineError, match=f"no Dask scheduler answers at {address}; start one with `dask sch"):
            cluster.connect(f"dask:{address}")
        listening.shutdown(socket.SHUT_RDWR)
    gc.collect()
    assert not printed


def test_a_scheduler_without_workers(tmp_path, monkeypatch):
    from v6_workbench.simulation.cluster import on_dask

    with ExitStack() as stack:
        alone = Cluster(tmp_path, stack)
        alone.workers(0)
        monkeypatch.setattr(on_dask, "CONNECT_SECONDS", 1)
        with pytest.raises(EngineError, match=r"has no workers; start one with `dask worker tcp://.* --nthreads 1`"):
            MockNetwork("v6_fedavg", {1: table(30)}, cluster=f"dask:{alone.address}")
