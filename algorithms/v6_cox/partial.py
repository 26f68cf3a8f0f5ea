"""The client of Cox's proportional hazards."""

import numpy as np

from v6_cox.likelihood import Cox, concordance, of_stratum
from v6_cox.measures import MEASURES, Ties
from v6_federated import Node, Result, SafeError, Vector, partial


@partial(weights="one")
def newton(node: Node, weights: Vector, *, ties: Ties) -> Result:
    """The sums over the node's rows of one step of Newton's method, at the coefficients ``weights`` (d + 1,).

    The node's rows are a stratum: its own partial likelihood, of which no event time leaves it. ``ties``: see
    ``likelihood.terms``.
    """
    assert isinstance(node.model, Cox)
    X, time, event = of_node(node)
    p, beta = X.shape[1], np.asarray(weights[:-1], np.float64)
    node.policy.check_size(p + p * (p + 1) // 2 + len(MEASURES), f"the Hessian of {p} coefficients")
    node.check_time()
    found = of_stratum(X, time, event, beta, ties)
    node.policy.check_dominance(found["working"])
    pairs, concordant = concordance(time, event, X @ beta)
    measures = {
        "rows": float(len(time)),
        "events": float(event.sum()),
        "log_likelihood": found["log_likelihood"],
        "pairs": pairs,
        "concordant": concordant,
    }
    return {
        "gradient": found["gradient"],
        "hessian": found["hessian"][np.tril_indices(p)],
        "measures": np.array([measures[name] for name in MEASURES]),
    }


def of_node(node: Node) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read the node's rows.

    Args:
        node: the node.

    Returns:
        Columns (n, d), times (n,) and events (n,), float64.

    Raises:
        SafeError: the column of events holds other numbers than 0 and 1.
        PrivacyThresholdViolation: there are too few rows or events.
    """
    node.features.check_complete("cox")
    X, time = np.asarray(node.features.X, np.float64), node.rows.y.astype(np.float64)
    event = node.special("event", 1.0)
    if not np.isin(event, (0, 1)).all():
        raise SafeError("the column of events holds other numbers than 0 and 1; expected 1 for an event")
    node.policy.check_wide(len(time), X.shape[1])
    node.policy.check_events(int(event.sum()))
    return X, time, event
