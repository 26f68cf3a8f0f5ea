"""Newton's method at central: from the sums of a round to the coefficients of the next one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v6_federated import SafeError

RISE = 1e-9  # of minus the log-likelihood, relative, that is rounding


@dataclass
class Sums:
    """The sums of a round over the rows that have answered.

    Attributes:
        about: the number of these rows, and the organizations that have them.
        g: gradient of the log-likelihood (p,).
        H: minus its second derivatives (p, p); None if they are not known yet.
        measures: sums by name.
        shared: what the next round needs of this one, if its step is taken.
        exact: whether H is that of these rows. If not, it is good for a step, and not for standard errors.
    """

    about: list[int]
    g: np.ndarray
    H: np.ndarray | None
    measures: dict[str, float]
    shared: dict[str, Any]
    exact: bool = True

    @property
    def kept(self) -> dict[str, Any]:
        """What is known of them, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class Stepping:
    """Where Newton's method stands.

    Attributes:
        b: the coefficients to try next (p,).
        good: the best coefficients so far: ``b``, the ``Sums`` there, and ``next``, where the step from them leads.
        start: H at the first good coefficients (p, p), over the same rows.
        first: the ``Sums`` at coefficients 0, which may be over other rows.
        converged: whether the last step was shorter than the tolerance; ``b`` are then the result.
    """

    b: np.ndarray
    good: dict[str, Any] = field(default_factory=dict)
    start: np.ndarray | None = None
    first: dict[str, Any] = field(default_factory=dict)
    converged: bool = False

    def accept(self, sums: Sums, H: np.ndarray, tolerance: float) -> bool:
        """Take a step, if the coefficients that were tried are better than the best so far; otherwise, halve the last.

        Likelihoods of other rows cannot be compared: if a node is missing, or is back, the coefficients that were tried
        are the first good ones of these rows, and the step that led to them stays one of Newton's method.

        Args:
            sums: the sums at these coefficients.
            H: minus the second derivatives of the log-likelihood (p, p), which they hold.
            tolerance: length of a step, in standard errors, at which the coefficients have converged.

        Returns:
            Whether they are better.

        Raises:
            SafeError: the Hessian is singular.
        """
        if self.is_about(sums.about):
            here, best = sums.measures["log_likelihood"], self.good["measures"]["log_likelihood"]
            if here < best - RISE * (abs(best) + 0.1):
                self.b = (self.b + self.good["b"]) / 2
                return False
        else:
            self.start = H
        if not self.b.any():
            self.first = sums.kept
        step = solved(H, sums.g)
        self.good = {**sums.kept, "b": self.b, "next": self.b + step}
        self.converged = sums.exact and float(np.sqrt(max(step @ sums.g, 0.0))) <= tolerance
        self.b = self.good["next"]
        return True

    def is_about(self, about: list[int]) -> bool:
        """Say whether the best coefficients so far are those of these rows."""
        return [*self.good.get("about", ())] == about

    @property
    def null(self) -> Mapping[str, Any]:
        """The sums at coefficients 0, if they are over the rows of the best coefficients; empty otherwise."""
        return self.first if self.is_about([*self.first.get("about", ())]) else {}

    @property
    def lacks_null(self) -> bool:
        """Whether these sums, or the exact H among them, must still be asked for."""
        return not self.null.get("exact", False)


def scaled(H: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Divide the columns that a Hessian is of by their own deviations in another one.

    Args:
        H: the Hessian (p, p).
        by: the other one (p, p). A column without information stays as it is.

    Returns:
        The Hessian (p, p) of the divided columns.
    """
    s = np.sqrt(np.diag(by))
    s = np.where(s > 0, s, 1.0)
    return np.asarray(H / np.outer(s, s))


def solved(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Solve H x = g, whatever the units of the columns.

    Args:
        H: the Hessian (p, p).
        g: numbers (p,) or (p, k).

    Returns:
        x, of the shape of g.

    Raises:
        SafeError: H is singular.
    """
    s = np.sqrt(np.diag(H))
    try:
        return (np.linalg.solve(scaled(H, H), (g.T / s).T).T / s).T
    except np.linalg.LinAlgError:
        raise SafeError(
            "the Hessian has become singular: the columns predict with certainty who has the event first; leave out "
            "columns (--exclude)"
        ) from None
