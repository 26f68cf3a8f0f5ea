"""The history in a job's result: a row a round, a row a node and round, evaluations, bytes and missing answers."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.central.answer import Answer, Unusable, by_organization, is_plain
from v6_federated.models import metrics

MOST_LETTERS = 200  # of a text in a node's row
MEASURES = ("loss", "accuracy", "auc", "r2", "rmse", "mae", "c_index")  # of an evaluation; the last four of numbers


def lost(t: int, columns: Iterable[str] = ()) -> dict[str, Any]:
    """Return the row of a round that is known to have happened, and nothing else about it."""
    unknown = dict.fromkeys([*columns, "train_loss", *MEASURES[:3], "evaluated"])
    return {
        **unknown,
        "round": t,
        "participants": [],
        "n": 0,
        "bytes_up": 0,
        "bytes_down": 0,
        "seconds": 0.0,
        "missing": [],
        "unevaluated": [],
    }


def _no_bytes() -> dict[str, int]:
    return {"bytes_up": 0, "bytes_down": 0}


class History:
    """The history of one job.

    Attributes:
        rounds: a row a round, as in the result.
        nodes: a row a node and round, as in the result.
        missing: by organization, why there is no usable answer in this round.
        unevaluated: by organization, why there is no usable evaluation in this round.
        last_evaluated: the round whose model was evaluated last.
    """

    def __init__(
        self, evaluators: Sequence[int], regression: bool, show: Callable[[dict[str, Any]], None], loss: str = ""
    ) -> None:
        """Begin without rounds."""
        self._evaluators, self._regression, self._show, self._loss = evaluators, regression, show, loss
        self.rounds: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.missing: dict[int, Unusable] = {}
        self.unevaluated: dict[int, Unusable] = {}
        self.last_evaluated, self._shown = 0, 0
        self._undescribed: list[dict[str, Any]] = []
        self._preparation, self._evaluation = _no_bytes(), _no_bytes()

    def prepared(self) -> None:
        """End the preparation: answers that are missing now go under ``undescribed`` in the result."""
        known = [row["organization_id"] for row in self._undescribed]
        self._undescribed += [row for row in _reasons(self.missing) if row["organization_id"] not in known]
        self.missing = {}

    def count_preparation(self, answers: Sequence[Answer], unanswered: int = 0) -> None:
        """Count bytes of answers before the first round, and of requests that brought none."""
        _add_bytes(self._preparation, answers)
        self._preparation["bytes_down"] += unanswered

    def record(
        self,
        t: int,
        seconds: float,
        answers: Sequence[Answer],
        unanswered: int,
        model: Array | None,
        local_model: Callable[[Answer], Array] | None,
        columns: Mapping[str, Any],
        change: float | None = None,
    ) -> None:
        """Add the row of a round, and a row for each node that answered.

        Args:
            t: the round.
            seconds: how long it took.
            answers: all answers of the round.
            unanswered: bytes of requests that brought no answer.
            model: the round's new model (d,). A node's row then holds the distance of its own model from it.
            local_model: a node's own model (d,) from its answer; None means the ``weights`` that it sent, if it did.
            columns: further columns of the round's row.
            change: how much the round has changed the model, see ``convergence.change``.
        """
        trained = [a for a in answers if a.values.get("train_loss") is not None]
        rows = sum(a.n for a in trained)
        self.rounds.append(
            {
                "round": t,
                "participants": sorted({k for a in answers for k in a.organizations}),
                "n": sum({a.organization_id: a.n for a in answers}.values()),
                "train_loss": sum(a.n * a.values["train_loss"] for a in trained) / rows if rows else None,
                "loss": None,
                "accuracy": None,
                "auc": None,
                **(dict.fromkeys(metrics.MEASURED[self._loss]) if self._regression else {}),
                **({} if model is None else {"change": change}),
                "evaluated": 0,
                "bytes_up": sum(a.bytes_up for a in answers),
                "bytes_down": sum(a.bytes_down for a in answers) + unanswered,
                "seconds": round(seconds, 6),
                "missing": _reasons(self.missing),
                "unevaluated": [],
                **{name: value.item() if isinstance(value, np.generic) else value for name, value in columns.items()},
            }
        )
        self.missing = {}
        single = sorted((a for a in answers if not a.members), key=by_organization)
        self.nodes += [_of_node(t, a, model, local_model) for a in single]

    def evaluated(self, t: int, answers: Sequence[Answer], unanswered: int = 0) -> dict[str, Any]:
        """Take the evaluation of round t's model out of answers, write it into the row of that round, and return it."""
        counted = [a for a in answers if a.organization_id in self._evaluators] if self._evaluators else answers
        found = self.measured(counted)
        self.count_evaluation([a for a in answers if a.function == "evaluate"])
        for a in answers:
            a.values.pop("evaluation", None)
        self._evaluation["bytes_down"] += unanswered
        self.last_evaluated = t
        for row in self.rounds:
            if row["round"] == t:
                row.update({key: found[key] for key in (*MEASURES, "evaluated") if key in found})
                row["unevaluated"] = _reasons(self.unevaluated)
        self.unevaluated = {}
        self.show(t)
        return found

    def measured(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Put the evaluations in answers together."""
        evaluations = [a.values.get("evaluation", {}) for a in answers]
        return metrics.combine_regression(evaluations, self._loss) if self._regression else metrics.combine(evaluations)

    def count_evaluation(self, answers: Sequence[Answer]) -> None:
        """Count bytes of evaluations of their own, which belong to no round."""
        _add_bytes(self._evaluation, answers)

    def show(self, until: int) -> None:
        """Show the rounds until this one that have not been shown yet."""
        for row in self.rounds[self._shown : until]:
            self._show(row)
        self._shown = max(self._shown, until)

    def up_to(self, t: int) -> dict[str, Any]:
        """Return the first rounds of the history."""
        return {"history": self.rounds[:t], "per_node": [node for node in self.nodes if node["round"] <= t]}

    def snapshot(self) -> dict[str, Any]:
        """Return the history's part of a result or a checkpoint, as JSON."""
        return {
            "undescribed": self._undescribed,
            "history": self.rounds,
            "per_node": self.nodes,
            "traffic": {"preparation": self._preparation, "evaluation": self._evaluation},
        }

    def restore(self, kept: Mapping[str, Any], last_evaluated: int, shown: int) -> None:
        """Go on from a snapshot."""
        self.rounds, self.nodes = copy.deepcopy(kept["history"]), [*kept["per_node"]]
        self._undescribed = kept["undescribed"]
        self._preparation, self._evaluation = kept["traffic"]["preparation"], kept["traffic"]["evaluation"]
        self.last_evaluated, self._shown = last_evaluated, shown


def _of_node(t: int, a: Answer, model: Array | None, local_model: Callable[[Answer], Array] | None) -> dict[str, Any]:
    values = {name: value for name, value in a.values.items() if _fits_a_table(value)}
    row: dict[str, Any] = {"round": t, "organization_id": a.organization_id, "n": a.n, **values}
    if model is not None and (local_model or "weights" in a.arrays):
        mine = local_model(a) if local_model else a["weights"]
        row["distance"] = float(np.linalg.norm(np.subtract(mine, model, dtype=np.float64)))
    return row | {"bytes_up": a.bytes_up, "bytes_down": a.bytes_down}


def _fits_a_table(value: Any) -> bool:
    """Whether a value fits into a table: central may add words to what nodes answer."""
    return is_plain(value) or (isinstance(value, str) and len(value) <= MOST_LETTERS)


def _add_bytes(total: dict[str, int], answers: Sequence[Answer]) -> None:
    for key in total:
        total[key] += sum(getattr(a, key) for a in answers)


def _reasons(missing: Mapping[int, Unusable]) -> list[dict[str, Any]]:
    return [{"organization_id": k, "reason": str(missing[k])} for k in sorted(missing)]
