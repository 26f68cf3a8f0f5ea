"""Fixtures of all tests."""

import pandas as pd
import pytest
from helpers import table


@pytest.fixture
def hospitals() -> dict[int, pd.DataFrame]:
    """Three nodes of unequal sizes and unlike rows."""
    return {3: table(30, seed=3), 5: table(44, seed=5, shift=0.5), 8: table(26, seed=8, shift=-0.5)}
