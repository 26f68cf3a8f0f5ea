"""Errors of a node hold no value of its rows."""

import pytest
from helpers import a_method, crafted, refused, table

from v6_federated import SafeError


@pytest.mark.parametrize(("column", "type_"), [("label", float), ("label", str), ("x1", str)])
def test_a_value_that_is_refused_is_not_quoted(hospitals, column, type_):
    secret = 987654.25
    spoiled = {**hospitals, 9: table(30).astype({column: object})}
    spoiled[9].loc[5, column] = type_(secret)
    assert str(secret) not in refused("organization 9: ", spoiled, classes=[0, 1])


def quotes_a_row(node):
    raise RuntimeError(f"bad value {node.rows.X[0, 0]}")


def test_the_text_of_an_unexpected_error_is_withheld(hospitals, monkeypatch):
    status, log = crafted(hospitals, package=a_method(monkeypatch, quotes_a_row))
    assert status == "crashed" and "organization 3: RuntimeError in test_withheld.py, line " in log
    assert "its text is withheld" in log and "bad value" not in log


def test_a_developer_can_see_the_text_of_an_unexpected_error(hospitals, monkeypatch):
    debug = {"V6_FEDERATED_DEBUG": "1"}
    _, log = crafted(hospitals, package=a_method(monkeypatch, quotes_a_row), environment=debug)
    assert "bad value" in log


def test_the_text_of_a_safe_error_leaves_the_node(hospitals, monkeypatch):
    def client_update(node):
        raise SafeError("the moon is full")

    status, log = crafted(hospitals, package=a_method(monkeypatch, client_update))
    assert status == "crashed" and log.endswith("organization 3: the moon is full")


def test_training_that_diverges_is_named_with_a_remedy(hospitals):
    wide = {k: rows * 1e6 for k, rows in hospitals.items()}
    text = refused("training has diverged", wide, lr=1e38, rounds=5, model="svm", classes=[0, 1000000])
    assert "organization" in text and "a smaller lr" in text


@pytest.mark.parametrize("value", [[1.0, 2.0], "text", {"a": 1.0}], ids=["list", "text", "dictionary"])
def test_a_method_answers_with_arrays_and_numbers_alone(hospitals, monkeypatch, value):
    """A list or a text could hold a row, and no limit would see it."""

    def client_update(node):
        return {"found": value}

    status, log = crafted(hospitals, package=a_method(monkeypatch, client_update))
    assert status == "crashed"
    assert log.endswith(f"returns found as a {type(value).__name__}; it may return arrays and numbers")
