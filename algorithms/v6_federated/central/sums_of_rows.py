"""Statistics of the nodes' rows where central learns sums over blocks only.

The sums of a block get the form of one node's answer, so that steps and PCA do with them what they do with nodes. A
mean and squares about it take two requests: squares about zero, in fixed point, would lose what is small beside the
mean. The size of the numbers is not known, so they are asked for at several scales at once (``summing.ladder``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.central import preparation
from v6_federated.central.answer import Answer
from v6_federated.central.calls import Group
from v6_federated.data import aggregates, pca, preprocessing, small_cells
from v6_federated.masks.summands import Part
from v6_federated.messages import codec
from v6_federated.messages.job import Job
from v6_federated.rules.policy import Policy

FEWEST = 3  # hospitals that must have enough rows of a level: the sum would be about one or two of them, others say 0


class SumsOfRows:
    """Asks for statistics of one job.

    Attributes:
        ask: sends a request to the nodes, and returns the sums of their blocks.
        levels: the levels of each column of words that some node has named.
        mode: "masked", or "pinned" in a study. There nodes send exact counts, of which this code rounds, or leaves out,
            what is small over a block, by the limits of the node where central runs.
    """

    def __init__(
        self,
        ask: Callable[[Group], list[Answer]],
        levels: Mapping[str, Sequence[str]],
        bounds: Mapping[str, Sequence[float]] | None = None,
        mode: str = "masked",
    ) -> None:
        """Begin without statistics.

        Args:
            ask: sends a request to the nodes, and returns the sums of their blocks.
            levels: the levels of each column of words.
            bounds: the smallest and the largest number of each column of numbers, if operators have declared them.
            mode: "masked" or "pinned".
        """
        self.ask, self.levels, self.bounds, self.mode = ask, levels, bounds or {}, mode
        self._squares: Array | None = None  # of all columns about their means, over all rows
        self._of_blocks: dict[int, tuple[int, Array, Array]] = {}  # rows, sums, squares about means, by first member
        self._multiplied = 0  # columns of blocks whose products were asked for

    def __call__(
        self, job: Job, organizations: Sequence[int], d: int, name: str, precision: str = "float64", **arguments: Any
    ) -> list[Answer]:
        """Ask for a statistic.

        Args:
            job: what central tells the nodes.
            organizations: ids of those that are asked.
            d: number of columns of numbers.
            name: the statistic, see ``data.aggregates.statistic``.
            precision: type of the numbers in the form of the answers.
            arguments: what else the statistic needs.

        Returns:
            The answers of the blocks, in the form of a node's.

        Raises:
            SafeError: the statistic is not a sum, or its numbers are too large.
        """
        if name == "bounds":
            return self._bounds(organizations, arguments["columns"])

        def ask(exponent: int | None = None, **more: Any) -> list[Answer]:
            group = preparation.statistic(job, organizations, d, name, **{**arguments, **more})
            return self.ask(replace(group, exponent=exponent))

        if name in ("moments", "present", "label"):
            width = d if name != "present" else len(arguments["columns"])
            found = self._moments(name, width, ask)
            if name == "moments" and self.mode == "pinned":
                aggregates.check_squares(_columns(job, d), pca.pooled_moments(found).squares)
            return found
        if name == "below":
            return [self._below(a) for a in ask()]
        if name == "classes":
            return [_with(a, {name: self._enough(_sum(a, name), Policy.of_node().minimum_rows_a_class)}) for a in ask()]
        if name == "levels":
            return self._levels(job, organizations, arguments["columns"], arguments.get("counts", False), ask)
        return self._products(job, name, d, ask, **arguments)

    def _enough(self, counts: Array, least: int) -> Array:
        """Counts over a block, in a study 0 where they are smaller than the least."""
        return np.where(counts < least, 0, counts) if self.mode == "pinned" else counts

    def _below(self, answer: Answer) -> Answer:
        """A block's histogram."""
        below = _sum(answer, "below")
        if self.mode != "pinned":
            return _with(answer, {"below": below}, step=int(_sum(answer, "step")))
        m = Policy.of_node().minimum_rows_a_class
        return _with(answer, {"below": m * np.round(below / m).astype(np.int64)}, step=m)

    def _bounds(self, organizations: Sequence[int], columns: Sequence[str]) -> list[Answer]:
        """What operators have declared; no node is asked."""
        if missing := [c for c in columns if c not in self.bounds]:
            raise SafeError(
                f"no schema declares the bounds of the column(s) {', '.join(missing)}, or not the same at all "
                "hospitals; put scale before onehot, use the step standardize, or ask the hospitals for a study with a "
                "schema"
            )
        ends = np.array([self.bounds[c] for c in columns], dtype=np.float64).reshape(-1, 2)
        arrays = {"lower": ends[:, 0], "upper": ends[:, 1]}
        return [Answer(organizations[0], 0, arrays, {}, 0, 0, "describe", tuple(organizations))]

    def _moments(self, name: str, width: int, ask: Callable[..., list[Answer]]) -> list[Answer]:
        """Count, mean and squares about it of the blocks, by a request about zero and one about the mean."""
        before = ask(center=np.zeros(width))
        about_zero = [_sums(a) for a in before]
        rows = np.sum([count for count, _, _ in about_zero], axis=0)
        mean = np.sum([first for _, first, _ in about_zero], axis=0) / np.maximum(rows, 1)
        found = []
        for a in _as_one(before, ask(center=mean)):
            n, first, second = _sums(a)
            if name == "present":
                n = self._enough(n, Policy.of_node().minimum_rows)
                first, second = np.where(n > 0, first, 0), np.where(n > 0, second, 0)
            own = first / np.maximum(n, 1)
            arrays = {"mean": mean + own, "squares": np.maximum(second - n * np.square(own), 0)}
            if name != "present":
                found.append(_with(a, {**codec.two_parts("mean", arrays["mean"]), "squares": arrays["squares"]}))
                if name == "moments":
                    self._of_blocks[a.organization_id] = a.n, n * arrays["mean"], arrays["squares"]
            else:
                found.append(_with(a, {**arrays, "count": n}))
        if name == "moments":
            self._squares = pca.pooled_moments(found).squares
        return found

    def _levels(
        self,
        job: Job,
        organizations: Sequence[int],
        columns: Sequence[str],
        counts: bool,
        ask: Callable[..., list[Answer]],
    ) -> list[Answer]:
        if unknown := [c for c in columns if c not in self.levels]:
            raise SafeError(
                f"the column(s) {', '.join(unknown)} hold numbers, and nodes that answer under masks count only levels "
                "that they have named, those of words: declare codes of categories in the study's schema as words with "
                "levels, and fill other numbers with mean, median or a constant"
            )
        filled = {c: _filled(job, c) - {*self.levels[c]} for c in columns}  # whether rows have these is not known
        if not counts and not any(filled.values()):  # the nodes have named them all, or their study has
            ones = {c: dict.fromkeys(self.levels[c], 1) for c in columns}
            return [Answer(organizations[0], 0, {}, {"levels": ones}, 0, 0, "describe", tuple(organizations))]
        known = {c: [*self.levels[c], *sorted(filled[c])] for c in columns}
        places = [(c, level) for c, levels in known.items() for level in levels]
        found = []
        answers = ask(known=known, counts=True)
        several: Array = np.ones(len(places), bool)
        if job.counts_hospitals:
            several = np.sum([_sum(a, "contributes") for a in answers], axis=0) >= FEWEST
        for a in answers:
            rows_of: dict[str, dict[str, int]] = {c: {} for c in columns}
            counted = self._enough(np.where(several, _sum(a, "counts"), 0), Policy.of_node().minimum_rows_a_class)
            for (c, level), rows in zip(places, counted.tolist(), strict=True):
                if rows or (not counts and level not in filled[c]):
                    rows_of[c][level] = rows if counts else 1
            found.append(_with(a, {}, levels=rows_of))
        return found

    def _products(
        self, job: Job, name: str, d: int, ask: Callable[..., list[Answer]], **arguments: Any
    ) -> list[Answer]:
        """A, or A times a block; their largest numbers follow from the squares that are known."""
        if self._squares is None:
            raise SafeError(f"{name} is asked for before the moments of the columns; ask for moments first")
        scaled = self._squares / np.square(arguments["scale"])  # the diagonal of A
        most = float(scaled.max(initial=0.0))
        if name == "product":
            Q = pca.read_block(d, arguments.get("draw"), arguments.get("block"))
            most = float(np.sqrt(most * scaled.sum()) * np.linalg.norm(Q, axis=0).max(initial=0.0))
            self._multiplied += Q.shape[1]
        e = int(np.clip(np.ceil(np.log2(most)) + 1 if most > 0 else -64, -64, 64))
        least = Policy.of_node().minimum_rows_a_side
        levels = self._levels_of(job, d) if least else None
        if levels is None:
            return [_with(a, {name: _sum(a, name, e)}) for a in ask(e)]
        if name == "product":
            if 2 * self._multiplied > d and any(self._several(a, *levels) for a in self._of_blocks):
                raise SafeError(
                    "so many products with columns of levels would tell how many rows have two of them, also of single "
                    "patients; use solver=exact, from whose result small numbers are left out, or fewer components"
                )
            return [_with(a, {name: _sum(a, name, e)}) for a in ask(e)]
        mean, scale = arguments["mean"], arguments["scale"]
        answers = ask(e)
        return [_with(a, {name: self._without_small(_sum(a, name, e), a, mean, scale, levels, least)}) for a in answers]

    def _levels_of(self, job: Job, d: int) -> tuple[Array, Array, list[str]] | None:
        """What each column is made of, see ``small_cells.groups_of``; None if it cannot be said."""
        steps, names = job.data.preprocess, job.data.features
        if names is None:  # arrays
            widths = [step["fitted"]["shapes"]["mean"][0] for step in steps if step["step"] == "pca"]
            names = [str(i) for i in range(next(iter(widths), d))]
        found = small_cells.groups_of(steps, names, job.data.categories or ())
        return found if len(found[0]) == d else None

    def _several(self, block: int, a: Array, s: Array, own: Sequence[str]) -> bool:
        """Whether a block has two columns of levels, or of 0 and 1, of which a table could be made."""
        n, sums, squares = self._of_blocks[block]
        _, found = small_cells.zeros_and_ones(n, sums, squares, a, s)
        return len({name for name, is_binary in zip(own, found, strict=True) if is_binary}) > 1

    def _without_small(
        self,
        triangle: Array,
        answer: Answer,
        mean: Array,
        scale: Array,
        levels: tuple[Array, Array, list[str]],
        least: int,
    ) -> Array:
        """A block's A with no small cell in a table of two columns of levels."""
        if answer.organization_id not in self._of_blocks:
            raise SafeError("covariance is asked for before the moments of the columns; ask for moments first")
        n, sums, squares = self._of_blocks[answer.organization_id]
        d = len(mean)
        at = np.triu_indices(d)
        A = np.zeros((d, d))
        A[at] = triangle
        products = A * np.outer(scale, scale) + np.outer(sums, mean) + np.outer(mean, sums) - n * np.outer(mean, mean)
        change = small_cells.changed(products, n, sums, squares, *levels, least)
        found: Array = (A + change / np.outer(scale, scale))[at]
        return found


