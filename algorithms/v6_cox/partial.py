"""The client of Cox's proportional hazards."""

from typing import Any

import numpy as np

from v6_cox import grid
from v6_cox.likelihood import FURTHEST, Cox, of_stratum
from v6_cox.measures import MEASURES, Ties
from v6_federated import Asked, Node, Result, SafeError, Sum, Vector, check_scale, codec, partial, times

SHARED = "set strata=none: one baseline hazard of all rows, in bins of time that all hospitals share"
UNEVEN = (
    "Columns have a few extreme values, or predict nearly with certainty who has the event first; clip them, or leave "
    "out columns"
)


def sums_of_strata(asked: Asked) -> dict[str, Sum]:
    """What ``newton`` is a sum of: each node's own partial likelihood is no sum over its rows."""
    p = asked.size - 1
    lengths = {"gradient": p, "hessian": p * (p + 1) // 2, "measures": len(MEASURES)}
    return {name: Sum(length, "hospital") for name, length in lengths.items()}


def sums_of_bins(asked: Asked) -> dict[str, Sum]:
    """What ``newton_on_grid`` is a sum of. Outside a study, each node joins bins of few of its rows."""
    p, B = asked.size - 1, len(codec.decode(asked.settings["bins"])["hazard"])
    lengths = {"events": B, "risk": B * (1 + p), "happened": p, "hessian": p * (p + 1) // 2, "measures": len(MEASURES)}
    return {name: Sum(length, asked.only_in_a_study) for name, length in lengths.items()}


@partial(sums=sums_of_strata, instead=SHARED)
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
    node.policy.check_dominance(found["working"], UNEVEN)
    return {
        "gradient": found["gradient"],
        "hessian": found["hessian"][np.tril_indices(p)],
        "measures": measures(time, event, X @ beta, found["log_likelihood"], pairs=not node.pinned),
    }


@partial(sums=sums_of_bins)
def newton_on_grid(
    node: Node, weights: Vector, center: Vector, *, bins: dict[str, Any], even: bool, closed: bool = False
) -> Result:
    """The same for one baseline hazard of all nodes, in bins of time: see ``grid.of_rows``.

    ``bins`` holds their ``ends`` (B - 1,), as the last one is open, and the ``hazard`` (B,) of a row at the ``center``
    (d + 1,) of the columns; both are zeros in the first round, when they are not known. ``even``: see
    ``times.Followed``. ``closed``: whether rows are followed up to the last end only.
    """
    assert isinstance(node.model, Cox)
    X, time, event = of_node(node)
    p, beta = X.shape[1], np.asarray(weights[:-1], np.float64)
    sent = codec.decode(bins, {"ends": (None,), "hazard": (None,)})
    ends, hazard, B = times.checked_ends(sent["ends"]), sent["hazard"], len(sent["hazard"])
    if len(ends) + 1 != B or not (hazard >= 0).all():
        raise SafeError("the hazards are not those of the bins; send them as central does")
    node.policy.check_size(B * (2 + p) + p + p * (p + 1) // 2 + len(MEASURES), f"the sums of {B} bins")
    node.check_time()
    least = 0 if node.pinned else node.policy.minimum_rows_a_side  # in a study, central's code joins bins of the block
    followed = times.Followed(time, event, ends, least, "evenly" if even else "by width")
    if closed or (least and not even):  # the open bin has no width by which events could be spread
        followed = followed.up_to_the_last_end()
    check_scale(center)
    X = node.as_used(X - center[:-1])
    eta = node.adding.linear(X, beta)
    if (np.abs(eta) > FURTHEST / 2).any():
        raise SafeError(
            "the hazard ratios are too large to compute with; leave out columns, or divide them by a number"
        )
    found: dict[str, Any] = {"measures": measures(followed.time, followed.event, eta, 0.0, pairs=not node.pinned)}
    lower = np.tril_indices(p)
    if node.pinned:
        found |= grid.exact_sums(X, followed, eta, hazard)
        at_risk, expected, hessian = (found.pop(name) for name in ("at_risk", "expected", "hessian"))
        found["hessian"] = hessian.take(lower[0] * p + lower[1])
    else:
        found |= grid.of_rows(X, followed, beta, hazard)
        of_bins = found.pop("weights")
        at_risk, expected = of_bins.sum(axis=1), of_bins @ hazard
        found |= {"risk": found["risk"].ravel(), "hessian": found["hessian"][lower]}
    node.policy.check_dominance(at_risk, UNEVEN)
    if hazard.any():
        node.policy.check_dominance(expected, UNEVEN)
    if not node.pinned:
        node.policy.check_bins(of_bins)
    return found


def measures(
    time: np.ndarray, event: np.ndarray, eta: np.ndarray, log_likelihood: float, pairs: bool = True
) -> np.ndarray:
    """Count rows, events and pairs.

    Args:
        time: of event or censoring (n,).
        event: 1 for an event (n,).
        eta: log hazard ratios (n,).
        log_likelihood: of the rows, if they are a stratum.
        pairs: whether pairs of rows are counted. In a study they are not: the sum of each hospital's pairs is one of
            products of its numbers of rows, which tells hospitals apart. The result then has no concordance.

    Returns:
        What ``MEASURES`` names.
    """
    comparable, concordant = times.concordance(time, event, eta) if pairs else (0.0, 0.0)
    found = {
        "rows": float(len(time)),
        "events": float(event.sum()),
        "log_likelihood": log_likelihood,
        "pairs": comparable,
        "concordant": concordant,
    }
    return np.array([found[name] for name in MEASURES])


def of_node(node: Node) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read the node's rows.

    Args:
        node: the node.

    Returns:
        Columns (n, d), times (n,) and events (n,), float64.

    Raises:
        SafeError: the column of events holds other numbers than 0 and 1.
        PrivacyThresholdViolation: there are too few rows or events, or too many columns for the rows.
    """
    node.features.check_complete("cox")
    X = np.asarray(node.features.X, np.float64)
    time, event = node.times()
    node.policy.check_wide(len(time), X.shape[1])
    return X, time, event
