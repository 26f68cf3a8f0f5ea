"""Refused steps: the error names the column and the step that would help, never a value."""

import numpy as np
import pandas as pd
import pytest
from helpers import ALL_STEPS, fitted, refused_steps, table, train

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import preprocessing, source
from v6_federated.messages.job import DataSpec
from v6_workbench.cli.main import main


@pytest.mark.parametrize("kept", ["training", "held out"])
def test_one_missing_word_needs_a_step_wherever_its_row_is(kept):
    nodes = {k: table(60, seed=k).assign(sex=["f", "m"] * 30)[["sex", "x0", "label"]] for k in (1, 2, 3)}
    train_, held = source.split(60, 0.2, 1)
    nodes[1].loc[(train_ if kept == "training" else held)[0], "sex"] = None
    assert "missing values in the column(s) sex" in refused_steps(nodes, "onehot", holdout=0.2)
    fitted(nodes, "impute:most_frequent", "onehot", holdout=0.2)


def test_a_node_may_lack_all_words_of_a_column():
    nodes = {k: table(60, seed=k).assign(sex=["f", "m"] * 30)[["sex", "x0", "label"]] for k in (1, 2, 3)}
    nodes[3]["sex"] = np.array([None] * 60, dtype=object)
    assert fitted(nodes, "impute:most_frequent", "onehot")[1]["levels"] == {"sex": ["f", "m"]}


def test_missing_values_name_the_column_and_the_step(hospitals):
    hospitals[5].loc[3, "x2"] = np.nan
    for steps in (["standardize"], ["pca:2"], ["clip:0.1"], ["standardize", "pca:2"]):
        text = refused_steps(hospitals, *steps)
        assert "organization 5: missing values in the column(s) x2; " in text
        assert "add a step impute before it, which fills them (--preprocess impute)" in text
        assert "organization 3" not in text
    assert "missing values in the column(s) x2" not in str(
        train("v6_fedavg", hospitals, rounds=1, preprocess=["impute"])
    )


def test_words_name_the_column_and_the_step(clinics):
    text = refused_steps(clinics, "impute", "impute:most_frequent", "standardize", error=SafeError)
    assert "the column(s) sex hold values that are not numbers" in text and "(--preprocess onehot)" in text
    assert "missing values in the column(s) sex; onehot needs complete columns" in refused_steps(
        clinics, "impute", "onehot"
    )


def test_a_word_in_a_column_of_numbers_is_corrected_first(clinics):
    """The whole advice helps: a plain step onehot would refuse the column."""
    clinics[2] = clinics[2].assign(x0=["Mr Smith", *clinics[2]["x0"][1:].astype(str)])
    with pytest.raises(DataError) as caught:
        source.Source(table=clinics[2]).rows(DataSpec(features=["x0"], label="label"))
    text = str(caught.value)
    assert "some values in the column(s) x0 are not numbers; correct them, or empty those cells" in text
    assert "(--preprocess onehot:x0), or leave these columns out" in text and "Smith" not in text


def test_numbers_written_as_text_are_numbers_and_a_word_among_them_is_refused(clinics):
    """A column of both must be named by onehot."""
    steps = ["impute", "impute:most_frequent", "onehot"]
    as_text = {**clinics, 2: clinics[2].assign(x0=[f" {v!r} " for v in clinics[2]["x0"]])}
    assert fitted(as_text, *steps) == fitted(clinics, *steps)
    as_text[2].loc[4, "x0"] = "Mr Smith"
    text = refused_steps(as_text, *steps, error=SafeError)
    assert "organization 2: the column(s) x0 hold both numbers and words" in text and "Smith" not in text
    as_text[2] = clinics[2].assign(x0="Mr Smith")
    text = refused_steps(as_text, *steps, error=SafeError)
    assert "x0 hold words at organization 2 and numbers at organizations 1, 3; expected one kind: numbers" in text
    assert "a step onehot that names them (--preprocess onehot:x0)" in text and "Smith" not in text
    assert text == refused_steps(as_text, "standardize", error=SafeError), "onehot alone is no cure"
    as_text[3] = clinics[3].assign(x0="Mr Smith")
    text = refused_steps(as_text, *steps, error=SafeError)
    assert "x0 hold numbers at organization 1 and words at organizations 2, 3" in text, "the fewest come first"


def test_a_node_with_three_rows_refuses(clinics):
    assert "organization 4: fewer than 10 rows to compute on" in refused_steps(
        {**clinics, 4: clinics[1].head(3)}, *ALL_STEPS
    )


