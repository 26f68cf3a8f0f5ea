"""Times until an event: survival curves."""

import itertools

from rich.markup import escape
from rich.table import Table

from v6_federated.base.text import counted, shortened
from v6_workbench.reporting.summary import Result
from v6_workbench.reporting.tables.cells import add_numbers, between, empty, p_value

MOST_GROUPS = 8  # in a line


def survival_table(result: Result, most: int = 12) -> Table | None:
    """Make a table of survival curves.

    A line is about the bins since the line before it: rows at risk when they begin, what happens in them, and the
    survival when they end. If the job names times, lines end there.

    Args:
        result: the result.
        most: bins that are listed of a curve, the last one among them.

    Returns:
        The table; None if the method has found none.
    """
    if not (curves := result.get("curves_of_survival")):
        return None
    named, inside = any(found["group"] is not None for found in curves), f"{100 * result['confidence']:g}% interval"
    out = empty("group" if named else None)
    add_numbers(out, "until", "at risk", "events", "censored", "survival", inside, no_wrap=True)
    for found in curves:
        if not (rows := found["rows"]):
            continue
        step = -(-len(rows) // most) or 1
        lines = [*range(step, len(rows) + step, step)]
        if named_ends := result.get("grid"):
            lines = [i + 1 for i, row in enumerate(rows) if row["end"] in named_ends]
        for begin, end in itertools.pairwise([0, *lines]):
            bins = rows[begin:end]
            first, last = bins[0], bins[-1]
            counts = first["at_risk"], *(sum(row[name] for row in bins) for name in ("events", "censored"))
            cells = [f"{last['end']:.4g}", *(f"{count:.0f}" for count in counts), f"{last['survival']:.3f}"]
            out.add_row(
                *([escape(str(found["group"]))] if named else []), *cells, between(last, "lower", "upper", ".3f")
            )
    return out


def survival_of(result: Result) -> str:
    """Say in a line how long the rows of each curve survive, and whether curves differ.

    Args:
        result: the result.

    Returns:
        The line; empty if there are no curves.
    """
    curves, said = list[str](), list[str]()
    for found in result.get("curves_of_survival") or ():
        who = "" if found["group"] is None else f"{found['group']}: "
        if found.get("hidden"):
            curves.append(f"{who}not shown ({found['hidden']})")
            continue
        about = f"{counted(found['n'], 'row')}, {counted(found['events'], 'event')}"
        curves.append(f"{who}{about}, median {median_of(found)}")
    if curves:
        said.append(shortened(curves, MOST_GROUPS, "; "))
    if test := result.get("log_rank"):
        freedom = counted(test["df"], "degree") + " of freedom"
        of = {"hospital": " stratified by hospital", "none": ""}[test.get("strata", "none")]
        apart = "; ".join(" and ".join(part) for part in test.get("apart", ()))
        only = f" (compared only with each other: {apart})" if apart else ""
        of += f" of {' and '.join(test['groups'])}" if "groups" in test else ""
        said.append(f"log-rank test{of} {test['statistic']:.4g} on {freedom}, p {p_value(test['p'])}{only}")
    elif why := result.get("log_rank_hidden"):
        said.append(f"log-rank test not shown ({why})")
    return "; ".join(said)


def median_of(curve: Result) -> str:
    """Write a curve's median with its interval, and how well bins let it be known.

    Args:
        curve: one of ``curves_of_survival``.

    Returns:
        The cell.
    """
    if curve["median"] is None:
        return f"not reached by {curve['rows'][-1]['end']:.4g}" if curve["rows"] else "not known"
    lower, upper = ("?" if curve[end] is None else f"{curve[end]:.4g}" for end in ("median_lower", "median_upper"))
    begin, end = curve.get("median_known_to") or (None, None)
    known = "" if begin is None else f", known to be from {begin:.4g} to {'?' if end is None else f'{end:.4g}'}"
    return f"{curve['median']:.4g} ({lower} to {upper}{known})"
