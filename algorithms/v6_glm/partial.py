"""The client of generalised linear models."""

from typing import Any

import numpy as np

from v6_federated import (
    Asked,
    Count,
    Node,
    Result,
    SafeError,
    Sum,
    Vector,
    bounded_reach,
    bounded_sum,
    check_scale,
    codec,
    exact,
    of_the_model,
    partial,
)
from v6_glm import noisy
from v6_glm.families import Glm, newton_sums
from v6_glm.measures import MEASURES

CERTAIN = "The columns predict nearly all labels with certainty; leave out columns, set l2"
UNEVEN = "The means that the columns predict are too far apart; leave out columns, choose another family or link"
IMPOSSIBLE = (
    "some row's mean is impossible under these coefficients, and without this hospital's part the sum over its block "
    "would tell it; choose another link, or standardize columns"
)
OFFSETS = "The offsets are too far apart; name another column in offset"


def triangle(asked: Asked) -> int:
    """How many numbers the Hessian of p coefficients has."""
    return asked.size * (asked.size + 1) // 2


def contributed(asked: Asked) -> int:
    """How many numbers a row contributes to a sum with noise."""
    return noisy.size(asked.size, first="coefficients" not in asked.arrays)


@partial(sums={"gradient": Sum(of_the_model), "hessian": Sum(triangle), "measures": Sum(len(MEASURES))})
def newton(
    node: Node, weights: Vector = None, center: Vector = None, scale: Vector = None, *, null: float | None = None
) -> Result:
    """The sums over the node's rows of one step of Fisher scoring, at the coefficients ``weights`` (p,).

    They are sums of columns that are centred by ``center`` (p,) and divided by ``scale`` (p,); the last is the
    intercept's. ``null`` is the intercept of the model without columns. Without ``weights``, the step is the first one.
    """
    model = node.model
    assert isinstance(model, Glm)
    p = model.size
    node.features.check_complete("glm")
    X, y = np.asarray(node.features.X, np.float64), node.rows.y.astype(np.float64)
    n = len(y)
    with node.later():
        node.policy.check_wide(n, p)
    node.policy.check_size(p + p * (p + 1) // 2 + len(MEASURES), f"the Hessian of {p} coefficients")
    with node.later():
        if not model.family.possible(y).all():
            raise SafeError(f"the family does not fit this label; expected {model.family.labels}")
    w, offset = node.special("weights", 1.0), node.special("offset", 0.0)
    if (w < 0).any():
        raise SafeError("the column of weights holds numbers below 0; expected weights from 0")
    given = w > 0
    with node.later():
        node.policy.check_rows(int(given.sum()), node.job.minimum_rows)
        node.policy.check_dominance(w, "The column of weights is too uneven; name another one in weights")
    adding, beta = node.adding, None
    D: np.ndarray = np.ones((n, p), order="C" if adding is exact.FLOATS else "F")
    D[:, :-1] = X
    if weights is not None and center is not None and scale is not None:
        if not (scale > 0).all() or center[-1]:
            raise SafeError("center and scale are not those of columns and an intercept; send them as central does")
        check_scale(center, scale)
        D -= center
        D /= scale
        D = node.as_used(D)
        beta = weights * scale
        beta[-1] += center @ weights
    node.check_time()
    found = newton_sums(model, D, y, w, offset, beta, adding)
    alone = newton_sums(model, np.ones((n, 1)), y, w, offset, None if null is None else np.array([null]), adding)
    measures: dict[str, Any] = dict.fromkeys(MEASURES, 0.0)
    if (found is None or alone is None) and node.pinned:
        raise SafeError(IMPOSSIBLE)
    if found is None or alone is None:
        measures["impossible"] = 1.0
        hessian, gradient = adding.quadratic(D[:0], y[:0], y[:0])
    else:
        with node.later():
            for carried in found["carried"]:
                node.policy.check_dominance(carried, UNEVEN if model.regression else CERTAIN)
            for carried in alone["carried"]:
                node.policy.check_dominance(carried, OFFSETS)
        gradient, hessian = found["gradient"], found["hessian"]
        measures |= {name: found[name] for name in ("deviance", "pearson")}
        measures |= {f"null_{name}": alone[name] for name in ("gradient", "hessian")}
        measures["null_deviance"] = alone["deviance"]
    measures["rows"] = float(given.sum())
    of_rows = {"label": (y, w), "constant": (model.family.constant(y), w)}
    if adding is exact.FLOATS:
        measures |= {"weight": float(w.sum()), "log_weight": float(np.log(w[given]).sum())}
    else:
        of_rows |= {"weight": (w, np.ones(n)), "log_weight": (np.log(np.where(given, w, 1.0)), np.ones(n))}
    measures |= adding.totals(of_rows)
    lower = np.tril_indices(p)
    if isinstance(hessian, exact.Exact):
        of_pairs = hessian.take(lower[0] * p + lower[1])
        return {"gradient": gradient, "hessian": of_pairs, "measures": exact.joined([*measures.values()])}
    measures |= {name: float(np.asarray(number).item()) for name, number in measures.items()}
    return {
        "gradient": gradient,
        "hessian": hessian[lower],
        "measures": np.array([measures[name] for name in MEASURES]),
    }


@partial(sums={"sums": Count(contributed), "variance": Count(1, "nothing")})
def noisy_newton(
    node: Node,
    coefficients: Vector = None,
    *,
    transform: dict[str, Any],
    longest: list[float] | None = None,
    of_budget: int,
) -> Result:
    """With noise: a sum of bounded contributions of rows, at most 1 long, see ``noisy``.

    Columns are (X, 1) T for the ``transform`` T (p, p). With ``coefficients`` (p,) the sum is of gradients and Hessians
    of which the ``longest`` count fully, without them of products of columns and label. It takes
    ``of_budget`` parts of the plan.
    """
    model = node.model
    assert isinstance(model, Glm)
    T, bounds = codec.decode(transform).get("T"), node.bounds_of_label
    p = model.size
    if T is None or T.shape != (p, p):
        raise SafeError(f"the task sends a transform of another shape; expected T with {p} rows and columns")
    if (coefficients is None) != (longest is None) or (
        longest is not None and (len(longest), min(longest) > 0) != (2, True)
    ):
        raise SafeError("coefficients and longest belong together; send them as central does")
    if node.job.data.special:
        raise SafeError("offset and weights cannot be used with clip; leave them out")
    if of_budget < 1:
        raise SafeError(f"of_budget={of_budget} is too small; expected at least 1")

    def of_rows(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        y = y.astype(np.float64)
        if coefficients is None or longest is None:
            return noisy.first_contributions(X, y, T, bounds)
        return noisy.contributions(model, X, y, coefficients, T, bounds, (longest[0], longest[1]))

    q = noisy.size(p, first=coefficients is None)
    total = node.noisy_sum(lambda rows: bounded_sum(of_rows, rows.X, rows.y, q), q, bounded_reach(q), of_budget)
    return {"sums": total, "variance": node.variance_for_persons}
