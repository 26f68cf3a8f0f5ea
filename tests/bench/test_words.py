"""Shakespeare's words: the vocabulary, rows and test rows; and a model's rounds beside those on the pooled rows."""

import functools

import numpy as np
import pytest
from benchmarks import beside, mcmahan2017_words, runs


def test_words_are_letters_and_apostrophes_in_lower_case():
    text = "O Romeo, Romeo!\n'Tis but thy name that's my enemy--no 2."
    found = ["o", "romeo", "romeo", "tis", "but", "thy", "name", "that's", "my", "enemy", "no"]
    assert mcmahan2017_words.words(text) == found


def test_the_vocabulary_is_the_most_frequent_words_and_ties_go_by_alphabet():
    texts = [["b", "a", "c", "c"], ["c", "d", "a", "b"]]
    assert mcmahan2017_words.vocabulary(texts, 4) == {"c": 1, "a": 2, "b": 3}
    assert mcmahan2017_words.vocabulary(texts, 99) == {"c": 1, "a": 2, "b": 3, "d": 4}


def test_rows_are_ten_words_of_a_role_and_test_rows_have_a_known_next_word():
    """The vocabulary is x, y and z. One role is too short for a row; of three test rows, one is followed by w."""
    test = ["x"] * 31
    test[1], test[10], test[20], test[30] = "w", "y", "w", "z"
    texts = [("x y z " * 10, " ".join(test)), ("x y z", ""), ("x y z " * 10 + "x y", "")]
    dataset = mcmahan2017_words.of_texts(texts, 4, 9)
    assert isinstance(dataset.rows, tuple) and dataset.roles is not None and dataset.test is not None
    (X, y), (held, following) = dataset.rows, dataset.test
    assert X.shape == (2 + 3, 10) and sorted(np.bincount(dataset.roles)) == [2, 3]
    longest = dataset.roles == np.bincount(dataset.roles).argmax()
    assert X[longest].ravel().tolist() == [1, 2, 3] * 10 and y[longest].tolist() == [2, 3, 1]
    assert following.tolist() == [2, 3]
    assert held.tolist() == [[1, 0] + [1] * 8, [0] + [1] * 9]
    assert dataset.unknown == pytest.approx(1 / 3)


def test_rounds_are_shown_beside_those_on_the_pooled_rows_and_absent_runs_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)

    def absent() -> runs.Run:
        raise runs.NotRun("it was not made")

    history = [{"round": t, "train_loss": 2.0, "loss": 1.5, "accuracy": 0.25 * t, "seconds": 3.2} for t in (1, 2)]
    there = functools.partial(runs.Run, {}, history, "here", "today")
    found = [*beside.lines("name", "title", {"FedAvg": beside.Way(there, 0.5), "pooled": beside.Way(absent, 1)}, True)]
    assert "| FedAvg | 2 | 1 | 2.000 | 1.500 | 0.5000 | 3 |" in found
    assert "| pooled | not run yet | - | - | - | - | - |" in found
    assert (
        found[-1] == "![test accuracy by passes over the training rows](name.png)" and (tmp_path / "name.png").exists()
    )
    assert not any("png" in line for line in beside.lines("name", "title", {"pooled": beside.Way(absent, 1)}, True))
