"""The database that a task names, read as vantage6 describes it."""

import warnings

import pandas as pd
import pytest
from helpers import four

from v6_federated.base.database import read_database
from v6_federated.base.vantage6_api import DataError, NodePermissionException, UserInputError

pytestmark = four


@pytest.fixture
def database(monkeypatch):
    """Name a database in the environment, as a node of vantage6 does."""

    def name(label: str, uri: object, kind: str) -> None:
        monkeypatch.setenv("USER_REQUESTED_DATABASE_LABELS", label)
        monkeypatch.setenv(f"{label.upper()}_DATABASE_URI", str(uri))
        monkeypatch.setenv(f"{label.upper()}_DATABASE_TYPE", kind)

    return name


def test_a_query_is_run_only_if_the_operator_allows_it(database, monkeypatch):
    database("warehouse", "sqlite://", "sql")
    monkeypatch.setenv("WAREHOUSE_QUERY", "select 1 as x, 'no' as y")
    with pytest.raises(NodePermissionException, match=r"does not run queries .*V6_FEDERATED_ALLOW_QUERIES"):
        read_database(allow_queries=False)
    assert read_database(allow_queries=True).to_dict("list") == {"x": [1], "y": ["no"]}


def test_a_database_without_a_query_is_refused_with_the_option_that_adds_one(database):
    """vantage6 itself would only end."""
    database("warehouse", "sqlite://", "sql")
    with pytest.raises(UserInputError, match="needs a query and the task has none; .*--query"):
        read_database(allow_queries=True)


@pytest.fixture
def workbook(database, tmp_path):
    """An Excel file whose cell A2 pandas warns about, quoting it."""
    file = tmp_path / "rows.xlsx"
    with pd.ExcelWriter(file) as book:
        pd.DataFrame({"age": [50.0] * 3, "label": [0, 1, 0]}).to_excel(book, sheet_name="for research", index=False)
        dates = pd.DataFrame({"age": [50.0] * 3, "birth": [19850412] * 3})
        dates.to_excel(book, sheet_name="all", index=False)
        for sheet in book.sheets.values():
            sheet["A2"].value, sheet["A2"].number_format = 19850412, "yyyy-mm-dd"
    database("book", file, "excel")
    return file


def test_warnings_that_quote_a_cell_are_silenced(workbook):
    with pytest.warns(UserWarning, match="19850412"):  # what pandas alone says
        pd.read_excel(workbook)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert list(read_database(allow_queries=False).columns) == ["age", "label"]
    assert said == []


def test_a_task_chooses_a_sheet_only_if_the_operator_allows_it(workbook, monkeypatch):
    monkeypatch.setenv("BOOK_SHEET_NAME", "all")
    with pytest.raises(NodePermissionException, match="does not let a task choose a sheet"):
        read_database(allow_queries=False)
    assert list(read_database(allow_queries=True).columns) == ["age", "birth"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "the file of this node's database 'table' is missing or may not be read; ask its operator"),
        (b"", "the table holds empty lines only; expected the names of the columns"),
        (b"a,b\n1,2\n1,2,3,4\n", "the table cannot be read as csv; expected two quotes"),
        (b"a,b\n777,2,3\n777,2,3\n", "some lines of the table have more fields than the first line; expected as many"),
        ("a,b\nMüller,2\n".encode("latin-1"), "the table is not in UTF-8; save it as CSV UTF-8"),
        ("a,b\n777,2\n".encode("utf-16"), "the table holds NUL bytes, as UTF-16 does; save it as CSV UTF-8"),
        (b"a,b\n777\0,2\n", "the table holds NUL bytes, as UTF-16 does; save it as CSV UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_without_quoting_it(content, says, database, tmp_path):
    """An unexpected error would lose its text, and the node would be asked again."""
    file = tmp_path / "rows.csv"
    if content is not None:
        file.write_bytes(content)
    database("table", file, "csv")
    with pytest.raises(DataError) as refusal:
        read_database(allow_queries=False)
    assert str(refusal.value).startswith(says)
    assert not any(part in str(refusal.value) for part in ("Müller", "777"))


@pytest.mark.parametrize("kind", ["excel", "parquet"])
@pytest.mark.parametrize("content", [b"", b"777,Smith", b"PK\x03\x04Smith", b"PAR1SmithPAR1"])
def test_a_file_of_another_kind_is_refused_without_quoting_it(content, kind, database, tmp_path):
    (tmp_path / "rows").write_bytes(content)
    database("table", tmp_path / "rows", kind)
    with pytest.raises(DataError, match=f"the table cannot be read as {kind}; ") as refusal:
        read_database(allow_queries=False)
    assert "Smith" not in str(refusal.value)


def test_vantage6_may_not_filter_rows_before_the_policy_is_checked(database, monkeypatch, tmp_path):
    database("table", tmp_path / "rows.csv", "csv")
    monkeypatch.setenv("TABLE_PREPROCESSING", "[]")
    with pytest.raises(UserInputError, match="asks vantage6 to preprocess the database"):
        read_database(allow_queries=False)


def test_a_database_that_the_node_does_not_have_is_named(database, monkeypatch):
    with pytest.raises(UserInputError, match="the task names no database; name one, for example databases="):
        read_database(allow_queries=False)
    monkeypatch.setenv("USER_REQUESTED_DATABASE_LABELS", "missing")
    with pytest.raises(UserInputError, match="this node has no database 'missing'; use a label of its configuration"):
        read_database(allow_queries=False)


def test_a_file_of_another_type_is_left_to_the_node(database, tmp_path):
    database("images", tmp_path / "rows.npz", "other")
    assert read_database(allow_queries=False) == tmp_path / "rows.npz"
