"""The networks of the comparison, in torch with autograd, for MNIST; and their rows. Needs torch and numpy alone."""

import functools
from pathlib import Path

import numpy as np
import torch
from torch import nn

BATCH, CLIENTS, LR = 10, 10, 0.1


def network(model: str) -> nn.Module:
    """Build logistic regression, McMahan's 2NN or McMahan's CNN.

    Args:
        model: "logreg", "2nn" or "cnn_mcmahan".

    Returns:
        Maps rows (n, 784) to decision values (n, 10).
    """
    if model == "logreg":
        return nn.Linear(784, 10)
    if model == "2nn":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


@functools.cache  # read once in each process
def rows(folder: str) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], tuple[torch.Tensor, torch.Tensor]]:
    """Read the rows of each client, and the test rows.

    Args:
        folder: holds the arrays X, y, X_test and y_test, each a file of numpy's; the first two have an axis of clients.

    Returns:
        (X, y) of each client, and of the test rows.
    """
    X, y, X_test, y_test = (
        torch.from_numpy(np.load(Path(folder) / f"{name}.npy")) for name in ("X", "y", "X_test", "y_test")
    )
    return list(zip(X, y, strict=True)), (X_test, y_test)
