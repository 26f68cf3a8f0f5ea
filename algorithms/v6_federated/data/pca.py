"""Principal components of the rows of all nodes (Garst 2021, Algorithm 3): the method ``v6_pca`` and the step ``pca``.

Symbols: K nodes, n_k rows X_k (n_k, d) of node k, n rows in all, mean and std (d,) over all rows, s (d,) what columns
are divided by (1, or std), A (d, d) the sum of the K matrices ((X_k - mean) / s)^T ((X_k - mean) / s), k components.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.masks import exact
from v6_federated.masks.exact import Exact
from v6_federated.messages import codec
from v6_federated.noise import units

SolverName = Literal["auto", "exact", "subspace"]
EXACT = 1000  # columns up to which "auto" forms A: 500,500 numbers a node
OVERSAMPLING = 5
ITERATIONS = 6
TOLERANCE = 1e-3
ROWS = 256  # rows that a node centres at a time: a copy of all of them would double its memory

Ask = Callable[..., Sequence[Any]]  # asks the nodes for a statistic of their rows; answers by ascending id


@dataclass(frozen=True)
class Moments:
    """Moments of the rows of all nodes.

    Attributes:
        n: the number of rows.
        mean: of each column, (d,) float64.
        squares: sum of squares about the mean, (d,) float64.
    """

    n: int
    mean: Array
    squares: Array

    @property
    def std(self) -> Array:
        """Standard deviation (d,), n in the denominator."""
        return np.sqrt(self.squares / self.n)

    def scale(self) -> Array:
        """Return what centred columns are divided by, (d,): std, and 1 for a constant column."""
        scale = self.std
        scale[scale <= 1e-12 * np.abs(self.mean)] = 1
        return scale


class Eigen(NamedTuple):
    """The largest eigenvalues (k,) of A in descending order and their vectors (d, k).

    ``change`` is the largest relative change of a value in the last round of the subspace solver; None if they are
    exact.
    """

    values: Array
    vectors: Array
    change: float | None = None


@dataclass(frozen=True)
class Components:
    """What is fitted, float64; names and signs are scikit-learn's.

    Attributes:
        mean: of each column over all rows, (d,).
        std: of each column over all rows, n in the denominator, (d,).
        scale: what centred columns are divided by, (d,): ones, or std with 1 for constant columns.
        components: rows (k, d) of length 1; the loading of each that is largest in absolute value is positive.
        explained_variance: of each component, (k,), n - 1 in the denominator.
        explained_variance_ratio: the share of all variance, (k,).
    """

    mean: Array
    std: Array
    scale: Array
    components: Array
    explained_variance: Array
    explained_variance_ratio: Array

    @classmethod
    def of(cls, moments: Moments, scale: Array, eigen: Eigen) -> "Components":
        """Compute the components from eigenvalues and eigenvectors of A.

        Args:
            moments: moments of the rows of all nodes.
            scale: what columns are divided by, (d,).
            eigen: eigenvalues and eigenvectors.

        Returns:
            The components.
        """
        values, vectors, _ = eigen
        V = vectors.T * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))])[:, None]
        variance, ratio = values / (moments.n - 1), values / total_squares(moments, scale)
        return cls(moments.mean, moments.std, scale, np.ascontiguousarray(V), variance, ratio)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name."""
        return dict(vars(self))


# ---- what a node computes


def moments(X: Array) -> dict[str, Array]:
    """Compute the moments of a node's rows.

    Args:
        X: the rows (n, d).

    Returns:
        ``mean`` and ``mean_rest``, two float32 parts of the mean (d,), see ``codec.two_parts``; and ``squares`` (d,),
        the sum of squares about the mean, float64.
    """
    mean = X.mean(axis=0)
    centred = X - mean
    rest = centred.mean(axis=0)  # corrects the first mean: numpy adds row by row, and errors add up over many rows
    mean, centred = mean + rest, np.subtract(centred, rest, out=centred)
    return {**codec.two_parts("mean", mean), "squares": np.square(centred, out=centred).sum(axis=0)}


def covariance(X: Array, mean: Array, scale: Array, pause: Callable[[], None] = lambda: None) -> Array:
    """Compute a node's part of A.

    Args:
        X: the rows (n, d).
        mean: what columns are centred by, (d,).
        scale: what they are divided by, (d,).
        pause: is called before each block of rows.

    Returns:
        Its upper triangle, row by row, (d (d + 1) / 2,).
    """
    d = X.shape[1]
    A = np.zeros((d, d))
    for rows in _centred(X, mean, scale):
        pause()
        A += rows.T @ rows
    return A[np.triu_indices(d)]


