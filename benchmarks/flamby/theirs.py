"""FLamby's training strategies with its own random numbers, and the results that it published.

From the same seed, torch draws the same first model and the same minibatches as it did for FLamby, so that its numbers
come out again. What that code does differently from its papers is done here as it does it; ``AS_THE_PAPERS_SAY`` lists
the other versions.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

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
    """Minibatches without end, as torch's ``DataLoader`` draws them; the last one of a pass may be small.

    Args:
        rows: the rows.
        size: of a minibatch.
        ahead: whether the first pass is drawn at once, as worker processes do, not with the first minibatch.
    """

    def __init__(self, rows: Site, size: int, ahead: bool = False) -> None:
        self.rows, self.size = rows, size
        draw()  # of workers
        self.first = self._order() if ahead else None

    def _order(self) -> Tensor:
        return torch.randperm(len(self.rows.X), generator=torch.Generator().manual_seed(draw()))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = self._order() if self.first is None else self.first
        while True:
            for batch in order.split(self.size):
                yield self.rows.X[batch], self.rows.y[batch]
            draw()
            order = self._order()


def draw() -> int:
    """Draw a seed from torch's generator."""
    return int(torch.empty((), dtype=torch.int64).random_())


def passes(task: Task, k: int, steps: int) -> int:
    """Count the passes over hospital k's rows that a number of minibatches begins."""
    return -(-steps // -(-len(task.sites[k].X) // task.batch_size))


def at_construction(task: Task, strategy: str, seed: int) -> None:
    """Bring torch's generator to where it is when FLamby constructs a strategy: after the run before, and its tests.

    Both take two numbers a pass, except for those that were drawn before the seed was set; a test takes one a hospital
    and one for all.
    """
    torch.manual_seed(seed)
    names = sorted(RATES[task.key], key=str.lower)
    K, place = len(task.sites), names.index(strategy)
    if place == 0:
        drawn = 2 * task.epochs  # the last hospital alone
    elif names[place - 1] == "Cyclic":
        visits = Counter(cycle(K, task.rounds, seed))
        drawn = sum(2 * (passes(task, k, n * UPDATES) - 1) for k, n in visits.items())
    else:
        drawn = sum(2 * (passes(task, k, task.rounds * UPDATES) - 1) for k in range(K))
    for _ in range(drawn + K + 1):
        draw()


def cycle(hospitals: int, rounds: int, seed: int) -> list[int]:
    """Draw which hospital trains in each round of Cyclic: all in an order, then again in another one."""
    rng = np.random.default_rng(seed)
    return [int(k) for _ in range(-(-rounds // hospitals)) for k in rng.permutation(hospitals)][:rounds]


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
    if task.ahead:
        at_construction(task, name, seed)
    batches = [Batches(site, task.batch_size, task.ahead) for site in task.sites]
    torch.manual_seed(seed)
    local = functools.partial(_local, task, rates.local)
    everyone = [functools.partial(local, iter(rows)) for rows in batches]
    if name == "Cyclic":
        return _cyclic(everyone, w, cycle(len(everyone), task.rounds, seed), passed_on=bool(other))
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
    torch.manual_seed(seed)
    batches = iter(Batches(rows, task.batch_size))
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    for t in range(1, 1 + task.epochs * -(-len(rows.X) // task.batch_size)):
        g = gradient(task, w, *next(batches))
        m = (BETA_1 * m).add(g, alpha=1 - BETA_1)
        v = (BETA_2 * v).addcmul(g, g, value=1 - BETA_2)
        root = (v.sqrt() / math.sqrt(1 - BETA_2**t)) + TAU
        w = w.addcdiv(m, root, value=-task.adam / (1 - BETA_1**t))
    return w


Train = Callable[..., Tensor]


def _cyclic(everyone: Sequence[Train], w: Tensor, order: Sequence[int], passed_on: bool) -> Tensor:
    """One hospital a round. FLamby's pass nothing on: each has a model of its own; that of the first one is scored."""
    own = [w] * len(everyone)
    for k in order:
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
