"""What a node computes shows in its answer alone: not in its log, and one row not in its time."""

import platform
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import a_method, crafted

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.node.silence import silent, subnormals_as_zero
from v6_federated.noise import clipping
from v6_gbdt import leaves, trees
from v6_gbdt.trees import LEAF, Trees

FLUSHES = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
needs_flushing = pytest.mark.skipif(not FLUSHES, reason="only x86-64 with glibc")


def warns(node):
    """A method whose log says whether some row is 0."""
    warnings.warn(f"bad value {node.rows.X[0, 0]}", UserWarning, stacklevel=1)
    return {"found": float(np.isinf(np.log(node.rows.X * 0)).mean()), "other": float((1 / np.zeros(1))[0] > 0)}


@pytest.mark.usefixtures("as_deployed")
@pytest.mark.parametrize("debug", [False, True])
def test_only_a_developer_can_see_warnings(hospitals, monkeypatch, recwarn, capfd, debug):
    environment = {"V6_FEDERATED_DEBUG": "1"} if debug else {}
    status, log = crafted(hospitals, package=a_method(monkeypatch, warns), environment=environment)
    said = {warning.category for warning in recwarn if warning.filename == __file__}
    assert status == "completed" and not log and not capfd.readouterr().err
    assert said == ({RuntimeWarning, UserWarning} if debug else set())


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("as_deployed")
def test_warnings_are_shown_again_afterwards():
    with silent():
        np.log(np.zeros(1))
    with pytest.raises(RuntimeWarning, match="divide by zero"):
        np.log(np.zeros(1))


@pytest.mark.usefixtures("as_deployed")
@pytest.mark.parametrize("other", [silent, warnings.catch_warnings])
@pytest.mark.parametrize("first", [0, 1])
def test_no_warning_is_suppressed_after_two_threads_that_overlap(other, first):
    """The one that ended later restored the filters that it had found, those of the other: nobody saw a warning."""
    contexts = [silent(), other()]
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        before = [*warnings.filters]
        in_order = [(one, contexts[first]), (two, contexts[1 - first])]
        for thread, context in in_order:
            thread.submit(context.__enter__).result()
        for thread, context in in_order:
            thread.submit(context.__exit__, None, None, None).result()
        assert warnings.filters == before


@needs_flushing
@pytest.mark.parametrize(("kind", "small"), [(np.float32, 1e-30), (np.float64, 1e-300)])
def test_subnormal_numbers_are_zero(kind, small):
    """They made a network many times slower for one row alone, which named its hospital and its values."""
    h, W = np.full((3, 40), 1e-10, kind), np.full((40, 40), small, kind)
    with subnormals_as_zero():
        inside = [(h @ W).max(), (h[:, 0] * W[0, 0]).max(), (W * W * 1.0).max()]
    assert inside == [0, 0, 0] and (h @ W).max() > 0
    torch = pytest.importorskip("torch")
    with subnormals_as_zero():
        assert (torch.from_numpy(h) @ torch.from_numpy(W)).max() == 0


@needs_flushing
def test_a_partial_function_computes_without_subnormal_numbers(hospitals, monkeypatch):
    seen = []

    def looks(node):
        seen.append(float((np.full(1, 1e-300) * 1e-10)[0]))
        return {"found": 0.0}

    crafted(hospitals, package=a_method(monkeypatch, looks))
    assert seen and not any(seen) and np.full(1, 1e-300)[0] * 1e-10 > 0


def chain(steps: int) -> np.ndarray:
    """A tree that only values from 0.4 to 0.5 go down far."""
    ends = [[LEAF, 0, 0]] * (steps + 2)
    return np.array([[0, 0.5, 0], [0, 0.4, 0], [LEAF, 0, 0], *[[0, 0.9, 0]] * steps, *ends], np.float32)


@pytest.mark.parametrize("value", [0.45, 0.7])
def test_rows_take_as_many_steps_down_a_tree_whatever_they_hold(value, monkeypatch):
    """A single row in a box could send a node down a tree of a million splits."""
    worked = []
    real = trees.on_the_way
    for module in (trees, leaves):
        monkeypatch.setattr(module, "on_the_way", lambda arrived: worked.append(len(arrived)) or real(arrived))
    X, edges = np.full((100, 1), 0.7, np.float32), np.array([0.4, 0.5, 0.9], np.float32)
    X[17] = value
    Trees(1, 2).sums(chain(30), X)
    leaves.cells(chain(30), [edges], np.searchsorted(edges, X).astype(float), 1)
    assert worked == ([100] + [trees.LEAST_PAIRS] * 31) * 2


@pytest.mark.parametrize("rows", [0.45, 0.7])
def test_trees_that_vote_need_weights_above_0(rows):
    """The logarithm of no votes warned if and only if a row was in a box that the task chose."""
    two = np.concatenate([chain(1), [[LEAF, -1, 0]]]).astype(np.float32)
    two[two[:, 0] == LEAF, 2] = [1, 1, 1, 1, -1]  # two trees
    with pytest.raises(SafeError, match="vote with a weight of 0 or less"):
        Trees(1, 2).scores(two, np.full((5, 1), rows, np.float32))


@pytest.mark.parametrize("name", ["logreg", "2nn:hidden=16"])
def test_a_row_that_is_not_finite_makes_no_copies(name):
    """Weights chosen so that one known person's score overflows made each step of a noisy job a fifth slower.

    Rows and signals were copied then. The copies are seen here by their memory, since times vary too much for a test.
    """
    features, classes = 400, 3
    model = models.build({**models.parse(name), "features": features, "classes": classes})
    X, y, w = np.zeros((300, features), np.float32), np.zeros(300, int), np.full(model.size, 2, np.float32)
    kept, finite = [], []
    for value in (0.0, 3e38, 0.0):
        X[17] = value
        with silent():
            inputs, signals = model.row_gradients(w, X, y)
            tracemalloc.start()
            layers = clipping._weighted(inputs, signals, 1.0, 2**20)
            kept.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
        finite.append(all(np.isfinite(signal).all() for signal in signals))
        assert all(np.isfinite(signal).all() for _, signal in layers)
    assert finite == [True, False, True]
    assert max(kept) - min(kept) < 2000  # a copy of the rows has 480,000 bytes
