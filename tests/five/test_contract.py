"""What a node of vantage6 5 asks of a package: environment, files, status, with the real ``wrap_algorithm``."""

import contextlib
import datetime
import json
import shutil
import sqlite3

import leftovers
import numpy as np
import pandas as pd
import pytest
from contract import Node

from v6_federated.base import vantage6_api
from v6_federated.rules import audit
from v6_workbench.conformance import tables
from v6_workbench.conformance.jobs import OPEN, Tape
from v6_workbench.network import images
from v6_workbench.simulation.mock import MockNetwork

pytestmark = pytest.mark.skipif(not vantage6_api.FIVE, reason="vantage6 5 is not installed: make test-v5")
METHODS = {
    "glm": {"family": "binomial"},
    "gbdt": {"mode": "histogram", "rounds": 2},
    "pca": {"components": 2},
}


@pytest.fixture(params=["process", pytest.param("image", marks=pytest.mark.xdist_group("network"))])
def node(request, tmp_path):
    """Makes a node of a method: once with this interpreter, once with the method's image."""

    def make(method: str, **environment: str) -> Node:
        image = ""
        if request.param == "image":
            if not leftovers.REQUIRED:
                pytest.skip("the image needs Docker: REQUIRE_DOCKER=1 make test-v5")
            image = images.build_method(images.listed()[f"v6-{method}"])
        return Node(tmp_path / "node", f"v6_{method}", image, environment=environment)

    return make


@pytest.fixture
def rows(tmp_path):
    """A table of one hospital, in a file."""
    file = tmp_path / "node" / "rows.csv"
    file.parent.mkdir()
    tables.three()[3].to_csv(file, index=False)
    return file


@pytest.mark.parametrize("method", METHODS)
def test_every_answer_of_a_job_has_the_bytes_of_the_mock_network(method, node, rows):
    there = node(method, **OPEN)
    assert there.extract(rows, "csv").status == 0
    nodes = {
        3: pd.read_csv(rows, float_precision="round_trip"),
        **{k: rows_ for k, rows_ in tables.three().items() if k != 3},
    }
    tape = Tape()
    with MockNetwork(f"v6_{method}", nodes, environment=OPEN, outcomes=tape, on_round=lambda row: None) as network:
        network.run(**METHODS[method], seed=3)
    calls = [call for call in tape.calls if call.organization == 3]
    assert len(calls) > 3
    for call in calls:
        ended = there.run(call.function, call.message["kwargs"])
        assert ended.status == 0, ended.log
        assert ended.output == json.dumps(call.answer).encode(), call.function


def test_state_lies_in_the_session_and_is_forgotten(node, rows):
    there = node("pca", **OPEN)
    there.extract(rows, "csv")
    job, numbers = _last_message("pca", rows)
    ours = there.session / "v6-federated"
    assert there.run("transform", numbers).status == 0
    assert [file.suffix for file in ours.iterdir()] == [".npz"]
    ended = there.run("forget", {"job": job, "round": 2})
    assert json.loads(ended.output) == {"organization_id": 3, "round": 2, "n": 0}
    assert not [*ours.iterdir()]


def _last_message(method, rows):
    """The job of a run on the mock network, and the arguments of its last call that computes something."""
    tape = Tape()
    nodes = {
        3: pd.read_csv(rows, float_precision="round_trip"),
        **{k: rows_ for k, rows_ in tables.three().items() if k != 3},
    }
    with MockNetwork(f"v6_{method}", nodes, environment=OPEN, outcomes=tape, on_round=lambda row: None) as network:
        network.run(**METHODS[method], seed=3)
    message = [call for call in tape.calls if call.organization == 3 and call.function != "forget"][-1].message
    return message["kwargs"]["job"], message["kwargs"]


@pytest.fixture
def process(tmp_path):
    """A node that runs tasks in this interpreter."""
    return lambda method="glm", **environment: Node(tmp_path / "node", f"v6_{method}", environment=environment)


def describe(node, **more):
    job = _job()
    return node.run("describe", {"job": job, "round": 0, "raw": True, **more})


def _job():
    tape = Tape()
    with MockNetwork("v6_glm", tables.three(), environment=OPEN, outcomes=tape, on_round=lambda row: None) as network:
        network.run(family="binomial", seed=3)
    return tape.calls[0].message["kwargs"]["job"]


def test_a_frame_holds_the_columns_that_the_operator_allows_and_no_others(process, rows):
    there = process(V6_FEDERATED_DISALLOWED_COLUMNS="x1")
    assert there.extract(rows, "csv").status == 0
    assert "x1" not in pd.read_parquet(there.session / "rows.parquet").columns
    assert "x0" in pd.read_parquet(there.session / "rows.parquet").columns


