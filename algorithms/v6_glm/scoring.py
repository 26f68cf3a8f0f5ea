"""Fisher scoring at central: from the sums of a round to the coefficients of the next one."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v6_federated import SafeError, inference

CONSTANT = 1e-12  # variance of a column over its mean square
ALONE = 1e-10  # eigenvalues of the first Hessian, relative, that are rounding
RISE = 1e-9  # of the deviance, relative, that is rounding
ROUNDING = 64 * float(np.finfo(np.float64).eps)  # of a linear predictor, relative to the largest of its terms
SECANTS = 5  # steps whose change of the gradient corrects the Hessian
SKEW = 1e-8  # a correction with a smaller denominator, relative, is left out (Nocedal and Wright 2006, 6.26)
Numbers = dict[str, float]


@dataclass
class Scoring:
    """Where Fisher scoring stands.

    Coefficients b (p,) are of columns (D - center) / scale, the last of which is the intercept. D has these columns'
    moments, weighted as in round 1, so that H = D^T W D is well conditioned.

    Attributes:
        l2: the penalty on the mean loss.
        center: (p,), 0 for the intercept.
        scale: (p,), 1 for the intercept and for constant columns.
        b: the coefficients to try next (p,).
        null: the intercept to try next of the model without columns.
        good: the best coefficients so far: ``b``, ``null``, ``objective`` (the deviance with the penalty), ``H`` (p, p)
            and ``sums`` (see ``measures``) there, ``next``, where the step from them leads, and ``about``, the number
            of rows that the sums are over and the organizations that have them.
        first: H at the first good coefficients (p, p), over the same rows.
        steps: the latest steps between good coefficients (k, p), and ``changes``, by how much the gradient fell along
            each (k, p); None: there are none.
        at: the gradient at the best coefficients so far (p,).
        converged: whether the last step was shorter than the tolerance, or is rounding; ``b`` are then the result.
    """

    l2: float = 0.0
    center: np.ndarray | None = None
    scale: np.ndarray | None = None
    b: np.ndarray | None = None
    null: float | None = None
    good: dict[str, Any] = field(default_factory=dict)
    first: np.ndarray | None = None
    steps: np.ndarray | None = None
    changes: np.ndarray | None = None
    at: np.ndarray | None = None
    converged: bool = False

    @property
    def back(self) -> np.ndarray:
        """The matrix T (p, p) by which coefficients of the columns as they are follow from b."""
        assert self.center is not None and self.scale is not None
        T = np.diag(1 / self.scale)
        T[-1, :-1] = -(self.center / self.scale)[:-1]
        return T

    def begin(self, g: np.ndarray, H: np.ndarray, sums: Numbers) -> None:
        """Solve the weighted least squares problem of round 1.

        Args:
            g: D^T W z (p,), for columns D as they are and working labels z.
            H: D^T W D (p, p).
            sums: sums over all rows.
        """
        total = H[-1, -1]
        center, square = H[-1] / total, np.diag(H) / total
        center[-1] = 0.0
        variance = square - center**2
        variance[-1] = 1.0
        self.center, self.scale = center, np.sqrt(np.where(variance > CONSTANT * square, variance, 1.0))
        T = self.back
        H, g = T.T @ H @ T, T.T @ g
        # columns may depend on each other: the next Hessian, of centred columns, says so exactly
        self.b = np.linalg.pinv(H + np.diag(self._penalty(sums)), rcond=ALONE, hermitian=True) @ g
        self.null = sums["null_gradient"] / sums["null_hessian"]
        self.good = {"b": self._alone(self.null), "null": self.null, "objective": None}

    def accept(self, sums: Numbers, about: list[int]) -> bool:
        """Say whether the coefficients that were tried are better than the best so far; if not, halve the step.

        Deviances of other rows cannot be compared: if a node is missing, or is back, the coefficients that were tried
        are the first good ones of these rows, and the step that led to them stays one of Fisher scoring.

        Args:
            sums: sums over all rows at these coefficients.
            about: the number of these rows, and the organizations that have them.

        Returns:
            Whether they are.
        """
        assert self.b is not None and self.null is not None
        objective = sums["deviance"] + float(self._penalty(sums) @ self.b**2)
        same, before = self.is_about(about), self.good["b"]
        best = self.good["objective"] if same else None
        rounding = RISE * (abs(best) + 0.1) + self.rounding(self.good["H"]) if best is not None else 0.0
        if sums["impossible"] or (best is not None and objective > best + rounding):
            self.b = (self.b + (before if same else self._alone(self.good["null"]))) / 2
            self.null = (self.null + self.good["null"]) / 2
            return False
        if not same:
            self.first = self.steps = self.changes = self.at = None
        self.good = {"b": self.b, "null": self.null, "objective": objective, "sums": sums, "before": before}
        self.good["about"] = about
        return True

    def is_about(self, about: list[int]) -> bool:
        """Say whether the sums at the best coefficients so far are over these rows."""
        return [*self.good.get("about", ())] == about

    def _alone(self, null: float) -> np.ndarray:
        """The coefficients (p,) of an intercept alone: those of other rows may be impossible for these."""
        assert self.b is not None
        b = np.zeros(len(self.b))
        b[-1] = null
        return b

    def rounding(self, H: np.ndarray) -> float:
        """Say how large squares of residuals are, added up over all rows, if they are nothing but rounding.

        A linear predictor is a sum of terms: b, and what centring takes away from columns as they are.

        Args:
            H: the expected Hessian at b (p, p).
        """
        assert self.b is not None and self.center is not None and self.scale is not None
        terms = np.abs(self.b) + 2 * np.abs(self.center / self.scale * self.b)
        return float(H[-1, -1] * (ROUNDING * terms.sum()) ** 2)

    def advance(self, g: np.ndarray, H: np.ndarray, phi: float, tolerance: float, canonical: bool) -> None:
        """Take a step from coefficients that were accepted.

        Args:
            g: the gradient D^T s of the log-likelihood there (p,), without dispersion.
            H: the expected Hessian there (p, p).
            canonical: whether it is the Hessian itself. If not, it is corrected by what the gradient has done along the
                latest steps (symmetric rank one: Nocedal and Wright 2006, section 6.2), which saves rounds.
            phi: the dispersion.
            tolerance: length of a step, in standard errors, at which they have converged.
        """
        assert self.b is not None and self.null is not None
        sums, penalty = self.good["sums"], self._penalty(self.good["sums"])
        slope = g - penalty * self.b
        if not canonical:
            self._remember(slope)
        try:
            step = np.linalg.solve(self._corrected(H + np.diag(penalty)), slope)
        except np.linalg.LinAlgError:
            raise SafeError(
                "the Hessian has become singular: the model fits some rows with certainty; set l2"
            ) from None
        gain = max(float(step @ slope), 0.0)
        self.good["H"] = H
        self.first = H if self.first is None else self.first
        self.b, self.null = self.b + step, self.null + sums["null_gradient"] / sums["null_hessian"]
        self.good["next"] = self.b
        unknown = self.rounding(H) + ROUNDING**2 * phi * sums["rows"]
        self.converged = gain <= max(tolerance**2 * phi, unknown)

    def _remember(self, slope: np.ndarray) -> None:
        """Keep the step that has led to the best coefficients, and how the gradient has changed."""
        assert self.b is not None
        if self.at is not None:
            step, change = self.b - self.good["before"], self.at - slope
            kept = [] if self.steps is None or self.changes is None else [*zip(self.steps, self.changes, strict=True)]
            kept = [*kept, (step, change)][-SECANTS:]
            self.steps, self.changes = (np.array(one) for one in zip(*kept, strict=True))
        self.at = slope

    def _corrected(self, H: np.ndarray) -> np.ndarray:
        """The Hessian (p, p) that fits the latest steps; H itself if there are none, or if it is not positive."""
        if self.steps is None or self.changes is None:
            return H
        fits = H
        for step, change in zip(self.steps, self.changes, strict=True):
            off = change - fits @ step
            if abs(off @ step) > SKEW * np.linalg.norm(off) * np.linalg.norm(step):
                fits = fits + np.outer(off, off) / (off @ step)
        return fits if np.linalg.eigvalsh(fits)[0] > 0 else H

    @property
    def coefficients(self) -> np.ndarray:
        """The coefficients (p,) of the columns as they are: the result, or the next to try."""
        assert self.b is not None
        return np.asarray(self.back @ self.b)

    def end(self) -> None:
        """Choose the best coefficients as the result.

        Raises:
            SafeError: none were.
        """
        if "H" not in self.good:
            raise SafeError(
                "no coefficients were found under which all means are possible; choose link=log, or standardize columns"
            )
        self.b = np.asarray(self.good["next"])  # the last ones tried may have been worse

    def _penalty(self, sums: Numbers) -> np.ndarray:
        """The diagonal (p,) of the penalty's Hessian in b."""
        assert self.scale is not None
        penalty = self.l2 * sums["weight"] / self.scale**2
        penalty[-1] = 0.0
        return penalty

    def without_cells(self) -> "Scoring":
        """What a result may hold: no Hessian or gradient, which tell how many rows have two levels of columns.

        A job that is resumed from it goes on from the same coefficients, as it does where a node has joined.
        """
        good = {"b": self.good.get("b"), "null": self.good.get("null"), "objective": None}
        b = self.good.get("next", self.b)
        return Scoring(self.l2, self.center, self.scale, b, self.null, good, converged=self.converged)

    def to_json(self) -> dict[str, Any]:
        """Return everything as numbers and lists."""
        return dict(inference.listed(vars(self)))

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> "Scoring":
        """Go on from what ``to_json`` returned.

        Args:
            kept: numbers and lists.

        Returns:
            The same state.
        """
        return cls(**inference.arrays(kept))
