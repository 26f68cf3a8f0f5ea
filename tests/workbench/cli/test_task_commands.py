"""``tasks``, ``status``, ``watch``, ``fetch`` and ``cancel``, and what ``submit`` says of them, at a server in memory.

The server answers as vantage6 4.15 does: lists by page, the newest first; a message instead of what may not be seen.
"""

import io
import json
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers import OPEN, server_of_four, train

from v6_federated.base import logs
from v6_workbench.cli import console, parser
from v6_workbench.cli.main import main
from v6_workbench.cli.options import ServerOptions
from v6_workbench.cli.place import Place, connect
from v6_workbench.network import images, local, server, submit
from v6_workbench.network.local import Network

pytestmark = server_of_four
DENIED = "You lack the permission to do that!"
ENDED = "2026-11-25T10:30:00"
DIGEST, OTHER = f"sha256:{'0a' * 32}", f"sha256:{'0b' * 32}"
HERE = Network("here", "http://localhost", 1, "/api", "ann", "", 1, {"a": 1}, False, None, "default")


class Server:
    """A server with tasks, and a client that is signed in at it."""

    collaboration_id = 1

    def __init__(self):
        self.tasks, self.runs, self.results, self.denied, self.requests = {}, {}, {}, set(), []
        self.looks = []  # what happens to a task from one look at its status to the next
        self.task = SimpleNamespace(get=lambda k: self.tasks[k], create=self.create)
        self.result = SimpleNamespace(from_task=self.from_task)

    def add(self, name="v6-federated fedavg", parent=None, status="active", log="", **others):
        """Add a task with one run, at organization 4; returns its id."""
        k = len(self.tasks) + 1
        self.tasks[k] = {
            "id": k,
            "name": name,
            "description": "fedavg, 6 rounds of logreg",
            "image": "registry.example:5000/v6-fedavg@sha256:0a",
            "status": status,
            "created_at": "2026-11-25T09:00:00.123456",
            "parent": parent and {"id": parent},
            "init_user": {"id": 7},
            "init_org": {"id": 2},
            "collaboration": {"id": 1},
            **others,
        }
        ended = None if status in ("active", "pending") else ENDED
        times = {"started_at": "2026-11-25T09:00:05.5", "finished_at": ended}
        self.runs[k] = [{"id": 100 + k, "log": log, "organization": {"id": 4}, "status": status, **times}]
        return k

    def ask_for(self, task, function, round_, *statuses, of=(1, 2, 3, 4)):
        """Calls of central to the nodes of organizations ``of``."""
        named = [f"fedavg {function}, round {round_}, organization {k}" for k in of]
        return [self.add(name, task, status) for name, status in zip(named, statuses, strict=False)]

    def end(self, task, status, result=None):
        self.tasks[task]["status"] = self.runs[task][0]["status"] = status
        self.runs[task][0]["finished_at"] = ENDED
        self.results[task] = result

    def create(self, name, description, image, **others):
        return {"id": self.add(name, description=description, image=image)}

    def from_task(self, k):
        result = self.results.get(k)
        if isinstance(result, Exception):
            raise result
        return {"data": [{"result": result and json.dumps(result)}]}

    def request(self, endpoint, params=None, method="get", json=None):
        self.requests.append(endpoint)
        kind, *rest = endpoint.split("/")
        if kind == "result":
            return self.answer(int(rest[0]))
        if kind in self.denied:
            return {"msg": DENIED}
        if kind == "kill":
            for task in [json["id"], *(k for k, it in self.tasks.items() if it["parent"] == {"id": json["id"]})]:
                if self.tasks[task]["status"] in ("active", "pending"):
                    self.end(task, "killed by user")
            return {"msg": f"Nodes have been instructed to kill any containers running for task {json['id']}."}
        if kind == "user":
            return {"username": "ann"}
        if kind == "run" and rest:
            return next(run for runs in self.runs.values() for run in runs if run["id"] == int(rest[0]))
        if rest and int(rest[0]) not in self.tasks:
            return {"msg": f"task id={rest[0]} is not found"}
        if rest[1:] == ["status"]:
            if self.looks:
                self.looks.pop(0)()
            return {"status": self.tasks[int(rest[0])]["status"]}
        return self.tasks[int(rest[0])] if rest else {"data": self.page(kind, params)}

    def page(self, kind, params):
        if kind == "node":
            return [{"organization": {"id": 1}, "status": "online", "config": [{"key": "", "value": ""}]}]
        if kind == "organization":
            return [{"id": k, "name": f"hospital {k}"} for k in range(20)]
        if kind == "run":
            rows = self.runs[params["task_id"]]
        elif "parent_id" in params:
            rows = [it for it in self.tasks.values() if it["parent"] == {"id": params["parent_id"]}]
        else:
            assert params["is_user_created"] == 1 and params["collaboration_id"] == 1
            rows = [it for it in self.tasks.values() if it["parent"] is None]
        rows = sorted(rows, key=lambda row: -row["id"])
        first = (params["page"] - 1) * params["per_page"]
        return rows[first : first + params["per_page"]]


