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
from v6_federated.messages.common import OF_NOISE, Common
from v6_federated.messages.relations import Needs, Relation, declared, words
from v6_workbench.network.project import FIVE, FOUR, RELEASES, Release, source_url
from v6_workbench.network.stored import needs_single
from v6_workbench.registry import central_of, folder_of, names, package_of, unused_by

MEANINGS = {  # settings whose values a user interface can offer
    **dict.fromkeys(("label", "event", "offset", "weights", "subgroup"), "column"),
    **dict.fromkeys(("features", "exclude"), "column_list"),
    **dict.fromkeys(("organizations", "evaluators"), "organization_list"),
}
# what a form asks first; then the method's own settings, what all methods share, and last, what protects privacy
FIRST = ("label", "event", "features", "exclude", "offset", "weights", "subgroup", "organizations", "rounds", "model")
CALLED = {  # as a clinician would say it; others are called as they are written
    "label": "outcome",
    "event": "event indicator (1: event, 0: censored)",
    "features": "predictors",
    "exclude": "columns that are no predictors",
    "offset": "offset column",
    "weights": "column of weights",
    "subgroup": "subgroups by column",
    "organizations": "hospitals that take part",
    "evaluators": "hospitals that only evaluate",
    "rounds": "rounds at most",
    "family": "type of outcome",
    "link": "link function",
    "confidence": "confidence level of intervals",
    "strata": "strata",
    "ties": "events at the same time",
    "loss": "type of outcome",
    "objective": "type of outcome",
    "classes": "values of the outcome",
    "class_weights": "weights of the outcome's values",
    "preprocess": "preparation of the columns",
    "holdout": "share of rows kept to evaluate",
    "minimum_at_risk": "fewest rows at risk that are shown",
    "lr": "learning rate",
    "l2": "ridge penalty",
    "aggregation": "what the coordinator sees",
    "clip": "clipping norm (differential privacy)",
    "epsilon": "privacy budget epsilon",
    "delta": "privacy budget delta",
}
SECURE = ("masked", "pinned")  # values of aggregation with which central learns sums only
WRITES = "Write the entries of the named methods, or of all."
TYPES = {bool: "boolean", int: "integer", float: "float", str: "string"}
LINES = {  # vantage6's user interface draws columns, see ``v6_federated.central.charts``
    "quality": {
        "name": "Quality by round",
        "description": "accuracy (R2 of numbers, C-index of times) on rows that the nodes held out",
        "type": "line",
        "schema": {"location": ["charts", "quality"], "x": "round", "y": "quality", "y_axis_max": 1},
    },
    "survival": {
        "name": "Survival",
        "description": "share without the event by time; of groups, the first that is shown",
        "type": "line",
        "schema": {"location": ["charts", "survival"], "x": "time", "y": "survival", "y_axis_min": 0, "y_axis_max": 1},
    },
}


def _table(name: str, description: str, *location: str, columns: Sequence[str] = ()) -> dict[str, Any]:
    """A table of rows; without columns, of those of the first row."""
    schema = {"location": [*location]} | ({"columns": [*columns]} if columns else {})
    return {"name": name, "description": description, "type": "table", "schema": schema}


COEFFICIENTS = _table("Coefficients", "with standard errors, tests and intervals", "coefficients")
FOUND = {  # by method: what is looked at first
    "cox": [COEFFICIENTS],
    "gbdt": [_table("Importance of columns", "splits and gains of the trees", "feature_importance")],
    "glm": [COEFFICIENTS],
    "km": [
        _table(
            "Groups",
            "rows, events and median times, with intervals",
            "curves_of_survival",
            columns=["group", "n", "events", "median", "median_lower", "median_upper", "left_out"],
        ),
        LINES["survival"],
    ],
}
COST = ("bytes_up", "bytes_down", "seconds")
OWN_MEASURES = {"cox": ("log_likelihood", "concordance"), "glm": ("deviance",)}  # of the history


def visualizations(central: Any, method: str) -> list[dict[str, Any]]:
    """Return the tables and lines of a method's results, the first one to look at first.

    Args:
        central: the method's central function.
        method: its name.

    Returns:
        The tables and lines, in the form that vantage6's user interface draws: a line needs a dictionary of columns.
    """
    settings = central.settings
    # regressions hold no rows out unless they are told to
    evaluates = central.supervised and settings.evaluates and settings.model_fields["holdout"].default > 0
    own = ("train_loss", "loss", "accuracy", "auc") if evaluates else OWN_MEASURES.get(method, ())
    rounds = _table("Rounds", "measures and costs of each round", "history", columns=["round", "n", *own, *COST])
    return [*([LINES["quality"]] if evaluates else []), *FOUND.get(method, []), rounds]


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
    description = " ".join((inspect.getdoc(central) or "").split())
    if central.single_answers:
        description += f" {needs_single(central.single_answers)}"
    function = {
        "name": "central",
        "display_name": description.partition(":")[0],
        "description": description,
        **({"type": "central"} if release is FOUR else {"step_type": "central_compute"}),
        "standalone": True,
        "databases": [_database("default", "rows to train on; the same label at every node", release)],
        "arguments": [_argument(name, central) for name in _ordered(central)],
        "ui_visualizations": visualizations(central, method),
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


def _ordered(central: Any) -> list[str]:
    """The settings in the order of a form, without those that have no effect on the method."""
    fields = central.settings.model_fields
    own = [name for name in fields if name not in Common.model_fields]
    idle = unused_by(central)
    last = [*(OF_NOISE if central.private else ()), "aggregation", "precision"]
    names = [name for name in dict.fromkeys((*FIRST, *own, *Common.model_fields)) if name not in last]
    return [name for name in (*names, *last) if name in fields and name not in idle]


def _argument(name: str, central: Any) -> dict[str, Any]:
    fields = central.settings.model_fields
    field = fields[name]
    said = "; ".join(filter(None, [field.description or name, words(central.settings, name)]))
    called = CALLED.get(name, name.replace("_", " "))
    argument: dict[str, Any] = {"name": name, "display_name": called[0].upper() + called[1:], "description": said}
    options = _options(field.annotation)
    argument["type"] = MEANINGS.get(name) or _type(options)
    if allowed := [value for option in options if get_origin(option) is Literal for value in get_args(option)]:
        secure = SECURE if name == "aggregation" and central.single_answers else ()
        argument["allowed_values"] = [value for value in allowed if value not in secure]
    argument["has_default_value"] = not field.is_required()
    if not field.is_required() and field.default is not None:  # the store refuses null; no default_value means null
        argument["default_value"] = field.default if isinstance(field.default, str) else json.dumps(field.default)
    own = (_condition(central, relation) for declarer, relation in declared(central.settings) if declarer == name)
    if condition := next(filter(None, own), None):
        names = ("conditional_on", "conditional_operator", "conditional_value")
        argument |= dict(zip(names, condition, strict=True))
    return argument


def _condition(central: Any, relation: Relation) -> tuple[str, str, str] | None:
    """When a form shows a setting: another one, an operator and a value. The form can look at one other setting."""
    if not isinstance(relation, Needs) or len(relation.others) > 1:
        return None
    [(other, accepted)] = relation.others.items()
    if other not in central.settings.model_fields or other in unused_by(central):
        return None
    field = central.settings.model_fields[other]
    if len(accepted) == 1:
        return other, "==", str(accepted[0])
    if accepted:
        return (other, "!=", str(field.default)) if field.default not in accepted else None
    return (other, ">", "0") if _type(_options(field.annotation)) in ("integer", "float") else None


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