@pytest.mark.parametrize("changed", ["another image", "rows repeated", "a value changed"])
def test_only_frames_of_this_package_are_used(changed, process, rows):
    """vantage6 lets any image that a node allows make a frame, or change one."""
    there = process(**OPEN)
    there.extract(rows, "csv")
    assert describe(there).status == 0
    file = there.session / "rows.parquet"
    frame = pd.read_parquet(file)
    if changed == "another image":
        frame.attrs = {}
    elif changed == "rows repeated":
        frame = pd.concat([frame, frame.head(3)], ignore_index=True)
    else:
        frame.iloc[0, 0] += 1
    frame.to_parquet(file)
    ended = describe(there)
    assert ended.status != 0 and ended.output == b""
    says = "was not made by an image of v6-federated" if changed == "another image" else "was changed after its rows"
    assert "Error encountered while calling describe: organization 3: the data frame" in ended.said, ended.said
    assert says in ended.said


def test_arrays_are_one_column_of_bytes(process, tmp_path):
    there = process("glm", **OPEN)
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (60, 4, 3), dtype=np.uint8), np.array(["ill", "well"] * 30)
    np.savez(tmp_path / "node" / "rows.npz", x=X, y=y)
    assert there.extract(tmp_path / "node" / "rows.npz", "other").status == 0
    frame = pd.read_parquet(there.session / "rows.parquet")
    assert list(frame.columns) == ["x", "y"]
    job = _job()
    job["data"] |= {"label": None, "features": None}
    ended = there.run("describe", {"job": job, "round": 0, "raw": False})
    assert json.loads(ended.output)["features"] == 12, ended.log
    assert json.loads(ended.output)["classes"] == ["ill", "well"]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (
            {"V6_FEDERATED_PROFILE": "private", "V6_FEDERATED_EPSILON": "1", "V6_FEDERATED_DELTA": "1e-5"},
            "V6_FEDERATED_PROFILE=private needs a ledger that outlive",
        ),
        (
            {"V6_FEDERATED_AGGREGATION": "pinned"},
            "V6_FEDERATED_AGGREGATION=pinned needs keys that outlive",
        ),
        ({"V6_FEDERATED_MINIMUM_ROW": "9"}, "V6_FEDERATED_MINIMUM_ROW is not a setting of a node; did you mean"),
    ],
)
def test_what_a_session_cannot_keep_is_refused(environment, says, process, rows):
    there = process(**environment)
    there.extract(rows, "csv")
    ended = describe(there)
    assert ended.status != 0 and ended.output == b""
    assert f"organization 3: {says}" in ended.log.replace("Error encountered while calling describe: ", "")


def test_a_request_is_refused_in_one_line(process, rows):
    there = process()
    there.extract(rows, "csv")
    for arguments, says in (
        ({"colour": 1}, "unknown setting 'colour'"),
        ({"mock_data": [[1]]}, "mock_data are the rows of a mock node, and this is a real one"),
    ):
        ended = describe(there, **arguments)
        assert ended.status == 1 and ended.output == b""
        assert says in ended.said and "Traceback" not in ended.log


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"query": "select 1"}, "extract does not take"),
        ({"sheet": 3}, "sheet is no text"),
        ({"sheet": "all"}, "does not let a task choose a sheet"),
        ({"colour": 1}, "extract does not take 'colour'"),
    ],
)
def test_an_extraction_is_refused_in_one_line(arguments, says, process, rows):
    if "query" in arguments:
        ended = process().extract("sqlite://", "sql", **arguments)
        says = "does not run queries that come with a task"
    else:
        ended = process().extract(rows, "excel" if arguments.get("sheet") == "all" else "csv", **arguments)
    assert ended.status == 1 and ended.output == b""
    assert says in ended.said and "Traceback" not in ended.log


def test_a_function_runs_only_as_what_it_is(process, rows):
    """A task for central cannot be an extraction, whose rows would be its result."""
    there = process(**OPEN)
    there.extract(rows, "csv")
    known = {"DATABASE_URI": rows, "DATABASE_TYPE": "csv"}
    there.environment = {**there.environment, **known}
    described = {"job": _job(), "round": 0, "raw": True}
    for method, action, arguments in (
        ("extract", "federated_compute", {}),
        ("extract", "central_compute", {}),
        ("extract", "preprocessing", {}),
        ("describe", "central_compute", described),
        ("describe", "data_extraction", described),
        ("describe", "central_compute", {**described, "mock_client": {"organization_id": 3}}),
    ):
        ended = there.run(method, arguments, action=action)
        assert ended.status == 1 and ended.output == b""
        assert f"Container started as AlgorithmStepType.{action.upper()}" in ended.said, ended.said
    assert there.run("describe", described).status == 0