@pytest.fixture
def there(monkeypatch):
    """The server of the local network ``here``."""
    found = Server()
    monkeypatch.setattr(local, "load", lambda name: HERE)

    def client(network, say, patience):
        del found.__dict__["request"]  # of the command before
        server.limit(found, "http://localhost:1/api", patience, say)
        return found

    found.request = found.request
    monkeypatch.setattr(local, "client", client)
    monkeypatch.setattr(submit, "POLL_SECONDS", 0)
    monkeypatch.setattr(submit, "CALLS_EVERY", 1)
    monkeypatch.setattr(images, "digest", lambda name: DIGEST)
    monkeypatch.setattr(images, "stale", lambda names: [])
    return found


@pytest.fixture
def result(hospitals):
    return train("v6_fedavg", hospitals, environment=OPEN, rounds=6, seed=3, model="logreg")


def line(row) -> str:
    return logs.ROUND + json.dumps(row) + "\n"


def last(err: str) -> str:
    return err.strip().splitlines()[-1]


def test_tasks_lists_the_newest_jobs_of_all_methods_and_no_other_task(there, call):
    sent_elsewhere = there.add("from the user interface", status="completed", description="")
    there.add("another program", image="registry.example/v6-other:1.0")
    there.add("to every node", description="")
    there.runs[3] *= 2  # a partial function, not a job
    mine = there.add(log=line({"round": 1, "accuracy": 0.5}) + line({"round": 2, "accuracy": 0.75}))
    there.ask_for(mine, "client_update", 3, "completed", "active")
    status, found, _ = call("tasks")
    assert status == 0
    assert [(task["task"], task["method"], task["status"]) for task in found["tasks"]] == [
        (mine, "fedavg", "active"),
        (sent_elsewhere, "fedavg", "completed"),
    ]
    assert [(task["finished"], task["rounds"]) for task in found["tasks"]] == [(2, 6), (0, None)]
    assert {(task["user"], task["sent"]) for task in found["tasks"]} == {("ann", "2026-11-25T09:00:00+00:00")}
    assert [task["ended"] for task in found["tasks"]] == [None, f"{ENDED}+00:00"]
    assert there.requests.count("user/7") == 1
    assert len(call("tasks", "--last", "1")[1]["tasks"]) == 1


def test_tasks_reads_as_many_pages_as_it_needs(there, call):
    first = there.add()
    for _ in range(server.PAGE):
        there.add("another program", image="other")
    assert [task["task"] for task in call("tasks")[1]["tasks"]] == [first]


def test_tasks_of_a_new_server(there, call):
    status, found, err = call("tasks")
    assert (status, found) == (0, {"tasks": []})
    assert err == "no task of v6-federated at network here yet; `v6-federated submit` sends one\n"


def test_status_shows_how_far_a_task_is(there, call):
    task = there.add(log=line({"round": 1, "accuracy": None}) + line({"round": 2, "accuracy": 0.75}))
    there.ask_for(task, "client_update", 3, "completed", "completed")
    there.ask_for(task, "client_update", 4, "completed", "active", "active")
    status, out, err = call("status", task)
    assert status == 0
    assert (out["finished"], out["rounds"], out["status"]) == (3, 6, "active")
    assert err == f"its rounds as they come: v6-federated watch {task} --network here\n"


