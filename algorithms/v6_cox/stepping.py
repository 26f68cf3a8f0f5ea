"""Newton's method at central: from the sums of a round to the coefficients of the next one."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v6_federated import SafeError

RISE = 1e-9  # of minus the log-likelihood, relative, that is rounding


@dataclass
class Stepping:
    """Where Newton's method stands.

    Attributes:
        b: the coefficients to try next (p,).
        good: the best coefficients so far: ``b``, ``H`` (p, p) and ``measures`` there, and ``next``, where the step
            from them leads.
        first: g (p,), H (p, p) and ``measures`` at coefficients 0.
        converged: whether the last step was shorter than the tolerance; ``b`` are then the result.
    """

    b: np.ndarray
    good: dict[str, Any] = field(default_factory=dict)
    first: dict[str, Any] = field(default_factory=dict)
    converged: bool = False

    def accept(self, g: np.ndarray, H: np.ndarray, measures: dict[str, float], tolerance: float) -> bool:
        """Take a step, if the coefficients that were tried are better than the best so far; otherwise, halve the last.

        Args:
            g: the gradient of the log-likelihood (p,).
            H: minus its second derivatives (p, p).
            measures: sums over all rows.
            tolerance: length of a step, in standard errors, at which the coefficients have converged.

        Returns:
            Whether they are better.

        Raises:
            SafeError: the Hessian is singular.
        """
        here = measures["log_likelihood"]
        if self.good:
            best = self.good["measures"]["log_likelihood"]
            if here < best - RISE * (abs(best) + 0.1):
                self.b = (self.b + self.good["b"]) / 2
                return False
        else:
            self.first = {"g": g, "H": H, "measures": measures}
        step = solved(H, g)
        self.good = {"b": self.b, "H": H, "measures": measures, "next": self.b + step}
        self.converged = float(np.sqrt(max(step @ g, 0.0))) <= tolerance
        self.b = self.good["next"]
        return True


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
