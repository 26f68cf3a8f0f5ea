"""What a node makes of rows under a schema follows from each row alone, and from the schema.

Each test is an attack, or a mistake in a table, by which one row once changed what the node did with others.
"""

import io
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from benchmarks.attacks.isolation import standardize
from benchmarks.attacks.researcher import Refused, Researcher, hospitals
from helpers import JOB, four
from hypothesis import given
from hypothesis import strategies as st

from v6_federated import evaluate
from v6_federated.base.database import read_database
from v6_federated.base.errors import SafeError
from v6_federated.base.tables import read_csv
from v6_federated.base.vantage6_api import DataError, NodePermissionException
from v6_federated.data.declared import conformed
from v6_federated.data.source import Source
from v6_federated.gate import call
from v6_federated.messages.job import DataSpec, Job
from v6_federated.models import build
from v6_federated.node import noising
from v6_federated.node.node import Node
from v6_federated.node.request import Request
from v6_federated.noise.ledger import Ledger
from v6_federated.noise.plan import Plan
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Column, Schema

SCHEMA = Schema(
    (Column("x", "number", 0, 1), Column("w", "words", levels=("1", "2", "no"))), "y", (0, 1), person="who", m=2
)
POLICY = Policy.of("private")
LARGEST = float(np.finfo(np.float32).max)


def read(*lines: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO("\n".join(["x,w,y,who", *lines])), float_precision="round_trip")  # as nodes do


def row(found: Source, i: int) -> tuple:
    assert found.table is not None and found.idle is not None and found.persons is not None
    return (*found.table.iloc[i], bool(found.idle[i]), int(found.persons[i]))


# what a cell of numbers, levels, classes or identifiers may hold, up to 15 digits
NUMBERS = ["1", "01", "1.0", " 1", "1 ", "0", "-0.0", "1e0", "1E+00", ".5", "5.", "inf", "-Infinity", "1e400"]
TEXTS = [*NUMBERS, "", "NA", "True", "TRUE", "false", "no", "old", "A7", "1,5", "--1", "1_0", "0x1", "2020-01-31", "1e"]
CELLS = st.one_of(
    st.sampled_from(TEXTS),
    st.integers(-(10**15), 10**15).map(str),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.6g}"),
)
LINES = st.tuples(CELLS, CELLS, CELLS, CELLS).map(lambda cells: ",".join(f'"{cell}"' for cell in cells))


@given(st.lists(LINES, min_size=1, max_size=4), LINES)
def test_how_a_row_of_a_csv_is_read_does_not_depend_on_the_others(lines, last):
    """pandas reads 1 as 1, 1.0 or "1", by what else is in the column."""
    without, found = (conformed(Source(table=read(*rows)), SCHEMA) for rows in (lines, [*lines, last]))
    assert [row(found, i) for i in range(len(lines))] == [row(without, i) for i in range(len(lines))]


def test_one_odd_line_changes_no_other():
    """Once it made all other labels and levels unknown, all numbers missing, and other rows of a person others'."""
    lines = [f"{i % 2 == 0},{1 + i % 2},{i % 2},{'0' * (i < 2)}{i // 2}" for i in range(8)]
    expected = [(float(i % 2 == 0), str(1 + i % 2), i % 2, False, i - i % 2) for i in range(8)]
    for last in ("True,1,0,9", "old,,maybe,A5", "5,1,,9", ",,,"):
        found = conformed(Source(table=read(*lines, last)), SCHEMA)
        assert [row(found, i) for i in range(8)] == expected


COMMAS = Schema((Column("crp", "number", 0, 10), Column("w", "words", levels=("1.5", "2,5", "no"))), "y", (0, 1))