def test_status_in_words(there, capsys):
    task = there.add(log=line({"round": 2, "r2": 0.5, "accuracy": None}))
    there.ask_for(task, "client_update", 4, "completed", "active", "active")
    assert main(["status", str(task)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"task {task} at network here: fedavg, active",
        "3 of 6 rounds are finished; r2 0.5000 after round 2",
    ]
    assert "by ann of organization 2" in lines[2]
    assert lines[3] == "asked last: client_update, round 4; 1 of 3 nodes have ended it"


@pytest.mark.parametrize(
    ("function", "earlier", "again", "says"),
    [
        ("client_update", (1, 2, 3, 4), (2, 3, 4), "client_update, round 1; 3 of 4 nodes have ended it"),
        ("client_update", (1, 2, 3, 4), (4,), "client_update, round 1; 3 of 4 nodes have ended it"),
        ("count_rows", (), (1, 2), "count_rows, round 1; 1 of 2 nodes have ended it"),
    ],
    ids=["asked twice in the round", "asked again after a failure", "asked once"],
)
def test_nodes_are_counted_and_not_calls(there, capsys, function, earlier, again, says):
    task = there.add()
    there.ask_for(task, function, 1, *["completed"] * len(earlier), of=earlier)
    there.ask_for(task, function, 1, *["completed"] * (len(again) - 1), "active", of=again)
    assert main(["status", str(task)]) == 0
    assert f"asked last: {says}\n" in capsys.readouterr().out


def test_calls_of_an_older_image_are_counted(there, capsys):
    task = there.add()
    for status in ("completed", "active"):
        there.add("fedavg client_update, round 2", task, status)
    assert main(["status", str(task)]) == 0
    assert "asked last: client_update, round 2; 1 of 2 nodes have ended it\n" in capsys.readouterr().out


def test_rounds_are_known_without_a_log(there, call):
    """They are counted by what nodes were asked: not by evaluations, which come in between."""
    task = there.add()
    there.ask_for(task, "client_update", 3, "completed")
    there.ask_for(task, "client_update", 4, "active")
    there.ask_for(task, "evaluate", 9, "active")
    assert call("status", task)[1]["finished"] == 3
    there.end(task, "completed", {"method": "fedavg", "history": []})
    assert call("status", task)[1]["finished"] == 4


@pytest.mark.parametrize(
    ("status", "log", "says"),
    [
        ("completed", "", "its result: v6-federated fetch 1 --network here --out runs/task-1"),
        (
            "killed by user",
            line({"round": 1, "accuracy": 0.5}),
            "to go on from there: v6-federated submit fedavg --resume 1 --network here --organization 4 --image "
            "registry.example:5000/v6-fedavg@sha256:0a --rounds 6",
        ),
    ],
)
def test_status_says_what_to_do_next(there, call, status, log, says):
    task = there.add(status=status, log=log)
    there.results[task] = {"method": "fedavg", "history": []}
    code, _, err = call("status", task)
    assert (code, last(err)) == (0, says)


def test_status_says_why_a_completed_task_has_fewer_rounds(there, capsys):
    """Central ends, with what it has, when the operator of a node has stopped the job."""
    task = there.add(status="completed")
    there.results[task] = {"method": "fedavg", "history": [{}] * 3, "stopped": "round 4: too few answers"}
    assert main(["status", str(task), "--network", "here"]) == 0
    out, err = capsys.readouterr()
    assert "the job stopped: round 4: too few answers; the model is that of round 3" in out
    assert "submit fedavg --resume runs/task-1" in err


def test_an_encrypted_task_cannot_be_resumed(there, call, monkeypatch):
    """The server cannot read what central had sent to nodes."""
    monkeypatch.setattr(local, "load", lambda name: replace(HERE, encrypted=True))
    _, _, err = call("status", there.add(status="failed", log=line({"round": 1, "accuracy": 0.5})))
    assert "--resume" not in err


def test_the_status_of_an_encrypted_task_needs_no_key(there, call, monkeypatch):
    monkeypatch.setattr(local, "load", lambda name: replace(HERE, encrypted=True))
    task = there.add(status="completed")
    there.results[task] = ValueError("cannot be decrypted")
    assert call("status", task)[0] == 0


def test_times_are_local_in_words_and_utc_in_json(there, capsys, monkeypatch):
    there.add()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert main(["tasks"]) == 0
    time.tzset()
    out = capsys.readouterr().out
    assert "2026-11-25 18:00" in out and '"sent": "2026-11-25T09:00:00+00:00"' in out


def test_a_command_that_is_shown_can_be_used(there, call):
    """The one that resumes: the parser takes it, with options after the task's id."""
    _, _, err = call("status", there.add(status="failed", log=line({"round": 1, "accuracy": 0.5})))
    command, options = parser.parse(last(err).partition(": v6-federated ")[2].split())
    assert (command.name, options.method, options.resumed_task, options.network) == ("submit", "fedavg", 1, "here")


@pytest.mark.parametrize(("state", "waits"), [("offline", True), (None, True), ("online", False)])
def test_a_task_that_waits_for_its_node(there, call, state, waits):
    """A node that was never online has no state."""
    task = there.add(status="pending")
    there.runs[task][0]["node"] = {"status": state}
    assert ("central's node is offline; the task waits for it\n" in call("status", task)[2]) == waits


def test_fetch_writes_what_submit_would_have_written(there, call, tmp_path, result):
    there.looks = [lambda: there.end(1, "completed", result)]
    status, shown, _ = call("submit", "fedavg", "--rounds", 6, "--target", 0.5, "--out", tmp_path / "sent")
    assert status == 0
    again, same, err = call("fetch", 1, "--target", 0.5, "--out", tmp_path / "fetched")
    assert (again, same) == (0, shown)
    names = {file.name for file in (tmp_path / "sent").iterdir()}
    assert {"result.json", "curves.png"} <= names == {file.name for file in (tmp_path / "fetched").iterdir()}
    for name in names:
        assert (tmp_path / "fetched" / name).read_bytes() == (tmp_path / "sent" / name).read_bytes()
    kept = json.loads((tmp_path / "fetched" / "result.json").read_text())
    named = {str(k): f"hospital {k}" for k in result["organizations"]}
    assert kept["experiment"] == {"network": "network here", "task": 1, "organizations": named}
    assert (kept["started"], kept["ended"]) == ("2026-11-25T09:00:05+00:00", f"{ENDED}+00:00")
    assert kept["image"] == {"name": "v6-fedavg", "digest": DIGEST}


@pytest.mark.parametrize("command", ["submit", "watch"])
@pytest.mark.parametrize("moment", ["rounds", "result"])
def test_a_command_ends_when_the_server_is_gone(there, call, tmp_path, result, command, moment):
    """vantage6's client would wait for it without end. The line that it ends with brings the result later."""
    back = threading.Event()

    def from_task(k):
        back.wait()
        return {"data": [{"result": json.dumps(result)}]}

    if moment == "rounds":
        there.looks = [lambda: None, back.wait]
    else:
        there.looks = [lambda: there.end(1, "completed", result)]
        there.result.from_task = lambda k: there.request(f"result/{k}")
        there.answer = from_task
    if command == "watch":
        there.add()
    words = ("submit", "fedavg", "--rounds", 6) if command == "submit" else ("watch", 1)
    begun = time.monotonic()
    status, _, err = call(*words, "--server-timeout", 1, "--out", tmp_path / "later")
    assert status == 1 and time.monotonic() - begun < 10
    fetch = f"v6-federated fetch 1 --network here --out {tmp_path / 'later'}"
    assert last(err) == (
        "v6-federated: the server at http://localhost:1/api has not answered for 1 s (--server-timeout); task 1 may go "
        f"on at the nodes. Once the server answers again, this brings its result: {fetch}"
    )
    back.set()
    there.end(1, "completed", result)
    assert main(shlex.split(fetch)[1:]) == 0
    assert json.loads((tmp_path / "later" / "result.json").read_text())["weights"] == result["weights"]


@pytest.mark.parametrize("command", ["tasks", "status", "fetch", "cancel"])
def test_every_command_ends_when_the_server_is_gone(there, call, tmp_path, monkeypatch, command):
    monkeypatch.setattr(Server, "request", lambda self, *words, **named: threading.Event().wait())
    words = [] if command == "tasks" else [1]
    out = ["--out", tmp_path / "x"] if command == "fetch" else []
    status, _, err = call(command, *words, *out, "--server-timeout", 1)
    says = "the server at http://localhost:1/api has not answered for 1 s (--server-timeout)"
    assert status == 1 and last(err) == f"v6-federated: {says}"


def test_a_limit_below_a_second_is_refused(refused):
    refused("--server-timeout 0 is too short; expected at least 1 second", "tasks", "--server-timeout", "0")


@pytest.mark.parametrize(
    ("image", "digest", "kept"),
    [
        (f"v6-fedavg@{DIGEST}", None, {"name": f"v6-fedavg@{DIGEST}", "digest": DIGEST}),
        ("v6-fedavg", None, {"name": "v6-fedavg"}),
    ],
    ids=["named by its digest", "of which no digest is known"],
)
def test_a_result_says_which_image_it_is_of(there, call, tmp_path, monkeypatch, result, image, digest, kept):
    """A digest that is not known is not there: the engine of today may have another image of this name."""
    monkeypatch.setattr(images, "digest", lambda name: digest)
    there.looks = [lambda: there.end(1, "completed", result)]
    assert call("submit", "fedavg", "--rounds", 6, "--image", image, "--out", tmp_path)[0] == 0
    monkeypatch.setattr(images, "digest", lambda name: OTHER)
    assert call("fetch", 1, "--out", tmp_path)[0] == 0
    assert json.loads((tmp_path / "result.json").read_text())["image"] == kept


def test_a_server_that_shows_no_names(there, call, tmp_path, result):
    there.denied = {"organization"}
    there.end(there.add(), "completed", result)
    assert call("fetch", 1, "--out", tmp_path)[0] == 0
    assert json.loads((tmp_path / "result.json").read_text())["experiment"]["organizations"] == {}


def test_watch_shows_the_rounds_from_those_that_are_finished(there, call, tmp_path, result, trained):
    rows = result["history"]
    task = there.add(log="".join(map(line, rows[:2])))
    run = there.runs[task][0]
    there.looks = [
        lambda: None,
        lambda: run.update(log="".join(map(line, rows[:4]))),
        lambda: there.end(task, "completed", result),
    ]
    status, _, err = call("watch", task, "--out", tmp_path)
    assert status == 0 and "fedavg: round 6 of 6 accuracy" in err
    assert [row["round"] for row in trained] == [1, 2, 3, 4, 5, 6]
    assert json.loads((tmp_path / "result.json").read_text())["weights"] == result["weights"]


def test_watch_of_a_task_whose_log_is_not_shared(there, call, result, trained):
    task = there.add(description="")
    there.ask_for(task, "client_update", 4, "active")
    there.looks = [lambda: None, lambda: there.end(task, "completed", result)]
    status, _, err = call("watch", task)
    assert status == 0 and len(trained) == 6
    says = "central's node does not share its log, so the accuracy of each round comes with the result\n"
    assert err.startswith(says)
    assert says not in call("watch", task)[2], "it has ended: the result is here"


def test_ctrl_c_in_watch_leaves_the_task_alone(there, call):
    def press():
        raise KeyboardInterrupt

    task = there.add()
    there.looks = [lambda: None, press]
    status, _, err = call("watch", task)
    assert status == 130 and there.tasks[task]["status"] == "active"
    assert f"task {task} goes on; to come back to it: v6-federated watch {task} --network here\n" in err


@pytest.mark.parametrize("answer", ["y", "n", "n, with a folder", "y, without the right"])
def test_ctrl_c_in_submit_says_how_to_bring_the_result(there, call, monkeypatch, tmp_path, answer):
    def press():
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer[0]}\n"))
    there.looks = [press]
    if "right" in answer:
        there.denied = {"kill"}
    out = ["--out", tmp_path / "my runs"] if "folder" in answer else []
    status, _, err = call("submit", "fedavg", "--rounds", 6, *out)
    lines = err.splitlines()
    assert status == 130
    assert lines[0] == "task 1 was sent to network here; to come back to it: v6-federated watch 1 --network here"
    assert "Stop task 1 at the nodes too? [y/N]" in lines
    if answer == "y":
        assert there.tasks[1]["status"] == "killed by user"
        assert lines[-2].startswith("task 1 is stopped: ")
        return
    assert there.tasks[1]["status"] == "active"
    assert (f"the server did not stop task 1: {DENIED}" in err) == ("right" in answer)
    folder = f"'{tmp_path}/my runs'" if out else "runs/task-1"
    assert lines[-3:] == [
        "task 1 goes on; this brings its result:",
        f"v6-federated fetch 1 --network here --out {folder}",
        "v6-federated: interrupted",
    ]


