"""The liar of ``python -m benchmarks dishonest_analyses`` breaks no bound, and brings about what its column says."""

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import dishonest_analyses as lies

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("analysis", [lies.GLM, lies.COX])
def test_one_of_four_hospitals_can_hide_an_effect_and_turn_it_around(analysis):
    """Three honest hospitals with the effect e and one with -e have e / 2 together, one without effect 3 e / 4."""
    results = [lies.lied(analysis, lie, seed=1) for lie in lies.LIES]
    [effect, none, opposite, far, sums] = [np.log(lies.number(analysis, result)) for result in results]
    assert effect == pytest.approx(0.7, abs=0.2)  # as the hospitals are made; the estimate's standard error is .07
    assert none == pytest.approx(0.75 * effect, abs=0.15)
    assert far < 0 < opposite < 0.6 * effect
    assert sums == pytest.approx(0, abs=0.02)
    if analysis == lies.GLM:  # made-up rows are within what Cauchy-Schwarz allows, and made-up sums hardly beyond it
        liars = [result["longest"][lies.LIAR] for result in results]
        assert max(liars[:4]) < 1 and liars[4] < 1.3


def test_one_of_four_hospitals_moves_a_median():
    """Three quarters of the rows die as before: the curve is at .5 where theirs is at a third."""
    honest, moved = (lies.number(lies.KM, lies.lied(lies.KM, lie, seed=1)) for lie in (lies.HONEST, lies.OPPOSITE))
    rows = [lies.hospitals(1)[k] for k in lies.NODES if k != lies.LIAR]
    time, died = (np.concatenate([part[c] for part in rows]) for c in ("time", "died"))
    order = np.argsort(time)
    survival = np.cumprod(1 - died[order] / np.arange(len(time), 0, -1))
    third = time[order][np.argmax(survival <= 1 / 3)]
    assert honest < moved == pytest.approx(third, rel=0.1)  # to a bin


def test_the_page_shows_what_was_measured():
    measured, page = (
        (ROOT / path).read_text() for path in ("benchmarks/results/dishonest_analyses.md", "docs/dishonest-nodes.md")
    )

    def numbers(text, name):
        [line] = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        return [re.match(r"[\d.]+|-", cell.strip()).group() for cell in line.split("|")[2:-1]]

    for analysis in lies.ANALYSES:
        assert numbers(page, analysis) == numbers(measured, analysis)
