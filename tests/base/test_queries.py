"""SQL and SPARQL databases: what the log of a task says, and what it never says."""

import contextlib
import http.server
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
from pathlib import Path

import container_of_four
import numpy as np
import pandas as pd
import pytest
from helpers import JOB, four

from v6_federated.base.logs import WITHHELD, said_no
from v6_federated.base.vantage6_api import Database, DataError, UserInputError, queries
from v6_federated.operator.show_audit import shown
from v6_federated.rules import audit

PASSWORD = "Geheim-w0rt"
DESCRIBE = {
    "method": "describe",
    "args": [],
    "kwargs": {"job": {**JOB, "method": "glm", "model": None}, "round": 0, "raw": True},
}
QUERY = "select x, label\nfrom rows where x <> 'Müller'"


def ask(uri: object, query: str = "select 1 as x", kind: str = "sql") -> pd.DataFrame:
    return queries.ask(Database("warehouse", kind, str(uri), query))


@pytest.fixture
def file(tmp_path):
    """A database of SQLite with 30 rows."""
    path = tmp_path / "rows.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        pd.DataFrame({"x": np.arange(30.0), "label": np.arange(30) % 2}).to_sql("rows", database, index=False)
    return path


def described(folder: Path, *labels: str, uri: object, **environment: str) -> container_of_four.Run:
    said = {"DATABASE_URI": str(uri), "DATABASE_TYPE": "sql", "QUERY": QUERY}
    (folder / "hospital").mkdir()
    hospital = {"HOSPITAL_DATABASE_URI": str(folder / "hospital"), "HOSPITAL_DATABASE_TYPE": "folder"}
    allowed = {"V6_FEDERATED_PROFILE": "trusting", "V6_FEDERATED_ALLOW_QUERIES": "1"}
    databases = dict.fromkeys(labels, said)
    return container_of_four.run(folder, "v6_glm", DESCRIBE, databases, {**hospital, **allowed, **environment})


@four
@pytest.mark.parametrize(("host", "debug"), [("127.0.0.1:1", "0"), ("127.0.0.1:x", "1")])
def test_no_password_is_in_the_log_of_a_task(host, debug, tmp_path):
    uri = f"postgresql://reader:{PASSWORD}@{host}/rows"
    ended = described(tmp_path, "warehouse", uri=uri, V6_FEDERATED_DEBUG=debug)
    assert ended.status == 1 and "this node's database" in ended.log
    assert PASSWORD not in ended.log and "reader" not in ended.log
    assert PASSWORD not in (tmp_path / "hospital" / audit.NAME).read_text()


@four
def test_the_hospitals_own_log_has_the_query_and_the_answer_does_not(file, tmp_path):
    ended = described(tmp_path, "warehouse", uri=file)
    assert ended.status == 0 and b'"n": 30' in ended.output
    [line] = audit.read(tmp_path / "hospital" / audit.NAME)
    assert line.query == QUERY and line.database == "warehouse"
    assert "ller" not in ended.output.decode() and "ller" not in ended.log and str(file) not in ended.log


@four
def test_the_command_audit_shows_the_query(file, tmp_path):
    described(tmp_path, "warehouse", uri=file)
    lines, _ = shown(tmp_path / "hospital")
    assert "  query: select x, label from rows where x <> 'Müller'" in lines


@four
def test_a_query_that_is_refused_is_in_the_hospitals_own_log_too(file, tmp_path):
    described(tmp_path, "warehouse", uri=file, V6_FEDERATED_ALLOW_QUERIES="0")
    [line] = audit.read(tmp_path / "hospital" / audit.NAME)
    assert line.query == QUERY and "does not run queries" in line.refused


@four
def test_a_second_database_is_refused_and_not_dropped(file, tmp_path):
    ended = described(tmp_path, "warehouse", "laboratory", uri=file)
    assert ended.status == 1
    assert "the task names 2 databases, 'warehouse', 'laboratory', and a job reads one; name one alone" in ended.log


@four
def test_central_refuses_a_second_database_before_any_node_is_asked(tmp_path):
    said = {"DATABASE_URI": "/rows.csv", "DATABASE_TYPE": "csv"}
    task = {"method": "central", "args": [], "kwargs": {"family": "binomial"}}
    ended = container_of_four.run(tmp_path, "v6_glm", task, {"default": said, "second": said}, {})
    assert ended.status == 1 and "the task names 2 databases, 'default', 'second'" in ended.log


