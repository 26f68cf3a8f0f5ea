"""Tables of results, for the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from v6_federated.base.errors import SafeError
from v6_federated.messages.result import Round
from v6_workbench.reporting import subgroups
from v6_workbench.reporting.hospitals import called, own_results
from v6_workbench.reporting.intervals import Interval, accuracy_interval, auc_interval, noisy
from v6_workbench.reporting.noise import Alternative
from v6_workbench.reporting.summary import (
    CLEAR,
    MEASURES,
    Result,
    Try,
    Verdict,
    components_of,
    simulated,
    spent,
    summary,
)
from v6_workbench.reporting.summary import measures as measures_of
from v6_workbench.reporting.trained import names_after

SHARED_COLUMNS = {*Round.model_fields} - {"uploads"}  # of a history; all others are a method's own


def table(results: Mapping[str, Result], target: float | None = None) -> Table:
    """Make a table with a line for each result.

    Args:
        results: results by their names.
        target: accuracy to count the rounds, uploads and bytes to.

    Returns:
        The table.
    """
    out = Table(box=None, pad_edge=False)
    units = [("rounds", "rounds", 1, ".1f"), ("uploads", "uploads", 1, ".1f"), ("bytes", "MB", 1e6, ".3f")]
    if simulated(results):
        units.append(("seconds", "s", 1, ".1f"))
    reached = [] if target is None else [f"{name} to {100 * target:g}%" for _, name, *_ in units]
    measures = measures_of(results)
    for heading in ("", "rounds", *measures, "loss", *reached, "uploads", "MB up", "MB down", "s"):
        out.add_column(heading, justify="left" if heading == "" else "right", no_wrap=heading != "", overflow="fold")
    for name, result in results.items():
        s = summary(result, target)
        to = [(s[f"{unit}_to_target"], scale, form) for unit, _, scale, form in units if target is not None]
        costs = ["not reached" if cost is None else format(cost / scale, form) for cost, scale, form in to]
        out.add_row(
            escape(name),
            str(s["rounds"]),
            *(_number(s[key], ".4f") for key in measures.values()),
            _number(s["loss"], ".4f"),
            *costs,
            str(s["uploads"]),
            f"{s['bytes_up'] / 1e6:.3f}",
            f"{s['bytes_down'] / 1e6:.3f}",
            f"{s['seconds']:.2f}",
        )
    return out


def intervals_table(results: Mapping[str, Result]) -> Table | None:
    """Make a table of the 95% confidence intervals of accuracy and AUC.

    Args:
        results: results by their names.

    Returns:
        The table; None if no result has an interval.
    """
    found = {name: (accuracy_interval(result), auc_interval(result)) for name, result in results.items()}
    if not any(any(both) for both in found.values()):
        return None
    out = Table(box=None, pad_edge=False)
    out.add_column("95% interval", overflow="fold")
    for key in ("accuracy", "auc"):
        out.add_column(MEASURES[key], justify="right", no_wrap=True)
    for name, both in found.items():
        out.add_row(escape(name), *map(_interval, both))
    return out


def rounds_table(result: Result, lines: int = 12) -> Table:
    """Make a table of some rounds of a result, evenly spaced, the first and the last among them.

    Args:
        result: the result.
        lines: about how many rounds to show; rounds in which answers were missing are all shown.

    Returns:
        The table.
    """
    history = result["history"]
    step = max(1, -(-len(history) // lines))
    out = Table(box=None, pad_edge=False)
    measures = measures_of({"": result})
    time = dict(zip((row["round"] for row in history), spent(result, "seconds"), strict=True))
    clock = ["s"] if simulated({"": result}) else []  # otherwise seconds are those of this machine
    losses = {"train loss": "train_loss", "loss": "loss"}
    if noisy(result):  # no noise covers a loss, so nodes tell none
        losses = {}
        measures = {name: key for name, key in measures.items() if any(row[key] is not None for row in history)}
    changes = ["change"] if any(row.get("change") is not None for row in history) else []
    for heading in ("round", "nodes", "rows", *losses, *measures, *changes, "kB up", "kB down", *clock):
        out.add_column(heading, justify="right")
    own = [
        name
        for name, value in history[-1].items()
        if name not in SHARED_COLUMNS
        and isinstance(value, int | float)
        and all(isinstance(row.get(name), int | float | None) for row in history)
    ]
    for name in own:
        out.add_column(name.replace("_", " "), justify="right")
    if any(row.get("missing") for row in history):
        out.add_column("missing")
    for row in [
        r for r in history if r["round"] % step == 0 or r is history[-1] or r is history[0] or r.get("missing")
    ]:
        out.add_row(
            str(row["round"]),
            str(len(row["participants"])),
            str(row["n"]),
            *(_number(row[key], ".4f") for key in (*losses.values(), *measures.values())),
            *(_number(row.get(key), ".2g") for key in changes),
            f"{row['bytes_up'] / 1e3:.1f}",
            f"{row['bytes_down'] / 1e3:.1f}",
            *([f"{time[row['round']]:.1f}"] if clock else []),
            *(_number(row.get(name), "" if isinstance(row.get(name), int) else ".4g") for name in own),
            *([_missing(result, row)] if row.get("missing") else []),
        )
    return out


def classes_table(result: Result, most: int = 12) -> Table | None:
    """Make a table of the classes: held-out rows, recall and precision of each.

    Of counts with noise, shares are shown only if the noise of the whole is far smaller than the whole.

    Args:
        result: the result.
        most: number of classes above which there is no table.

    Returns:
        The table; None if no rows were evaluated, or if there are more classes.
    """
    final = result.get("final") or {}
    confusion = np.asarray(final.get("confusion") or [[0]])
    classes = result["data"]["classes"] or []
    if not confusion.any() or len(classes) > most:
        return None
    out = Table(box=None, pad_edge=False)
    for heading in ("held-out class", "rows", "found", "recall", "predicted", "precision"):
        out.add_column(heading, justify="left" if heading == "held-out class" else "right")
    # the noise of a row's sum is that of the diagonal's
    least = CLEAR * final["accuracy_error"] * final["evaluated"] if noisy(result) else 0
    form = ".0f" if noisy(result) else ""
    for c, (name, rows, predicted) in enumerate(
        zip(classes, confusion.sum(axis=1), confusion.sum(axis=0), strict=True)
    ):
        found = confusion[c, c]
        recall, precision = (f"{np.clip(found / of, 0, 1):.3f}" if of > least else "-" for of in (rows, predicted))
        n, right, guessed = (format(number, form) for number in (rows, found, predicted))
        out.add_row(escape(str(name)), n, right, recall, guessed, precision)
    return out


def hospitals_table(result: Result) -> Table | None:
    """Make a table of the hospitals' own results, with 95% intervals, and of all of them pooled.

    Args:
        result: the result.

    Returns:
        The table; None if no hospital's own results are shown.
    """
    if not (rows := own_results(result)):
        return None
    final = {**result["final"], "brier": (result.get("curves") or {}).get("brier")}
    pooled = {**final, "accuracy_interval": accuracy_interval(result), "auc_interval": auc_interval(result)}
    measures = {**MEASURES, "loss": "loss", "brier": "Brier score"}
    shown = [name for name in measures if any(row.get(name) is not None for row in rows)]
    out = Table(box=None, pad_edge=False)
    out.add_column("hospital", overflow="fold")
    for heading in ("held-out rows", *(measures[name] for name in shown)):
        out.add_column(heading, justify="right")
    for row in (*rows, {"name": "all", **pooled}):
        out.add_row(escape(row["name"]), str(row["evaluated"]), *(_with_interval(row, name) for name in shown))
    return out


def personal_table(result: Result) -> Table | None:
    """Make a table of the global model beside the hospitals' own ones, on the same held-out rows, with 95% intervals.

    Args:
        result: the result.

    Returns:
        The table; None if no hospital has a model of its own.
    """
    if not (own := result.get("personal")):
        return None
    measures = {**MEASURES, "loss": "loss"}
    shown = [name for name in measures if own.get(name) is not None]
    out = Table(box=None, pad_edge=False)
    out.add_column("model", overflow="fold")
    for heading in ("held-out rows", *(measures[name] for name in shown)):
        out.add_column(heading, justify="right")
    named = result["settings"]["personalize"]
    rows = [("global", result["final"]), (f"own ({named})", own)]
    rows += [(f"own, {called(result, [row['organization']])[0]}", row) for row in own.get("by_hospital") or ()]
    for name, row in rows:
        of = {"final": row}
        whole = {**row, "accuracy_interval": accuracy_interval(of), "auc_interval": auc_interval(of)}
        out.add_row(escape(name), str(row["evaluated"]), *(_with_interval(whole, measure) for measure in shown))
    return out


def calibration_table(result: Result) -> Table | None:
    """Make a table of predicted probabilities and how often they were right.

    Args:
        result: the result.

    Returns:
        The table; None if the result has no calibration.
    """
    bins = [b for b in (result.get("curves") or {}).get("calibration") or () if b["n"]]
    if not bins:
        return None
    out = Table(box=None, pad_edge=False)
    for heading in (f"probability of {escape(str(result['data']['classes'][1]))}", "rows", "predicted", "observed"):
        out.add_column(heading, justify="right")
    for b in bins:
        numbers = (f"{b[name]:.3f}" for name in ("predicted", "observed"))
        out.add_row(f"{b['lower']:.1f} to {b['upper']:.1f}", str(b["n"]), *numbers)
    return out


def subgroups_table(result: Result) -> Table | None:
    """Make a table of the accuracy by subgroup, with 95% intervals.

    Args:
        result: the result.

    Returns:
        The table; None if the result has no subgroups.
    """
    if not (found := result.get("subgroups")):
        return None
    out = Table(box=None, pad_edge=False)
    out.add_column(escape(str(found["column"])), overflow="fold")
    for heading in ("held-out rows", "accuracy", *(f"recall {escape(str(c))}" for c in result["data"]["classes"])):
        out.add_column(heading, justify="right")
    for row in found["rows"]:
        recalls = (_number(recall, ".3f") for recall in subgroups.recalls(row))
        accuracy = _with_interval({**row, "accuracy_interval": subgroups.interval(result, row)}, "accuracy")
        out.add_row(escape(str(row["level"])), str(row["evaluated"]), accuracy, *recalls)
    if left := result["final"]["evaluated"] - sum(row["evaluated"] for row in found["rows"]):
        out.add_row("not counted: too few rows at a hospital", str(left), *["-"] * (1 + len(result["data"]["classes"])))
    return out


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
    columns = names_after(data.get("preprocess") or [], data.get("features") or [], data.get("categories") or [])
    if columns and len(columns) != arrays["components"].shape[1]:
        raise SafeError(
            f"the result has components of {arrays['components'].shape[1]} columns and the names of {len(columns)}; "
            "expected a result.json as `v6-federated run --out DIR` wrote it"
        )
    shares = arrays["explained_variance_ratio"]
    out = Table(box=None, pad_edge=False)
    for heading in ("component", "variance", "share", "cumulative"):
        out.add_column(heading, justify="right")
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
    out = Table(box=None, pad_edge=False)
    out.add_column("column", overflow="fold")
    for heading in ("splits", "gain", "share of the gain"):
        out.add_column(heading, justify="right")
    whole = sum(row["gain"] for row in rows)
    for row in rows[:most]:
        share = f"{row['gain'] / whole:.3f}" if whole else "-"
        out.add_row(escape(str(row["feature"])), str(row["splits"]), f"{row['gain']:.4g}", share)
    if rest := rows[most:]:
        gain = sum(row["gain"] for row in rest)
        share = f"{gain / whole:.3f}" if whole else "-"
        out.add_row(f"{len(rest)} others", str(sum(row["splits"] for row in rest)), f"{gain:.4g}", share)
    return out


def signs(found: Mapping[tuple[str, str], Verdict], scores: Mapping[str, Sequence[float]]) -> Table:
    """Make a table of the methods' mean scores, and of each row against each column.

    Signs: better +, worse -, practically equivalent =, undecided ?.

    Args:
        found: a verdict for each pair of methods.
        scores: the scores of each method, one for each fold.

    Returns:
        The table.
    """
    out = Table(box=None, pad_edge=False)
    out.add_column("", overflow="fold")
    for heading in ("mean", "deviation", *map(str, range(1, len(scores) + 1))):
        out.add_column(heading, justify="right")
    opposite = {"+": "-", "-": "+"}
    for i, (name, own) in enumerate(scores.items(), start=1):
        cells = []
        for other in scores:
            if (name, other) in found:
                cells.append(found[name, other].sign)
            elif (other, name) in found:
                cells.append(opposite.get(found[other, name].sign, found[other, name].sign))
            else:
                cells.append("")
        out.add_row(f"{i} {escape(name)}", f"{np.mean(own):.4f}", f"{np.std(own, ddof=1):.4f}", *cells)
    return out


def search_table(tries: Sequence[Try], measure: str, most: int = 20) -> Table:
    """Make a table of what a search has tried, the best first.

    Args:
        tries: the tries.
        measure: what they were scored by.
        most: number of lines.

    Returns:
        The table: the settings, the mean score, and from which fold's score to which.
    """
    out = Table(box=None, pad_edge=False)
    names = [*tries[0].settings]
    for name in names:
        out.add_column(escape(name), justify="right", overflow="fold")
    out.add_column(MEASURES.get(measure, measure), justify="right")
    if several := any(len(one.scores) > 1 for one in tries):
        out.add_column("by fold", justify="right")
    ranked = sorted(tries, key=lambda one: -one.score)
    sign = -1 if measure == "loss" else 1
    for one in ranked[:most]:
        cells = [escape(f"{one.settings[name]}") for name in names]
        if one.failed:
            out.add_row(*cells, "failed")
            continue
        own = sorted(sign * score for score in one.scores)
        out.add_row(*cells, f"{sign * one.score:.4f}", *([f"{own[0]:.4f} to {own[-1]:.4f}"] if several else []))
    if len(ranked) > most:
        out.add_row(f"... {len(ranked) - most} more")
    return out


def settings_table(arguments: Sequence[Mapping[str, Any]]) -> Table:
    """Make a table of a method's settings.

    Args:
        arguments: the settings as the method's entry in an algorithm store has them.

    Returns:
        The table.
    """
    out = Table(box=None, pad_edge=False)
    for heading in ("setting", "default", "meaning"):
        out.add_column(heading, overflow="fold", no_wrap=heading == "setting")
    for argument in arguments:
        default = argument.get("default_value", "") if argument["has_default_value"] else "required"
        allowed = argument.get("allowed_values")
        meaning = argument["description"] + (f" ({', '.join(map(str, allowed))})" if allowed else "")
        out.add_row(argument["name"], str(default), escape(meaning))
    return out


def noise_table(found: Sequence[Alternative]) -> Table:
    """Make a table of ways to spend a privacy budget.

    Args:
        found: the ways.

    Returns:
        The table.
    """
    out = Table(box=None, pad_edge=False)
    out.add_column("", overflow="fold")
    for heading in (
        "rounds",
        "steps",
        "rows a step",
        "noise",
        "in a step",
        "in the job",
        "evaluations",
        "their noise",
        "accuracy ±",
        "epsilon",
        "by PLD",
    ):
        out.add_column(heading, justify="right")
    for it in found:
        out.add_row(
            escape(it.name),
            str(it.rounds),
            str(it.plan.steps),
            f"{it.rows_a_step:.0f}",
            f"{it.plan.noise:.4g}",
            f"{it.of_step:.3g}",
            f"{it.of_job:.3g}",
            str(it.plan.evaluations),
            f"{it.plan.evaluation_noise:.4g}",
            _number(it.accuracy_error, ".3f"),
            f"{it.epsilon:.3g}",
            f"{it.epsilon_pld:.3g}",
        )
    return out


def _missing(result: Result, row: Mapping[str, Any]) -> str:
    reasons: dict[str, list[int]] = {}
    for absent in row["missing"]:
        reasons.setdefault(absent["reason"], []).append(absent["organization_id"])
    return escape("; ".join(f"{', '.join(called(result, who))}: {reason}" for reason, who in reasons.items()))


def _with_interval(row: Mapping[str, Any], name: str) -> str:
    interval = row.get(f"{name}_interval")
    within = "" if interval is None else " ({:.3f} to {:.3f})".format(*interval)
    return f"{_number(row.get(name), '.3f')}{within}"


def _interval(interval: Interval | None) -> str:
    return "-" if interval is None else "{:.4f} to {:.4f}".format(*interval)


def _number(value: float | None, form: str, absent: str = "-") -> str:
    return absent if value is None else format(value, form)


def coefficients_table(result: Result) -> Table | None:
    """Make a table of coefficients with their standard errors, tests and intervals.

    Args:
        result: the result.

    Returns:
        The table; None if the method has found none.
    """
    if not (rows := result.get("coefficients")):
        return None
    out, ratio = Table(box=None, pad_edge=False), ratio_of(result)
    inside = f"{100 * result['confidence']:g}% interval"
    noise = "std_error_noise" in rows[0]
    statistic = "t" if result.get("family") in ("gaussian", "gamma") and not noise else "z"
    out.add_column("coefficient", overflow="fold")
    for heading in ("estimate", "std. error", *(["of noise"] if noise else []), statistic, "p", inside):
        out.add_column(heading, justify="right", no_wrap=True)
    if ratio:
        out.add_column(f"{ratio.replace('_', ' ')} ({inside})", justify="right", no_wrap=True)
    errors = ("std_error", "std_error_noise") if noise else ("std_error",)
    known = [row["std_error"] for row in rows if row["std_error"] is not None]
    form = _alike(known or [row["estimate"] for row in rows])
    shown = [row for row in rows if row.get(ratio) is not None]
    sides = [(row[f"{ratio}_lower"], row[f"{ratio}_upper"]) for row in shown if row[f"{ratio}_lower"] is not None]
    of_ratio = _alike(
        [*(row[ratio] for row in shown), *(number for low, high in sides for number in (low, high - low))]
    )
    for row in rows:
        cells = [_number(row[name], form) for name in ("estimate", *errors)]
        cells += [_number(row["z"], ".3f"), "-" if row["p"] is None else _p(row["p"])]
        cells.append(_between(row, "lower", "upper", form))
        if ratio and row.get(ratio) is not None:
            cells.append(f"{row[ratio]:{of_ratio}} ({_between(row, f'{ratio}_lower', f'{ratio}_upper', of_ratio)})")
        out.add_row(escape(str(row["name"])), *cells)
    return out


def survival_table(result: Result, most: int = 12) -> Table | None:
    """Make a table of survival curves.

    Args:
        result: the result.
        most: bins that are listed of a curve, the last one among them.

    Returns:
        The table; None if the method has found none.
    """
    if not (curves := result.get("curves_of_survival")):
        return None
    out, named = Table(box=None, pad_edge=False), any(found["group"] is not None for found in curves)
    if named:
        out.add_column("group", overflow="fold")
    for heading in ("time", "at risk", "events", "survival", f"{100 * result['confidence']:g}% interval"):
        out.add_column(heading, justify="right", no_wrap=True)
    for found in curves:
        rows = found["rows"]
        step, happened = -(-len(rows) // most) or 1, 0.0
        for i, row in enumerate(rows, 1):
            happened += row["events"]
            if i % step and i < len(rows):
                continue
            cells = [f"{row['end']:.4g}", f"{row['at_risk']:.0f}", f"{happened:.0f}", f"{row['survival']:.3f}"]
            out.add_row(
                *([escape(str(found["group"]))] if named else []), *cells, _between(row, "lower", "upper", ".3f")
            )
            happened = 0.0
    return out


def survival_of(result: Result) -> str:
    """Say in a line how long the rows of each curve survive, and whether curves differ.

    Args:
        result: the result.

    Returns:
        The line; empty if there are no curves.
    """
    said = []
    for found in result.get("curves_of_survival") or ():
        median = "not reached" if found["median"] is None else f"{found['median']:.4g}"
        who = "" if found["group"] is None else f"{found['group']}: "
        said.append(f"{who}{found['n']:,} rows, {found['events']:,} events, median {median}")
    if test := result.get("log_rank"):
        freedom = f"{test['df']} degree(s) of freedom"
        said.append(f"log-rank test {test['statistic']:.4g} on {freedom}, p {_p(test['p'])}")
    return "; ".join(said)


def ratio_of(result: Result) -> str:
    """Name what the exponentials of a result's coefficients are.

    Args:
        result: the result.

    Returns:
        For example "odds_ratio"; empty if they are nothing.
    """
    names = {name for row in result.get("coefficients") or () for name in row if name.endswith("_ratio")}
    return next(iter(names), "")


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
    return "; ".join(filter(None, [family, f"{rows}, {result['df_residual']:,} degrees of freedom", ", ".join(said)]))


def _fit_of_hazards(result: Result) -> str:
    """How well proportional hazards fit."""
    test, concordance = result["likelihood_ratio_test"], result["concordance"]
    if result["strata"] == "hospital":
        strata = f"strata by hospital, ties {result['ties']}"
    else:
        strata = f"one baseline hazard, constant in each of {len(result['baseline']['ends'])} bins of time"
    said = [strata, f"{result['n']:,} rows, {result['events']:,} events"]
    said += [f"log-likelihood {result['log_likelihood']:.6g}, AIC {result['aic']:.6g}"]
    said += [f"likelihood-ratio test {test['statistic']:.4g} on {test['df']} degrees of freedom, p {_p(test['p'])}"]
    return "; ".join([*said, *([] if concordance is None else [f"concordance in training rows {concordance:.3f}"])])


def _between(row: Mapping[str, Any], lower: str, upper: str, form: str) -> str:
    low, high = row[lower], row[upper]
    return "-" if low is None or high is None else f"{low:{form}} to {high:{form}}"


def _alike(values: Sequence[float]) -> str:
    """The format of a column: as many decimals everywhere as give the smallest of some values two digits.

    If these are more than five, numbers differ too much for that, and each has four digits of its own.
    """
    smallest = min((abs(value) for value in values if value and math.isfinite(value)), default=1.0)
    decimals = max(2, 1 - math.floor(math.log10(smallest)))
    return f".{decimals}f" if decimals <= 5 else ".4g"


def _p(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"
