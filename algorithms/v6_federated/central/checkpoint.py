"""What central keeps of a job after each round, so that nothing is lost if its container or its node is restarted.

vantage6 starts a central function that was interrupted again, with the same job and so the same folder. Two files: the
newest state, written whole or not at all, and the history, to which rounds are only appended.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from v6_federated.base.files import write_whole
from v6_federated.central.history import lost
from v6_federated.messages import codec

ROUNDS = ("history", "per_node")


class Checkpoint:
    """The checkpoint of one job.

    Args:
        folder: of the job; None where there is none: then nothing is kept.
        name: of method and organization, since the nodes of one machine may share the folder.
        durable: whether what is kept must outlast a power cut.
    """

    def __init__(self, folder: Path | None, name: str, durable: bool = False) -> None:
        self._durable = durable
        self._state = None if folder is None else folder / f"checkpoint-{name}.json"
        self._rounds = None if folder is None else folder / f"checkpoint-{name}.jsonl"
        self._begun = False

    def save(self, snapshot: Mapping[str, Any]) -> None:
        """Keep a snapshot; of its history, after the first time, only the last two rounds: the ones before are kept."""
        if self._state is None or self._rounds is None:
            return
        try:
            self._write(snapshot)
        except OSError as error:  # a job does not end because it could not be taken up again
            self._begun = False  # a line may be cut: all rounds are written again
            print(f"the checkpoint cannot be written: {error.strerror}", flush=True)

    def _write(self, snapshot: Mapping[str, Any]) -> None:
        assert self._state is not None and self._rounds is not None
        rows = snapshot["history"][-2:] if self._begun else snapshot["history"]
        lines: list[str] = []
        first = rows[0]["round"] if rows else 0
        newest = [*itertools.takewhile(lambda node: node["round"] >= first, reversed(snapshot["per_node"]))][::-1]
        for row in rows:  # the evaluation of a round comes with the next
            nodes = [node for node in newest if node["round"] == row["round"]]
            lines.append(json.dumps({"row": row, "nodes": nodes}) + "\n")
        if self._begun:
            with self._rounds.open("a") as stream:
                stream.writelines(lines)
                if self._durable:
                    stream.flush()
                    os.fsync(stream.fileno())
        else:
            write_whole(self._rounds, "".join(lines), self._durable)
            self._begun = True
        state = json.dumps({k: v for k, v in snapshot.items() if k not in ROUNDS})
        write_whole(self._state, state, self._durable)

    def load(self) -> dict[str, Any] | None:
        """The newest snapshot; None where there is none."""
        if self._state is None or self._rounds is None:
            return None
        with contextlib.suppress(OSError, ValueError, KeyError):
            snapshot = json.loads(self._state.read_text())
            rounds = {}
            for line in self._rounds.read_text().splitlines():
                with contextlib.suppress(ValueError):  # the line that was being written
                    entry = json.loads(line)
                    rounds[entry["row"]["round"]] = entry
            columns: dict[str, Any] = next((entry["row"] for entry in rounds.values()), {})
            # a line that did not reach the disk is no reason to begin anew: the model is there
            finished = [rounds.get(t, {"row": lost(t, columns), "nodes": []}) for t in range(1, snapshot["round"] + 1)]
            snapshot["history"] = [entry["row"] for entry in finished]
            snapshot["per_node"] = [node for entry in finished for node in entry["nodes"]]
            return snapshot
        return None

    def remove(self) -> None:
        """Remove both files."""
        for file in (self._state, self._rounds):
            if file is not None:
                file.unlink(missing_ok=True)


def to_json(value: Any) -> Any:
    """Arrays, numbers, texts, lists and dictionaries with any such keys as JSON, without loss."""
    if isinstance(value, np.ndarray):
        return {"array": codec.encode({"": value})}
    if isinstance(value, dict):
        return {"items": [[key, to_json(v)] for key, v in value.items()]}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    return value


def from_json(value: Any) -> Any:
    """The value of ``to_json``; a tuple comes back as a list."""
    if isinstance(value, dict) and "array" in value:
        return codec.decode(value["array"])[""]
    if isinstance(value, dict):
        return {key: from_json(v) for key, v in value["items"]}
    return [from_json(v) for v in value] if isinstance(value, list) else value
