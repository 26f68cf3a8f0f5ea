"""Whether a feature may say the label itself, judged by the model and its evaluation: nobody looks at rows for it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from v6_federated.messages import codec
from v6_federated.models.linear import LinearModel
from v6_workbench.reporting.trained import model_of, names_after

ENOUGH = 50  # held-out rows: fewer may all be right by chance
PERFECT = 0.9999  # R squared


def too_good(result: Mapping[str, Any]) -> list[str]:
    """Return a remark if a model is right about every held-out row.

    Args:
        result: the result.

    Returns:
        One line, which names the feature that the model uses most, if it says so; or none.
    """
    final = result.get("final") or {}
    right = final.get("accuracy") == 1 and "accuracy_error" not in final
    if (final.get("evaluated") or 0) < ENOUGH or not (right or (final.get("r2") or 0) > PERFECT):
        return []
    column = _most_used(result)
    look = f"; look at {column} first, which the model uses most (--exclude {column})" if column else ""
    return [f"all {final['evaluated']} held-out rows are predicted right: does a feature say the label itself{look}?"]


def _most_used(result: Mapping[str, Any]) -> str | None:
    """The column of the table that a linear model, or trees, use most; None if that cannot be told."""
    data = result["data"]
    if result.get("feature_importance"):
        name = result["feature_importance"][0]["feature"]
    else:
        names = names_after(data["preprocess"], data["features"] or [], data.get("categories") or [])
        model = model_of(result) if "weights" in result["weights"].get("shapes", {}) else None
        if not names or not isinstance(model, LinearModel):
            return None
        coef, _ = model.split(codec.decode(result["weights"])["weights"])
        name = names[int(np.abs(np.asarray(coef)).max(axis=0).argmax())]
    columns = [c for c in data["features"] or [] if name == c or name.startswith(f"{c}=")]
    return max(columns, key=len) if columns else None
