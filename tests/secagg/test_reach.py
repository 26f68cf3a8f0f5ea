"""What columns may be centred, divided and multiplied by, and the limit on columns that mark few rows where used.

A far center rounds values, and a tiny or large scale takes some below the smallest number of float64: both are
thresholds in a column, behind the limits on columns, unless they are bounded or these limits are held again.
"""

import base64
import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import test_additive_sums as additive_sums
from benchmarks.attacks.isolation import components, standardize
from honest import HONEST

from v6_federated import check_scale
from v6_federated.base.errors import SafeError
from v6_federated.data.columns import Features
from v6_federated.data.preprocessing import apply, check_reach
from v6_federated.messages import codec
from v6_federated.node import rows
from v6_federated.node.rows import NodeRows
from v6_workbench.simulation.mock import TRUSTING

MOST, LEAST = 2.0**100, 2.0**-100
ABOVE, BELOW = math.nextafter(MOST, math.inf), math.nextafter(LEAST, 0)
TINY = 2.0**-1074  # the smallest subnormal number
NEVER = [math.nan, math.inf, -math.inf, ABOVE, -ABOVE, 2.0**101, -(2.0**101), 2.0**1023]
AS_A_SCALE = [MOST, -MOST, LEAST, -LEAST, 1.0, -3.0]
NO_SCALE = [*NEVER, 0.0, -0.0, BELOW, -BELOW, 2.0**-101, 2.0**-1022, TINY, -TINY]
AS_A_CENTER = [*AS_A_SCALE, 0.0, BELOW, 2.0**-1022, TINY, -TINY]
REFUSED = r"centres or divides a column by a number beyond 1e30 or below 1e-30; .*another unit, or leave it out$"
TOGETHER = r"together multiply a column by a number beyond 1e60 or below 1e-60; leave some out$"


def at(i: int, number: float, of: int = 3) -> np.ndarray:
    """Ones, and one other number."""
    return np.where(np.arange(of) == i, number, 1.0)


# ---- one center, one scale


@pytest.mark.parametrize("i", range(3))
@pytest.mark.parametrize("center", AS_A_CENTER)
def test_centers_of_columns_are_accepted(center, i):
    check_scale(at(i, center))
    check_scale(at(i, center), np.ones(3))


@pytest.mark.parametrize("i", range(3))
@pytest.mark.parametrize("center", NEVER)
def test_far_centers_are_refused(center, i):
    with pytest.raises(SafeError, match=REFUSED):
        check_scale(at(i, center))
    with pytest.raises(SafeError, match=REFUSED):
        check_scale(at(i, center), np.ones(3))


@pytest.mark.parametrize("i", range(3))
@pytest.mark.parametrize("scale", AS_A_SCALE)
def test_scales_of_columns_are_accepted(scale, i):
    check_scale(np.zeros(3), at(i, scale))
    check_scale(np.zeros(3), np.ones(2), at(i, scale))


@pytest.mark.parametrize("i", range(3))
@pytest.mark.parametrize("scale", NO_SCALE)
def test_scales_that_no_column_needs_are_refused(scale, i):
    for scales in ([at(i, scale)], [np.ones(2), at(i, scale)], [at(i, scale), np.ones(2)]):
        with pytest.raises(SafeError, match=REFUSED):
            check_scale(np.zeros(3), *scales)


def test_float32_and_no_columns_at_all_are_checked_alike():
    check_scale(np.empty(0), np.empty(0))
    check_scale(np.float32([MOST]), np.float32([LEAST]))
    for mean, scale in ((np.float32([2.0**101]), np.float32([1])), (np.float32([0]), np.float32([2.0**-101]))):
        with pytest.raises(SafeError, match=REFUSED):
            check_scale(mean, scale)


# ---- all steps of a job


def scales(*numbers: float, name: str = "standardize") -> list[dict]:
    """A step for each scale, of one column."""
    return [standardize(np.zeros(1), np.array([number]), name) for number in numbers]


def loads(*numbers: float) -> dict:
    """A step ``pca`` with these loadings of two columns."""
    return components(np.array([numbers]))


