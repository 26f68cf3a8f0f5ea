"""Principal components of the rows of all nodes (Garst 2021, Algorithm 3): the method ``v6_pca`` and the step ``pca``.

Symbols: K nodes, n_k rows X_k (n_k, d) of node k, n rows in all, mean and std (d,) over all rows, s (d,) what columns
are divided by (1, or std), A (d, d) the sum of the K matrices ((X_k - mean) / s)^T ((X_k - mean) / s), k components.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.messages import codec

SolverName = Literal["auto", "exact", "subspace"]
EXACT = 1000  # columns up to which "auto" forms A: 500,500 numbers a node
OVERSAMPLING = 5
ITERATIONS = 6
TOLERANCE = 1e-3
ROWS = 256  # rows that a node centres at a time: a copy of all of them would double its memory

Ask = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Components:
    """What is fitted; names and signs are scikit-learn's, all float64.

    Attributes:
        mean, std: (d,) over all rows, std with n in the denominator.
        scale: (d,) what centred columns are divided by: ones, or std with 1 for constant columns.
        components: (k, d) rows of length 1, of each the loading largest in absolute value is positive.
        explained_variance: (k,) with n - 1 in the denominator; explained_variance_ratio: (k,) of all variance.
        solver: exact or subspace; change: what the variances have changed by in the last round of the subspace
            solver, the largest relative change; None where they are exact.
    """

    mean: np.ndarray
    std: np.ndarray
    scale: np.ndarray
    components: np.ndarray
    explained_variance: np.ndarray
    explained_variance_ratio: np.ndarray
    solver: SolverName
    change: float | None

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


# ---- what a node computes


def moments(X: np.ndarray) -> dict[str, np.ndarray]:
    """Mean (d,) of the node's rows and sum of squares about it (d,); float64."""
    mean = X.mean(axis=0)
    centred = X - mean
    rest = centred.mean(axis=0)  # numpy adds row by row: of many rows the first mean's error is no longer small
    mean, centred = mean + rest, np.subtract(centred, rest, out=centred)
    return {**codec.two_parts("mean", mean), "squares": np.square(centred, out=centred).sum(axis=0)}


