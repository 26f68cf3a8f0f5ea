"""What a model consists of: principal components, importances of columns, and coefficients."""

import math
from collections.abc import Sequence

import numpy as np
from rich.markup import escape
from rich.table import Table

from v6_federated.base.errors import SafeError
from v6_federated.base.text import counted
from v6_federated.data.step_columns import names_after
from v6_workbench.reporting.levels import references
from v6_workbench.reporting.summary import Result, components_of
from v6_workbench.reporting.tables.cells import add_numbers, between, empty, number, p_value


def components_table(result: Result, most: int = 12, loadings: int = 3) -> Table | None:
    """Make a table of the principal components: their variances and the columns with the largest loadings.

    Args:
        result: the result.
        most: number of components to show.
        loadings: number of columns to show for each.

    Returns:
        The table; None if the result has no components.
    """
    if (arrays := components_of(result)) is None:
        return None
    data = result["data"]
    columns = names_after(data.get("preprocess") or [], data.get("features") or [])
    if columns and len(columns) != arrays["components"].shape[1]:
        raise SafeError(
            f"the result has components of {arrays['components'].shape[1]} columns and the names of {len(columns)}; "
            "expected a result.json as `v6-federated run --out DIR` wrote it"
        )
    shares = arrays["explained_variance_ratio"]
    out = empty()
    add_numbers(out, "component", "variance", "share", "cumulative")
    out.add_column("largest loadings", overflow="fold")
    for i, row in enumerate(arrays["components"][:most]):
        largest = np.argsort(-np.abs(row), kind="stable")[:loadings]
        named = (escape(f"{columns[j] if columns else f'column {j + 1}'} {row[j]:+.2f}") for j in largest)
        out.add_row(
            f"{i + 1} of {len(shares)}",
            f"{arrays['explained_variance'][i]:.4g}",
            f"{shares[i]:.3f}",
            f"{shares[: i + 1].sum():.3f}",
            ", ".join(named),
        )
    return out


def importances_table(result: Result, most: int = 12) -> Table | None:
    """Make a table of the columns that trees split on, the largest gain first.

    Args:
        result: the result.
        most: number of columns to show.

    Returns:
        The table; None if the result has no importances.
    """
    rows = result.get("feature_importance") or []
    if not rows:
        return None
    out = empty("column")
    add_numbers(out, "splits", "gain", "share of the gain")
    whole = sum(row["gain"] for row in rows)
    for row in rows[:most]:
        share = f"{row['gain'] / whole:.3f}" if whole else "-"
        out.add_row(escape(str(row["feature"])), str(row["splits"]), f"{row['gain']:.4g}", share)
    if rest := rows[most:]:
        gain = sum(row["gain"] for row in rest)
        share = f"{gain / whole:.3f}" if whole else "-"
        out.add_row(f"{len(rest)} others", str(sum(row["splits"] for row in rest)), f"{gain:.4g}", share)
    return out


def coefficients_table(result: Result) -> Table | None:
    """Make a table of coefficients with their standard errors, tests and intervals.

    The level with which others are compared has a line of its own, before theirs.

    Args:
        result: the result.

    Returns:
        The table; None if the method has found none.
    """
    if not (rows := result.get("coefficients")):
        return None
    out, ratio = empty("coefficient"), ratio_of(result)
    inside = f"{100 * result['confidence']:g}% interval"
    noise = "std_error_noise" in rows[0]
    statistic = "t" if result.get("family") in ("gaussian", "gamma") and not noise else "z"
    with_ratio = [f"{escape(ratio_named(result))}\n({inside})"] if ratio else []
    headings = "estimate", "std. error", *(["of noise"] if noise else []), statistic, "p", inside, *with_ratio
    add_numbers(out, *headings, no_wrap=True)
    errors = ("std_error", "std_error_noise") if noise else ("std_error",)
    known = [row["std_error"] for row in rows if row["std_error"] is not None]
    form = _alike(known or [row["estimate"] for row in rows])
    shown = [row for row in rows if row.get(ratio) is not None]
    sides = [(row[f"{ratio}_lower"], row[f"{ratio}_upper"]) for row in shown if row[f"{ratio}_lower"] is not None]
    of_ratio = _alike(
        [*(row[ratio] for row in shown), *(number for low, high in sides for number in (low, high - low))]
    )
    compared, told = references(result), set[str]()
    for row in rows:
        if (levels := compared.get(row["name"])) and levels.column not in told:
            told.add(levels.column)
            out.add_row(escape(f"{levels.column}={levels.reference}"), "reference")
        cells = [number(row[name], form) for name in ("estimate", *errors)]
        cells += [number(row["z"], ".3f"), "-" if row["p"] is None else p_value(row["p"])]
        cells.append(between(row, "lower", "upper", form))
        if ratio and row.get(ratio) is not None:
            cells.append(f"{row[ratio]:{of_ratio}} ({between(row, f'{ratio}_lower', f'{ratio}_upper', of_ratio)})")
        out.add_row(escape(str(row["name"])), *cells)
    return out


