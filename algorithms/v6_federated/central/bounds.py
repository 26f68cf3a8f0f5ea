"""Bounds of what one node may send, by what it has sent before and by what the other nodes send.

They hold where central sees single answers. A node that breaks one is named, and nothing that it sent is clipped: the
honest nodes' results stay what they are. docs/dishonest-nodes.md says what the bounds do not stop.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.central.answer import Answer
from v6_federated.messages.common import Common
from v6_federated.messages.settings import Role, with_role

LEAST = 3  # updates: the median of fewer says nothing about one of them

Measures = Mapping[str, Callable[[Answer], Array] | None]


class Bounds:
    """The bounds of one job.

    Attributes:
        rows: the number of rows of each organization, by the first answer that it gave.
        held_out: the number of rows that each has evaluated a model on, by its first evaluation.
    """

    def __init__(self, common: Common, evaluators: Collection[int] = ()) -> None:
        """Begin without answers."""
        self._share, self._ratio, self._evaluators = common.maximum_share, common.maximum_norm_ratio, {*evaluators}
        holdout = common.holdout
        # rows are held out in multiples of a minimum that the other rows reach too, see ``data.source.split``
        self._held_out_a_row = max(1.0, (holdout + 0.5) / (1 - holdout))
        # how an honest update may depend on the node's n rows: not at all; as the noise of a mean over n rows; and, on
        # minibatches, as the number of steps that the node takes
        self._powers = (0.0, -0.5, 1.0) if any(with_role(common, Role.BATCH)) else (0.0, -0.5)
        self.rows: dict[int, int] = {}
        self.held_out: dict[int, int] = {}
        self._largest: dict[str, dict[int, float]] = {}  # norm of each organization so far, by what was measured
        self._unchecked = False

    # ---- rows

    def what_is_wrong(self, answer: Answer) -> str | None:
        """Compare an answer's numbers of rows with those of the same organization's first answers."""
        k, n = answer.organization_id, answer.n
        if not n:  # nodes that remove what they keep count no rows
            return None
        if self.rows.get(k, n) != n:
            return f"sent n={n}, but described {self.rows[k]} rows; expected the same rows in the whole job"
        evaluation = answer.values.get("evaluation")
        if evaluation is not None:
            held, most = evaluation["n"], n if k in self._evaluators else int(n * self._held_out_a_row)
            if held > most:
                return f"sent an evaluation of {held} rows; expected {most} at most from a node of {n} rows"
            if self.held_out.setdefault(k, held) != held:
                return f"sent an evaluation of {held} rows, but of {self.held_out[k]} before; expected the same rows"
        self._unchecked |= k not in self.rows
        self.rows[k] = n
        return None

    def check_shares(self, place: str) -> None:
        """Compare the numbers of rows of the organizations that train, once new ones are known."""
        if not self._unchecked:
            return
        self._unchecked = False
        training = {k: n for k, n in self.rows.items() if k not in self._evaluators}
        total = sum(training.values())
        for k, n in training.items():
            if len(training) > 1 and n > self._share * total:
                raise CollectResultsError(
                    f"{place}: organization {k}: says that it has {n} of {total} rows, a share of {n / total:.4g}; "
                    f"expected {self._share:g} at most. If it really is that large, and its rows may decide the result "
                    f"nearly alone, use --set maximum_share={math.ceil(100 * n / total) / 100:g}; otherwise, ask it to "
                    "correct its table"
                )

    # ---- updates

    def check_norms(self, place: str, function: str, norms: Mapping[int, Mapping[str, float]]) -> None:
        """Compare the norms of updates with a median.

        The median is that of each node's largest update so far. Later updates of nodes that fit their rows almost
        vanish, and those of a node that joins then, or whose rows are hard to fit, do not. Until ``LEAST`` nodes have
        sent an update that is not zero, nothing is compared. Nodes with other numbers of rows may have other updates,
        see ``_powers``: the largest of these medians counts.
        """
        for name in sorted({name for measured in norms.values() for name in measured}):
            new = {k: measured[name] for k, measured in norms.items() if name in measured}
            largest = self._largest.setdefault(f"{function} {name}", {})
            waiting = sum(norm > 0 for norm in largest.values()) < LEAST
            largest |= {k: max(norm, largest.get(k, 0.0)) for k, norm in new.items()}
            moved = [k for k in largest if largest[k] > 0]
            if len(moved) < LEAST:
                continue
            medians = {p: float(np.median([largest[k] / self.rows[k] ** p for k in moved])) for p in self._powers}
            suspects = largest if waiting else new  # the first ones had to wait for others to be compared with
            for k, norm in sorted(suspects.items()):
                usual = max(median * self.rows[k] ** p for p, median in medians.items())
                if norm > self._ratio * usual:
                    raise CollectResultsError(
                        f"{place}: organization {k}: sent {name} with an update of norm {norm:.4g}, "
                        f"{norm / usual:.4g} times the median of {len(moved)} nodes; expected {self._ratio:g} times at "
                        "most. Ask it whether its columns have the units and codes of the others'; if its rows do "
                        f"differ so much, use --set maximum_norm_ratio={3 * self._ratio:g}"
                    )

    # ---- going on after an interruption

    def snapshot(self) -> dict[str, Any]:
        """Return what a checkpoint needs, as JSON."""
        return {
            "rows": [*self.rows.items()],
            "held_out": [*self.held_out.items()],
            "largest": {name: [*norms.items()] for name, norms in self._largest.items()},
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        self.rows, self.held_out = dict(kept["rows"]), dict(kept["held_out"])
        self._largest = {name: dict(norms) for name, norms in kept["largest"].items()}

    def restore_rows(self, per_node: Sequence[Mapping[str, Any]]) -> None:
        """Take the numbers of rows from an earlier job that is resumed."""
        self.rows = {row["organization_id"]: row["n"] for row in per_node if type(row.get("n")) is int}


def norms(answer: Answer, sent: Mapping[str, Array], measures: Measures) -> dict[str, float]:
    """Measure the updates in an answer."""
    found = {}
    for name in [*answer.arrays, *(name for name in measures if name not in answer.arrays)]:
        if name in measures:
            measure = measures[name]
            update = None if measure is None else measure(answer)
        else:
            update = answer[name]
            if name in sent and sent[name].shape == update.shape:
                update = np.subtract(update, sent[name], dtype=np.float64)
        if update is not None:
            found[name] = float(np.linalg.norm(np.asarray(update, dtype=np.float64)))
    return found
