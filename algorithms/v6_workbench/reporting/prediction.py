"""Predictions of a trained model for new rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import pca, preprocessing, times
from v6_federated.data.columns import Features, UnfitColumns
from v6_federated.data.labels import encode_labels
from v6_federated.data.reading import numbers_and_words
from v6_federated.data.source import Source
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_federated.models import metrics
from v6_federated.models.linear import predicted
from v6_federated.models.outcomes import Time
from v6_workbench.errors import some_of
from v6_workbench.reporting import intervals, units
from v6_workbench.reporting.levels import levels_of
from v6_workbench.reporting.trained import parts_of

WITHIN = 1.001  # of half the width of declared bounds, in float32
MOST_ROWS = 5  # named in a line
UNIT = "check the unit of this column"


def predict(result: Mapping[str, Any], source: Source) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Predict for new rows, with the code that nodes use.

    Args:
        result: a result, or what ``export.load`` returns.
        source: the rows.

    Returns:
        A table with a line for each row: the class as ``prediction``, its scores, which are the model's decision values
        (one ``score`` if there are two classes, above 0 for the second; otherwise one for each class), and, except for
        ``svm``, the probability of each class. Of a regression it has the ``prediction`` only, of components ``pc1``
        and so on. A prediction of a time is the log hazard ratio. And, if rows have the label, ``accuracy`` and, for
        two classes, ``auc``, each with its 95% interval over new rows like these; or of numbers ``r2`` (with ``rmse``
        and ``mae`` of models trained step by step), of times ``c_index``.

    Raises:
        SafeError: the rows do not fit the model; the text names columns and no values.
    """
    spec, model, arrays = parts_of(result)
    try:
        unlabelled = DataSpec(
            features=spec.features, categories=spec.categories, supervised=False, missing=spec.missing
        )
        if model is None:
            X = _features(source, unlabelled, spec.preprocess, result["model"]["features"])
            Z = pca.project(X, arrays["mean"], arrays["scale"], arrays["components"])
            return pd.DataFrame(Z, columns=[f"pc{i + 1}" for i in range(Z.shape[1])]), {}
        X = _features(source, unlabelled, spec.preprocess, result["model"]["features"]).astype(np.float32)
        offset = () if spec.offset is None else (_offset(source, spec.offset),)
        scores = model.scores(arrays["weights"], np.ascontiguousarray(X), *offset)
        labelled = _labelled(source, spec)
        if spec.regression:
            table = pd.DataFrame({"prediction": scores[:, 0]})
            return table, _measured_numbers(source, spec, labelled, scores[:, 0], model) if labelled.any() else {}
        assert spec.classes is not None
        guess = predicted(scores)
        names = ["score"] if scores.shape[1] == 1 else [f"score={c}" for c in spec.classes]
        table = pd.DataFrame(scores, columns=names)
        table.insert(0, "prediction", np.asarray(spec.classes, dtype=object)[guess])
        if getattr(model, "kind", "") != "hinge":
            table[[f"probability={c}" for c in spec.classes]] = _probabilities(scores)
        if not labelled.any():
            return table, {}
        try:
            y = encode_labels(_labels(source, spec, labelled), spec.classes)
        except DataError:
            raise SafeError(
                f"some labels are not among the model's {len(spec.classes)} classes; correct them, or remove the "
                + (f"column {spec.label}" if source.table is not None else "labels")
            ) from None
        return table, _measured(y, guess[labelled], scores[labelled], len(spec.classes))
    except UnfitColumns as error:
        rows = _unusable(source, spec)
        raise SafeError(
            f"{error.problem}{f' ({rows})' if rows else ''}; a prediction needs a usable value in each of the model's "
            "columns: correct these rows of --data, or remove them"
        ) from None
    except DataError as error:
        raise SafeError(str(error)) from None


def _unusable(source: Source, spec: DataSpec) -> str:
    """The columns in which cells cannot be used, each with the numbers of their rows; empty if no cell can be named."""
    if source.table is None:
        return ""
    kept = {*preprocessing.filled(spec.preprocess), *((spec.features or ()) if spec.missing else ())}
    found: dict[str, dict[str, np.ndarray]] = {"word": {}, "infinite": {}, "missing": {}}  # in the order of the checks
    for column in [*(spec.features or ()), *filter(None, [spec.offset])]:
        try:
            numbers, words = numbers_and_words(source.table[column])
        except DataError:  # all of it, as of a column of dates
            return ""
        said = np.array([word is not None for word in words], dtype=bool)
        if column not in (spec.categories or ()):
            found["word"][column] = said
            found["infinite"][column] = np.abs(numbers) > np.finfo(np.float32).max
        if column not in kept:
            found["missing"][column] = np.isnan(numbers) & ~said
    wrong = next(({c: rows for c, rows in kind.items() if rows.any()} for kind in found.values() if _any(kind)), {})
    return "; ".join(f"{c}: {_which(rows)}" for c, rows in [*wrong.items()][:MOST_ROWS])


