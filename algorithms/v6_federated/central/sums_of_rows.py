"""Statistics of the nodes' rows where central learns sums over blocks only, see ``data.statistics``.

The sums of a block get the form of one node's answer, so that steps and PCA do with them what they do with nodes. The
size of the numbers is not known, so they are asked for at several scales at once (``summands.ladder``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.central import preparation
from v6_federated.central.answer import Answer
from v6_federated.central.calls import Group
from v6_federated.central.rounds import with_bytes
from v6_federated.data import affine, preprocessing
from v6_federated.data.statistics import Blocks, Known, Statistic
from v6_federated.messages.job import Job
from v6_federated.rules.policy import Policy


@dataclass
class SumsOfRows:
    """Asks for statistics of one job.

    Attributes:
        ask: sends a request to the nodes, and returns the sums of their blocks.
        levels: the levels of each column of words that some node has named.
        bounds: the smallest and the largest number of each column of numbers, if operators have declared them.
        study: whether it is a job of a study. There nodes send exact counts, of which this code rounds, or leaves out,
            what is small over a block, by the limits of the node where central runs.
        known: what statistics have told that others need.
    """

    ask: Callable[[Group], list[Answer]]
    levels: Mapping[str, Sequence[str]]
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    study: bool = False
    known: Known = field(default_factory=Known)

    def of(self, job: Job, organizations: Sequence[int], d: int, statistic: Statistic) -> list[Answer]:
        """Ask for a statistic."""
        earlier: list[Answer] = []

        def ask(part: Statistic, e: int | None) -> list[Answer]:
            answers = self.ask(replace(preparation.question(job, organizations, d, part), exponent=e))
            found = [with_bytes(a, [b for b in earlier if b.organization_id == a.organization_id]) for a in answers]
            earlier.extend(answers)
            return found

        blocks = Blocks(
            job,
            d,
            Policy.of_node(),
            self.study,
            self.levels,
            self.known,
            ask,
            unasked=lambda values: _unasked(organizations, {}, values),
            columns=lambda: _columns(job, d),
            groups=lambda: _groups(job, d),
        )
        return statistic.from_sums(blocks)

    def declared(self, organizations: Sequence[int], columns: Sequence[str]) -> list[Answer]:
        """Say what operators have declared; no node is asked.

        Returns:
            An answer with ``lower`` and ``upper`` (c,), the bounds of the columns.
        """
        if missing := [c for c in columns if c not in self.bounds]:
            raise SafeError(
                f"no schema declares the bounds of the column(s) {', '.join(missing)}, or not the same at all "
                "hospitals; put scale before onehot, use the step standardize, or ask the hospitals for a study with a "
                "schema"
            )
        ends = np.array([self.bounds[c] for c in columns], dtype=np.float64).reshape(-1, 2)
        return _unasked(organizations, {"lower": ends[:, 0], "upper": ends[:, 1]}, {})


def _unasked(organizations: Sequence[int], arrays: dict[str, Array], values: dict[str, Any]) -> list[Answer]:
    return [Answer(organizations[0], 0, arrays, values, 0, 0, "describe", tuple(organizations))]


def _columns(job: Job, d: int) -> Sequence[str]:
    """The names of the columns of numbers after the steps; their numbers where there are no names."""
    layout = preprocessing.layout(job.data.features or [], job.data.categories or [])
    names = preprocessing.apply(layout, job.data.preprocess).numeric if job.data.features else []
    return names if len(names) == d else [*map(str, range(d))]


def _groups(job: Job, d: int) -> tuple[Array, Array, list[str]] | None:
    """What each column is made of, see ``affine.groups_of``; None if it cannot be said."""
    steps, names = job.data.preprocess, job.data.features
    if names is None:  # arrays
        widths = [step["fitted"]["shapes"]["mean"][0] for step in steps if step["step"] == "pca"]
        names = [str(i) for i in range(next(iter(widths), d))]
    found = affine.groups_of(steps, names, job.data.categories or ())
    return found if len(found[0]) == d else None
