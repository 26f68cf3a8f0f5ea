"""Sums from several requests that must all be over the same nodes."""

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from v6_federated.central.answer import Answer

Ask = Callable[..., list[Answer]]  # ask(organizations, ...) returns the answers of those that gave one


class SameNodes:
    """The nodes that all requests of one attempt go to, see ``attempts``.

    Attributes:
        organizations: ids of those that have answered every request so far.
        answers: to the last request, by ascending id.
    """

    def __init__(self, organizations: Sequence[int], ask: Ask) -> None:
        """Begin an attempt.

        Args:
            organizations: ids of the nodes.
            ask: sends a request: ``ask(organizations, ...)`` returns the answers of those that gave one.
        """
        self.organizations, self.answers = list(organizations), list[Answer]()
        self._ask = ask
        self.dropped_out = False

    def ask(self, *arguments: Any, **named: Any) -> list[Answer]:
        """Send a request to the nodes. The ``with`` block ends if one does not answer that answered before."""
        before, asked = self.organizations, bool(self.answers)
        self.answers = self._ask(before, *arguments, **named)
        self.organizations = sorted(k for a in self.answers for k in a.organizations)
        self.dropped_out = asked and len(self.organizations) < len(before)
        if self.dropped_out:
            raise _DroppedOut
        return self.answers

    def __enter__(self) -> "SameNodes":
        """Begin the requests."""
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        """End the attempt; if a node has dropped out, another one follows."""
        return kind is _DroppedOut


class _DroppedOut(Exception):
    """A node has not answered that answered an earlier request."""


def attempts(organizations: Sequence[int], ask: Ask) -> Iterator[SameNodes]:
    """Attempt a computation from several requests until the same nodes have answered all of them.

        for nodes in attempts(organizations, ask):
            with nodes:
                first = nodes.ask(...)
                second = nodes.ask(...)

    If a node that has answered the first request does not answer a later one, the ``with`` block ends there, and the
    next attempt begins with the nodes that are left.

    Args:
        organizations: ids of the nodes to begin with.
        ask: sends a request: ``ask(organizations, ...)`` returns the answers of those that gave one.
    """
    while True:
        nodes = SameNodes(organizations, ask)
        yield nodes
        if not nodes.dropped_out:
            return
        organizations = nodes.organizations
