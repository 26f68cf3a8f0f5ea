"""Tables and archives as files hold them: what is read as text, what is refused."""

import numpy as np
import pandas as pd
import pytest

from v6_federated.base import tables
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import opening
from v6_workbench.simulation import datasets


def refusal(file):
    """The text of the error with which a file is refused."""
    with pytest.raises(SafeError) as caught:
        datasets.load(str(file))
    return str(caught.value)


# ---- names of columns


@pytest.mark.parametrize("header", ["outcome,age,bmi,outcome", '\ufeffoutcome,age,bmi,"outcome"', "outcome,,,outcome"])
def test_a_column_named_twice_is_refused(tmp_path, header):
    file = tmp_path / "twice.csv"
    file.write_text(header + "\n" + "1,30,20,1\n0,40,21,0\n" * 20)
    says = "the first line of twice.csv has outcome more than once; expected each column's name once"
    assert refusal(file) == says
    with pytest.raises(SafeError, match=says):
        datasets.load_new(str(file))


def test_a_number_in_the_first_line_is_not_quoted(tmp_path):
    """It may be a patient's, if the table has no header."""
    (tmp_path / "rows.csv").write_text("5.125,3,1,5.125\n" * 30)
    said = refusal(tmp_path / "rows.csv")
    assert "a number is in it more than once" in said and "5.125" not in said


def test_a_column_may_have_the_name_that_pandas_gives_to_a_second(tmp_path):
    (tmp_path / "rows.csv").write_text("a,a.1,b,a.2\n1,2,3,4\n")
    assert datasets.load(str(tmp_path / "rows.csv")).rows.iloc[0].tolist() == [1, 2, 3, 4]
    (tmp_path / "rows.csv").write_text("a,a.1,,,a.2\n1,2,3,4,5\n")  # no name is no name twice
    assert tables.read(tmp_path / "rows.csv", "csv", "rows.csv").iloc[0].tolist() == [1, 2, 3, 4, 5]


def test_a_column_of_a_long_file_has_one_type_of_value(tmp_path, recwarn):
    """pandas reads long files in pieces, and would make numbers of codes in pieces without letters."""
    names = [f"x{i}" for i in range(30)]
    line = ",".join(["0.5"] * 30)
    with (tmp_path / "rows.csv").open("w") as file:
        file.write(",".join([*names, "code"]) + "\n")
        file.writelines(f"{line},{250 if i < 36_000 else 'V27'}\n" for i in range(40_000))
    rows = datasets.load(str(tmp_path / "rows.csv")).rows
    assert {type(code) for code in rows["code"]} == {str} and not recwarn.list


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a\n1\n2\n", "rows.csv holds 2 rows of 1 column(s); expected rows of two columns or more"),
        ("a,b\n", "rows.csv holds 0 rows of 2 column(s); expected rows of two columns or more"),
        ('a,b\n"1,2\n', "rows.csv cannot be read as csv at line 2; expected two quotes"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused(content, says, tmp_path):
    (tmp_path / "rows.csv").write_text(content)
    assert refusal(tmp_path / "rows.csv").startswith(says)


# ---- archives


def test_a_npy_with_the_name_of_a_npz(tmp_path):
    np.save(tmp_path / "z.npy", np.ones((4, 2)))
    file = (tmp_path / "z.npy").rename(tmp_path / "z.npz")
    assert "z.npz is a .npy" in refusal(file)
    with pytest.raises(DataError, match=r"z.npz is a .npy"):
        opening.open_database(file)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"a": (3,)}, "d.npz holds a; expected x and y, or x_train, y_train, x_test and y_test"),
        ({}, "d.npz holds nothing; expected x and y"),
        ({"x": (0, 2), "y": (0,)}, "d.npz: x and y are empty; expected arrays with rows"),
        (
            {"x_train": (30, 2), "y_train": (30,), "x_test": (3, 2), "y_test": (3,)},
            "d.npz holds 3 test rows; expected at",
        ),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(arrays, says, tmp_path):
    np.savez(tmp_path / "d.npz", **{name: np.zeros(shape) for name, shape in arrays.items()})
    assert refusal(tmp_path / "d.npz").startswith(says)


