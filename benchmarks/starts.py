"""Where a network starts: as ours do, or as those of a document."""

import math
from typing import Any

import numpy as np

from v6_federated import models

STARTS = {"torch": "PyTorch's, as ours", "keras": "Keras's, of Glorot"}


def weights(start: str, model: Any, rng: np.random.Generator) -> np.ndarray:
    """A start of ``STARTS``, "normal" (all parameters standard normal) or "tutorial" (see ``tutorial``)."""
    if start == "normal":
        return rng.standard_normal(model.size).astype(np.float32)
    if start == "tutorial":
        return tutorial(model, rng)
    return glorot(model, rng) if start == "keras" else model.init(rng)


def glorot(model: Any, rng: np.random.Generator) -> np.ndarray:
    """Weights uniform in +-sqrt(6 / (in + out)), Glorot and Bengio 2010, and no bias: what Keras starts with."""
    parts = []
    for name, shape in model.shapes.items():
        field = math.prod(shape[2:])
        bound = math.sqrt(6 / (field * sum(shape[:2]))) if name.endswith("weight") else 0.0
        parts.append(rng.uniform(-bound, bound, math.prod(shape)))
    return np.concatenate(parts).astype(np.float32)


def tutorial(model: Any, rng: np.random.Generator) -> np.ndarray:
    """Weights normal with a deviation of 0.1, those beyond 0.2 drawn anew; biases 0.1: the start of TensorFlow's
    tutorial on MNIST of 2016, whose CNN is like McMahan's."""
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
    """A network that starts elsewhere."""

    def __init__(self, network: Any, start: str) -> None:
        self.network, self.start = network, start

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        return weights(self.start, self.network, rng)


def register(name: str, start: str) -> str:
    """Make a model known that starts elsewhere, in this process; returns its name."""
    build = models.MODELS[name]
    models.register(f"{name}_{start}", lambda features, classes: Started(build(features, classes), start))
    return f"{name}_{start}"
