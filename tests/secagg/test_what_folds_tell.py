"""What hospitals round, fold or leave out by themselves: what many requests with chosen inputs tell about each of them.

Four hospitals, a column whose values all differ. Where each one's limit is passed, a sum jumps by more than a row.
"""

import numpy as np
import pandas as pd
import pytest
from forged import Central

import v6_gbdt
from v6_federated.data.statistics import Below, edges
from v6_federated.messages import codec
from v6_federated.node.node import Node
from v6_federated.rules.rounding import Rounding
from v6_federated.rules.schema import Column, Schema
from v6_gbdt import bins
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

CAREFUL = {"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_CLASSES": "*"}
SIZES = (63, 87, 104, 121)
SCHEMA = Schema((Column("x", "number", 0, 1000), Column("word", "words", levels=("a", "b", "c"))), "label", (0, 1))
FEW = (2, 4, 6, 9)  # rows with the word c


def tables() -> dict[int, pd.DataFrame]:
    """Values 0.5 to 374.5 of a column x, dealt at random; words, of which c is rare."""
    rng = np.random.default_rng(5)
    x = rng.permutation(sum(SIZES)) + 0.5
    found = {}
    for k, values in enumerate(np.split(x, np.cumsum(SIZES)[:-1]), start=1):
        words = np.array(["c"] * FEW[k - 1] + ["a", "b"] * len(values), object)[: len(values)]
        found[k] = pd.DataFrame({"x": values, "word": words, "label": rng.integers(0, 2, len(values))})
    return found


class Asking:
    """A researcher who asks a block for one sum after another."""

    def __init__(self, network: MockNetwork, method: str, model=None, **data) -> None:
        self.lying = Central(network, "pinned")
        data = {**self.lying.job["data"], "label": "label", "features": ["x"], "classes": [0, 1], **data}
        self.lying.job |= {"method": method, "model": model, "data": data}
        self.lying.agree()
        self.seq = 0

    def __call__(self, function: str, arrays: dict, **settings):
        self.seq += 1
        sent = {"arrays": codec.encode(arrays, "float64")} if arrays else {}
        answers = [self.lying.ask(k, function, self.seq, **sent, **settings) for k in self.lying.network.nodes]
        assert not any(isinstance(a, str) for a in answers), answers
        nodes, failed, found, _ = self.lying.opened(answers)
        assert (nodes, failed) == (4, 0)
        return found


@pytest.fixture
def network(tmp_path):
    """A function that starts the hospitals, with a study."""
    networks = []

    def start(package: str) -> MockNetwork:
        folder = tmp_path / str(len(networks))
        options = {"hospital_folder": folder, "study": StudyPlan(4, schema=SCHEMA), "environment": CAREFUL}
        networks.append(MockNetwork(package, tables(), **options).__enter__())
        return networks[-1]

    yield start
    for one in networks:
        one.__exit__(None, None, None)


def ranks(every: int, first: int) -> set[float]:
    """Of each hospital, its values by rank: the first-th smallest, and then every so many."""
    found = (np.sort(table["x"])[first - 1 :: every] for table in tables().values())
    return {float(v) for values in found for v in values}


# ---- cells of trees


def jumps_of_cells(network) -> dict[float, int]:
    """Where counts up to boundaries rise, one between each two values, and by how much."""
    asks = Asking(network("v6_gbdt"), "gbdt")
    n = sum(SIZES)
    found = asks("count", {"low": np.zeros(1), "high": np.full(1, 376.0)}, max_bin=47)["one counts"]
    at = bins.boundaries(np.zeros(1), np.full(1, 376.0), 47)[0]  # 1, 2, ..., 375
    assert len(at) == n
    return {round(float(b), 1) - 0.5: int(r) for b, r in zip(at, np.diff(found, prepend=0), strict=True) if r}


def test_cells_of_trees_tell_no_hospitals_tenth_value(network, monkeypatch):
    """Rounded down to multiples of ten by each hospital, they told every tenth value of each: 35 of 35."""
    truth = ranks(10, 10)
    real = bins.counts
    with monkeypatch.context() as patch:
        patch.setattr(bins, "counts", lambda X, at, step: real(X, at, 10))
        patch.setattr(bins, "_grain", lambda x: 0.0)
        told = jumps_of_cells(network)
    assert {*told} == truth and {*told.values()} == {10}
    after = jumps_of_cells(network)
    assert len(after) == sum(SIZES) and {*after.values()} == {1}  # each value of the block, whosever it is


# ---- evaluations


def jumps_of_evaluations(network, values: np.ndarray) -> dict[float, int]:
    """Where the number of rows that a model takes for ill changes by more than one, as its threshold passes values."""
    asks = Asking(network("v6_fedavg"), "fedavg", {"name": "logreg", "features": 1, "classes": 2})
    counts = []
    for threshold in [*(values - 0.5), values[-1] + 0.5]:
        weights = np.array([1.0, -threshold])
        found = asks("evaluate", {"weights": weights}, evaluate="all", bands=0)
        counts.append(int(found["one evaluation.confusion"][:, 1].sum()))
    return {float(v): int(r) for v, r in zip(values, -np.diff(counts), strict=True) if abs(r) > 1}


