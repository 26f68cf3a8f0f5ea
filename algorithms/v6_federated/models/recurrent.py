"""Recurrent networks on text."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from v6_federated.base.errors import SafeError
from v6_federated.models.torch_base import Network

CHUNK = 50  # rows at once, each of many steps


class Characters(nn.Module):
    """Embedding, two layers of LSTM, and for each character the decision values of the next: (n * length, classes)."""

    def __init__(self, characters: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True)
        self.next = nn.Linear(hidden, characters)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        read, _ = self.lstm(self.embedding(codes))
        return self.next(read).flatten(0, 1)


class Text(Network):
    """Rows are characters in order, as codes from 0 to ``classes`` - 1; the label is the character that follows.

    Training is on every character given those before it in its row. Decision values, and so accuracy and all counts,
    are of the label only: a row counts once.
    """

    arrays_only = True  # of a column of a table the embedding's gradient would name every value, of one row too

    def __init__(self, module: Characters, length: int, classes: int) -> None:
        super().__init__(module)
        self.length, self.classes, self.hidden = length, classes, module.lstm.hidden_size
        self.chunk = CHUNK if self.device.type == "cpu" else 10 * CHUNK

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """As torch does: the embedding standard normal, all else uniform in +-1/sqrt(hidden)."""
        bound = 1 / math.sqrt(self.hidden)
        parts = [
            rng.standard_normal(math.prod(shape))
            if name.startswith("embedding")
            else rng.uniform(-bound, bound, math.prod(shape))
            for name, shape in self.shapes.items()
        ]
        return np.concatenate(parts).astype(np.float32)

    def inputs(self, X: Any) -> torch.Tensor:
        """(n, length) codes. Raises SafeError for rows that are none."""
        rows = self.asarray(X)
        codes = rows.long()
        if len(codes) and (bool((codes != rows).any()) or int(codes.min()) < 0 or int(codes.max()) >= self.classes):
            raise SafeError(
                f"the features are no characters; expected their codes, whole numbers from 0 to {self.classes - 1}"
            )
        return codes

    def targets(self, X: Any, y: Any) -> torch.Tensor:
        """The next character of each of a row's: (n * length,)."""
        return torch.cat([self.inputs(X)[:, 1:], self.asarray(y)[:, None]], dim=1).flatten()

    def decided(self, z: torch.Tensor) -> torch.Tensor:
        """(n, classes): of the character that follows each row."""
        return z[self.length - 1 :: self.length]


def lstm_char(features: int, classes: int, hidden: int = 256) -> Text:
    """McMahan section 3: characters embedded in 8 dimensions, two LSTM layers of 256, softmax over characters."""
    return Text(Characters(classes, 8, hidden), features, classes)


ARCHITECTURES: dict[str, Callable[..., Network]] = {"lstm_char": lstm_char}
