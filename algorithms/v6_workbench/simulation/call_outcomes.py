"""What becomes of each call to a mock node: how long it takes in simulated time, and whether it fails."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from v6_federated.base.randomness import generator
from v6_federated.messages.job import SHARED_FUNCTIONS


@dataclass(frozen=True)
class CallOutcome:
    """What becomes of one call of a partial function.

    Attributes:
        seconds: simulated seconds until the call ends; infinite for an answer that never comes.
        status: status of the run in vantage6's words: "completed", or how it failed.
        worked: whether a run that failed had done its work (and kept its state) before it failed.
        alter: turns the node's answer into the one that the server delivers.
        times: how often the server delivers the answer.
    """

    seconds: float = 0.0
    status: str = "completed"
    worked: bool = False
    alter: Callable[[dict[str, Any]], Any] | None = None
    times: int = 1


CallOutcomes = Callable[[int, dict[str, Any]], CallOutcome]  # of an organization's id and the task's input


def node_speeds(organizations: Sequence[int], slowest: float, spread: float = 0.2, seed: int = 0) -> CallOutcomes:
    """Give nodes different speeds.

    The fastest node takes 1 second for a call and the slowest takes ``slowest`` seconds; the others lie between them
    at equal ratios. A call of ``evaluate`` takes no time, so evaluating the model more often changes nothing.

    Args:
        organizations: ids of the organizations whose calls take time.
        slowest: how many times slower than the fastest node the slowest is.
        spread: standard deviation of the logarithm of a call's time.
        seed: decides which organization gets which speed.

    Returns:
        A function of an organization's id and a task's input that gives the outcome of the call.
    """
    rng = generator(seed, "paces")
    seconds = dict(
        zip(rng.permutation(organizations).tolist(), np.geomspace(1, slowest, len(organizations)), strict=True)
    )
    calls = {k: generator(seed, "pace", k) for k in organizations}

    def outcome(organization: int, input_: dict[str, Any]) -> CallOutcome:
        if organization not in calls or input_["method"] in SHARED_FUNCTIONS:  # their time is not simulated
            return CallOutcome()
        return CallOutcome(float(seconds[organization] * np.exp(spread * calls[organization].standard_normal())))

    return outcome
