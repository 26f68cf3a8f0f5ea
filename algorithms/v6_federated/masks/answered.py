"""The answered log: a request is computed under its masks once; whoever asks again gets the stored answer.

Two different answers under one mask would show their difference. So the log ``answered.sqlite`` in the hospital's own
folder remembers each transcript T for ever, and the job's folder keeps the newest answers, and the number of the last.
A killed run has answered nothing, and is computed again: its answer never left.

If the hospital's folder is put back as it once was, the log has forgotten answers that have left. The job's folder has
not: a log that knows of fewer requests than were answered is not used.
"""

import contextlib
import hashlib
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from v6_federated.base.errors import SafeError
from v6_federated.base.files import open_regular, replacing
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException, in_container
from v6_federated.masks.notation import H
from v6_federated.rules.locked import locked

NAME = "answered.sqlite"
ANSWERS = "answers"  # in the job's folder
RESTORED = (
    "the log of answered requests knows fewer requests of this job than this node has answered: an older copy of the "
    f"hospital's folder was put back. Start a new job from the last model. {NOTHING_COMPUTED}"
)
MOST_DIGITS = 20  # of a number
KEPT = 5  # answers of a job: those of a round, which central may begin again; FSVRG asks twice, and again if sums wrap
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS request (T BLOB PRIMARY KEY, job TEXT, seq INTEGER, answer BLOB) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS job ON request (job, seq)",
)


class Answered:
    """The log, as one job uses it."""

    def __init__(self, folder: Path, job_folder: Path, job: str) -> None:
        """Open the log."""
        self.folder = folder
        self.answers = job_folder / ANSWERS
        self.job = job
        self._last = job_folder / f"{H('last', job).hex()}-last"  # holds the number of the last request answered

    def begin(self, T: bytes, seq: int) -> bytes | None:
        """Begin a request."""
        with self._locked() as database:
            found = database.execute("SELECT answer FROM request WHERE T = ?", (T,)).fetchone()
            [last] = database.execute("SELECT MAX(seq) FROM request WHERE job = ?", (self.job,)).fetchone()
            if self._number() > (-1 if last is None else last):
                raise NodePermissionException(RESTORED)
            if found is None:
                if last is not None and seq <= last:
                    raise NodePermissionException(
                        f"this is request {seq} of the job, and this node has begun request {last} with other "
                        f"contents; the numbers of a job's requests must rise: start a new job. {NOTHING_COMPUTED}"
                    )
                database.execute("INSERT INTO request VALUES (?, ?, ?, NULL)", (T, self.job, seq))
                return None
            [digest] = found
            if digest is None:
                answer = self._finished(T)
                if answer is None and self._number() >= seq:
                    raise NodePermissionException(RESTORED)
                return answer
        return self._stored(T, digest)

    def finish(self, T: bytes, answer: bytes) -> bytes:
        """Store an answer before it leaves."""
        with self._locked() as database:
            query = "SELECT answer, seq FROM request WHERE T = ? AND job = ?"
            found = database.execute(query, (T, self.job)).fetchone()
            if found is None:
                raise NodePermissionException(f"this request was not begun; send it again. {NOTHING_COMPUTED}")
            before, seq = found
            if before is not None:
                return self._stored(T, before)
            answer = self._finished(T) or answer
            try:
                for file, content in ((self._file(T), answer), (self._last, b"%d" % max(seq, self._number()))):
                    with replacing(file, durable=in_container()) as stream:
                        stream.write(content)
            except OSError as error:
                raise NodePermissionException(
                    f"the answer cannot be stored in the job's folder ({error.strerror}), so nothing leaves; the "
                    "node's operator must look at its disk"
                ) from None
            digest = hashlib.sha256(answer).digest()
            database.execute("UPDATE request SET answer = ? WHERE T = ?", (digest, T))
            self._remove(database, KEPT)
        return answer

    def known(self) -> bool:
        """Whether the log has a request of this job."""
        with self._locked() as database:
            return database.execute("SELECT 1 FROM request WHERE job = ? LIMIT 1", (self.job,)).fetchone() is not None

    def forget(self) -> None:
        """Remove the job's stored answers. The log still knows that they were given."""
        with self._locked() as database:
            self._remove(database, 0)
        with contextlib.suppress(OSError):
            self._last.unlink()

    def _number(self) -> int:
        """The number of the last request that was answered, as the job's folder has it; -1 if none was."""
        try:
            with open_regular(self._last) as stream:
                return int(stream.read(MOST_DIGITS))
        except FileNotFoundError:
            return -1
        except (OSError, ValueError):  # SafeError is a ValueError
            raise NodePermissionException(
                f"the number of the last answer in the job's folder cannot be read; start a new job. {NOTHING_COMPUTED}"
            ) from None

    def _finished(self, T: bytes) -> bytes | None:
        """The answer that lies in the job's folder although the log says that the request was only begun.

        A run was killed between the two, or the log is an older one: no other answer may leave.
        """
        try:
            with open_regular(self._file(T)) as stream:
                return stream.read()
        except (OSError, SafeError):
            return None

    def _file(self, T: bytes) -> Path:
        return self.answers / T.hex()

    def _stored(self, T: bytes, digest: bytes) -> bytes:
        try:
            with open_regular(self._file(T)) as stream:
                answer = stream.read()
        except (OSError, SafeError):
            answer = b""
        if hashlib.sha256(answer).digest() != digest:
            raise NodePermissionException(
                "this node has answered this request, and the stored answer is gone; start a new job from the last "
                f"model. {NOTHING_COMPUTED}"
            )
        return answer

    def _remove(self, database: sqlite3.Connection, kept: int) -> None:
        """Remove all stored answers of the job but the newest."""
        query = "SELECT T FROM request WHERE job = ? AND answer IS NOT NULL ORDER BY seq DESC LIMIT -1 OFFSET ?"
        for [T] in database.execute(query, (self.job, kept)).fetchall():
            with contextlib.suppress(OSError):  # it takes room, and does no harm
                self._file(T).unlink()

    def _locked(self) -> AbstractContextManager[sqlite3.Connection]:
        return locked(self.folder / NAME, SCHEMA, "the log of answered requests")
