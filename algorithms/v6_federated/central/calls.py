"""What is asked of nodes: calls of a partial function, alike for groups of organizations, and answered by blocks."""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.central.answer import Expected
from v6_federated.masks.summing import Sums
from v6_federated.messages import codec
from v6_federated.messages.job import Job
from v6_federated.messages.settings import Record

GLOBAL_MODEL = "weights"  # the name of the array that nodes evaluate


@dataclass(frozen=True)
class Group:
    """Organizations that are sent the same.

    Attributes:
        function: the partial function.
        organizations: their ids.
        job: the job, as the nodes are told of it.
        settings: the function's settings.
        arrays: the function's arrays.
        expected: what their answers must hold.
        evaluate: whether they evaluate ``weights`` first: "held_out", "all" or None.
        exponent: e of masked sums whose unit follows from public values that the function's caller knows.
        often: why nodes often cannot compute their part of a masked sum, and what to do.
    """

    function: str
    organizations: Collection[int]
    job: Job
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    expected: Expected = field(default_factory=Expected)
    evaluate: str | None = None
    exponent: int | None = None
    often: str = ""

    @functools.cached_property
    def payload(self) -> dict[str, Any]:
        """The arrays, as they are sent to all."""
        return codec.encode(self.arrays, self.job.precision)


@dataclass(frozen=True)
class Question:
    """What some blocks of a group are asked.

    Attributes:
        group: the group.
        blocks: ids of the organizations of each block.
        expected: what the answers must hold.
        sums: the sum that the answers of a block are parts of; None if each organization is a block of its own.
        more: what is said besides the group's settings and arrays.
    """

    group: Group
    blocks: list[list[int]]
    expected: Expected
    sums: Sums | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


def parted(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Split arguments into settings, with records as dictionaries, and arrays, which are sent as a payload."""
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    settings = {name: value for name, value in arguments.items() if name not in arrays}
    return {
        name: value.model_dump() if isinstance(value, Record) else value for name, value in settings.items()
    }, arrays
