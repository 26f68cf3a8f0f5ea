"""Settings: one name, one type and one range each, and errors that say what is accepted."""

import pytest
from helpers import refused

from v6_federated import Common, LocalSGD, Rounds, SafeError
from v6_federated.messages import settings


def server(federation, *, rounds: Rounds, local: LocalSGD = LocalSGD()): ...


ACCEPTED = settings.settings_of(server, Common)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rounds": 0}, "rounds=0 is refused: it should be greater than or equal to 1"),
        ({"rounds": True}, "rounds=True is refused: it must be a number, not true or false"),
        ({"holdout": 1}, "holdout=1 is refused: it should be less than 1"),
        ({"organizations": [1, 1]}, "organizations=[1, 1] is refused: it must list texts or finite numbers, each once"),
        ({"classes": [[0], [1]]}, "classes=[[0], [1]] is refused: it must list texts or finite numbers, each once"),
        ({"min_responses": 1.5}, "min_responses=1.5 is refused: it must be a share up to 1 or a whole number"),
        ({"precision": "float8"}, "precision='float8' is refused: it should be 'float32' or 'float16'"),
        ({"epochs": "many"}, "epochs='many' is refused: it should be a valid integer"),
        ({"epoch": 3}, "unknown setting 'epoch'; expected one of aggregation, "),
        (
            {"classes": ["a"]},
            "classes=['a'] is refused: it should have at least 2 items, not 1; classes: the label's",
        ),
        ({"rounds": None}, "rounds=None is refused"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name_and_value(wrong, says):
    with pytest.raises(SafeError) as error:
        settings.validate(ACCEPTED, {"rounds": 1, **wrong})
    assert str(error.value).startswith(says) and "\n" not in str(error.value), str(error.value)


def test_a_refused_setting_is_explained_with_an_example():
    with pytest.raises(SafeError, match="; lr: eta, the step of the local optimiser, for example lr=0.1$"):
        settings.validate(ACCEPTED, {"rounds": 1, "lr": -1})


def test_a_setting_that_is_missing_is_named():
    with pytest.raises(SafeError, match="^the setting 'rounds' is missing; it has no default$"):
        settings.validate(ACCEPTED, {})


def test_the_settings_that_differ_from_their_defaults_are_known():
    checked = ACCEPTED(rounds=1, lr=0.2, model="logreg", holdout=0.5)
    assert settings.changed(checked, ["model", "lr", "holdout", "epochs"]) == ["lr", "holdout"]


def test_a_setting_without_a_type_is_a_mistake_of_the_developer():
    def untyped(federation, *, rounds: Rounds, speed=1): ...

    with pytest.raises(TypeError, match="untyped: the setting speed has no type; annotate it"):
        settings.settings_of(untyped, Common)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"fraction": 1.5}, "fraction=1.5 is refused"),
        ({"rounds": 0}, "rounds=0 is refused"),
        ({"epoch": 3}, "unknown setting 'epoch'"),
        ({"organizations": [3, 4]}, "[4]: not in the collaboration"),
        ({"evaluators": [3, 5, 8], "organizations": [3]}, "train as well"),
    ],
)
def test_a_job_with_a_wrong_setting_is_refused(hospitals, wrong, says):
    refused(says, hospitals, **wrong)


def test_a_list_is_no_record():
    """In Python 3.10, it counts as a type, of which an old pydantic does not know whether it is a record."""
    assert not settings.is_record(list[int]) and settings.is_record(LocalSGD)
