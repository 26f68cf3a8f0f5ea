"""The hospitals that methods are checked on: small tables that are the same every time."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from v6_federated.rules.schema import Column, Schema

MISSING = 0.15  # share of missing values in two columns of the clinics

Nodes = dict[int, pd.DataFrame]


def table(n: int = 40, d: int = 4, classes: int = 2, seed: int = 0, shift: float = 0.0) -> pd.DataFrame:
    """A table of numbers x0, x1, ... and a label; every class has its own centre.

    Args:
        n: rows; each class has about n / classes of them.
        d: columns of numbers.
        classes: values of the label, 0, 1, ...
        seed: of the rows; the centres are the same in all tables.
        shift: added to all numbers.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, d)) * 1.5
    X = rng.normal(size=(n, d)) + centres[y] + shift
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(d)]).assign(label=y)


def with_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """The same table with a number as its label, for a regression."""
    return rows.assign(label=100 + 10 * rows["x0"] - 5 * np.sin(rows["x2"]) + rows["label"])


def schema(d: int = 4, classes: int = 2) -> Schema:
    """What hospitals could declare about such a table."""
    columns = [Column(f"x{i}", "number", -6.0, 6.0) for i in range(d)]
    return Schema(tuple(columns), label="label", classes=tuple(range(classes)))


def three(rows: int = 30) -> Nodes:
    """Three hospitals of unequal sizes, whose rows differ."""
    return {
        3: table(rows, seed=3),
        5: table(rows + 14, seed=5, shift=0.5),
        8: table(rows - 4, seed=8, shift=-0.5),
    }


def four() -> Nodes:
    """Four hospitals of unequal sizes."""
    return {k: table(20 + 3 * k, seed=k) for k in (1, 2, 3, 4)}


def clinic(n: int, seed: int, levels: Sequence[str]) -> pd.DataFrame:
    """A clinical table: a category, missing values in it and in a number, and a constant column.

    Args:
        n: rows.
        seed: of the rows.
        levels: values of the category.
    """
    rng = np.random.default_rng(seed)
    rows = table(n, seed=seed, shift=0.2 * seed)
    rows.insert(0, "sex", rng.choice(list(levels), n).astype(object))
    rows.insert(2, "unit", 5.0)
    rows.loc[rng.random(n) < MISSING, "x1"] = np.nan
    rows.loc[rng.random(n) < MISSING, "sex"] = None
    return rows


def clinics() -> Nodes:
    """Three clinics; only the first knows the level x of the category, and has it in a few rows."""
    return {1: clinic(60, 1, ["f", "m", "x"]), 2: clinic(50, 2, ["f", "m"]), 3: clinic(70, 3, ["f", "f", "m"])}
