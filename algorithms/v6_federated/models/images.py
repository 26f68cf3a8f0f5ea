"""Networks for images of any size, with one channel or three, normed by groups of channels.

Group norm (Wu and He 2018) is of each image alone, so that there are no statistics of batches to average.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from v6_federated.models import LARGE_IMAGE, image_of
from v6_federated.models.torch_base import Network

GROUPS = 32  # of channels; a small network has 8


class Images(Network):
    """A model of images. A row holds the height * width * channels numbers of an image, channels last.

    Args:
        module: maps images (n, channels, height, width) to decision values (n, classes).
        image: channels, height and width.
    """

    def __init__(self, module: nn.Module, image: tuple[int, int, int]) -> None:
        super().__init__(module)
        self.image = image

    def inputs(self, X: Any) -> torch.Tensor:
        """Rows (n, features) as images (n, channels, height, width), channels last in memory."""
        channels, height, width = self.image
        return self.asarray(X).view(-1, height, width, channels).permute(0, 3, 1, 2)


class Mean(nn.Module):
    """The mean over all pixels: (n, channels, height, width) to (n, channels)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute it."""
        return x.mean(dim=(2, 3))


class Block(nn.Module):
    """He et al. 2016, Figure 2: two 3x3 convolutions, and the input added to what they give.

    Args:
        a: channels of the input.
        b: channels of the output.
        stride: of the first convolution. If it is not 1, or b is not a, the input passes a 1x1 convolution.
    """

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(a, b, 3, stride, padding=1, bias=False), nn.GroupNorm(GROUPS, b)
        self.conv2, self.norm2 = nn.Conv2d(b, b, 3, padding=1, bias=False), nn.GroupNorm(GROUPS, b)
        self.shortcut = nn.Sequential()
        if stride != 1 or a != b:
            self.shortcut.append(nn.Conv2d(a, b, 1, stride, bias=False)).append(nn.GroupNorm(GROUPS, b))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the output (n, b, height / stride, width / stride)."""
        z = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(z)) + self.shortcut(x))


def resnet18(features: int, classes: int, **options: int) -> Images:
    """He et al. 2016, Table 1, 18 layers, with group norm; of images up to 64 pixels the stem keeps the size."""
    image = channels, height, width = image_of(features, **options)
    if max(height, width) > LARGE_IMAGE:
        stem = [nn.Conv2d(channels, 64, 7, 2, 3, bias=False), nn.GroupNorm(GROUPS, 64), nn.ReLU()]
        stem.append(nn.MaxPool2d(3, 2, 1))
    else:
        stem = [nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.GroupNorm(GROUPS, 64), nn.ReLU()]
    blocks = [Block(64, 64, 1), Block(64, 64, 1)]
    for b in (128, 256, 512):
        blocks += [Block(b // 2, b, 2), Block(b, b, 1)]
    return Images(nn.Sequential(*stem, *blocks, Mean(), nn.Linear(512, classes)), image)


def cnn(features: int, classes: int, **options: int) -> Images:
    """Three 3x3 convolutions to 32, 64 and 128 channels, each with group norm and 2x2 max pooling; mean; linear."""
    image = image_of(features, **options)
    layers: list[nn.Module] = []
    for a, b in ((image[0], 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.ReLU(), nn.MaxPool2d(2)]
    return Images(nn.Sequential(*layers, Mean(), nn.Linear(128, classes)), image)


ARCHITECTURES: dict[str, Callable[..., Images]] = {"cnn": cnn, "resnet18": resnet18}
