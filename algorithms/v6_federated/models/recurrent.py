"""Recurrent networks on text."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.models import TEXTS
from v6_federated.models.torch_base import Network
from v6_federated.models.traits import Traits

CHUNK = 50  # rows at once, each of which is many steps


class Recurrent(nn.Module):
    """An embedding, LSTM layers, and decision values of the next code after each: (n * length, classes).

    Args:
        classes: number of different codes.
        embedding: dimensions of the embedding.
        layers: number of LSTM layers.
        hidden: width of the LSTM layers.
    """

    def __init__(self, classes: int, embedding: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=layers, batch_first=True)
        self.next = nn.Linear(hidden, classes)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Decision values (n * length, classes) of codes (n, length)."""
        read, _ = self.lstm(self.embedding(codes))
        z: torch.Tensor = self.next(read)
        return z.flatten(0, 1)


class Text(Network):
    """A row holds characters or words in order, as codes from 0 to ``classes`` - 1; its label is the one that follows.

    Training predicts every code of a row from those before it. Decision values, and so accuracy and all counts, are of
    the label only: each row counts once.

    Args:
        name: the model's name, a key of ``TEXTS``.
        length: codes in a row.
        classes: number of different codes.
        hidden: width of the LSTM layers.
    """

    # for a column of a table, the embedding's gradient would reveal every value of a row
    traits = Traits(arrays_only=True)

    def __init__(self, name: str, length: int, classes: int, hidden: int) -> None:
        text = TEXTS[name]
        super().__init__(Recurrent(classes, text.embedding, text.layers, hidden))
        self.codes, self.length, self.classes, self.hidden = text.codes, length, classes, hidden
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
        """Rows as codes (n, length). Raises SafeError if they are not codes."""
        rows = self.asarray(X)
        codes = rows.long()
        if len(codes) and (bool((codes != rows).any()) or int(codes.min()) < 0 or int(codes.max()) >= self.classes):
            raise SafeError(
                f"the features are not codes of {self.codes}; they must be whole numbers from 0 to {self.classes - 1}"
            )
        return codes

    def targets(self, X: Any, y: Any) -> torch.Tensor:
        """The code that follows each code of each row, (n * length,)."""
        return torch.cat([self.inputs(X)[:, 1:], self.asarray(y)[:, None]], dim=1).flatten()

    def decided(self, z: torch.Tensor) -> torch.Tensor:
        """Decision values (n, classes) of the code that follows each row, without the memory of all others."""
        return z[self.length - 1 :: self.length].clone()


def lstm_char(features: int, classes: int, hidden: int = 256) -> Text:
    """McMahan section 3: characters embedded in 8 dimensions, two LSTM layers of 256, softmax over characters.

    Args:
        features: characters in a row.
        classes: number of different characters.
        hidden: width of the LSTM layers.

    Returns:
        The model.
    """
    return Text("lstm_char", features, classes, hidden)


def lstm_word(features: int, classes: int, hidden: int = 256) -> Text:
    """McMahan section 3: words embedded in 192 dimensions, an LSTM of 256, softmax over the next word.

    The paper's network has 4,950,544 parameters for 10,000 words. That is 1,920,000 of the embedding, 2,570,000 of a
    softmax on all 256 units (the text says that output embeddings have 192 dimensions, too), and 460,544 of an LSTM as
    TensorFlow has it: 1,024 (192 + 256) weights, one bias (1,024) and peepholes (768). torch's LSTM has two biases and
    no peepholes, so this network has 256 more: 4,950,800.

    Args:
        features: words in a row; the paper's unroll is 10.
        classes: number of different words.
        hidden: width of the LSTM.

    Returns:
        The model.
    """
    return Text("lstm_word", features, classes, hidden)


ARCHITECTURES: dict[str, Callable[..., Network]] = {"lstm_char": lstm_char, "lstm_word": lstm_word}
