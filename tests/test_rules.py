"""The command that deletes rules finds them, and deletes them."""

from pathlib import Path

import rules

CODE = b'''"""A module."""

from __future__ import annotations


def checked(rows, policy, kind):
    if rows < 5 or kind not in ("a", "b"):
        raise ValueError(f"{rows < policy.minimum}")
    if rows == 7:
        return -1
    return rows if rows >= policy.minimum_rows else 0
'''


class Policy:
    minimum_rows = 10


def run(code):
    made = {}
    exec(code, made)
    return lambda rows, kind="a": made["checked"](rows, Policy, kind)


def test_clauses_of_refusals_and_comparisons_with_limits_are_rules():
    found = [*rules.rules_of("module.py", CODE)]
    assert {(rule.text, rule.as_) for rule in found} == {
        ("rows < 5", (False,)),
        ('kind not in ("a", "b")', (False,)),
        ("rows >= policy.minimum_rows", (False, True)),
    }
    assert len({rule.name for rule in found}) == 3


def test_a_rule_that_is_deleted_holds_no_more():
    refusal, kinds, threshold = sorted(rules.rules_of("module.py", CODE), key=lambda rule: rule.begin)
    assert run(CODE)(12) == 12 and run(CODE)(8) == 0
    without = run(rules.changed(CODE, [refusal], "__rules__.always(False, "))
    assert without(3) == 0
    assert run(rules.changed(CODE, [kinds], "__rules__.always(False, "))(12, "c") == 12
    assert run(rules.changed(CODE, [threshold], "__rules__.always(True, "))(8) == 8
    assert run(rules.changed(CODE, [threshold], "__rules__.always(False, "))(12) == 0


def test_a_test_that_sees_a_rule_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv(rules.RECORD, str(tmp_path))
    monkeypatch.setattr(rules, "_seen", set())
    code = rules.changed(CODE, [*rules.rules_of("module.py", CODE)], "__rules__.seen(NAME, ")
    assert run(code)(8) == 0
    (file,) = tmp_path.iterdir()
    said = file.read_text(encoding="utf-8")
    assert said.count("false") == 3 and said.count("test_a_test_that_sees_a_rule_is_recorded") == 3


def test_there_are_rules_to_delete():
    for room in rules.ROOMS:
        assert (Path(rules.ROOT) / room).exists()
    path = "algorithms/v6_federated/masks/summands.py"
    assert len([*rules.rules_of(path, (rules.ROOT / path).read_bytes())]) > 3
