"""The server of Kaplan-Meier curves."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from v6_federated import (
    Answer,
    Common,
    Federation,
    Grid,
    Needs,
    Number,
    Result,
    Rounds,
    SafeError,
    central,
    check_grid,
    codec,
    inference,
    mixed_bins,
    times,
)
from v6_km.comparison import chi_squared, of_bins, parts_of
from v6_km.curves import MEDIANS, Counts, curve, said, shown
from v6_km.hiding import HOSPITALS, hidden
from v6_km.partial import SHARED, Strata

Bins = Annotated[
    int, Field(ge=1, le=times.MOST, description="bins of time, at equal steps of events and of rows that leave"), Number
]
Confidence = Annotated[float, Field(gt=0, lt=1, description="coverage of the confidence intervals"), Number]
AtRisk = Annotated[int, Field(ge=1, description="a curve ends once fewer rows of all hospitals are at risk"), Number]
Stratified = Annotated[
    Strata,
    Field(description="log-rank test within hospitals, from exact times (hospital), or over all rows in bins (none)"),
    Needs("subgroup", because="the test compares its groups"),
]


class Settings(Common):
    """The settings that every method takes; the label is a time, and there are no features."""

    times_only: ClassVar[bool] = True
    unused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("features", "exclude", "preprocess", "start_from", "until_converged"), "which looks at times only"
    )

    label: Annotated[str | None, Field(description="column of times, of the event or of censoring")] = None
    event: Annotated[
        str | None,
        Field(description="column that is 1 if the label is the time of an event, 0 if of censoring (unset: all are)"),
    ] = None
    subgroup: Annotated[str | None, Field(description="column of words: a curve for each, and the log-rank test")] = (
        None
    )
    precision: Annotated[Literal["float64"], Field(description="number format of what is sent, here in full")] = (
        "float64"  # type: ignore[assignment]  # as with cox
    )

    @classmethod
    def predicts_numbers(cls, values: Mapping[str, Any]) -> bool:
        """Say that the label is a number, a time."""
        return True


def check_settings(settings: Any) -> None:
    """Reject settings that do not fit each other.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: they do not.
    """
    if settings.label is None:
        raise SafeError("label is missing: name the column of times, such as --label months")
    if settings.subgroup is not None and settings.subgroup in (settings.label, settings.event):
        raise SafeError(
            f"subgroup={settings.subgroup} is the column of times or events; name another one, or leave it out"
        )
    check_grid(settings, between=True)


@central(
    supervised=False,
    common=Settings,
    check=check_settings,
    of_hospitals=lambda settings: (
        f"each hospital's test is no sum over its rows; {SHARED}"
        if settings.subgroup is not None and settings.strata == "hospital"
        else ""
    ),
    known_as=dict.fromkeys(
        ("kaplan-meier", "kaplan_meier", "kaplanmeier", "logrank", "log-rank", "survfit"), "--set event=COLUMN"
    ),
)
def central(
    federation: Federation,
    *,
    rounds: Rounds = 10,
    bins: Bins = 100,
    grid: Grid = None,
    strata: Stratified = "hospital",
    confidence: Confidence = 0.95,
    minimum_at_risk: AtRisk = 10,
) -> Result:
    """Kaplan-Meier curves in bins of time, and the log-rank test: Kaplan and Meier 1958, Mantel 1966.

    Symbols: B bins, G groups. What leaves a node: before the round, its events, and its rows that leave, counted by
    cell of time; then ``events`` and ``censored``, its rows of each group that have the event or are censored in each
    bin (G (B + 1),), their ``time`` at risk in it (G B,), ``left_out`` and ``left_with``, rows of groups that are too
    small for its limits (G,), and whether it ``contributes`` to a group (G + 1,). With ``strata=hospital`` also its
    log-rank test's ``difference`` (G,) and ``covariance`` (G (G + 1) / 2,), and whether it ``compared`` groups (1,).
    Bytes up a node: 32/3 times as many as numbers in float64, up to 15 times as many under masks.
    """
    groups: list[str | None] = [*federation.levels] or [None]
    G, strata = len(groups), strata if len(groups) > 1 else "none"
    for _ in federation.rounds(min(rounds, 1)):
        ends, grain = mixed_bins(federation, bins, grid)
        of_bins, hospitals = ["events", "censored", "time"], not federation.hides_totals
        counted = ["left_out", "left_with", *(["contributes"] if hospitals else [])]
        compared, others = (["difference", "covariance"], ["compared"]) if strata == "hospital" else ([], [])
        answers = federation.ask(
            "leaving",
            federation.organizations,
            measures=dict.fromkeys([*of_bins, *compared, *counted, *others]),
            validate=wrong_counts,
            ends=ends,
            strata=strata,
        )
        sums = {name: answers.exact_sum(name) for name in [*of_bins, *compared]}
        sums |= {name: answers.whole_sum(name) for name in [*counted, *others]}
        n, masked = answers.n, any(a.members for a in answers.parts())
        federation.record(answers)
    of_groups = [
        Counts(np.array(ends), *of) for of in zip(*(sums[name].reshape(G, -1) for name in of_bins), strict=True)
    ]
    least = federation.least
    why, small = hidden(groups, of_groups, n, sums, least) if masked else ([None] * G, [])
    curves, counts = list[dict[str, Any]](), list[Counts]()
    for g, (group, of_group) in enumerate(zip(groups, of_groups, strict=True)):
        left = {"left_out": int(sums["left_out"][g] + sums["left_with"][g]), "left_with": int(sums["left_with"][g])}
        if (reason := why[g]) is not None:
            curves.append(
                {**dict.fromkeys(("n", "events", *MEDIANS)), "group": group, "rows": [], **left, "hidden": reason}
            )
        else:
            curves.append({**curve(group, of_group, grain, confidence, minimum_at_risk, least, grid or ()), **left})
            counts.append(of_group)
    written = [shown(of_group, minimum_at_risk, least, grid or ()) for of_group in counts]
    at = np.unique(np.concatenate([np.empty(0, np.intp), *(lines.at for lines in written)]))  # other ends say nothing
    joined = [lines.counts.joined(at) for lines in written]
    arrays = {
        name: np.array([getattr(c, name) for c in joined]).reshape(len(joined), len(at) + (name != "time"))
        for name in of_bins
    }
    weights = codec.encode({"ends": said(np.array(ends), grid or ())[at], **arrays}, "float64")
    return {
        **federation.finished(None, weights=weights, model={"name": "km", "features": 0}),
        "curves_of_survival": curves,
        **log_rank(strata, sums, counts, groups, why, small, masked, grain),
        "confidence": confidence,
        "grid": grid,
        "grain": grain,
    }


def log_rank(
    strata: Strata,
    sums: Mapping[str, np.ndarray],
    counts: Sequence[Counts],
    groups: Sequence[str | None],
    why: Sequence[str | None],
    small: Sequence[str],
    masked: bool,
    grain: float,
) -> dict[str, Any]:
    """Compare the groups.

    Args:
        strata: whether rows are compared with those of their own hospital.
        sums: over all hospitals, see ``leaving``.
        counts: of the groups that are shown.
        groups: their names.
        why: why each group is not shown; None if it is.
        small: groups that are too small to be shown.
        masked: whether nodes answer under masks.
        grain: of the times.

    Returns:
        ``log_rank``, the test, None if there is none; and ``log_rank_hidden``, if there is one and it is not shown. The
        test has ``apart``, the groups of each part, if these are never compared with those of other parts, and
        ``groups``, those that are compared, if not all are.
    """
    if len(why) < 2:
        return {"log_rank": None}
    if strata == "none":
        if len(counts) < 2:
            return {"log_rank": None}
        own = [group for group, reason in zip(groups, why, strict=True) if reason is None]
        events, at_risk = np.array([c.events[:-1] for c in counts]), np.array([c.followed for c in counts])
        found = tested(*of_bins(events, at_risk, counts[0].at_once(grain)), own, strata)
        return {"log_rank": {**found, "groups": own} if found and any(why) else found}
    if masked and sums["compared"][0] < HOSPITALS:
        few = f"fewer than {HOSPITALS} hospitals have enough rows of all groups; merge small groups in the tables"
        return {"log_rank": None, "log_rank_hidden": few}
    if masked and any(why):
        cure = f"merge {' and '.join(small)} with another group in the tables" if small else "fill in empty groups"
        return {"log_rank": None, "log_rank_hidden": f"not all groups that it compares are shown; {cure}"}
    covariance = inference.symmetric(sums["covariance"], len(why))
    return {"log_rank": tested(sums["difference"], covariance, groups, strata)}


def tested(
    difference: np.ndarray, covariance: np.ndarray, groups: Sequence[str | None], strata: Strata
) -> dict[str, Any] | None:
    """Test whether these groups have the same survival, see ``chi_squared``, and say which are never compared."""
    parts = [[groups[g] for g in part] for part in parts_of(covariance)]
    found = chi_squared(difference, covariance, strata)
    return {**found, "apart": parts} if found and len(parts) > 1 else found


def wrong_counts(answer: Answer) -> str | None:
    """Check the counts in a node's answer.

    Args:
        answer: the node's answer.

    Returns:
        What is wrong with them; None if nothing is.
    """
    events, censored, time = answer["events"], answer["censored"], answer["time"]
    left = np.concatenate([answer["left_out"], answer["left_with"]])
    said = np.concatenate([answer.arrays.get(name, np.empty(0)) for name in ("contributes", "compared")])
    rows = events.sum() + censored.sum() + left.sum()
    least = min(events.min(), censored.min(), time.min(), left.min())
    if least < 0 or (left % 1).any() or rows > answer.n * (1 + 1e-6) or not np.isin(said, (0, 1)).all():
        return f"sent counts that {answer.n} rows cannot have; expected those of rows that leave"
    if (np.abs(answer.arrays.get("difference", np.zeros(1))) > answer.n).any():
        return f"sent a log-rank test that {answer.n} rows cannot have; expected events less expected ones"
    return None
