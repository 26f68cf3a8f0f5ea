"""Fixtures of all tests."""

import pandas as pd
import pytest
from helpers import hospital, table


@pytest.fixture
def hospitals() -> dict[int, pd.DataFrame]:
    """Three nodes with different numbers of rows and differently distributed rows."""
    return {3: table(30, seed=3), 5: table(44, seed=5, shift=0.5), 8: table(26, seed=8, shift=-0.5)}


@pytest.fixture
def clinics():
    """Three clinics. Only the first has rows of the level x."""
    return {1: hospital(60, 1, ["f", "m", "x"]), 2: hospital(50, 2, ["f", "m"]), 3: hospital(70, 3, ["f", "f", "m"])}
