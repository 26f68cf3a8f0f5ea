"""Networks with convolutions.

Each function builds the network of a paper for images of ``features`` pixels and a number of ``classes``; it raises
SafeError if the image is not a square of 4 x 4 pixels or more.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from v6_federated.base.errors import SafeError
from v6_federated.models.torch_base import Network


class Convolution(Network):
    """A model of square images with one channel. A row holds the side * side pixels of an image.

    Args:
        module: maps images (n, 1, side, side) to decision values (n, classes).
        side: width and height of an image, in pixels.
    """

    def __init__(self, module: nn.Module, side: int) -> None:
        super().__init__(module)
        self.side = side

    def inputs(self, X: Any) -> torch.Tensor:
        """Rows (n, features) as images (n, 1, side, side), channels last in memory, which torch computes faster."""
        return self.asarray(X).view(-1, self.side, self.side, 1).permute(0, 3, 1, 2)


def _side(features: int) -> int:
    side = math.isqrt(features)
    if side * side != features or side < 4:
        raise SafeError(f"{features} features are not a square image; use for example 784 = 28 x 28 pixels")
    return side


POOLED = (nn.MaxPool2d(2), nn.ReLU())  # as in the other order, with a quarter of the ReLUs


def cnn_garst(features: int, classes: int) -> Convolution:
    """Garst Table B.2: convolution 3x3 to one channel, padding 1; max pool 2; linear."""
    side = _side(features)
    half = side // 2
    layers = [nn.Conv2d(1, 1, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(half * half, classes)]
    return Convolution(nn.Sequential(*layers), side)


def cnn_reddy(features: int, classes: int, dropout: float = 0.5) -> Convolution:
    """Reddy Table 4.4: convolution 3x3x32 valid, pool 2, dense 128, dropout (its rate is not printed), dense."""
    side = _side(features)
    half = (side - 2) // 2
    return Convolution(
        nn.Sequential(
            nn.Conv2d(1, 32, 3),
            *POOLED,
            nn.Flatten(),
            nn.Linear(32 * half * half, 128),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(128, classes),
        ),
        side,
    )


def cnn_mcmahan(features: int, classes: int) -> Convolution:
    """McMahan section 3: convolutions 5x5 to 32 and 64 channels, each with 2x2 max pooling, dense 512, softmax."""
    side = _side(features)
    quarter = side // 2 // 2
    return Convolution(
        nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2),
            *POOLED,
            nn.Conv2d(32, 64, 5, padding=2),
            *POOLED,
            nn.Flatten(),
            nn.Linear(64 * quarter * quarter, 512),
            nn.ReLU(),
            nn.Linear(512, classes),
        ),
        side,
    )


ARCHITECTURES: dict[str, Callable[..., Convolution]] = {
    "cnn_garst": cnn_garst,
    "cnn_reddy": cnn_reddy,
    "cnn_mcmahan": cnn_mcmahan,
}
