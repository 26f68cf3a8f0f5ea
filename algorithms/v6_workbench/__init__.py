"""The workbench: all that runs on a laptop, and in no image.

In Python and in notebooks, everything begins here::

    from v6_workbench import Experiment, load, plot

    experiment = Experiment(load(table), label="ill", nodes=5)
    federated = experiment.federated("fedavg", rounds=30, preprocess=["standardize"])
    centralized = experiment.centralized("fedavg", rounds=30, preprocess=["standardize"])
    plot({"federated": federated, "centralized": centralized})
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from v6_federated import models
    from v6_workbench.notebook import coefficients, history, per_node, plot, predict
    from v6_workbench.reporting.export import save
    from v6_workbench.simulation.datasets import Dataset, load
    from v6_workbench.simulation.experiments import Experiment
    from v6_workbench.simulation.mock import MockNetwork

__all__ = [
    "Dataset",
    "Experiment",
    "MockNetwork",
    "coefficients",
    "history",
    "load",
    "models",
    "per_node",
    "plot",
    "predict",
    "save",
]

# where each name is; imported when it is used, since the command line must start quickly
_HOMES = {
    "Dataset": "v6_workbench.simulation.datasets",
    "Experiment": "v6_workbench.simulation.experiments",
    "MockNetwork": "v6_workbench.simulation.mock",
    "load": "v6_workbench.simulation.datasets",
    "models": "v6_federated",
    "save": "v6_workbench.reporting.export",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "v6_workbench.notebook")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
