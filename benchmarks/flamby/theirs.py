"""FLamby's training strategies with its own random numbers, and the results that it published.

From the same seed, torch draws the same first model and the same minibatches as FLamby's code, so that its numbers come
out again. What that code does differently from its papers is done here as it does it; ``AS_THE_PAPERS_SAY`` has the
other versions.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader

from benchmarks.flamby.data import Site, Task, Tensor, pooled, scores

SEEDS = (42, 43, 44, 45, 46)
UPDATES = 100  # minibatches at each hospital in a round
BETA_1, BETA_2, TAU = 0.9, 0.999, 1e-8
FILE = Path(__file__).parent / "published.csv"


@dataclass(frozen=True)
class Rates:
    """The settings of a strategy: the hospitals' learning rate, the server's, and FedProx's mu."""

    local: float
    server: float = 1.0
    mu: float = 0.0


RATES: Mapping[str, Mapping[str, Rates]] = {
    "heart": {
        "FedAvg": Rates(0.001),
        "FedProx": Rates(0.001, mu=0.01),
        "SCAFFOLD": Rates(0.001),
        "Cyclic": Rates(0.01),
        "FedAdagrad": Rates(0.003162, 0.316228),
        "FedAdam": Rates(0.01, 0.01),
        "FedYogi": Rates(0.003162, 0.01),
    },
    "tcga": {
        "FedAvg": Rates(0.1),
        "FedProx": Rates(0.1, mu=0.1),
        "SCAFFOLD": Rates(0.01),
        "Cyclic": Rates(0.01),
        "FedAdagrad": Rates(0.01, 1.0),
        "FedAdam": Rates(0.01, 0.1),
        "FedYogi": Rates(0.01, 0.1),
    },
}
POOLED, LOCAL = "pooled", "local {}"
# name: what the strategy does if it does what its paper says
AS_THE_PAPERS_SAY = {
    "Cyclic, passed on": "each round's hospital continues from the model of the round before; the last model is scored",
    "SCAFFOLD, option II": "steps corrected by c - c_k, where c_k is the hospital's mean gradient of its last round",
    "pooled, one scaling": "pooled training rows are scaled as the hospitals' test rows are",
}


@functools.cache
def published(key: str, strategy: str) -> np.ndarray:
    """FLamby's own results, seeds by hospitals; without rows for a strategy that it does not have."""
    table = pd.read_csv(FILE)
    found = table[(table["data"] == key) & (table["strategy"] == strategy)].sort_values("seed")
    return found.drop(columns=["data", "strategy", "seed"]).dropna(axis=1).to_numpy()


class Batches:
    """Minibatches without end, each pass in an order of its own; the last one of a pass may be small."""

    def __init__(self, rows: Site, size: int) -> None:
        self.rows, self.loader = rows, _loader(rows, size)
        self.these = iter(self.loader)  # as FLamby does: it draws from torch's generator before the seed is set

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            for batch in self.these:
                yield self.rows.X[batch], self.rows.y[batch]
            self.these = iter(self.loader)


def _loader(rows: Site, size: int) -> "DataLoader[Tensor]":
    numbers: Any = range(len(rows.X))  # of rows: torch draws as it does for the rows themselves
    return DataLoader(numbers, batch_size=size, shuffle=True)


def first_model(task: Task, seed: int) -> Tensor:
    """Draw FLamby's first model (d + 1,): torch's ``Linear`` from the seed."""
    torch.manual_seed(seed)
    linear = torch.nn.Linear(task.sites[0].X.shape[1], 1)
    return torch.nn.utils.parameters_to_vector(linear.parameters()).detach()


