"""A limit on how long a server may be silent, outside vantage6's client, which tries a lost connection without end."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

GLANCE_SECONDS = 0.2  # within which Ctrl-C is noticed on systems where it does not end a wait
LAST_SECONDS = 1.0  # that a request still has if the limit is reached: a server that is back answers in time
NOTICE_SECONDS = 15.0  # of silence, after which it is told


@dataclass
class Silence:
    """How long a server has not answered, and may not.

    Attributes:
        limit: seconds that it may not answer.
        notice: called once in each silence of some seconds.
        since: when the first request of those without an answer was made; None if the last one was answered.
    """

    limit: float
    notice: Callable[[], None] = lambda: None
    since: float | None = None
    _noticed: bool = field(default=False, init=False)

    @property
    def over(self) -> bool:
        """Whether the limit is reached."""
        return self.since is not None and time.monotonic() - self.since >= self.limit

    def listen(self, ask: Callable[[], T], apart: bool = True) -> T:
        """Ask the server once, for as long as it may still be silent."""
        begun = time.monotonic()
        if self.since is None:
            self.since = begun
        left = max(self.since + self.limit - begun, LAST_SECONDS)
        answer = within(left, ask, self._tell) if apart else ask()
        self.answered()
        return answer

    def answered(self) -> None:
        """Note that the server answers."""
        self.since, self._noticed = None, False

    def _tell(self) -> None:
        if not self._noticed and self.since is not None and time.monotonic() - self.since >= NOTICE_SECONDS:
            self._noticed = True
            self.notice()


def within(seconds: float, ask: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
    """Call a function in a thread of its own, and leave it there if it takes too long."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            answers.append(ask())
        except BaseException as error:
            errors.append(error)

    until = time.monotonic() + seconds
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    while thread.is_alive() and (left := until - time.monotonic()) > 0:
        thread.join(min(left, GLANCE_SECONDS))
        meanwhile()
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return answers[0]
