"""Families and links of generalised linear models, and the model that they make."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from v6_federated import SafeError, exact, models

Function = Callable[[np.ndarray], np.ndarray]
TINY = float(np.finfo(np.float64).eps)  # how near to 0 or 1 a fitted probability may come


@dataclass(frozen=True)
class Link:
    """A link g between the mean mu and the linear predictor eta = g(mu).

    Attributes:
        of: g(mu).
        inverse: mu(eta).
        slope: d mu / d eta, as a function of eta.
    """

    of: Function
    inverse: Function
    slope: Function


LINKS = {
    "identity": Link(lambda mu: mu, lambda eta: eta, np.ones_like),
    "log": Link(np.log, np.exp, np.exp),
    "inverse": Link(lambda mu: 1 / mu, lambda eta: 1 / eta, lambda eta: -1 / eta**2),
    "logit": Link(special.logit, special.expit, lambda eta: special.expit(eta) * special.expit(-eta)),
    "probit": Link(special.ndtri, special.ndtr, lambda eta: np.exp(-(eta**2) / 2) / math.sqrt(2 * math.pi)),
    "cloglog": Link(
        lambda mu: np.log(-np.log1p(-mu)), lambda eta: -np.expm1(-np.exp(eta)), lambda eta: np.exp(eta - np.exp(eta))
    ),
}


@dataclass(frozen=True)
class Family:
    """A family of distributions of the label, given its mean mu.

    Attributes:
        links: names of its links, the default first.
        variance: V(mu), without the dispersion.
        deviance: of each row, from label and mean.
        start: a mean near each label, or near all, where Newton's method begins.
        means: whether it is near all, so that it is no row's own.
        constant: the part of each row's log-likelihood that no coefficient enters, see ``inference.log_likelihood``.
        dispersed: whether its dispersion is estimated.
        positive: whether means must be above 0.
        labels: which labels are possible, for errors; empty: all numbers, or two classes.
        possible: whether each label is possible.
    """

    links: tuple[str, ...]
    variance: Function
    deviance: Callable[[np.ndarray, np.ndarray], np.ndarray]
    start: Function
    constant: Function
    dispersed: bool
    positive: bool
    labels: str = ""
    possible: Function = np.isfinite
    means: bool = False


FAMILIES = {
    "binomial": Family(
        links=("logit", "probit", "cloglog"),
        variance=lambda mu: mu * (1 - mu),
        deviance=lambda y, mu: -2 * (special.xlogy(y, mu) + special.xlog1py(1 - y, -mu)),
        start=lambda y: (y + 0.5) / 2,
        constant=np.zeros_like,
        dispersed=False,
        positive=False,
    ),
    "gaussian": Family(
        links=("identity", "log"),
        variance=np.ones_like,
        deviance=lambda y, mu: (y - mu) ** 2,
        start=lambda y: y,
        constant=np.zeros_like,
        dispersed=True,
        positive=False,
    ),
    "poisson": Family(
        links=("log",),
        variance=lambda mu: mu,
        deviance=lambda y, mu: 2 * (special.xlogy(y, y / mu) - (y - mu)),
        start=lambda y: y + 0.1,
        constant=lambda y: special.xlogy(y, y) - y - special.gammaln(y + 1),
        dispersed=False,
        positive=True,
        labels="counts: whole numbers from 0; for other numbers, choose family=gaussian",
        possible=lambda y: (y >= 0) & (y == np.floor(y)),
    ),
    "gamma": Family(
        links=("log", "inverse"),
        variance=lambda mu: mu**2,
        deviance=lambda y, mu: 2 * ((y - mu) / mu - np.log(y / mu)),
        start=lambda y: np.full_like(y, y.mean()),  # with the labels themselves, the largest would outweigh the rest
        constant=np.log,
        dispersed=True,
        positive=True,
        labels="numbers above 0; with zeros, choose family=poisson for counts, or family=gaussian",
        possible=lambda y: y > 0,
        means=True,
    ),
}


CANONICAL = {"binomial": "logit", "gaussian": "identity", "poisson": "log", "gamma": "inverse"}


class Glm(models.LinearModel):
    """A generalised linear model: g(mu) = X W^T + b. Its parameters w (d + 1,) are W and, last, b.

    The scores of a number to predict are the means mu; those of two classes are the log-odds of mu, whatever the link.
    The loss is the squared error, or the cross-entropy. Only the method ``glm`` trains it.

    Args:
        features: number of features, d.
        classes: 2, or 1 for a number.
        family: a name in ``FAMILIES``.
        link: a name in ``LINKS`` that the family has.
    """

    def __init__(self, features: int, classes: int, family: str = "binomial", link: str = "") -> None:
        super().__init__("logistic", features, 2)
        self.regression = family != "binomial"
        # a chosen exponential lets one row's squared error outweigh all others
        self.traits = models.Traits(regression=self.regression, plain_evaluation=self.regression)
        if classes != (1 if self.regression else 2):
            raise SafeError(
                f"family={family} needs a label of two classes, and this one has {classes}; choose another label, or "
                "fedavg, which trains models of more classes"
            )
        self.family = FAMILIES[family]
        self.link = LINKS[check_link(family, link or None)]
        self.canonical = self.link is LINKS[CANONICAL[family]]  # then the Hessian does not depend on labels

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """Compute means from linear predictors.

        Args:
            eta: linear predictors.

        Returns:
            mu, of the same shape; probabilities stay between 0 and 1.
        """
        mu = self.link.inverse(eta)
        return mu if self.regression else np.clip(mu, TINY, 1 - TINY)

    def scores(self, w: np.ndarray, X: np.ndarray, offset: np.ndarray | float = 0.0) -> np.ndarray:
        """Compute means, or log-odds of the second class.

        Args:
            w: parameters (d + 1,).
            X: rows (n, d).
            offset: is added to the linear predictors, (n, 1).

        Returns:
            The scores, float64 (n, 1).
        """
        mu = self.mean(super().scores(w.astype(np.float64), X) + offset)
        return mu if self.regression else special.logit(mu)

    def scores_alone(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Compute the same, of each row as if it were alone."""
        mu = self.mean(super().scores_alone(w, X))
        return mu if self.regression else special.logit(mu)

    def loss(self, scores: np.ndarray, y: np.ndarray) -> float:
        """Compute the mean squared error, or the mean cross-entropy.

        Args:
            scores: what ``scores`` returned for n rows.
            y: labels (n,).

        Returns:
            The mean over the rows.
        """
        return float(np.mean((scores[:, 0] - y) ** 2)) if self.regression else super().loss(scores, y)

    def losses(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Compute the squared error, or the cross-entropy, of each row (n,)."""
        return (scores[:, 0] - y) ** 2 if self.regression else super().losses(scores, y)

    def sums(self, w: np.ndarray, X: np.ndarray, y: np.ndarray) -> Any:
        """Refuse training by gradients, see ``loss_and_gradient``."""
        return self.loss_and_gradient(w, X, y)

    def loss_and_gradient(self, w: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        """Refuse training by gradients: they would be those of logistic regression.

        Raises:
            SafeError: always.
        """
        raise SafeError("the model glm is fitted by the method glm only; choose logreg for other methods")

    def predict(self, w: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Predict the label of each row.

        Args:
            w: parameters (d + 1,).
            X: rows (n, d).

        Returns:
            The predicted means (n,), or indices of classes (n,).
        """
        scores = self.scores(w, X)
        return scores[:, 0] if self.regression else models.predicted(scores)


def check_link(family: str, link: str | None) -> str:
    """Choose the link of a family.

    Args:
        family: a name in ``FAMILIES``.
        link: the link's name; None: the family's default.

    Returns:
        The link's name.

    Raises:
        SafeError: the family has no such link.
    """
    links = FAMILIES[family].links
    if link not in (None, *links):
        raise SafeError(f"link={link} cannot be used with family={family}; expected {' or '.join(links)}")
    return link or links[0]


models.register("glm", Glm, {"family": tuple(FAMILIES), "link": tuple(LINKS)})


def newton_sums(
    model: Glm,
    D: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    offset: np.ndarray,
    beta: np.ndarray | None,
    adding: exact.Adding = exact.FLOATS,
) -> dict[str, Any] | None:
    """Sum up what a step of Fisher scoring needs of some rows (McCullagh and Nelder 1989, section 2.5).

    Args:
        model: family and link.
        D: the design (n, p).
        y: labels (n,).
        weights: prior weights (n,).
        offset: offsets (n,).
        beta: coefficients (p,); None: the step begins at means near the labels, and its ``gradient`` is that at 0 of
            the weighted least squares problem which the first coefficients solve.
        adding: how rows are added up. Exact sums are of what follows from each row alone, also where Newton's method
            begins.

    Returns:
        ``gradient`` D^T s (p,) for s = weights (y - mu) mu' / V, ``hessian`` D^T W D (p, p) for W = weights mu'^2 / V,
        ``deviance``, ``pearson`` (Pearson's X^2, 0 if the family has no dispersion), and ``carried``, what each row
        weighs in these sums in several ways (k, n), see ``carried``; None if some mean is impossible.
    """
    family, link = model.family, model.link
    own = beta is None and family.means and adding is not exact.FLOATS  # each row begins at its own label
    with np.errstate(all="ignore"):  # what is not finite is found below
        if beta is None:
            mu = y if own else family.start(y)
            if link is LINKS["log"] and adding is exact.FLOATS:  # labels of family gaussian can be 0 or less
                mu = np.where(mu > 0, mu, max(0.1 * float(np.abs(mu).mean()), TINY))
            elif link is LINKS["log"]:
                mu = np.maximum(np.abs(mu), TINY)
            eta = link.of(mu)
        else:
            eta = adding.linear(D, beta) + offset
            mu = model.mean(eta)
        slope, V = link.slope(eta), family.variance(mu)
        W, s = weights * slope**2 / V, weights * (y - mu) * slope / V
        carry = carried(family, weights, mu, slope, s)
        if beta is None:
            s = s + W * (eta - offset)
            carry = W[None] if own else carry  # deviance and residuals are 0, but for rounding
        of_rows = {"deviance": (family.deviance(y, mu), weights)}
        of_rows |= {"pearson": ((y - mu) ** 2 / V, weights)} if family.dispersed else {}
        try:
            hessian, gradient = adding.quadratic(D, W, s)
            found: dict[str, Any] = {"pearson": 0.0, **adding.totals(of_rows)}
        except exact.NotFinite:
            return None
        found |= {"gradient": gradient, "hessian": hessian, "carried": carry}
    parts = (part for part in found.values() if not isinstance(part, exact.Exact))  # these are finite
    sound = all(np.isfinite(part).all() for part in parts) and (not family.positive or bool((mu > 0).all()))
    return found if sound else None


def carried(family: Family, weights: np.ndarray, mu: np.ndarray, slope: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Say what each row weighs in the sums of ``newton_sums``, in the ways in which few rows could outweigh all others.

    In the Hessian a row weighs W = weights mu'^2 / V. In the gradient, s = A y - A mu with A = weights mu' / V.

    - A label of two classes: the gradient is a sum with weights A (1 - mu) over the rows with label 1, less one with
      A mu over the others. The sum over all rows with label 1 is known from other coefficients, so that the difference
      tells the sum of A mu over all rows. The |s| are those of few rows if the model is certain of all others, and
      right. The deviance of a row it is wrong about grows with the linear predictor, as what the gradient says of it.
    - A number: A mu is W or the prior weight, or the linear predictor's (gaussian), or between (inverse). What the
      label itself is counts as its row's value, as those of columns do. The deviance of a row grows with A y, W, or
      the linear predictor. Pearson's X^2 weighs the squares of labels by weights / V.

    Args:
        family: the family.
        weights: prior weights (n,).
        mu: means (n,).
        slope: mu' (n,).
        s: the rows' parts of the gradient (n,).

    Returns:
        The weights, from 0 (k, n).
    """
    V = family.variance(mu)
    A, W = weights * np.abs(slope) / V, weights * slope**2 / V
    if family is FAMILIES["binomial"]:
        return np.array([W, A * mu, A * (1 - mu), np.abs(s)])
    return np.array([W, A, weights / V] if family.dispersed else [W, A])
