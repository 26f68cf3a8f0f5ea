"""What a method carries from round to round, kept after each round so that the job can go on after an interruption."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from v6_federated.base.vantage6_api import UserInputError
from v6_federated.central import checkpoint, resume
from v6_federated.central.checkpoint import Checkpoint
from v6_federated.central.history import History
from v6_federated.central.rounds import RoundTasks
from v6_federated.messages import codec
from v6_federated.messages.common import Common
from v6_federated.messages.job import COLUMNS, DataSpec


class Progress:
    """The progress of one job.

    Attributes:
        state: what the method carries from round to round.
        resumed: whether the job goes on from the result of another job, of which nodes keep nothing.
        ended: whether no round follows.
        final: the evaluation of the last model, once there is one.
        started_from: what the result says of the file that training has started from; None if there is none.
        shown: what else it has shown, see ``last_evaluation``.
    """

    def __init__(self, method: str, settings: Common, kept: Checkpoint, tasks: RoundTasks, history: History) -> None:
        """Begin without progress."""
        self.state, self.resumed = SimpleNamespace(), False
        self.ended = False
        self.final: dict[str, Any] | None = None
        self.started_from: dict[str, Any] | None = None
        self.shown: dict[str, Any] = {}
        self._method, self._settings, self._checkpoint = method, settings, kept
        self._tasks, self._history = tasks, history
        self._restored: Mapping[str, Any] | None = None
        self._carries: list[str] = []
        self._last_snapshot: dict[str, Any] | None = None
        self._finished = 0  # rounds that the last snapshot holds

    @property
    def own_settings(self) -> dict[str, Any]:
        """The job's settings, without the earlier result that it resumes."""
        return self._settings.model_dump(mode="json", exclude={"resume"})

    @property
    def settings_used(self) -> dict[str, Any]:
        """The same with the columns of an earlier job that this job did not name again."""
        own, data = self.own_settings, self._tasks.job.data
        taken = {name: column for name in COLUMNS if name in own and (column := getattr(data, name)) is not None}
        return {**own, **taken}

    def restore(self, organizations: Sequence[int]) -> Mapping[str, Any] | None:
        """Go on from this job's checkpoint, or else from the earlier result that the researcher sent."""
        saved, earlier = self._checkpoint.load(), self._settings.resume
        if saved is not None and saved["settings"] == self.own_settings:
            kept = saved
            self._tasks.restore(kept)
            self.ended, self.final, self.shown = kept["ended"], kept["final"], kept["shown"]
            last_evaluated = shown = kept["last_evaluated"]
        elif earlier is not None:
            kept, self.resumed = earlier, True
            if not self._tasks.job.data.supervised:
                raise UserInputError(f"resume: {self._method} keeps nothing to go on from; start a new job")
            resume.check(kept, self._method, self._settings, organizations, self._tasks.job.rounds)
            last_evaluated = max((r["round"] for r in kept["history"] if r["loss"] is not None), default=0)
            shown = len(kept["history"])
            self._tasks.restore_rows(kept["per_node"])
        else:
            return None
        self._restored, self.started_from = kept, kept.get("started_from")
        self._history.restore(kept, last_evaluated, shown)
        self._tasks.job = replace(self._tasks.job, data=DataSpec(**kept["data"]), model=kept["model"])
        return kept

    def start(self, initial: Mapping[str, Any], size: int | None) -> SimpleNamespace:
        """Begin what the method carries, or bring it back."""
        self._carries = list(initial)
        if self._restored is None or self._restored["weights"] is None:
            values = {name: value() if callable(value) else value for name, value in initial.items()}
        else:
            weights = codec.decode(self._restored["weights"])["weights"]
            kept = {self._carries[0]: weights, **checkpoint.from_json(self._restored["state"])}
            values = {name: kept[name] for name in initial if name in kept}
            if len(values) < len(initial) or (size is not None and weights.shape != (size,)):
                raise UserInputError(
                    f"resume: the result lacks a part of what {self._method} carries from round to round, or its model "
                    "has another size; expected the whole result.json of an earlier job with the same settings"
                )
        self.state = SimpleNamespace(**values)
        return self.state

    def save(self, features: Sequence[str]) -> None:
        """Keep a checkpoint. A method that carries nothing from round to round begins its rounds again."""
        if self._history.rounds and not self._carries:
            return
        snapshot = self.snapshot()
        if self._carries:
            self._last_snapshot, self._finished = snapshot, len(self._history.rounds)
        own = {  # not in a result: they belong to this very job
            "settings": self.own_settings,
            "features": [*features],
            "last_evaluated": self._history.last_evaluated,
            "ended": self.ended,
            "final": self.final,
            "shown": self.shown,
            **self._tasks.snapshot(),
        }
        self._checkpoint.save({**snapshot, **own})

    def snapshot(self) -> dict[str, Any]:
        """Return what a result and a checkpoint have in common: the model, the method's state and the history."""
        carried = dict(vars(self.state))
        weights = codec.encode({"weights": carried.pop(self._carries[0])}) if self._carries else None
        return {
            "weights": weights,
            "state": checkpoint.to_json(carried),
            "model": self._tasks.job.model,
            "data": self._tasks.job.to_json()["data"],
            **({} if self.started_from is None else {"started_from": self.started_from}),
            **self._history.snapshot(),
        }

    def last_finished_round(self) -> dict[str, Any] | None:
        """Return the snapshot after the last finished round; None if no round was finished."""
        if not self._finished or self._last_snapshot is None:
            return None
        return {**self._last_snapshot, **self._history.up_to(self._finished)}

    def remove(self) -> None:
        """Remove the checkpoint, if the disk allows it."""
        with contextlib.suppress(OSError):
            self._checkpoint.remove()
