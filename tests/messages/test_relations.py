"""What settings declare about each other. The conformance checks break each relation of each method once."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field

from v6_federated import Excludes, Needs, SafeError
from v6_federated.messages import relations
from v6_federated.messages.settings import LINE


class Drug(BaseModel):
    unused: ClassVar[Mapping[str, str]] = {"taste": "which nobody takes by mouth", "smell": "which nobody smells"}

    form: Literal["none", "pill", "drip"] = "none"
    dose: Annotated[float, Field(examples=[5]), Needs(form=("pill", "drip"))] = 1.0
    hours: Annotated[int, Needs("dose", "form", when=(1, 2), because="it is divided")] = 24
    names: Annotated[list[str] | None, Excludes("hours", "dose", form="drip", instead="use words in its place")] = None
    word: Annotated[str, Needs("elsewhere"), Excludes(elsewhere=3)] = ""
    label: Annotated[str, Excludes("names", because="it has one")] = "round"
    taste: Annotated[str, Needs(form="pill"), Excludes("form")] = ""
    smell: str = ""
    colour: Annotated[str, Excludes("taste")] = ""


class Many(BaseModel):
    one: Annotated[
        int,
        Needs("two", "three"),
        Excludes("two", when=2),
        Needs("four"),
        Excludes("three"),
        Excludes(two=(3, 4)),
    ] = 0
    two: int = 0
    three: int = 0
    four: int = 0


def errors(**values):
    return [*relations.broken(Drug(**values))]


def test_defaults_break_nothing_though_others_have_values():
    assert errors() == [] and Drug().dose and Drug().hours and Drug().label


def test_of_several_that_are_needed_one_suffices_and_none_is_an_error():
    says = "dose=2.0 needs form=pill or drip; set form=pill, or leave dose out"
    assert errors(dose=2) == [says]
    assert errors(dose=2, form="drip") == errors(dose=2, form="pill") == []
    assert errors(dose=0.0) == [says.replace("2.0", "0.0")]  # no more an answer than 2
    assert errors(hours=2, dose=0, form="pill") == errors(hours=2) == []
    assert "hours=2 needs dose or form: it is divided; set dose=5, or leave hours out" in errors(hours=2, dose=0)


def test_a_relation_of_some_values_says_nothing_of_the_others():
    assert errors(hours=3, dose=0) == errors(dose=0)


def test_what_is_excluded_is_named_with_all_that_is_there():
    [says] = errors(names=["x"], hours=3, form="drip")
    assert says == (
        "names cannot be used with hours and dose and form=drip; use words in its place, or leave names out"
    )
    assert errors(names=["x"], hours=0, dose=0.0, form="pill") == errors(names=[], hours=3) == []


def test_without_a_cure_of_its_own_one_of_the_two_is_to_go():
    found = errors(label="square", names=["x"], hours=0, dose=0.0, form="pill")
    assert found == ["label=square cannot be used with names: it has one; leave one of them out"]


def test_settings_that_a_method_lacks_or_does_not_use_are_neither_needed_nor_excluded():
    assert errors(word="x") == errors(colour="red", taste="sweet") == []
    assert {name for name, _ in relations.declared(Drug)} == {"dose", "hours", "names", "word", "label", "colour"}
    assert relations.words(Drug, "word") == relations.words(Drug, "taste") == relations.words(Drug, "colour") == ""


def test_what_is_excluded_is_said_before_what_is_needed():
    """A cure of the second could be what the first excludes."""
    found = errors(dose=2, names=["x"])
    assert [says.split()[0] for says in found] == ["names", "dose=2.0"]
    with pytest.raises(SafeError) as problem:
        relations.check(Drug(dose=2, names=["x"]), "drug")
    assert str(problem.value) == found[0]


def test_settings_without_effect_are_named_with_the_reason():
    with pytest.raises(SafeError, match="^taste has no effect on drug, which nobody takes by mouth; leave it out$"):
        relations.check(Drug(taste="sweet", smell="of roses", dose=2), "drug")
    with pytest.raises(SafeError, match="^smell has no effect on drug, which nobody smells; leave it out$"):
        relations.check(Drug(smell="of roses"), "drug")
    relations.check(Drug(dose=2, form="pill"), "drug")


def test_a_long_value_is_not_quoted():
    [says] = errors(label="x" * LINE, names=["x"], hours=0, dose=0.0, form="pill")
    assert says.startswith("label cannot be used with names")


def test_words_for_a_list():
    assert relations.words(Drug, "dose") == "needs form=pill/drip"
    assert relations.words(Drug, "dose", "`") == "needs `form=pill/drip`"
    assert relations.words(Drug, "hours") == "if 1/2: needs dose or form"
    assert relations.words(Drug, "names") == "not with hours or dose or form=drip"
    assert relations.words(Drug, "label") == "if not round: not with names"
    assert relations.words(Many, "one") == "if 2: not with two; not with three or two=3/4; needs two or three, and four"
