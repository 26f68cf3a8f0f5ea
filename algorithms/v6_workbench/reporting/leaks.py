"""Whether a feature may say the label itself, judged by the model and its evaluation: nobody looks at rows for it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated.data.step_columns import names_after
from v6_federated.messages import codec
from v6_federated.models.linear import LinearModel
from v6_workbench.reporting.summary import MEASURES, most_frequent
from v6_workbench.reporting.trained import model_of

ENOUGH = 50  # held-out rows: fewer may all be right by chance
PERFECT = 0.9999  # R squared
# Nearly perfect: a copy of the label with 1% of wrong rows, with noise or with gaps reaches these. Breast cancer has an
# AUC of .996 without any copy, so that one column must dwarf all others besides.
NEARLY = {"accuracy": 0.98, "auc": 0.995, "r2": 0.995, "c_index": 0.995}
ROUGH = 0.05  # an accuracy that is exact only to this says nothing about a few wrong rows
BETTER = 0.2  # the share of the errors of always predicting the most frequent class that an accuracy may leave
# How many times as much as any other column the model uses one. Tried on FLamby's heart disease, breast cancer, TCGA,
# iris and wine, as they are and with a copy of the label as above. Standardized coefficients of a nearly perfect model:
# 1.0 to 1.3 as they are, 2.6 to 11 with a copy. Gains of trees: 2.8 at most as they are, 17 and more with a copy.
DWARFS = {"coefficients": 2.0, "gains": 5.0}


def too_good(result: Mapping[str, Any]) -> list[str]:
    """Return a remark if a model is right about every held-out row, or about nearly all by one column.

    Args:
        result: the result.

    Returns:
        One line, which names the column that the model uses most, if that is known; or none.
    """
    final = result.get("final") or {}
    if (final.get("evaluated") or 0) < ENOUGH:
        return []
    used, kind = _used(result)
    most = max(used, key=lambda name: used[name]) if used else None
    if (final.get("accuracy") == 1 and "accuracy_error" not in final) or (final.get("r2") or 0) > PERFECT:
        look = f"; look at {most} first, which the model uses most (--exclude {most})" if most else ""
        return [
            f"all {final['evaluated']} held-out rows are predicted right: does a feature say the label itself{look}?"
        ]
    reached = [name for name, least in NEARLY.items() if (final.get(name) or 0) >= least]
    always = most_frequent(result)
    if "accuracy" in reached and (always is None or 1 - final["accuracy"] > BETTER * (1 - always[1])):
        reached.remove("accuracy")
    if most is None or not reached or final.get("accuracy_error", 0) > ROUGH or not _is_comparable(result, kind):
        return []
    others = max((value for name, value in used.items() if name != most), default=0.0)
    if used[most] < DWARFS[kind] * others:
        return []
    good = " and ".join(f"{MEASURES.get(name, name) if name != 'auc' else name} {final[name]:.4f}" for name in reached)
    times = f"{used[most] / others:.2g} times as much as any other" if others else "and no other"
    return [
        f"nearly every held-out row is predicted right ({good}), and the model uses the column {most} {times}: does it "
        f"say the label itself (--exclude {most})?"
    ]


def _used(result: Mapping[str, Any]) -> tuple[dict[str, float], str]:
    """How much a linear model, or trees, use each column of the table, and by what; none if that cannot be told."""
    columns = result["data"].get("features") or []
    if result.get("feature_importance"):
        gains = {row["feature"]: row["gain"] for row in result["feature_importance"]}
        of = _columns_of([*gains], columns)
        return {column: sum(gains[name] for name in own) for column, own in of.items()}, "gains"
    names = names_after(result["data"]["preprocess"], columns)
    model = model_of(result) if "weights" in result["weights"].get("shapes", {}) else None
    if not names or not isinstance(model, LinearModel):
        return {}, "coefficients"
    coef = dict(zip(names, np.asarray(model.split(codec.decode(result["weights"])["weights"])[0]).T, strict=True))
    of = _columns_of(names, columns)
    # of a category, from one level to another
    spread = {c: np.ptp([coef[n] for n in own], axis=0) if own != [c] else np.abs(coef[c]) for c, own in of.items()}
    return {column: float(most.max()) for column, most in spread.items()}, "coefficients"


def _columns_of(names: Sequence[str], columns: Sequence[str]) -> dict[str, list[str]]:
    """The model's columns that each of the table's has become; a principal component is of none."""
    found: dict[str, list[str]] = {}
    for name in names:
        own = [c for c in columns if name == c or name.startswith(f"{c}=")]
        if own:
            found.setdefault(max(own, key=len), []).append(name)
    return found


def _is_comparable(result: Mapping[str, Any], kind: str) -> bool:
    """Whether numbers of two columns can be compared: coefficients only if all columns have one scale."""
    return kind == "gains" or any(step["step"] in ("standardize", "scale") for step in result["data"]["preprocess"])
