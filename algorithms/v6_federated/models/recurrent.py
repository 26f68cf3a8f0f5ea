"""The recurrent network on text."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.models.torch_base import Network

CHUNK = 50  # rows at once, each of which is many steps


class Characters(nn.Module):
    """An embedding, two LSTM layers, and decision values of the next character after each: (n * length, classes).

    Args:
        characters: number of different characters.
        embedding: dimensions of the embedding.
        hidden: width of the LSTM layers.
    """

    def __init__(self, characters: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True)
        self.next = nn.Linear(hidden, characters)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Decision values (n * length, characters) of codes (n, length)."""
        read, _ = self.lstm(self.embedding(codes))
        z: torch.Tensor = self.next(read)
        return z.flatten(0, 1)


class Text(Network):
    """A row holds characters in order, as codes from 0 to ``classes`` - 1; its label is the character that follows.

    Training predicts every character of a row from those before it. Decision values, and so accuracy and all counts,
    are of the label only: each row counts once.

    Args:
        module: the network.
        length: characters in a row.
        classes: number of different characters.
    """

    arrays_only = True  # for a column of a table, the embedding's gradient would reveal every value of a row

    def __init__(self, module: Characters, length: int, classes: int) -> None:
        super().__init__(module)
        self.length, self.classes, self.hidden = length, classes, module.lstm.hidden_size
        self.chunk = CHUNK if self.device.type == "cpu" else 10 * CHUNK

    def init(self, rng: np.random.Generator) -> Array:
        """Draw parameters as torch does: the embedding standard normal, all others uniform in +-1/sqrt(hidden)."""
        bound = 1 / math.sqrt(self.hidden)
        parts = [
            rng.standard_normal(math.prod(shape))
            if name.startswith("embedding")
            else rng.uniform(-bound, bound, math.prod(shape))
            for name, shape in self.shapes.items()
        ]
        return np.concatenate(parts).astype(np.float32)

    def inputs(self, X: Any) -> torch.Tensor:
        """Rows as codes (n, length). Raises SafeError if they are not codes of characters."""
        rows = self.asarray(X)
        codes = rows.long()
        if len(codes) and (bool((codes != rows).any()) or int(codes.min()) < 0 or int(codes.max()) >= self.classes):
            raise SafeError(
                f"the features are not codes of characters; they must be whole numbers from 0 to {self.classes - 1}"
            )
        return codes

    def targets(self, X: Any, y: Any) -> torch.Tensor:
        """The character that follows each character of each row, (n * length,)."""
        return torch.cat([self.inputs(X)[:, 1:], self.asarray(y)[:, None]], dim=1).flatten()

    def decided(self, z: torch.Tensor) -> torch.Tensor:
        """Decision values (n, classes) of the character that follows each row."""
        return z[self.length - 1 :: self.length]


def lstm_char(features: int, classes: int, hidden: int = 256) -> Text:
    """McMahan section 3: characters embedded in 8 dimensions, two LSTM layers of 256, softmax over characters.

    Args:
        features: characters in a row.
        classes: number of different characters.
        hidden: width of the LSTM layers.

    Returns:
        The model.
    """
    return Text(Characters(classes, 8, hidden), features, classes)


ARCHITECTURES: dict[str, Callable[..., Network]] = {"lstm_char": lstm_char}
