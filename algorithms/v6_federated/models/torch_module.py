"""A torch module that was registered: anybody's network, checked before it sees a row."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.logs import one_line
from v6_federated.models.torch_base import Network

ROWS = 2  # that are tried
BATCH_NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.LazyBatchNorm1d,
    nn.LazyBatchNorm2d,
    nn.LazyBatchNorm3d,
    nn.SyncBatchNorm,
)


class Module(Network):
    """A module that maps rows (n, features) to decision values (n, classes), and that starts as it starts itself.

    Methods without a docstring are explained in ``Model``.

    Args:
        name: the model's name, for errors.
        module: the module.
        build: makes another one.
        features: number of features.
        classes: number of classes.

    Raises:
        SafeError: the module cannot be averaged, has parameters that are not float32, or gives something else for rows
            of zeros.
    """

    def __init__(
        self, name: str, module: nn.Module, build: Callable[[], nn.Module], features: int, classes: int
    ) -> None:
        if any(isinstance(layer, BATCH_NORMS) for layer in module.modules()):  # some have no buffers
            raise SafeError(
                f"the model {name} has batch norm, with which rows change each other's scores; use LayerNorm or "
                "GroupNorm"
            )
        kinds = sorted({str(p.dtype).removeprefix("torch.") for p in module.parameters()})
        if kinds != ["float32"]:
            found = f"parameters of the type {' and '.join(kinds)}" if kinds else "no parameters"
            raise SafeError(f"the model {name} has {found}; expected parameters of the type float32")
        super().__init__(module)
        self.build, self.classes = build, classes
        self._try(name, features)

    def _try(self, name: str, features: int) -> None:
        rows = self.inputs(np.zeros((ROWS, features), np.float32))
        self.module.train(False)
        try:
            with torch.no_grad():
                z = self.module(rows)
            found = f"values of shape {tuple(z.shape)}" if isinstance(z, torch.Tensor) else f"a {type(z).__name__}"
        except Exception as error:  # the text can quote no row: there are none yet
            found = one_line(f"{type(error).__name__}: {error}")
        self.module.train()
        if found != f"values of shape {(ROWS, self.classes)}":
            raise SafeError(
                f"the model {name} was tried on {ROWS} rows of {features} features and gave {found}; expected values "
                f"of shape ({ROWS}, {self.classes}), one of each class for each row"
            )
        # some layers draw for some values only
        self.traits = replace(self.traits, random=self.traits.random or self._draws(rows))

    def _draws(self, rows: torch.Tensor) -> bool:
        """Whether training draws random numbers, by dropout or anything else."""
        own = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=own), torch.no_grad():
            before = self._generators()
            self.module(rows)
            return any(not torch.equal(one, other) for one, other in zip(before, self._generators(), strict=True))

    def _generators(self) -> list[torch.Tensor]:
        """The states of torch's generators."""
        states = [torch.get_rng_state()]
        return states if self.device.type == "cpu" else [*states, torch.cuda.get_rng_state(self.device)]

    def init(self, rng: np.random.Generator) -> Array:
        """Build a new module from the given seed, and return its parameters."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            module = self.build()
        w: Array = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
        return w

    def scores(self, w: Any, X: Any) -> Array:
        return super().scores(w, X) if len(X) else np.empty((0, self.classes), np.float32)