def product(X: Array, mean: Array, scale: Array, Q: Array, pause: Callable[[], None] = lambda: None) -> Array:
    """Compute a node's part of A Q; A is never formed.

    Args:
        X: the rows (n, d).
        mean: what columns are centred by, (d,).
        scale: what they are divided by, (d,).
        Q: a block (d, l).
        pause: is called before each block of rows.

    Returns:
        (d, l).
    """
    Y = np.zeros(Q.shape)
    for rows in _centred(X, mean, scale):
        pause()
        Y += rows.T @ (rows @ Q)
    return Y


def exact_covariance(X: Array) -> Exact:
    """Compute a node's part of A without rounding: exact sums of products of the numbers of each row.

    Args:
        X: the rows (n, d), centred and divided.

    Returns:
        Its upper triangle, row by row, (d (d + 1) / 2,).
    """
    i, j = np.triu_indices(d := X.shape[1])
    return exact.products(X).take(i * d + j)


def exact_product(X: Array, Q: Array) -> Exact:
    """Compute a node's part of A Q without rounding, but for X Q, of each row by itself.

    Args:
        X: the rows (n, d), centred and divided.
        Q: a block (d, l).

    Returns:
        (d, l), row by row.
    """
    return exact.products(X, exact.EXACTLY.linear(X, Q))


def project(X: Array, mean: Array, scale: Array, components: Array) -> Array:
    """Project rows on components: ((X - mean) / scale) components^T.

    Args:
        X: the rows (n, d).
        mean: what columns are centred by, (d,).
        scale: what they are divided by, (d,).
        components: the components (k, d).

    Returns:
        (n, k), float64.
    """
    parts = [rows @ components.T for rows in _centred(X, mean, scale)]
    return np.concatenate(parts) if parts else np.empty((0, len(components)))


def clipped_moments(X: Array, clip: float) -> Array:
    """Add up rows, each clipped to a norm, and the products of their columns, as whole numbers.

    A row x becomes z = u x / max(||x||, C), u = ``units.MOMENT``, whose numbers are cut to whole ones towards zero, so
    that ||z|| is u at most: rounding in float64 makes ||x|| and u x / ||x|| wrong by less than 2^-30 of themselves (d
    is far below 2^22), and u is taken smaller by 2^-29. What a row adds, u z and the products z_i z_j with i <= j, has
    a norm of at most sqrt(u^2 ||z||^2 + ||z||^4) <= sqrt(2) u^2, see ``moments_sensitivity``. A row that is not finite
    adds nothing. Sums of 256 rows are exact in float64, and are then added as whole numbers.

    Args:
        X: the rows (n, d).
        clip: C, the largest norm of a row.

    Returns:
        (d + d (d + 1) / 2,) int64: u times the sum of z, and the upper triangle of the sum of z z^T, row by row.
    """
    d, u = X.shape[1], units.MOMENT
    first, second = np.zeros(d, np.int64), np.zeros((d, d), np.int64)
    for start in range(0, len(X), ROWS):
        rows = X[start : start + ROWS].astype(np.float64)
        rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
        norms = np.sqrt(np.vecdot(rows, rows))
        z = np.trunc(rows * (u * (1 - 2.0**-29) / np.maximum(norms, clip))[:, None])
        first += z.sum(axis=0).astype(np.int64)
        second += (z.T @ z).astype(np.int64)
    return np.concatenate([u * first, second[np.triu_indices(d)]])


def moments_sensitivity() -> float:
    """Bound how far one row can move ``clipped_moments``: the L2 norm, in its units."""
    return math.sqrt(2) * units.MOMENT**2


def of_clipped_moments(total: Array, d: int, n: int, clip: float) -> tuple[Moments, Array]:
    """Read the sum of ``clipped_moments`` over all nodes, with noise.

    Args:
        total: the sum (d + d (d + 1) / 2,).
        d: number of columns.
        n: number of rows.
        clip: C.

    Returns:
        The moments, and A (d, d), not divided by any scale. A sum of squares that noise has made negative is 0 in the
        moments.

    Raises:
        SafeError: noise hides all variances.
    """
    unit = clip / units.MOMENT
    mean = total[:d] * (unit / units.MOMENT / n)
    A = np.zeros((d, d))
    A[np.triu_indices(d)] = total[d:] * unit**2
    A -= n * np.triu(np.outer(mean, mean))
    squares = np.maximum(np.diag(A), 0)
    if not squares.any():
        raise SafeError("noise is larger than the variance of every column; set a larger epsilon, or ask more nodes")
    return Moments(n, mean, squares), A


