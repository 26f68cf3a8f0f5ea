"""The schema: round trips, its digest, and each mistake that an operator can make in the file."""

import hashlib
import json

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from v6_federated.base.errors import SafeError
from v6_federated.rules import schema
from v6_federated.rules.schema import Column, Schema

AGE, SEX = Column("age", "number", 0, 120), Column("sex", "words", levels=("f", "m"))
ONE = Schema((AGE, SEX), "ill", ("no", "yes"), n=300, person="patient", m=5)
TEXT = """{
  "own": {"n": 300, "person": "patient", "m": 5},
  "label": {"name": "ill", "classes": ["no", "yes"]},
  "columns": [
    {"name": "age", "kind": "number", "lower": 0, "upper": 120},
    {"name": "sex", "kind": "words", "levels": ["f", "m"]}
  ]
}
"""

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda text: text.strip() == text)
pairs = st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda p: p[0] != p[1]).map(sorted)


@st.composite
def schemas(draw):
    names = draw(st.lists(words, min_size=3, max_size=8, unique=True))
    label, person, *features = names
    columns = []
    for name in features:
        if draw(st.booleans()):
            columns.append(Column(name, "number", *draw(pairs)))
        else:
            columns.append(Column(name, "words", levels=tuple(draw(st.lists(words, min_size=1, unique=True)))))
    classes, bounds = None, None
    match draw(st.integers(0, 3)):
        case 0:
            bounds = tuple(draw(pairs))
        case 1:
            classes = tuple(draw(st.lists(words, min_size=2, unique=True)))
        case 2:
            classes = tuple(draw(st.lists(st.integers(-(2**53) + 1, 2**53 - 1), min_size=2, unique=True)))
        case 3:
            label = ""
    own = {"person": person, "m": draw(st.integers(1, 99))} if draw(st.booleans()) else {}
    return Schema(tuple(columns), label, classes, bounds, n=draw(st.none() | st.integers(1, 10**9)), **own)


@settings(max_examples=200)
@given(schemas())
def test_a_schema_is_read_as_it_was_written(one):
    again = Schema.parse(one.text())
    assert again == one and again.digest == one.digest
    assert Schema.parse(json.dumps(one.to_json())) == one
    assert one.shared.digest == one.shared_digest and Schema.parse(one.shared.text()) == one.shared


def test_the_text_is_for_a_person_who_can_remove_the_line_about_the_hospital():
    assert ONE.text() == TEXT
    assert Schema.parse("\n".join(line for line in TEXT.splitlines() if '"own"' not in line)) == ONE.shared


def test_blanks_and_the_order_of_keys_do_not_change_the_digest_and_all_else_does():
    found = json.loads(TEXT)
    turned = json.dumps(dict(reversed(found.items())), indent=7)
    assert Schema.parse(turned).digest == Schema.parse(TEXT.replace("120", "120.0")).digest == ONE.digest
    assert ONE.digest == hashlib.sha256(rfc8785.dumps(found)).hexdigest()
    changed = {
        Schema.parse(TEXT.replace(old, new)).digest
        for old, new in [
            ("120", "121"), ('"f", "m"', '"m", "f"'), ('"no", "yes"', '"yes", "no"'), ("age", "Age"), ("300", "310"),
            ('"words", "levels": ["f", "m"]', '"number", "lower": 0, "upper": 1'), ("ill", "sick"), ("patient", "id"),
        ]
    }  # fmt: skip
    assert len(changed) == 8 and ONE.digest not in changed


def test_what_is_a_hospitals_own_does_not_change_what_the_study_carries():
    others = [Schema((AGE, SEX), "ill", ("no", "yes")), Schema((AGE, SEX), "ill", ("no", "yes"), n=20)]
    assert {other.shared_digest for other in others} == {ONE.shared_digest}
    assert "own" not in ONE.shared.to_json() and len({one.digest for one in [ONE, *others]}) == 3


def test_it_answers_what_describe_and_the_steps_ask():
    assert ONE.features == ["age", "sex"] and ONE.kinds == {"words": ["sex"], "mixed": [], "empty": []}
    assert ONE.levels == {"sex": ("f", "m")} and ONE.ranges == {"age": (0.0, 120.0)} and not ONE.regression
    assert Schema((AGE,), "stay", bounds=(0, 90)).regression
    assert Schema((AGE,), "y", (0.0, 1.0)).classes == (0, 1)


def test_a_folder_without_one_has_none(tmp_path):
    assert Schema.of_folder(tmp_path) is None
    (tmp_path / schema.NAME).write_text(TEXT)
    assert Schema.of_folder(tmp_path) == ONE


