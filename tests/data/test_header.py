"""Tables without a header, whose first row must not leave the node as the names of columns."""

import io
import time

import numpy as np
import pandas as pd
import pytest
from helpers import table, train

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError, DataError
from v6_federated.data import header
from v6_federated.data.source import Source
from v6_workbench.simulation import datasets

ROWS = {"male,yes": 9, "female,yes": 9, "male,no": 9, "female,no": 9}
WORDS = "\n".join(row for row, count in ROWS.items() for _ in range(count)) + "\n"
DATED = "".join(f"{1950 + i}-0{1 + i % 9}-1{i % 10},{'yn'[i % 2]}\n" for i in range(40))
CODED = "".join(f"P{1000 + 7 * i},Smith {'abcdefghij'[i % 10]}\n" for i in range(40))


def read(text):
    return header.missing(pd.read_csv(io.StringIO(text)))


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("84.5,3.25,0\n" + "80.5,3.5,1\n79.25,4.5,0\n" * 20, "numbers"),
        ("male,63,0\n" + "female,50,1\nmale,61,0\n" * 20, "numbers"),
        ("male,63,63\n" + "female,50,1\nmale,61,0\n" * 20, "numbers"),  # pandas makes 63.1 of the second
        ("male,1,1\n" + "female,0,1\nmale,1,0\n" * 20, "numbers"),
        ('male,"84,5"\n' + 'female,"50,1"\nmale,"61,0"\n' * 20, "numbers"),
        ("male,<5\n" + "female,12\nmale,<5\n" * 20, "numbers"),
        ("0,1\n" + "1,1\n0,0\n0,1\n" * 20, "a row repeats"),
        (WORDS, "a row repeats"),
        ("male,yes,A\nfemale,no,B\nmale,no,A\n" + "female,yes,A\nmale,no,B\n" * 10, "among their values"),
        ("male,,yes\n" + "female,1.5,no\nmale,2.5,yes\n" * 20, "among their values"),
        ("male,yes,0\n" + "female,no,1\nfemale,yes,1\nmale,no,0\n" * 10, "among their values"),
        (DATED, "written like its values"),
        (CODED, "written like its values"),
    ],
)
def test_a_table_without_a_header_is_found(text, sign):
    found = read(text)
    assert found is not None and sign in found
    assert not any(word in found for word in text.splitlines()[0].split(",") if len(word) > 1)


@pytest.mark.parametrize(
    "names",
    [
        "age,sex,label",
        "year,bmi_2019,bmi_2020",
        "TP53,ENSG00000141510,1007_s_at",
        "a,a,a",  # pandas: a, a.1, a.2
        "0,1,2",
        "1,2,3",
        "0,1,label",
        ",x,label",  # an index that pandas has written without a name
        "20-30,30-40,40+",
        "1/22/20,1/23/20,1/24/20",  # counts a day
        "V1.1,V1.2,V1.3",
    ],
)
def test_usual_names_above_numbers_are_no_row(names):
    rng = np.random.default_rng(0)
    rows = "".join(",".join(map(str, row)) + "\n" for row in rng.integers(0, 9, (50, 3)).tolist())
    assert read(f"{names}\n{rows}") is None


@pytest.mark.parametrize(
    "text",
    [
        "sex,smoker,label\n" + "male,yes,A\nfemale,no,B\n" * 20,
        "fever,cough,diagnosis\n" + "fever,,flu\n,cough,cold\nno fever,cough,cold\n" * 20,  # choices of a survey
        "A1,Q2,label\n" + "A1,A2,yes\nA2,A3,no\n" * 20,
        "date,code\n" + DATED,
        "T1,x2\n" + "male,yes\nfemale,no\n" * 20,
        "id\nP1\nP2\n",
        "age,label\n",
    ],
)
def test_usual_names_above_words_are_no_row(text):
    assert read(text) is None


def test_the_numbers_of_a_scale_may_be_names():
    """Answers from 1 to 5: each number is among its column's values, as in a table without a header."""
    rng = np.random.default_rng(0)
    assert header.missing(pd.DataFrame(rng.integers(1, 6, (60, 5)), columns=[*"12345"])) is None


def test_a_wide_table_of_words_is_looked_through_quickly():
    """Genotypes: 20,000 columns; the first that is not named like its values ends the search."""
    rows = pd.DataFrame(np.resize(np.array(["AA", "AG", "GG"], dtype=object), (30, 20_000)))
    rows.columns = [f"rs{i}" for i in range(20_000)]
    began = time.process_time()
    assert header.missing(rows) is None
    assert time.process_time() - began < 2


def test_a_node_answers_no_name_of_such_a_table():
    names = ["84.5", "x", "3.25", "y", "died"]
    rows = {k: table(40, seed=k).set_axis(names, axis=1) for k in (1, 2, 3)}
    for settings in ({}, {"label": "x"}, {"features": ["x", "z"]}, {"preprocess": ["standardize"]}):
        with pytest.raises(CollectResultsError, match="no header: the names of some columns are numbers") as refusal:
            train("v6_fedavg", rows, rounds=1, **settings)
        assert not any(name in str(refusal.value) for name in ("84.5", "3.25", "died"))
    allowed = {"V6_FEDERATED_ALLOW_NUMERIC_NAMES": "1"}
    assert train("v6_fedavg", rows, rounds=1, environment=allowed)["data"]["features"] == names[:4]


def test_values_of_any_type_can_be_looked_through():
    rows = pd.DataFrame({"sex": ["m", "f"] * 4, "codes": [["a"], {"b": 1}] * 4, "seen": [True, None] * 4})
    assert header.missing(rows) is None


def test_two_columns_of_one_name_are_refused_without_it():
    with pytest.raises(DataError, match="two columns of the table have the same name; rename one of them") as refusal:
        Source(table=pd.DataFrame([[1, 2]], columns=["Smith", "Smith"]))
    assert "Smith" not in str(refusal.value)


def test_the_workbench_refuses_such_a_file_and_says_what_allows_it(tmp_path, monkeypatch):
    file = tmp_path / "rows.csv"
    file.write_text("2019,2020,label\n" + "80.5,3.5,1\n79.25,4.5,0\n" * 20)
    for load in (datasets.load, datasets.load_new):
        with pytest.raises(SafeError) as refusal:
            load(str(file))
        assert str(refusal.value) == (
            "rows.csv seems to have no header: the names of some columns are numbers. Name each column in its first "
            "line; if these are their names, set V6_FEDERATED_ALLOW_NUMERIC_NAMES=1 before the command"
        )
    monkeypatch.setenv("V6_FEDERATED_ALLOW_NUMERIC_NAMES", "1")
    assert len(datasets.load(str(file))) == 40
