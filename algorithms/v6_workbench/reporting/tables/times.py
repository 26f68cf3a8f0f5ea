"""Times until an event: survival curves."""

from rich.markup import escape
from rich.table import Table

from v6_workbench.reporting.summary import Result
from v6_workbench.reporting.tables.cells import add_numbers, between, empty, p_value


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
    named, inside = any(found["group"] is not None for found in curves), f"{100 * result['confidence']:g}% interval"
    out = empty("group" if named else None)
    add_numbers(out, "time", "at risk", "events", "survival", inside, no_wrap=True)
    for found in curves:
        rows = found["rows"]
        step, happened = -(-len(rows) // most) or 1, 0.0
        for i, row in enumerate(rows, 1):
            happened += row["events"]
            if i % step and i < len(rows):
                continue
            cells = [f"{row['end']:.4g}", f"{row['at_risk']:.0f}", f"{happened:.0f}", f"{row['survival']:.3f}"]
            out.add_row(
                *([escape(str(found["group"]))] if named else []), *cells, between(row, "lower", "upper", ".3f")
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
        said.append(f"log-rank test {test['statistic']:.4g} on {freedom}, p {p_value(test['p'])}")
    return "; ".join(said)
