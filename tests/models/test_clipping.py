"""Clipped sums against a loop over rows, and the bound on what one row changes, for rows that nobody has."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.noise import clipping

NUMPY = ["logreg", "logreg:l2=0.1", "svm", "svm:l2=0.1", "fnn:hidden=7", "nn_reddy:hidden=7", "2nn:hidden=7"]
TORCH = ["cnn_garst", "cnn_reddy:dropout=0", "cnn_mcmahan"]
FEATURES = 16  # an image of 4 x 4


class Line(models.LinearModel):
    """A regression: (f - y)^2."""

    def losses_and_slopes(self, scores, y):
        error = scores - y[:, None]
        return error[:, 0] ** 2, 2 * error


@functools.cache
def built(name, classes=3, features=FEATURES):
    if name == "line":
        return Line("logistic", features, 2)
    return models.build({**models.parse(name), "features": features, "classes": classes})


def rows_of(n, classes=3, features=FEATURES, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, features)).astype(np.float32), rng.integers(0, classes, n)


def clipped(model, w, X, y, clip=1.0, units=2**20):
    model.seed(np.random.default_rng(0))  # dropout
    return clipping.clipped_sum(model, model.asarray(w), model.asarray(X), model.asarray(y), clip, units)


def row_by_row(model, w, X, y, clip, units):
    """The same as ``clipped_sum`` from each row's own gradient, not rounded; and how many of them were clipped."""
    total, many = np.zeros(model.size), 0
    for i in range(len(y)):
        own = slice(i, i + 1)
        _, g = model.loss_and_gradient(model.asarray(w), model.asarray(X[own]), model.asarray(y[own]))
        g = np.asarray(g, dtype=np.float64) - clipping.penalty_gradient(model, w)
        many += np.linalg.norm(g) > clip
        total += g * units / max(np.linalg.norm(g), clip)
    return total, many


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", [*NUMPY, *TORCH, "line"])
def test_a_clipped_sum_equals_a_loop_over_rows(name, classes):
    """Of 150 rows, so of three chunks. Norms differ by a factor of a hundred, so that some are clipped."""
    model = built(name, classes)
    X, y = rows_of(150, classes)
    X *= np.geomspace(0.1, 10, len(X), dtype=np.float32)[:, None]
    if name == "line":
        y = np.random.default_rng(5).normal(size=len(y))
    w = np.random.default_rng(2).normal(size=model.size).astype(np.float32) * 0.3
    if name in TORCH:
        w = model.init(np.random.default_rng(1))
    norms = [np.linalg.norm(row_by_row(model, w, X[i : i + 1], y[i : i + 1], 1e9, 1e9)[0]) for i in range(len(y))]
    clip = float(np.median(norms))
    expected, many = row_by_row(model, w, X, y, clip, 2**24)
    assert 70 <= many <= 80
    found = clipped(model, w, X, y, clip, 2**24)
    assert found.dtype == np.int64 and found.shape == (model.size,)
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", ["logreg", "2nn"])
def test_blocks_of_rows_are_added_up(name):
    model = built(name, 10, 20)
    X, y = rows_of(1100, 10, 20)
    w = np.random.default_rng(2).normal(size=model.size).astype(np.float32) * 0.3
    expected, _ = row_by_row(model, w, X, y, 0.5, 2**22)
    assert np.linalg.norm(clipped(model, w, X, y, 0.5, 2**22) - expected) <= 1e-6 * np.linalg.norm(expected)


NUMBERS = [0.0, 1e-45, 1e-38, 1e-20, 1e-3, 1.0, -1.0, 3e4, -1e7, 1e15, 1e19, -1e19, 1e30, 3e38, -3e38]
ODD = [np.nan, np.inf, -np.inf]


@st.composite
def case(draw, names, most):
    """A model, its weights, rows, labels, C and units, as bad as they can be."""
    name = draw(st.sampled_from(names))
    classes = draw(st.sampled_from([2, 3]))
    model = built(name, classes)
    n = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X, y = rng.normal(size=(n, FEATURES)), rng.integers(0, classes, n)
    X *= rng.choice(draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3)), (n, 1))
    for value in draw(st.lists(st.sampled_from(NUMBERS + ODD), max_size=3)):
        X[rng.integers(n), rng.integers(FEATURES)] = value
    if draw(st.booleans()):  # duplicates, some with other labels
        X[:] = X[rng.integers(0, draw(st.integers(1, n)), n)]
    w = rng.normal(size=model.size) * draw(st.sampled_from([abs(value) for value in NUMBERS]))
    for value in draw(st.lists(st.sampled_from(NUMBERS), max_size=2)):
        w[rng.integers(model.size)] = value
    if draw(st.integers(0, 9)) == 0:
        w[rng.integers(model.size)] = draw(st.sampled_from(ODD))
    clip = draw(st.sampled_from([1e-30, 1e-10, 1e-3, 1.0, 100.0, 1e20, 1e30]))
    with np.errstate(over="ignore"):
        return (
            model,
            w.astype(np.float32),
            X.astype(np.float32),
            y,
            clip,
            draw(st.sampled_from([1, 2**10, 2**20, 2**24])),
        )


def zeroed_out(X, i):
    """X with a row in place of row i that contributes nothing."""
    X = X.copy()
    X[i] = np.nan
    return X


