"""Whether one method is better than another: scores of repeated cross-validation, and the Bayesian correlated t-test.

Corani and Benavoli 2015, as Nilsson et al. 2018 use it; computed by baycomp.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import baycomp
import numpy as np

from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_federated.messages.settings import LARGE
from v6_workbench.reporting.summary import Verdict
from v6_workbench.simulation.experiments import Experiment

FOLDS = 5
ROPE = 0.01  # region of practical equivalence


def experiments_of(experiment: Experiment, iterations: int, folds: int = FOLDS) -> Iterator[Experiment]:
    """The experiment on every fold of ``iterations`` cross-validations, each of another deal of the rows.

    One at a time, since each holds a copy of the rows. Raises SafeError, at once, for numbers that make none.
    """
    for name, number, least in (("iterations", iterations, 1), ("folds", folds, 2)):
        if number < least:
            raise SafeError(f"{name}={number} is refused; expected at least {least}")
    if experiment.seed + iterations - 1 > LARGE:  # each cross-validation has the next seed
        raise SafeError(
            f"seed={experiment.seed} is refused with iterations={iterations}; expected at most {LARGE - iterations + 1}"
        )
    rows = len(experiment.dataset) + (0 if experiment.dataset.test is None else len(experiment.dataset.test[1]))
    least = experiment.policy.minimum_rows
    if rows // folds < least:
        most = rows // least
        raise SafeError(
            f"{folds} folds of {rows} rows; expected "
            + (f"fewer folds, at most {most}: each needs {least} rows" if most >= 2 else f"{2 * least} rows or more")
            + " to test on"
        )
    return (
        replace(experiment, fold=(fold, folds), partition_seed=experiment.partition_seed + i, seed=experiment.seed + i)
        for i in range(iterations)
        for fold in range(folds)
    )


class Scores:
    """The scores of methods, one a fold, kept in a file as they come: a test that was stopped goes on there."""

    def __init__(self, file: Path | None, of: Mapping[str, Mapping[str, Any]]) -> None:
        """``of``: by method all that its scores depend on, as JSON: those of other tests stay in the file, and are not
        taken. Raises SafeError for a file of something else."""
        self._file, self._all = file, _read(file) if file is not None and file.exists() else {}
        self._keys = {
            name: hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest() for name, what in of.items()
        }

    def __getitem__(self, name: str) -> list[float]:
        """Those of a method that are known, in the order of the folds."""
        return self._all.setdefault(self._keys[name], [])

    def add(self, name: str, score: float) -> None:
        """Keep the next."""
        self[name].append(score)
        if self._file is not None:
            write_whole(self._file, json.dumps(self._all))


def _read(file: Path) -> dict[str, list[float]]:
    try:
        found = json.loads(file.read_text())
        scores = [score for known in found.values() for score in known]
        if all(isinstance(known, list) for known in found.values()) and all(
            type(score) in (int, float) and -math.inf < score <= 1 for score in scores
        ):
            return dict(found)
    except (ValueError, AttributeError, TypeError, RecursionError, OSError):
        pass
    raise SafeError(f"{file} is not the scores of a test; expected what `compare --test` wrote; remove it") from None


def check(methods: int, rope: float) -> None:
    """Raise SafeError where so many methods and such a region of practical equivalence make no test."""
    if methods < 2:
        raise SafeError(f"{methods} method(s) cannot be compared; expected two or more")
    if not 0 <= rope < 1:
        raise SafeError(f"rope={rope:g} is refused; expected a difference in score from 0 to 1, for example 0.01")


def score(result: Mapping[str, Any], measure: str) -> float:
    """The last model's ``accuracy``, or ``r2`` of a regression. Raises SafeError where it has none."""
    found = (result["final"] or {}).get(measure)
    if found is None:
        raise SafeError(f"{result['method']} has no score on a fold's rows; expected an evaluation at the end")
    return float(found)


def verdicts(
    scores: Mapping[str, Sequence[float]], iterations: int, rope: float = ROPE
) -> dict[tuple[str, str], Verdict]:
    """Of each two methods, in their order. ``scores``: of each method one a fold, the same folds in the same order.

    Raises SafeError for scores that do not fit.
    """
    check(len(scores), rope)
    lengths = {len(s) for s in scores.values()}
    if len(lengths) > 1 or min(lengths) < 2 or min(lengths) % iterations:
        raise SafeError(
            f"scores of lengths {sorted(lengths)} in {iterations} iteration(s) cannot be compared; expected all on the "
            "same folds"
        )
    found = {}
    for first, second in combinations(scores, 2):
        x, y = np.asarray(scores[first], dtype=float), np.asarray(scores[second], dtype=float)
        posterior = baycomp.CorrelatedTTest(x, y, rope, iterations, names=(first, second))
        chances = [float(p) for p in posterior.probs()]  # that the first is better, (neither,) the second
        better, equal, worse = chances if rope else (chances[0], 0.0, chances[1])
        found[first, second] = Verdict(float(np.mean(x - y)), better, equal, worse, posterior)
    return found
