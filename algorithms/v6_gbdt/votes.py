"""Prediction by a vote of the trees, weighted by accuracy: Garst 2021, Appendix B."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from v6_gbdt.trees import FEATURE, GAIN, LEAF


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
