"""The server of federated principal component analysis."""

import functools
from collections.abc import Sequence
from typing import Any

from v6_federated import codec, functions
from v6_federated.components import ITERATIONS, TOLERANCE, fit
from v6_federated.errors import SafeError
from v6_federated.federation import Answer, Federation
from v6_federated.preparation import over_the_same
from v6_federated.settings import Components, Iterations, Rounds, Scale, Solver, Tolerance


@functools.partial(functions.central, supervised=False)
def central(
    federation: Federation,
    *,
    components: Components = None,
    solver: Solver = "auto",
    scale: Scale = False,
    tolerance: Tolerance = TOLERANCE,
    iterations: Iterations = ITERATIONS,
    rounds: Rounds = 10,
) -> dict[str, Any]:
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
        answers = federation.statistic(statistic, organizations=organizations, **arguments)
        return answers

    d, most = len(federation.features), min(iterations, rounds - 1)
    fitted, _ = over_the_same(
        federation.organizations, ask, lambda ask_same: fit(ask_same, d, components, solver, scale, tolerance, most)
    )
    sent = {**codec.two_parts("mean", fitted.mean), "scale": fitted.scale, "components": fitted.components}
    federation.record(answers + federation.ask("transform", federation.organizations, returns={}, **sent))
    k = len(fitted.components)
    model = {"name": "pca", "features": d, "components": k, "solver": fitted.solver, "scale": scale}
    final = {"change": fitted.change, "explained_variance_ratio": float(fitted.explained_variance_ratio.sum())}
    learned = codec.encode(fitted.arrays(), "float64")
    return {**federation.finished(final, weights=learned, model=model), "job": federation.job()}
