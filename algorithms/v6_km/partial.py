"""The client of Kaplan-Meier curves."""

import numpy as np

from v6_federated import Node, Result, partial, times


@partial(weights="one")
def leaving(node: Node, *, ends: list[float]) -> Result:
    """The node's rows that leave in each bin of time, by group: ``events`` and ``censored`` (G (B + 1),).

    Bins end at ``ends`` (B,), and one more follows that is open. Rows in no group are not counted.
    """
    time, event = node.times()
    group, G = node.groups(), max(len(node.job.data.levels), 1)
    checked = times.checked_ends(ends)
    node.policy.check_size(2 * G * (len(checked) + 1), f"the counts of {G} groups in {len(checked) + 1} bins")
    least = node.policy.minimum_rows_a_side
    followed = [times.Followed(time[group == g], event[group == g], checked, least).while_known() for g in range(G)]
    return {
        "events": np.concatenate([rows.events() for rows in followed]),
        "censored": np.concatenate([rows.censored() for rows in followed]),
    }
