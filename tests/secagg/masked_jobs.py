"""Jobs whose answers are masked, on mock nodes: studies in their folders, and everything that central received."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from helpers import table

from v6_federated.messages import codec
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import TRUSTING, MockNetwork, StudyPlan

QUICK = {"rounds": 3, "lr": 0.1, "classes": [0, 1]}


def nodes(K: int, n: int = 20) -> dict[int, Any]:
    """K hospitals of unequal sizes."""
    return {k: table(n + 2 * (k % 7), seed=k, shift=0.1 * (k % 3 - 1)) for k in range(1, K + 1)}


def in_blocks(K: int, size: int) -> list[list[int]]:
    """Hospitals 1 to K in blocks of neighbours."""
    return [list(range(first, first + size)) for first in range(1, K + 1, size)]


@dataclass
class Tape:
    """Every call, and every answer that central took.

    Attributes:
        calls: organization and message, in order.
        answers: function, organization and answer, in order.
    """

    calls: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    answers: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, organization: int, message: dict[str, Any]) -> CallOutcome:
        self.calls.append((organization, orjson.loads(orjson.dumps(message))))

        def alter(answer: dict[str, Any]) -> dict[str, Any]:
            self.answers.append((message["method"], organization, json.loads(json.dumps(answer))))
            return answer

        return CallOutcome(alter=alter)

    def masked(self) -> list[tuple[str, int, dict[str, Any]]]:
        """The answers after the agreement."""
        return [a for a in self.answers if a[0] not in ("describe", "confirm", "keep_steps", "forget")]


def run(
    package: str,
    databases: Mapping[int, Any],
    mode: str,
    folder: Path | None = None,
    *,
    size: int | None = None,
    outcomes: Any = None,
    online: Any = None,
    environment: Mapping[str, str] | None = None,
    stops: bool | None = False,
    **settings: Any,
) -> dict[str, Any]:
    """The result of a job. With ``size``, the hospitals have pinned a study in blocks of that size."""
    with MockNetwork(
        package,
        databases,
        environment={**TRUSTING, **(environment or {})},
        on_round=lambda row: None,
        outcomes=outcomes,
        online=online,
        hospital_folder=folder,
        study=StudyPlan(size) if size else None,
    ) as network:
        result = network.run(aggregation=mode, **settings)
    assert stops is None or ("stopped" in result) == stops, result.get("stopped")
    return result


def learned(result: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What a job has learned, by name."""
    return codec.decode(result["weights"])


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The norm of the difference, relative to that of ``other``."""
    return float(np.linalg.norm(np.subtract(one, other, dtype=np.float64)) / np.linalg.norm(other))


def without_masks(words: np.ndarray, *arguments: Any) -> np.ndarray:
    """In place of ``keystreams.masked``: masks of zero."""
    return words.copy()
