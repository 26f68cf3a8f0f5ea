"""``schema new`` and ``schema check``: a draft covers the table and holds no value that only few rows have."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v6_federated.operator.check_schema import _at_least, _bounds, _rounded, compared, drafted
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Column, Schema

FEW = Policy.of("careful").minimum_rows_a_class
N = 203


def clinic(n=N, seed=0):
    """A table with a column of each kind that a person must look at."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.normal(60.3, 11.7, n),
            "dose": rng.normal(0, 0.0123, n),
            "sex": rng.choice(["f", "m"], n),
            "pain": rng.integers(1, 5, n),
            "thal": rng.choice(["normal", "fixed"], n),
            "id": np.arange(n) * 7 + 10_001,
            "name": [f"person {chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(n)],
            "lab": ["<5", "7"] * (n // 2) + ["7"] * (n % 2),
            "empty": np.full(n, np.nan),
            "rarely": [1.5, 2.5] + [np.nan] * (n - 2),
            "version": np.full(n, 3),
            "ill": rng.choice(["no", "yes"], n),
        }
    )
    table.loc[:2, "thal"] = "reversible"
    table.loc[10:20, "age"] = np.nan
    table.loc[10:20, "sex"] = None
    return table


@pytest.fixture
def patients(tmp_path):
    file = tmp_path / "patients.csv"
    clinic().to_csv(file, index=False)
    return file


def test_a_draft_covers_the_table(call, patients, tmp_path):
    out = tmp_path / "schema.json"
    status, lines, answer, _ = call("schema", "new", patients, "--out", out)
    assert status == 0 and answer["digest"] == Schema.of_file(out).shared_digest
    made, table = Schema.of_file(out), clinic()
    assert made.features == ["age", "dose", "sex", "pain", "thal", "id", "version"]
    assert made.levels == {"sex": ("f", "m"), "thal": ("fixed", "normal")}
    assert made.label == "ill" and made.classes == ("no", "yes") and made.n == 200
    for name, (lower, upper) in made.ranges.items():
        assert lower <= table[name].min() and table[name].max() <= upper
    said = "\n".join(lines)
    assert "count as unknown, in thal" in said and "different whole numbers are in pain" in said
    assert "in each row of id; remove numbers of patients" in said and "one value in version" in said
    assert "are in name" in said and "are in lab" in said
    assert "no row has a value in empty" in said and "fewer than 10 rows have a value in rarely" in said


def test_a_draft_holds_no_value_that_few_rows_have(patients):
    made, lines = drafted(patients)
    table = clinic()
    printed = made.text() + "\n".join(lines)
    assert "reversible" not in printed and "person" not in printed.replace('"person"', "") and "<5" not in printed
    for name, bounds in made.ranges.items():
        counts = table[name].value_counts()
        assert all(counts.get(bound, FEW) >= FEW for bound in bounds)
    for name in ("age", "dose", "id"):
        assert not {repr(float(value)) for value in table[name]} & {repr(bound) for bound in made.ranges[name]}
    assert made.n != len(table)


finite = st.floats(-1e30, 1e30).map(lambda value: value if abs(value) > 1e-30 else 0.0)  # as float32 can hold
values = st.lists(st.one_of(st.integers(-50, 50), finite, st.sampled_from([0.0, 0.1, 99.5, -1e-9])), min_size=1)


@settings(max_examples=500)
@given(values, st.integers(1, 6))
def test_bounds_are_two_digits_outside_of_all_values_that_few_rows_have(values, least):
    values = np.array(values, dtype=float)
    lower, upper, constant = _bounds(values, least)
    assert lower < upper and lower <= values.min() and values.max() <= upper
    for bound in (lower, upper):
        assert not 0 < (values == bound).sum() < least
        assert len(Decimal(repr(bound)).normalize().as_tuple().digits) <= 2, bound
    assert not constant or (values == values[0]).all()
    again = _bounds(np.repeat([lower, upper], least), least)
    assert again[:2] == (lower, upper)  # what many rows have is kept


