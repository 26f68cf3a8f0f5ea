"""How often the log-rank test of ``km`` rejects where groups do not differ, beside the exact test on the same rows.

No document has this table. ``docs/methods/km.md`` shows it. The functions of nodes and of central are called directly.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import tables
from v6_federated import inference, times
from v6_federated.base.vantage6_api import PrivacyThresholdViolation
from v6_federated.node.rows import Groups
from v6_federated.rules.policy import Policy
from v6_km.comparison import chi_squared, of_bins, of_hospital
from v6_km.curves import Counts
from v6_km.partial import leaving

SIZES = (150, 200, 300, 450)  # rows of the hospitals
LEVEL = 0.05


@dataclass(frozen=True)
class Rows:
    """One hospital's rows.

    Attributes:
        time: of the event or of censoring (n,).
        event: 1 for an event (n,).
        group: 0 or 1 (n,).
    """

    time: np.ndarray
    event: np.ndarray
    group: np.ndarray


@dataclass(frozen=True)
class Scenario:
    """Hospitals in which groups have the same hazard.

    Attributes:
        means: mean time to the event at each hospital.
        shares: of the second group at each hospital.
        censored: mean time to censoring in each group.
        sizes: rows of each hospital.
        whole: whether times are whole, of months: many are tied.
    """

    means: Sequence[float] = (10.0,) * 4
    shares: Sequence[float] = (0.4,) * 4
    censored: Sequence[float] = (12.0, 12.0)
    sizes: Sequence[int] = SIZES
    whole: bool = False

    def drawn(self, rng: np.random.Generator) -> list[Rows]:
        """Draw the rows of all hospitals."""
        found = []
        for n, mean, share in zip(self.sizes, self.means, self.shares, strict=True):
            group = (rng.random(n) < share).astype(np.intp)
            event, censored = rng.exponential(mean, n), rng.exponential(np.array(self.censored)[group])
            if self.whole:  # each by itself: who has both in one month has had the event, in every group
                event, censored = np.ceil(event), np.ceil(censored)
            found.append(Rows(np.minimum(event, censored), (event <= censored) * 1.0, group))
        return found


EQUAL, FASTER, DIFFER, MONTHS = (
    "equal censoring",
    "one group is censored four times as fast",
    "hospitals differ in hazard and in groups",
    "one group is censored four times as fast; whole months",
)
SCENARIOS: Mapping[str, Scenario] = {
    EQUAL: Scenario(),
    FASTER: Scenario(censored=(20.0, 5.0)),
    MONTHS: Scenario(censored=(20.0, 5.0), whole=True),
    DIFFER: Scenario(means=(4, 8, 12, 20), shares=(0.3, 0.4, 0.5, 0.7)),
}
EXACT, STUDY, OWN = "`trusting` in a study", "`careful` in a study", "`careful` without a study"
NODES: Mapping[str, tuple[str, bool]] = {  # and whether in a study
    EXACT: ("trusting", True),
    STUDY: ("careful", True),
    OWN: ("careful", False),
}
# With strata=hospital and exact counts both tests are the same, which is left out.
TESTS = (
    ("none", 100, FASTER, EXACT),
    ("none", 100, EQUAL, EXACT),
    ("hospital", 100, DIFFER, OWN),
    ("none", 100, FASTER, OWN),
    ("none", 10, FASTER, EXACT),
    ("none", 500, FASTER, STUDY),
    ("none", 100, MONTHS, EXACT),
    ("none", 10, MONTHS, STUDY),
    ("hospital", 100, MONTHS, OWN),
    ("hospital", 100, FASTER, OWN),
    ("hospital", 100, EQUAL, OWN),
    ("none", 100, EQUAL, OWN),
)


def of_nodes(hospitals: Sequence[Rows], profile: str, pinned: bool, bins: int, strata: str) -> dict[str, Any] | None:
    """The test that a job finds, by the functions that its nodes and central call."""
    policy = Policy.of(profile)
    step = 1 if pinned else policy.minimum_rows_a_class

    def counted(end: float | None) -> tuple[np.ndarray, np.ndarray]:
        each = [times.upto(h.time, h.event, end, step) for h in hospitals]
        return np.sum([events for events, _ in each], axis=0), np.sum([leavers for _, leavers in each], axis=0)

    rough = counted(None)
    (end,) = times.quantiles(rough[0], times.cells(None), np.ones(1))
    off = np.sum([times.off_grain(h.time, step) for h in hospitals], axis=0)
    grain = times.grain_of(off)
    events, leavers = counted(end)
    least = policy.minimum_rows_a_side if pinned else 0
    ends = times.mixed(events, leavers, times.cells(end), bins, grain, rough[1][0], least)
    function: Any = leaving
    answers = [function.__wrapped__(_node(h, policy, pinned), ends=ends, strata=strata) for h in hospitals]
    sums = {name: np.sum([answer[name] for answer in answers], axis=0) for name in answers[0]}
    if strata == "hospital":
        return chi_squared(sums["difference"], inference.symmetric(sums["covariance"], 2), strata)
    of_bins_of = (sums[name].reshape(2, -1) for name in ("events", "censored", "time"))
    groups = [Counts(np.array(ends), *of) for of in zip(*of_bins_of, strict=True)]
    events, at_risk = np.array([g.events[:-1] for g in groups]), np.array([g.followed for g in groups])
    return chi_squared(*of_bins(events, at_risk, groups[0].at_once(grain)), strata)


def exact(hospitals: Sequence[Rows], strata: str) -> dict[str, Any] | None:
    """The exact test on the same rows; ``tests/methods/test_km.py`` compares it with survdiff of R."""
    if strata == "none":
        hospitals = [Rows(*(np.concatenate([getattr(h, part) for h in hospitals]) for part in vars(hospitals[0])))]
    found = [of_hospital(h.time, h.event, h.group, 2) for h in hospitals]
    return chi_squared(np.sum([u for u, _ in found], axis=0), np.sum([V for _, V in found], axis=0), strata)


def _node(rows: Rows, policy: Policy, pinned: bool) -> Any:
    none = np.zeros(2, np.intp)
    return SimpleNamespace(
        times=lambda few_events: (rows.time, rows.event),
        groups=lambda: Groups(rows.group, none, none),
        job=SimpleNamespace(data=SimpleNamespace(levels=["0", "1"]), counts_hospitals=True),
        policy=policy,
        pinned=pinned,
    )


def statistics(scenario: Scenario, runs: int, profile: str, pinned: bool, bins: int, strata: str) -> np.ndarray:
    """The statistics of the job's test and of the exact one in each run (runs, 2); 0 if there is no test."""
    rng = np.random.default_rng(2026)
    found = np.zeros((runs, 2))
    i = 0
    while i < runs:
        hospitals = scenario.drawn(rng)
        try:
            both = of_nodes(hospitals, profile, pinned, bins, strata), exact(hospitals, strata)
        except PrivacyThresholdViolation:  # a hospital has 1 to 4 events of a group and refuses the job: drawn again
            continue
        found[i] = [0.0 if test is None else test["statistic"] for test in both]
        i += 1
    return found