@pytest.mark.parametrize("by_value", [True, False])  # as a node with a budget reads, and a developer's
@pytest.mark.parametrize("separated", [";", "\t"])
@pytest.mark.parametrize("odd", ["<0,5", "?", "", "1 234,5", "1,2,3", "7,250"])
def test_one_odd_cell_changes_no_decimal_comma(tmp_path, separated, by_value, odd):
    """All numbers of its column were once missing, and moved to the middle of the bounds."""
    for i, cell in enumerate(("0,5", odd)):
        lines = ["crp;w;y", "1,5;1,5;0", "2;2,5;1", f"{cell};{cell};0", ",5;no;1"]
        (tmp_path / f"{i}.csv").write_text("\n".join(lines).replace(";", separated) + "\n")
    tables = [read_csv(tmp_path / f"{i}.csv", "rows", by_value=by_value) for i in range(2)]
    even, odd_one = (conformed(Source(table=table), COMMAS).table for table in tables)
    assert even["crp"].tolist() == [1.5, 2, 0.5, 0.5] and even["w"].tolist() == ["1.5", "2,5", "(other)", "no"]
    pd.testing.assert_frame_equal(odd_one.drop(index=2), even.drop(index=2))
    assert odd_one["crp"][2] == (7.25 if odd == "7,250" else 5)


@four
def test_a_point_next_to_decimal_commas_does_not_stop_a_node_with_a_budget(tmp_path, monkeypatch):
    """That a single cell stops all jobs would be an answer that no noise covers."""
    file = tmp_path / "rows.csv"
    file.write_text("crp;w;y\n1,5;no;0\n2.5;no;1\n")
    for name, value in {"LABELS": "default", "TYPE": "csv", "URI": str(file)}.items():
        monkeypatch.setenv("USER_REQUESTED_DATABASE_LABELS" if name == "LABELS" else f"DEFAULT_DATABASE_{name}", value)
    with pytest.raises(DataError, match="decimal commas and others with points"):
        read_database(False)
    found = conformed(Source(table=read_database(False, by_value=True)), COMMAS).table
    assert found["crp"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1j, b"1", 10**400, pd.Timestamp(0), object(), pd.NaT])
def test_values_of_any_kind_are_only_unknown(value):
    cells = {"x": [0.5, value], "w": ["1", value], "y": [1, value], "who": ["a", value]}
    found = conformed(Source(table=pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in cells.items()})), SCHEMA)
    assert row(found, 0) == (0.5, "1", 1, False, 0)
    assert row(found, 1)[1:] == ("(other)", 0, True, 1) and 0 <= row(found, 1)[0] <= 1


def test_thresholds_on_rows_do_not_apply():
    """Also if an operator has made them stricter: rare words were folded, and columns made constant."""
    rng = np.random.default_rng(0)
    lines = [f"{float(i == 3)},{'no' if i < 4 else 1 + i % 2},{rng.integers(2)},{i}" for i in range(60)]
    spec = DataSpec("y", ["x", "w"], [0, 1], categories=["w"], preprocess=[ONEHOT])
    strict = replace(POLICY, minimum_rows_a_class=5, minimum_rows_a_side=5, round_evaluations=True)
    prepared = [conformed(Source(table=read(*lines)), SCHEMA).prepared(spec, 1, policy) for policy in (POLICY, strict)]
    for plain, other in zip(*prepared, strict=True):
        np.testing.assert_array_equal(plain.X, other.X)
    assert sum(rows.X[:, 0].sum() for rows in prepared[1]) == 1  # the row that is unlike all others


ONEHOT = {"step": "onehot", "fitted": {"levels": {"w": ["1", "2", "no"]}}}


def job(**data) -> Job:
    spec = DataSpec("y", data.pop("features", ["x", "w"]), [0, 1], **data)
    return Job("fedavg", "0" * 32, 0, [1, 2, 3], [], 1, None, spec, None, "float32")


