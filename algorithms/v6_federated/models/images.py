"""Networks for images of any size, with one channel or three.

All norms are of each image alone, such as group norm (Wu and He 2018), so that there are no statistics of batches to
average.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from v6_federated.base.errors import SafeError
from v6_federated.models import CROP, LARGE_IMAGE, image_of
from v6_federated.models.torch_base import Network
from v6_federated.models.traits import Traits

GROUPS = 32  # of channels; a small network has 8
CONTRAST = 0.2, 1.8  # least and largest factor


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


class Distortions(nn.Module):
    """The input of TensorFlow's tutorial on CIFAR-10, which McMahan uses: a crop of each image, distorted, whitened.

    Training sees a random crop, half of them flipped left to right, with a random contrast: one factor an image, about
    the mean of each channel. Evaluation sees the crop in the middle. The tutorial also adds a random number, the
    brightness, to all values of an image; whitening takes the mean away and that number with it, so it is left out.

    Args:
        crop: width and height of a crop, in pixels.
    """

    def __init__(self, crop: int) -> None:
        super().__init__()
        self.crop = crop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Crops (n, channels, crop, crop) of images (n, channels, height, width)."""
        height, width = x.shape[2:]
        if self.training:
            return whitened(self._distorted(x))
        top, left = (height - self.crop) // 2, (width - self.crop) // 2
        return whitened(x[:, :, top : top + self.crop, left : left + self.crop])

    def _distorted(self, x: torch.Tensor) -> torch.Tensor:
        n, _, height, width = x.shape
        # four numbers an image from the processor's generator: neither chunks nor the device change what an image gets
        top, left, side, contrast = torch.rand(n, 4, dtype=torch.float64).T[:, :, None]
        along = torch.arange(self.crop)
        rows = (top * (height - self.crop + 1)).long() + along
        columns = (left * (width - self.crop + 1)).long() + torch.where(side < 0.5, along, along.flip(0))
        each = torch.arange(n)[:, None, None]
        x = x[each.to(x.device), :, rows[:, :, None].to(x.device), columns[:, None].to(x.device)].permute(0, 3, 1, 2)
        least, most = CONTRAST
        factor = (least + (most - least) * contrast).to(x)[:, :, None, None]
        mean = x.mean(dim=(2, 3), keepdim=True)
        distorted: torch.Tensor = mean + factor * (x - mean)
        return distorted


def whitened(x: torch.Tensor) -> torch.Tensor:
    """Images (n, channels, height, width) with mean 0 and deviation 1 each.

    An image of one colour stays 0: deviations below 1 / sqrt(numbers of an image) of 255 count as that, as in the
    tutorial, whose pixels are numbers up to 255. Here they are numbers up to 1.
    """
    x = x - x.mean(dim=(1, 2, 3), keepdim=True)
    deviation = x.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    return x / deviation.clamp(1 / math.sqrt(math.prod(x.shape[1:])) / 255)


class LocalResponseNorm(nn.Module):
    """Krizhevsky et al. 2012, section 3.3, with the tutorial's numbers: x / (1 + 0.001 / 9 sum of x^2)^0.75.

    The sum is over 9 channels, 4 to each side. torch's own layer computes the same, but on a GPU it adds up its
    gradient in no fixed order.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute it for each pixel: (n, channels, height, width)."""
        channels = x.shape[1]
        squares = functional.pad(x * x, (0, 0, 0, 0, 4, 4))
        total = squares[:, :channels]
        for i in range(1, 9):
            total = total + squares[:, i : i + channels]
        return x / (1 + 0.001 * (total / 9)) ** 0.75


def cnn_cifar(features: int, classes: int, crop: int = CROP, **options: int) -> Images:
    """McMahan section 3, CIFAR-10: two convolutions 5x5x64, dense 384, dense 192, linear, on crops of 24 x 24 pixels.

    As in TensorFlow's tutorial, each convolution is followed by 3x3 max pooling with stride 2 and by local response
    normalization over 9 channels, the second one in the other order. The tutorial's penalty on the dense layers'
    weights is left out, since the paper does not mention it.
    """
    image = channels, height, width = image_of(features, **options)
    if crop > min(height, width):
        raise SafeError(
            f"images of {height} x {width} pixels are smaller than crops of {crop} x {crop}; set the option crop to "
            f"{min(height, width)} or less"
        )
    norm, pool = LocalResponseNorm(), nn.MaxPool2d(3, 2, ceil_mode=True)
    layers = [Distortions(crop), nn.Conv2d(channels, 64, 5, padding=2), nn.ReLU(), pool, norm]
    layers += [nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), norm, pool]
    layers += [nn.Flatten(), nn.Linear(64 * (crop // 4) ** 2, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU()]
    model = Images(nn.Sequential(*layers, nn.Linear(192, classes)), image)
    model.traits = Traits(random=True)
    return model


ARCHITECTURES: dict[str, Callable[..., Images]] = {"cnn": cnn, "cnn_cifar": cnn_cifar, "resnet18": resnet18}
