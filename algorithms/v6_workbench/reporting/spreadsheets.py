"""Tables for people, as ``.csv`` files that a spreadsheet shows and does not run."""

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.files import replacing
from v6_federated.data.reading import DECIMAL
from v6_workbench.reporting import coefficients, subgroups
from v6_workbench.reporting.hospitals import called, own_results
from v6_workbench.reporting.levels import references
from v6_workbench.reporting.nested import comparisons
from v6_workbench.reporting.summary import summary

TABLES = ("results", "rounds", "nodes", "hospitals", "subgroups", "coefficients", "importances", "survival", "baseline")
FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")  # how a formula begins; also in full width


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a table as a ``.csv`` file. Every text is quoted, so that no separator within it begins a cell.

    Args:
        table: the table; its texts may come from anybody, such as names of classes from a node.
        path: the file.

    Raises:
        OSError: the file cannot be written; it is then as it was before.
    """
    safe = {i: _inert_column(table.iloc[:, i]) for i in range(table.shape[1])}
    names = pd.Index([_inert(name) for name in table.columns])
    whole = pd.DataFrame(safe).set_axis(names, axis=1)
    with replacing(path) as stream:
        whole.to_csv(stream, index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")


def write_all(results: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Write the tables of results: a line for each result, each round, each answer, each hospital, each coefficient.

    Args:
        results: results by their names.
        folder: the folder, which gets ``results.csv``, ``rounds.csv``, and ``nodes.csv``, ``hospitals.csv``,
            ``subgroups.csv``, ``coefficients.csv``, ``importances.csv``, ``survival.csv`` (curves, by bin),
            ``baseline.csv`` (the baseline hazard of ``cox``, by bin) and ``comparisons.csv`` (tests of nested
            regressions) if any result has some.
    """
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for name, result in results.items():
        tables["results"].append({"result": name, **_flat(summary(result))})
        tables["rounds"] += [{"result": name, **_flat(row)} for row in result["history"]]
        tables["nodes"] += _of_hospitals(name, result, result["per_node"], "organization_id")
        tables["hospitals"] += _of_hospitals(name, result, own_results(result), "organization")
        tables["subgroups"] += subgroup_rows(name, result)
        exact = result.get("coefficients") or ()
        compared = {column: {"reference": levels.reference} for column, levels in references(result).items()}
        tables["coefficients"] += [{"result": name, **row, **compared.get(row["name"], {})} for row in exact]
        for c in () if exact else coefficients.of(result) or ():
            own = {"coefficient": c.value, "coefficient_of_one_deviation": c.per_deviation}
            of = {"label": result["data"].get("label"), "class": c.of}
            tables["coefficients"].append(
                {"result": name, "column": c.column, **of, **own, **compared.get(c.column, {})}
            )
        tables["importances"] += [{"result": name, **row} for row in result.get("feature_importance") or ()]
        for curve in result.get("curves_of_survival") or ():
            tables["survival"] += [{"result": name, "group": curve["group"], **row} for row in curve["rows"]]
        tables["baseline"] += [{"result": name, **row} for row in _baseline_rows(result)]
    tables["comparisons"] = [vars(comparison) for comparison in comparisons(results)]
    for name, rows in tables.items():
        file = folder / f"{name}.csv"
        if rows:
            write(pd.DataFrame(rows), file)
        else:
            file.unlink(missing_ok=True)  # of an earlier report


def subgroup_rows(name: str, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of ``subgroups.csv``.

    Args:
        name: the result's name.
        result: the result.

    Returns:
        For each level its held-out rows, the accuracy with its interval, and the recall of each class.
    """
    if not (groups := result.get("subgroups")):
        return []
    classes = [f"recall {c}" for c in result["data"]["classes"]]
    rows = []
    for row in groups["rows"]:
        own = _flat(row | {"accuracy_interval": subgroups.interval(result, row)})
        recalls = dict(zip(classes, subgroups.recalls(row), strict=True))
        rows.append({"result": name, "column": groups["column"], **own, **recalls})
    return rows


def _baseline_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The bins of a baseline hazard; the last one has no end, and no survival there."""
    if not (found := result.get("baseline")):
        return []
    bins = zip(found["ends"], found["events"], found["hazard"], [*found["survival"], None], strict=True)
    return [dict(zip(("end", "events", "hazard", "survival"), row, strict=True)) for row in bins]


def _of_hospitals(name: str, result: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    """Rows about organizations, with their names. ``key`` is where a row has the organization's id."""
    return [{"result": name, "hospital": called(result, [row[key]])[0], **_flat(row)} for row in rows]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The single values of a row, and both ends of intervals."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name.endswith("_interval"):
            found |= dict(zip((f"{name}_lower", f"{name}_upper"), value or (None, None), strict=True))
        elif not isinstance(value, list | dict):
            found[name] = value
    return found


def _inert_column(column: "pd.Series[Any]") -> "pd.Series[Any]":
    if column.dtype == np.float32:  # pandas would write all digits that it has in float64
        return column.astype(str).astype(float)
    return column if column.dtype.kind in "iufb" else column.map(_inert, na_action="ignore")


def _inert(cell: Any) -> Any:
    """A cell that is no formula: a text that would be one gets an apostrophe, as spreadsheets mark text themselves."""
    formula = isinstance(cell, str) and FORMULA.match(cell) and not DECIMAL.fullmatch(cell)
    return f"'{cell}" if formula else cell
