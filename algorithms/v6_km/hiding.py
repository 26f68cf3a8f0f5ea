"""Which groups central does not write into the result, since their sums would be about one or two hospitals.

It is a promise of this code: central itself has seen the sums.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from v6_km.curves import Counts

HOSPITALS = 3  # that must have rows of a group


def hidden(
    groups: Sequence[str | None], counts: Sequence[Counts], n: int, sums: Mapping[str, np.ndarray], least: int
) -> tuple[list[str | None], list[str]]:
    """Choose the groups that are not shown, where nodes answer under masks.

    A hospital with too few rows of a group answers zeros, so that a sum over all may be one hospital's counts. The same
    is true of all rows without those of the groups that are shown: another job brings the sum over all rows. So while
    those left are of one or two hospitals, the smallest group is not shown either. Rows whose group is empty are among
    those left, too: to empty the group of the few rows of a level does not help, and to merge the level does.

    Args:
        groups: their names.
        counts: of each, over all hospitals.
        n: rows of all hospitals.
        sums: ``contributes`` (G + 1,), how many hospitals have rows in each group, and in none; ``left_out`` and
            ``left_with`` (G,), rows that hospitals have left out. In a study that hides totals of single hospitals
            nobody counts hospitals, and ``contributes`` is missing.
        least: rows, and events, that a group must have over all hospitals, unless it has none; 0 if nodes have their
            own minimum.

    Returns:
        Why each of them is not shown, None if it is; and those that are too small themselves.
    """
    rows = np.array([of_group.at_risk[0] for of_group in counts])
    events = np.array([of_group.events.sum() for of_group in counts])
    hospitals = sums["contributes"] if "contributes" in sums else np.append(np.where(rows > 0, HOSPITALS, 0), HOSPITALS)
    why: list[str | None] = []
    for g in range(len(groups)):
        if not hospitals[g] and sums["left_with"][g]:
            why.append("at each hospital, subtraction would reveal the few rows of another group")
        elif hospitals[g] < HOSPITALS:
            some = "no hospital has" if not hospitals[g] else f"fewer than {HOSPITALS} hospitals have"
            why.append(f"{some} enough rows of it")
        elif rows[g] < least or 0 < events[g] < least:
            why.append(f"fewer than {least} rows {'have the event' if rows[g] >= least else 'of all hospitals'}")
        else:
            why.append(None)
    ungrouped = n - rows.sum() - sums["left_out"].sum() - sums["left_with"].sum()
    small = [str(groups[g]) for g in range(len(groups)) if why[g] is not None]
    rest = [(str(groups[g]), rows[g]) for g in range(len(groups)) if why[g] is not None and rows[g] > 0]
    if least and ungrouped > 0.5 and (ungrouped < least or hospitals[-1] < HOSPITALS):
        rest.append(("no group", ungrouped))
    shown = [g for g in range(len(groups)) if why[g] is None]
    if rest and shown:  # with the smallest of these, which several hospitals have, what is left is of several too
        named = " and ".join(name for name, _ in rest)
        why[min(shown, key=lambda g: rows[g])] = f"with it, subtraction would reveal the few rows of {named}"
    return why, small
