"""Prediction by a vote of the trees, weighted by accuracy: Garst 2021, Appendix B."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from v6_federated import SafeError
from v6_gbdt.trees import FEATURE, GAIN, LEAF


def check_votes(settings: Any) -> None:
    """Check that there will be an accuracy for each round's trees.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: there will be none.
    """
    if settings.mode != "cyclic" or settings.objective == "regression":
        raise SafeError("prediction=vote is for classes and mode=cyclic, whose document has it; leave it out")
    if not (settings.holdout or settings.evaluators) or settings.evaluate_every != 1:
        raise SafeError(
            "prediction=vote weights trees by accuracy on held-out rows; expected a holdout above 0 or evaluators, and "
            "evaluate_every=1"
        )


def weighted(W_g: np.ndarray, ends: Sequence[int], history: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Give the trees of each round the accuracy after it as the weight of their vote.

    Args:
        W_g: the ensemble (m, 3).
        ends: rows of the ensemble after each round, from round 0.
        history: a row for each round before the last one at least.

    Returns:
        The ensemble. Trees whose accuracy is not known, as the last round's, have that of the round before; before
        there is any, 1.
    """
    known, voting = 1.0, W_g.copy()
    for r, (begin, end) in enumerate(pairwise(ends)):
        if r < len(history) and history[r]["accuracy"]:
            known = float(history[r]["accuracy"])
        trees = voting[begin:end]  # a view
        trees[trees[:, FEATURE] == LEAF, GAIN] = known
    return voting
