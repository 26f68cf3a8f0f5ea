"""Fully connected networks in torch, with options that the numpy ones do not have."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn

from v6_federated.models.torch_base import Network

ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "gelu": nn.GELU}


def mlp(features: int, classes: int, hidden: Sequence[int], activation: str, dropout: float, norm: str) -> Network:
    """Each hidden layer is linear, then normed (LayerNorm), then the activation, then dropout; the last is linear."""
    layers = nn.Sequential()
    for i, (a, b) in enumerate(pairwise([features, *hidden]), start=1):
        layers.add_module(f"layer{i}", nn.Linear(a, b))
        if norm == "layer":
            layers.add_module(f"norm{i}", nn.LayerNorm(b))
        layers.add_module(f"{activation}{i}", ACTIVATIONS[activation]())
        if dropout:
            layers.add_module(f"dropout{i}", nn.Dropout(dropout))
    layers.add_module(f"layer{len(hidden) + 1}", nn.Linear(hidden[-1], classes))
    return Network(layers)


ARCHITECTURES: dict[str, Callable[..., Network]] = {"mlp": mlp}
