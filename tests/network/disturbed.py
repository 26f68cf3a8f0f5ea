"""A job on a real network to which something is done while it runs."""

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker

from v6_workbench.cli.main import main
from v6_workbench.network import docker_engine, local, server


def read(out: Path) -> dict:
    return json.loads((out / "result.json").read_text())


class Disturbed:
    """A job to which something is done once a round has begun, or in several rounds."""

    def __init__(self, engine, hospitals, capsys, out, image_of, options: Sequence[str]):
        self.engine, self.hospitals, self.capsys, self.out, self.image_of = engine, hospitals, capsys, out, image_of
        self.options = options  # of every job
        self.user = local.client(local.load(hospitals))

    def submit(self, method, *arguments, disturb, in_round=2):
        """Exit status, result (None without one) and what standard error says. ``disturb`` is what happens in the
        round ``in_round``, or by round."""
        self.image_of(method)
        self.await_nodes()
        happens = disturb if isinstance(disturb, dict) else {in_round: disturb}
        last, ended = max((task["id"] for task in self.newest()), default=0), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(self.watch, method, happens, last, ended)
            self.capsys.readouterr()
            try:
                command = ["submit", method, "--network", self.hospitals, *self.options, *arguments]
                status = main([*command, "--out", str(self.out)])
            finally:
                ended.set()
        err = self.capsys.readouterr().err
        assert "Traceback" not in err
        assert watching.result() == len(happens), err
        return status, read(self.out) if (self.out / "result.json").exists() else None, err

    def await_nodes(self):
        """Wait until all nodes are online."""
        deadline = time.monotonic() + 300
        while not all(row["online"] for row in local.status(self.hospitals)):
            assert time.monotonic() < deadline, local.status(self.hospitals)
            time.sleep(1)

    def watch(self, method, happens, last, ended) -> int:
        """Do what is to happen as each round begins; returns how much of it was done before the job had ended."""
        for done, (round_, disturb) in enumerate(sorted(happens.items())):
            name = f"{method} client_update, round {round_}"
            while not ended.wait(0.3):
                with contextlib.suppress(Exception):  # the server is away for a moment
                    if any(task["id"] > last and task["name"].startswith(f"{name},") for task in self.newest()):
                        break
            if ended.is_set():
                return done
            disturb(self)
        return len(happens)

    def newest(self) -> list[dict]:
        """The newest tasks."""
        return self.user.request("task", params={"per_page": 8, "sort": "-id"})["data"]

    def node(self, number: int):
        name = docker_engine.container_name(docker_engine.node_name(self.hospitals, number))
        return self.engine.containers.get(name)

    def start(self, number: int) -> None:
        """Start a node that was stopped; again where it ends at once: the engine may hold its endpoint still."""
        for _ in range(3):
            self.node(number).start()
            until = time.monotonic() + 10
            while (running := self.node(number).status == "running") and time.monotonic() < until:
                time.sleep(0.5)
            if running:
                return
        raise AssertionError(f"node {number} ends as soon as it is started")

    def algorithm(self, number: int, seconds: float = 30, central: bool = False):
        """The container of a partial function (or of central) at a node, as soon as there is one."""
        name = docker_engine.node_name(self.hospitals, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            every = self.engine.containers.list(filters={"label": "vantage6-type=algorithm"}, ignore_removed=True)
            found = [container for container in every if container.labels.get("node") == name]
            found.sort(key=lambda c: c.attrs["Created"])  # central has been there from the beginning
            partials = found[1:] if number == 1 else found
            if central and found:
                return found[0]
            if partials:
                return partials[-1]
            time.sleep(0.02)
        raise AssertionError(f"no algorithm at node {number} within {seconds} s")


def without_seconds(result):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in result["history"]]


def kill(container) -> None:
    try:
        container.kill()
    except docker.errors.APIError as error:  # it had ended by itself: the job is then not disturbed, and must not be
        assert error.status_code in (404, 409)


def wait_until_online(hospitals: str, number: int) -> None:
    user, deadline = local.client(local.load(hospitals)), time.monotonic() + 90
    while time.monotonic() < deadline:
        [node] = [n for n in server.nodes(user, 1) if n["organization"]["id"] == number]
        if node["status"] == "online":
            time.sleep(2)
            return
        time.sleep(0.5)
    raise AssertionError(f"node {number} does not come online")
