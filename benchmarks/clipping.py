"""What clipping each row's gradient costs, beside a step without clipping on the same rows."""

import statistics
import time
from collections.abc import Iterator

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks import tables
from v6_federated import models
from v6_federated.models import clipping
from v6_workbench.simulation.datasets import Dataset

FEATURES, CLASSES = 784, 10
BATCHES = (64, 256, 600)
ABOUT = (
    "The gradient of a minibatch of random rows (784 features, 10 classes) as every step computes it, and the sum of "
    "clipped gradients in whole numbers, in turn on one thread; medians. Noise is not included: it is drawn once a "
    "round or step, whatever the number of rows."
)


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep the table. The rows are random numbers."""
    tables.page(tables.Page("clipping", "What clipping costs", full, ABOUT, "", timed=True), _lines(full))


def _lines(full: bool) -> Iterator[str]:
    yield from tables.head("model", "rows", "plain, ms", "clipped, ms", "times plain")
    for name in clipping.ACCEPTED:
        for n in BATCHES:
            plain, clipped = _seconds(name, n, 100 if full else 20)
            yield tables.row(name, n, f"{1e3 * plain:.2f}", f"{1e3 * clipped:.2f}", f"{clipped / plain:.2f}")


def _seconds(name: str, n: int, repeats: int) -> tuple[float, float]:
    """Median seconds of a step without clipping and of one with it."""
    rng = np.random.default_rng(0)
    model = models.build({"name": name, "features": FEATURES, "classes": CLASSES})
    w = model.asarray(model.init(rng))
    X = model.asarray(rng.random((n, FEATURES), dtype=np.float32))
    y = model.asarray(rng.integers(0, CLASSES, n))
    plain, clipped = list[float](), list[float]()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            for _ in range(repeats + 2):  # the first two are not counted
                started = time.perf_counter()
                model.loss_and_gradient(w, X, y)
                between = time.perf_counter()
                clipping.clipped_sum(model, w, X, y, 1.0, 2**20)
                plain.append(between - started)
                clipped.append(time.perf_counter() - between)
    finally:
        torch.set_num_threads(threads)
    return statistics.median(plain[2:]), statistics.median(clipped[2:])