def test_sessions_give_the_same_answers(tmp_path):
    """Otherwise the differences would tell which rows are held out, and how counts were rounded."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": rng.normal(size=150), "b": rng.normal(size=150), "y": rng.integers(0, 2, 150)})
    tape = Tape()
    nodes = {3: table, 5: table.sample(frac=1, random_state=1), 8: table.sample(frac=1, random_state=2)}
    with MockNetwork("v6_gbdt", nodes, environment=OPEN, outcomes=tape, on_round=lambda row: None) as network:
        network.run(mode="random", rounds=1, label="y", seed=3)
    asked = next(call for call in reversed(tape.calls) if call.organization == 3 and call.function == "evaluate")
    limits = {"V6_FEDERATED_AGGREGATION": "plain"}
    answers = []
    for i, secret in enumerate(("0123456789abcdef" * 2, "0123456789abcdef" * 2, "fedcba9876543210" * 2, "")):
        there = Node(tmp_path / str(i), "v6_gbdt", environment=limits | {"V6_FEDERATED_SECRET": secret})
        table.to_csv(there.folder / "rows.csv", index=False)
        there.extract(there.folder / "rows.csv", "csv")
        answers.append(there.run("evaluate", asked.message["kwargs"]))
    assert answers[0].status == 0, answers[0].said
    assert answers[0].output == answers[1].output != answers[2].output
    assert answers[3].status == 1 and "set V6_FEDERATED_SECRET in its algorithm_env" in answers[3].said


def test_an_extraction_is_logged(process, rows):
    there = process()
    there.extract(rows, "csv")
    [line] = [*audit.read(there.session / "v6-federated-hospital" / audit.NAME)]
    assert (line.function, line.database, line.rows) == ("extract", "default", len(tables.three()[3]))
    assert line.left == {"names and types of columns": 5}


def test_a_query_that_is_not_allowed_any_more(process, tmp_path):
    there = process(**OPEN, V6_FEDERATED_ALLOW_QUERIES="1")
    file = tmp_path / "rows.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as database:
        tables.three()[3].to_sql("rows", database, index=False)
    assert there.extract(file, "sql", query="select * from rows union all select * from rows").status == 0
    assert describe(there).status == 0
    there.environment = OPEN
    assert "which this node does not allow any more" in describe(there).said


def test_what_a_reader_says_is_not_printed(process):
    """Addresses can hold passwords."""
    there = process(V6_FEDERATED_ALLOW_QUERIES="1")
    ended = there.extract("postgresql://user:geheim@127.0.0.1:1/rows", "sql", query="select 1")
    assert ended.status == 1 and "its text is withheld" in ended.said
    assert "geheim" not in ended.log and "Traceback" not in ended.log


def test_a_column_of_several_kinds_is_left_out_and_named(process, tmp_path):
    there = process(**OPEN)
    rows = tables.three()[3].assign(visit=[datetime.datetime(2024, 1, 1), "unknown"] * 15)
    rows[["visit", *rows.columns[:-1]]].to_excel(tmp_path / "rows.xlsx", index=False)
    ended = there.extract(tmp_path / "rows.xlsx", "excel")
    assert ended.status == 0 and "left out, since their values are of several kinds: visit" in ended.log
    assert describe(there).status == 0


def test_columns_without_names_are_for_the_operator_to_allow(process, tmp_path):
    tables.three()[3].to_csv(tmp_path / "rows.csv", index=False, header=False)
    assert "V6_FEDERATED_ALLOW_NUMERIC_NAMES=1" in process().extract(tmp_path / "rows.csv", "csv").said
    allowed = Node(tmp_path / "allowed", "v6_glm", environment=OPEN | {"V6_FEDERATED_ALLOW_NUMERIC_NAMES": "1"})
    assert allowed.extract(tmp_path / "rows.csv", "csv").status == 0


def test_a_link_in_the_place_of_a_folder_is_refused(process, rows, tmp_path):
    for name in ("v6-federated-hospital", "v6-federated"):
        there = Node(tmp_path / f"with {name}", "v6_pca", environment=OPEN)
        there.extract(rows, "csv")
        if (there.session / name).exists():
            shutil.rmtree(there.session / name)
        (tmp_path / f"target of {name}").mkdir()
        (there.session / name).symlink_to(tmp_path / f"target of {name}")
        ended = there.run("transform", _last_message("pca", rows)[1])
        assert ended.status == 1 and ended.output == b""
        assert not [*(tmp_path / f"target of {name}").iterdir()], ended.said