def test_bounds_by_example():
    for values, bounds in [
        ([29, 77], (28, 78)),  # one patient each: not the value itself
        ([0.0312, 0.987], (0.031, 0.99)),
        ([103.2, 257.9], (100, 260)),
        ([0, 87.3], (-1, 88)),
        ([0] * 5 + [1] * 5, (0, 1)),  # an indicator that enough rows have
        ([3] * 9, (2.9, 3.1)),
        ([-273.15, -0.5], (-280, -0.49)),
    ]:
        assert _bounds(np.array(values, dtype=float), 5)[:2] == bounds


def test_numbers_of_rows_are_rounded():
    assert [_rounded(n) for n in (10, 14, 15, 99, 303, 1249, 60_000)] == [10, 10, 20, 100, 300, 1200, 60_000]
    assert [_at_least(m) for m in (1, 2, 3, 5, 6, 11, 99)] == [1, 2, 5, 5, 10, 20, 100]


def test_persons_and_regressions(call, patients, tmp_path):
    table = clinic()
    table["patient"] = np.arange(N) // 3
    table["age"] = table["age"].fillna(50)
    table.to_csv(patients, index=False)
    made, _ = drafted(patients, "age", regression=True, person="patient")
    assert made.person == "patient" and made.m == 5 and "patient" not in made.features
    assert made.classes is None and made.bounds[0] < table["age"].min() and table["age"].max() < made.bounds[1]
    status, _, _, err = call("schema", "new", patients, "--label", "id")
    assert status == 2 and "more than 100 values" in err


@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_other_files_give_the_same_draft(patients, tmp_path, kind):
    pytest.importorskip({"xlsx": "openpyxl", "parquet": "pyarrow"}[kind])
    file = tmp_path / f"patients.{kind}"
    table = clinic()
    if kind == "xlsx":
        table.to_excel(file, index=False)
    else:
        table.to_parquet(file, index=False)
    assert drafted(file)[0] == drafted(patients)[0]


def test_arrays_have_names_that_are_indices(call, tmp_path):
    rng = np.random.default_rng(0)
    file = tmp_path / "rows.npz"
    np.savez(file, x=rng.integers(0, 256, (60, 2, 2)).astype(np.uint8), y=rng.integers(0, 3, 60))
    made, _ = drafted(file)
    assert made.features == ["0", "1", "2", "3"] and made.label == "y" and made.classes == (0, 1, 2)
    assert all(-0.1 <= lower < upper <= 1.1 for lower, upper in made.ranges.values())  # pixels divided by 255
    assert drafted(file, "y")[0] == made
    assert call("schema", "new", file, "--out", tmp_path / "schema.json")[0] == 0
    assert call("schema", "check", tmp_path, "--table", file)[0] == 0
    assert call("schema", "new", file, "--label", "x")[0] == 2
    assert call("schema", "new", file, "--person", "0")[0] == 2


def test_the_operators_limits_hold(patients, monkeypatch, call):
    monkeypatch.setenv("V6_FEDERATED_DISALLOWED_COLUMNS", "ID, dose")
    monkeypatch.setenv("V6_FEDERATED_MINIMUM_ROWS_A_CLASS", "3")
    status, lines, _, _ = call("schema", "new", patients)
    made = Schema.parse("\n".join(lines[: lines.index("}") + 1]))
    assert status == 0 and not {"id", "dose"} & {*made.features} and "reversible" in made.levels["thal"]
    assert "- left out: your limits do not allow dose, id" in lines


