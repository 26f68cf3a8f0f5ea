"""What central keeps of a job after each round, so that nothing is lost if its container or its node is restarted.

vantage6 restarts an interrupted central function with the same job and so with the same folder. There are two files:
the newest state, which is written whole or not at all, and the history, to which rounds are only appended.
"""

import contextlib
import glob
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from v6_federated.base import json_text
from v6_federated.base.files import check_regular, open_regular, write_whole
from v6_federated.central.history import lost
from v6_federated.messages import codec, serialization

ROUNDS = ("history", "per_node")


class Checkpoint:
    """The checkpoint of one job."""

    def __init__(self, folder: Path | None, name: str, durable: bool = False) -> None:
        """Name the checkpoint; nothing is read or written yet."""
        self._durable = durable
        self._state = None if folder is None else folder / f"checkpoint-{name}.json"
        self._rounds = None if folder is None else folder / f"checkpoint-{name}.jsonl"
        self._begun = False

    def save(self, snapshot: Mapping[str, Any]) -> None:
        """Keep a snapshot. After the first time, only the last two rounds of its history are added."""
        if self._state is None or self._rounds is None:
            return
        check_regular(self._state)
        check_regular(self._rounds)
        try:
            self._write(snapshot)
        except OSError as error:  # the job can go on without a checkpoint
            self._begun = False  # a line may be incomplete, so all rounds are written again
            print(f"the checkpoint cannot be written: {error.strerror}", flush=True)

    def _write(self, snapshot: Mapping[str, Any]) -> None:
        assert self._state is not None and self._rounds is not None
        rows = snapshot["history"][-2:] if self._begun else snapshot["history"]
        lines: list[str] = []
        first = rows[0]["round"] if rows else 0
        newest = [*itertools.takewhile(lambda node: node["round"] >= first, reversed(snapshot["per_node"]))][::-1]
        for row in rows:  # two, since the evaluation of a round comes with the next one
            nodes = [node for node in newest if node["round"] == row["round"]]
            lines.append(json.dumps({"row": row, "nodes": nodes}) + "\n")
        if self._begun:
            with open_regular(self._rounds, append=True) as stream:
                stream.write("".join(lines).encode())
                if self._durable:
                    stream.flush()
                    os.fsync(stream.fileno())
        else:
            write_whole(self._rounds, "".join(lines), self._durable)
            self._begun = True
        state = "".join(serialization.pieces({k: v for k, v in snapshot.items() if k not in ROUNDS}))
        write_whole(self._state, state, self._durable)

    def load(self) -> dict[str, Any] | None:
        """Load the newest snapshot."""
        if self._state is None or self._rounds is None:
            return None
        try:
            with open_regular(self._state) as state, open_regular(self._rounds) as file:
                written, lines = state.read(), file.read().splitlines()
        except OSError:
            return None
        with contextlib.suppress(ValueError, KeyError):
            snapshot: dict[str, Any] = json_text.parse(written)
            rounds = {}
            for line in lines:
                with contextlib.suppress(ValueError):  # a line that was being written
                    entry = json_text.parse(line)
                    rounds[entry["row"]["round"]] = entry
            columns: dict[str, Any] = next((entry["row"] for entry in rounds.values()), {})
            # a missing line is no reason to begin again: the model is there
            finished = [rounds.get(t, {"row": lost(t, columns), "nodes": []}) for t in range(1, snapshot["round"] + 1)]
            snapshot["history"] = [entry["row"] for entry in finished]
            snapshot["per_node"] = [node for entry in finished for node in entry["nodes"]]
            return snapshot
        return None

    def remove(self) -> None:
        """Remove the checkpoint."""
        for file in (self._state, self._rounds):
            if file is not None:
                for old in (file, *file.parent.glob(f"{glob.escape(file.name)}.*.part")):
                    old.unlink(missing_ok=True)


def to_json(value: Any) -> Any:
    """Turn a method's state into JSON without loss."""
    if isinstance(value, np.ndarray):
        return {"array": codec.encode({"": value})}
    if isinstance(value, dict):
        return {"items": [[key, to_json(v)] for key, v in value.items()]}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    return value


def from_json(value: Any) -> Any:
    """Read what ``to_json`` returned."""
    if isinstance(value, dict) and "array" in value:
        return codec.decode(value["array"])[""]
    if isinstance(value, dict):
        return {key: from_json(v) for key, v in value["items"]}
    return [from_json(v) for v in value] if isinstance(value, list) else value
