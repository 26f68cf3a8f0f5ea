"""What commands say beside their tables: which rows there are, and, on standard error, what a result may hide."""

import sys
from collections.abc import Mapping
from typing import Any

from v6_federated import codec


def rows(experiment: Any, method: str, values: Mapping[str, Any]) -> None:
    """One line: the nodes with their rows, and the classes with theirs; one more on standard error where names of
    classes or nodes differ in spaces or capitals only."""
    from v6_federated import methods

    named = experiment.named()
    nodes = [f"{name} ({len(rows if hasattr(rows, 'columns') else rows[1])})" for name, rows in named.items()]
    told = [f"{len(nodes)} nodes: {_some(nodes)}"]
    names = {"node": list(named)}
    if methods.supervised(method) and values.get("objective") != "regression":
        counts = experiment.class_counts()
        told.append(f"{len(counts)} classes: {_some([f'{name} ({count})' for name, count in counts.items()])}")
        names["class"] = [str(name) for name in counts]
    print("; ".join(told), flush=True)
    for what, found in names.items():
        alike: dict[str, list[str]] = {}
        for name in found:
            alike.setdefault(" ".join(name.casefold().split()), []).append(name)
        for same in alike.values():
            if len(same) > 1:
                _say(f"{', '.join(map(repr, same))} differ in spaces or capitals only; each is a {what} of its own")


def baseline(result: Mapping[str, Any]) -> None:
    """One line where a model is no better than always saying the most frequent class."""
    from v6_federated import report

    accuracy = (result.get("final") or {}).get("accuracy")
    always = report.most_frequent(result)
    if accuracy is not None and always is not None and accuracy < always[1] + 0.02:
        _say(f"accuracy {accuracy:.4f}, where always {always[0]!r} has {always[1]:.4f}: look at the classes one by one")


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
