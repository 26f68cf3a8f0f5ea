"""The liar of ``python -m benchmarks poisoning`` stays within the bounds, and does what its name says."""

import numpy as np
import pytest
from benchmarks import poisoning, runs


@pytest.mark.parametrize("lie", [poisoning.FLIPPED, poisoning.RANDOM, poisoning.DRIVEN])
@pytest.mark.parametrize("name", ["FedAvg", "SCAFFOLD", "CO-OP"])
def test_a_lie_within_the_bounds_ends_no_job(name, lie, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    method, settings = poisoning.METHODS[name]
    accuracy, ended = poisoning.accuracy(method, settings, lie, seed=1, rounds=2)
    honest, _ = poisoning.accuracy(method, settings, poisoning.HONEST, seed=1, rounds=2)
    assert ended == "" and accuracy <= honest + 0.01
    if lie == poisoning.DRIVEN:
        assert accuracy < honest - 0.2


@pytest.mark.parametrize(
    ("lie", "factor"), [(poisoning.FLIPPED, -1.0), (poisoning.RANDOM, 9.9), (poisoning.DRIVEN, 9.9)]
)
def test_an_update_in_the_place_of_an_honest_one(lie, factor):
    liar = poisoning.Liar(lie, np.float32([0, 50]), seed=1)
    update = liar._update("weights", np.float32([3, 4]), base=np.float32([0, 0]), median=2.0)
    expected = 5.0 if lie == poisoning.FLIPPED else 9.9 * 2.0
    assert np.linalg.norm(update) == pytest.approx(expected, rel=1e-6)
    if lie == poisoning.FLIPPED:
        assert update.tolist() == [-3, -4]
    if lie == poisoning.DRIVEN:
        assert update.tolist() == pytest.approx([0, 19.8])