REACHED = {
    "at 2^200": scales(LEAST, LEAST),
    "at 2^-200": scales(MOST, MOST),
    "negative scales": scales(-LEAST, -LEAST),
    "back and forth": scales(LEAST, MOST, LEAST),
    "one scale and loadings": [*scales(LEAST), loads(2.0**99, 2.0**99)],
    "tiny loadings": [*scales(MOST), loads(LEAST, 1.0)],
    "loadings below, which count as 0": [*scales(MOST, MOST), loads(BELOW, 1.0), loads(TINY, -0.0)],
    "negative loadings": [*scales(LEAST), loads(-(2.0**99), 2.0**99)],
    "other steps": [{"step": "clip", "fitted": {"bounds": {"x": [0, TINY]}}}, *scales(LEAST, LEAST)],
    "none": [],
}
BEYOND = {
    "one more": scales(LEAST, LEAST, 0.9999),
    "one less": scales(MOST, MOST, 1.0001),
    "by the step scale": scales(LEAST, LEAST, 0.5, name="scale"),
    "negative scales": scales(-LEAST, -LEAST, -0.5),
    "loadings": [*scales(LEAST), loads(2.0**99, 2.0**99 * 1.001)],
    "negative loadings": [*scales(LEAST), loads(-(2.0**99), -(2.0**99) * 1.001)],
    "tiny loadings": [*scales(MOST, 2.0), loads(LEAST, 1.0)],
    "tiny negative loadings": [*scales(MOST, 2.0), loads(-LEAST, 1.0)],
    "in another order": [loads(1.0, 1.001), *scales(LEAST, LEAST)],
}


@pytest.mark.parametrize("steps", REACHED.values(), ids=REACHED)
def test_steps_that_together_reach_no_farther_are_accepted(steps):
    check_reach(steps)


@pytest.mark.parametrize("steps", BEYOND.values(), ids=BEYOND)
def test_steps_that_together_reach_beyond_are_refused(steps):
    with pytest.raises(SafeError, match=TOGETHER):
        check_reach(steps)


FINITE = [number for number in NO_SCALE if math.isfinite(number)]  # what others a payload cannot hold


@pytest.mark.parametrize("name", ["standardize", "scale"])
@pytest.mark.parametrize("number", FINITE)
def test_each_step_is_checked_by_itself(number, name):
    with pytest.raises(SafeError, match=REFUSED):
        check_reach(scales(1.0, number, 1.0, name=name))
    arrays = {"mean": np.zeros(1), "mean_rest": np.zeros(1), "scale": np.array([number]), "components": np.ones((1, 1))}
    with pytest.raises(SafeError, match=REFUSED):
        check_reach([{"step": "pca", "fitted": codec.encode(arrays, "float64")}])


@pytest.mark.parametrize("number", [n for n in NEVER if math.isfinite(n)])
def test_far_centers_and_loadings_of_steps_are_refused(number):
    # in two parts, whose sum it is
    arrays = {"mean": np.array([number / 2]), "mean_rest": np.array([number / 2]), "scale": np.ones(1)}
    for steps in ([{"step": "standardize", "fitted": codec.encode(arrays, "float64")}], [loads(number, 1.0)]):
        with pytest.raises(SafeError, match=REFUSED):
            check_reach(steps)


def forged(number: float) -> dict:
    """A payload that no ``codec.encode`` makes."""
    fitted = codec.encode({"mean": np.zeros(1), "mean_rest": np.zeros(1), "scale": np.ones(1)}, "float64")
    return {**fitted, "data": base64.b64encode(np.array([0.0, 0.0, number]).tobytes()).decode()}


MALFORMED = [None, 3, {}, {"dtype": "float64"}, codec.encode({"scale": np.ones(1)}), forged(math.nan), forged(math.inf)]


