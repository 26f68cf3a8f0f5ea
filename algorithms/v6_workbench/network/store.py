"""The entry of a method for a vantage6 algorithm store: ``python -m v6_workbench.network.store [METHOD ...]``.

An entry is made from the method's code, so that names, defaults and explanations are those of ``central``. It is the
body of the store's ``POST /api/algorithm``; before publishing, put the registry's name before ``image``.
"""

import argparse
import inspect
import json
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_federated.base.version import __version__
from v6_federated.messages.common import Common
from v6_workbench.network.project import FIVE, FOUR, RELEASES, Release, source_url
from v6_workbench.registry import central_of, folder_of, names, package_of

MEANINGS = {  # settings whose values a user interface can offer
    "label": "column",
    "features": "column_list",
    "exclude": "column_list",
    "organizations": "organization_list",
    "evaluators": "organization_list",
}
SECURE = ("masked", "pinned")  # values of aggregation with which central learns sums only
ONLY_PLAIN = "Secure aggregation is not possible"
WRITES = "Write the entries of the named methods, or of all."
TYPES = {bool: "boolean", int: "integer", float: "float", str: "string"}
VISUALIZATIONS = [
    {
        "name": "Accuracy by round",
        "description": "of the global model on rows that the nodes held out",
        "type": "line",
        "schema": {"location": ["history"], "x": "round", "y": "accuracy", "y_axis_min": 0, "y_axis_max": 1},
    },
    {
        "name": "Rounds",
        "description": "measures and costs of each round",
        "type": "table",
        "schema": {
            "location": ["history"],
            "columns": ["round", "n", "train_loss", "loss", "accuracy", "auc", "bytes_up", "bytes_down", "seconds"],
        },
    },
]


def entry(method: str, release: Release = FOUR) -> dict[str, Any]:
    """Return the store's entry of a method.

    Args:
        method: the method's name.
        release: the release of vantage6 whose store it is for.

    Returns:
        The entry, as JSON.

    Raises:
        SafeError: the method is not installed.
    """
    return _entry(central_of(method), method, release)


def _entry(central: Any, method: str, release: Release) -> dict[str, Any]:
    fields = central.settings.model_fields
    description = " ".join((inspect.getdoc(central) or "").split())
    if central.single_answers:
        description += f" {needs_single(central.single_answers)}"
    own = [name for name in fields if name not in Common.model_fields]
    function = {
        "name": "central",
        "display_name": description.partition(":")[0],
        "description": description,
        **({"type": "central"} if release is FOUR else {"step_type": "central_compute"}),
        "standalone": True,
        "databases": [_database("default", "rows to train on; the same label at every node", release)],
        "arguments": [_argument(name, fields[name], central) for name in [*own, *Common.model_fields]],
        "ui_visualizations": VISUALIZATIONS if central.supervised else VISUALIZATIONS[1:],  # no accuracy
    }
    return {
        "name": f"v6-{method}",
        "description": description,
        "image": f"v6-{method}:{__version__}{release.suffix}",
        "partitioning": "horizontal",
        "vantage6_version": release.version,
        "code_url": source_url(),
        "functions": [function] if release is FOUR else [EXTRACT, function],
    }


def _database(name: str, description: str, release: Release) -> dict[str, Any]:
    return {"name": name, "description": description} | ({} if release is FOUR else {"multiple": False})


def _option(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "display_name": name, "description": description, "type": "string", "has_default_value": True}


EXTRACT = {
    "name": "extract",
    "display_name": "Read rows",
    "description": "Copies a node's rows into the session, where tasks use them. No row leaves the node.",
    "step_type": "data_extraction",
    "standalone": True,
    "databases": [_database("source", "the rows: csv, Excel, Parquet, SQL, SPARQL, .npz or a folder of images", FIVE)],
    "arguments": [
        _option("sheet", "sheet of an Excel file, if the operator lets tasks choose (unset: the first)"),
        _option("query", "query, for a database that needs one, if the operator allows it"),
    ],
    "ui_visualizations": [],
}


def needs_single(reason: str) -> str:
    """Say that a method cannot run with secure aggregation.

    Args:
        reason: why, as the method declares it.

    Returns:
        A sentence.
    """
    return f"{ONLY_PLAIN}: {reason}. The nodes' operators must set V6_FEDERATED_AGGREGATION=plain."


def path(method: str, release: Release = FOUR) -> Path:
    """Return the file of a method's entry, in the folder of its code. Raises SafeError."""
    return folder_of(method) / release.store


def text(method: str, release: Release = FOUR) -> str:
    """Return the content of the file of a method's entry. Raises SafeError."""
    return text_of(package_of(method), release)


def text_of(package: ModuleType, release: Release = FOUR) -> str:
    """Return the content of the file for a method's import package, which need not be installed."""
    method = package.__name__.partition(".")[0].removeprefix("v6_")
    return json.dumps(_entry(package.central, method, release), indent=2) + "\n"


def _argument(name: str, field: Any, central: Any) -> dict[str, Any]:
    argument = {"name": name, "display_name": name.replace("_", " "), "description": field.description or name}
    options = _options(field.annotation)
    argument["type"] = MEANINGS.get(name) or _type(options)
    if allowed := [value for option in options if get_origin(option) is Literal for value in get_args(option)]:
        secure = SECURE if name == "aggregation" and central.single_answers else ()
        argument["allowed_values"] = [value for value in allowed if value not in secure]
    argument["has_default_value"] = not field.is_required()
    if not field.is_required() and field.default is not None:  # the store refuses null; no default_value means null
        argument["default_value"] = field.default if isinstance(field.default, str) else json.dumps(field.default)
    return argument


def _options(annotation: Any) -> list[Any]:
    """The types that a setting may have, except None."""
    if get_origin(annotation) is Annotated:
        return _options(get_args(annotation)[0])
    if get_origin(annotation) not in (Union, types.UnionType):
        return [annotation]
    return [option for part in get_args(annotation) if part is not type(None) for option in _options(part)]


def _type(options: Sequence[Any]) -> str:
    """The store's name of the first type, since a simpler form of a value comes first."""
    first = options[0]
    if get_origin(first) is list:
        (item,) = get_args(first)
        return f"{_type([item])}_list" if item is not bool and _type([item]) in TYPES.values() else "json"
    if get_origin(first) is Literal:
        first = type(get_args(first)[0])
    return TYPES.get(first, "json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the entries of the named methods, or of all.

    Args:
        arguments: names of methods; None takes them from the process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m v6_workbench.network.store", description=WRITES)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"one of {', '.join(names())}")
    try:
        for method in parser.parse_args(arguments).methods or names():
            for release in RELEASES.values():
                content = text(method, release)
                write_whole(path(method, release), content)
                print(path(method, release))
    except SafeError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