def test_ctrl_c_right_after_the_task_was_sent_asks_too(there, call, monkeypatch):
    say = console.say

    def say_and_press(text):
        say(text)
        if "was sent" in str(text):
            raise KeyboardInterrupt

    monkeypatch.setattr(console, "say", say_and_press)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    status, _, err = call("submit", "fedavg", "--rounds", 6)
    assert status == 130 and "Stop task 1 at the nodes too? [y/N]" in err
    assert there.tasks[1]["status"] == "killed by user"


def test_the_bar_is_gone_before_a_line_to_copy_is_shown(there, call, monkeypatch):
    """Otherwise a terminal's bar is drawn into it."""
    shown, leave, say = [], console.Bar.__exit__, console.say
    monkeypatch.setattr(console.Bar, "__exit__", lambda *them: (shown.append("no bar"), leave(*them))[1])
    monkeypatch.setattr(console, "say", lambda text: (shown.append(str(text)), say(text)))
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))

    def press():
        raise KeyboardInterrupt

    there.looks = [press]
    assert call("submit", "fedavg", "--rounds", 6)[0] == 130
    assert shown.index("no bar") < shown.index("v6-federated fetch 1 --network here --out runs/task-1")


@pytest.mark.parametrize("command", [["submit", "fedavg", "--rounds", 6], ["watch", 1]], ids=lambda it: it[0])
def test_what_central_prepares_is_shown(there, call, result, command):
    """Until the first round is finished; each change once."""
    if command[0] == "watch":
        there.add()
    there.looks = [
        lambda: there.ask_for(1, "describe", 0, "completed", "active"),
        lambda: None,
        lambda: there.ask_for(1, "fit_step", 0, "active"),
        lambda: there.runs[1][0].update(log=line(result["history"][0])),
        lambda: there.ask_for(1, "client_update", 2, "active"),
        lambda: there.end(1, "completed", result),
    ]
    status, _, err = call(*command)
    assert status == 0
    assert [said for said in err.splitlines() if "nodes have ended it" in said] == [
        "fedavg: describe, before round 1; 1 of 2 nodes have ended it",
        "fedavg: fit_step, before round 1; 0 of 1 nodes have ended it",
    ]


