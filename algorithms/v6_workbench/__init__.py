"""The workbench: all that runs on a laptop, and in no image.

In Python and in notebooks, everything begins here::

    from v6_workbench import Experiment, load, plot

    experiment = Experiment(load(table), label="ill", nodes=5)
    federated = experiment.federated("fedavg", rounds=30, preprocess=["standardize"])
    centralized = experiment.centralized("fedavg", rounds=30, preprocess=["standardize"])
    plot({"federated": federated, "centralized": centralized})
"""

from typing import TYPE_CHECKING

from v6_federated.base import lazy

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

if not TYPE_CHECKING:  # the command line must start quickly
    __getattr__, __dir__ = lazy.names_of(__name__)