def test_a_long_query_is_cut_in_the_log():
    assert audit.query_text("x" * 12_345) == "x" * 10_000 + "... (2,345 more letters)"
    assert audit.query_text(QUERY) == QUERY and audit.query_text("") is None


class Refusal(Exception):
    """As a driver of PostgreSQL raises it, with a row in its text."""

    def __init__(self, pgcode: str | None, text: str = "Müller, 777") -> None:
        super().__init__(text)
        self.pgcode = pgcode


@pytest.mark.parametrize(
    ("state", "kind", "says", "passes"),
    [
        ("42P01", UserInputError, "names a table or view that this node's database does not have", False),
        ("42703", UserInputError, "names a column that is not in its table", False),
        ("42501", UserInputError, "does not let its user do what the query asks", False),
        ("42601", UserInputError, "is not correct SQL", False),
        ("57014", UserInputError, "took longer than it allows", False),
        ("22P02", UserInputError, "whose text could contain a value of a row", False),
        ("SM1TH", UserInputError, "whose text could contain a value of a row", False),
        ("53300", DataError, "has no memory, disk or connection left; try again", True),
        ("57P01", DataError, "is being stopped or started; try again", True),
        ("08006", DataError, "lost the connection; try again", True),
    ],
)
def test_each_state_has_a_sentence_of_its_own_without_a_row(state, kind, says, passes, file, monkeypatch):
    def fail(*args):
        raise pd.errors.DatabaseError("Execution failed on sql: Müller, 777") from Refusal(state)

    monkeypatch.setattr(pd, "read_sql_query", fail)
    with pytest.raises(kind, match=says) as refusal:
        ask(file)
    line = str(refusal.value)
    assert not [part for part in ("Müller", "777", state) if part in line] and "\n" not in line
    assert said_no(f"organization 3: {line}") is not passes  # only what may pass is asked again


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("select * from nowhere", "names a table or view"),
        ("select height from rows", "names a column"),
        ("selec 1", "is not correct SQL"),
        ("select no_such_function(x) from rows", "ended the query with an error"),
        ("create table other (x)", "returns no table; use a SELECT"),
    ],
)
def test_a_wrong_query_is_refused_in_a_sentence(query, says, file):
    with pytest.raises(UserInputError, match=says):
        ask(file, query)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        (f"postgresql//reader:{PASSWORD}@host/rows", "the address of this node's database cannot be read"),
        (f"postgres://reader:{PASSWORD}@host/rows", "has no driver .* postgresql://USER:PASSWORD@HOST"),
        (f"nonsense://reader:{PASSWORD}@host/rows", "has no driver .* reads PostgreSQL and SQLite"),
        (f"postgresql://reader:{PASSWORD}@127.0.0.1:1/rows", "cannot be reached"),
        (f"postgresql://reader:a@{PASSWORD}@127.0.0.1:1/rows", "host whose name is unknown .* %40 for @"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_it(uri, says):
    with pytest.raises(DataError, match=says) as refusal:
        ask(uri)
    assert PASSWORD not in str(refusal.value) and "reader" not in str(refusal.value)


@pytest.fixture
def endpoint():
    """Answers a SPARQL query with a status, and a text that holds a row."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(int(self.path.strip("/").partition("?")[0]))
            self.end_headers()
            self.wfile.write(b"name,x\nSmith,777\n")

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (400, "is not correct SPARQL"),
        (401, "refuses the user or the password"),
        (404, "no SPARQL endpoint"),
        (500, "could not run the query"),
        (503, "cannot be reached"),
    ],
)
def test_a_sparql_endpoint_that_refuses_has_a_sentence(status, says, endpoint):
    query = "select * where { ?s ?p ?o }"
    assert ask(f"{endpoint}/200", query, "sparql").to_dict("list") == {"name": ["Smith"], "x": [777]}
    with pytest.raises((DataError, UserInputError), match=says) as refusal:
        ask(f"{endpoint}/{status}", query, "sparql")
    assert "Smith" not in str(refusal.value) and (WITHHELD in str(refusal.value)) == (status >= 500)


@pytest.fixture(scope="module")
def postgres():
    """A server of PostgreSQL of its own, with a view for research and a table that its user may not read."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [Path(shutil.which("initdb") or "x").parent]
    if not (found[-1] / "initdb").exists():
        why = "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        assert os.environ.get("REQUIRE_POSTGRES") != "1", why
        pytest.skip(why)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield from _started(found[-1], Path(folder))


def _started(programs, folder):
    as_user = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []  # it refuses to run as root
    if as_user:
        shutil.chown(folder, "nobody")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(program: str, *arguments: str) -> None:
        with (folder / "said").open("a") as log:
            subprocess.run([*as_user, str(programs / program), *arguments], check=True, cwd="/", stdout=log, stderr=log)

    run("initdb", "-D", f"{folder}/data", "-U", "owner", "--auth=trust", "--no-sync")
    (folder / "data" / "pg_hba.conf").write_text(
        "host all owner 127.0.0.1/32 trust\nhost rows reader 127.0.0.1/32 scram-sha-256\n"
    )
    run("pg_ctl", "-D", f"{folder}/data", "-w", "-o", f"-p {port} -h 127.0.0.1 -k {folder}/data -F", "start")
    try:
        import psycopg2

        with contextlib.closing(psycopg2.connect(f"postgresql://owner@127.0.0.1:{port}/postgres")) as connection:
            connection.autocommit = True
            connection.cursor().execute("create database rows")
        with contextlib.closing(psycopg2.connect(f"postgresql://owner@127.0.0.1:{port}/rows")) as connection:
            connection.autocommit = True
            connection.cursor().execute(
                f"create role reader login password '{PASSWORD}';"
                "create table patients as select i as x, i % 2 as label, 'Smith' || i as name "
                "from generate_series(1, 40) i;"
                "create view research as select x, label from patients; grant select on research to reader;"
                "create view patients_of_all as select name from patients; grant select on patients_of_all to reader"
            )
        yield f"postgresql://reader:{PASSWORD}@127.0.0.1:{port}/rows"
    finally:
        run("pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")


@four
def test_a_task_reads_postgresql_and_its_log_has_neither_address_nor_query(postgres, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "QUERY", "select x, label from research where x > 0")
    ended = described(tmp_path, "warehouse", uri=postgres)
    assert ended.status == 0 and b'"n": 40' in ended.output
    assert not [part for part in (PASSWORD, "postgresql://", "select") if part in ended.log]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("select * from nowhere", "names a table or view that this node's database does not have"),
        ("select name from research", "names a column that is not in its table"),
        ("select name from patients", "does not let its user do what the query asks"),
        ("delete from research", "does not let its user do what the query asks"),
        ("select from from", "is not correct SQL"),
        ("select name::int from patients_of_all", "ended the query with an error"),
        ("set statement_timeout = 1; select pg_sleep(1)", "took longer than it allows"),
        ("set statement_timeout = 1000", "returns no table"),
    ],
)
def test_postgresql_refuses_a_query_in_a_sentence(query, says, postgres):
    with pytest.raises(UserInputError, match=says) as refusal:
        ask(postgres, query)
    assert "Smith" not in str(refusal.value) and query not in str(refusal.value)


def test_postgresql_reads_a_query_as_it_is_written(postgres):
    found = ask(postgres, "select ':x' as a, '50%' as b, x::text || 'y' as c, null::int as d from research limit 1")
    assert found.to_dict("list") == {"a": [":x"], "b": ["50%"], "c": ["1y"], "d": [None]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ((PASSWORD, "wrong-w0rt"), "refuses the user or the password of its address"),
        (("reader", "owner2"), "does not let this user in .* pg_hba.conf"),
        (("/rows", "/elsewhere"), "pg_hba.conf"),
        (("reader:", "owner:"), "no such user or database"),
    ],
)
def test_postgresql_says_why_it_refuses_a_connection(change, says, postgres):
    uri = postgres.replace(*change)
    with pytest.raises(DataError, match=says) as refusal:
        ask(uri if "owner:" not in uri else uri.replace("/rows", "/elsewhere"))
    assert not [part for part in (PASSWORD, "w0rt", "owner", "reader", "127.0.0.1") if part in str(refusal.value)]