def test_a_column_with_few_values_is_refused_and_one_with_none_is_not(clinics):
    clinics[2].loc[5:, "x1"] = np.nan
    for step in ("impute", "impute:median", "clip:0.1"):
        text = refused_steps(clinics, step, "impute", "impute:most_frequent", "onehot")
        assert "organization 2: fewer than 10 rows have a value in the column(s) x1" in text
    clinics[2]["x1"] = np.nan  # no value at all reveals nobody
    fitted(clinics, "impute", "impute:most_frequent", "onehot")
    for rows in clinics.values():
        rows["x1"] = np.nan
    text = refused_steps(clinics, "impute", "impute:most_frequent", "onehot", error=SafeError)
    assert "no node has a value in the column(s) x1" in text


def test_infinite_values_and_dates_are_refused_by_their_column(clinics):
    clinics[2].loc[3, "x0"] = np.inf
    for steps in (ALL_STEPS, ["impute", "onehot:sex", "clip:lower=0,upper=1"]):  # even if no statistic is computed
        text = refused_steps(clinics, *steps)
        assert "organization 2: infinite values (or beyond 3.4e38) in the column(s) x0; correct them" in text
        assert "impute" not in text, "which does not fill them"
    clinics[2]["x0"] = pd.Timestamp("1950-03-02")
    text = refused_steps(clinics, *ALL_STEPS)
    assert "the column(s) x0 hold dates; replace each date by a number" in text and "1950" not in text


def test_steps_may_not_use_a_disallowed_column(clinics):
    text = refused_steps(clinics, *ALL_STEPS, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "sex"})
    assert "the column(s) sex may not be used" in text


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (
            "whiten",
            "there is no step 'whiten'; the steps are missing_indicator, impute, onehot, clip, standardize, scale, pca",
        ),
        ("pca", "the step pca: the setting 'components' is missing; it has no default, for example pca:20"),
        ("pca:0", "components='0' is refused: it should be greater than or equal to 1, for example pca:20"),
        ("pca:many", "components='many' is refused: it should be a valid integer"),
        ("pca:3,rank=2", "unknown setting 'rank'; expected one of components, scale, solver, for example pca:20"),
        ({"step": "onehot", "columns": []}, "columns=[] is refused: it should have at least 1 item, not 0, for exam"),
        ("clip:0.7", "quantile='0.7' is refused: it should be less than 0.5, for example clip:0.01"),
        (
            "log:bili",
            "there is no step 'log'; the steps are missing_indicator, impute, onehot, clip, standardize, scale",
        ),
        ("one_hot", "; did you mean onehot?"),
        ("impute:mean,x0", "cannot be read at 'x0'; expected impute:VALUE or impute:KEY=VALUE,..., for example impute"),
        (
            "standardize:3",
            "the step standardize takes no value, and 'standardize:3' gives it '3'; write standardize alone",
        ),
        ("impute:mode", "strategy"),
        ("onehot:drop=never", "drop='never' is refused: it should be 'first', for example onehot:drop=first"),
        ("impute:constant", "strategy constant needs a value"),
        ("impute:mean,value=3", "strategy constant needs a value"),
        ("clip", "clip needs a quantile or bounds"),
        ("clip:lower=2,upper=1", "the lower bound is above the upper bound"),
        ("impute:mean,strategy=median", "sets strategy twice"),
        ("{", "is not JSON"),
        ({"columns": ["a"]}, "there is no step 'None'"),
    ],
)
def test_a_wrong_step_is_refused_with_what_is_accepted(step, says):
    with pytest.raises(SafeError) as error:
        preprocessing.parse(step)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (["onehot", "impute:mean,columns=age"], "no column age"),
        (["impute:mean,columns=sex", "onehot"], "impute cannot fill the column(s) sex like this"),
        (["onehot", "onehot:sex"], "no column sex"),
        (["onehot", "clip:lower=0,columns=sex"], "no column sex"),
        (["clip:lower=0,columns=sex", "onehot"], "which hold words"),
        (["impute", "impute:most_frequent", "onehot", "pca:30"], "components=30 is refused"),
    ],
)
def test_steps_that_do_not_fit_the_columns_are_refused(clinics, steps, says):
    assert says in refused_steps(clinics, *steps, error=SafeError)


def test_a_step_names_a_column_once(capsys):
    assert main(["run", "fedavg", "--data", "wine", "--rounds", "1", "--preprocess", "impute:mean,columns=a|a"]) == 2
    assert "a column is named twice; name each once" in capsys.readouterr().err