def test_a_word_is_refused_as_a_number_whatever_rows_hold():
    """If all words are written like numbers, a table without any other word passed, and one with another did not."""
    declared = replace(SCHEMA, columns=(SCHEMA.columns[0], Column("w", "words", levels=("1", "2"))))
    with pytest.raises(DataError, match="hold values that are not numbers"):
        noising.check_declared(job(), declared, POLICY, arrays=False, reads=True)
    noising.check_declared(job(), declared, POLICY, arrays=False, reads=False)  # describe: no step is known yet
    steps = {"categories": ["w"], "preprocess": [ONEHOT]}
    noising.check_declared(job(**steps), declared, POLICY, arrays=False, reads=True)


@pytest.mark.parametrize("share", [0.999, 1.001])
def test_whether_values_of_arrays_overflow_after_a_step_follows_from_the_schema(share):
    """A step under which only values near the largest overflow told whether some row has one."""
    declared = Schema((Column("0", "number", 0, 100), Column("1", "number", 0, 1)), "y", (0, 1))
    divide = standardize(np.zeros(2), np.array([100 * share / LARGEST, 1]), "scale")
    if share > 1:
        noising.check_declared(job(features=None, preprocess=[divide]), declared, POLICY, arrays=True, reads=True)
        return
    with pytest.raises(DataError, match="infinite values"):
        noising.check_declared(job(features=None, preprocess=[divide]), declared, POLICY, arrays=True, reads=True)


def test_a_row_that_repeats_the_names_of_columns_is_not_refused(monkeypatch):
    """The search for a missing header reads rows. Which columns there are follows from the schema."""
    monkeypatch.setattr(Source, "check_header", lambda self: pytest.fail("rows were read"))
    with Researcher(hospitals(rows=320), "private 8", True) as researcher:
        researcher.reserve(steps=1)
        step = {"model": {"name": "svm"}, "arrays": {"weights": np.zeros(31)}}
        assert "total" in researcher.ask("v6_fedavg", "client_update", **step).arrays


def test_rows_that_change_roles_under_one_key_are_another_job_in_the_ledger():
    """A job costs the larger of training and evaluating, as a row has one role; another table gave it the other too.

    The budget of the first job was enough for both: the second is a task of another method, which has other keys.
    """
    with Researcher(hospitals(rows=320), "private 8", True) as researcher:
        researcher.reserve(steps=5, evaluations=5)
        key = researcher.agreed("v6_fedavg").key
        researcher.tables = {k: table.iloc[::-1].reset_index(drop=True) for k, table in researcher.tables.items()}
        with pytest.raises(Refused, match=r"7\.999 of 8 is spent.* it would be 12\.18"):
            researcher.agreed("v6_scaffold", key=key)


def test_the_digest_of_rows_holds_who_takes_part():
    table = read(*(f"0.5,1,{i % 2},{i // 4}" for i in range(40)))
    digests = {conformed(Source(table=table), replace(SCHEMA, m=m)).digest for m in (1, 2, 3)}
    digests.add(conformed(Source(table=table), replace(SCHEMA, person=None, m=None)).digest)
    digests.add(conformed(Source(table=table.assign(who=0)), SCHEMA).digest)
    assert len(digests) == 5


def test_what_was_kept_without_noise_is_not_found_by_a_job_with_noise():
    plain = replace(job(), participants=[1])
    noisy = replace(plain, privacy={})
    Node.state_of(1, plain, 1).save({"f": np.ones(3)})
    assert Node.state_of(1, plain, 2).load(1) is not None and Node.state_of(1, noisy, 2).load(1) is None


@pytest.mark.parametrize("ask", ["noisy_gradient", "_train_with_noise", "_evaluate_with_noise"])
def test_gradients_and_evaluations_of_a_regression_are_refused(ask):
    node = object.__new__(Node)
    node.job, node.noising = job(regression=True), object()
    arguments = {"noisy_gradient": (0,), "_train_with_noise": (0, 0, 1), "_evaluate_with_noise": (0, "held_out")}[ask]
    with pytest.raises(SafeError, match="a regression cannot be used with clip here"):
        getattr(node, ask)(*arguments)