def _which(rows: np.ndarray) -> str:
    """Some of the rows (n,) by their numbers, and how many they are if not all are named."""
    if rows.all():
        return "all rows"
    more = f" ({rows.sum():,} rows)" if rows.sum() > MOST_ROWS else ""
    return f"{_numbered(np.flatnonzero(rows))}{more}"


def _any(kind: Mapping[str, np.ndarray]) -> bool:
    return any(rows.any() for rows in kind.values())


def _measured(y: np.ndarray, guess: np.ndarray, scores: np.ndarray, classes: int) -> dict[str, Any]:
    """Accuracy and, for two classes, AUC of rows with labels (n,), with their 95% intervals."""
    confusion = metrics.confusion_of(y, guess, classes)
    final: dict[str, Any] = {
        "evaluated": len(y),
        "accuracy": float(np.mean(y == guess)),
        "confusion": confusion.tolist(),
    }
    if classes == 2 and confusion.sum(axis=1).all():
        values, band = np.unique(metrics.log_odds(scores)[:, 0], return_inverse=True)
        outside, inside = (np.bincount(band[y == c], minlength=len(values)) for c in (0, 1))
        final |= {"auc": metrics.area(outside, inside), "auc_variance": metrics.delong(outside, inside)}
    names = [name for name in ("accuracy", "auc") if name in final]
    interval = {"accuracy": intervals.accuracy_interval, "auc": intervals.auc_interval}
    found = {name: final[name] for name in names}
    return {**found, **{f"{name}_interval": interval[name]({"final": final}) for name in names}}


def _measured_numbers(
    source: Source, spec: DataSpec, labelled: np.ndarray, predictions: np.ndarray, model: Any
) -> dict[str, float]:
    """How well numbers or times of rows with labels are predicted (n,)."""
    outcome = getattr(model, "outcome", None)
    if isinstance(outcome, Time) or spec.event is not None:
        if spec.event is not None and (source.table is None or spec.event not in source.table.columns):
            return {}
        time, event = times.parted(_labels(source, spec, labelled))
        pairs, concordant = times.concordance(time, event, predictions[labelled])
        return {"c_index": concordant / pairs} if pairs else {}
    y, prediction = _labels(source, spec, labelled), predictions[labelled]
    if outcome is None:
        return _r2(y, prediction)
    return {
        **_r2(y, prediction),
        "rmse": float(np.sqrt(np.mean((y - prediction) ** 2))),
        "mae": float(np.mean(np.abs(y - prediction))),
    }


def _probabilities(scores: np.ndarray) -> np.ndarray:
    """The probability of each class, (n, classes), from the decision values of a model trained by cross-entropy."""
    from scipy.special import softmax

    z = np.asarray(scores, dtype=np.float64)
    return softmax(np.hstack([np.zeros_like(z), z]) if z.shape[1] == 1 else z, axis=1)


def _labelled(source: Source, spec: DataSpec) -> np.ndarray:
    """Which rows have a label, (n,)."""
    if source.table is None:
        assert source.X is not None
        return np.full(len(source.X), source.y is not None)
    if spec.label not in source.table.columns:
        return np.zeros(len(source.table), dtype=bool)
    return source.table[spec.label].notna().to_numpy()


def _labels(source: Source, spec: DataSpec, labelled: np.ndarray) -> np.ndarray:
    if source.table is None:
        return source.labels(spec)
    return Source(table=source.table[labelled]).labels(spec)


def _offset(source: Source, column: str) -> np.ndarray:
    """The offsets of the rows (n, 1), on which the label's mean depends as it does in training."""
    if source.table is None or column not in source.table.columns:
        raise SafeError(f"no column {column} in the table, the offset with which the model was trained; add it")
    return source.special(column).X


def _r2(y: np.ndarray, prediction: np.ndarray) -> dict[str, float]:
    total = float(np.sum((y - y.mean()) ** 2))
    return {"r2": 1 - float(np.sum((y - prediction) ** 2)) / total} if total else {}


