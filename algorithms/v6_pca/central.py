"""The server of federated principal component analysis."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from v6_federated import (
    LARGE,
    Answer,
    Federation,
    Number,
    Result,
    Rounds,
    SafeError,
    central,
    codec,
    over_the_same,
    pca,
)

Components = Annotated[
    int | None, Field(ge=1, le=LARGE, description="k, principal components (unset: all; exact solver only)"), Number
]
Solver = Annotated[
    pca.SolverName,
    Field(description="exact: one round for the covariance; subspace: none is formed; auto: by columns"),
]
Scale = Annotated[bool, Field(description="divide columns by their deviation: components of the correlation matrix")]
Tolerance = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="relative change of variances at which subspace ends"), Number
]
Iterations = Annotated[int, Field(ge=1, le=LARGE, description="most rounds of the subspace solver"), Number]


@central(supervised=False)
def central(
    federation: Federation,
    *,
    components: Components = None,
    solver: Solver = "auto",
    scale: Scale = False,
    tolerance: Tolerance = pca.TOLERANCE,
    iterations: Iterations = pca.ITERATIONS,
    rounds: Rounds = 10,
) -> Result:
    """Federated PCA: Garst 2021, Algorithm 3, exact for up to 1,000 columns, by subspace iteration for more.

    Symbols: n_k rows X_k (n_k, d) of node k, mean, std (d,) over all n rows, s (d,) = std if scale, else 1, A_k (d, d)
    = ((X_k - mean) / s)^T ((X_k - mean) / s), k = components. What leaves a node: n_k, its mean and sums of squares
    (d,), then, exact, A_k; subspace, in each round A_k times a block (d, k / 2 + 5), and A_k never. Its rows on the
    components (n_k, k) stay at the node, in the job's folder. Bytes up a node: exact 16/3 d (d + 1), in float64;
    subspace 16/3 d (k / 2 + 5) a round and half of that down; in the last round 16/3 d k down.
    """
    if rounds < 2:
        raise SafeError(f"rounds={rounds} are too few; expected at least 2, for moments and covariance")
    round_ = federation.rounds(rounds)
    answers: list[Answer] = []

    def ask(organizations: Sequence[int], statistic: str, **arguments: Any) -> list[Answer]:
        nonlocal answers
        if answers:
            federation.record(answers)
        if next(round_, None) is None:
            raise SafeError(f"rounds={rounds} are too few: nodes dropped out and it began anew; expected more")
        answers = list(federation.statistic(statistic, organizations=organizations, **arguments).each())
        return answers

    d, most = len(federation.features), min(iterations, rounds - 1)
    fitted, _ = over_the_same(
        federation.organizations, ask, lambda ask_same: pca.fit(ask_same, d, components, solver, scale, tolerance, most)
    )
    sent = {**codec.two_parts("mean", fitted.mean), "scale": fitted.scale, "components": fitted.components}
    kept = federation.ask("transform", federation.organizations, returns={}, **sent)
    federation.record(answers + list(kept.each()))
    k = len(fitted.components)
    model = {"name": "pca", "features": d, "components": k, "solver": fitted.solver, "scale": scale}
    final = {"change": fitted.change, "explained_variance_ratio": float(fitted.explained_variance_ratio.sum())}
    learned = codec.encode(fitted.arrays(), "float64")
    return {**federation.finished(final, weights=learned, model=model), "job": federation.job()}
