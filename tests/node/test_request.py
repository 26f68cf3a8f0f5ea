"""A request as the node counts and logs it, tried by a researcher who wants to evade both."""

import contextlib
import sqlite3

import numpy as np
import pytest
from helpers import crafted, four

from v6_federated.base.errors import SafeError
from v6_federated.messages import codec
from v6_federated.node.request import WITHOUT_FOLDER, Request
from v6_federated.rules import audit
from v6_workbench.simulation.mock import MockNetwork

CAREFUL = {"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_AGGREGATION": "plain"}
JOB = {"key": "0" * 32, "method": "fedavg", "participants": [1, 2, 3]}


@pytest.fixture
def request_of(monkeypatch, tmp_path):
    """Read a request at a node with a folder."""
    monkeypatch.setenv("HOSPITAL_DATABASE_URI", str(tmp_path))
    monkeypatch.setenv("USER_REQUESTED_DATABASE_LABELS", "default")

    def call(**arguments):
        request = Request.of(1, "client_update", {"job": JOB, "round": 1, **arguments})
        request.count([])
        return request

    return call


@pytest.mark.parametrize("function", ["describe", "keep_steps"])
def test_what_is_not_counted_evaluates_nothing(hospitals, function):
    arrays = codec.encode({"weights": np.zeros(5)})
    settings = {"raw": False} if function == "describe" else {}
    status, log = crafted(hospitals, function, evaluate="held_out", arrays=arrays, **settings)
    assert status == "crashed" and f"{function} takes no model and evaluates none; call evaluate instead" in log


@four
def test_another_database_query_or_sheet_is_another_request(request_of, monkeypatch):
    digests = [request_of().digest]
    for name, value in (
        ("DEFAULT_QUERY", "SELECT 1"), ("DEFAULT_QUERY", "SELECT 2"), ("DEFAULT_SHEET_NAME", "second"),
        ("USER_REQUESTED_DATABASE_LABELS", "other"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
        digests.append(request_of().digest)
    assert len(set(digests)) == 5


@four
def test_a_table_that_has_changed_is_counted_again(request_of, monkeypatch, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\n")
    monkeypatch.setenv("DEFAULT_DATABASE_URI", str(file))
    first = request_of().digest
    assert request_of().digest == first
    file.write_text("a,b\n1,2\n3,4\n")
    assert request_of().digest != first
    with contextlib.closing(sqlite3.connect(tmp_path / "requests.sqlite")) as counted:
        assert counted.execute("SELECT COUNT(*) FROM request").fetchone() == (2,)


@pytest.mark.parametrize("arguments", [{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}, {"evaluate": "all"}])
def test_what_differs_at_all_is_another_request(request_of, arguments):
    payload = codec.encode({"weights": np.zeros(2)})
    others = [{}, {"a": "e\N{COMBINING ACUTE ACCENT}"}, {"a": "\N{LATIN SMALL LETTER E WITH ACUTE}"}, {"a": payload}]
    digests = {request_of(**other).digest for other in [*others, arguments]}
    assert len(digests) == 5
    assert request_of(**arguments).digest in digests


def test_arguments_that_are_nested_too_deeply_are_a_line_of_the_log(hospitals, tmp_path):
    deep = []
    for _ in range(200):
        deep = [deep]
    environment = {"V6_FEDERATED_PROFILE": "trusting", "HOSPITAL_DATABASE_URI": str(tmp_path)}
    status, _ = crafted(hospitals, "describe", job={"key": deep}, environment=environment, raw=False)
    [entry] = audit.read(tmp_path / audit.NAME)
    assert status == "crashed" and entry.job == "list" and entry.refused.startswith("JSON of more than 100 levels")


@four
def test_the_line_has_the_time_at_which_the_answer_left(request_of, tmp_path):
    request = request_of()
    request.refused(str(SafeError("no")))
    [entry] = audit.read(tmp_path / audit.NAME)
    assert entry.time >= request.entry.time and entry.database == "default"


@four
@pytest.mark.parametrize("own", [True, False])
def test_the_log_of_a_real_node_says_what_is_looser_and_where_the_folder_is(monkeypatch, tmp_path, capsys, own):
    """Without a folder of its own, a node counts in its data volume, where all runs have their input."""
    monkeypatch.setenv("INPUT_FILE", str(tmp_path / "task-000000012" / "input"))
    monkeypatch.setenv("V6_FEDERATED_PROFILE", "careful")
    monkeypatch.setenv("V6_FEDERATED_CLASSES", "a,b")
    monkeypatch.delenv("HOSPITAL_DATABASE_URI", raising=False)
    if own:
        monkeypatch.setenv("HOSPITAL_DATABASE_URI", str(tmp_path))
    Request.of(1, "client_update", {"job": JOB, "round": 1})
    looser, *rest = capsys.readouterr().out.splitlines()
    assert looser == "looser than the profile careful: V6_FEDERATED_CLASSES"
    assert rest == ([] if own else [WITHOUT_FOLDER])


def test_another_state_of_the_node_is_another_request(hospitals, tmp_path):
    """SCAFFOLD: each new answer of round 1 changes what the same request of round 2 is answered."""
    answers = []
    with MockNetwork("v6_scaffold", hospitals, environment=CAREFUL, hospital_folder=tmp_path) as network:
        for weight in (0.1, 0.2, 0.3):
            update(network, 1, weight)
            answers += [update(network, 2, 0.5), update(network, 2, 0.5)]
    assert answers[0] == answers[1] and answers[2] == answers[3] and len({*map(repr, answers)}) == 3
    with contextlib.closing(sqlite3.connect(tmp_path / "node-3" / "requests.sqlite")) as counted:
        assert counted.execute("SELECT COUNT(*) FROM request").fetchone() == (6,)


def update(network, round_, weight):
    """The answer of organization 3 to a round of SCAFFOLD."""
    job = {
        "method": "scaffold", "key": "0" * 32, "seed": 0, "participants": [3, 5, 8], "evaluators": [], "rounds": 2,
        "model": {"name": "logreg", "features": 4, "classes": 2}, "minimum_rows": None, "precision": "float32",
        "data": {"label": None, "features": None, "classes": [0, 1], "holdout": 0.0, "preprocess": []},
    }  # fmt: skip
    arrays = codec.encode({"weights": np.full(5, weight), "c": np.zeros(5)})
    kwargs = {"job": job, "round": round_, "known": {"3": round_ - 1}, "local": {"batch_size": 10}, "arrays": arrays}
    client = network.client()
    task = client.task.create({"method": "client_update", "kwargs": kwargs}, [3])
    [answer] = client.wait_for_results(task["id"])
    return answer
