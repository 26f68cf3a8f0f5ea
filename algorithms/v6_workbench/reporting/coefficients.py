"""The coefficients of a linear model, by column and class."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from v6_workbench.reporting import export
from v6_workbench.reporting.trained import parts_of


@dataclass(frozen=True)
class Coefficient:
    """A coefficient.

    Attributes:
        column: the column that it is of, or ``intercept``.
        of: the class whose score it is a part of; the label, if that is a number.
        value: the coefficient, of one unit of the column.
        per_deviation: that of one standard deviation, if columns were standardised last; None otherwise.
    """

    column: str
    of: str
    value: float
    per_deviation: float | None = None


def of(result: Mapping[str, Any]) -> list[Coefficient] | None:
    """Read the coefficients of a result, in the units of the table's columns as far as steps can be folded in.

    Args:
        result: the result.

    Returns:
        Those of columns, by class and in the table's order, each class after its intercept; None if the model is not
        linear, or if its columns have no names.
    """
    if result.get("model") is None or "weights" not in result["weights"].get("shapes", {}):
        return None
    parts, names = export.tensors(result), json.loads(export.about(result)["inputs"])
    if {*parts} != {"coef", "intercept"} or len(names) != parts["coef"].shape[1]:
        return None
    spec, model, arrays = parts_of(result)
    # of a number to predict: the label itself
    classes = [str(c) for c in spec.classes or ([] if getattr(model, "outcome", None) is None else [spec.label or "y"])]
    standardised = bool(spec.preprocess) and spec.preprocess[-1]["step"] == "standardize"
    unit = getattr(getattr(model, "outcome", None), "scale", 1.0)
    trained = unit * model.split(arrays["weights"])[0] if standardised else [[None] * len(names)] * len(parts["coef"])
    found = []
    for i, c in enumerate(classes[-1:] if len(parts["coef"]) == 1 else classes):
        if not (outcome := getattr(model, "outcome", None)) or not outcome.relative:
            found.append(Coefficient("intercept", c, float(parts["intercept"][i])))
        for name, value, own in zip(names, parts["coef"][i], trained[i], strict=True):
            found.append(Coefficient(name, c, float(value), None if own is None else float(own)))
    return found
