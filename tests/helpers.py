"""Small tables made anew from a fixed seed, and training on mock nodes."""

import numpy as np
import pandas as pd

from v6_workbench.simulation.mock import CallOutcome, MockNetwork

OPEN = {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "1"}  # laws on one node need it


def table(n: int = 40, d: int = 4, classes: int = 2, seed: int = 0, shift: float = 0.0) -> pd.DataFrame:
    """n rows of d features and a label in the last column, every class in 3 rows or more."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, d)) * 1.5
    X = rng.normal(size=(n, d)) + centres[y] + shift
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(d)]).assign(label=y)


def train(
    package: str,
    databases: dict,
    processes: int = 1,
    environment: dict | None = None,
    environments=None,
    stops=False,
    **settings,
):
    """Run a method on mock nodes, to its end, or (``stops``) to a failure after which the model of the last round is
    the result."""
    with MockNetwork(
        package,
        databases,
        environment={**OPEN, **(environment or {})},
        environments=environments,
        processes=processes,
        on_round=lambda row: None,
    ) as network:
        result = network.run(**settings)
    assert ("stopped" in result) == stops, result.get("stopped")
    return result


def spoilt(**changes):
    """CallOutcomes under which organization 2 answers its evaluations with ``changes``."""

    def alter(answer):
        if "evaluation" in answer:
            answer["evaluation"] |= changes
        return answer

    return lambda organization, input_: CallOutcome(alter=alter) if organization == 2 else CallOutcome()
