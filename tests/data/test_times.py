"""Bins of time: how they are chosen, and what of a hospital's rows they let be seen."""

import numpy as np
import pytest
from vantage6.algorithm.tools.exceptions import PrivacyThresholdViolation

from v6_federated.base.errors import SafeError
from v6_federated.data import times
from v6_federated.rules.policy import Policy


def test_bins_that_few_rows_leave_are_joined():
    counts = np.array([3, 0, 4, 0, 9, 1, 0, 0, 2, 6, 1])
    assert times.joins(counts, 5).tolist() == [1, 1, 1, 2, 3, 4, 4, 4, 4, 4, 4]
    assert times.joins(np.array([0, 1, 0]), 5).tolist() == [1, 1, 1]
    assert times.joins(np.array([5, 5]), 5).tolist() == [1, 2]


def followed(least=5, n=60, seed=0):
    rng = np.random.default_rng(seed)
    return times.Followed(rng.exponential(5, n), rng.integers(0, 2, n) * 1.0, np.arange(1.0, 15), least, "evenly")


@pytest.mark.parametrize("rows", [followed(), followed().while_known()])
def test_joined_bins_hold_enough_rows_and_keep_the_totals(rows):
    for name, which in (("events", rows.event), ("censored", 1 - rows.event)):
        seen = getattr(rows, name)()
        assert seen.sum() == pytest.approx(which.sum())
        levels = np.split(seen, np.flatnonzero(np.diff(seen)) + 1)
        assert all(level.sum() == 0 or level.sum() > 5 - 1e-9 for level in levels), name
    np.testing.assert_allclose(rows.spent().sum(axis=1), rows.time)
    at_risk = (rows.time[:, None] > np.append(0, rows.ends)).sum(axis=0)
    tail = rows.spent()[:, at_risk < 10]
    assert tail.shape[1] > 1 and np.ptp(tail, axis=1).max() < 1e-12  # all bins with few at risk look alike
    assert tail.any() == (rows.until is None)


def test_rows_are_followed_while_enough_are_at_risk():
    exact = followed()
    rows = exact.while_known()
    at_risk = (exact.time[:, None] > exact.ends).sum(axis=0)  # when each bin ends
    assert at_risk[rows.until - 1] >= 10 > at_risk[rows.until]
    end = rows.ends[rows.until - 1]
    left = exact.time > end
    assert (rows.time[left] == end).all() and not rows.event[left].any()
    assert (rows.time[~left] == exact.time[~left]).all() and (rows.event[~left] == exact.event[~left]).all()
    assert not rows.events()[rows.until :].any() and not rows.censored()[rows.until :].any()
    for few in (9, 19):
        rows = times.Followed(np.arange(1.0, few + 1), np.ones(few), np.arange(1.0, 15), 5, "evenly").while_known()
        assert not len(rows.time) and not rows.events().any() and not rows.censored().any()
    all_of_them = followed(least=0)
    assert (all_of_them.while_known().events() == all_of_them.events()).all()


def test_events_of_joined_bins_are_spread_evenly_or_by_width_or_by_time_at_risk():
    time, ends = np.repeat([0.5, 3, 70], [2, 4, 20]), np.array([1.0, 2, 60])
    ways = ("evenly", "by width", "by time")
    quantiles, grid, at_risk = (times.Followed(time, time < 70, ends, 5, way).while_known() for way in ways)
    np.testing.assert_allclose(quantiles.events(), [2, 2, 2, 0])
    np.testing.assert_allclose(grid.events(), [6 / 60, 6 / 60, 6 * 58 / 60, 0])
    np.testing.assert_allclose(at_risk.at_risk, 1213 / 60 * np.array([1, 1, 58]), rtol=1e-6)  # joined, too
    np.testing.assert_allclose(at_risk.events(), [6 / 60, 6 / 60, 6 * 58 / 60, 0], rtol=1e-6)


