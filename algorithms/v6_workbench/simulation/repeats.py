"""The same experiment again, with rows dealt and held out differently."""

from collections.abc import Iterator
from dataclasses import replace

from v6_federated.base.randomness import generator
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment


def repeated(experiment: Experiment, repeats: int) -> Iterator[Experiment]:
    """Repeat an experiment. Which rows a node holds out follows from their order, so the rows are shuffled.

    Args:
        experiment: the experiment.
        repeats: how often, R.

    Yields:
        R experiments: the experiment itself, then others, whose seeds of job and partition are 1, 2, ... larger.
    """
    yield experiment
    for r in range(1, repeats):
        dataset = experiment.dataset
        order = generator(experiment.partition_seed, "repeats", r).permutation(len(dataset))
        yield replace(
            experiment,
            dataset=Dataset(dataset.name, dataset.take(order), dataset.test),
            seed=experiment.seed + r,
            partition_seed=experiment.partition_seed + r,
        )
