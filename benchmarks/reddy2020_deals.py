"""Tables of Reddy 2020 that test how much of a number is that of one deal of the rows to the nodes."""

from collections.abc import Iterator

from benchmarks import runs, tables
from benchmarks.reddy2020_setup import DOCUMENT, NODES, PARTITIONS, PASSES, sent, settings_of
from v6_federated.datasets import Dataset
from v6_federated.experiments import Experiment

CUTS = (1, 2, 3, 4, 5)
# the fifth unbalanced deal to 31 nodes leaves one with too few rows of a class to take part
UNBALANCED_CUTS = CUTS[:4]
SIZES = (7, 15, 23, 31)
# rows and K of which the SVD's uploads are counted: whether they reach a plateau; on which rows there are more
COUNTED = (
    *(("balanced", K) for K in SIZES),
    *((partition, K) for partition in ("unbalanced", "sorted-unbalanced") for K in NODES),
)
# rows, K and deal where the document compares the SVD's accuracy with that of Delta = 0.3 and rho = 1
COMPARED = (
    *(("sorted-balanced", 7, cut) for cut in CUTS),
    *(("sorted-balanced", K, 1) for K in SIZES[1:]),
    *(("balanced", K, 1) for K in NODES),
)


def lines(dataset: Dataset) -> Iterator[str]:
    yield from cuts(dataset)
    yield from svd_uploads(dataset)
    yield from loss_uploads(dataset)
    yield from compared(dataset)


def runs_of() -> int:
    """How many runs ``lines`` reads or makes."""
    return len(CUTS) * (4 + len(COUNTED)) + 2 * len(UNBALANCED_CUTS) + 4 * len(COMPARED)


def cuts(dataset: Dataset) -> Iterator[str]:
    """How much the rates of the SVD and of Delta under Adam are those of one way to deal the rows."""
    yield ""
    yield (
        f"Communication rates of other deals of the rows (seeds {CUTS[0]} to {CUTS[-1]}; above it is {CUTS[0]}), "
        "logistic regression, K = 7, Adam."
    )
    yield ""
    yield from tables.head("rows", "protocol", *(f"deal {cut}" for cut in CUTS))
    E = PASSES["logreg"]
    for partition in PARTITIONS[:2]:
        for name, own in (("SVD", {"protocol": "svd"}), ("Delta = 2.2", {"protocol": "divergence", "delta": 2.2})):
            values = {**settings_of("logreg", "adam"), **own, "rounds": E, "evaluate_every": E}
            found = [runs.kept(DOCUMENT, "dynavg", Experiment(dataset, 7, partition, 1, cut), values) for cut in CUTS]
            yield tables.row(partition, name, *(f"{sent(run, 7):.2f}" for run in found))


def svd_uploads(dataset: Dataset) -> Iterator[str]:
    """Whether the SVD's packets reach a plateau with the number of nodes, and on which rows it sends more."""
    yield ""
    yield (
        "Uploads by SVD in 100 passes by number of nodes and deal; rho = 1 has 100 K. They are of the rows alone, "
        "whatever is trained (here with one step a pass)."
    )
    yield ""
    yield from tables.head("rows", "K", *(f"deal {cut}" for cut in CUTS))
    E = PASSES["logreg"]
    values = {**settings_of("logreg", "sgd"), "batch_size": None, "protocol": "svd", "rounds": E, "evaluate_every": E}
    for partition, K in COUNTED:
        chosen = CUTS if partition == "balanced" else UNBALANCED_CUTS
        found = [runs.kept(DOCUMENT, "dynavg", Experiment(dataset, K, partition, 1, cut), values) for cut in chosen]
        absent = [None] * (len(CUTS) - len(chosen))
        yield tables.row(partition, K, *(f"{sent(run, K) * K * E:,.0f}" for run in found), *absent)


def loss_uploads(dataset: Dataset) -> Iterator[str]:
    """Whether dynamic averaging by loss sends more on unbalanced rows."""
    yield ""
    yield "Uploads by loss in 100 passes, logistic regression, SGD, K = 31, by deal; rho = 1 has 3,100."
    yield ""
    yield from tables.head("rows", *(f"deal {cut}" for cut in UNBALANCED_CUTS), "mean")
    E = PASSES["logreg"]
    values = {**settings_of("logreg", "sgd"), "protocol": "loss", "rounds": E, "evaluate_every": E}
    for partition in PARTITIONS[:2]:
        experiments = [Experiment(dataset, 31, partition, 1, cut) for cut in UNBALANCED_CUTS]
        counts = [sent(runs.kept(DOCUMENT, "dynavg", one, values), 31) * 31 * E for one in experiments]
        yield tables.row(partition, *(f"{n:.0f}" for n in counts), f"{sum(counts) / len(counts):.0f}")


def compared(dataset: Dataset) -> Iterator[str]:
    """Whether the SVD's accuracy is that of Delta = 0.3 and rho = 1: by deal, number of nodes, and the model from which
    a node that is due trains."""
    yield ""
    yield (
        "Accuracy of the SVD beside rho = 1 and Delta = 0.3, logistic regression, SGD, by number of nodes and deal. A "
        "node that is due trained on from the model it was last sent (ours), or does all its passes from the newest."
    )
    yield ""
    yield from tables.head(
        "rows", "K", "deal", "rate of the SVD", "rho = 1", "Delta = 0.3", "SVD (ours)", "SVD, from the newest model"
    )  # fmt: skip
    E = PASSES["logreg"]
    for partition, K, cut in COMPARED:
        experiment = Experiment(dataset, K, partition, 1, cut)
        values = {**settings_of("logreg", "sgd"), "rounds": E, "evaluate_every": E}
        svd = {**values, "protocol": "svd"}
        found = [
            runs.kept(DOCUMENT, "fedavg", experiment, {**values, "epochs": 1}),
            runs.kept(DOCUMENT, "dynavg", experiment, {**values, "protocol": "divergence", "delta": 0.3}),
            runs.kept(DOCUMENT, "dynavg", experiment, svd),
            runs.kept(DOCUMENT, "dynavg", experiment, {**svd, "train_from": "newest"}),
        ]
        cells = [f"{run.history[-1]['accuracy']:.3f}" for run in found]
        yield tables.row(partition, K, cut, f"{sent(found[2], K):.2f}", *cells)
