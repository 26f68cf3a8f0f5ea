"""The client of Kaplan-Meier curves."""

import numpy as np

from v6_federated import Asked, Count, Node, Result, Sum, partial, times


def sums_of_groups(asked: Asked) -> dict[str, Sum | Count]:
    """What ``leaving`` is a sum of. Each node joins bins of few of its rows, and leaves out groups of few."""
    G, B = max(len(asked.job.data.levels), 1), len(asked.settings["ends"])
    of_bins = Sum(G * (B + 1), "hospital")
    return {"events": of_bins, "censored": of_bins, "left_out": Count(G, "hospital")}


@partial(sums=sums_of_groups)
def leaving(node: Node, *, ends: list[float]) -> Result:
    """The node's rows that leave in each bin of time, by group: ``events`` and ``censored`` (G (B + 1),).

    Bins end at ``ends`` (B,), and one more follows that is open. Rows in no group are not counted. ``left_out`` (G,)
    are the rows of groups that are too small here.
    """
    time, event = node.times()
    group, G = node.groups(), max(len(node.job.data.levels), 1)
    checked = times.checked_ends(ends)
    node.policy.check_size(2 * G * (len(checked) + 1), f"the counts of {G} groups in {len(checked) + 1} bins")
    least = node.policy.minimum_rows_a_side
    every = [times.Followed(time[group == g], event[group == g], checked, least, even=True) for g in range(G)]
    followed = [rows.while_known() for rows in every]
    if not node.pinned:  # the sums of a study are always about several hospitals
        node.policy.check_events_of_groups([int(rows.event.sum()) for rows in followed])
    return {
        "events": np.concatenate([rows.events() for rows in followed]),
        "censored": np.concatenate([rows.censored() for rows in followed]),
        "left_out": np.array([len(rows.time) - len(shown.time) for rows, shown in zip(every, followed, strict=True)]),
    }