def test_submit_says_that_an_image_is_older_than_the_code(there, call, monkeypatch, result):
    monkeypatch.setattr(images, "stale", list)
    there.looks = [lambda: there.end(1, "completed", result)]
    status, _, err = call("submit", "fedavg", "--rounds", 6)
    assert status == 0
    assert err.startswith("built from other code than this machine has: v6-fedavg; results may differ, and newer")
    assert "build again with `make images`" in err.splitlines()[0]


def test_cancel_of_a_task_that_cannot_be_resumed_says_so(there, call):
    status, _, err = call("cancel", there.add())
    assert status == 0
    assert last(err) == (
        "it cannot be resumed, as the server has nothing that a new task could begin with; how far it was: "
        "v6-federated status 1 --network here"
    )


def test_cancel_stops_the_task_and_its_calls(there, call):
    task = there.add(log=line({"round": 1, "accuracy": 0.5}))
    done, open_ = there.ask_for(task, "client_update", 2, "completed", "active")
    status, found, err = call("cancel", task)
    assert (status, found) == (0, {"task": task, "cancelled": True, "rounds": 1})
    assert [there.tasks[k]["status"] for k in (task, done, open_)] == ["killed by user", "completed", "killed by user"]
    said, resume = err.splitlines()
    assert said.startswith(f"task {task} is stopped: ") and "ends only by itself" in said and "not taken back" in said
    assert resume.startswith(f"to go on from there: v6-federated submit fedavg --resume {task} --network here ")


