"""Small versions of the attacks of ``python -m benchmarks attacks``: what ``careful`` claims to stop brings nothing.

What it does not stop has to work here, so that the page on privacy cannot claim more than is true.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import attacks
from benchmarks.attacks.researcher import matched

ROOT = Path(__file__).parents[2]
NEVER = ("rare_word_statistics", "two_splits", "two_attempts")  # bring nothing under any profile
LONG = ("gradient_inversion",)  # a small version finds nothing
BY_KEY = {attack.key: attack for attack in attacks.ATTACKS}


@pytest.mark.parametrize("key", [pytest.param(key, marks=[pytest.mark.long] * (key in LONG)) for key in BY_KEY])
def test_careful_stops_what_it_says_and_nothing_else(key):
    attack = BY_KEY[key]
    assert bool(attack.stops) != bool(attack.why)  # the page says one of them
    found = attacks.outcome(attack, "careful", small=key not in LONG)
    assert (found.recovered == 0) == bool(attack.stops), found
    assert found.tasks <= 2000  # within what careful allows in a week


@pytest.mark.parametrize("key", [key for key, attack in BY_KEY.items() if attack.stops])
def test_trusting_stops_little_of_it(key):
    found = attacks.outcome(BY_KEY[key], "trusting", small=True)
    assert (found.recovered == 0) == (key in NEVER), found


def test_the_same_task_gets_the_same_answer_also_if_the_node_shuffles_by_itself():
    assert attacks.outcome(BY_KEY["two_attempts"], "careful", small=True).note == "0 of 10 pairs of answers differ"


def test_only_right_rows_count():
    truth = np.random.default_rng(0).normal(size=(20, 5))
    scale = truth.std(axis=0)
    claims = np.concatenate([truth[:3], truth[:3], truth[3:6] + 0.02 * scale, [truth.mean(axis=0)]])
    number, error = matched(claims, truth, scale)
    assert (number, error) == (3, 0.0)  # twice the same row is one row, and a hundredth of a deviation is the most
    assert matched(truth[:2] + 0.005 * scale, truth, scale) == (2, pytest.approx(0.005))


def test_the_numbers_of_the_page_are_measured():
    measured = (ROOT / "benchmarks" / "results" / "attacks.md").read_text()
    page = (ROOT / "docs" / "privacy.md").read_text()
    said = re.findall(r"\d[\d,]* of \d[\d,]* [\w']+ in \d[\d,]* tasks?", page)
    assert len(said) >= 8
    assert [text for text in said if text not in measured] == []
