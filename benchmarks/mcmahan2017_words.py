"""McMahan et al. 2017, Figure 5: the word LSTM, on Shakespeare's words; its first rounds, beside centralized SGD.

The paper's posts of a social network are private. Here a node is a speaking role, as in ``mcmahan2017_shakespeare``:
the first 80% of a role's lines are training rows, the rest are test rows, and a role's lines are one text, cut into
rows of 10 words whose label is the next word; the rest at its end is not used. Words are letters and apostrophes, in
lower case. The vocabulary is the 9,999 most frequent words of all training lines, and code 0 for all others. To fit a
core and half an hour, the nodes are 200 of the roles, drawn at random.

Test rows whose next word is one of these others are left out, so that saying "another word" is never right.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import beside, runs, tables
from benchmarks.mcmahan2017_shakespeare import ByRole, Plays, plays, read, windows
from v6_federated.base.randomness import generator

DOCUMENT = "mcmahan2017_words"
LENGTH = 10  # the paper's unroll
VOCABULARY = 10_000  # the paper's, with code 0
OTHERS = 0
ROLES = 200  # the paper's clients of a round
TEST_ROWS = 2000  # drawn of those of these roles
FRACTION = 0.2
ROUNDS, PASSES = 15, 3  # both pass over the rows three times, FedAvg in the mean over roles
VALUES = {"lr": 3.0, "epochs": 1, "batch_size": 8}
# rate, the paper's accuracy and rounds
PAPER = {"FedSGD": (18.0, "10.5%", 820), "FedAvg, E = 1, B = 8": (9.0, "10.5%", 35)}
WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")


@dataclass(frozen=True, eq=False)
class Words(Plays):
    """Rows of words; ``unknown`` is the share of the test rows whose next word is not in the vocabulary."""

    unknown: float = 0.0


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return WORD.findall(text.lower())


def vocabulary(texts: Sequence[Sequence[str]], size: int) -> Mapping[str, int]:
    """Codes from 1 to ``size`` - 1 of the most frequent words, in this order; of equally frequent ones by alphabet."""
    counts = Counter(word for text in texts for word in text)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[: size - 1]
    return {word: code for code, word in enumerate(frequent, start=1)}


def load(file: Path) -> Words:
    """Words by role. Raises SafeError."""
    return of_texts(read(file, LENGTH), VOCABULARY, ROLES)


def of_texts(texts: Sequence[tuple[str, str]], size: int, roles: int) -> Words:
    """Rows of some roles to train on and to test on, with a vocabulary of ``size`` codes from the texts of all."""
    train, test = ([words(text) for text in part] for part in zip(*texts, strict=True))
    code = vocabulary(train, size)

    def rows(text: Sequence[str]) -> np.ndarray:
        return windows(np.array([code.get(word, OTHERS) for word in text], dtype=np.int64), LENGTH)

    long = [k for k, text in enumerate(train) if len(text) > LENGTH]
    chosen = generator(0, "roles").permutation(long)[:roles]
    held = np.concatenate([rows(test[k]) for k in chosen])
    known = held[held[:, -1] != OTHERS]
    name = f"shakespeare-words-{size}-{len(chosen)}"
    found = plays(name, [rows(train[k]) for k in chosen], known, TEST_ROWS)
    return Words(found.name, found.rows, found.test, roles=found.roles, unknown=1 - len(known) / len(held))


def lines(dataset: Words, full: bool) -> Iterator[str]:
    """The paper's numbers, and our first rounds."""
    assert dataset.roles is not None and isinstance(dataset.rows, tuple)
    each = np.bincount(dataset.roles)
    each = each[each > 0]
    yield (
        f"{len(each):,} roles with {len(dataset):,} rows of {LENGTH} words, from {each.min()} to {each.max():,}, "
        f"median {np.median(each):.0f}. Of the words in training rows, {np.mean(dataset.rows[0] == OTHERS):.1%} are "
        f"not in the vocabulary. Of the test rows, {dataset.unknown:.1%} have such a next word and are left out; if "
        f"they counted as wrong, the accuracies would be {1 - dataset.unknown:.3f} times as high."
    )
    yield ""
    yield "The paper's rounds on posts of a social network (section 3):"
    yield ""
    yield from tables.head("training", "rate", "accuracy", "rounds")
    yield from (tables.row(name, *numbers) for name, numbers in PAPER.items())
    # roles may have few lines, there are no AUCs, and all words may be named
    limits = {"MINIMUM_ROWS": "1", "MINIMUM_ROWS_A_CLASS": "1", "SCORE_BANDS": "0", "MAXIMUM_CLASSES": str(VOCABULARY)}
    environment = {f"V6_FEDERATED_{name}": value for name, value in limits.items()}
    experiment = ByRole(dataset, len(each), "roles", 1, 1, environment=environment, processes=1)
    model = "lstm_word" if full else "lstm_word:hidden=16"
    values: dict[str, Any] = {**VALUES, "model": model, "classes": [*range(VOCABULARY)]}
    fraction = FRACTION if full else 0.05
    federated = {**values, "fraction": fraction, "rounds": ROUNDS if full else 2}
    pooled = {**values, "rounds": PASSES if full else 1}
    kept = functools.partial(runs.kept, DOCUMENT, "fedavg", experiment, segment=1)
    ways = {
        "FedAvg": beside.Way(functools.partial(kept, federated), fraction),
        "centralized SGD": beside.Way(functools.partial(kept, pooled, centralized=True), 1),
    }
    yield from beside.lines(DOCUMENT, f"{model} on Shakespeare's words", ways, full)


def main(dataset: Words, full: bool) -> None:
    """Print and keep the tables and the picture."""
    about = (
        "The paper's LSTM on words (`lstm_word`, 4,950,800 parameters for 10,000 words; the paper's has 4,950,544), on "
        f"Shakespeare's words: a node is one of {ROLES} roles, {FRACTION:.0%} of them a round, E = 1, B = 8, a rate of "
        f"{VALUES['lr']:g}; beside SGD on all rows with the same minibatches and rate, in which a round is a pass over "
        f"the rows. Loss and accuracy are of the word after each test row, at most {TEST_ROWS:,}."
        if full
        else "One of twenty roles a round, a small LSTM, two rounds."
    )
    page = tables.Page(DOCUMENT, "McMahan et al. 2017 on Shakespeare's words", full, about, file="shakespeare.json.gz")
    tables.page(page, lines(dataset, full), 2)
