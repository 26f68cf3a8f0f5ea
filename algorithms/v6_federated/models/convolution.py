"""Networks with convolutions.

Each function builds the network of a paper for images of ``features`` pixels and a number of ``classes``; it raises
SafeError if the image is not a square of 4 x 4 pixels or more.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.models.torch_base import Network


class Convolution(Network):
    """A model of square images with one channel. A row holds the side * side pixels of an image.

    Args:
        module: maps images (n, 1, side, side) to decision values (n, classes), with linear layers and convolutions.
        side: width and height of an image, in pixels.
    """

    inputs_first, block = False, 64  # for clipping, as row_gradients; gradients are written out

    def __init__(self, module: nn.Module, side: int) -> None:
        super().__init__(module)
        self.side = side

    def inputs(self, X: Any) -> torch.Tensor:
        """Rows (n, features) as images (n, 1, side, side), channels last in memory, which torch computes faster."""
        return self.asarray(X).view(-1, self.side, self.side, 1).permute(0, 3, 1, 2)

    def row_gradients(self, w: Any, X: Any, y: Any) -> tuple[list[Array | None], list[Array]]:
        """Compute the gradient of each row's loss, see ``clipping.RowGradients``.

        A convolution adds up products over the image, so its gradients are written out; its parameters are few.

        Args:
            w: parameters (d,).
            X: rows (n, features).
            y: their classes (n,).

        Returns:
            Inputs (n, in) and signals (n, out) of linear layers; None and gradients (n, parameters) of convolutions.
        """
        self._load(w)
        seen: list[tuple[nn.Module, torch.Tensor, torch.Tensor]] = []
        layers = [layer for layer in self.module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
        hooks = [
            layer.register_forward_hook(lambda *call: seen.append((call[0], *call[1], call[2]))) for layer in layers
        ]
        try:
            z = self.module(self.inputs(X))
        finally:
            for hook in hooks:
                hook.remove()
        loss = functional.cross_entropy(z, self.targets(X, y), self.weights, reduction="sum")
        slopes = torch.autograd.grad(loss, [output for _, _, output in seen])
        inputs, signals = list[Array | None](), list[Array]()
        for (layer, h, _), slope in zip(seen, slopes, strict=True):
            if isinstance(layer, nn.Conv2d):
                inputs.append(None)
                signals.append(_written_out(layer, h.detach(), slope).cpu().numpy())
            else:
                inputs.append(h.detach().cpu().numpy())
                signals.append(slope.cpu().numpy())
        return inputs, signals


def _written_out(layer: nn.Conv2d, images: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """The gradient by a convolution's W and b of each image, (n, parameters)."""
    assert layer.groups == 1 and not isinstance(layer.padding, str)  # as all of the convolutions below
    patches = functional.unfold(images, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    slopes = slopes.flatten(2)
    return torch.cat([(slopes @ patches.mT).flatten(1), slopes.sum(2)], dim=1)


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