def covariance(X: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The upper triangle of the node's part of A, row by row, (d (d + 1) / 2,)."""
    d = X.shape[1]
    A = np.zeros((d, d))
    for rows in _centred(X, mean, scale):
        A += rows.T @ rows
    return A[np.triu_indices(d)]


def product(X: np.ndarray, mean: np.ndarray, scale: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """The node's part of A Q, (d, l), for Q (d, l). A is never formed."""
    Y = np.zeros(Q.shape)
    for rows in _centred(X, mean, scale):
        Y += rows.T @ (rows @ Q)
    return Y


def project(X: np.ndarray, mean: np.ndarray, scale: np.ndarray, components: np.ndarray) -> np.ndarray:
    """The rows on the components, (n, k): ((X - mean) / scale) components^T, float64."""
    parts = [rows @ components.T for rows in _centred(X, mean, scale)]
    return np.concatenate(parts) if parts else np.empty((0, len(components)))


def _centred(X: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> Any:
    for start in range(0, len(X), ROWS):
        rows = X[start : start + ROWS] - mean
        rows /= scale
        yield rows


# ---- what the server computes


def pooled_moments(answers: Sequence[Any]) -> tuple[int, np.ndarray, np.ndarray]:
    """n, mean (d,) and sum of squares about it (d,) over the rows of all nodes."""
    n = sum(a.n for a in answers)
    means = [codec.whole(a.arrays, "mean") for a in answers]
    mean = np.asarray(sum(a.n / n * m for a, m in zip(answers, means, strict=True)))
    squares = sum(a["squares"] + a.n * np.square(m - mean) for a, m in zip(answers, means, strict=True))
    return n, mean, np.asarray(squares)


def deviation(n: int, mean: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Standard deviation (d,), n in the denominator; 1 for a constant column, which is then left as it is."""
    scale = np.sqrt(squares / n)
    scale[scale <= 1e-12 * np.abs(mean)] = 1
    return scale


def fit(
    ask: Ask,
    d: int,
    components: int | None,
    solver: SolverName = "auto",
    scaled: bool = False,
    tolerance: float = TOLERANCE,
    iterations: int = ITERATIONS,
) -> Components:
    """The components of the rows of all nodes, one ask a round: ``ask(statistic, **arguments)`` brings the answers.

    Round 1 brings the moments. The exact solver takes one round more, for A; the document's third round is A_ij / (s_i
    s_j), known from the moments. The subspace solver takes up to ``iterations``, see ``subspace``.
    Raises SafeError where there are not so many components.
    """
    if solver == "auto":
        solver = "exact" if d <= EXACT else "subspace"
    n, mean, squares = pooled_moments(ask("moments"))
    if n < 2:
        raise SafeError("one row has no principal components; expected at least two")
    # Algorithm 3 has std = diag(A), which is the variance: its root is meant
    std = np.sqrt(squares / n)
    scale = deviation(n, mean, squares) if scaled else np.ones(d)
    total = float((squares / np.square(scale)).sum())
    if not total > 0:
        raise SafeError("all columns are constant; expected some that vary")
    k = min(n, d) if components is None else components
    if k > min(n, d):
        raise SafeError(
            f"components={k} is refused: {n} rows of {d} columns have {min(n, d)}; expected at most so many"
        )
    change = None
    if solver == "exact":
        answers = ask("covariance", mean=mean, scale=scale)
        A = np.zeros((d, d))
        A[np.triu_indices(d)] = sum(a["covariance"] for a in answers)
        values, vectors = np.linalg.eigh(A, UPLO="U")
        values, vectors = np.maximum(values[::-1][:k], 0), vectors[:, ::-1][:, :k]
    elif components is None:
        raise SafeError("components is missing: the subspace solver needs their number, for example components=50")
    else:
        values, vectors, change = subspace(ask, n, mean, scale, k, tolerance, iterations)
    V = vectors.T * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(k)])[:, None]
    return Components(mean, std, scale, np.ascontiguousarray(V), values / (n - 1), values / total, solver, change)


def subspace(
    ask: Ask, n: int, mean: np.ndarray, scale: np.ndarray, k: int, tolerance: float, iterations: int
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """The k largest eigenvalues (k,) and eigenvectors (d, k) of A, from its products with blocks (d, l).

    Subspace iteration that keeps the blocks of all rounds (block Krylov, Musco and Musco 2015): after t rounds it has
    the products of A with a basis of t l vectors, and takes A for its Nystroem approximation from them (Tropp et al.
    2017), whose eigenvectors lie in the span of the products: the next power of A without its round. As the basis
    grows, l = k / 2 + 5 brings more for the same bytes than l > k. The first block is drawn from a seed that the nodes
    know; the others go to them in float16, since any basis will do as long as both sides use the same numbers.
    Ends when no eigenvalue has changed by more than the share ``tolerance`` of it in a round, when the blocks span all
    that n rows can, or after ``iterations`` rounds. Also returns the last change, None where the blocks span all.
    """
    d, sent_mean = len(mean), mean.astype(np.float32)
    shift = (mean - sent_mean) / scale  # of the rows as the nodes centre them; to be taken out of their A again
    most, l = min(n - 1, d), min(k // 2 + OVERSAMPLING, d)
    if iterations * l < min(k, most):
        raise SafeError(f"iterations={iterations} are too few for components={k}; expected at least {-(-k // l)}")
    basis, products = np.empty((d, 0)), np.empty((d, 0))
    sent: dict[str, Any] = {"draw": l}
    before = np.zeros(k)
    for _ in range(iterations):
        Q = read_block(d, **sent)
        answers = ask("product", mean=sent_mean, scale=scale, precision="float32", **sent)
        Y = np.asarray(sum(a["product"].astype(np.float64) for a in answers)) - n * np.outer(shift, shift @ Q)
        basis, products = np.hstack([basis, Q]), np.hstack([products, Y])
        K, R = np.linalg.qr(basis)
        values, vectors = _nystroem(K, np.linalg.solve(R.T, products.T).T, k)
        if basis.shape[1] >= most:
            return values, vectors, None
        change = float(np.max(np.abs(values - before) / np.maximum(values, values[0] * 1e-6)))
        if change <= tolerance:
            break
        before = values
        W = Y - K @ (K.T @ Y)
        W -= K @ (K.T @ W)  # twice, against what rounding has left
        sent = {"block": codec.encode({"Q": np.linalg.qr(W)[0][:, : d - basis.shape[1]]}, "float16")}
    return values, vectors, change


def read_block(d: int, draw: int | None = None, block: Mapping[str, Any] | None = None) -> np.ndarray:
    """A block (d, l): drawn, or as it was sent; the same numbers at the nodes and at the server. Raises SafeError."""
    if block is None:
        if draw is None or not 0 < draw <= d:
            raise SafeError(f"a block of {draw} columns is asked for; expected from 1 to {d}")
        return generator(0, "subspace").standard_normal((d, draw), dtype=np.float32).astype(np.float64)
    Q = codec.decode(block).get("Q")
    if Q is None or Q.ndim != 2 or len(Q) != d:
        raise SafeError(f"a block that is none; expected Q of {d} rows")
    return Q.astype(np.float64)


def _nystroem(K: np.ndarray, AK: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues and their vectors of AK (K^T AK)^+ (AK)^T, K (d, m) orthonormal."""
    M = K.T @ AK
    w, V = np.linalg.eigh((M + M.T) / 2)
    kept = w > 1e-8 * w[-1]  # below, products in float32 are noise
    U, s, _ = np.linalg.svd(AK @ (V[:, kept] / np.sqrt(w[kept])), full_matrices=False)
    if len(s) >= k:
        return np.square(s[:k]), U[:, :k]
    # fewer than k directions so far, or rows that span fewer: the others explain nothing
    more = np.linalg.qr(np.hstack([U, np.eye(len(U), k)]))[0][:, :k]
    return np.pad(np.square(s), (0, k - len(s))), more
