"""The referee: what R writes is what tests read, to the last bit."""

import numpy as np
import pandas as pd
import pytest
import referee


@pytest.mark.r
def test_numbers_come_back_as_they_are():
    x = np.array([1 / 3, -2e-300, np.pi * 1e17])
    found = referee.numbers('write("x", frame$x); write("gap", c(NA, 2))', frame=pd.DataFrame({"x": x}))
    np.testing.assert_array_equal(found["x"], x)
    assert np.isnan(found["gap"][0]) and found["gap"][1] == 2


@pytest.mark.r
def test_a_table_of_r_is_read_with_its_words():
    lung = referee.table("survival::lung")
    assert lung.shape == (228, 10) and lung.time.sum() == 69593


@pytest.mark.r
def test_a_script_that_fails_says_why():
    with pytest.raises(AssertionError, match="no such thing"):
        referee.numbers('stop("no such thing")')


@pytest.mark.parametrize("demanded, outcome", [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_without_r_tests_are_skipped_unless_it_is_required(demanded, outcome, monkeypatch):
    monkeypatch.setattr(referee, "missing", lambda: "no R")
    monkeypatch.setenv("REQUIRE_R", demanded)
    with pytest.raises(outcome, match="no R"):
        referee.check()
    monkeypatch.setattr(referee, "missing", lambda: "")
    referee.check()
