"""McMahan et al. 2017, Tables 2 and 4: rounds of the LSTM to 54% of Shakespeare's characters, by speaking role and IID.

Each role's first 80% of lines train, its last test. A role's lines are one text, cut into rows of 80 characters; what
is left at its end is not used, nor a role without a whole row. Accuracy is of the character after a test row, so of
one that has 80 before it; the paper's is of all, of which some have fewer. The paper's edition has 1,146 roles and
866,578 parameters, so more characters; its rate is 1.47 where it names one (Figure 3), which is ours.
"""

import functools
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import runs, tables
from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_workbench.simulation.datasets import Database, Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "mcmahan2017_shakespeare"
LENGTH = 80  # the paper's unroll
TEST_ROWS = 4000  # drawn of those of all roles
RATE = 1.47
TARGET = 0.54
# E, B: the paper's rounds IID and by role
PAPER: dict[tuple[int, int | None], tuple[int, int]] = {
    (5, 10): (192, 41),
    (1, 10): (460, 164),
    (5, 50): (401, 152),
    (1, 50): (1635, 549),
    (5, None): (613, 597),
    (1, None): (2488, 3906),
}
# rows, E, B: the rounds that a core takes half an hour to two hours for; the others take a night each
TRIED: dict[tuple[str, int, int | None], int] = {("roles", 5, 10): 21, ("roles", 1, 10): 160, ("iid", 5, 10): 12}


@dataclass(frozen=True, eq=False)
class Plays(Dataset):
    """Rows of characters, and the role of each."""

    roles: np.ndarray | None = None


@dataclass(frozen=True)
class ByRole(Experiment):
    """A node is a role."""

    @functools.cached_property
    def _dealt(self) -> tuple[dict[str, Database], Database | None]:
        assert isinstance(self.dataset, Plays) and self.dataset.roles is not None
        order = np.argsort(self.dataset.roles, kind="stable")
        starts = np.flatnonzero(np.diff(self.dataset.roles[order])) + 1
        rows = np.split(order, starts)
        return {str(k): self.dataset.take(own) for k, own in enumerate(rows, start=1)}, self.dataset.test


def load(file: Path) -> Plays:
    """Roles and their lines: ``{"PLAY|ROLE": [line, ...]}``. Raises SafeError."""
    try:
        with gzip.open(file, "rt") as stream:
            roles: Mapping[str, list[str]] = json.load(stream)
        texts = [split(lines) for lines in roles.values()]
        characters = sorted(set("".join(a + b for a, b in texts)))
        if not all(any(len(text) > LENGTH for text in part) for part in zip(*texts, strict=True)) or not texts:
            raise ValueError
    except (OSError, EOFError, zlib.error, ValueError, TypeError, AttributeError):
        raise SafeError(
            f"{file.name} is no gzipped JSON of roles and their lines; expected shakespeare.json.gz of "
            "python -m benchmarks download"
        ) from None
    code = np.zeros(max(map(ord, characters)) + 1, dtype=np.int64)
    code[[ord(c) for c in characters]] = np.arange(len(characters))
    train, test, role = [], [], []
    for k, (first, last) in enumerate(texts):
        own = windows(first, code)
        train.append(own)
        role.append(np.full(len(own), k))
        test.append(windows(last, code))
    rows, held = np.concatenate(train), np.concatenate(test)
    held = held[np.sort(generator(0, "test rows").permutation(len(held))[:TEST_ROWS])]
    return Plays(
        f"shakespeare-{TEST_ROWS}", (rows[:, :-1], rows[:, -1]), (held[:, :-1], held[:, -1]), roles=np.concatenate(role)
    )


def split(lines: list[str]) -> tuple[str, str]:
    """The text to train on, and the one to test on: the last fifth, at least a line."""
    cut = min(int(0.8 * len(lines)), len(lines) - 1)
    return "\n".join(lines[:cut]), "\n".join(lines[cut:])


def windows(text: str, code: np.ndarray) -> np.ndarray:
    """(n, 81) codes: each row goes on with the character on which the one before has ended."""
    codes = code[[ord(c) for c in text]] if text else np.empty(0, dtype=np.int64)
    n = max(0, (len(codes) - 1) // LENGTH)
    starts = LENGTH * np.arange(n)[:, None]
    return codes[starts + np.arange(LENGTH + 1)]


def train(dataset: Plays, rows: str, E: int, B: int | None, rounds: int, full: bool) -> runs.Run:
    """One run, ended when the target is reached."""
    assert dataset.roles is not None
    nodes = len(np.unique(dataset.roles))
    open_ = dict.fromkeys(("V6_FEDERATED_MINIMUM_ROWS", "V6_FEDERATED_MINIMUM_ROWS_A_CLASS"), "1")  # roles of few lines
    environment = {**open_, "V6_FEDERATED_SCORE_BANDS": "0"}  # no AUC
    deal = ByRole if rows == "roles" else Experiment
    experiment = deal(dataset, nodes, rows if rows == "roles" else "iid", 1, 1, environment=environment)
    values: dict[str, Any] = {
        "model": "lstm_char" if full else "lstm_char:hidden=16",
        "classes": [*range(int(dataset.rows[0].max()) + 1)],
        "rounds": rounds if full else 3,
        "fraction": 0.1 if full else 0.02,
        "epochs": E,
        "batch_size": B,
        "lr": RATE,
        "target": TARGET,
    }
    return runs.kept(DOCUMENT, "fedavg", experiment, values, segment=5)


def lines(dataset: Plays, full: bool) -> Iterator[str]:
    assert dataset.roles is not None
    each = np.bincount(dataset.roles)
    yield (
        f"{len(each[each > 0]):,} roles with {len(dataset):,} rows of {LENGTH} characters, from 1 to {each.max():,}, "
        f"median {np.median(each[each > 0]):.0f}; {int(dataset.rows[0].max()) + 1} characters."
    )
    yield ""
    yield from tables.head("rows", "E", "B", "paper's rounds", "ours, by seed", "accuracy", "rounds")
    for (E, B), (iid, roles) in PAPER.items():
        for rows, paper in (("roles", roles), ("iid", iid)):
            if (rows, E, B) not in TRIED or (not full and (rows, E) != ("roles", 1)):
                if full:
                    yield tables.row(rows, E, B or "all", paper, "not tried", None, None)
                continue
            known = rows, E, B or "all", paper
            yield tables.trained(known, functools.partial(cells, dataset, rows, E, B, TRIED[rows, E, B], full), 3)


def cells(dataset: Plays, rows: str, E: int, B: int | None, rounds: int, full: bool) -> tuple[str, str, int]:
    """Rounds to the target, the best accuracy and the rounds of one run."""
    run = train(dataset, rows, E, B, rounds, full)
    reached = run.reached(TARGET)
    ours = f"not in {len(run.history)}" if reached is None else f"{reached:.0f}"
    return ours, f"{max(tables.accuracies(run)):.3f}", len(run.history)


def main(dataset: Plays, full: bool) -> None:
    """Print and keep the table."""
    about = (
        f"C = 0.1, rate {RATE}, seed 1: rounds until the character after {TARGET:.0%} of {TEST_ROWS:,} test rows is "
        "known."
        if full
        else "Two of a hundred roles a round, a small LSTM, three rounds."
    )
    most = len(TRIED) if full else 1
    title = "McMahan et al. 2017 on Shakespeare"
    tables.page(DOCUMENT, title, full, lines(dataset, full), about, most, file="shakespeare.json.gz")
