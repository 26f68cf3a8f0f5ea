"""Where a network starts: as ours do, or as those of a document's framework."""

import math
from typing import Any

import numpy as np

STARTS = {"torch": "PyTorch's, as ours", "keras": "Keras's, of Glorot"}


def weights(start: str, model: Any, rng: np.random.Generator) -> np.ndarray:
    """A start of ``STARTS``."""
    return glorot(model, rng) if start == "keras" else model.init(rng)


def glorot(model: Any, rng: np.random.Generator) -> np.ndarray:
    """Weights uniform in +-sqrt(6 / (in + out)), Glorot and Bengio 2010, and no bias: what Keras starts with."""
    parts = []
    for name, shape in model.shapes.items():
        field = math.prod(shape[2:])
        bound = math.sqrt(6 / (field * sum(shape[:2]))) if name.endswith("weight") else 0.0
        parts.append(rng.uniform(-bound, bound, math.prod(shape)))
    return np.concatenate(parts).astype(np.float32)