def _features(source: Source, spec: DataSpec, steps: Any, expected: int) -> np.ndarray:
    """The rows after the steps, complete, as precise as they are in the file."""
    if source.table is not None and (absent := [c for c in spec.features or [] if c not in source.table.columns]):
        raise SafeError(
            f"no column {', '.join(absent)} in the table, with which the model was trained; the table has "
            f"{some_of(source.table.columns)}"
        )
    features = source.features(spec)
    features.check_finite()  # as nodes do, even if a step would bound the values
    try:
        after = preprocessing.apply(features, steps)
        after.check_complete(missing=spec.missing)
        X = after.X
    except ValueError as error:
        if isinstance(error, SafeError) and source.table is not None:
            raise
        X = None  # arrays have no column names that an error could give
    if X is None or X.shape[1] != expected:
        raise SafeError(
            f"rows of {len(features.names)} columns do not fit the model; expected the columns that it was trained on"
        )
    return X


def warnings_about(result: Mapping[str, Any], source: Source) -> list[str]:
    """Return what a prediction may hide.

    These are rows and columns that are empty, words that the model does not know, and numbers far from those that it
    was trained on, as far as its steps tell.

    Args:
        result: a result, or what ``export.load`` returns.
        source: the rows to predict for.

    Returns:
        A line for each column, one for all empty columns, and one for all empty rows.
    """
    data, found = result["data"], []
    if source.table is None or not data.get("features"):
        return []
    spec = DataSpec(features=data["features"], categories=data.get("categories"), supervised=False)
    features = source.features(spec)
    for levels in levels_of(result):
        unknown = sum(isinstance(word, str) and word not in levels.known for word in features.words[levels.column])
        if unknown:
            found.append(
                f"{levels.column}: {unknown} of {len(features)} rows have a level that the model does not know; they "
                f"count as {levels.reference or 'having no level'}"
            )
    if empty := [c for c in data["features"] if source.table[c].isna().all()]:
        found.append(f"{', '.join(empty)}: no row has a value; the model's steps fill them as they fill missing values")
    if (rows := np.flatnonzero(source.table[data["features"]].isna().all(axis=1))).size:
        found.append(
            f"{_numbered(rows)}: no feature has a value, so the prediction says nothing about this patient; remove "
            "such rows"
        )
    return [*found, *_far(features, data.get("preprocess") or [], [*data["features"]])]


def _far(features: Features, steps: Sequence[Mapping[str, Any]], columns: list[str]) -> list[str]:
    """Columns whose numbers are far from the training rows: outside declared bounds, or in another unit."""
    found: dict[str, str | None] = {}
    raw = dict(zip(features.numeric, features.numbers().T, strict=True))
    for step in steps:
        if step["step"] in ("standardize", "scale"):
            numbers, d = features.numeric, (len(features.numeric),)
            fitted = codec.decode(step["fitted"], {"mean": d, "mean_rest": d, "scale": d})
            say = _in_another_unit if step["step"] == "standardize" else _beyond_bounds
            for name, mean, scale in zip(numbers, codec.whole(fitted, "mean"), fitted["scale"], strict=True):
                if name in raw and name in columns:  # of a step after this one, the mean is 0
                    found[name] = say(name, raw.pop(name), float(mean), float(scale))
        features = preprocessing.apply(features, [step])
    return [line for line in found.values() if line is not None]


def _in_another_unit(name: str, x: np.ndarray, mean: float, deviation: float) -> str | None:
    remark = units.remark(x, mean, deviation)
    if remark is None:
        return None
    how = "larger" if remark.larger else "smaller"
    what = f"about {_two_digits(remark.factor)} times {how}" if remark.factor else f"far {how}"
    return f"{name}: {_of_all(remark.rows)} {what} than those that the model was trained on; {UNIT}"


def _beyond_bounds(name: str, x: np.ndarray, middle: float, half: float) -> str | None:
    below, above = x - middle < -WITHIN * half, x - middle > WITHIN * half
    if not (below | above).any():
        return None
    return (
        f"{name}: {_of_all(below | above)} outside the declared bounds ({below.sum():,} below, {above.sum():,} above); "
        f"{UNIT}"
    )


def _two_digits(factor: float) -> str:
    return f"{float(f'{factor:.2g}'):,.0f}" if factor >= 10 else f"{factor:.2g}"


def _of_all(rows: np.ndarray) -> str:
    """How many rows they are of all (n,), which, and the verb."""
    some = "" if rows.all() else f" ({_numbered(np.flatnonzero(rows))})"
    return f"{rows.sum():,} of {len(rows):,} rows{some} are"


def _numbered(rows: np.ndarray) -> str:
    """Rows by their numbers from 1."""
    shown = ", ".join(str(i + 1) for i in rows[:MOST_ROWS])
    return f"row {shown}" if len(rows) == 1 else f"rows {shown}{', ...' if len(rows) > MOST_ROWS else ''}"
