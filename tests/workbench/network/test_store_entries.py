"""The store's entry of each method: made from the code, up to date, and in a form that the store accepts."""

import json

import pytest

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
    assert {argument["name"] for argument in function["arguments"]} == set(settings.model_fields)
    required = {a["name"] for a in function["arguments"] if not a["has_default_value"]}
    assert required == {name for name, field in settings.model_fields.items() if field.is_required()}
    read = {"string": str, "column": str}
    given = {
        a["name"]: read.get(a["type"], json.loads)(a["default_value"])
        for a in function["arguments"]
        if "default_value" in a
    }
    defaults = {name: field.default for name, field in settings.model_fields.items() if not field.is_required()}
    assert given == {name: default for name, default in defaults.items() if default is not None}
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


def test_a_method_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        store.main(["nothing"])
    assert ended.value.code == 2
    assert "unknown method 'nothing'; expected one of " in capsys.readouterr().err
