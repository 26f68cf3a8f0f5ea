"""The ledger for a person: what each job has reserved and used, what all have spent, and what is left."""

import math
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks import study
from v6_federated.noise.ledger import MOST_DELTA, MOST_EPSILON, NAME, Ledger, Reserved, Spent
from v6_federated.rules.limits import PREFIX

DELTA = 1e-5  # if neither an option nor the environment has one
HEAD = 16  # digits of a job's head that are shown
COUNTED = ("steps", "evaluations", "statistics")


def shown(
    folder: Path, epsilon: float | None = None, delta: float | None = None, job: str | None = None
) -> tuple[list[str], dict[str, Any] | None]:
    """Describe the ledger in a hospital's folder."""
    if not (folder / NAME).is_file():
        return [], None
    budget = _chosen("epsilon", epsilon, MOST_EPSILON)
    known = _chosen("delta", delta, MOST_DELTA)
    try:  # it reads the same whatever the budget is
        spent = Ledger(folder, budget or MOST_EPSILON, known or DELTA).spent()
    except NodePermissionException as error:
        reason = str(error).removesuffix(NOTHING_COMPUTED).strip()
        return [f"{folder / NAME}: {reason}"], {"error": reason}
    lines = [*_lines(folder / NAME, spent, budget, known, job)]
    return lines, {
        "epsilon": spent.epsilon,
        "budget": budget,
        "left": None if budget is None else max(budget - spent.epsilon, 0.0),
        "delta": spent.delta,
        "jobs": [asdict(it) for it in spent.jobs if it.job.startswith(job or "")],
        "head": spent.head,
    }


def _lines(file: Path, spent: Spent, budget: float | None, delta: float | None, job: str | None) -> Iterator[str]:
    jobs = f"{len(spent.jobs)} job(s) have reserved"
    if budget is None:
        yield (
            f"{file}: {jobs} epsilon {spent.epsilon:.4g} together, at delta {spent.delta:g}. The budget is not known "
            f"here: give --epsilon and --delta, or set {PREFIX}EPSILON and {PREFIX}DELTA as the node has them"
        )
    else:
        assumed = f"; the node's delta is not known here, --delta gives it: {DELTA:g} is assumed"
        yield (
            f"{file}: {jobs} epsilon {spent.epsilon:.4g} of {budget:g} together, at delta {spent.delta:g}; "
            f"{max(budget - spent.epsilon, 0):.4g} is left{'' if delta else assumed}"
        )
    yield from (_reservation(it) for it in spent.jobs if it.job.startswith(job or ""))
    yield _of_a_person(file.parent)
    yield (
        f"head {spent.head}: note it outside this folder. If the head that you noted last is not among those above "
        "any more, an older folder was put back or the ledger was changed, and more is spent than it says"
    )


def _of_a_person(folder: Path) -> str:
    """Whose loss epsilon is: noise in a study hides persons at as many hospitals as it says."""
    try:
        agreed = study.accepted(folder)
    except NodePermissionException as error:
        return (
            f"at how many hospitals a person may be is not known: {str(error).removesuffix(NOTHING_COMPUTED).strip()}"
        )
    if agreed is None:
        return "epsilon is that of a person with rows at this hospital alone, as there is no study"
    N = agreed.hospitals_a_person
    return (
        f"in jobs of the study, epsilon is that of a person with rows at {N} of its hospitals at most "
        f"(hospitals_a_person), in other jobs at this hospital alone"
    )


def _reservation(it: Reserved) -> str:
    used = [f"{getattr(it, name):,} of {getattr(it.plan, name):,} {name}" for name in COUNTED if getattr(it.plan, name)]
    at = it.at[:16].replace("T", " ")
    return (
        f"  job {it.job}: epsilon {it.epsilon:.4g} alone, reserved {at} UTC; used: {', '.join(used) or 'nothing'}; "
        f"head {it.head[:HEAD]}"
    )


def _chosen(name: str, given: float | None, most: float) -> float | None:
    """A number of the budget: the option's, else the environment's."""
    variable = PREFIX + name.upper()
    said, value = f"--{name}", given
    if value is None and (text := os.environ.get(variable, "").strip()):
        said = variable
        try:
            value = float(text)
        except ValueError:
            value = math.nan
    if value is not None and not 0 < value <= most:
        raise SafeError(f"{said} must be a number above 0, of at most {most:g}; expected the value that the node has")
    return value