def ratio_of(result: Result) -> str:
    """Name what the exponentials of a result's coefficients are.

    Args:
        result: the result.

    Returns:
        For example "odds_ratio"; empty if they are nothing.
    """
    names = {name for row in result.get("coefficients") or () for name in row if name.endswith("_ratio")}
    return next(iter(names), "")


def ratio_named(result: Result) -> str:
    """Name what the exponentials of a result's coefficients are, and of which class.

    Args:
        result: the result.

    Returns:
        For example "odds ratio of ill=yes"; empty if they are nothing.
    """
    ratio, of = ratio_of(result).replace("_", " "), class_of(result)
    return f"{ratio} of {of}" if ratio and of else ratio


def class_of(result: Result) -> str:
    """Name the class that a result's coefficients are about.

    Args:
        result: the result.

    Returns:
        For example "ill=yes"; empty if the label has no classes.
    """
    row = (result.get("coefficients") or [{}])[0]
    return f"{row.get('label') or 'class'}={row['class']}" if "class" in row else ""


def fit_of(result: Result) -> str:
    """Say in a line how well a model with coefficients fits.

    Args:
        result: the result.

    Returns:
        The line; empty if there are no coefficients.
    """
    if not result.get("coefficients"):
        return ""
    if "events" in result:
        return _fit_of_hazards(result)
    numbers = {"deviance": "deviance", "null deviance": "null_deviance", "AIC": "aic", "dispersion": "dispersion"}
    said = [f"{label} {result[name]:.6g}" for label, name in numbers.items() if result[name] is not None]
    family, rows = f"{result['family']}, link {result['link']}", f"{result['n']:,} rows"
    what = "odds" if result["link"] == "logit" else "probability"
    about = f"{what} of {class_of(result)}" if class_of(result) else ""
    freedom = f"{rows}, {result['df_residual']:,} degrees of freedom"
    perfect = "fits perfectly" if result.get("fits_perfectly") else ""
    return "; ".join(filter(None, [about, family, freedom, perfect, ", ".join(said)]))


def _fit_of_hazards(result: Result) -> str:
    """How well proportional hazards fit."""
    test, concordance = result["likelihood_ratio_test"], result["concordance"]
    if result["strata"] == "hospital":
        strata = f"strata by hospital, ties {result['ties']}"
    else:
        strata = f"one baseline hazard, constant in each of {len(result['baseline']['ends'])} bins of time"
    said = [strata, f"{counted(result['n'], 'row')}, {counted(result['events'], 'event')}"]
    said += [f"log-likelihood {result['log_likelihood']:.6g}, AIC {result['aic']:.6g}"]
    if test is not None:
        freedom = counted(test["df"], "degree") + " of freedom"
        said += [f"likelihood-ratio test {test['statistic']:.4g} on {freedom}, p {p_value(test['p'])}"]
    return "; ".join([*said, *([] if concordance is None else [f"concordance in training rows {concordance:.3f}"])])


def _alike(values: Sequence[float]) -> str:
    """The format of a column: as many decimals everywhere as give the smallest of some values two digits.

    If these are more than five, numbers differ too much for that, and each has four digits of its own.
    """
    smallest = min((abs(value) for value in values if value and math.isfinite(value)), default=1.0)
    decimals = max(2, 1 - math.floor(math.log10(smallest)))
    return f".{decimals}f" if decimals <= 5 else ".4g"
