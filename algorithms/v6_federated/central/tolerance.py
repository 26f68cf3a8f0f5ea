"""Which missing answers a round tolerates."""

import math
from dataclasses import dataclass, replace
from typing import Any

from v6_federated.messages.common import Common

ROUND_TIMEOUT = 3600.0  # seconds, of a job on real nodes that sets none: a silent node must not hold it up for ever
OF_BLOCKS = 0.6  # of the blocks of a study must answer, if the job does not say how many
LOOK_SECONDS = 10.0  # at most, between checks whether the nodes that have not answered are still online


@dataclass(frozen=True)
class Tolerance:
    """Which missing answers a round tolerates: see ``messages.common.Common`` for the settings.

    Attributes:
        round_timeout: seconds that a call may take; None means any time.
        min_responses: share (up to 1) or number of the asked nodes that must answer; None: all, but in a study
            ``OF_BLOCKS``.
        retries: further attempts after a failure.
        cooldown_rounds: rounds in which a node that has failed is not asked.
        offline_timeout: seconds that a node may be offline while it is waited for.
        at_least: number of answers that a round needs, whatever ``min_responses`` says: the operators' minimum.
    """

    round_timeout: float | None
    min_responses: float | None
    retries: int
    cooldown_rounds: int
    offline_timeout: float
    at_least: int = 1

    @classmethod
    def of(cls, common: Common, at_least: int, on_a_node: bool) -> "Tolerance":
        """Read the settings of a job."""
        timeout = ROUND_TIMEOUT if on_a_node and common.round_timeout is None else common.round_timeout
        settings = (common.min_responses, common.retries, common.cooldown_rounds, common.offline_timeout)
        return cls(timeout, *settings, at_least)

    @property
    def strict(self) -> bool:
        """Whether every node that is asked must answer."""
        return self._wanted == 1

    @property
    def _wanted(self) -> float:
        return 1.0 if self.min_responses is None else self.min_responses

    def in_mode(self, aggregation: Any) -> "Tolerance":
        """The same in a study: in some rounds a hospital is down, and each costs its whole block."""
        unsaid = aggregation == "pinned" and self.min_responses is None
        return replace(self, min_responses=OF_BLOCKS) if unsaid else self

    @property
    def look(self) -> float:
        """Seconds from one check who is online to the next."""
        return min(LOOK_SECONDS, max(1.0, self.offline_timeout / 3))

    def needed(self, asked: int) -> int:
        """Count the answers that a round needs."""
        wanted = math.ceil(self._wanted * asked - 1e-9) if self._wanted <= 1 else int(self._wanted)
        return min(asked, max(wanted, self.at_least, 1))
