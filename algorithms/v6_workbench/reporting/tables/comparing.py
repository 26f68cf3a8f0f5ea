"""Regressions and survival curves side by side."""

from collections.abc import Mapping

from rich.markup import escape
from rich.table import Table

from v6_workbench.reporting.nested import comparisons, of_methods
from v6_workbench.reporting.summary import Result
from v6_workbench.reporting.tables.cells import add_numbers, empty, number, p_value
from v6_workbench.reporting.tables.times import median_of

MEASURED = {  # of a regression, and how it is written
    "rows": ("n", ",d"),
    "events": ("events", ",d"),
    "degrees of freedom": ("df_residual", ",d"),
    "deviance": ("deviance", ".6g"),
    "log-likelihood": ("log_likelihood", ".6g"),
    "AIC": ("aic", ".6g"),
    "concordance": ("concordance", ".3f"),
}


def regressions_tables(results: Mapping[str, Result]) -> list[Table]:
    """Make tables of regressions: how many coefficients each has, and how well it fits.

    Args:
        results: results by their names; those without coefficients, or with noise, are left out.

    Returns:
        A table for each method.
    """
    tables = []
    for method, found in of_methods(results).items():
        shown = {
            heading: how for heading, how in MEASURED.items() if any(r.get(how[0]) is not None for r in found.values())
        }
        out = empty(method)
        add_numbers(out, "coefficients", *shown, no_wrap=True)
        for name, result in found.items():
            cells = [number(result.get(key), form) for key, form in shown.values()]
            out.add_row(escape(name), str(len(result["coefficients"])), *cells)
        tables.append(out)
    return tables


def nested_table(results: Mapping[str, Result]) -> Table | None:
    """Make a table of the tests of regressions against those that are nested in them.

    Args:
        results: results by their names.

    Returns:
        The table; None if none is nested in another one.
    """
    if not (found := comparisons(results)):
        return None
    out = empty("regression")
    out.add_column("against", overflow="fold")
    add_numbers(out, "test", "statistic", "df", "p", no_wrap=True)
    for c in found:
        df = f"{c.df}" if c.df_residual is None else f"{c.df}, {c.df_residual:,}"
        out.add_row(escape(c.larger), escape(c.smaller), c.test, f"{c.statistic:.4g}", df, p_value(c.p))
    return out


def medians_table(results: Mapping[str, Result]) -> Table | None:
    """Make a table of survival curves: rows, events and median of each.

    Args:
        results: results by their names; those without curves are left out.

    Returns:
        The table; None if there are no two results with curves.
    """
    found = {name: result["curves_of_survival"] for name, result in results.items() if "curves_of_survival" in result}
    if len(found) < 2:
        return None
    named = any(curve["group"] is not None for curves in found.values() for curve in curves)
    out = empty("survival")
    if named:
        out.add_column("group", overflow="fold")
    add_numbers(out, "rows", "events", "median", no_wrap=True)
    for name, curves in found.items():
        for curve in curves:
            group = "all" if curve["group"] is None else str(curve["group"])
            if curve.get("hidden"):
                cells = ["", "", "not shown"]
            else:
                cells = [f"{curve['n']:,}", f"{curve['events']:,}", median_of(curve)]
            out.add_row(escape(name), *([escape(group)] if named else []), *cells)
    return out