def test_events_of_joined_bins_follow_the_time_at_risk():
    """Twenty leave in each of three bins of ten, and three of them in each have the event; the last is not followed."""
    time, event = np.repeat([5.0, 15, 25], 20), np.zeros(60)
    event[[0, 1, 2, 20, 21, 22, 40, 41, 42]] = 1
    rows = times.Followed(time, event, np.array([10.0, 20, 30]), 5, "by time").while_known()
    assert rows.at_risk.tolist() == [500, 300, 0]
    np.testing.assert_allclose(rows.events(), [6 * 500 / 800, 6 * 300 / 800, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_what_rows_are_at_risk_adds_up_to_the_last_bit(seed):
    """Each row's part is rounded, so that a sum over hospitals does not tell how rows are dealt."""
    rng = np.random.default_rng(seed)
    time, ends = rng.exponential(1 / 3, 500), np.cumsum(rng.exponential(0.01, 60))

    def at_risk(rows):
        return times.Followed(rows, np.ones(len(rows)), ends, 0, "by time").at_risk

    whole = at_risk(time)
    for part in (rng.integers(0, 4, 500), np.argsort(np.argsort(time)) // 125):
        np.testing.assert_array_equal(sum(at_risk(time[part == k]) for k in range(4)), whole)
    exact = np.diff(np.minimum(time[:, None], ends).sum(axis=0), prepend=0)
    np.testing.assert_allclose(whole, exact, atol=500 * times.unit_of(ends))


def test_rows_are_followed_to_the_last_end_that_a_job_names():
    """The open bin has no width by which the events of joined bins could be spread."""
    rows = times.Followed(np.arange(1.0, 41), np.ones(40), np.array([10.0, 38]), 5, "by width")
    last = rows.up_to_the_last_end()
    assert last.time.max() == 38 and last.event[-3:].tolist() == [1, 0, 0]
    np.testing.assert_allclose(last.events(), [10, 28, 0])
    assert not last.spent()[:, 2].any()


def test_each_bin_of_a_block_holds_enough_events_and_the_last_one_leaves_enough_at_risk():
    """Of an end between two cells, the events before it may be those of the cell before, those after it of the next."""
    cells, rows = np.array([1.0, 2, 4, 8]), 40
    block = np.array([3.0, 8, 14, 20]), np.array([4.0, 10, 25, 35]), rows
    assert times.of_enough([1, 2, 4, 8], cells, [block], 5) == [2, 4]  # 5 are at risk after 8, and 15 after 4
    assert times.of_enough([2, 3, 9], cells, [block], 5) == [2, 4]  # perhaps none between 2 and 3; the last cell's end
    assert times.of_enough([2, 3], cells, [block], 5) == [3]  # few events before the last end are in its bin
    assert times.of_enough([8, 9], cells, [block], 5) == [4]
    other = np.array([0.0, 2, 9, 9]), np.array([0.0, 2, 9, 9]), rows
    assert times.of_enough([2, 4], cells, [block, other], 5) == [4]
    for few in ((np.full(4, 4.0), np.full(4, 4.0), rows), (np.full(4, 9.0), np.full(4, 31.0), rows)):
        with pytest.raises(SafeError, match="5 patients of each block must have the event in a bin of time"):
            times.of_enough([2, 4], cells, [block, few], 5)


def test_time_at_risk_and_events_by_hand():
    rows = times.Followed(np.array([0.0, 1, 2.5, 9]), np.array([1.0, 1, 0, 1]), np.array([1.0, 3]), 0, "evenly")
    assert rows.spent().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1.5, 0], [1, 2, 6]]
    assert rows.events().tolist() == [2, 0, 1] and rows.censored().tolist() == [0, 1, 0]
    assert rows.at_risk.tolist() == [3, 3.5]


def test_events_are_counted_in_multiples_and_no_finer_than_the_hospital_s_deviation():
    time = np.arange(1.0, 101)
    event = (time % 2 == 0) * 1.0
    exact, leavers = times.upto(time, event, 128.0, 1)
    assert exact[[3, 7, 511]].tolist() == [0, 1, 50]  # up to 1, 2 and 128
    assert leavers[[3, 7, 511]].tolist() == [1, 2, 100]
    rounded, some = times.upto(time, event, 128.0, 5)
    assert not (rounded % 5).any() and (rounded <= exact).all() and (exact - rounded).max() < 6
    assert not (some % 5).any() and (some <= leavers).all() and (rounded <= some).all()
    close, _ = times.upto(1000 + time / 1e6, event, 1024.0, 5)
    assert np.unique(close).tolist() == [0, 50]
    for end in (100.0, 2.0**41):
        with pytest.raises(SafeError, match="do not end there"):
            times.upto(time, event, end, 5)


def test_exact_counts_of_cells_add_up_to_those_of_all_rows():
    rng = np.random.default_rng(0)
    time, event, part = rng.exponential(9, 200).round(2), rng.integers(0, 2, 200), rng.integers(0, 4, 200)
    whole = times.upto(time, event, 64.0, 1)
    parts = [times.upto(time[part == k], event[part == k], 64.0, 1) for k in range(4)]
    for i in (0, 1):
        np.testing.assert_array_equal(sum(counts[i] for counts in parts), whole[i])


@pytest.mark.parametrize(
    "time, grain", [([1, 2, 30], 1.0), ([1, 2.5, 3], 0.1), ([0.25, 7, 0.99], 0.01), ([1 / 3, 2, 5], 0.0)]
)
def test_the_grain_of_times(time, grain):
    assert times.grain_of(times.off_grain(np.array(time, float), 1)) == grain
    assert times.off_grain(np.repeat([1.0, 1.5], [50, 4]), 5).tolist() == [0, 0, 0]  # so few are not told


def test_bins_hold_equally_many_events():
    time = np.arange(1.0, 101)
    counts, _ = times.upto(time, np.ones(100), 128.0, 1)
    assert times.quantiles(counts, times.cells(128.0), np.array([0.25, 0.5, 1])) == [25.0, 50.0, 100.0]
    assert times.quantiles(np.full(512, 7), times.cells(128.0), np.array([0.25, 0.5])) == [0.25]
    with pytest.raises(SafeError, match="too few rows with the event"):
        times.quantiles(np.zeros(512), times.cells(128.0), np.ones(1))


def test_bins_at_equal_steps_of_events_and_leavers():
    """Half of the rows have the event by 50, all others are censored by 100, but for one event at 100."""
    time, event = np.arange(1.0, 101), np.append(np.repeat([1.0, 0], [50, 49]), 1.0)
    counts = times.upto(time, event, 128.0, 1)
    ends = times.mixed(*counts, times.cells(128.0), 10, 1.0)
    at_risk = np.maximum(100 - counts[1], 10) / 100
    rising = 0.8 * (counts[0] / 51 + counts[1] / 100) / 2 + 0.2 * np.log(at_risk) / np.log(0.1)
    steps = np.diff(rising[np.searchsorted(times.cells(128.0), ends)], prepend=0)
    assert len(ends) == 10 and ends[-1] == 100.0 and ends == [float(int(end)) for end in ends]
    np.testing.assert_allclose(steps, 0.1, atol=0.015)
    assert sum(end > 50 for end in ends) == 4  # bins at quantiles of events would have one
    earlier = times.mixed(*times.upto(time, (time <= 50) * 1.0, 128.0, 1), times.cells(128.0), 10, 1.0)
    assert earlier[-1] == 50.0  # up to the last event
    with pytest.raises(SafeError, match="too few rows with the event"):
        times.mixed(np.zeros(512), counts[1], times.cells(128.0), 10, 1.0)


@pytest.mark.parametrize("ends", [[], [0.0], [2.0, 1.0], [1.0, np.inf], [[1.0]], list(range(1, 600))])
def test_ends_that_are_none(ends):
    with pytest.raises(SafeError, match="ends of bins"):
        times.checked_ends(ends)


def test_a_bin_about_one_row_is_refused():
    weights = np.ones((12, 3))
    careful = Policy.of("careful")
    careful.check_bins(weights)
    weights[0, 2] = 30.0
    with pytest.raises(PrivacyThresholdViolation, match="one row would outweigh all others"):
        careful.check_bins(weights)
    Policy.of("trusting").check_bins(weights)
    careful.check_bins(np.zeros((12, 3)))


def test_counts_of_no_rows_are_numbers_of_the_same_kind():
    """A hospital without rows of the only group would otherwise add whole numbers where others add fractions."""
    none = times.Followed(np.zeros(0), np.zeros(0), np.array([1.0, 2.0]), 0, "by time")
    assert [counts.dtype for counts in (none.events(), none.censored(), none.at_risk)] == [np.float64] * 3


@pytest.mark.parametrize("bins, grain", [(10, 1.0), (100, 0.0), (500, 0.0), (500, 1.0)])
def test_enough_rows_leave_each_bin_and_those_of_time_zero_have_one(bins, grain):
    rng = np.random.default_rng(0)
    time, event = np.append(np.zeros(7), rng.exponential(20, 300)), rng.integers(0, 2, 307)
    time = np.ceil(time) if grain else time
    counts = times.upto(time, event, 256.0, 1)
    for least, zero in ((0, True), (5, True), (9, False)):
        ends = times.mixed(*counts, times.cells(256.0), bins, grain, at_zero=7, least=least)
        assert (ends[0] == times.POWERS[0]) == zero and len(ends) <= bins and (np.diff(ends) > 0).all()
        assert np.histogram(time, [-1.0, *np.nextafter(ends, np.inf)])[0].min() >= least
        assert ends[-1] >= time[event > 0].max() - (0 if grain else 1e-9)
        assert not grain or not np.mod(ends[zero:], 1).any()
    assert times.mixed(np.ones(512), np.ones(512), times.cells(2.0**-20), 10, 0.0, at_zero=1) == [times.POWERS[0]]
