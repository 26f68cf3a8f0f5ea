"""The client of Kaplan-Meier curves."""

from typing import Literal

import numpy as np

from v6_federated import Asked, Count, Node, Result, Sum, partial, times
from v6_km.comparison import of_hospital

Strata = Literal["hospital", "none"]
SHARED = "set strata=none: groups are compared over all rows, in bins of time that all hospitals share"


def sums_of_groups(asked: Asked) -> dict[str, Sum | Count]:
    """What ``leaving`` is a sum of. Outside a study, nodes join bins, and leave out groups, of few of their rows."""
    G, B, additive = max(len(asked.job.data.levels), 1), len(asked.settings["ends"]), asked.only_in_a_study
    of_bins: dict[str, Sum | Count] = {name: Sum(G * (B + 1), additive) for name in ("events", "censored")}
    of_bins |= {"time": Sum(G * B, additive), "left_out": Count(G, additive), "left_with": Count(G, additive)}
    of_bins |= {"contributes": Count(G + 1, "hospital")} if asked.job.counts_hospitals else {}
    if asked.settings["strata"] == "none":
        return of_bins
    test = {"difference": Sum(G, "hospital"), "covariance": Sum(G * (G + 1) // 2, "hospital")}
    return {**of_bins, **test, "compared": Count(1, "hospital")}


@partial(sums=sums_of_groups, instead=SHARED)
def leaving(node: Node, *, ends: list[float], strata: Strata) -> Result:
    """The node's rows that leave in each bin of time, by group: ``events`` and ``censored`` (G (B + 1),).

    Bins end at ``ends`` (B,), and one more follows that is open. ``time`` (G B,) is the time at risk in each bin but
    that. Rows in no group are not counted. ``left_out`` (G,) are the rows of groups that are too small here, and
    ``left_with`` (G,) those of groups without which all others would be. ``contributes`` (G + 1,) says whether this
    node has rows in a group, and in none, if a study does not hide it.

    With ``strata="hospital"``, also ``difference`` (G,) and ``covariance`` (G (G + 1) / 2,) of ``of_hospital``, zeros
    at a node that leaves out a group, and ``compared`` (1,), whether it compares any.
    """
    time, event = node.times(few_events=True)
    groups, G = node.groups(), max(len(node.job.data.levels), 1)
    checked = times.checked_ends(ends)
    numbers = G * (3 * len(checked) + 2) + (G * (G + 3) // 2 if strata == "hospital" else 0)
    node.policy.check_size(numbers, f"the counts of {G} groups in {len(checked) + 1} bins")
    # in a study all sums are about several hospitals, and central's code joins what is small over them
    least = 0 if node.pinned else node.policy.minimum_rows_a_side
    every = [
        times.Followed(time[groups.index == g], event[groups.index == g], checked, least, "by time") for g in range(G)
    ]
    followed = [rows.while_known() for rows in every]
    if not node.pinned:
        node.policy.check_events_of_groups([int(rows.event.sum()) for rows in followed])
    unfollowed = np.array([len(rows.time) - len(shown.time) for rows, shown in zip(every, followed, strict=True)])
    shown = np.array([len(rows.time) > 0 for rows in followed])
    found = {
        "events": np.concatenate([rows.events() for rows in followed]),
        "censored": np.concatenate([rows.censored() for rows in followed]),
        "time": np.concatenate([rows.at_risk for rows in followed]),
        "left_out": groups.few + unfollowed,
        "left_with": groups.others,
    }
    if node.job.counts_hospitals:
        found["contributes"] = np.append(shown, (groups.index < 0).any()).astype(np.int64)
    if strata == "none":
        return found
    whole = not (groups.few + groups.others + unfollowed).any()
    compares = whole and shown.sum() > 1
    difference, covariance = np.zeros(G), np.zeros((G, G))
    if compares:
        of_all, happened = (np.concatenate([getattr(rows, name) for rows in followed]) for name in ("time", "event"))
        group = np.repeat(np.arange(G), [len(rows.time) for rows in followed])
        difference, covariance = of_hospital(of_all, happened, group, G)
    return {
        **found,
        "difference": difference,
        "covariance": covariance[np.tril_indices(G)],
        "compared": np.array([compares], np.int64),
    }
