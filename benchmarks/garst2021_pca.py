"""Garst 2021: classifiers on components of gene expressions (Table D.6, Figure 4.6), and what PCA costs.

The thesis's leukaemia tables are not public in one place. Golub's table of 72 patients and 7,129 gene expressions
(golub.npz) takes their place: over ten nodes, and over three of which two measure in another way (``shifted``).
Twenty-four rows are held out. The components are 40, since only 48 rows are left to train on.
"""

import time
import tracemalloc
from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks import runs, tables
from v6_federated.base.randomness import generator
from v6_federated.messages import codec
from v6_workbench.simulation import mock, mock_node
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "garst2021_pca"
SEEDS = range(1, 11)
# a node has seven rows
OPEN = {"V6_FEDERATED_MINIMUM_ROWS": "1", "V6_FEDERATED_MINIMUM_ROWS_A_CLASS": "1"}
COMMON = {"lr": 0.01, "rounds": 100, "evaluate_every": 100, "preprocess": ["standardize", "pca:40"]}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg, E = 1": ("fedavg", {"classes": [0, 1]}),
    "FedAvg, E = 10": ("fedavg", {"classes": [0, 1], "epochs": 10, "rounds": 10, "evaluate_every": 10}),
    "SCAFFOLD, E = 10": ("scaffold", {"classes": [0, 1], "epochs": 10, "rounds": 10, "evaluate_every": 10}),
}
# model, partition: the thesis's accuracies of the SVM on A2, federated
D6 = {("svm", "iid"): 0.954, ("svm", "class"): 0.947, ("svm", "size"): 0.953, ("svm", "central"): 0.974}
NODES, ROWS, COMPONENTS = 3, 2500, 100
COLUMNS = {True: (100, 500, 1000, 2000, 5000, 12_709, 20_000), False: (100, 1000, 5000)}
MOST_FOR_EIGH = 2000  # with more columns the thesis's eigenvectors take minutes to hours


def shifted(dataset: Dataset, seed: int) -> Dataset:
    """Three hospitals of 24 rows each. The second has a scale and an offset of its own for each gene, and so has the
    third, five times as different. They stand for A1 and A2, by microarray, and A3, by sequencing."""
    assert isinstance(dataset.rows, tuple)
    X, y = dataset.rows
    deviation = X.std(axis=0)
    rng = generator(seed, "shift")
    hospital = rng.permutation(np.arange(len(y)) % 3)
    X = X.astype(np.float64)
    for h, strength in ((1, 0.1), (2, 0.5)):
        scale = np.exp(strength * rng.standard_normal(X.shape[1]))
        offset = strength * deviation * rng.standard_normal(X.shape[1])
        X[hospital == h] = X[hospital == h] * scale + offset
    table = pd.DataFrame(X.astype(np.float32), columns=[f"gene{j}" for j in range(X.shape[1])])
    return Dataset(f"{dataset.name}-shifted", table.assign(hospital=hospital + 1, label=y))


def shuffled(dataset: Dataset, seed: int) -> Dataset:
    """The rows in another order, so that other rows are held out."""
    order = generator(seed, "order").permutation(len(dataset))
    return Dataset(dataset.name, dataset.take(order))


