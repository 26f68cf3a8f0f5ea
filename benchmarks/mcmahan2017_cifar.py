"""McMahan et al. 2017 on CIFAR-10: the first rounds of the TensorFlow tutorial's network, beside centralized SGD.

Clients, minibatches and the decay of the rate are those of the paper's Table 3. Its numbers are rounds to 80% and more,
280 at least, which take a core most of a day; none of ours is compared with them.
"""

import functools
from collections.abc import Iterator

from benchmarks import beside, runs, tables
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "mcmahan2017_cifar"
NODES, FRACTION, EPOCHS = 100, 0.1, 5
VALUES = {"model": "cnn_cifar", "lr": 0.1, "lr_decay_round": 0.99, "batch_size": 50}
ROUNDS, PASSES = 8, 4  # so that both take as many minibatches
# accuracy: the paper's updates of SGD (B = 100), and rounds of FedSGD and FedAvg (E = 5, B = 50), C = 0.1
PAPER = {"80%": (18000, 3750, 280), "82%": (31000, 6600, 630), "85%": (99000, None, 2000)}


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    """The paper's rounds, and our first ones."""
    yield "The paper's updates and rounds to an accuracy (Table 3):"
    yield ""
    yield from tables.head("accuracy", "SGD, B = 100", "FedSGD", "FedAvg, E = 5, B = 50")
    yield from (tables.row(accuracy, *counts) for accuracy, counts in PAPER.items())
    rounds, passes = (ROUNDS, PASSES) if full else (2, 1)
    rows = dataset if full else runs.first(dataset)
    experiment = Experiment(rows, NODES, "iid", 1, 1, processes=1)
    federated = {**VALUES, "fraction": FRACTION, "epochs": EPOCHS, "rounds": rounds}
    pooled = {**VALUES, "epochs": 1, "rounds": passes}
    kept = functools.partial(runs.kept, DOCUMENT, "fedavg", experiment, segment=1)
    ways = {
        "FedAvg": beside.Way(functools.partial(kept, federated), FRACTION * EPOCHS),
        "centralized SGD": beside.Way(functools.partial(kept, pooled, centralized=True), 1),
    }
    yield from beside.lines(DOCUMENT, "cnn_cifar on CIFAR-10", ways, full)


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables and the picture."""
    about = (
        "The network of TensorFlow's tutorial (`cnn_cifar`, 1,068,298 parameters; the paper says about 10^6) "
        + ("on CIFAR-10" if full else runs.FIRST)
        + f": {NODES} nodes with as many rows each, {FRACTION:.0%} of them a round, E = {EPOCHS}, B = "
        f"{VALUES['batch_size']}, a rate of {VALUES['lr']:g} that is multiplied by {VALUES['lr_decay_round']:g} each "
        "round; beside SGD on all rows with the same minibatches and rate, in which a round is a pass over the rows. "
        "Loss and accuracy on the test pictures. `cifar10.npz` holds `x_train` (50000, 32, 32, 3), `y_train`, `x_test` "
        "and `y_test`."
    )
    page = tables.Page(DOCUMENT, "McMahan et al. 2017 on CIFAR-10", full, about, file="cifar10.npz")
    tables.page(page, lines(dataset, full), 2)