def check_every_row(model, w, X, y, clip, units):
    bound, all_rows = clipping.sensitivity(model.size, units), clipped(model, w, X, y, clip, units)
    np.testing.assert_array_equal(all_rows, clipped(model, w, X, y, clip, units))
    for i in range(len(y)):
        change = all_rows - clipped(model, w, zeroed_out(X, i), y, clip, units)
        assert np.linalg.norm(change.astype(np.float64)) <= bound


@settings(max_examples=300)
@given(case([*NUMPY, "cnn_garst", "cnn_reddy"], 12))
def test_one_row_changes_the_sum_by_the_sensitivity_at_most(case):
    check_every_row(*case)


@settings(max_examples=15)
@given(case(["cnn_mcmahan"], 6))
def test_one_row_changes_the_sum_of_a_large_network_by_the_sensitivity_at_most(case):
    check_every_row(*case)


@settings(max_examples=100)
@given(case(["logreg", "svm", "2nn:hidden=7"], 12), st.integers(0, 63))
def test_one_row_among_many_that_cancel_each_other(case, place):
    """In a full chunk of large rows that add up to almost nothing, the errors of float32 are largest."""
    model, w, X, y, clip, units = case
    X, y = np.resize(X, (64, FEATURES)), np.resize(y, 64)
    X[1::2] = -X[::2]
    change = clipped(model, w, X, y, clip, units) - clipped(model, w, zeroed_out(X, place), y, clip, units)
    assert np.linalg.norm(change.astype(np.float64)) <= clipping.sensitivity(model.size, units)


def test_the_sensitivity_is_hardly_more_than_what_a_row_can_change():
    model = built("logreg")
    X, y = rows_of(64)
    for units in (2**20, 2**24):
        alone = clipped(model, np.zeros(model.size, np.float32), X[:1], y[:1], 1e-3, units).astype(np.float64)
        assert np.linalg.norm(alone) == pytest.approx(units, rel=1e-5)
        assert units < clipping.sensitivity(model.size, units) < 1.0006 * units
    assert clipping.sensitivity(2_000_000, 2**20) < 1.002 * 2**20


@given(st.sampled_from([*NUMPY, "cnn_garst"]), st.sampled_from(ODD), st.integers(0, 9), st.booleans())
@settings(max_examples=50)
def test_a_row_that_is_not_finite_contributes_nothing_and_spoils_nothing(name, value, i, whole):
    model = built(name)
    X, y = rows_of(10)
    w = model.init(np.random.default_rng(1))
    X[i, slice(None) if whole else 3] = value
    X.flags.writeable = False  # clipping may not write into the node's rows
    others = np.arange(10) != i
    found, expected = clipped(model, w, X, y), clipped(model, w, X[others], y[others])
    assert np.abs(found).max() > 1000
    assert np.abs(found - expected).max() <= 2**20 * 10 * 2.0**-20  # the rows after it have moved up


def test_weights_that_are_not_finite_leave_no_row():
    for name in NUMPY:
        model = built(name)
        assert not clipped(model, np.full(model.size, np.nan, np.float32), *rows_of(5)).any()


def test_of_no_rows_the_sum_is_zero():
    for name in [*NUMPY, "cnn_garst"]:
        model = built(name)
        assert not clipped(model, model.init(np.random.default_rng(0)), *rows_of(0)).any()


def test_the_penalty_is_left_out_and_has_its_own_gradient():
    plain, penalized = built("svm"), built("svm:l2=0.1")
    w, (X, y) = np.random.default_rng(0).normal(size=plain.size).astype(np.float32), rows_of(20)
    np.testing.assert_array_equal(clipped(plain, w, X, y), clipped(penalized, w, X, y))
    without, with_it = (m.loss_and_gradient(w, X, y)[1] for m in (plain, penalized))
    np.testing.assert_allclose(with_it - without, clipping.penalty_gradient(penalized, w), atol=1e-7)
    assert not np.any(clipping.penalty_gradient(plain, w)) and not np.any(clipping.penalty_gradient(built("fnn"), w))


def test_accepted_models_are_listed_and_others_refused():
    for name in {*models.SIZES} - {"linear"}:
        side = {"cnn": 8, "resnet18": 8, "cnn_cifar": 24}.get(name)
        model = built(name, features=side**2) if side else built(name)
        if name in clipping.ACCEPTED:
            clipping.check(model)
        else:
            with pytest.raises(
                SafeError, match="gradient of each row; choose one of logreg, svm, .*cnn_mcmahan, the mlp "
            ):
                clipped(model, model.init(np.random.default_rng(0)), *rows_of(3))
    assert set(models.SIZES) - set(clipping.ACCEPTED) == {
        "lstm_char",
        "lstm_word",
        "cnn",
        "cnn_cifar",
        "resnet18",
        "linear",
    }
    for loss in ({"name": "squared", "mean": 0.0, "scale": 1.0}, {"name": "cox"}):
        with pytest.raises(SafeError, match="a model of numbers"):
            clipping.check(models.build({"name": "linear", "features": 3, "classes": 1, "loss": loss}))
    with pytest.raises(SafeError, match="the mlp without dropout and norm$"):
        clipping.check(built("mlp:norm=layer"))


@pytest.mark.parametrize(
    ("clip", "units", "match"),
    [
        (0, 9, "norm 0;"),
        (np.nan, 9, "norm nan"),
        (np.inf, 9, "norm inf"),
        (1, 0, "1 to 16777216"),
        (1, 2**25, "refused"),
    ],
)
def test_what_is_out_of_range_is_refused(clip, units, match):
    model = built("logreg")
    with pytest.raises(SafeError, match=match):
        clipped(model, np.zeros(model.size, np.float32), *rows_of(3), clip, units)