def test_evaluations_tell_no_place_where_a_hospital_rounds(network, monkeypatch):
    """Of 40 values, each hospital's rounded counts told which were next to a multiple of five there."""
    values = np.arange(100, 140) + 0.5
    with monkeypatch.context() as patch:
        own = property(lambda node: Rounding.of(5, node.identity, False))
        patch.setattr(Node, "rounding", own)
        assert len(jumps_of_evaluations(network, values)) >= 5
    assert jumps_of_evaluations(network, values) == {}


# ---- histograms


def test_histograms_tell_no_place_where_a_hospital_rounds(network, monkeypatch):
    """Rounded to multiples of five by each hospital, they told the third, eighth, ... value of each."""
    ends = {"lower": np.full(1, 100.0), "upper": np.full(1, 200.0)}
    at = edges(100.0, 200.0)

    def jumps() -> set[float]:
        below = Asking(network("v6_fedavg"), "fedavg")("fit_step", ends, statistic="below", columns=["x"])["one below"][
            0
        ]
        rises = zip(at[1:], np.diff(below), strict=True)
        return {float(np.floor(edge - 1e-9) + 0.5) for edge, rise in rises if rise > 2}

    real = Below.as_sums

    def as_it_was(below, node):
        node.pinned = False
        return real(below, node)

    with monkeypatch.context() as patch:
        patch.setattr(Below, "as_sums", as_it_was)
        assert jumps() == {v for v in ranks(5, 3) if 100 < v < 200}
    assert jumps() == set()


# ---- leaves


def test_leaves_tell_no_hospitals_tenth_value(network, monkeypatch):
    """The few follow the many: left of a threshold a hospital had no row, or ten at least."""
    edges = codec.encode({"edges": np.arange(0, 376, dtype=float), "lengths": np.array([376])})
    model = {"name": "trees", "features": 1, "classes": 2}
    empty = np.array([[-1, 0.0, 0.0]], np.float32)

    def jumps() -> set[float]:
        asks = Asking(network("v6_gbdt"), "gbdt", model)
        values = np.arange(25, 105)
        trees = np.concatenate([[[0, float(v), 0.0], [-1, 0, 0], [-1, 0, 0]] for v in values]).astype(np.float32)
        found = asks("leaf_sums", {"weights": empty, "structure": trees}, edges=edges)
        h = found["one sums"].reshape(2, len(values), 2)[1, :, 0] * 2.0**-30 * 4  # of a score of 0 it is a quarter
        return {float(v) - 0.5 for v, rise in zip(values[1:], np.diff(h), strict=True) if rise > 1.5}

    real = v6_gbdt.partial.leaves.sums_of_leaves
    with monkeypatch.context() as patch:
        patch.setattr(
            v6_gbdt.partial.leaves,
            "sums_of_leaves",
            lambda trees, edges, X, g, h, minimum, pause: real(trees, edges, X, g, h, 10, pause),
        )
        assert jumps() == {v for v in ranks(1000, 10) if 25 < v < 104}
    assert jumps() == set()


# ---- what stays, and stands on the page


def test_a_clipped_column_tells_every_hospitals_fifth_value(network):
    """A column that marks fewer than five rows of a hospital is constant there: where a clip makes it so, sums jump.

    The rule stays: it is what keeps one patient's row out of sums. The page says what it tells: four values, no names.
    """
    asks, found = Asking(network("v6_fedavg"), "fedavg"), []
    values = np.arange(330, 375)
    for b in values:
        clip = {"step": "clip", "fitted": {"bounds": {"x": [float(b), float(b) + 0.25]}}}
        job = {"model": None, "data": {**asks.lying.job["data"], "preprocess": [clip]}}
        sums = asks("fit_step", {"center": np.full(1, float(b))}, statistic="moments", job=job)
        found.append(float(sums["one first"][0]) * 4)  # rows above, where these are five or more at a hospital
    above = np.round(found)
    told = {float(v) + 0.5 for v, fall in zip(values, -np.diff(above), strict=False) if fall > 1}
    fifth = {float(np.sort(table["x"])[-5]) for table in tables().values()}
    assert told == fifth


@pytest.mark.parametrize("known", [["c"], ["a", "b", "c"], ["c", "a"]], ids=str)
def test_no_request_moves_the_fold_of_a_rare_word(known, network):
    """A word that fewer than five rows of a hospital have is another one there: one number a word, whoever asks."""
    asks = Asking(network("v6_fedavg"), "fedavg", features=["x", "word"], categories=["word"])
    asked = {"statistic": "levels", "columns": ["word"], "known": {"word": known}, "counts": True}
    found = asks("fit_step", {}, **asked)
    assert int(found["one counts"][known.index("c")]) == sum(n for n in FEW if n >= 5)
