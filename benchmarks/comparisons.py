"""A document's numbers beside ours, as data: which are compared, by which rule, and why the others are not."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

LEAST, MOST = 0.8, 1.25  # times the document's count
APART = 0.01  # of an accuracy: the region of practical equivalence of Nilsson et al. 2018


@dataclass(frozen=True)
class Rule:
    """How one kind of number is compared.

    Attributes:
        what: the numbers that are compared.
        near: which of our numbers are near, in words.
        below, above: the verdict on a number that is too small, or too large.
        bounds: the least and the largest of our numbers that are near a number of the document's, given also the
            comparison's own tolerance.
    """

    what: str
    near: str
    below: str
    above: str
    bounds: Callable[[float, float], tuple[float, float]]


def _points(theirs: float, tolerance: float) -> tuple[float, float]:
    return theirs - APART, theirs + APART


RULES = {
    "rounds": Rule(
        "rounds to the target accuracy",
        f"{LEAST:g} to {MOST:g} times the document's",
        "fewer",
        "more",
        lambda theirs, _: (LEAST * theirs, MOST * theirs),
    ),
    "accuracy": Rule("accuracies", "within 1 point of the document's", "lower", "higher", _points),
    "area": Rule(
        "areas under the accuracy by round", f"within {APART:g} of the document's", "lower", "higher", _points
    ),
    "sign": Rule(
        "pairs of methods", "better, equivalent or worse as in the document", "other", "other", lambda s, _: (s, s)
    ),
    "spread": Rule(
        "means of seeds",
        "apart by at most 2 SD sqrt(1/5 + 1/n), SD the document's spread over its 5 seeds and n our seeds",
        "lower",
        "higher",
        lambda theirs, tolerance: (theirs - tolerance, theirs + tolerance),
    ),
}


@dataclass(frozen=True)
class Comparison:
    """One of our runs, or the mean of several seeds, beside what the document prints for it.

    Attributes:
        table: where the document prints it.
        cell: what was run, as a row of the table says it.
        theirs: the document's number; several if it prints more than one for the same setting. A text is compared
            with a text.
        ours: our number; a text for a run that did not come to one; None for a run that was not made.
        rule: a key of ``RULES``.
        seeds: how many runs our number is the mean of.
        chosen: a setting that the document leaves open and that was chosen because it fits; else empty.
        not_counted: why the comparison is not counted; else empty.
        tolerance: for the rule "spread", how far apart two numbers may be.
    """

    table: str
    cell: str
    theirs: tuple[float | str, ...]
    ours: float | str | None
    rule: str
    seeds: int = 1
    chosen: str = ""
    not_counted: str = ""
    tolerance: float = 0.0

    @property
    def counted(self) -> bool:
        """Whether it was run and counts."""
        return self.ours is not None and not self.not_counted

    @property
    def verdict(self) -> str:
        """ "near" if ours is near all that the document prints for the setting, else in which way it is not."""
        rule = RULES[self.rule]
        if self.ours is None:
            return "not run"
        if not self.theirs:
            return "no number"
        for theirs in self.theirs:
            if isinstance(theirs, str):
                if self.ours != theirs:
                    return rule.above
            elif isinstance(self.ours, str):
                return "not reached"
            else:
                least, most = rule.bounds(theirs, self.tolerance)
                if self.ours < least - 1e-9:
                    return rule.below
                if self.ours > most + 1e-9:
                    return rule.above
        return "near"

    def to_json(self) -> dict[str, Any]:
        """Its fields and its verdict."""
        return {**dataclasses.asdict(self), "verdict": self.verdict}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Comparison":
        """From what ``to_json`` gave; the verdict is found again."""
        fields = {field.name: stored[field.name] for field in dataclasses.fields(cls) if field.name in stored}
        return cls(**{**fields, "theirs": tuple(fields["theirs"])})


@dataclass(frozen=True)
class Count:
    """How many comparisons by one rule are near.

    Attributes:
        rule: by which they are compared.
        near, of: how many are near, and how many count.
        others: verdicts on the rest and how often each was given.
        not_run: comparisons that were not run.
        not_counted: reasons why comparisons do not count, and how many each excludes.
        one_seed: how many of ``of`` are a single run.
        chosen: settings that were chosen because they fit, and how many of ``of`` have each.
    """

    rule: Rule
    near: int
    of: int
    others: dict[str, int]
    not_run: int
    not_counted: dict[str, int]
    one_seed: int
    chosen: dict[str, int]


def count(comparisons: Iterable[Comparison]) -> Sequence[Count]:
    """One count a rule, in the order in which the rules first appear."""
    by_rule: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_rule.setdefault(comparison.rule, []).append(comparison)
    return [_count(RULES[name], found) for name, found in by_rule.items()]


def _count(rule: Rule, found: Sequence[Comparison]) -> Count:
    counted = [c for c in found if c.counted]
    verdicts = Counter(c.verdict for c in counted)
    return Count(
        rule,
        verdicts.pop("near", 0),
        len(counted),
        dict(verdicts),
        sum(c.ours is None and not c.not_counted for c in found),
        dict(Counter(c.not_counted for c in found if c.not_counted)),
        sum(c.seeds == 1 for c in counted),
        dict(Counter(c.chosen for c in counted if c.chosen)),
    )
