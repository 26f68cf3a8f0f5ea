"""Levels of a column of words, and rows that share one."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, fitted, hospital, refused_steps, table

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import PrivacyThresholdViolation
from v6_federated.data import source
from v6_federated.data.columns import UNKNOWN, Features
from v6_federated.data.reading import read_features
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_federated.rules.policy import Policy
from v6_workbench.simulation.mock import CallOutcome, MockNetwork


def test_a_level_that_is_rare_everywhere_is_not_named(clinics):
    clinics[2].loc[[0, 1], "sex"] = "intersex"
    *_, levels = fitted(clinics, "impute", "impute:most_frequent", "onehot")
    assert levels["levels"] == {"sex": ["f", "m", "x"]}
    clinics[2].loc[2, "sex"] = "intersex"
    *_, levels = fitted(clinics, "impute", "impute:most_frequent", "onehot")
    assert levels["levels"] == {"sex": ["f", "intersex", "m", "x"]}


def test_equal_numbers_in_different_notations_are_one_level():
    """1, 1.0, "1" and "01" are one level at all nodes."""
    nodes = {1: table(30), 2: table(30), 3: table(30)}
    for k, (one, two) in {1: (1, 2), 2: ("01", "2.0"), 3: (1.0, 2.5)}.items():
        nodes[k]["x1"] = np.array([one, two] * 15, dtype=object)
    (levels,) = fitted(nodes, "onehot:x1")
    assert levels["levels"] == {"x1": ["1", "2", "2.5"]}


def test_a_column_with_a_value_for_each_row_is_refused_as_a_category(clinics):
    clinics[2]["x0"] = [f"patient {i}" for i in range(50)]
    wide = {k: rows.assign(x0=[f"patient {i}" for i in range(len(rows))]) for k, rows in clinics.items()}
    fill = ["impute", "impute:most_frequent,columns=sex"]
    assert "the column(s) x0 have no level that enough rows of a node have" in refused_steps(
        wide, *fill, "onehot", error=SafeError
    )
    limit = {"V6_FEDERATED_MAXIMUM_CLASSES": "20"}
    text = refused_steps(wide, *fill, "onehot", environment=limit)
    assert "the column x0 has more than 20 values" in text and "patient" not in text


def test_a_column_of_names_is_refused_in_evaluations_too(clinics):
    """Even if few rows are trained on, or none, and whatever levels the task names."""
    rows = pd.concat([hospital(60, k, ["f"]) for k in range(4)], ignore_index=True)
    rows["sex"] = [f"patient {i}" for i in range(len(rows))]
    database = source.Source(table=rows)
    steps = [{"step": "onehot", "fitted": {"levels": {"sex": ["patient 123"]}}}]
    spec = DataSpec(features=["sex"], categories=["sex"], classes=[0, 1], preprocess=steps, holdout=0.95)
    for trains in (True, False):
        with pytest.raises(PrivacyThresholdViolation, match="the column sex has more than 100 values") as told:
            database.prepared(spec, 1, Policy.of("trusting"), trains=trains)
        assert "patient" not in str(told.value)


def test_true_and_false_are_the_same_levels_with_and_without_other_words(tmp_path):
    """Another word in the column keeps pandas from reading them as true and false."""
    rows = table(120).assign(smoker=np.arange(120) % 2 == 0)
    words = rows["smoker"].astype(str).where(np.arange(120) % 4 > 0, "unknown")
    for smoker, levels in ((rows["smoker"], {"0", "1"}), (words, {"0", "1", "unknown"})):
        rows.assign(smoker=smoker).to_csv(tmp_path / "rows.csv", index=False)
        read = read_features(pd.read_csv(tmp_path / "rows.csv"), ["x0", "smoker"], ["smoker"])
        assert set(read.words["smoker"]) == levels


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_level_of_few_rows_looks_like_an_unknown_one(rows):
    """The first clinic names the level x. The second has it in 1, 2 or 3 rows; nothing that it sends shows fewer than
    3."""
    sent = []

    def outcomes(organization, input_):
        fits = organization == 2 and input_["method"] == "fit_step"
        return CallOutcome(alter=(lambda answer: sent.append(answer) or answer) if fits else None)

    nodes = {k: hospital(60, k, ["f", "m"]).dropna() for k in (1, 2, 3)}
    nodes[1].iloc[:6, 0] = "x"
    nodes[2].iloc[:rows, 0] = "x"
    with MockNetwork("v6_fedavg", nodes, environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        result = network.run(rounds=1, holdout=0, preprocess=["onehot", "pca:2"])
    levels = result["data"]["preprocess"][0]["fitted"]["levels"]["sex"]
    assert levels == ["f", "m", "x"]
    (answer,) = [a for a in sent if "mean" in a.get("arrays", {"shapes": {}})["shapes"]]
    n, mean = answer["n"], codec.whole(codec.decode(answer["arrays"]), "mean")
    counts = np.round(n * mean[: len(levels)].astype(float), 6)
    assert counts[2] == (3 if rows == 3 else 0)
    assert counts.sum() == n, "or the few rows would be those without any level"
    spec = DataSpec(**{**result["data"], "preprocess": result["data"]["preprocess"][:1]})
    X = source.Source(table=nodes[2]).prepared(spec, 2, Policy.of("trusting"))[0].X
    assert X[:, 2].sum() == (3 if rows == 3 else 0)
    assert (X[:, :3].sum(axis=1) == 1).all()
    nodes[2].iloc[:rows, 0] = ["p", "q", "r"][:rows]  # three rows may have no known level
    told = source.Source(table=nodes[2]).prepared(spec, 2, Policy.of("trusting"))[0].X
    assert (told[:rows, :3].sum(axis=1) == (0 if rows == 3 else 1)).all() and (told[rows:, :3].sum(axis=1) == 1).all()
    nodes[2].iloc[:rows, 0] = "x"
    new = read_features(nodes[2], list(nodes[2].columns[:-1]), ["sex"])
    whole = source.ready(new, spec.preprocess)
    assert whole[:, 2].sum() == rows, "a prediction knows the level"
    evaluated = source.Source(table=nodes[2]).prepared(spec, 2, Policy.of("trusting"), trains=False)[0].X
    assert (evaluated == whole).all(), "and an evaluation does what a prediction does"


@pytest.mark.parametrize("rare", [1, 2, 3])
@pytest.mark.parametrize("what", ["level", "missing"])
def test_no_two_tasks_together_single_out_few_rows_by_a_word(rare, what):
    """Whatever levels a task names, and whatever fills missing words, no sum depends on a group of fewer than 3 rows,
    nor does the difference of two sums."""
    rows = hospital(60, 1, ["f", "m"])[["sex", "x0", "label"]].fillna({"x0": 0.0}).reset_index(drop=True)
    rows["sex"] = ["f"] * (30 - rare) + ["m"] * 30 + [None if what == "missing" else "x"] * rare
    spec = DataSpec(label="label", features=["sex", "x0"], classes=[0, 1], holdout=0.0, categories=["sex"])

    def sums(levels, filled="f"):
        steps = [{"step": "impute", "fitted": {"values": {"sex": filled}}}] if what == "missing" else []
        steps.append({"step": "onehot", "fitted": {"levels": {"sex": levels}}})
        X = source.Source(table=rows).prepared(replace(spec, preprocess=steps), 1, Policy.of("trusting"))[0].X
        return X.T @ X

    if what == "level":
        others = len(rows) - np.trace(sums(["f", "m"])[:2, :2])
        assert others == (3 if rare == 3 else 0) and sums(["x"])[0, 0] == others
        assert sums(["f"])[0, 0] + sums(["m"])[0, 0] == len(rows) - others
    else:
        moved = np.abs(sums(["f", "m"], "f") - sums(["f", "m"], "m"))
        assert moved[0, 0] == (3 if rare == 3 else 0) and (moved[0, 2] > 0) == (rare == 3)


def test_rare_and_missing_words_are_folded_together():
    words = np.array(["a", "a", "a", "b", "c", None, "d"], dtype=object)
    features = Features(["w"], np.full((7, 1), np.nan), {"w": words})
    assert features.folded(1).words["w"].tolist() == words.tolist()
    assert features.folded(2, ["w"]).words["w"].tolist() == ["a", "a", "a", UNKNOWN, UNKNOWN, "a", UNKNOWN]
    assert features.folded(2, ["v"]).words["w"][5] is None
    assert features.folded(4, ["w"]).words["w"].tolist() == [*[UNKNOWN] * 5, UNKNOWN, UNKNOWN], "no word is frequent"
    few = Features(["w"], np.full((5, 1), np.nan), {"w": np.array(["a", "b", "a", "b", "c"], dtype=object)})
    assert few.folded(2).words["w"].tolist() == ["a", "b", "a", "b", "a"], "the first of equally frequent ones"


def test_levels_cannot_be_guessed_if_there_are_too_many_to_be_named():
    rows = table(60).assign(postcode=[f"{1000 + i // 4}AB" for i in range(60)])
    guess = [f"{1000 + i}AB" for i in range(5000)]
    steps = [{"step": "onehot", "fitted": {"levels": {"postcode": guess}}}]
    spec = DataSpec(
        label="label",
        features=["x0", "postcode"],
        classes=[0, 1],
        holdout=0.0,
        preprocess=steps,
        categories=["postcode"],
    )
    source.Source(table=rows).prepared(spec, 1, Policy.of("trusting", maximum_classes=15))
    with pytest.raises(PrivacyThresholdViolation, match="the column postcode has more than 14 values"):
        source.Source(table=rows).prepared(spec, 1, Policy.of("trusting", maximum_classes=14))


@pytest.mark.parametrize(
    "values", [["77,5", "34,0"], [">90", "12"], ["< 0.5", "0,7"], ["12%", "7 %"], ["1.234,5", "2.000,0"]]
)
def test_numbers_in_another_notation_are_refused_as_categories(clinics, values):
    """Unless the step names the column. A column of numbers and words is refused for the same reason."""
    odd = {k: rows[["x0", "label"]].assign(age=np.resize(values, len(rows))) for k, rows in clinics.items()}
    odd = {k: rows[["age", "x0", "label"]] for k, rows in odd.items()}
    with pytest.raises(
        SafeError,
        match=r"age hold both numbers and words, or numbers with commas or signs; expected numbers \(with a decimal",
    ):
        fitted(odd, "onehot")
    levels = fitted(odd, "onehot:age")[0]["levels"]["age"]
    assert len(levels) == 2
    words_ = {k: rows.assign(age=np.resize(["old", *values], len(rows))) for k, rows in odd.items()}
    if "12" not in values:
        assert "old" in fitted(words_, "onehot")[0]["levels"]["age"]
    dates = {k: rows.assign(age=np.resize(["31.12.2020", "01.01.2021", "1.0.2"], len(rows))) for k, rows in odd.items()}
    assert len(fitted(dates, "onehot")[0]["levels"]["age"]) == 3, "words like any other"
