"""Is one method better than another? Scores of repeated cross-validation, and the Bayesian correlated t-test.

The test is that of Corani and Benavoli 2015, as Nilsson et al. 2018 use it; baycomp computes it.
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
    """Make the experiments of a repeated cross-validation. Each repetition deals the rows again, with the next seed.

    Args:
        experiment: the experiment on all rows.
        iterations: how often the cross-validation is repeated.
        folds: folds of each.

    Returns:
        One experiment for each fold, made one at a time, since each holds a copy of the rows.

    Raises:
        SafeError: numbers or rows do not allow a cross-validation.
    """
    for option, number, least in (("test", iterations, 1), ("folds", folds, 2)):
        if number < least:
            raise SafeError(f"--{option} {number} is too few; expected at least {least}")
    if experiment.seed + iterations - 1 > LARGE:
        raise SafeError(
            f"--seed {experiment.seed} is too large for --test {iterations}, as each cross-validation takes the next "
            f"seed; expected at most {LARGE - iterations + 1}"
        )
    rows = len(experiment.dataset) + (0 if experiment.dataset.test is None else len(experiment.dataset.test[1]))
    least = experiment.policy().minimum_rows
    if rows // folds < least:
        most = rows // least
        accepted = f"--folds {most} or fewer" if most >= 2 else f"{2 * least} rows or more"
        raise SafeError(f"{rows} rows are too few for {folds} folds of {least} rows to test on; expected {accepted}")
    return (
        replace(experiment, fold=(fold, folds), partition_seed=experiment.partition_seed + i, seed=experiment.seed + i)
        for i in range(iterations)
        for fold in range(folds)
    )


class Scores:
    """The scores of methods, one for each fold, kept in a file as they come: a test that was stopped goes on from it.

    Args:
        file: the file; None keeps nothing.
        of: for each method all that its scores depend on, as JSON. Scores of other tests stay in the file unused.

    Raises:
        SafeError: the file holds something else.
    """

    def __init__(self, file: Path | None, of: Mapping[str, Mapping[str, Any]]) -> None:
        self._file, self._all = file, _read(file) if file is not None and file.exists() else {}
        self._keys = {
            name: hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest() for name, what in of.items()
        }

    def __getitem__(self, name: str) -> list[float]:
        """Return the known scores of a method, in the order of the folds."""
        return self._all.setdefault(self._keys[name], [])

    def add(self, name: str, score: float) -> None:
        """Keep a method's next score."""
        self[name].append(score)
        if self._file is not None:
            write_whole(self._file, json.dumps(self._all))


def _read(file: Path) -> dict[str, list[float]]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        scores = [score for known in found.values() for score in known]
        if all(isinstance(known, list) for known in found.values()) and all(
            type(score) in (int, float) and -math.inf < score <= 1 for score in scores
        ):
            return dict(found)
    except (ValueError, AttributeError, TypeError, RecursionError, OSError):
        pass
    raise SafeError(
        f"{file} does not hold scores that `v6-federated compare --test` or `tune` wrote; remove it, or change --out"
    )


def check(methods: int, rope: float) -> None:
    """Check the numbers of a test.

    Args:
        methods: number of methods.
        rope: region of practical equivalence, a difference in score.

    Raises:
        SafeError: there are fewer than two methods, or the region is not from 0 to 1.
    """
    if methods < 2:
        raise SafeError(f"{methods} method cannot be compared; expected two or more")
    if not 0 <= rope < 1:
        raise SafeError(f"--rope {rope:g} is out of range; expected a difference from 0 to 1, for example 0.01")


def score(result: Mapping[str, Any], measure: str) -> float:
    """Return the score of a result's last model.

    Args:
        result: the result.
        measure: ``accuracy``, ``auc``, ``r2`` of numbers, ``c_index`` of times; or ``loss``, of which less is better,
            so that the score is its negative.

    Raises:
        SafeError: the last model was not evaluated.
    """
    found = (result["final"] or {}).get(measure)
    if found is None:
        raise SafeError(f"{result['method']} was not evaluated on a fold's rows; use fewer folds, or more rows")
    return -float(found) if measure == "loss" else float(found)


def verdicts(
    scores: Mapping[str, Sequence[float]], iterations: int, rope: float = ROPE
) -> dict[tuple[str, str], Verdict]:
    """Compare each two methods.

    Args:
        scores: the scores of each method, one for each fold, the same folds in the same order.
        iterations: how often the cross-validation was repeated.
        rope: region of practical equivalence, a difference in score.

    Returns:
        A verdict for each pair of methods, in their order.

    Raises:
        SafeError: methods have different numbers of scores.
    """
    check(len(scores), rope)
    lengths = {len(s) for s in scores.values()}
    if len(lengths) > 1 or min(lengths) < 2 or min(lengths) % iterations:
        raise SafeError(
            f"the methods have {sorted(lengths)} scores in {iterations} iteration(s); expected equally many, a "
            "multiple of the iterations"
        )
    found = {}
    for first, second in combinations(scores, 2):
        x, y = np.asarray(scores[first], dtype=float), np.asarray(scores[second], dtype=float)
        posterior = baycomp.CorrelatedTTest(x, y, rope, iterations, names=(first, second))
        chances = [float(p) for p in posterior.probs()]  # that the first is better, (neither,) the second
        better, equal, worse = chances if rope else (chances[0], 0.0, chances[1])
        found[first, second] = Verdict(float(np.mean(x - y)), better, equal, worse, posterior)
    return found
