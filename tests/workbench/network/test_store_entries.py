"""The store's entry of each method: made from the code, up to date, and in a form that the store accepts."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, train

from v6_workbench import registry
from v6_workbench.network import store
from v6_workbench.registry import central_of, names, settings_of


def values(entry):
    """Every value in an entry, however deep."""
    for value in entry.values() if isinstance(entry, dict) else entry:
        yield value
        if isinstance(value, dict | list):
            yield from values(value)


@pytest.mark.parametrize("method", names())
def test_the_file_is_what_the_code_says(method):
    written = store.path(method).read_text() if store.path(method).exists() else ""
    assert written == store.text(method), f"run: python -m v6_workbench.network.store {method}"


@pytest.mark.parametrize("method", names())
def test_defaults_equal_the_code(method):
    settings = settings_of(method)
    [function] = store.entry(method)["functions"]
    # those that have no effect on the method are not asked for
    assert {argument["name"] for argument in function["arguments"]} == set(settings.model_fields) - registry.unused(
        method
    )
    required = {a["name"] for a in function["arguments"] if not a["has_default_value"]}
    assert required == {name for name, field in settings.model_fields.items() if field.is_required()}
    read = {"string": str, "column": str}
    given = {
        a["name"]: read.get(a["type"], json.loads)(a["default_value"])
        for a in function["arguments"]
        if "default_value" in a
    }
    defaults = {name: field.default for name, field in settings.model_fields.items() if not field.is_required()}
    asked = {argument["name"] for argument in function["arguments"]}
    assert given == {name: default for name, default in defaults.items() if default is not None and name in asked}
    assert settings(**dict.fromkeys(required, 1), **given)


@pytest.mark.parametrize("method", names())
def test_nothing_is_null_and_defaults_are_text(method):
    entry = store.entry(method)
    assert None not in values(entry)
    arguments = entry["functions"][0]["arguments"]
    assert all(isinstance(a.get("default_value", ""), str) for a in arguments)
    assert all(a["description"] != a["name"] for a in arguments), "every setting is explained"


@pytest.mark.parametrize("method", names())
def test_secure_aggregation_is_offered_where_it_is_possible(method):
    entry = store.entry(method)
    [function] = entry["functions"]
    [aggregation] = [a for a in function["arguments"] if a["name"] == "aggregation"]
    # of a method that needs single answers with some settings only, the settings' descriptions say so
    reason, not_possible = central_of(method).single_answers, "Secure aggregation is not possible"
    assert aggregation["allowed_values"] == ["auto", "plain", *([] if reason else ["masked", "pinned"])]
    assert aggregation["default_value"] == "auto"
    for text in (entry["description"], function["description"]):
        assert (f"{not_possible}: {reason}. The nodes' operators must set" in text) == bool(reason)
        assert (not_possible in text) == bool(reason)
    assert not_possible not in function["display_name"]


def test_types():
    arguments = {a["name"]: a for a in store.entry(names()[0])["functions"][0]["arguments"]}
    expected = {
        "rounds": "integer",
        "model": "string",
        "label": "column",
        "features": "column_list",
        "organizations": "organization_list",
        "evaluators": "organization_list",
        "classes": "json",
        "preprocess": "string_list",
        "holdout": "float",
        "precision": "string",
        "target": "float",
    }
    assert {name: arguments[name]["type"] for name in expected} == expected
    assert arguments["precision"]["allowed_values"] == ["float32", "float16"]
    assert not arguments["rounds"]["has_default_value"]


@pytest.mark.parametrize("method", names())
def test_every_setting_that_names_columns_lets_one_pick_them(method):
    kinds = {a["name"]: a["type"] for a in store.entry(method)["functions"][0]["arguments"]}
    columns = {name for name, kind in kinds.items() if kind in ("column", "column_list")}
    assert columns == {*kinds} & {"label", "event", "offset", "weights", "subgroup", "features", "exclude"}


@pytest.mark.parametrize("method", names())
def test_a_form_asks_label_and_columns_first_and_privacy_last(method):
    arguments = [a["name"] for a in store.entry(method)["functions"][0]["arguments"]]
    first = [name for name in ("label", "event", "features", "exclude") if name in arguments]
    assert arguments[: len(first)] == first
    last = [a for a in arguments if a in ("clip", "noise", "epsilon", "aggregation", "precision")]
    assert arguments[-1] == last[-1] and arguments.index("aggregation") > arguments.index("seed")
    if central_of(method).private:
        assert arguments.index("clip") > arguments.index("server_timeout")


@pytest.mark.parametrize("method", names())
def test_conditions_name_values_that_a_setting_can_have(method):
    arguments = {a["name"]: a for a in store.entry(method)["functions"][0]["arguments"]}
    for argument in arguments.values():
        if (on := argument.get("conditional_on")) is not None:
            assert argument["has_default_value"]
            assert argument["conditional_value"] in arguments[on].get("allowed_values", ["0"])
    if "loss" in arguments and "event" in arguments:
        assert (arguments["event"]["conditional_on"], arguments["event"]["conditional_value"]) == ("loss", "cox")


@pytest.fixture(scope="module")
def hospitals():
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({"age": rng.normal(60, 9, 240).round(), "dose": rng.normal(size=240).round(3)})
    rows["days"] = rng.exponential(100, 240).round(1) + 1
    rows["died"] = rng.integers(0, 2, 240)
    rows["arm"] = np.where(rng.random(240) < 0.5, "new", "old")
    rows["ill"] = np.where(rows["dose"] + rng.normal(size=240) > 0, "yes", "no")
    return {k: rows.iloc[k::3].reset_index(drop=True) for k in (0, 1, 2)}


OF_CLASSES = {"label": "ill", "features": ["age", "dose"], "preprocess": ["standardize"]}
OF_TIMES = {"label": "days", "event": "died"}
JOBS = {
    "fedavg": {**OF_CLASSES, "rounds": 2},
    "fedavg of numbers": {
        "label": "days",
        "features": ["age"],
        "loss": "squared",
        "preprocess": ["standardize"],
        "rounds": 2,
    },
    "gbdt": {**OF_CLASSES, "rounds": 2},
    "glm": {"label": "ill", "features": ["age", "dose"]},
    "cox": {**OF_TIMES, "features": ["age", "dose"]},
    "km": OF_TIMES,
    "km of groups": {**OF_TIMES, "subgroup": "arm"},
    "pca": {"features": ["age", "dose"], "components": 1},
}


@pytest.mark.parametrize("job", JOBS)
def test_the_user_interface_finds_what_it_shows(job, hospitals):
    """As vantage6's interface does: keys one after the other; a table is a list of rows, a line columns by index."""
    method = job.partition(" ")[0]
    result = json.loads(json.dumps(train(f"v6_{method}", hospitals, environment=OPEN, **JOBS[job])))
    shown = store.entry(method)["functions"][0]["ui_visualizations"]
    for visualization in shown:
        schema, found = visualization["schema"], result
        for key in schema["location"]:
            found = found[int(key)] if isinstance(found, list) else found[key]
        if visualization["type"] == "table":
            assert isinstance(found, list) and found, visualization["name"]
            assert {*schema.get("columns", found[0])} <= {*found[0]}, visualization["name"]
        else:
            x, y = found[schema["x"]], found[schema["y"]]
            assert [*x] == [*y] == [str(i) for i in range(len(x))] and len(x) > 1
            assert all(isinstance(value, float | int) for value in (*x.values(), *y.values()))
    names = [visualization["name"] for visualization in shown]
    evaluated = any(
        row[name] is not None for row in result["history"] for name in ("accuracy", "r2", "c_index") if name in row
    )
    assert ("Quality by round" in names) == evaluated == ("quality" in result.get("charts", {}))
    assert ("Coefficients" in names) == ("coefficients" in result)
    assert ("Survival" in names) == ("curves_of_survival" in result)


def test_a_method_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        store.main(["nothing"])
    assert ended.value.code == 2
    assert "unknown method 'nothing'; expected one of " in capsys.readouterr().err
