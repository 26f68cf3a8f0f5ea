"""Tables of results."""

import json
import re

import numpy as np
import pandas as pd
from helpers import train
from rich.console import Console

from v6_workbench.cli.main import main
from v6_workbench.reporting import tables


def printed(table):
    """The text of a table."""
    console = Console(width=140)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_components_name_the_columns_with_the_largest_loadings(result_of):
    """After the steps: words are then columns of their own."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=60)
    kind = np.where(x > 0, "one", "other")
    rows = pd.DataFrame({"a": 3 * x, "b": rng.normal(size=60), "c": -x, "kind": kind, "label": 0})
    run = train("v6_pca", {1: rows[:30], 2: rows[30:]}, rounds=2, components=3, preprocess=["onehot"], label="label")
    X = np.column_stack([3 * x, rows["b"], -x, kind == "one", kind == "other"])
    shares = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1]
    shares = shares / shares.sum()
    heading, first, second = printed(tables.components_table(run)).splitlines()[:3]
    assert heading.split() == ["component", "variance", "share", "cumulative", "largest", "loadings"]
    assert "1 of 3" in first and re.search(r"a \+0\.9\d, c -0\.3\d, kind=\w+ [+-]0\.1", first)
    assert f"{shares[:2].sum():.3f}" in second and "b +1.00" in second
    named = printed(tables.components_table({**run, "data": {"features": ["[/a]", "b\\", "c", "d", "e"]}}))
    assert "[/a] +0.9" in named and "b\\ +1" in named, "names are not markup"
    assert "column 1 +0.9" in printed(tables.components_table({**run, "data": {}})), "a result without names of columns"
    assert tables.components_table(result_of()) is None


def test_classes_have_recall_and_precision():
    result = {"final": {"confusion": [[3, 1], [0, 0]]}, "data": {"classes": ["[home]", "died"]}}
    heading, home, died = printed(tables.classes_table(result)).splitlines()
    assert heading.split() == ["held-out", "class", "rows", "found", "recall", "predicted", "precision"]
    assert home.split() == ["[home]", "4", "3", "0.750", "3", "1.000"]
    assert died.split() == ["died", "0", "0", "-", "1", "0.000"]
    assert tables.classes_table(result, most=1) is None
    assert tables.classes_table({**result, "final": None}) is None


def test_the_table_of_a_run_counts_as_its_result_does(capsys, tmp_path):
    run = ["run", "fedavg", "--data", "wine", "--rounds", "1", "--preprocess", "standardize", "--out", str(tmp_path)]
    assert main(run) == 0
    out = capsys.readouterr().out.splitlines()
    confusion = np.array(json.loads((tmp_path / "result.json").read_text())["final"]["confusion"])
    start = next(i for i, line in enumerate(out) if line.startswith("held-out class"))
    shown = np.array([line.split()[:5] for line in out[start + 1 : start + 4]], dtype=float)
    np.testing.assert_array_equal(shown[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(shown[:, 1], confusion.sum(axis=1))
    np.testing.assert_array_equal(shown[:, 2], np.diag(confusion))
    np.testing.assert_array_equal(shown[:, 4], confusion.sum(axis=0))


def test_rounds_are_evenly_spaced_and_missing_answers_are_named():
    rows = [
        {
            "round": t,
            "participants": [1, 2],
            "n": 20,
            "train_loss": None,
            "loss": 1.0,
            "accuracy": 0.5,
            "auc": None,
            "bytes_up": 1000,
            "bytes_down": 2000,
            "seconds": 1.0,
            "merged": t,
            "missing": [{"organization_id": k, "reason": "crashed"} for k in (3, 4)] if t == 14 else [],
        }
        for t in range(1, 31)
    ]
    heading, *lines = printed(tables.rounds_table({"history": rows}, lines=3)).splitlines()
    assert "merged" in heading and "missing" in heading
    assert [line.split()[0] for line in lines] == ["1", "10", "14", "20", "30"]
    assert lines[2].rstrip().endswith("3, 4: crashed")


def test_settings_say_what_is_required():
    arguments = [
        {"name": "rounds", "description": "rounds", "has_default_value": False},
        {"name": "precision", "description": "format", "has_default_value": True, "allowed_values": ["a", "b"]},
    ]
    _, rounds, precision = printed(tables.settings_table(arguments)).splitlines()
    assert rounds.split() == ["rounds", "required", "rounds"]
    assert precision.split() == ["precision", "format;", "one", "of", "a,", "b"]


def test_intervals_of_several_results():
    two = {"accuracy": 0.9, "evaluated": 100, "auc": 0.8, "auc_variance": 0.0016, "confusion": [[45, 5], [5, 45]]}
    table = tables.intervals_table({"[a]": {"final": two}, "b": {"final": {**two, "auc": None}}, "c": {"final": None}})
    heading, a, b, c = printed(table).splitlines()
    assert heading.split() == ["95%", "interval", "accuracy", "AUC"]
    assert a.split() == ["[a]", "0.8256", "to", "0.9448", "0.7102", "to", "0.8672"]  # log 4 -+ 1.96 * 0.04 / 0.16
    assert b.split() == ["b", "0.8256", "to", "0.9448", "-"] and c.split() == ["c", "-", "-"]


def test_intervals_of_subgroups_are_wider_if_counts_are_rounded():
    row = {"level": "f", "evaluated": 20, "accuracy": 0.75, "confusion": [[8, 2], [3, 7]]}
    result = {
        "data": {"classes": ["no", "yes"]},
        "final": {"evaluated": 60, "accuracy": 0.75},
        "subgroups": {"column": "sex", "rows": [row], "suppressed": []},
    }
    exact = tables.subgroups_table(result)
    result["final"]["accuracy_error"] = 0.02
    rounded = tables.subgroups_table(result)

    def interval(table):
        text = next(iter(table.columns[2].cells))
        low, high = text[text.index("(") + 1 : -1].split(" to ")
        return float(low), float(high)

    assert interval(rounded)[0] < interval(exact)[0] and interval(exact)[1] < interval(rounded)[1]
    assert [*exact.columns[0].cells][-1] == "not counted: too few rows at a hospital"


def coefficients(*rows, ratio="odds_ratio"):
    """A result with coefficients: a name, an estimate and its standard error each."""
    found = []
    for name, estimate, error in rows:
        low, high = estimate - 2 * error, estimate + 2 * error
        own = {"name": name, "estimate": estimate, "std_error": error, "z": 1.0, "p": 0.5, "lower": low, "upper": high}
        if name != "intercept":
            own |= dict(zip((ratio, f"{ratio}_lower", f"{ratio}_upper"), np.exp([estimate, low, high]), strict=True))
        found.append(own)
    return {"coefficients": found, "confidence": 0.95, "family": "binomial"}


def cells(table):
    return [[*column.cells] for column in table.columns]


def test_all_numbers_of_a_column_have_the_same_decimals():
    """The smallest error, .0086, gets two digits: 4 decimals; the narrowest interval of a ratio, .03, three."""
    result = coefficients(("intercept", -3.78348, 0.7), ("age", 0.0447, 0.0086), ("sex", 1.36, 0.228))
    _, estimates, errors, _, _, intervals, ratios = cells(tables.coefficients_table(result))
    assert estimates == ["-3.7835", "0.0447", "1.3600"] and errors == ["0.7000", "0.0086", "0.2280"]
    assert intervals[1] == "0.0275 to 0.0619"
    assert ratios == ["", "1.046 (1.028 to 1.064)", "3.896 (2.469 to 6.147)"]


def test_numbers_of_very_different_sizes_have_four_digits_each():
    result = coefficients(("intercept", 2000.0, 300.0), ("counts", 1e-9, 2e-8))
    assert cells(tables.coefficients_table(result))[1] == ["2000", "1e-09"]
