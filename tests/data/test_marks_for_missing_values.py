"""A point, a dash or a question mark in place of a missing value: errors name it, and not commas or words."""

import numpy as np
import pandas as pd
import pytest
from helpers import fitted, refused_steps, train

from v6_federated.base import tables
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.reading import marks
from v6_federated.data.source import Source
from v6_federated.messages.job import DataSpec
from v6_workbench.conformance.tables import table as rows_of_numbers

SAYS = "the column(s) x0 hold numbers and {!r}, which stands for a missing value; empty those cells, and fill them by"


def marked(mark, column="x0", seed=1):
    """30 rows, of which two have a mark; all others are numbers as text, as pandas reads such a column."""
    rows = rows_of_numbers(30, seed=seed)
    rows[column] = rows[column].map(repr).astype(object)
    rows.loc[[3, 8], column] = mark
    return rows


@pytest.mark.parametrize("mark", [".", "-", "?", "--", "n.a.", "NA ", "missing"])
def test_a_mark_is_named_with_and_without_steps(mark):
    nodes = {k: marked(mark, seed=k) for k in (1, 2, 3)}
    expected = SAYS.format(mark.strip().casefold())
    text = refused_steps(nodes, "impute", error=SafeError)
    assert f"organization 1: {expected} a step impute (--preprocess impute)" in text
    with pytest.raises(DataError) as refusal:
        Source(table=nodes[1]).rows(DataSpec(features=["x0"], label="label"))
    assert expected in str(refusal.value)
    for part in (text, str(refusal.value)):
        assert "comma" not in part and "onehot" not in part


def test_the_cure_works():
    nodes = {k: marked(".", seed=k) for k in (1, 2, 3)}
    emptied = {k: rows.replace({"x0": {".": ""}}) for k, rows in nodes.items()}
    assert train("v6_fedavg", emptied, rounds=1, preprocess=["impute"])["final"]["evaluated"] > 0


def test_a_step_that_names_the_column_takes_the_mark_as_a_level():
    nodes = {k: rows_of_numbers(30, seed=k).assign(x0=["1", "2", "."] * 10) for k in (1, 2, 3)}
    assert fitted(nodes, "onehot:x0")[0]["levels"]["x0"] == [".", "1", "2"]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["1", "."], {"x": "."}),
        ([1.5, "?"], {"x": "?"}),
        (["10,6", "11", "."], {"x": "."}),
        (["<5", "-"], {"x": "-"}),
        (["yes", "no", "."], {}),
        (["1", "2", "unclear"], {}),
        (["1", "unclear", "."], {}),
        ([".", "."], {}),
        (["1,5", "2,5"], {}),
        (["22.11.2000", "."], {}),
        (["1-2", "-"], {}),
        ([None, "1", "."], {"x": "."}),
    ],
)
def test_only_a_column_of_numbers_has_a_mark(values, found):
    assert marks(pd.DataFrame({"x": pd.Series(values * 3, dtype=object)}), ["x"]) == found


@pytest.mark.parametrize("regression", [False, True])
def test_a_mark_in_the_label_is_no_class(regression):
    rows = rows_of_numbers(30, seed=1)
    rows["label"] = ["0", "1", "."] * 10
    spec = DataSpec(features=["x0"], label="label", regression=regression)
    with pytest.raises(DataError, match=r"label column label holds numbers and '\.', which stands for a missing value"):
        Source(table=rows).labels(spec)
    if not regression:
        named = DataSpec(features=["x0"], label="label", classes=["0", "1", "."])
        assert set(Source(table=rows).labels(named)) == {"0", "1", "."}


def test_a_mark_at_one_hospital_does_not_turn_decimal_commas_of_all_into_words(tmp_path):
    """The column was left as text, so that hospitals without a mark were told of commas."""
    file = tmp_path / "rows.csv"
    file.write_text("bili;protime;plain\n1,5;10,6;1\n2,5;.;2\n0,5;11;3\n")
    table = tables.read(file, "csv", "rows.csv", own=True)
    assert table["bili"].tolist() == [1.5, 2.5, 0.5] and table["protime"].tolist() == ["10.6", ".", "11"]
    assert marks(table, ["protime"]) == {"protime": "."}
    assert Source(table=table.drop(index=1)).special("protime").X[:, 0].tolist() == [10.6, 11.0]


def test_a_file_from_windows_is_named_with_its_cure(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes("Zentrum;x\nKöln;1\n".encode("cp1252"))
    with pytest.raises(SafeError, match=r"not in UTF-8; save it as CSV UTF-8, or, .* iconv -f cp1252 -t utf-8"):
        tables.read(file, "csv", "rows.csv", own=True)
    file.write_bytes(file.read_bytes().decode("cp1252").encode())
    assert tables.read(file, "csv", "rows.csv", own=True)["Zentrum"].tolist() == ["Köln"]


def test_numbers_are_read_as_before(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a;b;c\n1,5;x;1\n;y;2\n-0,25;1,5;3\n")
    table = tables.read(file, "csv", "rows.csv", own=True)
    np.testing.assert_array_equal(table["a"], [1.5, np.nan, -0.25])
    assert table["a"].dtype == np.float64 and table["b"].tolist() == ["x", "y", "1,5"]
