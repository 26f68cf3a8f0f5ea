"""Where a network starts: as ours do, or in another way that a document may have used."""

import math
from typing import Any

import numpy as np

from v6_federated import models

STARTS = {"torch": "PyTorch's, as ours", "keras": "Keras's, of Glorot"}


def weights(start: str, model: Any, rng: np.random.Generator) -> np.ndarray:
    """The first parameters (d,): by a start of ``STARTS``, "normal" (standard normal) or "tutorial" (see there)."""
    if start == "normal":
        return rng.standard_normal(model.size).astype(np.float32)
    if start == "tutorial":
        return tutorial(model, rng)
    return glorot(model, rng) if start == "keras" else model.init(rng)


def glorot(model: Any, rng: np.random.Generator) -> np.ndarray:
    """Weights uniform in +-sqrt(6 / (in + out)) (Glorot and Bengio 2010) and biases of zero, as Keras starts."""
    parts = []
    for name, shape in model.shapes.items():
        field = math.prod(shape[2:])
        bound = math.sqrt(6 / (field * sum(shape[:2]))) if name.endswith("weight") else 0.0
        parts.append(rng.uniform(-bound, bound, math.prod(shape)))
    return np.concatenate(parts).astype(np.float32)


def tutorial(model: Any, rng: np.random.Generator) -> np.ndarray:
    """Weights normal with a deviation of 0.1, drawn again if they are beyond 0.2, and biases of 0.1. TensorFlow's
    tutorial on MNIST of 2016 starts so; its CNN resembles McMahan's."""
    parts = []
    for name, shape in model.shapes.items():
        part = np.full(math.prod(shape), 0.1)
        if name.endswith("weight"):
            part = 0.1 * rng.standard_normal(part.size)
            while len(far := np.flatnonzero(np.abs(part) > 0.2)):
                part[far] = 0.1 * rng.standard_normal(len(far))
        parts.append(part)
    return np.concatenate(parts).astype(np.float32)


class Started:
    """A network with another start."""

    def __init__(self, network: Any, start: str) -> None:
        self.network, self.start = network, start

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        return weights(self.start, self.network, rng)


def register(name: str, start: str) -> str:
    """Make a model with another start known in this process; returns its name."""
    build = models.MODELS[name]
    models.register(f"{name}_{start}", lambda features, classes: Started(build(features, classes), start))
    return f"{name}_{start}"