def test_the_environment_stays_as_it_was(patients, monkeypatch):
    import os

    monkeypatch.setenv("USER_REQUESTED_DATABASE_LABELS", "default")
    before = dict(os.environ)
    drafted(patients)
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.csv"], "there is no file nowhere.csv"),
        (["--label", "none", "{}"], "no column none in the table"),
        (["--person", "none", "{}"], "--person none is no column"),
        (["--label", "version", "{}"], "fewer than two values of the label 'version'"),
        (["--label", "sex", "{}"], "missing values in the label column sex"),
        (["--label", "sex", "--regression", "{}"], "missing values in the label column sex"),
        (["--label", "ill", "--regression", "{}"], "labels that are not numbers"),
        (["{}", "--out", "{}"], "exists already"),
        (["{}.txt"], "there is no file"),
    ],
)
def test_mistakes_are_one_line(call, patients, words, says):
    status, lines, _, err = call("schema", "new", *(word.format(patients) for word in words))
    assert status == 2 and says in err and not lines


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("5.1,4\n" * 20, "the names of some columns are numbers"),
        ("a,b\n1,2\n" + "1,2\n" * 5, "fewer than 10 rows"),
        ("a\n" + "1\n" * 20, "no feature column"),
        ("a,b\n" + "x%d,0\n" * 9 % (*range(9),) + "z%d,1\n" * 9 % (*range(9),), "no column can be used"),
        ("a,b\n" + "inf,0\n1,1\n" * 10, "infinite values"),
        ("", "the table holds empty lines only"),
    ],
)
def test_tables_from_which_nothing_can_be_drafted(call, patients, rows, says):
    patients.write_text(rows)
    status, lines, _, err = call("schema", "new", patients)
    assert status == 2 and says in err and not lines


def test_a_file_of_another_kind(call, tmp_path):
    (tmp_path / "patients.sav").write_text("x")
    status, _, _, err = call("schema", "new", tmp_path / "patients.sav")
    assert status == 2 and "the database is a .sav file" in err


def test_check_says_what_a_job_would_see(call, patients, tmp_path):
    folder = tmp_path / "hospital"
    folder.mkdir()
    assert call("schema", "new", patients, "--out", folder)[0] == 0
    status, lines, _, _ = call("schema", "check", folder, "--table", patients)
    assert status == 0 and f"{patients} fits" in lines
    assert "note: 3 row(s) have an undeclared level of thal, which counts as unknown" in lines
    later = clinic(400, seed=1)
    later["id"] = 10_008
    later.loc[0, "age"], later.loc[1, "ill"], later.loc[2, "pain"] = 200, "maybe", np.nan
    later.to_csv(patients, index=False)
    status, lines, answer, _ = call("schema", "check", folder, "--table", patients)
    assert status == 1 and answer["problems"] == ["1 row(s) have a label that is none of the classes"]
    assert any(line.startswith("note: ") and "row(s) have a value in age outside" in line for line in lines)
    assert "note: own says n = 200, and the table has about 400 rows" in lines
    later.assign(age="old").drop(columns="sex").to_csv(patients, index=False)
    assert call("schema", "check", folder, "--table", patients)[2]["problems"] == ["the table has no column sex"]
    later.assign(age="old").to_csv(patients, index=False)
    [problem, _] = call("schema", "check", folder, "--table", patients)[2]["problems"]
    assert problem == "there are words in the column(s) age, which the schema declares as numbers"


def test_check_without_a_table_only_reads(call, tmp_path):
    made = Schema((Column("age", "number", 0, 120),), "", n=40)
    (tmp_path / "schema.json").write_text(made.text())
    status, lines, answer, _ = call("schema", "check", tmp_path)
    assert status == 0 and answer["digest"] == made.shared_digest and "n = 40" in lines[-1]
    assert call("schema", "check", tmp_path / "schema.json")[2]["digest"] == made.shared_digest
    (tmp_path / "schema.json").write_text(made.text().replace("120", "-1"))
    status, _, _, err = call("schema", "check", tmp_path)
    assert status == 2 and "lower is 0 and upper -1" in err
    status, _, _, err = call("schema", "check", tmp_path / "nowhere")
    assert status == 2 and "there is no" in err and "`v6-federated schema new TABLE` drafts one" in err


def test_codes_can_be_declared_as_words(patients):
    made, _ = drafted(patients)
    columns = [Column("pain", "words", levels=("1", "2", "3")) if c.name == "pain" else c for c in made.columns]
    problems, notes = compared(Schema(tuple(columns), made.label, made.classes), patients)
    fours = int((clinic()["pain"] == 4).sum())
    assert problems == [
        f"{fours} of {N} row(s) have an undeclared level of pain, which counts as unknown; write the levels as the "
        "schema does, or agree on more"
    ]