@pytest.mark.parametrize("payload", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_steps_are_refused_where_they_are_applied(payload):
    check_reach([{"step": "standardize"}])
    for step in ({"step": "standardize", "fitted": payload}, {"step": "pca", "fitted": payload}):
        check_reach([step])
        with pytest.raises(SafeError):
            apply(Features(["x"], np.arange(9.0)[:, None], {}), [step])


# ---- the limit on columns that mark few rows, where columns are used

FEW = 5


def used(X: np.ndarray) -> np.ndarray:
    """The columns as a node of ``careful`` uses them."""
    return NodeRows.as_used(SimpleNamespace(policy=SimpleNamespace(minimum_rows_a_side=FEW)), X)


def marking(few: int, value: float, of: float = 0.0) -> np.ndarray:
    """A column of numbers that all differ, and one in which few rows have a value that all others have not."""
    marks = np.where(np.arange(40) % 8 < 1, value, of)
    marks[np.flatnonzero(marks == value)[few:]] = of
    return np.column_stack([np.arange(40.0), marks])


VALUES = [1.0, -1.0, TINY, 2.0**-1022, 2.0**100, -(2.0**101), math.inf, -math.inf]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("of", [0.0, 2.0**53, -(2.0**100)])
def test_a_column_in_which_few_rows_differ_is_constant_as_it_is_used(value, of):
    for few in range(1, FEW):
        X = marking(few, value, of)
        found = used(X)
        assert found[:, 0].tolist() == X[:, 0].tolist() and found[:, 1].tolist() == [of] * 40, few
    X = marking(FEW, value, of)
    assert used(X).tolist() == X.tolist()


def test_missing_values_stay_and_the_others_are_judged():
    X = marking(3, 7.0)
    X[10:12, 1] = math.nan
    found = used(X)[:, 1]
    assert np.isnan(found[10:12]).all() and not found[~np.isnan(found)].any()
    assert np.array_equal(used(marking(FEW, 7.0)), marking(FEW, 7.0))


def test_what_was_sent_is_not_changed_and_trusting_holds_no_limit():
    X = marking(2, 1.0)
    before = X.copy()
    used(X)
    assert np.array_equal(X, before)
    assert NodeRows.as_used(SimpleNamespace(policy=SimpleNamespace(minimum_rows_a_side=0)), X) is X


# ---- and the functions that centre columns hold it

FAR = -(2.0**54)  # where 0 and 1 are the same number, and 3 is another
HOLDING = {
    "covariance": ("fedavg", 7, {"mean": np.full(4, FAR)}),
    "product": ("fedavg", 8, {"mean": np.full(4, FAR)}),
    "glm": ("glm", 1, {"weights": np.zeros(5), "center": np.array([*[FAR] * 4, 0])}),
    "cox": ("cox", 2, {"weights": np.array([*[2.0**-54] * 4, 0]), "center": np.array([*[FAR] * 4, 0])}),
}


def added(method, function, arrays, settings, job, folder, monkeypatch, limit=0, threes=0):
    """What a hospital adds up, of columns of 0 and 1 of which few rows have a 3, and what hospitals say that refuse."""

    def dealt(times: bool, hostile: bool) -> dict[int, pd.DataFrame]:
        i = np.arange(60)
        table = pd.DataFrame({f"x{c}": np.where(i < threes, 3.0, i // 2**c % 2) for c in range(4)})
        return {k: table.assign(label=i % 3 + 1.0 if times else i % 2, ill=i % 2) for k in range(1, 6)}

    said, ask = [], additive_sums.Central.ask
    monkeypatch.setattr(additive_sums.Central, "ask", lambda *a, **more: said.append(ask(*a, **more)) or said[-1])
    monkeypatch.setattr(additive_sums, "dealt", dealt)
    monkeypatch.setattr(additive_sums, "TRUSTING", TRUSTING | {"V6_FEDERATED_MINIMUM_ROWS_A_SIDE": str(limit)})
    requests = [(arrays, settings)]
    [(captured, _)] = additive_sums.values_of(method, function, requests, job, monkeypatch, folder)
    return captured and captured[1][1], {text for text in said if isinstance(text, str)}


@pytest.mark.parametrize("name", HOLDING)
def test_a_far_center_marks_no_few_rows(name, tmp_path, monkeypatch):
    """After it has rounded a column, three rows alone would differ: without the limit, the sums are about these."""
    method, i, changed = HOLDING[name]
    function, arrays, settings, job = HONEST[method][i]

    def sums(limit: int, threes: int) -> str:
        asked = method, function, {**arrays, **changed}, settings, job, tmp_path / f"{limit}-{threes}"
        with monkeypatch.context() as patch:
            found, said = added(*asked, patch, limit, threes)
        assert not said
        return str(found)

    assert sums(FEW, 3) == sums(FEW, 0) != sums(FEW, FEW)
    assert sums(1, 3) != sums(1, 0), "the request itself tells"


BOUNDED = [(name, part) for name in HOLDING for part in ("center", "mean", "scale") if part in str(HOLDING[name][2])]
BOUNDED += [("covariance", "scale"), ("product", "scale"), ("glm", "scale")]


@pytest.mark.parametrize(("name", "part"), BOUNDED, ids=str)
@pytest.mark.parametrize("within", [True, False])
def test_every_function_that_centres_and_scales_columns_is_bounded(name, part, within, tmp_path, monkeypatch):
    method, i, _ = HOLDING[name]
    function, arrays, settings, job = HONEST[method][i]
    sent = np.array(arrays[part], float)
    sent[0] = {"scale": LEAST if within else BELOW}.get(part, MOST if within else ABOVE)
    weights = {"weights": np.zeros(5)} if "weights" in arrays else {}  # of columns that are centred far away
    asked = method, function, {**arrays, **weights, part: sent}, settings, job, tmp_path, monkeypatch
    found, said = added(*asked)
    if within:
        assert found is not None and not said
    else:
        [text] = said
        assert re.search(REFUSED, text)


@pytest.mark.parametrize(("steps", "says"), [("at 2^-200", ""), ("one less", TOGETHER)], ids=str)
def test_all_steps_of_a_job_are_bounded_before_a_row_is_read(steps, says, tmp_path, monkeypatch):
    data = {"features": ["x0"], "preprocess": REACHED.get(steps) or BEYOND[steps]}
    asked = "fedavg", "fit_step", {"center": np.zeros(1)}, {"statistic": "moments"}, {"model": None, "data": data}
    if says:
        monkeypatch.setattr(rows, "open_database", None)
    found, said = added(*asked, tmp_path, monkeypatch)
    assert (found is None) == bool(says) and all(re.search(says, text) for text in said)
