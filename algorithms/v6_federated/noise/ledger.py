"""The ledger: what all jobs may cost together, and what each has reserved, counted by the hospital itself.

It is the file ``ledger.sqlite`` in the hospital's own folder, one for all of its data: another label for a database,
new rows in a table or another job key refill nothing. A job reserves its whole plan before its first round, and gets
nothing back. What a request uses of the plan is counted before it is computed: a killed run has used it.

Each reservation holds the hash of the one before, so none can be changed or left out unnoticed. Who removes the last
ones, or puts back an older folder, can only be noticed by an operator who has noted the last hash, the ``head``.
"""

import contextlib
import errno
import functools
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from v6_federated.base import json_text
from v6_federated.base.errors import SafeError
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks.notation import H
from v6_federated.noise import accountant
from v6_federated.noise.plan import Plan
from v6_federated.rules.limits import PREFIX
from v6_federated.rules.locked import connect, explained, locked

NAME = "ledger.sqlite"
WHAT = "the ledger of this node's privacy budget"
CHILD_SECONDS = 30.0  # how long the other process may take that tries the lock
MOST_EPSILON, MOST_DELTA = 1e6, 0.1  # that an operator can set
FIRST = bytes(32)  # the hash before the first reservation
OTHER_PLAN = (
    "this job has reserved another privacy plan at this node, and a plan cannot be changed; start a new job. "
    f"{NOTHING_COMPUTED}"
)
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS reservation "
    "(seq INTEGER PRIMARY KEY, job TEXT UNIQUE, plan TEXT, at TEXT, previous BLOB, digest BLOB)",
    "CREATE TABLE IF NOT EXISTS use "
    "(T BLOB PRIMARY KEY, job TEXT, steps INTEGER, evaluations INTEGER, statistics INTEGER) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS job ON use (job)",
)
USED = "SELECT TOTAL(steps), TOTAL(evaluations), TOTAL(statistics) FROM use WHERE job = ?"
# Another process, since SQLite knows the locks of its own process without asking the file system.
CHILD = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    sys.exit(str(error))
print("begun")
"""


@dataclass(frozen=True)
class Reserved:
    """A job's reservation.

    Attributes:
        job: the job's key.
        plan: its plan.
        at: when it was reserved, in UTC.
        epsilon: what the plan costs alone, at the ledger's delta.
        steps: how many noisy sums of gradients its requests have used.
        evaluations: how many evaluations.
        statistics: how many noisy sums of the preparation.
        head: hash of this reservation, in hexadecimal: the ledger's head until the next one.
    """

    job: str
    plan: Plan
    at: str
    epsilon: float
    steps: int
    evaluations: int
    statistics: int
    head: str


@dataclass(frozen=True)
class Spent:
    """What is spent.

    Attributes:
        epsilon: what all reserved plans cost together.
        budget: the epsilon that they may cost.
        delta: of both.
        jobs: the reservations, the oldest first.
        head: hash of the last reservation, in hexadecimal.
    """

    epsilon: float
    budget: float
    delta: float
    jobs: Sequence[Reserved]
    head: str


class Ledger:
    """A hospital's ledger."""

    def __init__(self, folder: Path, epsilon: float, delta: float, epsilon_per_job: float | None = None) -> None:
        """Name a ledger."""
        for name, value, most in (
            ("EPSILON", epsilon, MOST_EPSILON),
            ("DELTA", delta, MOST_DELTA),
            ("EPSILON_PER_JOB", epsilon if epsilon_per_job is None else epsilon_per_job, MOST_EPSILON),
        ):
            if not 0 < value <= most:
                raise NodePermissionException(
                    f"{PREFIX}{name} of this node must be a number above 0, of at most {most:g}. {NOTHING_COMPUTED}"
                )
        self.folder = folder
        self.epsilon = epsilon
        self.delta = delta
        self.epsilon_per_job = epsilon_per_job

    def reserve(self, job: str, plan: Plan) -> None:
        """Reserve a job's whole plan, before its first round. Nothing is ever given back."""
        with self._locked() as database:
            reserved, head = _chain(database)
            if job in reserved:
                if reserved[job][0] != plan:
                    raise NodePermissionException(OTHER_PLAN)
                return
            plans = [other for other, *_ in reserved.values()]
            alone, together = self._cost([plan]), self._cost([*plans, plan])
            fits = together <= self.epsilon and (self.epsilon_per_job is None or alone <= self.epsilon_per_job)
            if fits:
                at = datetime.now(timezone.utc).isoformat(timespec="seconds")
                row = (len(reserved), job, json.dumps(plan.to_json()), at)
                digest = H("ledger", head, *row)
                database.execute("INSERT INTO reservation VALUES (?, ?, ?, ?, ?, ?)", (*row, head, digest))
        if not fits:
            raise NodePermissionException(self._refusal(plan, plans, alone, together))

    def use(self, job: str, plan: Plan, T: bytes, steps: int = 0, evaluations: int = 0, statistics: int = 0) -> None:
        """Count what a request uses of the job's reservation, before it is computed.

        No noise is added without it, so this is where a request with another plan than the reserved one is refused.
        """
        asked = {"steps": steps, "evaluations": evaluations, "statistics": statistics}
        if min(asked.values()) < 0:
            raise ValueError(f"a request cannot use {asked}")
        with self._locked() as database:
            reserved, _ = _chain(database)
            if job not in reserved:
                raise NodePermissionException(
                    f"this job has reserved no privacy budget at this node; start a new job. {NOTHING_COMPUTED}"
                )
            if reserved[job][0] != plan:
                raise NodePermissionException(OTHER_PLAN)
            known = database.execute("SELECT job, steps, evaluations, statistics FROM use WHERE T = ?", (T,)).fetchone()
            if known is not None:
                if known != (job, *asked.values()):
                    raise NodePermissionException(
                        f"this node has counted this request with other numbers; start a new job. {NOTHING_COMPUTED}"
                    )
                return
            used = _used(database, job)
            for name, more in asked.items():
                if used[name] + more > getattr(plan, name):
                    raise NodePermissionException(
                        f"the request asks for {more} more {name}, and of the {getattr(plan, name)} in the privacy "
                        f"plan that the job has reserved at this node, {used[name]} are used; start a new job with a "
                        f"larger plan. {NOTHING_COMPUTED}"
                    )
            database.execute("INSERT INTO use VALUES (?, ?, ?, ?, ?)", (T, job, *asked.values()))

    def spent(self) -> Spent:
        """What is spent and by whom. It only reads."""
        if not (self.folder / NAME).exists():
            return Spent(0.0, self.epsilon, self.delta, (), FIRST.hex())
        with _explained(self.folder), contextlib.closing(connect(self.folder / NAME, "?mode=ro")) as database:
            database.execute("BEGIN")
            made = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'reservation'").fetchone()
            reserved, head = _chain(database) if made else ({}, FIRST)
            jobs = [
                Reserved(job, plan, at, self._cost([plan]), **_used(database, job), head=digest.hex())
                for job, (plan, at, digest) in reserved.items()
            ]
        return Spent(self._cost([job.plan for job in jobs]), self.epsilon, self.delta, tuple(jobs), head.hex())

    def _cost(self, plans: Sequence[Plan]) -> float:
        return accountant.epsilon(plans, self.delta)

    def _refusal(self, plan: Plan, plans: Sequence[Plan], alone: float, together: float) -> str:
        """What a plan that does not fit costs, what is left, and what would fit."""
        spent = self._cost(plans)
        said = [f"the job's privacy plan costs epsilon {alone:.4g} at delta {self.delta:g}"]
        bounds: list[tuple[Sequence[Plan], float]] = []
        if self.epsilon_per_job is not None and alone > self.epsilon_per_job:
            said.append(f"a job may cost {self.epsilon_per_job:g} at this node ({PREFIX}EPSILON_PER_JOB)")
            bounds.append(((), self.epsilon_per_job))
        said.append(f"{spent:.4g} of {self.epsilon:g} is spent ({PREFIX}EPSILON)")
        said.append(f"{max(self.epsilon - spent, 0):.4g} is left")
        if together > self.epsilon:
            said.append(f"with the plan it would be {together:.4g}")
            bounds.append((plans, self.epsilon))
        return f"{', '.join(said)}. {self._fitting(plan, bounds)}. {NOTHING_COMPUTED}"

    def _fitting(self, plan: Plan, bounds: Sequence[tuple[Sequence[Plan], float]]) -> str:
        """What would fit instead of a plan: within each epsilon, beside the plans before it."""
        steps = min(accountant.fitting_steps(plans, plan, bound, self.delta) for plans, bound in bounds)
        fits = [f"{steps} of the {plan.steps} steps with the same noise"] if 0 < steps < plan.steps else []
        with contextlib.suppress(SafeError):  # no noise is large enough
            others = [accountant.calibrated(plan, bound, self.delta, plans) for plans, bound in bounds]
            noises = [
                f"{name} {max(getattr(other, name) for other in others):g} instead of {getattr(plan, name):g}"
                for name, count in accountant.NOISES
                if getattr(plan, count)
            ]
            fits.append(f"the whole plan with {' and '.join(noises)}")
        return f"What would fit: {', or '.join(fits)}" if fits else "No plan fits any more"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[sqlite3.Connection]:
        """The ledger in one transaction, while no other task may use it."""
        with _explained(self.folder):
            _check_locks(self.folder, self.folder.stat().st_dev)
        with locked(self.folder / NAME, SCHEMA, WHAT) as database:
            yield database


