"""Fixtures of all tests."""

import pandas as pd
import pytest

from v6_workbench.conformance import tables


@pytest.fixture
def hospitals() -> dict[int, pd.DataFrame]:
    """Three nodes with different numbers of rows and differently distributed rows."""
    return tables.three()


@pytest.fixture
def clinics() -> dict[int, pd.DataFrame]:
    """Three clinics. Only the first has rows of the level x."""
    return tables.clinics()