@pytest.mark.parametrize("command", ["status", "watch", "fetch", "cancel"])
@pytest.mark.parametrize(
    ("prepare", "task", "code", "says"),
    [
        (lambda there: None, 99, 2, "there is no task 99; `v6-federated tasks` lists those that there are"),
        (lambda there: None, "twelve", 2, "'twelve' is not the id of a task; expected a whole number"),
        (
            lambda there: there.add("other", image="v6-other"),
            1,
            2,
            "task 1 (other) is not one of v6-federated: its image is v6-other; `v6-federated tasks` lists those that "
            "are",
        ),
        (
            lambda there: (there.add(), there.ask_for(1, "client_update", 1, "active")),
            2,
            2,
            "is a step of task 1; use 1",
        ),
        (lambda there: there.add(collaboration={"id": 3}), 1, 2, "is in collaboration 3; use --collaboration 3"),
        (lambda there: there.runs.update({there.add(): []}), 1, 2, "task 1 was sent to 0 organizations; expected"),
        (lambda there: there.denied.add("task"), 1, 1, f"the server does not show task 1: {DENIED}"),
        (lambda there: (there.add(), there.denied.add("run")), 1, 1, f"the server does not list its runs: {DENIED}"),
    ],
    ids=["no-task", "word", "other-program", "step", "collaboration", "no-run", "denied", "runs-denied"],
)
def test_what_is_not_a_job_is_one_line(there, call, tmp_path, command, prepare, task, code, says):
    prepare(there)
    status, _, err = call(command, task, *(["--out", tmp_path] if command == "fetch" else []))
    assert status == code and len(err.splitlines()) == 1 and says in err, err


