"""Fixtures of all tests."""

import hashlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace

import leftovers
import pandas as pd
import pytest
import referee
from hypothesis import settings

from v6_federated.node import silence
from v6_federated.rules import hospital
from v6_federated.rules.environment import debugging
from v6_workbench.conformance import tables

settings.register_profile("any machine", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """The workers know the process that begins the tests."""
    if not hasattr(config, "workerinput"):
        os.environ[leftovers.RUN] = str(os.getpid())


def pytest_sessionstart(session: pytest.Session) -> None:
    """Ctrl-C and SIGTERM end the tests, with ``pytest_unconfigure``, also where a command under test takes Ctrl-C."""

    def end(number: int, frame: object) -> None:
        session.shouldstop = "interrupted"
        raise KeyboardInterrupt

    if not hasattr(session.config, "workerinput"):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what is left in the Docker engine: pytest-xdist gives workers 10 s to end, then it kills them."""
    if leftovers.REQUIRED and not hasattr(config, "workerinput"):
        for impatient in (signal.SIGINT, signal.SIGTERM):
            signal.signal(impatient, signal.SIG_IGN)
        leftovers.clear(lambda began: began == os.environ[leftovers.RUN])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A worker runs a whole file, whose fixtures are then made once, and one worker runs all that need Docker."""
    for item in items:
        file = item.path
        item.add_marker(pytest.mark.xdist_group("network" if file.parent.name.startswith("network") else str(file)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests with the marker ``r`` need R: without it they are skipped, or fail under REQUIRE_R=1."""
    if item.get_closest_marker("r"):
        referee.check()


@pytest.fixture(scope="session", autouse=True)
def warnings_of_nodes() -> Iterator[None]:
    """Nodes suppress warnings, by which a test finds numerical mistakes: here they show them, as with DEBUG=1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(silence, "debugging", lambda: True)
        yield


@pytest.fixture(scope="session", autouse=True)
def secrets_of_nodes() -> Iterator[None]:
    """Nodes draw the same secrets in each run of a test: what fails once, fails always. Other processes draw others."""
    drawn: Counter[str] = Counter()

    def token_bytes(size: int) -> bytes:
        test = os.environ["PYTEST_CURRENT_TEST"].split("@")[0]  # after it, the folder of this checkout
        drawn[test] += 1
        return hashlib.shake_256(f"{test} {drawn[test]}".encode()).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hospital, "secrets", SimpleNamespace(token_bytes=token_bytes))
        yield


@pytest.fixture
def as_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes suppress warnings as they do at hospitals."""
    monkeypatch.setattr(silence, "debugging", debugging)


@pytest.fixture
def hospitals() -> dict[int, pd.DataFrame]:
    """Three nodes with different numbers of rows and differently distributed rows."""
    return tables.three()


@pytest.fixture
def clinics() -> dict[int, pd.DataFrame]:
    """Three clinics. Only the first has rows of the level x."""
    return tables.clinics()