def test_missing_values_in_arrays_are_refused(tmp_path):
    x = np.ones((30, 2))
    x[7] = np.nan
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(30) % 2)
    assert refusal(tmp_path / "d.npz").startswith("d.npz: x holds missing or infinite values; remove those rows")


# ---- text of a file


def test_columns_as_their_file_has_them(tmp_path):
    pd.DataFrame({"b": ["007", "", "NA"], "a": ["1E2", "1.10", "x"]}).to_csv(tmp_path / "rows.csv", index=False)
    table = datasets.load(str(tmp_path / "rows.csv")).rows
    text = datasets.as_written(tmp_path / "rows.csv", table[["a", "b"]])
    assert text["a"].tolist() == ["1E2", "1.10", "x"] and text["b"].fillna("missing").tolist() == [
        "007",
        "missing",
        "NA",
    ]
    assert datasets.as_written("rows.parquet", table) is table


def test_a_workbook_of_several_sheets_is_read_by_the_name_of_one(tmp_path):
    file = tmp_path / "book.xlsx"
    rows = pd.DataFrame({"age": [1, 2], "ill": [0, 1]})
    with pd.ExcelWriter(file) as book:
        rows.to_excel(book, sheet_name="notes", index=False)
        rows.assign(age=[5, 6]).to_excel(book, sheet_name="all data", index=False)
        pd.DataFrame().to_excel(book, sheet_name="Sheet3", index=False)
    with pytest.raises(SafeError) as error:
        datasets.load(file)
    assert str(error.value) == (
        f"book.xlsx has the sheets 'notes', 'all data'; name the one that holds the rows: --data {file}:notes"
    )
    dataset = datasets.load(f"{file}:all data")
    assert dataset.rows["age"].tolist() == [5, 6] and dataset.name == "book-all data"
    assert datasets.load_new(f"{file}:all data").table["age"].tolist() == [5, 6]
    with pytest.raises(
        SafeError, match=r"book.xlsx has no sheet 'data'; expected one of 'notes', 'all data', 'Sheet3'"
    ):
        datasets.load(f"{file}:data")
    nodes = datasets.load_nodes([f"{file}:notes", f"{file}:all data"], None, None)
    assert sorted({*nodes.rows[datasets.FILE]}) == ["book-all data", "book-notes"]


def test_one_sheet_that_holds_something_needs_no_name(tmp_path):
    with pd.ExcelWriter(tmp_path / "book.xlsx") as book:
        pd.DataFrame({"age": [1, 2], "ill": [0, 1]}).to_excel(book, sheet_name="rows", index=False)
        pd.DataFrame().to_excel(book, sheet_name="Sheet2", index=False)
    assert len(datasets.load(tmp_path / "book.xlsx")) == 2
    with pytest.raises(SafeError, match="no data 'none.xlsx:rows'"):
        datasets.load("none.xlsx:rows")


def test_a_title_above_the_names_of_the_columns_is_refused(tmp_path):
    cells = [["Report of hospital X", None, None], [None] * 3, ["age", "crp", "ill"], [50, 1.5, 0]]
    pd.DataFrame(cells).to_excel(tmp_path / "title.xlsx", index=False, header=False)
    for load in (datasets.load, datasets.load_new):
        with pytest.raises(SafeError, match=r"title.xlsx: the column\(s\) 2, 3 have no name; the first row must hold"):
            load(str(tmp_path / "title.xlsx"))
    pd.DataFrame({"age": [50.5, 60.5], "ill": [0, 1]}).to_csv(tmp_path / "index.csv")
    with pytest.raises(SafeError, match=r"index.csv: the column\(s\) 1 have no name"):
        datasets.load(tmp_path / "index.csv")
