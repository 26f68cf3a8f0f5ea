"""Labels: checked, and turned into class indices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.vantage6_api import DataError

MOST_NUMBERS = 20  # different numbers in a column that may be classes without being named so
LARGEST = 1e12  # label of a regression: sums of squares over many rows must fit float32


def checked_labels(y: Array) -> Array:
    """Check labels of classes.

    Args:
        y: labels (n,).

    Returns:
        The labels: texts or numbers.

    Raises:
        DataError: they are missing, of different kinds, or neither words nor finite numbers.
    """
    if y.dtype.kind == "O":
        kinds = {isinstance(value, str) for value in y}
        if kinds == {True}:
            return y.astype(str)
        if len(kinds) > 1 or not all(isinstance(value, bool | int | float) for value in y):
            raise DataError("labels that are neither all words nor all numbers; expected one kind")
        y = np.asarray(y, dtype=np.float64)
    if y.dtype.kind not in "biufU":
        raise DataError("labels that are neither words nor numbers; expected one of them")
    if y.dtype.kind == "f" and not (np.isfinite(y).all() and (np.abs(y) < 2**53).all()):
        raise DataError("labels that are missing, infinite or too large; expected classes")
    return y


def checked_numbers(y: Array) -> Array:
    """Check labels of a regression.

    Args:
        y: labels (n,).

    Returns:
        The labels, float64.

    Raises:
        DataError: they are not finite numbers up to ``LARGEST``.
    """
    kinds = (int, float, np.integer, np.floating)
    plain_numbers = y.dtype.kind == "O" and all(isinstance(v, kinds) and not isinstance(v, bool) for v in y)
    if y.dtype.kind not in "iuf" and not plain_numbers:
        raise DataError("labels that are not numbers; expected numbers to predict")
    try:
        numbers = y.astype(np.float64)
    except OverflowError:  # a whole number of hundreds of digits
        numbers = np.full(len(y), np.inf)
    if not (np.abs(numbers) <= LARGEST).all():
        raise DataError(
            f"labels that are missing, infinite or above {LARGEST:g}; expected numbers, large ones in another unit"
        )
    return numbers


def check_classes_of_numbers(values: Array, label: str) -> None:
    """Refuse a column of a table that holds a quantity, as an age, where classes are expected.

    Nodes would otherwise agree on the ages that enough rows have, and fail on the others in the first round.

    Args:
        values: the different labels (c,).
        label: the column.

    Raises:
        DataError: there are too many different numbers. The text quotes none.
    """
    if values.dtype.kind in "iuf" and len(values) > MOST_NUMBERS:
        raise DataError(
            f"the label {label} has more than {MOST_NUMBERS} different numbers, like a quantity; choose a column of "
            "classes, name all of them with `classes` if these are, or predict it as a number: family=gaussian of glm "
            "(counts: family=poisson), objective=regression of gbdt, loss=squared of other methods"
        )


def encode_labels(y: Array, classes: Sequence[Any]) -> Array:
    """Turn labels into class indices.

    Args:
        y: labels (n,).
        classes: the classes in the order of their indices.

    Returns:
        Indices into ``classes``, int64 (n,).

    Raises:
        DataError: a label is not among the classes. It does not name the label.
    """
    index = {plain(value): i for i, value in enumerate(classes)}
    values, inverse = np.unique(y, return_inverse=True)
    codes = [index.get(plain(value), -1) for value in values]
    if -1 in codes:
        raise DataError(
            f"labels that are not among the {len(classes)} classes of the job. The classes are those in `classes`, or "
            "those that enough rows of some node have (V6_FEDERATED_MINIMUM_ROWS_A_CLASS): name all of them, for "
            "example classes=no,yes,unknown, or choose another label if this one is a number to predict"
        )
    return np.asarray(codes, dtype=np.int64)[inverse]


def plain(value: Any) -> Any:
    """Turn a label into JSON. A whole number is the same label whether it is stored as 1 or 1.0.

    Args:
        value: a label, possibly of numpy's.

    Returns:
        A text, number, or true or false.
    """
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
