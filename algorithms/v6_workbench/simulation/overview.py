"""What an experiment's rows are, and what a user should look at before training on them."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from v6_federated.base.text import shortened
from v6_federated.data import preprocessing
from v6_federated.data.steps import Impute, OneHot
from v6_federated.messages.job import SPECIAL
from v6_workbench import registry
from v6_workbench.simulation.experiments import Experiment

ENOUGH = 20  # a column with a different value in each of so many rows may be an identifier


def described(experiment: Experiment, method: str, values: Mapping[str, Any]) -> str:
    """Describe the rows in one line.

    Args:
        experiment: the experiment.
        method: the method's name.
        values: its settings.

    Returns:
        The nodes by their numbers and names with their rows, the label, its classes with their rows, and the features.
    """
    nodes = [
        f"{'' if name == str(k) else f'{k}: '}{name} ({len(rows if isinstance(rows, pd.DataFrame) else rows[1])})"
        for k, (name, rows) in enumerate(experiment.named().items(), start=1)
    ]
    parts = [f"{len(nodes)} nodes: {shortened(nodes)}"]
    if registry.supervised(method):
        label = experiment.columns()[1]
        last = "" if experiment.label else " (the last column)"
        about = [f"label {label}{last}"] if label else []
        if not registry.predicts_numbers(method, values):
            counts = experiment.class_counts()
            about.append(f"{len(counts)} classes: {shortened([f'{name} ({n})' for name, n in counts.items()])}")
        parts += [", ".join(about)] if about else []
    if registry.times_only(method):
        parts.append(f"times {experiment.label}")
    elif features := _features(experiment, values):
        parts.append(f"{len(features)} features: {shortened(features, 8)}")
    return "; ".join(parts)


def warnings_about(experiment: Experiment, method: str, values: Mapping[str, Any]) -> list[str]:
    """Return what may be wrong with the rows.

    Args:
        experiment: the experiment.
        method: the method's name.
        values: its settings.

    Returns:
        A line for each thing: features that look like identifiers, columns that are empty at a node or in its held-out
        rows, and names of nodes, classes or levels that differ only in spaces or capitals.
    """
    features, named = [] if registry.times_only(method) else _features(experiment, values), experiment.named()
    found = _identifiers(experiment, features)
    table = experiment.dataset.rows
    nowhere = [c for c in features if table[c].isna().all()] if isinstance(table, pd.DataFrame) else []
    if nowhere:
        found.append(f"{', '.join(nowhere)}: no value at any node; leave out with --exclude {','.join(nowhere)}")
    there = [c for c in features if c not in nowhere]
    for node, rows in named.items():
        empty = [c for c in there if rows[c].isna().all()] if isinstance(rows, pd.DataFrame) else []
        for fills, columns in _filling(empty, table, values).items():
            found.append(f"{', '.join(columns)}: no value at {node}; {fills} from the other nodes")
    for node, columns in experiment.not_evaluated(features, method).items():
        least = experiment.policy([*named].index(node) + 1).minimum_rows
        found.append(
            f"{', '.join(columns)}: fewer than {least} of the rows held out at {node} have a value, so the column "
            "counts as empty there; use a larger --holdout to avoid this"
        )
    names = {"node": list(named)}
    if registry.supervised(method) and not registry.predicts_numbers(method, values):
        names["class"] = [str(name) for name in experiment.class_counts()]
    names |= {f"level of {column}": levels for column, levels in _levels(experiment, features).items()}
    for what, spellings in names.items():
        found += _alike(what, spellings)
    return found


def _filling(empty: list[str], table: Any, values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Columns that are empty at a node, by what fills columns of their kind: a step that is there, or another one."""
    if not empty:
        return {}
    steps = [preprocessing.parse(step) for step in values.get("preprocess") or ()]
    categories = {c for step in steps if isinstance(step, OneHot) for c in step.columns or ()}
    found: dict[str, list[str]] = {}
    for column in empty:
        of_words = column in categories or _holds_words(table[column])
        fills = [step for step in steps if isinstance(step, Impute) and step.fills(column, of_words)]
        cure = "impute:most_frequent" if of_words else "impute"
        said = "the step impute fills it" if fills else f"--preprocess {cure} fills such columns"
        found.setdefault(said, []).append(column)
    return found


def _holds_words(column: "pd.Series[Any]") -> bool:
    """Whether nodes read a column as words."""
    return column.dtype.kind not in "iufb" and pd.to_numeric(column, errors="coerce").isna().sum() > column.isna().sum()


def _alike(what: str, names: list[str]) -> list[str]:
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(" ".join(name.casefold().split()), []).append(name)
    return [
        f"{', '.join(map(repr, same))} differ only in spaces or capitals; each counts as a different {what}"
        for same in alike.values()
        if len(same) > 1
    ]


def _features(experiment: Experiment, values: Mapping[str, Any]) -> list[str]:
    """The names of the features of a table."""
    table, (there, _) = experiment.dataset.rows, experiment.columns()
    special = {values.get(name) for name in SPECIAL}
    features = values.get("features") or experiment.features or there
    return [c for c in features if c in table and c not in special] if there else []


def _identifiers(experiment: Experiment, features: list[str]) -> list[str]:
    table = experiment.dataset.rows
    if not isinstance(table, pd.DataFrame):
        return []
    kinds = "iuO"  # measurements, most of which are unique, are floats
    large = [rows for rows in experiment.named().values() if isinstance(rows, pd.DataFrame) and len(rows) >= ENOUGH]
    unique = [
        c for c in features if table[c].dtype.kind in kinds and large and all(rows[c].is_unique for rows in large)
    ]  # at each node, since each hospital may count from 1
    if not unique:
        return []
    names = ",".join(unique)
    return [
        f"{names}: different in every row of a node, like an identifier or a row number; add --exclude {names} to "
        "leave such columns out"
    ]


def _levels(experiment: Experiment, features: list[str]) -> dict[str, list[str]]:
    """The words in columns of words that may be categories."""
    table = experiment.dataset.rows
    if not isinstance(table, pd.DataFrame):
        return {}
    words = {c: {str(v).strip() for v in table[c].dropna().unique()} for c in features if table[c].dtype.kind == "O"}
    return {c: sorted(levels) for c, levels in words.items() if len(levels) <= experiment.policy().maximum_classes}