def classifiers(dataset: Dataset) -> Iterator[str]:
    """Accuracy on held-out rows: federated by three methods, and centralized on the pooled rows."""
    yield from tables.head("model", "rows", *METHODS, "centralized", "SVM on A2, Garst: federated", "centralized")
    for model in ("svm", "logreg"):
        for partition in ("iid", "class", "size", "three hospitals", "without the third"):
            found: dict[str, list[float]] = {name: [] for name in (*METHODS, "centralized")}
            for seed in SEEDS:
                if partition in ("iid", "class", "size"):
                    rows, nodes, dealt = shuffled(dataset, seed), 10, partition
                else:
                    rows, nodes, dealt = shifted(dataset, seed), None, "column:hospital"
                    if partition == "without the third":
                        assert isinstance(rows.rows, pd.DataFrame)
                        kept = rows.rows[rows.rows["hospital"] != 3].reset_index(drop=True)
                        rows = Dataset(f"{dataset.name}-without-third", kept)
                experiment = Experiment(rows, nodes, dealt, seed, seed, holdout=1 / 3, environment=OPEN, processes=1)
                values = {"model": model, **COMMON}
                if partition == "without the third":
                    values["preprocess"] = ["standardize", "pca:25"]  # 32 rows to train on
                for name, (method, own) in METHODS.items():
                    run = runs.kept(DOCUMENT, method, experiment, {**values, **own})
                    found[name].append(run.history[-1]["accuracy"])
                run = runs.kept(DOCUMENT, "fedavg", experiment, values, centralized=True)
                found["centralized"].append(run.history[-1]["accuracy"])
            cells = [f"{np.mean(a):.3f} ± {np.std(a) / np.sqrt(len(a)):.3f}" for a in found.values()]
            theirs = D6.get((model, partition))
            yield tables.row(model, partition, *cells, theirs, D6[model, "central"] if theirs else None)


def genes(d: int) -> np.ndarray:
    """A made-up table (ROWS, d), float32: 150 directions of falling variance, and noise."""
    rng = np.random.default_rng(1)
    factors = rng.standard_normal((ROWS, 150), dtype=np.float32) * np.float32(50) / np.arange(1, 151, dtype=np.float32)
    X = factors @ rng.standard_normal((150, d), dtype=np.float32)
    X += rng.standard_normal((ROWS, d), dtype=np.float32)
    return X


def document_pca(parts: list[np.ndarray], k: int) -> np.ndarray:
    """Garst's Algorithm 3 as printed, in one process: the variances of the first k components."""
    parts, S = [X.astype(np.float64) for X in parts], sum(map(len, parts))
    mean = sum(len(X) * X.mean(axis=0) for X in parts) / S
    A = sum((X - mean).T @ (X - mean) for X in parts) / (S - 1)
    std = np.sqrt(np.diag(A))  # the thesis leaves out the root
    A = sum(((X - mean) / std).T @ ((X - mean) / std) for X in parts) / (S - 1)
    return np.linalg.eigh(A)[0][::-1][:k]


def document_numbers(d: int, k: int, nodes: int) -> int:
    """Numbers that Algorithm 3 sends: up means, deviations and two matrices; down the mean twice, deviations and
    eigenvectors."""
    return nodes * (2 * d + 1 + 2 * d * d + 3 * d + k * d)