def test_a_query_is_refused_whatever_the_operator_allows(monkeypatch):
    """A query can repeat a row a thousand times, and noise hides a row that counts once."""
    allowed = []

    def read(queries, by_value):
        assert by_value is not queries
        allowed.append(queries)
        raise DataError("read")

    monkeypatch.setattr(call, "read_database", read)
    monkeypatch.setenv("V6_FEDERATED_ALLOW_QUERIES", "1")
    for profile in ("careful", "private"):
        monkeypatch.setattr(
            call.Request, "of", lambda *_, p=profile: Asked(Policy.of(p, allow_queries=True, aggregation="plain"))
        )
        with pytest.raises(DataError, match="read"):
            evaluate(mock_client=type("Client", (), {"organization_id": 3}), job=JOB, round=1)
    assert allowed == [True, False]


@dataclass
class Asked:
    """What a partial function needs of a request until it reads the database."""

    policy: Policy
    entry, folder = SimpleNamespace(organization=3), None

    def refused(self, reason: str) -> None:
        """Note nothing."""

    def check_stopped(self) -> None:
        """No operator has stopped the job."""


def test_two_sums_of_one_request_have_their_own_noise_and_both_count(tmp_path):
    """A method that trains twice in a request would have used the same noise again, and been counted once."""
    policy = Policy.of("private", epsilon=10.0, epsilon_per_job=10.0, delta=1e-5)
    request = Request(policy, HospitalFolder(tmp_path, own=True), None, {}, b"T")
    found = noising.Noising(Plan(noise=5, steps=3, evaluations=1, statistics=1), request, "job")
    found.reserve()
    assert [found.use("steps", 2), found.use("evaluations", 1), found.use("steps", 1)] == [0, 0, 2]
    with pytest.raises(NodePermissionException, match="asks for 1 more steps"):
        found.use("steps", 1)
    again = noising.Noising(found.plan, request, "job")  # the same request once more counts once
    assert [again.use("steps", 2), again.use("steps", 1)] == [0, 2]
    assert Ledger(tmp_path, 10, 1e-5).spent().jobs[0].steps == 3
    zeros = np.zeros(20, np.int64)
    one, other, same = (found.statistic(zeros, 10.0, number) for number in (0, 1, 1))
    assert (one != other).any() and (other == same).all()


def test_a_model_that_refuses_all_rows_for_one_is_not_evaluated():
    """lstm_char refuses rows that are no codes. Counts of no row then told whether any value is above a threshold."""
    pytest.importorskip("torch")
    declared = Schema(tuple(Column(str(i), "number", 0, 1) for i in range(2)), "y", (0, 1))
    node, request = object.__new__(Node), Request(Policy.of("trusting"), None, None, {})
    vars(node).update(
        job=replace(job(features=None, holdout=0.5), model={"name": "lstm_char"}),
        model=build({"name": "lstm_char", "features": 2, "classes": 2, "hidden": 2}),
        policy=POLICY,
        identity=1,
        source=conformed(Source(X=np.eye(40, 2), y=np.arange(40) % 2), declared),
        noising=noising.Noising(Plan(evaluations=1, holdout=0.5), request, "job"),
    )
    with pytest.raises(SafeError, match="does not give the gradient of each row"):
        node.evaluate(node.model.init(np.random.default_rng(0)), "held_out")


@pytest.mark.parametrize(
    "ask", [lambda node: node.special("time", 0.0), lambda node: node.groups(), lambda node: node.labels]
)
def test_columns_that_are_no_features_have_no_noise_either(ask):
    """Once ``km`` counted rows of hospitals with a budget exactly: it has no features, whose reading is refused."""
    node = object.__new__(Node)
    node.job, node.noising = job(), object()
    with pytest.raises(SafeError, match="no noise covers"):
        ask(node)
