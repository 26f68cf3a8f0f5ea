"""What commands say beside their tables: which rows there are, and, on standard error, what a result may hide."""

import math
import sys
from collections.abc import Mapping
from typing import Any

from v6_federated.data.source import Source
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_federated.privacy.policy import Policy

NOISE = 1.05  # by how many times a loss on few rows may differ from another without a cause
WILD = 10  # by how many times a loss beyond that of guessing is one of steps that are too long
FEW = 20  # rows of which a column may well have another value in each


def rows(experiment: Any, method: str, values: Mapping[str, Any]) -> None:
    """One line: the nodes by their ids and names with their rows, the label, its classes with their rows, and the
    features; more on standard error where names of classes, nodes or levels differ in spaces or capitals only, and
    where a column is empty at a node."""
    from v6_workbench import registry

    named = experiment.named()
    nodes = [
        f"{'' if name == str(k) else f'{k}: '}{name} ({len(rows if hasattr(rows, 'columns') else rows[1])})"
        for k, (name, rows) in enumerate(named.items(), start=1)
    ]
    told = [f"{len(nodes)} nodes: {_some(nodes)}"]
    names = {"node": list(named)}
    if registry.supervised(method):
        label = experiment.columns()[1]
        whose = f"label {label}{'' if experiment.label else ' (the last column)'}" if label else ""
        if values.get("objective") != "regression":
            counts = experiment.class_counts()
            classes = _some([f"{name} ({count})" for name, count in counts.items()])
            whose = f"{whose}{', ' if whose else ''}{len(counts)} classes: {classes}"
            names["class"] = [str(name) for name in counts]
        told += [whose] if whose else []
    if features := _features(experiment, values):
        told.append(f"{len(features)} features: {_some(features, 8)}")
        names |= {f"level of {column}": levels for column, levels in _levels(experiment, features).items()}
    print("; ".join(told), flush=True)
    for node, rows in named.items():
        if empty := [c for c in features if rows[c].isna().all()]:
            _say(f"{', '.join(empty)}: no value at {node}; a step impute fills such a column from the other nodes")
    for node, columns in experiment.not_evaluated(features).items():
        _say(
            f"{', '.join(columns)}: empty in the rows held out of {node}, of which fewer than "
            f"{experiment.policy.minimum_rows} have a value; a larger --holdout helps"
        )
    for what, found in names.items():
        alike: dict[str, list[str]] = {}
        for name in found:
            alike.setdefault(" ".join(name.casefold().split()), []).append(name)
        for same in alike.values():
            if len(same) > 1:
                _say(f"{', '.join(map(repr, same))} differ in spaces or capitals only; each is a {what} of its own")


def _features(experiment: Any, values: Mapping[str, Any]) -> list[str]:
    """The names of the features of a table; on standard error those that may be none."""
    table, (there, _) = experiment.dataset.rows, experiment.columns()
    if not there:
        return []
    features = [c for c in values.get("features") or experiment.features or there if c in table]
    kinds = "iuO"  # measurements, which are most of them unique, are floats
    large = [rows for rows in experiment.named().values() if len(rows) >= FEW]
    unique = [
        c for c in features if table[c].dtype.kind in kinds and large and all(rows[c].is_unique for rows in large)
    ]  # each hospital may count from 1
    if unique:
        names = ",".join(unique)
        _say(
            f"{names}: another value in every row of a node, as identifiers and numbers of rows have; "
            f"--exclude {names} leaves such columns out"
        )
    return features


def _levels(experiment: Any, features: list[str]) -> dict[str, list[str]]:
    """The words in columns of words, where they may be categories."""
    table = experiment.dataset.rows
    said = {c: {str(v).strip() for v in table[c].dropna().unique()} for c in features if table[c].dtype.kind == "O"}
    return {c: sorted(words) for c, words in said.items() if len(words) <= Policy.maximum_classes}


def unlike(model: Mapping[str, Any], rows: Source) -> None:
    """On standard error columns of rows to predict for whose words a model does not know, or which are empty."""
    data = model["data"]
    if rows.table is None or not data.get("features"):
        return
    found = rows.features(DataSpec(features=data["features"], categories=data.get("categories"), supervised=False))
    levels = [step["fitted"]["levels"] for step in data.get("preprocess") or [] if step["step"] == "onehot"]
    for column, known in [pair for step in levels for pair in step.items()]:
        other = sum(isinstance(word, str) and word not in known for word in found.words[column])
        if other:
            _say(f"{column}: {other} of {len(found)} rows have a level that the model does not know, and count as none")
    if empty := [c for c in data["features"] if rows.table[c].isna().all()]:
        _say(f"{', '.join(empty)}: no value in any row; filled as the model's steps fill what is missing")


