"""Databases and the server, as vantage6 offers them."""

import warnings
from types import SimpleNamespace

import pandas as pd
import pytest
from vantage6.algorithm.tools.exceptions import (
    DataError,
    NodePermissionException,
    UserInputError,
)

from v6_federated.base import vantage6_api


def test_a_database_that_is_asked_by_a_query(monkeypatch):
    """The task must bring one; vantage6 itself would only end."""
    for name, value in [
        ("USER_REQUESTED_DATABASE_LABELS", "warehouse"),
        ("WAREHOUSE_DATABASE_URI", "sqlite://"),
        ("WAREHOUSE_DATABASE_TYPE", "sql"),
    ]:
        monkeypatch.setenv(name, value)
    with pytest.raises(NodePermissionException, match="does not run a task's queries"):
        vantage6_api.read_database()
    monkeypatch.setenv("V6_FEDERATED_ALLOW_QUERIES", "1")
    with pytest.raises(UserInputError, match="the task brings none"):
        vantage6_api.read_database()
    monkeypatch.setenv("WAREHOUSE_QUERY", "select 1 as x, 'no' as y")
    assert vantage6_api.read_database().to_dict("list") == {"x": [1], "y": ["no"]}


def test_an_excel_file(monkeypatch, tmp_path):
    """What its reader would say of a cell is in no log, and the task does not choose the sheet."""
    file = tmp_path / "rows.xlsx"
    with pd.ExcelWriter(file) as book:
        pd.DataFrame({"age": [50.0] * 3, "label": [0, 1, 0]}).to_excel(book, sheet_name="for research", index=False)
        dates = pd.DataFrame({"age": [50.0] * 3, "birth": [19850412] * 3})
        dates.to_excel(book, sheet_name="all", index=False)
        for sheet in book.sheets.values():
            sheet["A2"].value, sheet["A2"].number_format = 19850412, "yyyy-mm-dd"
    for name, value in [("LABELS", "book"), ("BOOK_DATABASE_URI", str(file)), ("BOOK_DATABASE_TYPE", "excel")]:
        monkeypatch.setenv(name.replace("LABELS", "USER_REQUESTED_DATABASE_LABELS"), value)
    with pytest.warns(UserWarning, match="19850412"):  # as pandas alone does
        pd.read_excel(file)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert list(vantage6_api.read_database().columns) == ["age", "label"]
    assert said == []
    monkeypatch.setenv("BOOK_SHEET_NAME", "all")
    with pytest.raises(NodePermissionException, match="does not let a task choose a sheet"):
        vantage6_api.read_database()
    monkeypatch.setenv("V6_FEDERATED_ALLOW_QUERIES", "1")
    assert list(vantage6_api.read_database().columns) == ["age", "birth"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "the file of this node's database 'table' is not there, or not to be read"),
        (b"", "the table cannot be read as csv (EmptyDataError)"),
        (b"a,b\n1,2\n1,2,3,4\n", "the table cannot be read as csv (ParserError)"),
        ("a,b\nMüller,2\n".encode("latin-1"), "the table is not in UTF-8; expected it saved as CSV UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_by_its_fault(content, says, monkeypatch, tmp_path):
    """And by nothing that stands in it: a fault that is not foreseen would be without its text, and asked again."""
    file = tmp_path / "rows.csv"
    if content is not None:
        file.write_bytes(content)
    for name, value in [("LABELS", "table"), ("TABLE_DATABASE_URI", str(file)), ("TABLE_DATABASE_TYPE", "csv")]:
        monkeypatch.setenv(name.replace("LABELS", "USER_REQUESTED_DATABASE_LABELS"), value)
    with pytest.raises(DataError) as told:
        vantage6_api.read_database()
    assert str(told.value) == says


def test_a_server_that_is_away_for_a_moment_is_asked_again(monkeypatch):
    """Also for the organizations, with which central begins."""
    monkeypatch.setattr(vantage6_api, "POLL_SECONDS", 0)
    answers = iter([KeyError("data"), ConnectionError(), [{"id": 7}, {"id": 3}]])

    def listed():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = SimpleNamespace(organization=SimpleNamespace(list=listed), request=None)
    assert vantage6_api.organizations(client) == [3, 7]
