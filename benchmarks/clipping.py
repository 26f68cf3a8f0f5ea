"""What clipping each row's gradient costs, beside a step without clipping on the same rows; and what noise costs."""

import statistics
import time
from collections.abc import Iterator

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks import tables
from v6_federated import models
from v6_federated.noise import clipping, units
from v6_federated.noise.clipping import sensitivity
from v6_federated.noise.gaussian import discrete_gaussian
from v6_workbench.simulation.datasets import Dataset

FEATURES, CLASSES = 784, 10
BATCHES = (64, 256, 600)
ABOUT = (
    "The gradient of a minibatch of random rows (784 features, 10 classes) as every step computes it, and the sum of "
    "clipped gradients in whole numbers, in turn on one thread; medians. Noise is in the second table: it is drawn "
    "once a round or step for each value of the model, whatever the number of rows. z is the noise of a sum over what "
    "one row can change."
)
NOISES = (0.7, 5.0, 40.0)  # z of many sampled steps, and of a hundred steps on all rows at epsilon 8 and 1
SIZES = (31, 7_850, 199_210, 1_663_370)  # logreg on 30 columns, logreg, 2nn and cnn_mcmahan on MNIST


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep the table. The rows are random numbers."""
    tables.page(tables.Page("clipping", "What clipping costs", full, ABOUT, "", timed=True), _lines(full))


def _lines(full: bool) -> Iterator[str]:
    yield from tables.head("model", "rows", "plain, ms", "clipped, ms", "times plain")
    for name in clipping.ACCEPTED:
        for n in BATCHES:
            plain, clipped = _seconds(name, n, 100 if full else 20)
            yield tables.row(name, n, f"{1e3 * plain:.2f}", f"{1e3 * clipped:.2f}", f"{clipped / plain:.2f}")
    yield ""
    yield from tables.head("values", "z", "noise, ms", "a value, ns")
    for size in SIZES:
        for z in NOISES:
            seconds = _seconds_of_noise(size, z * sensitivity(size, units.GRADIENT), 20 if full else 5)
            yield tables.row(f"{size:,}", z, f"{1e3 * seconds:.2f}", f"{1e9 * seconds / size:.0f}")


def _seconds_of_noise(size: int, sigma: float, repeats: int) -> float:
    """Median seconds of drawing the noise of one sum; the table of sigma is made before, once in a job."""
    found = list[float]()
    for i in range(repeats + 2):  # the first two are not counted
        started = time.perf_counter()
        discrete_gaussian(i.to_bytes(32, "big"), sigma, size)
        found.append(time.perf_counter() - started)
    return statistics.median(found[2:])


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