def growing(result: Mapping[str, Any]) -> None:
    """One line where the loss on the rows held out has grown."""
    losses = [row["loss"] for row in result["history"] if row["loss"] is not None]
    classes = result["data"].get("classes")
    guessing = math.log(len(classes)) if classes and "r2" not in result["history"][-1] else math.inf
    if not losses or (losses[-1] <= NOISE * losses[0] and losses[-1] <= WILD * guessing):
        return
    trained = [row["train_loss"] for row in result["history"] if row["train_loss"] is not None]
    steps = {step["step"] for step in result["data"]["preprocess"]}
    if trained and trained[-1] < trained[0]:
        clip = "" if "clip" in steps else ", or outliers among them, which --preprocess clip:0.01 bounds"
        _say(f"the loss on the rows held out has grown while that in training fell: too many rounds{clip}")
    else:
        standardize = "" if "standardize" in steps else ", or --preprocess standardize,"
        what = "has grown" if losses[-1] > NOISE * losses[0] else "is far beyond that of guessing"
        _say(f"the loss {what}: a smaller lr{standardize} may help")


def baselines(results: Mapping[str, Mapping[str, Any]]) -> None:
    """One line with the results that are no better than always saying the most frequent class."""
    poor = {name: always for name, result in results.items() if (always := _as_good(result)) is not None}
    if poor:
        told = sorted({f"always {name!r} has {share:.4f}" for name, share in poor.values()})
        _say(f"{_some([*poor])}: accuracy about that of one class, {', '.join(told)}; look at AUC and loss")


def baseline(result: Mapping[str, Any]) -> None:
    """One line where a model is no better than always saying the most frequent class, or the mean."""
    r2 = (result.get("final") or {}).get("r2")
    if r2 is not None and r2 < 0.02:
        _say(f"R squared {r2:.4f}: hardly better than always saying the labels' mean, which has 0")
    if (always := _as_good(result)) is not None:
        accuracy = result["final"]["accuracy"]
        _say(f"accuracy {accuracy:.4f}, where always {always[0]!r} has {always[1]:.4f}: look at the classes one by one")


def _as_good(result: Mapping[str, Any]) -> tuple[str, float] | None:
    """The most frequent class, and the accuracy of always saying it, where a result is hardly better."""
    from v6_workbench.reporting import report

    accuracy, always = (result.get("final") or {}).get("accuracy"), report.most_frequent(result)
    return always if accuracy is not None and always is not None and accuracy < always[1] + 0.02 else None


def described(result: Mapping[str, Any]) -> str:
    """A result in one line: the method, and the experiment it is of."""
    experiment = result.get("experiment", {})
    if not experiment:
        return f"{result['method']} on the organizations {_some([str(k) for k in result.get('organizations', [])])}"
    nodes = [f"{name} ({n})" for name, n in zip(experiment["nodes"], experiment["rows"], strict=False)]
    speeds = f", speeds {experiment['speeds']:g}" if experiment.get("speeds") else ""
    trained = experiment.get("trained", "federated")
    how = "" if trained == "federated" else f", {trained}"
    return (
        f"{result['method']}{how} on {experiment['data']}, {experiment['partition']}, partition seed "
        f"{experiment['partition_seed']}, seed {result['settings']['seed']}{speeds}; {len(nodes)} nodes: {_some(nodes)}"
    )


def splits(result: Mapping[str, Any]) -> None:
    """One line where no tree has a split: all that is predicted then is the classes' shares."""
    found = codec.decode(result["weights"])["weights"]
    if len(found) and (found[:, 0] < 0).all():
        least = result["settings"]["min_rows_leaf"]
        _say(
            f"no tree has a split: with min_rows_leaf={least} a node needs {2 * least} training rows or more, and a "
            "feature that varies among them"
        )


def _some(texts: list[str], most: int = 12) -> str:
    return ", ".join(texts if len(texts) <= most else [*texts[:most], "..."])


def _say(text: str) -> None:
    print(text, file=sys.stderr)
