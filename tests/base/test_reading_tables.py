"""One reader of tables: a file means the same at a node, on a laptop, and to an operator."""

import gzip

import pandas as pd
import pytest
from helpers import four

from v6_federated.base.database import read_database
from v6_federated.base.errors import SafeError
from v6_federated.base.tables import KINDS, read, separator, stem, suffix
from v6_federated.operator.own_table import opened
from v6_workbench.simulation import datasets

TABLE = pd.DataFrame({"hospital": ["a, north", "b"] * 5, "age": [50.5, 61.0] * 5, "n": [3, 4] * 5, "ill": [0, 1] * 5})
TEXT = TABLE.to_csv(index=False)
GERMAN = TABLE.to_csv(index=False, sep=";", decimal=",")


def written(folder, name):
    """A file of ``TABLE`` whose name says its form."""
    file = folder / name
    if name.endswith(".xlsx"):
        TABLE.to_excel(file, index=False)
    elif name.endswith(".parquet"):
        TABLE.to_parquet(file)
    elif name.endswith(".gz"):
        file.write_bytes(gzip.compress((TEXT if "tsv" not in name else TABLE.to_csv(index=False, sep="\t")).encode()))
    else:
        german = GERMAN if "german" in name else TEXT
        file.write_text(TABLE.to_csv(index=False, sep="\t") if name.endswith(".tsv") else german)
    return file


@four
@pytest.mark.parametrize("name", ["r.csv", "german.csv", "r.tsv", "r.csv.gz", "r.tsv.gz", "r.xlsx", "r.parquet"])
def test_a_table_is_the_same_to_node_laptop_and_operator(name, tmp_path, monkeypatch):
    file = written(tmp_path, name)
    monkeypatch.setenv("USER_REQUESTED_DATABASE_LABELS", "default")
    monkeypatch.setenv("DEFAULT_DATABASE_URI", str(file))
    monkeypatch.setenv("DEFAULT_DATABASE_TYPE", KINDS[suffix(file)])
    for found in (read_database(allow_queries=False), datasets.load(str(file)).rows, opened(file).table):
        pd.testing.assert_frame_equal(found, TABLE)
    assert stem(file) == name.partition(".")[0] == datasets.load(str(file)).name


def rows(tmp_path, text, name="rows.csv", own=True):
    (tmp_path / name).write_text(text)
    return read(tmp_path / name, "csv", name, own=own)


def test_decimal_commas_need_semicolons_or_tabs(tmp_path):
    assert rows(tmp_path, "a;b\n1,5;x\n-2;y\n,5;z\n").a.tolist() == [1.5, -2, 0.5]
    assert rows(tmp_path, "a\tb\n1,5\tx\n2\ty\n").a.tolist() == [1.5, 2]
    assert rows(tmp_path, 'a,b\n"1,5",x\n').a.tolist() == ["1,5"]  # refused later: expected a decimal point


def test_numbers_that_could_be_thousands_stay_text(tmp_path):
    """Excel in English writes 1,234 for 1234 into a file with tabs; steps refuse the text."""
    assert rows(tmp_path, "a\tb\n1,234\tx\n2\ty\n").a.tolist() == ["1,234", "2"]
    assert rows(tmp_path, "a;b\n1,5;x;\n".replace(";\n", "\n")).a.tolist() == [1.5]


def test_points_next_to_decimal_commas_are_refused_by_the_name_of_their_column(tmp_path):
    """In such a file, 1.234 is more than a thousand."""
    with pytest.raises(SafeError, match=r"decimal commas, and with points in column\(s\) b; write all of them alike"):
        rows(tmp_path, "a;b\n1,5;1.234\n2,5;2.5\n")
    with pytest.raises(SafeError, match="with points in some columns; write all of them alike"):
        rows(tmp_path, "a;b\n1,5;1.234\n2,5;2.5\n", own=False)
    assert rows(tmp_path, "a;b\n1.5;1.234\n").b.tolist() == [1.234]  # points only
    assert rows(tmp_path, "a;b\n1,5;1\n2,5;\n").b.dropna().tolist() == [1]  # a whole number and a missing one


def test_the_first_line_decides_what_separates_columns(tmp_path):
    for line, expected in (("a,b", ","), ("a;b", ";"), ("a\tb", "\t"), ('"a;x;y",b', ","), ("a", ","), ("", ",")):
        (tmp_path / "rows.csv").write_text(f"\n{line}\n1;2;3;4\n")
        assert separator(tmp_path / "rows.csv") == (expected if line else ";")


def test_a_name_is_shown_to_the_owner_of_a_file_only(tmp_path):
    """The first line of a file without a header is a patient's."""
    for own, shown in ((True, "Smith"), (False, "a name")):
        with pytest.raises(SafeError, match=f"has {shown} more than once"):
            rows(tmp_path, "Smith,Smith\nx,y\n", own=own)


def test_cells_that_were_once_used_are_no_columns(tmp_path):
    pd.DataFrame({"a": [1], "b": [2], "": [None]}).to_excel(tmp_path / "rows.xlsx", index=False)
    assert [*read(tmp_path / "rows.xlsx", "excel", "rows.xlsx").columns] == ["a", "b"]


def test_a_broken_gz_is_refused(tmp_path):
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    with pytest.raises(SafeError, match=r"rows.csv.gz is a broken .gz file; pack it again"):
        datasets.load(str(tmp_path / "rows.csv.gz"))


def test_texts_of_a_column_that_names_hospitals_are_kept(tmp_path):
    (tmp_path / "rows.tsv").write_text("hospital\tage\n007\t1\nNA\t2\n")
    table = datasets.load(str(tmp_path / "rows.tsv")).rows
    assert datasets.as_written(tmp_path / "rows.tsv", table[["hospital"]]).hospital.tolist() == ["007", "NA"]
