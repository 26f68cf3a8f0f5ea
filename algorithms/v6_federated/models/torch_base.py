"""Networks in torch: on the node's GPU if its operator offers one, otherwise on its processor."""

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.models.linear import predicted
from v6_federated.models.outcomes import Outcome
from v6_federated.models.traits import Traits
from v6_federated.rules.environment import number_of_threads

CHUNK, CHUNK_CPU = 5000, 100  # rows at once: bounds memory, and on a processor keeps activations in the cache
torch.set_num_threads(number_of_threads())  # the node limits the other libraries before it imports torch


def device() -> torch.device:
    """The device that the node's operator offers, ``V6_FEDERATED_DEVICE`` or else the processor.

    A GPU computes in float32, as a processor does, not in TF32, and with torch's deterministic algorithms.

    Returns:
        The device.

    Raises:
        SafeError: torch finds no such device.
    """
    name = os.environ.get("V6_FEDERATED_DEVICE", "") or "cpu"
    if name.startswith("cuda"):
        if not torch.cuda.is_available():
            raise SafeError(f"V6_FEDERATED_DEVICE={name}, but this node has no GPU that torch can use; set it to cpu")
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS would sum in varying order
        torch.use_deterministic_algorithms(True, warn_only=True)  # of convolutions and of embeddings' gradients
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device(name)


class Dropout(nn.Dropout):
    """Dropout whose masks are the same on every processor and device: torch draws its own differently on each."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Zero each number with probability p while training, and divide the others by 1 - p."""
        if not self.training or self.p == 0:
            return x
        kept = torch.rand(x.shape) >= self.p  # from the processor's generator
        return x * (kept * (1 / (1 - self.p) if self.p < 1 else 0.0)).to(x)


