"""How many requests a job, and all jobs of a week, have made: counted by the node, since a task can say any round."""

import sqlite3
import time
from datetime import datetime, timezone

from v6_federated.base.vantage6_api import PrivacyThresholdViolation
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.limits import PREFIX
from v6_federated.rules.locked import locked
from v6_federated.rules.policy import Policy

NAME = "requests.sqlite"
WEEK = 7 * 24 * 3600.0  # seconds
FREE = ("describe", "confirm", "keep_steps", "forget")  # these read no rows, or only say which columns there are
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS request (digest BLOB PRIMARY KEY, at REAL, job TEXT, function TEXT) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS job ON request (job, function)",
    "CREATE INDEX IF NOT EXISTS week ON request (at)",
)


def count(policy: Policy, folder: HospitalFolder, job: str, function: str, digest: bytes, now: float) -> None:
    """Count a request, and refuse it if there were too many. A request that is repeated counts once.

    It is counted before anything is computed: a request that fails later has been counted.
    """
    if function in FREE or (policy.maximum_rounds is None and policy.maximum_rounds_a_week is None):
        return
    with locked(folder.path / NAME, SCHEMA, "the file of counters of this node's limits") as database:
        if database.execute("SELECT 1 FROM request WHERE digest = ?", (digest,)).fetchone():
            return
        _check_job(policy, database, job, function)
        _check_week(policy, database, now)
        database.execute("INSERT INTO request VALUES (?, ?, ?, ?)", (digest, now, job, function))


def _check_job(policy: Policy, database: sqlite3.Connection, job: str, function: str) -> None:
    if policy.maximum_rounds is None:
        return
    query = "SELECT COUNT(*) FROM request WHERE job = ? AND function = ?"
    [so_far] = database.execute(query, (job, function)).fetchone()
    if so_far > policy.maximum_rounds:  # one more than rounds: the last model is evaluated after the last round
        fewer = "preprocessing steps" if function == "fit_step" else "rounds"
        raise PrivacyThresholdViolation(
            f"the job has called {function} {so_far} times, and this node allows {policy.maximum_rounds} rounds "
            f"({PREFIX}MAXIMUM_ROUNDS), whatever round a task says; ask for fewer {fewer}"
        )


def _check_week(policy: Policy, database: sqlite3.Connection, now: float) -> None:
    if policy.maximum_rounds_a_week is None:
        return
    if policy.maximum_rounds_a_week == 0:
        raise PrivacyThresholdViolation(f"this node answers no request ({PREFIX}MAXIMUM_ROUNDS_A_WEEK=0)")
    query = "SELECT at FROM request WHERE at > ? ORDER BY at DESC LIMIT 1 OFFSET ?"
    first = database.execute(query, (now - WEEK, policy.maximum_rounds_a_week - 1)).fetchone()
    if first is not None:
        room = datetime.fromtimestamp(first[0] + WEEK, timezone.utc)
        raise PrivacyThresholdViolation(
            f"this node has answered {policy.maximum_rounds_a_week} requests in the last seven days, as many as it "
            f"allows ({PREFIX}MAXIMUM_ROUNDS_A_WEEK); there is room again from {room:%Y-%m-%d %H:%M} UTC"
        )


def now() -> float:
    """The time in seconds since 1970."""
    return time.time()
