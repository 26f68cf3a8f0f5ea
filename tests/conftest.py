"""Fixtures of all tests."""

import pandas as pd
import pytest
from helpers import hospital, table


@pytest.fixture
def hospitals() -> dict[int, pd.DataFrame]:
    """Three nodes of unequal sizes and unlike rows."""
    return {3: table(30, seed=3), 5: table(44, seed=5, shift=0.5), 8: table(26, seed=8, shift=-0.5)}


@pytest.fixture
def clinics():
    """Three clinics; only the first knows the level x, and has it in a few rows."""
    return {1: hospital(60, 1, ["f", "m", "x"]), 2: hospital(50, 2, ["f", "m"]), 3: hospital(70, 3, ["f", "f", "m"])}
