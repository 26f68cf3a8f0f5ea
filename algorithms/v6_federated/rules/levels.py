"""Which levels of a column may be counted: neither a few rows, nor all rows but a few, may be told apart."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array


def countable(said: Array, classes: Array, few: Callable[[Array], Any]) -> set[str]:
    """Choose the levels whose rows may be counted, of all that these rows have.

    A level of too few rows is not counted. What all counted levels leave of all rows could be subtracted, so it must
    not be too few rows either: while it is, the smallest level that is counted is left out too. Levels that a request
    does not name matter as well: otherwise a request for each level would tell the rows of none.

    Args:
        said: the level of each row (n,), None if it is missing.
        classes: the class of each row (n,), from 0; zeros if rows have no classes.
        few: says whether (..., c) rows by class are too few, although there are some.
    """
    names: Sequence[str] = sorted({*said.tolist()} - {None})
    place = {name: i for i, name in enumerate(names)}
    level = np.array([place.get(word, len(names)) for word in said], np.intp)
    counts = np.zeros((len(names) + 1, int(classes.max(initial=0)) + 1), np.int64)
    np.add.at(counts, (level, classes), 1)
    out = left_out(counts[:-1], counts[-1], few)  # the last row has those without a level
    return {name for name, without in zip(names, out, strict=True) if not without}


def left_out(rows: Array, others: Array, few: Callable[[Array], Any]) -> Array:
    """Choose the levels that are not counted, by the rule of ``countable``.

    Args:
        rows: rows of each level by class (k, c).
        others: rows without a level by class (c,).
        few: says whether (..., c) rows by class are too few, although there are some.

    Returns:
        Whether each level is left out (k,).
    """
    out: Array = np.asarray(few(rows))
    left = others + rows[out].sum(axis=0)
    for i in np.argsort(rows.sum(axis=1), kind="stable"):
        if not few(left):
            break
        if not out[i]:
            out[i] = True
            left = left + rows[i]
    return out