DECLARED = Schema(
    (Column("age", "number", 32, 92), Column("sex", "words", levels=("f", "m"))), "stay", bounds=(0.0, 30.0)
)


def stays(n=100):
    """A table that fits."""
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {"age": rng.uniform(40, 90, n).round(1), "sex": rng.choice(["f", "m"], n), "stay": rng.uniform(1, 29, n)}
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"age": lambda t: t["age"] * 12},
            "100 of 100 row(s) have a value in age outside 32 to 92 (0 below, 100 above)",
        ),
        (
            {"age": lambda t: t["age"] / 12},
            "100 of 100 row(s) have a value in age outside 32 to 92 (100 below, 0 above)",
        ),
        ({"stay": lambda t: t["stay"] * 24}, "row(s) have a label outside 0 to 30 (0 below, "),
        ({"sex": lambda t: t["sex"].str.upper()}, "100 of 100 row(s) have an undeclared level of sex"),
    ],
)
def test_a_column_in_another_unit_or_spelling_does_not_fit(call, tmp_path, change, says):
    (tmp_path / "schema.json").write_text(DECLARED.text())
    stays().to_csv(tmp_path / "rows.csv", index=False)
    status, lines, answer, _ = call("schema", "check", tmp_path, "--table", tmp_path / "rows.csv")
    assert status == 0 and not answer["problems"] and lines[-1].endswith("rows.csv fits")
    stays().assign(**change).to_csv(tmp_path / "rows.csv", index=False)
    status, lines, answer, _ = call("schema", "check", tmp_path, "--table", tmp_path / "rows.csv")
    [problem] = answer["problems"]
    assert status == 1 and says in problem and lines[-1] == f"problem: {problem}"


@pytest.mark.parametrize(("beyond", "fits"), [(5, True), (6, False)])
def test_more_than_one_row_in_twenty_does_not_fit(call, tmp_path, beyond, fits):
    """Of the rows that have a value: missing ones say nothing about the unit."""
    (tmp_path / "schema.json").write_text(DECLARED.text())
    rows = pd.concat([stays(), stays(50).assign(age=np.nan)])
    rows.iloc[:beyond, 0] = 999
    rows.to_csv(tmp_path / "rows.csv", index=False)
    status, lines, _, _ = call("schema", "check", tmp_path, "--table", tmp_path / "rows.csv")
    assert status == (0 if fits else 1)
    begins = f"note: {beyond} row(s)" if fits else f"problem: {beyond} of 100 row(s)"
    assert any(line.startswith(f"{begins} have a value in age outside 32 to 92") for line in lines)


def test_the_last_line_is_json(call, patients):
    assert json.dumps(call("schema", "new", patients)[2])


def test_dates_and_marks_for_missing_values_are_left_out_and_named(call, patients, tmp_path):
    table = clinic()
    table["admitted"] = [f"{1 + i % 28}.11.2000" for i in range(N)]
    table["pain"] = table["pain"].astype(str).where(np.arange(N) > 3, ".")
    table.insert(0, "seen", pd.Timestamp("2000-11-22"))
    table[["seen", "admitted", *table.columns[1:-1]]].to_csv(patients, index=False)
    made, lines = drafted(patients, "ill")
    assert not {"seen", "admitted", "pain"} & {*made.features}
    assert "- left out: dates (replace each by a number, such as an age in years) are in seen, admitted" in lines
    assert "- left out: numbers and '.' for missing values (empty those cells) are in pain" in lines
    (tmp_path / "schema.json").write_text(Schema((Column("pain", "number", 0, 10),), "ill", ("no", "yes")).text())
    status, lines, answer, _ = call("schema", "check", tmp_path, "--table", patients)
    [problem] = answer["problems"]
    assert status == 1 and problem == "there is '.' for missing values in the column(s) pain; empty those cells"
