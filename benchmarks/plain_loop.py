"""FedAvg without a framework: torch with autograd, in two processes of one thread each.

Each process evaluates half of the test rows.
"""

import argparse
import multiprocessing
import time
from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.peers import networks
from v6_federated.data.reading import as_features
from v6_workbench.simulation.datasets import load

_rows: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def _start(rows: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
    torch.set_num_threads(1)
    _rows.update({k: (torch.from_numpy(X), torch.from_numpy(y)) for k, (X, y) in rows.items()})


def _task(job: tuple[int, dict[str, np.ndarray], float, str]) -> Any:
    k, state, lr, model = job
    network = networks.network(model)
    network.load_state_dict({name: torch.from_numpy(a) for name, a in state.items()})
    X, y = _rows[k]
    if k < 0:
        with torch.no_grad():
            return sum(int((network(a).argmax(1) == b).sum()) for a, b in zip(X.split(500), y.split(500), strict=True))
    optimizer = torch.optim.SGD(network.parameters(), lr=lr)
    for batch in torch.randperm(len(y)).split(10):
        optimizer.zero_grad()
        functional.cross_entropy(network(X[batch]), y[batch]).backward()
        optimizer.step()
    return {name: p.numpy() for name, p in network.state_dict().items()}


def plain_rounds(
    rows: dict[int, tuple[np.ndarray, np.ndarray]],
    test: tuple[np.ndarray, np.ndarray],
    lr: float = 0.1,
    model: str = "2nn",
) -> Generator[tuple[float, float], None, None]:
    """Seconds of each round of the 2NN or another model, and the test accuracy of the model before it, without end."""
    half = len(test[1]) // 2
    everything = {**rows, -1: (test[0][:half], test[1][:half]), -2: (test[0][half:], test[1][half:])}
    # a fork would inherit the locks of threads that this process may have
    with multiprocessing.get_context("spawn").Pool(2, _start, (everything,)) as pool:
        state = {name: p.numpy() for name, p in networks.network(model).state_dict().items()}
        rng = np.random.default_rng(1)
        while True:
            started = time.perf_counter()
            chosen = [-1, -2, *rng.choice(sorted(rows), 10, replace=False).tolist()]
            found = pool.map(_task, [(k, state, lr, model) for k in chosen], chunksize=1)
            answers = [a for a in found if isinstance(a, dict)]
            state = {name: np.mean([a[name] for a in answers], axis=0) for name in state}
            yield time.perf_counter() - started, sum(a for a in found if isinstance(a, int)) / len(test[1])


def main() -> None:
    """Print the rounds to 97% on MNIST, IID, K = 100, C = 0.1, E = 1, B = 10, for three seeds of torch's own."""
    parser = argparse.ArgumentParser(epilog="example: python -m benchmarks.plain_loop --data mnist.npz --lr 0.215")
    parser.add_argument("--data", required=True, help="mnist.npz")
    parser.add_argument("--lr", type=float, default=0.215)
    options = parser.parse_args()
    dataset = load(options.data)
    assert isinstance(dataset.rows, tuple) and dataset.test is not None
    (X, y), (X_test, y_test) = dataset.rows, dataset.test
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        parts = np.array_split(np.random.default_rng(seed).permutation(len(y)), 100)
        rows = {k: (as_features(X[p]), y[p].astype(np.int64)) for k, p in enumerate(parts)}
        rounds = plain_rounds(rows, (as_features(X_test), y_test.astype(np.int64)), options.lr)
        reached = next(t for t, (_, accuracy) in enumerate(rounds) if accuracy >= 0.97)
        print(f"seed {seed}, lr {options.lr:g}: 97% after {reached} rounds", flush=True)


if __name__ == "__main__":
    main()