def gradient(task: Task, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Compute the gradient (d + 1,) of a minibatch's loss."""
    w = w.detach().requires_grad_()
    return torch.autograd.grad(task.loss(scores(w, X), y), w)[0]


def trained(task: Task, strategy: str, seed: int) -> Tensor:
    """Train one model.

    Args:
        task: the data set.
        strategy: a key of ``RATES``, of ``AS_THE_PAPERS_SAY``, ``POOLED`` or ``LOCAL`` with a number from 0.
        seed: of the first model and the minibatches.

    Returns:
        The model (d + 1,) that FLamby scores.
    """
    w = first_model(task, seed)
    if strategy == POOLED:
        return _alone(task, w, task.pooled, seed)
    if strategy == "pooled, one scaling":
        return _alone(task, w, pooled(task.sites), seed)
    if strategy.startswith("local"):
        return _alone(task, w, task.sites[int(strategy.split()[1])], seed)
    name, _, other = strategy.partition(", ")
    rates = RATES[task.key][name]
    batches = [Batches(site, task.batch_size) for site in task.sites]
    torch.manual_seed(seed)
    local = functools.partial(_local, task, rates.local)
    everyone = [functools.partial(local, iter(rows)) for rows in batches]
    if name == "Cyclic":
        return _cyclic(everyone, w, task.rounds, seed, passed_on=bool(other))
    shares = torch.tensor([float(len(site.X)) for site in task.sites])
    shares /= shares.sum()
    if name == "SCAFFOLD":
        if other:
            return _option_two(everyone, w, task.rounds, rates)
        return _their_scaffold(everyone, w, shares, task.rounds, rates)
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    for _ in range(task.rounds):
        delta = shares @ torch.stack([train(w, mu=rates.mu) - w for train in everyone])
        if name in ("FedAvg", "FedProx"):
            w = w + delta
            continue
        m = BETA_1 * m + (1 - BETA_1) * delta
        v = {
            "FedAdagrad": v + delta**2,
            "FedAdam": BETA_2 * v + (1 - BETA_2) * delta**2,
            "FedYogi": v - (1 - BETA_2) * delta**2 * torch.sign(v - delta**2),
        }[name]
        w = w + rates.server * m / (v.sqrt() + TAU)
    return w


def _local(
    task: Task,
    lr: float,
    batches: Iterator[tuple[Tensor, Tensor]],
    w: Tensor,
    mu: float = 0.0,
    more: Tensor | None = None,
) -> Tensor:
    """A hospital's minibatches in a round, from w; ``more`` is added to each gradient."""
    start = w
    for _ in range(UPDATES):
        g = gradient(task, w, *next(batches))
        if mu:
            g = g + mu * (w - start)
        w = w - lr * (g if more is None else g + more)
    return w


def _alone(task: Task, w: Tensor, rows: Site, seed: int) -> Tensor:
    """Adam on the rows of one place."""
    loader = _loader(rows, task.batch_size)
    torch.manual_seed(seed)
    w = w.clone().requires_grad_()
    optimizer = torch.optim.Adam([w], lr=task.adam)
    for _ in range(task.epochs):
        for batch in loader:
            optimizer.zero_grad()
            task.loss(scores(w, rows.X[batch]), rows.y[batch]).backward()
            optimizer.step()
    return w.detach()


Train = Callable[..., Tensor]


def _cyclic(everyone: Sequence[Train], w: Tensor, rounds: int, seed: int, passed_on: bool) -> Tensor:
    """One hospital a round, in an order drawn anew when all had their turn. FLamby's pass nothing on: each has a model
    of its own, and that of the first hospital is scored."""
    rng, order, own = np.random.default_rng(seed), list[int](), [w] * len(everyone)
    for _ in range(rounds):
        order = order or [*rng.permutation(len(everyone))]
        k = order.pop(0)
        own[k] = everyone[k](own[k])
        if passed_on:
            own = [own[k]] * len(everyone)
    return own[0]


def _their_scaffold(everyone: Sequence[Train], w: Tensor, shares: Tensor, rounds: int, rates: Rates) -> Tensor:
    """FLamby's: a hospital's correction grows in each round by (w - its last model) / (lr steps)."""
    corrections, last = torch.zeros(len(everyone), len(w)), w.repeat(len(everyone), 1)
    for _ in range(rounds):
        corrections = corrections + (w - last) / (rates.server * rates.local * UPDATES)
        last = torch.stack(
            [train(w, more=-correction) for train, correction in zip(everyone, corrections, strict=True)]
        )
        w = w + shares @ (last - w)
    return w


def _option_two(everyone: Sequence[Train], w: Tensor, rounds: int, rates: Rates) -> Tensor:
    """Karimireddy et al. 2020, Algorithm 1, option II; every hospital counts the same."""
    c_k = torch.zeros(len(everyone), len(w))
    for _ in range(rounds):
        c = c_k.mean(0)
        y = torch.stack([train(w, more=c - own) for train, own in zip(everyone, c_k, strict=True)])
        c_k = c_k - c + (w - y) / (UPDATES * rates.local)
        w = w + rates.server * (y - w).mean(0)
    return w
