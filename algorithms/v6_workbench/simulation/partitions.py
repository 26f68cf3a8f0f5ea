"""Ways to deal the rows of one table to K nodes, for experiments on mock nodes and on a local network.

Each function takes the labels y (n,), the number of nodes K and a random generator, and returns a list of K arrays of
row indices; every row goes to exactly one node. A partition of your own is such a function, or its result.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator

Parts = list[np.ndarray]
Given = Sequence[Any] | Mapping[Any, Any]  # indices of the rows of each node, or masks; a mapping names the nodes
Partition = str | Callable[[np.ndarray, int, np.random.Generator], Given] | Given
TRIES = 1000
MOST = 1e6  # largest number that a partition takes
MOST_EXPONENT = 10


def iid(y: np.ndarray, nodes: int, rng: np.random.Generator) -> Parts:
    """Shuffle the rows and cut them into equal parts.

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.

    Returns:
        K arrays of row indices.
    """
    return np.array_split(rng.permutation(len(y)), nodes)


def shards(y: np.ndarray, nodes: int, rng: np.random.Generator, each: float = 2) -> Parts:
    """Sort the rows by label, cut them into ``each`` shards for each node, and deal these at random.

    McMahan et al. 2017, section 3.

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.
        each: shards of a node.

    Returns:
        K arrays of row indices.

    Raises:
        SafeError: there are more shards than rows.
    """
    if nodes * each > len(y):
        raise SafeError(
            f"{len(y)} rows are too few for {nodes} nodes with {each:g} shards each; expected fewer nodes or shards"
        )
    pieces = np.array_split(_sorted(y, rng), nodes * int(each))
    order = rng.permutation(len(pieces)).reshape(nodes, int(each))
    return [np.concatenate([pieces[i] for i in own]) for own in order]


def size(y: np.ndarray, nodes: int, rng: np.random.Generator, exponent: float = 1.0) -> Parts:
    """Sample imbalance (Garst's SI): equal labels, sizes that grow from node to node as k^exponent, k = 1, 2, ..., K.

    Garst shows the sizes only in figures (C.1, C.2); growth by equal steps is the simplest reading of them. In the
    author's scripts the exponent is 0.66.

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.
        exponent: from 0 (equal sizes) to 10.

    Returns:
        K arrays of row indices.

    Raises:
        SafeError: the exponent is out of range.
    """
    ends = _power_law("size", nodes, exponent)
    return np.split(rng.permutation(len(y)), np.round(ends * len(y)).astype(int))


def class_(y: np.ndarray, nodes: int, rng: np.random.Generator, strength: float = 0.9) -> Parts:
    """Class imbalance (Garst's CI): nodes of similar size; each class's share rises and falls over the nodes.

    Node k has class c with weight 1 + strength cos(2 pi (k/K - c/C)): all nodes have all classes, between 1 - strength
    and 1 + strength times the average. Garst shows the shares only in figures (C.1, C.2).

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.
        strength: from 0 (none) to 1.

    Returns:
        K arrays of row indices.

    Raises:
        SafeError: the strength is not from 0 to 1.
    """
    if not 0 <= strength <= 1:
        raise SafeError(f"class:{strength:g} is out of range; expected a strength from 0 to 1, for example class:0.9")
    classes = np.unique(y)
    phase = np.arange(nodes) / nodes
    shares = [1 + strength * np.cos(2 * np.pi * (phase - c / len(classes))) for c in range(len(classes))]
    return _by_shares(y, classes, shares, rng)


def powerlaw(y: np.ndarray, nodes: int, rng: np.random.Generator, exponent: float = 0.66) -> Parts:
    """Class imbalance as in the scripts of Garst's thesis: equal sizes; one half of the classes grows as k^exponent.

    Node k = 1, 2, ..., K gets a share of the rows of the lower half of the classes that is proportional to k^exponent,
    and as many rows of the other classes as make it as large as all others. With two classes this is the author's.

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.
        exponent: from 0 (equal shares) to 10.

    Returns:
        K arrays of row indices.

    Raises:
        SafeError: the exponent is out of range, or a node's share of the lower classes is larger than the node.
    """
    values = np.unique(y)
    lower = np.isin(y, values[: max(1, len(values) // 2)])
    growing, others = (rng.permutation(np.flatnonzero(half)) for half in (lower, ~lower))
    ends = np.floor(_power_law("powerlaw", nodes, exponent) * len(growing)).astype(int)
    rest = len(y) // nodes * np.arange(1, nodes) - ends
    if (np.diff([0, *rest, len(others)]) < 0).any():
        raise SafeError(
            f"powerlaw:{exponent:g} gives a node more rows of the lower half of the classes than a node of equal size "
            "has; expected a smaller exponent, for example powerlaw:0.5"
        )
    return [np.concatenate(p) for p in zip(np.split(growing, ends), np.split(others, rest), strict=True)]


def classes(y: np.ndarray, nodes: int, rng: np.random.Generator, each: float = 2) -> Parts:
    """Give each node only ``each`` neighbouring classes, starting one further for each node (1: one label a node).

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.
        each: classes of a node.

    Returns:
        K arrays of row indices.

    Raises:
        SafeError: the label has fewer classes, or a class would get no node.
    """
    values = np.unique(y)
    C, each = len(values), int(each)
    starts = [k % C if nodes >= C else k * C // nodes for k in range(nodes)]
    shares = [np.array([(c - start) % C < each for start in starts], dtype=float) for c in range(C)]
    if not 1 <= each <= C:
        raise SafeError(f"classes:{each} is too many: the label has {C} classes; expected classes:1 to classes:{C}")
    if not all(share.any() for share in shares):
        raise SafeError(
            f"classes:{each} on {nodes} nodes leaves some of the {C} classes without a node; use more nodes"
        )
    return _by_shares(y, values, shares, rng)


def dirichlet(y: np.ndarray, nodes: int, rng: np.random.Generator, alpha: float = 0.5) -> Parts:
    """Deal each class in shares drawn from Dirichlet(alpha); draw again until every node has 10 rows or more.

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.
        alpha: the smaller, the more the shares differ.

    Returns:
        K arrays of row indices.

    Raises:
        SafeError: alpha is not above 0, or no draw gives every node enough rows.
    """
    if alpha <= 0:
        raise SafeError(f"dirichlet:{alpha:g} is out of range; expected a number above 0, for example dirichlet:0.5")
    values = np.unique(y)
    least = min(10, len(y) // nodes)
    for _ in range(TRIES):
        parts = _by_shares(y, values, [rng.dirichlet(np.full(nodes, alpha)) for _ in values], rng)
        if min(map(len, parts)) >= least:
            return parts
    raise SafeError(
        f"{TRIES} draws of dirichlet:{alpha:g} left a node with fewer than {least} rows; use fewer nodes, or a larger "
        "alpha"
    )


def unbalanced(y: np.ndarray, nodes: int, rng: np.random.Generator) -> Parts:
    """Shuffle the rows and cut them at random points (Reddy section 3.1).

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.

    Returns:
        K arrays of row indices.

    Raises:
        SafeError: no draw gives every node 10 rows of two classes.
    """
    return _until_good(lambda: random_cuts(rng.permutation(len(y)), nodes, rng), y)


def sorted_balanced(y: np.ndarray, nodes: int, rng: np.random.Generator) -> Parts:
    """Sort the rows by label and deal equal parts with at least two classes each (Reddy section 3.1, non-IID).

    With more nodes than classes, one contiguous part cannot hold two classes, so each node gets a piece of the lower
    and a piece of the upper half.

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.

    Returns:
        K arrays of row indices.

    Raises:
        SafeError: no draw gives every node 10 rows of two classes.
    """
    return _until_good(lambda: _halves(np.array_split(_sorted(y, rng), 2 * nodes), rng), y)


def sorted_unbalanced(y: np.ndarray, nodes: int, rng: np.random.Generator) -> Parts:
    """Deal like ``sorted-balanced``, with cuts at random points (Reddy section 3.1, non-IID and unbalanced).

    Args:
        y: labels (n,).
        nodes: number of nodes, K.
        rng: deals.

    Returns:
        K arrays of row indices.

    Raises:
        SafeError: no draw gives every node 10 rows of two classes.
    """
    return _until_good(lambda: _halves(random_cuts(_sorted(y, rng), 2 * nodes, rng), rng), y)


PARTITIONS: dict[str, Callable[..., Parts]] = {
    "iid": iid,
    "balanced": iid,
    "unbalanced": unbalanced,
    "sorted-balanced": sorted_balanced,
    "sorted-unbalanced": sorted_unbalanced,
    "shards": shards,
    "size": size,
    "class": class_,
    "powerlaw": powerlaw,
    "classes": classes,
    "dirichlet": dirichlet,
}
WITH_NUMBER = {"shards": int, "size": float, "class": float, "powerlaw": float, "classes": int, "dirichlet": float}
EXAMPLES = {"shards": "2", "size": "0.66", "class": "0.9", "powerlaw": "0.66", "classes": "2", "dirichlet": "0.5"}


def column_of(partition: Partition) -> str:
    """Return the column that a partition ``column:NAME`` deals by, or an empty text."""
    kind, _, column = partition.partition(":") if isinstance(partition, str) else ("", "", "")
    return column if kind == "column" else ""


def described(partition: Partition) -> str:
    """Return what a result says about a partition: its name."""
    if callable(partition):
        return f"function {getattr(partition, '__name__', type(partition).__name__)}"
    return partition if isinstance(partition, str) else "rows of each node"


def own(partition: Partition, y: np.ndarray, nodes: int | None, seed: int) -> dict[str, np.ndarray]:
    """Deal rows to nodes as a developer's own partition does.

    Args:
        partition: a function of the labels, the number of nodes and a random generator, like those of this module; or
            what it returns: indices of rows, or masks (n,), for each node.
        y: labels (n,).
        nodes: number of nodes; None is 5 for a function, and otherwise what the partition has.
        seed: seed of the random generator.

    Returns:
        Row indices of each node, ascending, by the nodes' names: those of a mapping, or 1, 2, ...

    Raises:
        SafeError: these are no rows, a row goes to no node or to several, or a node gets none.
    """
    made = partition(np.asarray(y), nodes or 5, generator(seed, "partition")) if callable(partition) else partition
    named = made if isinstance(made, Mapping) else {k: part for k, part in enumerate(made, start=1)}
    parts = {str(name): _indices(part, str(name), len(y)) for name, part in named.items()}
    if not parts or (nodes is not None and nodes != len(parts)):
        raise SafeError(f"the partition has {len(parts)} node(s); expected {nodes or 'at least one'}")
    if empty := [name for name, part in parts.items() if not len(part)]:
        raise SafeError(f"the partition leaves the node(s) {', '.join(empty)} without rows; leave them out")
    times = np.bincount(np.concatenate([*parts.values()]), minlength=len(y))
    if (times != 1).any():
        raise SafeError(
            f"the partition deals {(times > 1).sum()} of {len(y)} rows more than once, and {(times == 0).sum()} to no "
            "node; expected each row once"
        )
    return parts


def _indices(part: Any, name: str, n: int) -> np.ndarray:
    array = None if isinstance(part, pd.DataFrame) else np.asarray(part, dtype=None if len(part) else np.int64)
    if array is None or array.ndim != 1 or array.dtype.kind not in "biu":
        found = "a DataFrame" if array is None else f"an array of type {array.dtype} and shape {array.shape}"
        raise SafeError(
            f"the partition gives the node {name} {found}; expected indices of rows, or, for the tables of hospitals, "
            "load({name: table, ...})"
        )
    if array.dtype.kind == "b":
        if len(array) != n:
            raise SafeError(f"the mask of the node {name} has {len(array)} values; expected one for each of {n} rows")
        return np.flatnonzero(array)
    if len(array) and not 0 <= array.min() <= array.max() < n:
        raise SafeError(f"the partition gives the node {name} rows that do not exist; expected indices 0 to {n - 1}")
    return np.sort(array.astype(np.int64))


def check(name: str) -> None:
    """Check the name of a partition.

    Args:
        name: NAME, NAME:NUMBER or column:COLUMN.

    Raises:
        SafeError: there is no such partition, or its number is out of range.
    """
    kind, _, argument = name.partition(":")
    if kind == "column":
        if not argument:
            raise SafeError(f"the partition {name!r} lacks a name; expected column:NAME, for example column:hospital")
        return
    if kind not in PARTITIONS:
        raise SafeError(
            f"unknown partition {name!r}; expected one of {', '.join(PARTITIONS)}, or column:{argument or name} if it "
            "is a column"
        )
    if argument:
        try:
            number = WITH_NUMBER[kind](argument) if kind in WITH_NUMBER else 0
        except ValueError:
            number = 0
        if not 0 < number <= MOST:
            accepted = f"{kind}:NUMBER, for example {kind}:{EXAMPLES[kind]}" if kind in WITH_NUMBER else kind
            raise SafeError(f"the partition {name!r} is not understood; expected {accepted}")


def partition(name: str, y: np.ndarray, nodes: int, seed: int) -> Parts:
    """Deal rows to nodes.

    Args:
        name: the partition: NAME or NAME:NUMBER.
        y: labels (n,).
        nodes: number of nodes, K.
        seed: seed of the partition.

    Returns:
        K arrays of row indices, ascending.

    Raises:
        SafeError: the rows cannot be dealt in this way.
    """
    check(name)
    if not 1 <= nodes <= len(y):
        raise SafeError(f"{nodes} nodes cannot share {len(y)} rows; expected 1 to {len(y)} nodes")
    kind, _, argument = name.partition(":")
    rng = generator(seed, "partition")
    parts = PARTITIONS[kind](np.asarray(y), nodes, rng, *([WITH_NUMBER[kind](argument)] if argument else []))
    if min(map(len, parts)) == 0:
        raise SafeError(f"the partition {name} leaves a node without rows; use fewer than {nodes} nodes")
    return [np.sort(part) for part in parts]


def by_column(values: Sequence[object] | np.ndarray) -> dict[str, np.ndarray]:
    """Make a node of each value of a column.

    Args:
        values: the column (n,).

    Returns:
        Row indices by the value's text.
    """
    names = np.asarray([str(v) for v in values])
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names)}


def _sorted(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows by label, in random order within a label."""
    order = rng.permutation(len(y))
    return order[np.argsort(y[order], kind="stable")]


def _power_law(name: str, nodes: int, exponent: float) -> np.ndarray:
    """Where the shares of nodes end that grow as k^exponent, without the last end, 1: (K - 1,)."""
    if not 0 <= exponent <= MOST_EXPONENT:
        raise SafeError(
            f"{name}:{exponent:g} is out of range; expected an exponent from 0 to {MOST_EXPONENT}, for example "
            f"{name}:{EXAMPLES[name]}"
        )
    shares = np.arange(1, nodes + 1) ** exponent
    ends: np.ndarray = np.cumsum(shares)[:-1] / shares.sum()
    return ends


def _by_shares(y: np.ndarray, values: np.ndarray, shares: list[np.ndarray], rng: np.random.Generator) -> Parts:
    """Deal each class in the given shares (nodes,)."""
    dealt: list[list[np.ndarray]] = [[] for _ in shares[0]]
    for value, share in zip(values, shares, strict=True):
        rows = rng.permutation(np.flatnonzero(y == value))
        ends = np.round(np.cumsum(share)[:-1] / share.sum() * len(rows)).astype(int)
        for own, part in zip(dealt, np.split(rows, ends), strict=True):
            own.append(part)
    return [np.concatenate(own) for own in dealt]


def random_cuts(rows: np.ndarray, pieces: int, rng: np.random.Generator) -> Parts:
    """Cut rows, in the order given, into pieces at random places; none is empty.

    Args:
        rows: row indices (n,).
        pieces: number of pieces.
        rng: chooses the places.

    Returns:
        The pieces.

    Raises:
        SafeError: there are more pieces than rows.
    """
    if pieces > len(rows):
        raise SafeError(f"{len(rows)} rows cannot be cut into {pieces} pieces; use fewer nodes")
    return np.split(rows, np.sort(rng.choice(np.arange(1, len(rows)), pieces - 1, replace=False)))


def _halves(pieces: Parts, rng: np.random.Generator) -> Parts:
    """Pair each piece of the first half with a random one of the second."""
    half = len(pieces) // 2
    return [np.concatenate([pieces[i], pieces[half + j]]) for i, j in enumerate(rng.permutation(half))]


def _until_good(draw: Callable[[], Parts], y: np.ndarray) -> Parts:
    """Draw until every node has two classes and 10 rows or more."""
    for _ in range(TRIES):
        parts = draw()
        if all(len(part) >= 10 and len(np.unique(y[part])) >= 2 for part in parts):
            return parts
    raise SafeError(f"{TRIES} random cuts left a node without 10 rows of two classes; use fewer nodes")
