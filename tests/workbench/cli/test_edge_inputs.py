"""What people type and have: no traceback, no silent wrong result, no wrong cure.

Each case is a table (or a change of it), the words after ``run fedavg``, the exit status, and what the one line says.
A case whose status is 0 says what the result must be.
"""

import gzip
import json
from importlib.metadata import EntryPoint

import numpy as np
import pandas as pd
import pytest

from v6_federated.base.errors import SafeError
from v6_workbench import registry
from v6_workbench.cli.main import main
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

N = 120
STEPS = ["--preprocess", "impute:median", "--preprocess", "standardize"]
WORDS = ["--preprocess", "impute:most_frequent", "--preprocess", "impute", "--preprocess", "onehot"]
BY = ["--partition", "column:hospital"]


def patients() -> pd.DataFrame:
    """Three hospitals; the outcome depends on age and sex."""
    rng = np.random.default_rng(5)
    age, cp = rng.normal(60, 9, N).round(1), rng.integers(1, 5, N).astype(float)
    sex = rng.choice(["f", "m"], N)
    ill = (age + 9 * (sex == "m") + rng.normal(0, 4, N) > 64).astype(int)
    return pd.DataFrame({"hospital": ["a", "b", "c"] * (N // 3), "age": age, "cp": cp, "sex": sex, "ill": ill})


def numbers() -> pd.DataFrame:
    """The same without the column of words."""
    return patients().drop(columns="sex")


def with_few(rows: pd.DataFrame, column: str = "cp") -> pd.DataFrame:
    """At hospital c only 4 rows have a value."""
    at_c = rows.index[rows["hospital"] == "c"]
    rows.loc[at_c[4:], column] = np.nan
    return rows


FILES = {  # what a table is written as; all mean the same
    "comma.csv": lambda t, f: t.to_csv(f, index=False),
    "semicolon.csv": lambda t, f: t.to_csv(f, index=False, sep=";"),
    "german.csv": lambda t, f: t.to_csv(f, index=False, sep=";", decimal=","),
    "quoted.csv": lambda t, f: t.to_csv(f, index=False, quoting=1),
    "dos.csv": lambda t, f: t.to_csv(f, index=False, lineterminator="\r\n"),
    "bom.csv": lambda t, f: t.to_csv(f, index=False, encoding="utf-8-sig"),
    "CAPITALS.CSV": lambda t, f: t.to_csv(f, index=False),
    "tabs.tsv": lambda t, f: t.to_csv(f, index=False, sep="\t"),
    "packed.csv.gz": lambda t, f: t.to_csv(f, index=False),
    "packed.tsv.gz": lambda t, f: t.to_csv(f, index=False, sep="\t"),
    "book.xlsx": lambda t, f: t.to_excel(f, index=False),
    "columns.parquet": lambda t, f: t.to_parquet(f),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The weights that the table gives."""
    return weights(tmp_path_factory.mktemp("e"), "comma.csv")


def weights(folder, name):
    FILES[name](numbers(), folder / name)
    run = ["run", "fedavg", "--data", folder / name, *BY, "--rounds", 1, *STEPS, "--out", folder / "r"]
    assert main([*map(str, run)]) == 0
    return json.loads((folder / "r" / "result.json").read_text())["weights"]


@pytest.mark.parametrize("name", FILES)
def test_every_form_of_a_file_gives_the_same_model(name, tmp_path, expected):
    assert weights(tmp_path, name) == expected


CASES = {
    # columns
    "words without onehot": (patients, BY, 2, "sex hold values that are not numbers; add a step onehot"),
    "words with onehot": (patients, [*BY, *WORDS], 0, None),
    "codes with commas": (numbers, [*BY, "--preprocess", "onehot:cp"], 0, None),
    "codes and words": (patients, [*BY, "--preprocess", "onehot:cp,sex"], 0, None),
    "codes that do not exist": (
        numbers,
        [*BY, "--preprocess", "onehot:cp,thal"],
        2,
        "no column thal among the features",
    ),
    "a column twice in a step": (numbers, [*BY, "--preprocess", "onehot:cp,cp"], 2, "a column is named twice"),
    "missing values": (lambda: numbers().mask(lambda t: t == 1.0), BY, 2, "--preprocess impute"),
    "nearly empty": (
        lambda: with_few(numbers()),
        [*BY, *STEPS],
        1,
        "organization 3 (c): fewer than 10 rows have a value",
    ),
    "nearly empty, dropped": (lambda: with_few(numbers()), [*BY, *STEPS, "--exclude", "cp"], 0, None),
    "nearly empty, marked": (
        lambda: with_few(numbers()),
        [*BY, "--preprocess", "missing_indicator:cp", *STEPS],
        0,
        None,
    ),
    "nearly empty, left out": (lambda: with_few(numbers()), [*BY, *STEPS, "--set", "organizations=1,2"], 0, None),
    "marked too late": (
        numbers,
        [*BY, *STEPS, "--preprocess", "missing_indicator:cp"],
        2,
        "must come before all other",
    ),
    "marked without a name": (numbers, [*BY, "--preprocess", "missing_indicator"], 2, "missing_indicator:ca,thal"),
    "dates": (
        lambda: numbers().assign(age="2024-03-01"),
        [*BY, *WORDS],
        1,
        "hold dates; replace each date by a number",
    ),
    "German dates": (lambda: numbers().assign(age="1.3.2024"), BY, 2, "hold dates; replace each date by a number"),
    "dates excluded": (lambda: numbers().assign(age="2024-03-01"), [*BY, "--exclude", "age"], 0, None),
    "an empty column": (
        lambda: numbers().assign(cp=np.nan),
        [*BY, *STEPS],
        2,
        "no node has a value in the column(s) cp",
    ),
    "a constant column": (lambda: numbers().assign(cp=1.0), [*BY, *STEPS], 0, None),
    "infinite": (lambda: numbers().assign(cp=np.inf), [*BY, *STEPS], 1, "infinite values"),
    "far too large": (
        lambda: numbers().assign(age=lambda t: t.age * 1e30),
        [*BY, *STEPS],
        1,
        "age are too large to be squared",
    ),
    "thousands": (lambda: numbers().assign(age="1,234"), BY, 2, "the column(s) age hold numbers with commas as text"),
    "decimal commas": (
        lambda: numbers().assign(age=lambda t: t.age.astype(str).str.replace(".", ",")),
        BY,
        2,
        "age hold numbers with commas as text; write decimal commas as points, and leave out those between thousands",
    ),
    "decimal commas and steps": (
        lambda: numbers().assign(age=lambda t: t.age.astype(str).str.replace(".", ",")),
        [*BY, *WORDS],
        2,
        "hold both numbers and words, or numbers with commas or signs; expected numbers (with a decimal point",
    ),
    "units in cells": (lambda: numbers().assign(age="60 years"), BY, 2, "age hold values that are not numbers"),
    # labels
    "a label of one class": (lambda: numbers().assign(ill=1), BY, 2, "the label has 1 value(s)"),
    "a label with gaps": (
        lambda: numbers().assign(ill=[np.nan] + [0, 1] * 59 + [1]),
        BY,
        2,
        "missing values in the label",
    ),
    "an age as label": (
        numbers,
        [*BY, "--label", "age", "--exclude", "ill"],
        2,
        "or all of them named by --set classes=...; to predict a number, use --set loss=squared or cox with",
    ),
    "a number as label": (lambda: numbers().assign(ill=np.arange(N) * 0.1), BY, 2, "--set objective=regression"),
    "a label that is no column": (numbers, [*BY, "--label", "died"], 2, "no label column 'died'; expected one of"),
    "the hospital as label": (numbers, [*BY, "--label", "hospital"], 2, "this column names the nodes"),
    "the label excluded": (numbers, [*BY, "--exclude", "ill"], 2, "--exclude ill: no such feature"),
    "an unknown column excluded": (numbers, [*BY, "--exclude", "name"], 2, "--exclude name: no such feature"),
    "features and exclude": (
        numbers,
        [*BY, "--features", "age", "--exclude", "cp"],
        2,
        "cannot be used with --features",
    ),
    "all excluded": (numbers, [*BY, "--exclude", "age,cp"], 2, "at least"),
    # hospitals
    "a hospital of one row": (
        lambda: numbers().assign(hospital=["a", "b"] * 59 + ["a", "tiny"]),
        BY,
        1,
        "organization 3 (tiny): fewer than 10 rows to compute on",
    ),
    "a hospital without a name": (
        lambda: numbers().assign(hospital=[None] * 9 + ["a"] * 111),
        BY,
        2,
        "has missing values",
    ),
    "no such partition": (numbers, ["--partition", "colum:hospital"], 2, "or column:hospital if it is a column"),
    "no such hospital column": (
        numbers,
        ["--partition", "column:clinic"],
        2,
        "no column 'clinic' to tell the nodes apart",
    ),
    "more nodes than rows": (numbers, ["--nodes", 999, "--exclude", "hospital"], 2, "use --nodes 120 or fewer"),
    "no nodes": (numbers, ["--nodes", 0], 2, "--nodes 0 is too few"),
    # settings
    "a setting that does not exist": (numbers, [*BY, "--set", "learning_rate=1"], 2, "; did you mean lr?"),
    "a setting that is misspelt": (numbers, [*BY, "--set", "epoch=1"], 2, "; did you mean epochs?"),
    "a rate of words": (numbers, [*BY, "--set", "lr=high"], 2, "lr='high' is refused"),
    "a rate below zero": (numbers, [*BY, "--set", "lr=-1"], 2, "lr"),
    "holdout of all": (numbers, [*BY, "--holdout", 1], 2, "holdout"),
    "no rounds": (numbers, [*BY, "--rounds", 0], 2, "rounds"),
    "an unknown step": (
        numbers,
        [*BY, "--preprocess", "normalise"],
        2,
        "there is no step 'normalise'; the steps are missing_indicator",
    ),
    "an option of a step": (numbers, [*BY, "--preprocess", "clip:low=1"], 2, "the step clip"),
    "an unknown model": (numbers, [*BY, "--model", "resnet"], 2, "resnet"),
    "one repeat": (numbers, [*BY, "--repeats", 1], 2, "expected 2 to 1000"),
    "a target above 1": (numbers, [*BY, "--target", 97], 2, "expected an accuracy above 0 and up to 1"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_line_says_what_is_wrong_and_what_helps(name, tmp_path, call):
    make, words, expected_status, says = CASES[name]
    made = make()
    made.to_csv(tmp_path / "rows.csv", index=False)
    if "hospital" in made and not {"--partition", "--exclude"} & {*words}:
        words = [*words, "--exclude", "hospital"]
    status, _, err = call("run", "fedavg", "--data", tmp_path / "rows.csv", "--rounds", 1, *words)
    assert status == expected_status, err
    if says is not None:
        lines = [line for line in err.splitlines() if line.startswith("v6-federated: ")]
        assert len(lines) == 1 and says in lines[0] and "Traceback" not in err, err
        assert "60 years" not in err and "2024" not in err, "no value of a row"


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        (b"", "rows.csv", "rows.csv is empty"),
        (b"\n\n", "rows.csv", "holds empty lines only"),
        (b"age,ill\n", "rows.csv", "holds 0 rows"),
        (b"age;ill\n1,5;0\n2.5;1\n", "rows.csv", "decimal commas and others with points in column(s) age"),
        (b"x\0,y\n", "rows.csv", "NUL bytes"),
        (b"\xff\xfea,b\n1,2\n", "rows.csv", "not in UTF-8"),
        (b"a,a\n1,2\n", "rows.csv", "has a more than once"),
        (b"1,0\n2,1\n3,0\n", "rows.csv", "seems to have no header"),
        (b"a,1,1\nb,2,2\n", "rows.csv", "the first line of rows.csv seems to be a row"),
        (b"a,b\n1,2\n", "rows.csv.gz", "rows.csv.gz ends in .gz and is not packed by gzip"),
        (b"\xff\x00", "rows.csv.gz", "rows.csv.gz ends in .gz and is not packed by gzip"),
        (b"not a book", "rows.xlsx", "rows.xlsx cannot be read as excel"),
        (b"old book", "rows.xls", "has the ending .xls; expected .csv"),
        (b"PAR1", "rows.parquet", "cannot be read as parquet"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-6], "rows.csv.gz", "is a broken .gz file"),
        (b"a,b\n1,2\n", "rows.txt", "has the ending .txt; expected .csv"),
        (b"PK\x03\x04", "rows.npz", "cannot be read as .npz"),
    ],
)
def test_files_that_are_no_tables(content, name, says, tmp_path, refused):
    (tmp_path / name).write_bytes(content)
    line = refused(says, "run", "fedavg", "--data", tmp_path / name)
    assert "Error: " not in line


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("FedAvg", "did you mean fedavg?"),
        ("scafold", "did you mean scaffold?"),
        ("fedprox", "fedprox is `fedavg --set proximal_mu=0.1`"),
        ("FedProx", "FedProx is `fedavg --set proximal_mu=0.1`"),
        ("xgboost", "xgboost is `gbdt`"),
        ("banana", "expected one of"),
    ],
)
def test_a_method_that_was_meant(method, says, refused):
    assert ("did you" in refused(says, "run", method, "--data", "wine")) == ("did you" in says)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda t: Experiment(t), "the dataset is a DataFrame; expected load"),
        (lambda t: Experiment(Dataset("t", t.iloc[:0])), "the dataset 't' has no rows"),
        (lambda t: Experiment(Dataset("t", pd.DataFrame())), "the dataset 't' has no rows"),
        (lambda t: Experiment(Dataset("t", t), features="age"), r"expected a list of names: \['age'\]"),
        (lambda t: Experiment(Dataset("t", t), 3).alone("fedavg", {"rounds": 1}, 4), "expected 1 to 3"),
        (lambda t: Experiment(Dataset("t", t), 3).alone("fedavg", {"rounds": 1}, 0), "expected 1 to 3"),
        (
            lambda t: Experiment(Dataset("t", t), 3).federated("fedavg", {"rounds": 1, "features": "age"}),
            "list of names",
        ),
        (
            lambda t: Experiment(Dataset("t", t), 3).federated("fedavg", on_round=3, rounds=1),
            "on_round=3 is no function; expected one that takes a row of the history",
        ),
    ],
)
def test_in_python(make, says):
    with pytest.raises(SafeError, match=says):
        make(numbers().drop(columns="hospital"))


def test_a_method_that_cannot_be_imported_hinders_only_those_who_name_it(refused, monkeypatch):
    broken = EntryPoint("broken", "v6_nowhere:central", registry.GROUP)
    there = {"broken": broken, **registry._registered()}
    monkeypatch.setattr(registry, "_registered", lambda: there)
    assert registry.predict_numbers("gbdt")[0] == "--set objective=regression"
    assert registry.predict_numbers()
    refused("did you mean fedavg?", "run", "FedAvg", "--data", "wine")
    says = "the method broken cannot be imported (ModuleNotFoundError: No module named 'v6_nowhere'); correct or remove"
    refused(says, "run", "broken", "--data", "wine")


def test_a_full_disk_does_not_hide_that_the_result_is_written(tmp_path, call, monkeypatch):
    from v6_workbench.reporting import pictures

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pictures, "curves", full)
    status, _, err = call("run", "fedavg", "--data", "wine", "--rounds", 1, "--out", tmp_path)
    assert status == 0 and (tmp_path / "result.json").exists()
    assert f"{tmp_path / 'result.json'} is written, but its pictures are not (No space left on device)" in err


def test_nine_curves_have_nine_colours_and_a_row_has_a_size():
    from v6_workbench.reporting import pictures
    from v6_workbench.reporting.pictures.style import wrapped
    from v6_workbench.reporting.pictures.training import _of_rows

    assert len({*pictures.COLOURS}) == len(pictures.COLOURS) >= 12
    found = {"a": {"final": {"evaluated": 140}}, "b": {"final": {"evaluated": 140}}}
    assert _of_rows(found, "accuracy").split("\n") == ["accuracy on 140 held-out rows", "(1 row: 0.0071)"]
    assert _of_rows({**found, "c": {"final": None}}, "accuracy") == "accuracy on held-out rows"
    words = wrapped("fedavg:epochs=5,batch_size=10,lr=0.12345,momentum=0.95 minus centralized:fedavg")
    assert words.split() == ["fedavg:epochs=5,batch_size=10,lr=0.12345,momentum=0.95", "minus", "centralized:fedavg"]


def test_network_down_says_how_to_remove_its_image(call, monkeypatch):
    from v6_workbench.network import images, local

    monkeypatch.setattr(local, "down", lambda name: None)
    monkeypatch.setattr(local, "names", list)
    monkeypatch.setattr(images, "kept_infrastructure", lambda: ("v6-infrastructure:1", 516))
    assert "`docker image rm v6-infrastructure:1` removes it" in call("network", "down")[2]
    monkeypatch.setattr(local, "names", lambda: ["other"])
    assert "docker image rm" not in call("network", "down")[2]
