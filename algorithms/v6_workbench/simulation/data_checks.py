"""Checks of a dataset before anything is trained on it. Errors name columns, never values of a row."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.base.text import shortened
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.columns import UnfitColumns
from v6_federated.data.labels import MOST_NUMBERS
from v6_federated.data.source import Source
from v6_federated.messages.job import DataSpec
from v6_federated.rules.policy import Policy
from v6_workbench import registry
from v6_workbench.errors import no_such, some_of
from v6_workbench.simulation.datasets import Dataset

WITH_NOISE = (
    "a job with noise (clip) needs a schema, which says what fills missing values, and --preprocess onehot for words; "
    "add --study --schema FILE (`v6-federated schema new` drafts one), or leave these columns out"
)


def labels(dataset: Dataset, label: str | None) -> np.ndarray:
    """Return the label of every row, as it is.

    Args:
        dataset: the rows.
        label: the label's column; None is the last.

    Returns:
        The labels (n,).

    Raises:
        SafeError: there is no such column.
    """
    if not isinstance(dataset.rows, pd.DataFrame):
        return dataset.rows[1]
    column = dataset.rows.columns[-1] if label is None else label
    if column not in dataset.rows.columns:
        raise SafeError(f"no label column {label!r}; expected one of {some_of(dataset.rows.columns)}")
    return dataset.rows[column].to_numpy()


def check(
    dataset: Dataset,
    label: str | None,
    features: Sequence[str] | None,
    ignored: str | None = None,
    *,
    steps: bool = False,
    supervised: bool = True,
    regression: bool = False,
    noisy: bool = False,
    missing: bool = False,
    named: bool = False,
    times: bool = False,
    method: str | None = None,
) -> None:
    """Check that a method can be trained on a dataset.

    Args:
        dataset: the rows.
        label: the label's column; None is the last.
        features: the features' columns; None is all others.
        ignored: a column that is not used, since it names the nodes.
        steps: whether preprocessing follows: features may then be words or missing.
        supervised: whether the method uses the label.
        regression: whether the label is a number to predict, and not a class.
        noisy: whether nodes add noise, so that only a schema can fill missing values.
        missing: whether the model takes missing values as they are.
        named: whether the job names the classes.
        times: whether the method looks at the label, a time, and at no features.
        method: the method's name, whose own settings errors name first.

    Raises:
        SafeError: columns do not exist, values are missing, or labels are not classes (numbers of a regression).
    """
    if not isinstance(dataset.rows, pd.DataFrame):
        if label is not None or features is not None:
            raise SafeError("--label and --features name columns, but a .npz has no column names; remove them")
        if supervised:
            _check_labels(_labels_of(dataset.rows, regression), regression, named=named, method=method)
            if not named:
                check_test(dataset, regression)
        return
    table = dataset.rows.drop(columns=ignored) if ignored else dataset.rows
    if ignored and ignored in (*(features or []), label):
        option = "--label" if ignored == label else "--features"
        raise SafeError(f"{option} {ignored}: this column names the nodes (--partition); name another column")
    if absent := [c for c in features or [] if c not in {*map(str, table.columns)}]:
        raise no_such("--features", absent, [*table.columns])
    labels(Dataset(dataset.name, table), label)
    spec = DataSpec(label=label, features=features, supervised=supervised, regression=regression, missing=missing)
    if times:
        spec = DataSpec(time=label, features=[], supervised=False)

    def read(rows: pd.DataFrame) -> np.ndarray | None:
        source = Source(table=rows)
        source.columns(spec)
        if not steps:
            source.rows(spec)
        return source.labels(spec) if supervised else None

    try:
        y = read(table)
    except DataError as error:
        text = f"{error.problem}; {WITH_NOISE}" if noisy and isinstance(error, UnfitColumns) else str(error)
        raise SafeError(_at_node(text, dataset.rows, ignored, read)) from None
    if y is not None:
        _check_labels(y, regression, MOST_NUMBERS, named, method)


def _at_node(
    text: str, rows: pd.DataFrame, names: str | None, read: Callable[[pd.DataFrame], np.ndarray | None]
) -> str:
    """A text about all rows with the names of the nodes whose own rows cannot be read, if that is not so at all nodes.

    If each node's rows can be read, only their labels can be of different kinds.
    """
    if names is None:
        return text
    wrong, kinds, parts = list[str](), dict[str, list[str]](), [*rows.groupby(names, sort=True)]
    for name, part in parts:
        try:
            y = read(part.drop(columns=names).infer_objects())
        except DataError:
            wrong.append(str(name))
        else:
            kinds.setdefault("words" if y is not None and y.dtype.kind == "U" else "numbers", []).append(str(name))
    if wrong:
        return text if len(wrong) == len(parts) else f"{shortened(wrong)}: {text}"
    if len(kinds) < 2:
        return text
    held = (f"{kind} at {shortened(at)}" for kind, at in sorted(kinds.items(), key=lambda item: len(item[1])))
    return f"{text}: they are {' and '.join(held)}"


def check_test(dataset: Dataset, regression: bool) -> None:
    """Check the labels of a test set.

    Args:
        dataset: the rows.
        regression: whether the label is a number to predict.

    Raises:
        SafeError: the test set has a class that no other row has.
    """
    if dataset.test is None or regression:
        return
    assert isinstance(dataset.rows, tuple)
    y, y_test = (_labels_of(pair, regression) for pair in (dataset.rows, dataset.test))
    if not np.isin(y_test, y).all():
        raise SafeError(f"{dataset.name}: y_test holds classes that y_train lacks; expected only classes of y_train")


def _labels_of(rows: tuple[np.ndarray, np.ndarray], regression: bool) -> np.ndarray:
    try:
        return Source(X=rows[0], y=rows[1]).labels(DataSpec(regression=regression))
    except DataError as error:
        raise SafeError(str(error)) from None


def _check_labels(
    y: np.ndarray,
    regression: bool,
    most_numbers: int | None = None,
    named: bool = False,
    method: str | None = None,
) -> None:
    """Check labels; of those from a table, at most ``most_numbers`` different numbers can be classes.

    If the job names the classes, nodes check how many.
    """
    count, most = len(np.unique(y)), Policy.of("trusting").maximum_classes
    if named:
        most = max(most, count)
    elif y.dtype.kind in "iuf" and most_numbers is not None:
        most = min(most, most_numbers)
    if regression:
        if y.dtype.kind not in "iuf" or count < 2:
            raise SafeError("the label is not a number that varies; expected one to predict")
    elif not 2 <= count <= most:
        able = registry.predict_numbers(method) if y.dtype.kind in "iuf" else []
        number = f"; to predict a number, use {' or '.join(able)}" if able else ""
        if able and most == most_numbers and count > most:
            number = f", or all of them named by --set classes=...{number}"
        if able and method == "glm" and y.min() >= 0 and y.max() <= 1:
            number += (
                "; if it is a share of trials, give two rows for each share: label 1 with the number of successes, "
                "label 0 with that of failures, in a column that --set weights=COLUMN names"
            )
        raise SafeError(f"the label has {count} value(s); expected a column with 2 to {most} classes{number}")