@pytest.mark.parametrize(
    ("command", "status", "code", "says"),
    [
        (
            "fetch",
            "active",
            2,
            "task 1 is still running (active, 0 of 6 rounds); `v6-federated watch 1 --network here --",
        ),
        ("fetch", "killed by user", 1, "task 1: organization 4: the task was stopped"),
        ("watch", "failed", 1, "task 1: organization 4: its run is failed, and its node does not share the log"),
        ("cancel", "completed", 2, "task 1 has ended already (completed); there is nothing to stop"),
    ],
)
def test_a_task_in_the_wrong_state_is_one_line(there, call, tmp_path, command, status, code, says):
    there.add(status=status)
    found, _, err = call(command, 1, *(["--out", tmp_path] if command == "fetch" else []))
    assert found == code and len(err.splitlines()) == 1 and says in err, err
    assert not (tmp_path / "result.json").exists()


def test_a_server_that_refuses_to_stop_a_task(there, call):
    there.denied = {"kill"}
    status, _, err = call("cancel", there.add())
    assert status == 1 and len(err.splitlines()) == 1
    assert f"the server did not stop task 1: {DENIED} A role must have the rule to send events to a collab" in err


def test_a_result_that_another_organization_can_read(there, call, tmp_path):
    there.end(there.add(), "completed", ValueError("Decryption failed"))
    status, _, err = call("fetch", 1, "--out", tmp_path)
    assert status == 1 and "task 1: its result cannot be decrypted; expected with --key the private key of" in err


def test_a_result_that_stopped_is_at_the_server(there, call, result):
    there.end(there.add(), "completed", {**result, "stopped": "round 7: no node is at work"})
    status, _, err = call("watch", 1)
    assert status == 1 and last(err).endswith("the model is that of round 6; resume it with --resume 1")


def test_tasks_are_counted_from_one(there, refused):
    refused("--last 0 is too few; expected at least 1", "tasks", "--last", "0")


SERVER = ["--server", "http://127.0.0.1:9/api", "--username", "ann", "--collaboration", "1"]


@pytest.mark.parametrize("command", [["tasks"], ["status", "1"], ["watch", "1"], ["cancel", "1"]], ids=lambda it: it[0])
def test_a_server_that_does_not_answer(call, monkeypatch, command):
    monkeypatch.setenv("V6_FEDERATED_PASSWORD", "secret")
    status, _, err = call(*command, *SERVER)
    assert status == 1 and len(err.splitlines()) == 1
    assert "no vantage6 server answers at http://127.0.0.1:9/api" in err


def test_a_password_is_not_asked_for_without_a_terminal(monkeypatch):
    monkeypatch.delenv("V6_FEDERATED_PASSWORD", raising=False)
    command = [sys.executable, "-m", "v6_workbench.cli.main", "tasks", *SERVER]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, start_new_session=True, capture_output=True, text=True, check=False
    )
    says = "v6-federated: there is no terminal to ask for the password; set V6_FEDERATED_PASSWORD\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", says)


def test_another_server_needs_its_options(refused):
    refused("--server also needs --username, --collaboration", "tasks", "--server", "http://x")


def test_the_words_of_a_place_name_it_again(monkeypatch, tmp_path):
    """With the key, since results are encrypted; the password is asked for again."""
    monkeypatch.setenv("V6_FEDERATED_PASSWORD", "secret")
    monkeypatch.setattr(server, "sign_in", lambda *arguments: arguments)
    options = ServerOptions(
        server="https://server.org/api", username="ann", collaboration=3, key=tmp_path / "a key.pem"
    )
    place = connect(options)
    assert place.client[:7] == ("https://server.org", 443, "/api", "ann", "secret", 3, str(tmp_path / "a key.pem"))
    said = "v6-federated fetch 7 --server https://server.org/api --username ann --collaboration 3 --key"
    assert place.command("fetch", 7, after=("--out", "x")) == f"{said} '{tmp_path}/a key.pem' --out x"
    assert place.encrypted and not Place(None, 1, "here", ("--server", "x")).encrypted
