"""The stop list: jobs that the hospital's operator has stopped, and which no request can start again.

vantage6 4.15 lets only users of the server stop a task; a node's operator has no command for it. So the operator writes
the job's key into a file in the hospital's own folder, and the node looks there before it computes anything, and again
before an answer leaves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from v6_federated.base.errors import SafeError
from v6_federated.base.files import open_regular, write_whole
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException

NAME = "stopped.json"
MOST_BYTES = 2**24
STOPPED = "the operator of this node has stopped this job"
UNREADABLE = (
    f"the list of jobs that the operator of this node has stopped cannot be read; its operator must look at {NAME} in "
    f"the hospital's folder. {NOTHING_COMPUTED}"
)


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """The list.

    Attributes:
        all: since when every job is stopped, those that have not begun too, in UTC; None if not all are.
        jobs: since when single jobs are stopped, by the job's key.
    """

    all: str | None = None
    jobs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Stopped":
        """Read the list."""
        try:
            with open_regular(folder / NAME) as stream:
                return _LIST.validate_json(stream.read(MOST_BYTES))
        except FileNotFoundError:
            return cls()
        except (SafeError, OSError, ValidationError):
            raise NodePermissionException(UNREADABLE) from None

    def write(self, folder: Path) -> None:
        """Replace the list in a folder."""
        write_whole(folder / NAME, _LIST.dump_json(self, indent=1).decode() + "\n", durable=True)

    def since(self, job: str) -> str | None:
        """Say since when a job is stopped."""
        return self.jobs.get(job) or self.all

    def adding(self, jobs: Mapping[str, str]) -> "Stopped":
        """Return the list with more jobs: since when each is stopped, by key. Those that are on it keep their time."""
        return replace(self, jobs={**jobs, **self.jobs})

    def without(self, jobs: Mapping[str, str]) -> "Stopped":
        """Return the list without some jobs."""
        return replace(self, jobs={key: at for key, at in self.jobs.items() if key not in jobs})


_LIST = TypeAdapter(Stopped)


def check(folder: Path, job: str) -> None:
    """Refuse a request of a job that is stopped."""
    if Stopped.read(folder).since(job) is not None:
        raise NodePermissionException(STOPPED)
