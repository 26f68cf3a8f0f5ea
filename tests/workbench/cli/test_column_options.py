"""Columns that settings name: an error says which option names them."""

import json

import pandas as pd
import pytest

from v6_federated.base.vantage6_api import DataError
from v6_federated.data.source import Source
from v6_federated.messages.job import DataSpec
from v6_workbench import registry
from v6_workbench.reporting import page, tables


@pytest.fixture
def data(tmp_path):
    rows = {"x": range(60), "w": [1.0] * 60, "e": [0, 1] * 30, "months": range(1, 61), "ill": [0, 1, 1] * 20}
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    return ["--data", tmp_path / "rows.csv", "--nodes", 2]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["cox", "--label", "months", "--set", "event=evt"], "--set event=evt"),
        (["km", "--label", "months", "--set", "event=evt"], "--set event=evt"),
        (["glm", "--set", "offset=of"], "--set offset=of"),
        (["glm", "--set", "weights=we"], "--set weights=we"),
    ],
)
def test_a_wrong_column_is_named_with_its_option_and_those_of_the_table(refused, data, words, option):
    refused(f"{option}: no such column; expected one of 'x', 'w', 'e', 'months', 'ill'", "run", *words, *data)


def test_cox_says_which_column_it_took_as_the_label(call, data):
    status, _, err = call("run", "cox", "--set", "event=ill", *data)
    assert status and "the label is the last column, ill, as none is named" in err and "with --label" in err


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"event": "evt"}, "no column evt in the table; name others with --set event="),
        (
            {"weights": "we", "offset": "of"},
            "no column of, we in the table; name others with --set offset= and",
        ),
        ({"features": ["a"], "label": "b"}, "no column a, b in the table; name others with --features and --label"),
        ({"time": "t", "features": [], "supervised": False}, "no column t in the table; name others with --label"),
    ],
)
def test_a_node_names_the_option_too(spec, says):
    table = pd.DataFrame({"x": [1.0, 2.0], "y": [0, 1]})
    with pytest.raises(DataError, match=says):
        Source(table=table).columns(DataSpec(**spec))


def test_words_in_a_column_of_times_are_to_be_corrected():
    table = pd.DataFrame({"time": ["1", "two"], "x": [0, 1]})
    with pytest.raises(DataError, match="some values in the column.* are not numbers; times, events, offsets and weig"):
        Source(table=table).special("time")


@pytest.mark.parametrize("option", ["--exclude", "--features"])
def test_km_names_the_option_that_was_typed(refused, data, option):
    refused(f"{option} has no effect on km, which looks at times", "run", "km", "--label", "months", option, "x", *data)


def test_settings_and_columns_that_say_nothing_are_left_out(call, data, tmp_path):
    """Of km: it evaluates no model and looks at no features."""
    status, last, _ = call("settings", "km")
    assert status == 0 and "bins" in last["defaults"]
    assert not {"model", "holdout", "evaluate_every", "features", "precision", "target"} & {*last["defaults"]}
    words = ["run", "km", "--label", "months", *data, "--out", tmp_path / "km"]
    call(*words)
    result = json.loads((tmp_path / "km" / "result.json").read_text())
    assert [c.header for c in tables.rounds_table(result).columns] == ["round", "nodes", "rows", "kB up", "kB down"]
    written = page.page({"km": result})
    assert "evaluate every" not in written
    assert "bins" in written


@pytest.mark.parametrize("method", ["km", "pca", "cox", "glm", "fedavg"])
def test_unused_settings_are_settings_of_the_method(method):
    assert registry.unused(method) < {*registry.settings_of(method).model_fields}


@pytest.mark.parametrize("written", ["20,40,60", "[20, 40, 60]"])
def test_times_are_listed_with_commas(call, data, written):
    status, _, err = call("run", "km", "--label", "months", "--set", f"grid={written}", *data)
    assert status == 0, err
