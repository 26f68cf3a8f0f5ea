"""Lines that vantage6's user interface draws of a result: it reads columns, as pandas writes them, not rows."""

from collections.abc import Iterable, Mapping
from typing import Any

MEASURES = ("accuracy", "r2", "c_index")  # one of which a round's model is measured by


def added(result: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a result what charts of it need, where there is something to draw."""
    charts: dict[str, Any] = {}
    measured = [(row["round"], _measure(row)) for row in result["history"]]
    if evaluated := [(round_, value) for round_, value in measured if value is not None]:
        charts["quality"] = columns(("round", "quality"), evaluated)
    curves = (curve["rows"] for curve in result.get("curves_of_survival") or ())
    if rows := next(filter(None, curves), None):
        charts["survival"] = columns(
            ("time", "survival"), [(0.0, 1.0), *((row["end"], row["survival"]) for row in rows)]
        )
    return {**result, **({"charts": charts} if charts else {})}


def _measure(row: Mapping[str, Any]) -> float | None:
    return next((row[name] for name in MEASURES if row.get(name) is not None), None)


def columns(names: tuple[str, str], rows: Iterable[tuple[float, float]]) -> dict[str, dict[str, float]]:
    """Write rows as columns."""
    numbered = [*enumerate(rows)]
    return {name: {str(i): float(f"{row[k]:.6g}") for i, row in numbered} for k, name in enumerate(names)}
