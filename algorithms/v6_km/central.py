"""The server of Kaplan-Meier curves."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from v6_federated import (
    Answer,
    Common,
    Federation,
    Grid,
    Number,
    Result,
    Rounds,
    SafeError,
    bins_of_time,
    central,
    changed,
    check_grid,
    codec,
    times,
)
from v6_km.curves import curve, log_rank

Bins = Annotated[int, Field(ge=1, le=times.MOST, description="bins of time, at quantiles of the events"), Number]
Confidence = Annotated[float, Field(gt=0, lt=1, description="coverage of the confidence intervals"), Number]
AtRisk = Annotated[int, Field(ge=1, description="a curve ends once fewer rows of all hospitals are at risk"), Number]


class Settings(Common):
    """The settings that every method takes; the label is a time, and there are no features."""

    times_only: ClassVar[bool] = True
    unused: ClassVar[tuple[str, ...]] = ("features", "exclude", "preprocess", "start_from", "until_converged")

    label: Annotated[str | None, Field(description="column of times, of the event or of censoring")] = None
    event: Annotated[
        str | None,
        Field(description="column that is 1 if the label is the time of an event, 0 if of censoring (unset: all are)"),
    ] = None
    subgroup: Annotated[str | None, Field(description="column of words: a curve for each, and the log-rank test")] = (
        None
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
    if idle := changed(settings, Settings.unused):
        raise SafeError(f"{', '.join(idle)} has no effect on km, which looks at times only; leave it out")
    if settings.subgroup is not None and settings.subgroup in (settings.label, settings.event):
        raise SafeError(
            f"subgroup={settings.subgroup} is the column of times or events; name another one, or leave it out"
        )
    check_grid(settings, between=True)


@central(
    supervised=False,
    common=Settings,
    check=check_settings,
    known_as=dict.fromkeys(
        ("kaplan-meier", "kaplan_meier", "kaplanmeier", "logrank", "log-rank", "survfit"), "--set event=COLUMN"
    ),
)
def central(
    federation: Federation,
    *,
    rounds: Rounds = 10,
    bins: Bins = 50,
    grid: Grid = None,
    confidence: Confidence = 0.95,
    minimum_at_risk: AtRisk = 10,
) -> Result:
    """Kaplan-Meier curves and the log-rank test, in bins of time: Kaplan and Meier 1958, Mantel 1966.

    Symbols: B bins, G groups. What leaves a node: before the round, its events counted by cell of time in multiples of
    its minimum of rows; then ``events`` and ``censored``, its rows of each group that have the event or are censored in
    each bin (G (B + 1),), and ``left_out``, rows of groups that are too small for its limits (G,). The curves are those
    of all other rows, whose times count as the ends of their bins. Bytes up a node: 32/3 (2 G (B + 1) + G) in float64,
    15 times as many under masks.
    """
    groups: list[str | None] = [*federation.levels] or [None]
    for _ in federation.rounds(min(rounds, 1)):
        ends = bins_of_time(federation, np.arange(1, bins + 1) / bins, grid, between=True)
        answers = federation.ask(
            "leaving",
            federation.organizations,
            measures=dict.fromkeys(("events", "censored", "left_out")),
            validate=wrong_counts,
            ends=ends,
        )
        events, censored = (answers.exact_sum(name).reshape(len(groups), -1) for name in ("events", "censored"))
        left_out = answers.whole_sum("left_out")
        federation.record(answers)
    counts = {"ends": np.array(ends), "events": events, "censored": censored}
    found = zip(groups, events, censored, left_out, strict=True)
    return {
        **federation.finished(None, weights=codec.encode(counts, "float64"), model={"name": "km", "features": 0}),
        "curves_of_survival": [
            curve(group, ends, d, c, confidence, minimum_at_risk, int(left)) for group, d, c, left in found
        ],
        "log_rank": log_rank(events, censored),
        "confidence": confidence,
        "grid": grid,
    }


def wrong_counts(answer: Answer) -> str | None:
    """Check the counts in a node's answer.

    Args:
        answer: the node's answer.

    Returns:
        What is wrong with them; None if nothing is.
    """
    events, censored, left_out = answer["events"], answer["censored"], answer["left_out"]
    rows = events.sum() + censored.sum() + left_out.sum()
    if min(events.min(), censored.min(), left_out.min()) < 0 or (left_out % 1).any() or rows > answer.n * (1 + 1e-6):
        return f"sent counts that {answer.n} rows cannot have; expected those of rows that leave"
    return None