def variance_of_noise(scale: Array, n: int, clip: float, deviation: float, rng: np.random.Generator) -> float:
    """Say what variance the first component would have if there were only noise.

    Args:
        scale: what columns are divided by, (d,).
        n: number of rows.
        clip: C.
        deviation: standard deviation of the noise of the sum, over what one row can change.
        rng: draws noise of the same kind.

    Returns:
        The median of the largest eigenvalue, in five draws.
    """
    d, sigma = len(scale), deviation * math.sqrt(2) * clip**2 / (n - 1)
    draws = []
    for _ in range(5):
        noise = np.triu(rng.normal(0, sigma, (d, d)))
        draws.append(eigen(noise / np.outer(scale, scale), 1).values[0])
    return float(np.median(draws))


def _centred(X: Array, mean: Array, scale: Array) -> Any:
    for start in range(0, len(X), ROWS):
        rows = X[start : start + ROWS] - mean
        rows /= scale
        yield rows


# ---- what the server computes


def pooled_moments(answers: Sequence[Any]) -> Moments:
    """Combine the nodes' moments.

    Args:
        answers: what each node returned from ``moments``, with its number of rows.

    Returns:
        The moments of the rows of all nodes.
    """
    n = sum(a.n for a in answers)
    means = [codec.whole(a.arrays, "mean") for a in answers]
    mean = np.asarray(sum(a.n / n * m for a, m in zip(answers, means, strict=True)))
    squares = sum(a["squares"] + a.n * np.square(m - mean) for a, m in zip(answers, means, strict=True))
    return Moments(n, mean, np.asarray(squares))


def total_squares(moments: Moments, scale: Array) -> float:
    """Add up the squares of all columns about their means.

    Args:
        moments: moments of the rows of all nodes.
        scale: what columns are divided by, (d,).

    Returns:
        The sum.
    """
    return float((moments.squares / np.square(scale)).sum())


def chosen(solver: SolverName, d: int) -> SolverName:
    """Choose the solver.

    Args:
        solver: what the request names.
        d: number of columns.

    Returns:
        The solver that is named; for "auto", exact for up to ``EXACT`` columns and subspace for more.
    """
    if solver == "auto":
        return "exact" if d <= EXACT else "subspace"
    return solver


def number_of_components(components: int | None, moments: Moments, scale: Array) -> int:
    """Settle k, the number of components.

    Args:
        components: how many are asked for; None means all.
        moments: moments of the rows of all nodes.
        scale: what columns are divided by, (d,).

    Returns:
        k.

    Raises:
        SafeError: there are not as many components, or none because no column varies.
    """
    n, d = moments.n, len(moments.mean)
    if n < 2:
        raise SafeError("one row has no principal components; expected at least two rows")
    if not total_squares(moments, scale) > 0:
        raise SafeError("all columns are constant; expected at least one that varies")
    k = min(n, d) if components is None else components
    if k > min(n, d):
        raise SafeError(
            f"components={k} is refused: {n} rows of {d} columns have {min(n, d)}; expected at most {min(n, d)}"
        )
    return k


def pooled_covariance(answers: Sequence[Any], d: int) -> Array:
    """Add up the nodes' parts of A.

    Args:
        answers: what each node returned from ``covariance``.
        d: number of columns.

    Returns:
        A (d, d); only its upper triangle is filled.
    """
    A = np.zeros((d, d))
    A[np.triu_indices(d)] = sum(a["covariance"] for a in answers)
    return A


def pooled_product(answers: Sequence[Any]) -> Array:
    """Add up the nodes' parts of A Q.

    Args:
        answers: what each node returned from ``product``.

    Returns:
        A Q (d, l).
    """
    return np.asarray(sum(a["product"].astype(np.float64) for a in answers))


def eigen(A: Array, k: int) -> Eigen:
    """Compute eigenvalues and eigenvectors of A exactly.

    Args:
        A: (d, d); only its upper triangle is read.
        k: how many are wanted.

    Returns:
        The k largest eigenvalues and their vectors.
    """
    values, vectors = np.linalg.eigh(A, UPLO="U")
    return Eigen(np.maximum(values[::-1][:k], 0), vectors[:, ::-1][:, :k])


