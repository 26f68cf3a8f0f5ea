"""The levels of categories that a model knows, and what nodes leave out because few of their rows have it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from v6_federated.base.text import shortened
from v6_federated.rules.limits import BY_NAME, DEFAULT
from v6_workbench.reporting.intervals import noisy


@dataclass(frozen=True)
class Levels:
    """The levels of a column.

    Attributes:
        column: the column.
        known: the levels that the model knows, the reference first.
        reference: the level that was left out, with which coefficients compare the others; None if none was.
    """

    column: str
    known: tuple[str, ...]
    reference: str | None = None

    def __str__(self) -> str:
        """List the levels."""
        named = [f"{level} (reference)" if level == self.reference else level for level in self.known]
        return f"{self.column}: {shortened(named)}"


def levels_of(result: Mapping[str, Any]) -> list[Levels]:
    """Read the levels of a result's fitted steps.

    Args:
        result: a result, or what ``export.load`` returns.

    Returns:
        Those of each column that a step ``onehot`` has replaced.
    """
    found = []
    for step in (result.get("data") or {}).get("preprocess") or ():
        fitted = step.get("fitted") if step.get("step") == "onehot" else None
        for column, kept in ((fitted or {}).get("levels") or {}).items():
            dropped = ((fitted or {}).get("dropped") or {}).get(column) or []
            found.append(Levels(column, (*dropped, *kept), dropped[0] if dropped else None))
    return found


def references(result: Mapping[str, Any]) -> dict[str, Levels]:
    """Find the columns of 0 and 1 that compare a level with a reference.

    Args:
        result: a result.

    Returns:
        The levels that each is one of, by its name, such as "smoking=never".
    """
    return {
        f"{levels.column}={level}": levels
        for levels in levels_of(result)
        if levels.reference is not None
        for level in levels.known[1:]
    }


def known_levels(result: Mapping[str, Any]) -> list[str]:
    """Say which levels a model knows, and as what others count.

    Args:
        result: the result.

    Returns:
        One line; none without categories.
    """
    if not (known := levels_of(result)):
        return []
    compared = {levels.reference is not None for levels in known}
    other = {
        (True,): "as the reference",
        (False,): "as none of them",
        (False, True): "as the reference, or as none of them where there is no reference",
    }[tuple(sorted(compared))]
    return [f"levels that the model knows: {'; '.join(map(str, known))}. Any other counts {other}"]


def few_rows(result: Mapping[str, Any]) -> list[str]:
    """Say what nodes leave out if few of their rows have it. The line is the same whatever the rows are.

    Args:
        result: the result. Nodes of this machine have told it their limits; those of a network tell nobody.

    Returns:
        One line; none if no node had such a limit.
    """
    data = result.get("data") or {}
    if noisy(result) or not data.get("features"):
        return []
    groups = (result.get("experiment") or {}).get("limits")
    clauses = []
    if data.get("categories") and (few := _least(groups, "MINIMUM_ROWS_A_CLASS")):
        clauses.append(f"a level that fewer than {few} rows of a hospital have counts there as another one or as none")
    if few := _least(groups, "MINIMUM_ROWS_A_SIDE"):
        clauses.append(
            f"a column in which fewer than {few} rows of a hospital differ from all others is constant there"
        )
    if not clauses:
        return []
    what = "coefficients" if result.get("coefficients") else "the model"
    those = "those" if what == "coefficients" else "that"
    whose = "limits of these nodes" if groups else "limits of careful nodes; a hospital may have chosen others"
    return [f"{what} can differ from {those} of pooled rows: {', and '.join(clauses)} ({whose})"]


def _least(groups: Sequence[Mapping[str, Any]] | None, name: str) -> str:
    """A limit of the nodes, or from which to which; empty if it changes nothing. The careful one if none is known."""
    found = {group["limits"].get(name.lower()) for group in groups or ()} or {BY_NAME[name].value(DEFAULT)}
    numbers = sorted(number for number in found if number and number > 1)
    return " to ".join(map(str, [*dict.fromkeys(numbers[:1] + numbers[-1:])]))
