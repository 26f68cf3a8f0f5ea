"""The server of federated principal component analysis."""

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from v6_federated import LARGE, Excludes, Federation, Number, Plan, Result, Rounds, SafeError, central, codec, pca

Components = Annotated[
    int | None, Field(ge=1, le=LARGE, description="k, principal components (unset: all; exact solver only)"), Number
]
Solver = Annotated[
    pca.SolverName,
    Field(description="exact: one round for the covariance; subspace: none is formed; auto: by columns"),
    Excludes("clip", when="subspace", because="each of its rounds would need noise"),
]
Scale = Annotated[bool, Field(description="divide columns by their deviation: components of the correlation matrix")]
Tolerance = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="relative change of variances at which subspace ends"), Number
]
Iterations = Annotated[int, Field(ge=1, le=LARGE, description="most rounds of the subspace solver"), Number]


def check_settings(settings: Any) -> None:
    """Reject too few rounds.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: they are too few.
    """
    if settings.rounds < 2:
        raise SafeError(f"rounds={settings.rounds} are too few; expected at least 2, for moments and covariance")


def one_sum(settings: Any) -> Plan:
    """With noise a node is asked for one sum of its clipped rows and of their products."""
    return Plan(statistics=1)


@central(supervised=False, private=one_sum, check=check_settings)
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
    = ((X_k - mean) / s)^T ((X_k - mean) / s), A their sum, k = components. What leaves a node: n_k, its mean and sums
    of squares (d,); then, exact, A_k; subspace, in each round A_k times a block (d, k / 2 + 5), and never A_k. Its rows
    on the components (n_k, k) stay at the node, in the job's folder. Bytes up a node: exact 16/3 d (d + 1), in float64;
    subspace 16/3 d (k / 2 + 5) a round and half of that down; in the last round 16/3 d k down.
    """
    d = len(federation.features)
    if federation.plan is not None:
        return with_noise(federation, federation.plan, components, scale)
    solver = pca.chosen(solver, d)
    if solver == "subspace" and components is None:
        raise SafeError("components is missing: the subspace solver needs their number, for example components=50")
    for nodes in federation.same_nodes(rounds):  # each statistic is a round; after a drop-out, again
        with nodes:
            moments = pca.pooled_moments(nodes.ask("moments"))  # lines 1 to 5
            s = moments.scale() if scale else np.ones(d)  # line 11, which forgets the root of diag(A)
            k = pca.number_of_components(components, moments, s)
            if solver == "exact":
                # lines 6 to 16: the moments have told std already, so one round is enough
                A = pca.pooled_covariance(nodes.ask("covariance", mean=moments.mean, scale=s), d)
                eigen = pca.eigen(A, k)  # line 17
            else:
                eigen = pca.subspace(nodes.ask, moments, s, k, tolerance, min(iterations, rounds - 1))
    fitted = pca.Components.of(moments, s, eigen)
    sent = {**codec.two_parts("mean", fitted.mean), "scale": fitted.scale, "components": fitted.components}
    kept = federation.ask("transform", federation.organizations, values=["kept"], **sent)  # lines 18 to 20
    federation.record(nodes.answers + kept.parts())
    return finished(federation, fitted, solver, scale, change=eigen.change)


def with_noise(federation: Federation, plan: Plan, components: int | None, scale: bool) -> Result:
    """PCA from one noisy sum of clipped rows x and of x x^T: A is that of the clipped rows, and an approximation.

    All that follows is computed from the sum. Nodes keep no rows on the components.
    """
    d = len(federation.features)
    if d > pca.EXACT:
        raise SafeError(f"{d} columns are too many for PCA with clip; expected at most {pca.EXACT:,}")
    for _ in federation.rounds(1):
        answers = federation.ask("noisy_moments", federation.organizations, d=d)
        moments, A = pca.of_clipped_moments(federation.noisy_sum(answers, "moments"), d, answers.n, plan.clip)
        deviation = plan.statistics_noise * federation.noises(answers) ** 0.5
        federation.record(answers)
    s = moments.scale() if scale else np.ones(d)
    k = pca.number_of_components(components, moments, s)
    fitted = pca.Components.of(moments, s, pca.eigen(A / np.outer(s, s), k))
    noise = pca.variance_of_noise(s, moments.n, plan.clip, deviation, np.random.default_rng(0))
    return finished(federation, fitted, "exact", scale, variance_of_noise=noise)


def finished(federation: Federation, fitted: pca.Components, solver: str, scale: bool, **final: float | None) -> Result:
    """The result, with the components as the model, and what else is said about its end."""
    k, d = fitted.components.shape
    model = {"name": "pca", "features": d, "components": k, "solver": solver, "scale": scale}
    final = {**final, "explained_variance_ratio": float(fitted.explained_variance_ratio.sum())}
    learned = codec.encode(fitted.arrays(), "float64")
    return {**federation.finished(final, weights=learned, model=model), "job": federation.job()}