def _columns(job: Job, d: int) -> Sequence[str]:
    """The names of the columns of numbers after the steps; their numbers where there are no names."""
    layout = preprocessing.layout(job.data.features or [], job.data.categories or [])
    names = preprocessing.apply(layout, job.data.preprocess).numeric if job.data.features else []
    return names if len(names) == d else [*map(str, range(d))]


def _filled(job: Job, column: str) -> set[str]:
    """The levels that steps so far have put in the place of missing values."""
    values = [step["fitted"].get("values", {}) for step in job.data.preprocess if step["step"] == "impute"]
    return {value[column] for value in values if isinstance(value.get(column), str)}


def _sum(answer: Answer, name: str, e: int | None = None) -> Array:
    found: Array = answer.values["sums"][Part(name, "one", 64, (), e).key]
    return found


def _sums(answer: Answer) -> tuple[Array, Array, Array]:
    """Number of values, sum of their differences from the center, and sum of the squares of these."""
    return _sum(answer, "count"), _sum(answer, "first"), _sum(answer, "second")


def _as_one(before: Sequence[Answer], answers: Sequence[Answer]) -> list[Answer]:
    """The answers to a second request, with the bytes of both."""
    first = {a.organization_id: a for a in before}
    found = []
    for a in answers:
        up, down = (b.bytes_up, b.bytes_down) if (b := first.get(a.organization_id)) else (0, 0)
        found.append(replace(a, bytes_up=a.bytes_up + up, bytes_down=a.bytes_down + down))
    return found


def _with(answer: Answer, arrays: dict[str, Array], **values: Any) -> Answer:
    return replace(answer, arrays=arrays, values=values)