def _explained(folder: Path) -> AbstractContextManager[None]:
    return explained(folder / NAME, WHAT)


@functools.lru_cache(maxsize=64)
def _check_locks(folder: Path, device: int) -> None:
    """Refuse a folder in which two processes can write at once: once per process, folder and mounted device."""
    with contextlib.closing(connect(folder / NAME)) as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            child = subprocess.run(
                [sys.executable, "-I", "-S", "-c", CHILD, str((folder / NAME).absolute())],
                capture_output=True,
                encoding="utf-8",
                timeout=CHILD_SECONDS,
                check=False,
            )
        except subprocess.SubprocessError:
            raise OSError(errno.ETIMEDOUT, "no answer") from None
        database.execute("ROLLBACK")
    if "locked" in child.stderr and child.returncode:
        return
    raise NodePermissionException(
        "the ledger of this node's privacy budget needs a folder whose file locks work, and in the hospital's folder "
        + ("two programs could write at once" if "begun" in child.stdout else "the test of them failed")
        + "; its operator must put the folder on a local disk, as network shares often have no locks. "
        + NOTHING_COMPUTED
    )


def _chain(database: sqlite3.Connection) -> tuple[dict[str, tuple[Plan, str, bytes]], bytes]:
    """The plan, time and hash of each job's reservation, the oldest first, and the head."""
    reserved: dict[str, tuple[Plan, str, bytes]] = {}
    head = FIRST
    rows = database.execute("SELECT seq, job, plan, at, previous, digest FROM reservation ORDER BY seq").fetchall()
    for number, (seq, job, text, at, previous, digest) in enumerate(rows):
        try:
            if seq != number or previous != head or digest != H("ledger", head, seq, job, text, at):
                raise ValueError
            reserved[job] = Plan.from_json(json_text.parse(text)), at, digest
        except (ValueError, TypeError, AttributeError, OverflowError):  # SafeError is a ValueError
            raise NodePermissionException(
                f"the ledger of this node's privacy budget has been changed: reservation {number + 1} of {len(rows)} "
                f"does not follow from those before; the node's operator must put back a sound {NAME} in the "
                f"hospital's folder. {NOTHING_COMPUTED}"
            ) from None
        head = digest
    return reserved, head


def _used(database: sqlite3.Connection, job: str) -> dict[str, int]:
    """What a job's requests have used."""
    steps, evaluations, statistics = database.execute(USED, (job,)).fetchone()
    return {"steps": int(steps), "evaluations": int(evaluations), "statistics": int(statistics)}