def rejected(scenario: Scenario, runs: int, profile: str, pinned: bool, bins: int, strata: str) -> tuple[int, ...]:
    """In how many runs the job's test rejects, the exact one does, only the first, and only the second."""
    ours, theirs = (statistics(scenario, runs, profile, pinned, bins, strata) > stats.chi2.isf(LEVEL, 1)).T
    return int(ours.sum()), int(theirs.sum()), int((ours & ~theirs).sum()), int((theirs & ~ours).sum())


def lines(runs: int) -> Iterator[str]:
    """A line for each test, scenario and kind of node."""
    yield ""
    yield from tables.head("strata", "bins", "rows", "nodes", "rejects", "exact test", "b", "c", "within 3 sqrt(b + c)")
    for strata, bins, name, nodes in TESTS:
        ours, theirs, b, c = rejected(SCENARIOS[name], runs, *NODES[nodes], bins, strata)
        share = [f"{100 * n / runs:.2f}%" for n in (ours, theirs)]
        near = "yes" if abs(b - c) <= 3 * np.sqrt(b + c) else "**no**"
        yield tables.row(f"`{strata}`", str(bins), name, nodes, *share, str(b), str(c), near)
    confounded = SCENARIOS[DIFFER]
    ours, theirs, b, c = rejected(confounded, runs, "trusting", True, 100, "none")
    yield ""
    yield (
        f"Where hospitals differ in hazard and in groups, `strata=none` rejects in {100 * ours / runs:.1f}% of runs, "
        f"and the exact test without strata in {100 * theirs / runs:.1f}%: both take differences of hospitals for "
        "those of groups."
    )


def main(dataset: Any, full: bool) -> None:
    """Print and keep the table; it needs no data from elsewhere."""
    runs = 10_000 if full else 200
    about = (
        f"{runs:,} runs (seed 2026) of four hospitals with {sum(SIZES)} rows, whose two groups have the same hazard: "
        "how often the log-rank test of `km` rejects at 5%, and how often the exact test on all of these rows does. b "
        "and c are the runs in which only the first, or only the second rejects. Functions of nodes and of central are "
        "called directly. Rows of which a `careful` hospital refuses the job, as 1 to 4 patients of a group have the "
        "event there, are drawn again."
    )
    page = tables.Page("log_rank", "The log-rank test where groups do not differ", full, about, data="", timed=True)
    tables.page(page, lines(runs), 0)