def test_a_mark_that_windows_writes_is_no_mistake(tmp_path):
    (tmp_path / schema.NAME).write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert Schema.of_folder(tmp_path) == ONE


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"label"', '"lable"', "the file has the unknown key \"lable\"; did you mean label?"),
        ('"upper": 120', '"uper": 120', "column 'age' has the unknown key \"uper\"; did you mean upper?"),
        (', "upper": 120', "", "column 'age' has no upper; add the largest value"),
        ('"lower": 0, ', "", "column 'age' has no lower; add the smallest value"),
        ('"lower": 0', '"lower": 130', "column 'age': lower is 130 and upper 120; lower must be below upper"),
        ('"lower": 0', '"lower": 120', "lower must be below upper"),
        ("120", "NaN", "column 'age': upper is NaN; expected a number"),
        ("120", "Infinity", "column 'age': upper is Infinity; expected a number"),
        ("120", "1e999", "column 'age': upper is Infinity; expected a number"),
        ("120", '"120"', "column 'age': upper is \"120\"; expected a number"),
        ("120", "true", "column 'age': upper is true; expected a number"),
        ("120", "null", "column 'age' has no upper"),
        ("120", "1" + "0" * 30, "whole number of more than 64 bits"),
        ("120", "1" + "0" * 5000, "it is not JSON"),
        ('"number"', '"numbers"', "column 'age': kind is \"numbers\"; expected number or words"),
        ('"kind": "number", ', "", "column 'age' has no kind; add it"),
        ('"number", "lower": 0', '"words", "lower": 0', "column 'age' holds words and has lower or upper"),
        ('"words"', '"number"', "column 'sex' holds numbers and has levels"),
        ('"f", "m"', '"f", "m", "f"', "column 'sex': the level \"f\" occurs twice"),
        ('"f", "m"', "", "column 'sex' has no levels"),
        (', "levels": ["f", "m"]', "", "column 'sex' has no levels"),
        ('["f", "m"]', '"f"', "column 'sex': levels is no list"),
        ('["f", "m"]', "null", "column 'sex': levels is no list"),
        ('"f"', "1", "column 'sex': the level 1 is no text; write it in quotes"),
        ('"f"', '" f"', "column 'sex': the level ' f' begins or ends with a space"),
        ('"f"', '""', "column 'sex': a level is \"\"; expected a text in quotes"),
        ('"sex"', '"age"', 'the column "age" occurs twice'),
        ('"sex"', "7", "the name of a column is 7; expected a text in quotes"),
        ('"name": "sex", ', "", "column 2 of the list has no name"),
        ('"sex"', '"ill"', "the label 'ill' is among the columns"),
        ('"sex"', '"patient"', "the column 'patient' of person is a feature or the label"),
        ('"sex"', '"\\ud800"', "JSON with a text that is no Unicode"),
        ('"no", "yes"', '"no"', "label 'ill' needs at least two classes"),
        ('"no", "yes"', '"no", "yes", "no"', "label 'ill': the class \"no\" occurs twice"),
        ('"no", "yes"', '0, 0.0', "label 'ill': the class 0 occurs twice"),
        ('"no", "yes"', 'true, 1', "label 'ill': the class 1 occurs twice"),
        ('"no", "yes"', '"no", 1', "label 'ill': some classes are texts and others numbers"),
        ('"no", "yes"', "0, NaN", "label 'ill': the class NaN is neither"),
        ('"no", "yes"', "0, null", "label 'ill': the class null is neither"),
        ('["no", "yes"]', '"no"', "label 'ill': classes is no list"),
        ('"classes": ["no", "yes"]', '"lower": 0', "label 'ill' needs either classes, or lower and upper"),
        (', "classes": ["no", "yes"]', "", "label 'ill' needs either classes, or lower and upper"),
        ('["no", "yes"]', '["no", "yes"], "lower": 0', "label 'ill' has classes and bounds"),
        ('"classes": ["no", "yes"]', '"lower": 1, "upper": 0', "label 'ill': lower is 1 and upper 0"),
        ('{"name": "ill", "classes": ["no", "yes"]}', '"ill"', "label is no object"),
        ('"name": "ill", ', "", "label has no name"),
        ("300", "300.5", "n is 300.5; expected a whole number from 1"),
        ("300", "0", "n is 0; expected a whole number from 1"),
        ("300", "true", "n is true; expected"),
        (', "m": 5', "", "person and m belong together"),
        ('"person": "patient", ', "", "person and m belong together"),
        ('"n"', '"rows"', "own has the unknown key \"rows\"; expected n, person, m"),
        ('{"n": 300, "person": "patient", "m": 5}', "3", "own is no object"),
        ('"n": 300', '"n": 300, "n": 310', 'the key "n" occurs twice'),
        ('"upper": 120}', '"upper": 120},,', "line 5, column 65 is not JSON"),
        ('"upper": 120},', '"upper": 120}', "line 6, column 5 is not JSON (Expecting ',' delimiter)"),
    ],
)  # fmt: skip
def test_each_mistake_is_one_line_that_says_where(tmp_path, old, new, says):
    assert TEXT.count(old) >= 1
    (tmp_path / schema.NAME).write_text(TEXT.replace(old, new, 1))
    with pytest.raises(SafeError) as refused:
        Schema.of_folder(tmp_path)
    text = str(refused.value)
    assert text.startswith("schema.json: ") and says in text and len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "line 1, column 1 is not JSON"),
        (b"[]", "the file is no object"),
        (b"{}", "the file has no label and no columns; add it, or start from a draft"),
        (b'{"label": null, "columns": []}', "there is no column"),
        (b'{"label": null, "columns": {}}', "columns is no list"),
        (b'{"label": null, "columns": [1]}', "column 1 of the list is no object"),
        (b"[" * 100_000, "levels"),
        (b"\xff\xfe{\x00", "is not UTF-8"),
    ],
)
def test_what_is_no_schema(tmp_path, content, says):
    (tmp_path / schema.NAME).write_bytes(content)
    with pytest.raises(SafeError, match=says):
        Schema.of_folder(tmp_path)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text(TEXT)
    (tmp_path / schema.NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SafeError, match="link or no regular file"):
        Schema.of_folder(tmp_path)
