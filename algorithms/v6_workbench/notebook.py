"""Results as data frames and pictures, for notebooks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.data.source import Source
from v6_federated.data.step_columns import names_after
from v6_federated.models import LinearModel
from v6_workbench.reporting import export, prediction
from v6_workbench.reporting.summary import MEASURES, UNITS, Result, measure, spent
from v6_workbench.reporting.trained import parts_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def history(results: Result | Mapping[str, Result]) -> pd.DataFrame:
    """Return the history of a result, or of several, with a row for each round.

    Args:
        results: a result, or results by their names.

    Returns:
        Loss, accuracy, AUC, participants, bytes and so on (see result.json), by ``round``; of several results by
        ``result`` and ``round``.
    """
    if "history" in results:
        return _rounds(results, "history")
    frames = {name: _rounds(result, "history") for name, result in results.items()}
    return pd.concat(frames, names=["result"])


def per_node(result: Result) -> pd.DataFrame:
    """Return what each node did in each round.

    Args:
        result: the result.

    Returns:
        Rows, training loss, distance of its model and bytes by ``round`` and ``node``, its name. Empty if central has
        not seen single nodes' answers.
    """
    names = dict(enumerate(result.get("experiment", {}).get("nodes", []), start=1))
    frame = _rounds(result, "per_node")
    if frame.empty:
        return frame
    node: pd.Series = frame.pop("organization_id").map(lambda k: names.get(k, str(k))).rename("node")
    return frame.set_index(node, append=True)


def _rounds(result: Result, rows: str) -> pd.DataFrame:
    frame = pd.DataFrame(list(result[rows]))
    return frame.set_index("round") if len(frame) else frame


def coefficients(result: Result) -> pd.DataFrame:
    """Return the coefficients of a linear model.

    Those of ``glm`` and ``cox`` have standard errors, p-values and intervals too, which this table leaves out:
    ``pandas.DataFrame(result["coefficients"])`` has them.

    Args:
        result: the result of a linear model: ``logreg``, ``svm``, ``glm`` or ``cox``.

    Returns:
        A row for each feature, and ``intercept`` as the last; a column for each class, or one for the second of two
        classes. They are of the features as they are in the table: ``standardize``, ``scale`` and ``pca`` are undone.
        After ``onehot`` there is a feature for each level.

    Raises:
        SafeError: the model is not linear.
    """
    spec, model, _ = parts_of(result)
    if not isinstance(model, LinearModel):
        name = result["model"]["name"]
        raise SafeError(f"a {name} model has no coefficients; expected a result of model=logreg or model=svm")
    arrays, steps = export.tensors(result), list(spec.preprocess)
    while steps and steps[-1]["step"] in export.AFFINE:
        steps.pop()
    names = names_after(steps, spec.features or [])
    classes = [str(c) for c in spec.classes or []]
    columns = classes if len(arrays["coef"]) > 1 else classes[1:] or [spec.label or "label"]
    index = pd.Index([*(names or [f"x{i}" for i in range(arrays["coef"].shape[1])]), "intercept"], name="feature")
    return pd.DataFrame(np.vstack([arrays["coef"].T, arrays["intercept"]]), index, columns)


def predict(result: Result, rows: Any) -> pd.DataFrame:
    """Predict for new rows, as nodes would.

    Args:
        result: a result.
        rows: a DataFrame with the features' columns, or arrays (n, ...); a label is not needed.

    Returns:
        A row for each row, in their order: the class or number as ``prediction``, scores, and the probability of each
        class, see ``reporting.prediction``.

    Raises:
        SafeError: the rows do not fit the model.
    """
    source = Source(table=rows) if isinstance(rows, pd.DataFrame) else Source(X=np.asarray(rows))
    table, _ = prediction.predict(result, source)
    return table.set_index(rows.index) if isinstance(rows, pd.DataFrame) else table


def plot(
    results: Result | Mapping[str, Result], what: str | None = None, by: str = "rounds", ax: "Axes | None" = None
) -> "Axes":
    """Draw a measure by round. Lines differ in colour and in dashes, as in the pictures of the command line.

    Args:
        results: a result, or results by their names.
        what: a column of the history, for example "loss", "auc" or "train_loss"; None is the accuracy (R squared of
            numbers, C-index of times).
        by: "rounds", "uploads", "bytes", or "seconds" of simulated time.
        ax: where to draw; None is a new figure.

    Returns:
        The axes.

    Raises:
        SafeError: no result has the measure, or there is no such unit.
    """
    from matplotlib import pyplot as plt  # a notebook chooses how figures are shown

    from v6_workbench.reporting.pictures.style import line

    named: dict[str, Result] = {str(results["method"]): results} if "history" in results else dict(results)
    if by not in UNITS:
        raise SafeError(f"by={by!r} is unknown; expected one of {', '.join(UNITS)}")
    what = what or measure(named)
    values = {name: [row.get(what) for row in result["history"]] for name, result in named.items()}
    if all(value is None for own in values.values() for value in own):
        there = sorted({key for result in named.values() for row in result["history"] for key in row})
        raise SafeError(f"no result has {what!r}; expected one of {', '.join(there)}")
    axes = ax if ax is not None else plt.subplots()[1]
    for i, (name, own) in enumerate(values.items(), start=len(axes.lines)):  # after those that are there
        points = [(x, y) for x, y in zip(spent(named[name], by), own, strict=True) if isinstance(y, int | float)]
        line(axes, [x for x, _ in points], [y for _, y in points], name, i, dots=len(points) < 20)
    axes.set(xlabel=UNITS[by], ylabel=MEASURES.get(what, what.replace("_", " ")))
    axes.legend()
    return axes
