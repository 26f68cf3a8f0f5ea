"""Generalised linear models with noise: what a row contributes to the sums, and what central reads from them.

Three sums are asked for, or four. The first is of the products of the columns and the label, within their declared
bounds. It tells a start, and the columns' covariance, by which the next requests turn them into columns that are about
uncorrelated. Each of these is of the gradient and the Hessian at the coefficients so far, for a Newton step. Rows count
by weights that follow from their columns alone, so that the coefficients are right in the mean whatever the weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from v6_federated import SafeError, inference
from v6_glm.families import FAMILIES, LINKS, Glm

PARTS, STEP, LAST = 10, 2, 4  # of the budget; what a request takes, but the last one, which takes what is left
MOST = (PARTS - LAST) // STEP + 1  # requests
CLOSE = 2.0  # standard errors that the square of a step may have before the last one
FIRST = 0.6  # of the longest row within the declared bounds: longer ones count for less in the first sum
SCORE, HESSIAN, SPREAD = 0.65, 0.30, 0.05  # shares of a contribution's square
EDGE = 0.02  # how near to its bounds the mean label may come, in shares of their distance
LEAST_WEIGHT = 0.05  # of the mean eigenvalue of the Hessian
LEAST_SPREAD = 0.3  # of squares of scores, per unit of information
LEAST_ROWS = 3.0  # standard deviations of noise that the number of rows must have


def size(p: int, first: bool) -> int:
    """How many numbers a row contributes.

    Args:
        p: number of coefficients.
        first: whether to the first sum.

    Returns:
        q.
    """
    return (p + 1) * (p + 2) // 2 if first else p + p * (p + 1) // 2 + p


def packed(x: np.ndarray) -> np.ndarray:
    """Write the products of the numbers of each row so that their length is the row's length, squared.

    Args:
        x: rows (b, p).

    Returns:
        The lower triangle, row by row, what is off the diagonal times the root of 2 (b, p (p + 1) / 2).
    """
    i, j = np.tril_indices(x.shape[1])
    return np.asarray(x[:, i] * x[:, j] * np.where(i == j, 1.0, math.sqrt(2)))


def unpacked(numbers: np.ndarray, p: int) -> np.ndarray:
    """Write the sum of ``packed`` as a matrix.

    Args:
        numbers: the sum (p (p + 1) / 2,).
        p: the matrix's size.

    Returns:
        The matrix (p, p).
    """
    i, j = np.tril_indices(p)
    return inference.symmetric(numbers * np.where(i == j, 1.0, math.sqrt(0.5)), p)


def declared(
    model: Glm, features: Sequence[str], data: Mapping[str, Any], bounds: Mapping[str, Sequence[float]]
) -> tuple[list[float], np.ndarray]:
    """Read what operators have declared.

    Args:
        model: family and link.
        features: names of the columns after the steps.
        data: what central tells nodes about the data.
        bounds: of columns of numbers and of the label.

    Returns:
        The bounds of the label, and T (p, p), by which (X, 1) T has its columns between -1 and 1.

    Raises:
        SafeError: the label is a number without bounds.
    """
    of_label = [0.0, 1.0]
    if model.regression:
        if data["label"] not in bounds:
            raise SafeError("a number with noise needs a study whose schema declares the label's lower and upper")
        of_label = [float(end) for end in bounds[data["label"]]]
    T = np.eye(len(features) + 1)
    scaled = any(step["step"] == "scale" for step in data["preprocess"])
    for i, name in enumerate(features):
        if name in bounds and not scaled:
            low, high = bounds[name]
            T[i, i], T[-1, i] = 2 / (high - low), -(high + low) / (high - low)
    return of_label, T


def first_contributions(X: np.ndarray, y: np.ndarray, T: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """What rows contribute to the first sum.

    Args:
        X: rows (b, d).
        y: labels (b,).
        T: the columns that are used are (X, 1) T (p, p).
        bounds: of the label.

    Returns:
        ``packed`` products of these columns and of the label between -1 and 1, over the square of ``FIRST`` times the
        longest row; longer rows are shortened by the node.
    """
    D = np.column_stack([X.astype(np.float64), np.ones(len(X))]) @ T
    low, high = bounds
    x = np.column_stack([D, (2 * y - low - high) / (high - low)])
    return packed(x) / (FIRST**2 * x.shape[1])


def contributions(
    model: Glm,
    X: np.ndarray,
    y: np.ndarray,
    coefficients: np.ndarray,
    T: np.ndarray,
    bounds: tuple[float, float],
    longest: tuple[float, float],
) -> np.ndarray:
    """What rows contribute to gradient and Hessian.

    A row t of (X, 1) T has the score t (y - mu) mu' / V and the expected Hessian W t t^T, W = mu'^2 / V. Both are
    multiplied by k = min(1, B / |t| F, G / |t|^2 W), where F is the largest |y - mu| |mu'| / V that a label can have. k
    does not depend on the label: so the mean of k times the score is 0 at the true coefficients, whatever k.

    Args:
        model: family and link.
        X: rows (b, d).
        y: labels (b,).
        coefficients: of (X, 1) (p,).
        T: (p, p).
        bounds: of the label.
        longest: B, the largest norm of a score, and G, of a Hessian.

    Returns:
        The two, and squares of the scores (of known dispersion: their means k^2 W t^2), each divided by its largest
        norm, of which the squares are the shares above: together at most 1 long (b, q).
    """
    B, G = longest
    D = np.column_stack([X.astype(np.float64), np.ones(len(X))])
    eta = D @ coefficients
    mu, slope = model.mean(eta), model.link.slope(eta)
    V, t = model.family.variance(mu), D @ T
    lengths = np.sqrt(np.vecdot(t, t))
    farthest = np.maximum(bounds[1] - mu, mu - bounds[0]) * np.abs(slope) / V
    W, r = slope**2 / V, (y - mu) * slope / V
    k = np.fmin(1.0, np.fmin(B / (lengths * farthest), G / (lengths**2 * W)))
    spread = (k * r / B) ** 2 if model.family.dispersed else k**2 * W / G
    return np.column_stack(
        [
            math.sqrt(SCORE) / B * (k * r)[:, None] * t,
            math.sqrt(HESSIAN) / G * (k * W)[:, None] * packed(t),
            math.sqrt(SPREAD) * spread[:, None] * t**2,
        ]
    )


@dataclass
class Fit:
    """What central has found so far.

    Attributes:
        bounds: of the label.
        b: the coefficients of (X, 1) (p,).
        T: the columns that are asked for next are (X, 1) T (p, p).
        n: rows of all nodes.
        rows: about how many rows count in the first sum.
        weight: W at the mean label, and ``farthest``, the largest score of a column of ones there.
        covariance: of the coefficients (p, p), and ``of_noise``, the part of it that noise makes; None at first.
        hidden: how many directions of coefficients have less information than noise.
        far: the square of the last step over the standard errors after it; None at first. The square is about what a
            further step would change.
        used: parts of the budget that requests have taken.
    """

    bounds: Sequence[float]
    T: np.ndarray
    b: np.ndarray | None = None
    n: int = 0
    rows: float = 0.0
    weight: float = 0.0
    farthest: float = 0.0
    covariance: np.ndarray | None = None
    of_noise: np.ndarray | None = None
    hidden: int = 0
    far: float | None = None
    used: int = 0

    @property
    def converged(self) -> bool:
        """Whether a further step would be shorter than the standard errors."""
        return self.far is not None and self.far <= 1

    @property
    def parts(self) -> int:
        """How many parts of the budget the next request takes: the last one decides the noise of the coefficients."""
        left = PARTS - self.used
        close = self.far is not None and self.far <= CLOSE
        return left if close or left < STEP + LAST else STEP

    def to_json(self) -> dict[str, Any]:
        """Return everything as numbers and lists."""
        return dict(inference.listed(vars(self)))

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> "Fit":
        """Go on from what ``to_json`` returned.

        Args:
            kept: numbers and lists.

        Returns:
            The same state.
        """
        return cls(**inference.arrays(kept))

    def begin(self, model: Glm, total: np.ndarray, sigma: float) -> None:
        """Read the first sum: a step of least squares from means that are the mean label in all rows.

        Args:
            model: family and link.
            total: the sum (q,), a contribution's length being 1.
            sigma: standard deviation of its noise.

        Raises:
            SafeError: noise hides everything.
        """
        p, unit = len(self.T), FIRST**2 * (len(self.T) + 1)
        M, deviation = unpacked(total * unit, p + 1), sigma * unit
        S, low, high = M[:p, :p], float(self.bounds[0]), float(self.bounds[1])
        # the intercept is a column of ones, and T leaves it as it is at first
        rows = float(S[-1, -1])
        if rows < LEAST_ROWS * deviation:
            raise SafeError(
                "noise hides even the number of rows: nothing can be said at this epsilon; set a larger epsilon, ask "
                "more hospitals, or use fewer columns (--features)"
            )
        half = (high - low) / 2
        mean = float(np.clip(M[p, p - 1] / rows, 2 * EDGE - 1, 1 - 2 * EDGE))
        mu = np.array([low + half * (1 + mean)])
        eta = model.link.of(mu)
        if not np.isfinite(eta).all():
            raise SafeError("the mean label is not one that this link can have; choose another link")
        slope, V = model.link.slope(eta), model.family.variance(mu)
        self.farthest = float((np.maximum(high - mu, mu - low) * np.abs(slope) / V)[0])
        values, vectors = np.linalg.eigh(S)
        values = np.maximum(values, deviation * math.sqrt(p))
        along = half * (M[p, :p] - mean * S[-1])
        step = vectors @ ((vectors.T @ along) / values) / slope
        step[-1] += eta[0]
        self.b, self.rows, self.weight = self.T @ step, rows, float((slope**2 / V)[0])
        self.T = self.T @ (vectors * np.sqrt(rows / values)) @ vectors.T

    def longest(self, clip: float) -> tuple[float, float]:
        """Say how far a row may go that counts fully: of uncorrelated columns it is about the root of p long.

        Args:
            clip: how many times as long a row may be.

        Returns:
            B and G, see ``contributions``.
        """
        p = len(self.T)
        return clip * math.sqrt(p) * self.farthest, clip**2 * p * self.weight

    def advance(self, model: Glm, total: np.ndarray, sigma: float, clip: float) -> None:
        """Take a Newton step from a sum of gradients and Hessians.

        With H the Hessian without noise, A what is used in its place, s the score's sampling error and e its noise, the
        coefficients after the step are off by A^-1 (s + e - (H - A) step), to first order. Their covariance follows.

        Args:
            model: family and link.
            total: the sum (q,), a contribution's length being 1.
            sigma: standard deviation of its noise.
            clip: see ``longest``.
        """
        assert self.b is not None
        (B, G), p = self.longest(clip), len(self.T)
        score, noise = total[:p] * B / math.sqrt(SCORE), sigma * B / math.sqrt(SCORE)
        H, of_hessian = unpacked(total[p:-p] * G / math.sqrt(HESSIAN), p), sigma * G / math.sqrt(HESSIAN)
        expected = max(float(np.trace(H)) / p, 0.1 * self.rows * self.weight)
        A, trusted = shrunk(H, expected, of_hessian)
        values, vectors = np.linalg.eigh(A)
        least = max(of_hessian * math.sqrt(p) * trusted, LEAST_WEIGHT * expected)
        self.hidden = int((values < least).sum())
        values = np.maximum(values, least)
        A, inverse = (vectors * values) @ vectors.T, (vectors / values) @ vectors.T
        step = inverse @ score
        unit = (B**2 if model.family.dispersed else G) / math.sqrt(SPREAD)
        squares, of_squares = total[-p:] * unit, sigma * unit
        if model.family.dispersed:
            varies = np.full(p, max(squares.mean(), of_squares / math.sqrt(p)) / np.diag(A).mean())
        else:  # rows that count for less vary less than their information says
            varies = np.clip((squares + of_squares) / np.diag(A), LEAST_SPREAD, 1.0)
        scores = A * np.sqrt(np.outer(varies, varies))
        off = trusted * of_hessian**2 / 2 * (step @ step * np.eye(p) + np.outer(step, step))
        own, made = inverse @ scores @ inverse, inverse @ (noise**2 * np.eye(p) + off) @ inverse
        self.b = self.b + self.T @ step
        self.covariance, self.of_noise = self.T @ (own + made) @ self.T.T, self.T @ made @ self.T.T
        self.far = float(step @ step) / math.sqrt(np.trace(own + made))
        self.T = self.T @ (vectors * np.sqrt(self.rows * self.weight / values)) @ vectors.T


def shrunk(H: np.ndarray, expected: float, deviation: float) -> tuple[np.ndarray, float]:
    """Draw a matrix with noise towards a multiple of the identity, the more the more of their distance noise explains.

    Args:
        H: the matrix (p, p).
        expected: the multiple.
        deviation: standard deviation of the noise on the diagonal; that of other numbers is smaller by the root of 2.

    Returns:
        The matrix, and which share of the distance is left.
    """
    p = len(H)
    distance = H - expected * np.eye(p)
    made = deviation**2 * p * (p + 1) / 2
    left = 1 - min(1.0, made / max(float((distance**2).sum()), np.finfo(float).tiny))
    return expected * np.eye(p) + left * distance, left


def check_settings(settings: Any) -> None:
    """Reject too few rounds for the sums that are asked for with noise.

    Args:
        settings: the job's settings, with ``clip``.

    Raises:
        SafeError: they are too few.
    """
    if settings.rounds < MOST:
        raise SafeError(f"rounds={settings.rounds} are too few; expected at least {MOST} with clip")


def summary(
    model: Glm, fit: Fit, names: Sequence[str], E: np.ndarray, confidence: float, ratios: Mapping[str, str]
) -> dict[str, Any]:
    """Say what was found.

    Args:
        model: family and link.
        fit: where it has ended.
        names: original columns (k,), see ``affine.original``.
        E: the columns after the steps by original ones (d, 1 + k).
        confidence: of the intervals.
        ratios: what exp(coefficient) is, by family or link.

    Returns:
        As ``fit.summary`` says it. Each row of ``coefficients`` also has ``std_error_noise``, the part of the standard
        error that noise makes: the others are in it, squared, as well.
    """
    assert fit.b is not None and fit.covariance is not None and fit.of_noise is not None
    M = np.zeros((1 + len(names), len(fit.b)))
    M[:, :-1], M[0, -1] = E.T, 1.0
    family = next(name for name, one in FAMILIES.items() if one is model.family)
    link = next(name for name, one in LINKS.items() if one is model.link)
    ratio = ratios.get(family) or ratios.get(link)
    table = inference.table(["intercept", *names], M @ fit.b, M @ fit.covariance @ M.T, ratio, confidence, None)
    made = np.sqrt(np.maximum(np.diag(M @ fit.of_noise @ M.T), 0)).tolist()
    return {
        "coefficients": [{**row, "std_error_noise": part} for row, part in zip(table, made, strict=True)],
        "family": family,
        "link": link,
        "confidence": confidence,
        "converged": fit.converged,
        "hidden_directions": fit.hidden,
        **dict.fromkeys(("deviance", "null_deviance", "aic", "dispersion")),
        "n": fit.n,
        "df_residual": fit.n - len(fit.b),
    }