def subspace(
    ask: Ask,
    moments: Moments,
    scale: Array,
    k: int,
    tolerance: float = TOLERANCE,
    iterations: int = ITERATIONS,
) -> Eigen:
    """The k largest eigenvalues and eigenvectors of A from its products with blocks (d, l); A is never formed.

    Subspace iteration that keeps the blocks of all rounds (block Krylov, Musco and Musco 2015): after t rounds it has
    the products of A with a basis of t l vectors, and replaces A by its Nystroem approximation from them (Tropp et al.
    2017), whose eigenvectors lie in the span of the products: that is the next power of A without its round. As the
    basis grows, l = k / 2 + 5 brings more for the same bytes than l > k. The first block is drawn from a seed that the
    nodes know; the others are sent in float16, since any basis will do if both sides use the same numbers.

    Args:
        ask: ``ask("product", **arguments)`` brings the nodes' products with a block, one round each.
        moments: of the rows of all nodes.
        scale: what columns are divided by, (d,).
        k: how many eigenvalues are wanted.
        tolerance: ends once no eigenvalue has changed by more than this share of it in a round.
        iterations: rounds at most. It also ends when the blocks span all that n rows can.

    Returns:
        Eigenvalues, eigenvectors, and the last change; None if the blocks span all.

    Raises:
        SafeError: so many iterations cannot bring k components.
    """
    n, mean, d = moments.n, moments.mean, len(moments.mean)
    sent_mean = mean.astype(np.float32)
    shift = (mean - sent_mean) / scale  # of the rows as the nodes centre them; it is subtracted from their A again
    most, l = min(n - 1, d), min(k // 2 + OVERSAMPLING, d)
    if iterations * l < min(k, most):
        raise SafeError(f"iterations={iterations} are too few for components={k}; expected at least {-(-k // l)}")
    basis, products = np.empty((d, 0)), np.empty((d, 0))
    sent: dict[str, Any] = {"draw": l}
    before: Array = np.zeros(k)
    for _ in range(iterations):
        Q = read_block(d, **sent)
        answers = ask("product", mean=sent_mean, scale=scale, precision="float32", **sent)
        Y = pooled_product(answers) - n * np.outer(shift, shift @ Q)
        basis, products = np.hstack([basis, Q]), np.hstack([products, Y])
        K, R = np.linalg.qr(basis)
        values, vectors = _nystroem(K, np.linalg.solve(R.T, products.T).T, k)
        if basis.shape[1] >= most:
            return Eigen(values, vectors)
        change = float(np.max(np.abs(values - before) / np.maximum(values, values[0] * 1e-6)))
        if change <= tolerance:
            break
        before = values
        W = Y - K @ (K.T @ Y)
        W -= K @ (K.T @ W)  # twice, against what rounding has left
        sent = {"block": codec.encode({"Q": np.linalg.qr(W)[0][:, : d - basis.shape[1]]}, "float16")}
    return Eigen(values, vectors, change)


def read_block(d: int, draw: int | None = None, block: Mapping[str, Any] | None = None) -> Array:
    """Draw or read a block. Nodes and central get the same numbers.

    Args:
        d: number of columns.
        draw: l, if the block is drawn.
        block: the block as a payload, if it was sent.

    Returns:
        The block (d, l), float64.

    Raises:
        SafeError: it has another shape.
    """
    if block is None:
        if type(draw) is not int or not 0 < draw <= d:
            raise SafeError(f"the task asks for a block of {draw} columns; expected from 1 to {d}")
        return generator(0, "subspace").standard_normal((d, draw), dtype=np.float32).astype(np.float64)
    Q = codec.decode(block).get("Q")
    if Q is None or Q.ndim != 2 or len(Q) != d or Q.shape[1] > d:
        raise SafeError(f"the task sends a block of another shape; expected Q with {d} rows and at most {d} columns")
    return Q.astype(np.float64)


def _nystroem(K: Array, AK: Array, k: int) -> tuple[Array, Array]:
    """The k largest eigenvalues and their vectors of AK (K^T AK)^+ (AK)^T, K (d, m) orthonormal."""
    M = K.T @ AK
    w, V = np.linalg.eigh((M + M.T) / 2)
    kept = w > 1e-8 * w[-1]  # smaller ones are noise of products in float32
    U, s, _ = np.linalg.svd(AK @ (V[:, kept] / np.sqrt(w[kept])), full_matrices=False)
    if len(s) >= k:
        return np.square(s[:k]), U[:, :k]
    # fewer than k directions so far, or rows that span fewer: the other components explain nothing
    more = np.linalg.qr(np.hstack([U, np.eye(len(U), k)]))[0][:, :k]
    return np.pad(np.square(s), (0, k - len(s))), more
