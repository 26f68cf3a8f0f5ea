"""FedAvg of the 2NN as one would write it without a framework: torch with autograd, two processes of one thread each.

The test rows are evaluated in two halves, one a process.
"""

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

_rows: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))


def _start(rows: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
    torch.set_num_threads(1)
    _rows.update({k: (torch.from_numpy(X), torch.from_numpy(y)) for k, (X, y) in rows.items()})


def _task(job: tuple[int, dict[str, np.ndarray]]) -> Any:
    k, state = job
    network = _network()
    network.load_state_dict({name: torch.from_numpy(a) for name, a in state.items()})
    X, y = _rows[k]
    if k < 0:
        with torch.no_grad():
            return int((network(X).argmax(1) == y).sum())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for batch in torch.randperm(len(y)).split(10):
        optimizer.zero_grad()
        functional.cross_entropy(network(X[batch]), y[batch]).backward()
        optimizer.step()
    return {name: p.numpy() for name, p in network.state_dict().items()}


def plain_rounds(
    rows: dict[int, tuple[np.ndarray, np.ndarray]], test: tuple[np.ndarray, np.ndarray]
) -> Iterator[float]:
    """Seconds of each round, for ever."""
    half = len(test[1]) // 2
    everything = {**rows, -1: (test[0][:half], test[1][:half]), -2: (test[0][half:], test[1][half:])}
    with multiprocessing.get_context("fork").Pool(2, _start, (everything,)) as pool:
        state = {name: p.numpy() for name, p in _network().state_dict().items()}
        rng = np.random.default_rng(1)
        while True:
            started = time.perf_counter()
            chosen = [-1, -2, *rng.choice(sorted(rows), 10, replace=False).tolist()]
            answers = [a for a in pool.map(_task, [(k, state) for k in chosen], chunksize=1) if isinstance(a, dict)]
            state = {name: np.mean([a[name] for a in answers], axis=0) for name in state}
            yield time.perf_counter() - started