def costs(full: bool) -> Iterator[str]:
    """Bytes, seconds and memory of v6_pca and of the thesis's algorithm as columns grow."""
    yield ""
    yield (
        f"{ROWS:,} rows of d made-up columns over {NODES} nodes (half, a quarter, a quarter), {COMPONENTS} components "
        "of the correlation matrix, one thread."
    )
    yield (
        "Bytes are all bytes sent, both ways; the thesis's numbers (two d x d matrices a node) are counted in the same "
        "encoding, 16/3 bytes each. Our seconds are of the whole job with its messages, the thesis's of its arithmetic "
        "alone. Memory is the most that a node's call allocates beyond its table."
    )
    yield ""
    yield from tables.head(
        "d",
        "solver",
        "rounds",
        "MB",
        "MB Garst",
        "times fewer",
        "s",
        "s Garst",
        "MB of memory a node",
        "MB of one d x d matrix",
        "share of variance, relative difference",
    )
    for d in COLUMNS[full]:
        X = genes(d)
        parts = np.split(X, [ROWS // 2, ROWS * 3 // 4])
        databases = {k + 1: (part, np.zeros(len(part), np.int64)) for k, part in enumerate(parts)}
        with mock.MockNetwork("v6_pca", databases, on_round=lambda row: None) as network:
            started = time.perf_counter()
            result = network.run(components=COMPONENTS, scale=True)
            seconds = time.perf_counter() - started
            peak = _memory_a_call(network)
        sent = sum(row["bytes_up"] + row["bytes_down"] for row in result["history"])
        sent += sum(result["traffic"]["preparation"].values())
        theirs = document_numbers(d, COMPONENTS, NODES) * 16 / 3
        seconds_theirs, apart = None, None
        if d <= MOST_FOR_EIGH:
            with threadpool_limits(1):
                started = time.perf_counter()
                variances = document_pca(parts, COMPONENTS)
                seconds_theirs = f"{time.perf_counter() - started:.1f}"
            ours = codec.decode(result["weights"])["explained_variance_ratio"]
            apart = f"{np.abs(ours / (variances / d)[: len(ours)] - 1).max():.1e}"
        yield tables.row(
            d,
            result["model"]["solver"],
            len(result["history"]),
            f"{sent / 1e6:.1f}",
            f"{theirs / 1e6:.1f}",
            f"{theirs / sent:.1f}",
            f"{seconds:.1f}",
            seconds_theirs,
            f"{peak / 1e6:.0f}",
            f"{d * d * 4 / 1e6:.0f}",
            apart,
        )


def _memory_a_call(network: mock.MockNetwork) -> int:
    """The most bytes that Python and numpy allocate in one call at a node, in another run of the job."""
    peaks, run = [], mock_node.run

    def measured(*call: Any) -> Any:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        answer = run(*call)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        return answer

    tracemalloc.start()
    mock_node.run = measured  # type: ignore[assignment]  # during this job
    try:
        network.run(components=COMPONENTS, scale=True)
    finally:
        mock_node.run = run
        tracemalloc.stop()
    return max(peaks)


def accuracy_of_subspace(dataset: Dataset) -> Iterator[str]:
    """Components of Golub's table beside those of scikit-learn on the pooled rows."""
    from sklearn.decomposition import PCA

    assert isinstance(dataset.rows, tuple)
    X = dataset.rows[0]
    theirs = PCA(50, svd_solver="full").fit(X.astype(np.float64))
    databases = dict(enumerate(((x, np.zeros(len(x), np.int64)) for x in np.array_split(X, NODES)), start=1))
    with mock.MockNetwork("v6_pca", databases, on_round=lambda row: None) as network:
        result = network.run(components=50, solver="subspace")
    arrays = codec.decode(result["weights"])
    variance = np.abs(arrays["explained_variance"] / theirs.explained_variance_ - 1).max()
    cosine = np.abs(np.sum(arrays["components"] * theirs.components_, axis=1)).min()
    yield ""
    yield (
        f"Golub's 72 x 7,129 table over {NODES} nodes, 50 components by subspace iteration, {len(result['history'])} "
        f"rounds, beside scikit-learn's PCA of the pooled rows: explained variance within {variance:.1e} relative, "
        f"least cosine of a component with theirs {cosine:.6f}."
    )


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables."""

    def all_() -> Iterator[str]:
        yield from accuracy_of_subspace(dataset)
        yield from costs(full)
        if full:
            yield ""
            yield (
                f"Golub's patients: standardize, 40 components (25 without the third hospital), lr {COMMON['lr']:g}, "
                "100 local epochs in all, a third of the rows held out. Accuracy: mean and standard error over "
                f"{len(SEEDS)} seeds of the split."
            )
            yield ""
            yield from classifiers(dataset)

    about = (
        f"Times and memory: {runs.machine()}, one process, {date.today()}. Nothing is counted as near: the thesis's "
        "patients are other patients."
    )
    most = 2 * 5 * len(SEEDS) * (len(METHODS) + 1) if full else 0
    page = tables.Page(DOCUMENT, "Garst 2021, principal components", full, about, "golub")
    tables.page(page, all_(), most)
