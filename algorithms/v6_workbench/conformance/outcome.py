"""How a check ends."""

import unittest
from dataclasses import dataclass
from typing import Literal


class CheckFailed(AssertionError):
    """The method does not do what the check asks."""


class NotApplicable(unittest.SkipTest):
    """The check says nothing about this method, for a reason; pytest reports it as skipped."""


@dataclass(frozen=True)
class Outcome:
    """What came of one check.

    Attributes:
        check: its name.
        status: how it ended.
        reason: why it failed or does not apply, or what it found out about the method.
    """

    check: str
    status: Literal["pass", "fail", "not applicable"]
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.check}" + (f" ({self.reason})" if self.reason else "")


def require(holds: bool, problem: str) -> None:
    """Raise CheckFailed with ``problem`` unless the condition holds."""
    if not holds:
        raise CheckFailed(problem)
