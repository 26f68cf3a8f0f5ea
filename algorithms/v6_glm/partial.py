"""The client of generalised linear models."""

import numpy as np

from v6_federated import Node, Result, SafeError, Vector, partial
from v6_glm.families import Glm, newton_sums
from v6_glm.measures import MEASURES


@partial(weights="one")
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
    node.policy.check_wide(n, p)
    node.policy.check_size(p + p * (p + 1) // 2 + len(MEASURES), f"the Hessian of {p} coefficients")
    if not model.family.possible(y).all():
        raise SafeError(f"the label is not what this family describes; expected {model.family.labels}")
    w, offset = node.special("weights", 1.0), node.special("offset", 0.0)
    if (w < 0).any():
        raise SafeError("the column of weights holds numbers below 0; expected weights from 0")
    D = np.column_stack([X, np.ones(n)])
    beta = None
    if weights is not None and center is not None and scale is not None:
        if not (scale > 0).all() or center[-1]:
            raise SafeError("center and scale are not those of columns and an intercept; send them as central does")
        D = (D - center) / scale
        beta = weights * scale
        beta[-1] += center @ weights
    node.check_time()
    found = newton_sums(model, D, y, w, offset, beta)
    alone = newton_sums(model, np.ones((n, 1)), y, w, offset, None if null is None else np.array([null]))
    given = w > 0
    node.policy.check_rows(int(given.sum()), node.job.minimum_rows)
    measures = dict.fromkeys(MEASURES, 0.0)
    gradient, hessian = np.zeros(p), np.zeros((p, p))
    if found is None or alone is None:
        measures["impossible"] = 1.0
    else:
        node.policy.check_dominance(found["working"])
        gradient, hessian = found["gradient"], found["hessian"]
        measures |= {name: found[name] for name in ("deviance", "pearson")}
        measures |= {f"null_{name}": float(alone[name].item()) for name in ("gradient", "hessian")}
        measures["null_deviance"] = alone["deviance"]
    measures["rows"] = float(given.sum())
    measures["weight"] = float(w.sum())
    measures["label"] = float(w @ y)
    measures["constant"] = float(w @ model.family.constant(y))
    measures["log_weight"] = float(np.log(w[given]).sum())
    return {
        "gradient": gradient,
        "hessian": hessian[np.tril_indices(p)],
        "measures": np.array([measures[name] for name in MEASURES]),
    }
