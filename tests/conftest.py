"""Fixtures of all tests."""

import pandas as pd
import pytest
from hypothesis import settings

from v6_workbench.conformance import tables

settings.register_profile("any machine", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A worker runs a whole file, whose fixtures are then made once, and one worker runs all that need Docker."""
    for item in items:
        file = item.path
        item.add_marker(pytest.mark.xdist_group("network" if file.parent.name.startswith("network") else str(file)))


@pytest.fixture
def hospitals() -> dict[int, pd.DataFrame]:
    """Three nodes with different numbers of rows and differently distributed rows."""
    return tables.three()


@pytest.fixture
def clinics() -> dict[int, pd.DataFrame]:
    """Three clinics. Only the first has rows of the level x."""
    return tables.clinics()