class Network:
    """A torch module whose parameters and gradients are views into flat float32 vectors.

    Methods without a docstring are explained in ``Model``. Layers ``nn.Dropout`` become ``Dropout``.

    Args:
        module: the network. It must have no buffers, such as batch norm's statistics: nothing would average them.

    Raises:
        SafeError: the module has buffers, or the node has no such device.
    """

    class_weights: Array | None = None  # (classes,), by which training multiplies the losses of rows
    traits = Traits()
    outcome: Outcome | None = None  # what the only output stands for, if the label is a number

    def __init__(self, module: nn.Module) -> None:
        if next(module.buffers(), None) is not None:
            raise SafeError(
                "a module with buffers (batch norm?) cannot be averaged; use layers without buffers, such as "
                "LayerNorm or GroupNorm"
            )
        self.device = device()
        self.chunk = CHUNK_CPU if self.device.type == "cpu" else CHUNK
        self.module = module.to(self.device)
        for layer in module.modules():
            if type(layer) is nn.Dropout:
                layer.__class__ = Dropout
            if isinstance(layer, nn.RReLU) or (isinstance(layer, nn.Dropout) and layer.p > 0):
                self.traits = replace(self.traits, random=True)
        self.shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        self.size = sum(math.prod(shape) for shape in self.shapes.values())
        self._gradient = torch.zeros(self.size, device=self.device)
        for p, g in zip(module.parameters(), self._views(self._gradient), strict=True):
            p.grad = g

    def inputs(self, X: Any) -> torch.Tensor:
        """Rows as the module takes them.

        Args:
            X: rows (n, features).

        Returns:
            The module's input for these rows.
        """
        return self.asarray(X)

    def targets(self, X: Any, y: Any) -> torch.Tensor:
        """What the module should output.

        Args:
            X: rows (n, features).
            y: their classes (n,).

        Returns:
            The class of each of the module's outputs: here those of the rows.
        """
        return self.asarray(y)

    @property
    def weights(self) -> torch.Tensor | None:
        """The weights of the classes, as torch takes them."""
        return None if self.class_weights is None else self.asarray(self.class_weights)

    def decided(self, z: torch.Tensor) -> torch.Tensor:
        """The outputs that are the rows' decision values.

        Args:
            z: the module's outputs for n rows.

        Returns:
            Decision values (n, classes): here all outputs.
        """
        return z

    def _views(self, w: torch.Tensor) -> list[torch.Tensor]:
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        return [part.view(shape) for part, shape in zip(torch.split(w, sizes), self.shapes.values(), strict=True)]

    def _load(self, w: Any) -> None:
        for p, view in zip(self.module.parameters(), self._views(self.asarray(w)), strict=True):
            p.data = view

    def init(self, rng: np.random.Generator) -> Array:
        """Draw W and b uniformly from +-1/sqrt(in), as torch does, with numpy's generator; norms start as 1 and 0."""
        parts, bound = [], 1.0
        for name, shape in self.shapes.items():
            if isinstance(self.module.get_submodule(name.rpartition(".")[0]), nn.GroupNorm | nn.LayerNorm):
                parts.append(np.full(shape, float(name.endswith("weight"))))
                continue
            if name.endswith("weight"):
                bound = 1 / math.sqrt(math.prod(shape[1:]))
            parts.append(rng.uniform(-bound, bound, math.prod(shape)))
        w: Array = np.concatenate(parts).astype(np.float32)
        return w

    def asarray(self, array: Any) -> torch.Tensor:
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            array = array.copy()  # torch has no read-only arrays
        return torch.as_tensor(array, device=self.device)

    def seed(self, rng: np.random.Generator) -> None:
        """Seed torch's generator of the processor, from which dropout draws."""
        torch.manual_seed(int(rng.integers(2**31)))

    def loss_and_gradient(self, w: Any, X: Any, y: Any) -> tuple[float, torch.Tensor]:
        self._load(w)
        self._gradient.zero_()
        if self.outcome is not None:
            return self._outcomes_loss_and_gradient(X, y)
        total = 0.0
        for i in range(0, len(y), self.chunk):
            rows, labels = X[i : i + self.chunk], y[i : i + self.chunk]
            z = self.module(self.inputs(rows))
            outputs = len(z) // len(labels) * len(y)
            loss = functional.cross_entropy(z, self.targets(rows, labels), self.weights, reduction="sum") / outputs
            torch.autograd.backward(loss)  # adds to the gradient
            total += float(loss.detach())
        return total, self._gradient

    def _outcomes_loss_and_gradient(self, X: Any, y: Any) -> tuple[float, torch.Tensor]:
        """The same for a number: all rows at once, since the loss of a time is no sum over parts of them."""
        assert self.outcome is not None
        z = self.module(self.inputs(X))
        losses, slopes = self.outcome.losses_and_slopes(z.detach().cpu().numpy()[:, 0], self.asarray(y).cpu().numpy())
        torch.autograd.backward(z, self.asarray((slopes / len(slopes)).astype(np.float32)[:, None]))
        return float(losses.mean()), self._gradient

    def scores(self, w: Any, X: Any) -> Array:
        self._load(w)
        self.module.train(False)
        with torch.no_grad():
            parts = [
                self.decided(self.module(self.inputs(X[i : i + self.chunk]))).cpu()
                for i in range(0, len(X), self.chunk)
            ]
        self.module.train()
        z = torch.cat(parts).numpy() if parts else np.empty((0, list(self.shapes.values())[-1][0]), np.float32)
        return z if self.outcome is None else self.outcome.predictions(z)

    def loss(self, scores: Array, y: Array) -> float:
        if self.outcome is not None:
            return float(self.outcome.losses(scores[:, 0], y).mean())
        return float(functional.cross_entropy(torch.from_numpy(scores), torch.as_tensor(np.asarray(y))))

    def predict(self, w: Any, X: Any) -> Array:
        scores = self.scores(w, X)
        return predicted(scores) if self.outcome is None else scores[:, 0]
