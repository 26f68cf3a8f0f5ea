"""The rows of a node: read from a table, a ``.npz`` file or a folder of images, checked, and split for evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.randomness import generator
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import preprocessing
from v6_federated.data.columns import Features, read_features
from v6_federated.messages.job import DataSpec
from v6_federated.privacy.policy import Policy

LARGEST = 1e12  # label of a regression: sums of squares of many rows stay far from the end of float32
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp"}


@dataclass(frozen=True)
class Rows:
    """Features X (n, d), float32 once prepared, and labels y (n,): class indices int64 once the classes are agreed,
    float64 of a regression."""

    X: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass
class Source:
    """The database of one node: a table, or arrays X (n, d) or (n, height, width) and y (n,)."""

    table: pd.DataFrame | None = None
    X: np.ndarray | None = None
    y: np.ndarray | None = None
    _read: dict[Any, Any] = field(default_factory=dict, repr=False)
    _prepared: tuple[Any, tuple[Rows, Rows]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.table is not None:
            names = [str(c) for c in self.table.columns]
            if len(set(names)) < len(names):
                twice = sorted({c for c in names if names.count(c) > 1})
                raise DataError(f"two columns of the table are called {', '.join(twice)}; expected names of their own")
            self.table = self.table.set_axis(names, axis=1)

    def columns(self, spec: DataSpec) -> tuple[list[str], str]:
        """The feature columns and the label column ("" for none). Raises DataError for a column that is not there."""
        if self.table is None:
            if spec.label is not None or spec.features is not None:
                raise DataError("the database holds arrays without column names; leave label and features unset")
            return [], "y"
        present = list(self.table.columns)
        none = not spec.supervised and spec.label is None and spec.features is not None
        label = "" if none else present[-1] if spec.label is None else spec.label
        features = [c for c in present if c != label] if spec.features is None else list(spec.features)
        there = set(present)
        missing = [c for c in [*features, *([] if none else [label])] if c not in there]
        if missing:
            raise DataError(f"no column {', '.join(missing)} in the table; expected columns that are there")
        if label in features:
            raise DataError(f"the label {label} is among the features; expected it apart from them")
        if not features:
            raise DataError("no feature column; expected at least one beside the label")
        return features, label

    def twins(self, columns: Sequence[str]) -> list[str]:
        """The names that columns had in a file where another was called the same: pandas has made NAME.1 of it."""
        assert self.table is not None
        before = {c: c.rpartition(".") for c in columns}
        return [name for name, dot, n in before.values() if dot and n.isdecimal() and name in self.table.columns]

    def features(self, spec: DataSpec) -> Features:
        """The features of all rows, before any step; words and missing values may be among them. Raises DataError."""
        names = None if spec.features is None else tuple(spec.features)
        categories = None if spec.categories is None else tuple(spec.categories)
        key = ("features", spec.label, names, categories, spec.supervised)
        if key not in self._read:
            if self.table is None:
                assert self.X is not None
                X = as_features(self.X)
                self._read[key] = Features([str(i) for i in range(X.shape[1])], X, {})
            else:
                self._read[key] = read_features(self.table, self.columns(spec)[0], spec.categories)
        return self._read[key]

    def labels(self, spec: DataSpec) -> np.ndarray:
        """The labels of all rows as they are, zeros where there are none. Raises DataError."""
        key = ("labels", spec.label, spec.supervised, spec.regression)
        if key not in self._read:
            self._read[key] = self._labels(spec)
        return self._read[key]

    def rows(self, spec: DataSpec) -> Rows:
        """All rows, X as numbers and y as it is. Raises DataError that names columns, never rows or values."""
        features = self.features(spec)
        features.check_complete()
        return Rows(features.X, self.labels(spec))

    def split(self, spec: DataSpec, organization: int, step: int) -> tuple[np.ndarray | slice, np.ndarray | slice]:
        """Which rows to train on and which are held out."""
        if not spec.holdout:
            return slice(None), slice(0)
        return split(len(self.labels(spec)), spec.holdout, organization, step)

    def training(self, spec: DataSpec, organization: int, policy: Policy) -> Features:
        """The features of the rows to train on, before any step, words that few of them have folded. Refused where
        only a few have a value, and where words are too many to be categories."""
        kept, _ = self.split(spec, organization, policy.minimum_rows)
        features = self._categories(spec, policy).take(kept)
        if self.table is None:
            return features
        policy.check_values(features.scarce(policy.minimum_rows))
        return features.folded(policy.minimum_rows_a_class, preprocessing.filled(spec.preprocess))

    def prepared(self, spec: DataSpec, organization: int, policy: Policy, trains: bool = True) -> tuple[Rows, Rows]:
        """The rows to train on and those held out, labels as class indices, preprocessed; kept for the next call.

        Where the node does not train (``trains``), all are as whoever predicts has them.
        """
        key = (spec, organization, policy, trains)
        if self._prepared is None or self._prepared[0] != key:
            y = self.labels(spec)
            if spec.classes is not None:
                y = encode_labels(y, spec.classes)
            kept, held = self.split(spec, organization, policy.minimum_rows)
            if spec.preprocess:
                self.features(spec).check_finite()  # whatever step would bound them
            if trains:
                X = ready(self.training(spec, organization, policy), spec.preprocess)
            else:
                X = ready(self._evaluated(spec, kept, policy), spec.preprocess)
            held_out = Rows(ready(self._evaluated(spec, held, policy), spec.preprocess), y[held])
            self._prepared = key, (Rows(X, y[kept]), held_out)
        return self._prepared[1]

    def _evaluated(self, spec: DataSpec, rows: np.ndarray | slice, policy: Policy) -> Features:
        """The features of rows that a model is only evaluated on, before any step. What too few of them have counts as
        missing: a loss would tell it."""
        features = self._categories(spec, policy).take(rows)
        return features if self.table is None else features.without(features.scarce(policy.minimum_rows))

    def _categories(self, spec: DataSpec, policy: Policy) -> Features:
        """The features of all rows, if no column has too many words to be a category, whatever levels a task names."""
        features = self.features(spec)
        for name, said in features.words.items():
            policy.check_classes(pd.Series(said).nunique(), f"the column {name}")
        return features

    def _labels(self, spec: DataSpec) -> np.ndarray:
        _, label = self.columns(spec)
        if not spec.supervised:
            rows = self.X if self.table is None else self.table
            assert rows is not None
            return np.zeros(len(rows))
        y = np.asarray(self.y) if self.table is None else self.table[label].to_numpy()
        if self.table is not None and self.table[label].isna().any():
            raise DataError(
                f"missing values in the label column {label} (in text None, NA and null count as such); expected none"
            )
        return checked_numbers(y) if spec.regression else checked_labels(y)


def as_features(X: np.ndarray) -> np.ndarray:
    """Arrays as features (n, d): 8-bit pixels to [0, 1], else as they are; float32, float64 where that holds less."""
    flat = X.reshape(len(X), -1)
    if flat.dtype == np.uint8:
        return flat.astype(np.float32) / np.float32(255)
    if flat.dtype.kind not in "fiub":
        raise DataError("the array x holds values that are not numbers; expected numbers")
    if not flat.shape[1]:
        raise DataError("the array x has no features; expected at least one")
    with np.errstate(over="ignore"):
        numbers = np.asarray(flat, dtype=np.float32 if np.can_cast(flat.dtype, np.float32) else np.float64)
    if not np.isfinite(numbers).all():
        raise DataError("missing or infinite values in the array x; expected none")
    return numbers


def open_source(database: pd.DataFrame | Path | Source) -> Source:
    """The node's database, whatever it is: a table, the path of a ``.npz`` file, or of a folder of images."""
    if isinstance(database, Source):
        return database
    if isinstance(database, pd.DataFrame):
        return Source(table=database)
    if database.is_dir():
        archives = sorted(database.glob("*.npz"))
        return read_npz(archives[0]) if len(archives) == 1 else read_images(database)
    if database.suffix == ".npz":
        return read_npz(database)
    raise DataError(f"a database {database.suffix or 'without ending'}; expected a table, .npz or a folder of images")


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a ``.npz`` file. Raises DataError if it is none; never unpickles."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise DataError(f"{path.name} is a .npy, one array without a name; expected .npz, as numpy.savez writes it")
        with found as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, KeyError) as error:
        raise DataError(f"{path.name} cannot be read as .npz ({type(error).__name__})") from None
    except Exception as error:  # zipfile and zlib have errors of their own
        if type(error).__module__ in ("zipfile", "zlib"):
            raise DataError(f"{path.name} cannot be read as .npz (broken archive)") from None
        raise


def check_pair(X: np.ndarray, y: np.ndarray, told: str) -> None:
    """Refuse features and labels that are not of the same rows, with a DataError about ``told``."""
    if X.ndim < 2 or y.ndim != 1 or len(X) != len(y):  # in this order: an array of no dimension has no length
        raise DataError(f"{told} do not fit; expected (n, ...) features and (n,) labels")


def read_npz(path: Path) -> Source:
    """A node's rows from ``x`` and ``y``, or ``x_train`` and ``y_train``."""
    arrays = load_npz(path)
    for x, y in (("x", "y"), ("x_train", "y_train")):
        if x in arrays and y in arrays:
            check_pair(arrays[x], arrays[y], f"{path.name}: {x} and {y}")
            return Source(X=arrays[x], y=arrays[y])
    raise DataError(f"{path.name} holds {', '.join(arrays) or 'nothing'}; expected x and y, or x_train and y_train")


def read_images(folder: Path) -> Source:
    """A node's rows from ``folder/CLASS/*.png`` (or jpg, bmp): grey, of one size; the folder's name is the label.
    Pixels of 8 bits stay as they are, those of 16 bits are divided by 65535."""
    try:
        from PIL import Image  # only images need Pillow
    except ImportError:
        raise DataError("folders of images cannot be read here, where Pillow is not installed; expected .npz") from None

    images, labels = [], []
    for file in sorted(f for f in folder.glob("*/*") if f.suffix.lower() in IMAGE_SUFFIXES):
        try:
            with Image.open(file) as image:
                images.append(_grey(image))
        except OSError:  # its text has the file's name
            raise DataError("an image that cannot be read; expected whole files") from None
        labels.append(file.parent.name)
    if not images:
        raise DataError("no images in the folder; expected CLASS/NAME.png, a folder for each class")
    if len({image.shape for image in images}) > 1:
        raise DataError("images of different sizes; expected one size")
    if len({image.dtype for image in images}) > 1:
        raise DataError("images of 8 bits and of 16; expected one kind")
    return Source(X=np.stack(images), y=np.asarray(labels))


def _grey(image: Any) -> np.ndarray:
    """Its pixels (height, width). Pillow's own conversion would make all of 16 bits white."""
    if image.mode == "F":
        raise DataError("images with pixels that are no whole numbers; expected 8 or 16 bits")
    if not image.mode.startswith("I"):
        return np.asarray(image.convert("L"))
    pixels = np.asarray(image)
    if pixels.min() < 0 or pixels.max() > 65535:
        raise DataError("images of more than 16 bits; expected 8 or 16 bits")
    return (pixels / 65535).astype(np.float32)


def checked_labels(y: np.ndarray) -> np.ndarray:
    """Labels, if they are words, whole or other finite numbers, all of one kind. Raises DataError."""
    if y.dtype.kind == "O":
        kinds = {isinstance(value, str) for value in y}
        if kinds == {True}:
            return y.astype(str)
        if len(kinds) > 1 or not all(isinstance(value, bool | int | float) for value in y):
            raise DataError("labels that are neither all words nor all numbers; expected one kind")
        y = np.asarray(y, dtype=np.float64)
    if y.dtype.kind not in "biufU":
        raise DataError("labels that are neither words nor numbers; expected one of them")
    if y.dtype.kind == "f" and not (np.isfinite(y).all() and (np.abs(y) < 2**53).all()):
        raise DataError("labels that are missing, infinite or too large; expected classes")
    return y


def checked_numbers(y: np.ndarray) -> np.ndarray:
    """Labels of a regression, float64. Raises DataError if they are not finite numbers up to ``LARGEST``."""
    kinds = (int, float, np.integer, np.floating)
    plain_numbers = y.dtype.kind == "O" and all(isinstance(v, kinds) and not isinstance(v, bool) for v in y)
    if y.dtype.kind not in "iuf" and not plain_numbers:
        raise DataError("labels that are not numbers; expected numbers, as objective=regression predicts them")
    try:
        numbers = y.astype(np.float64)
    except OverflowError:  # a whole number of hundreds of digits
        numbers = np.full(len(y), np.inf)
    if not (np.abs(numbers) <= LARGEST).all():
        raise DataError(
            f"labels that are missing, infinite or beyond {LARGEST:g}; expected numbers, large ones in another unit"
        )
    return numbers


def encode_labels(y: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
    """Labels as indices into ``classes``, int64 (n,). Raises DataError without naming the value."""
    index = {plain(value): i for i, value in enumerate(classes)}
    values, inverse = np.unique(y, return_inverse=True)
    codes = [index.get(plain(value), -1) for value in values]
    if -1 in codes:
        raise DataError(
            f"labels that are not among the {len(classes)} classes of the job: those that the request's `classes` "
            "names, or else that some node has in 3 rows or more; name all there are, for example "
            "classes=no,yes,unknown, or leave the column out if it is a number to predict and no class"
        )
    return np.asarray(codes, dtype=np.int64)[inverse]


def plain(value: Any) -> Any:
    """A label as JSON has it; a whole number is the same label whether stored as 1 or 1.0."""
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def split(n: int, holdout: float, organization: int, step: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Which of n rows to train on and which are held out, ascending.

    The rows held out are a multiple of ``step``, the node's minimum of rows, and their order is the same in all jobs:
    else two jobs whose splits differ by one row would tell that row. None are held out of fewer than two steps.
    """
    held = max(step, step * round(holdout * n / step)) if holdout and n >= 2 * step else 0
    order = generator(0, "holdout", organization).permutation(n)
    return np.sort(order[held:]), np.sort(order[:held])


def scarce(table: pd.DataFrame, least: int) -> list[Any]:
    """The columns in which some rows, but fewer than ``least``, have a value."""
    given = table.notna().sum()
    return [name for name, n in given.items() if 0 < n < min(least, len(table))]


def ready(features: Features, steps: Sequence[dict[str, Any]]) -> np.ndarray:
    """The features as a model takes them: after the fitted steps, see ``preprocess.apply``; complete, (n, d) float32,
    read-only."""
    features = preprocessing.apply(features, steps)
    features.check_complete()
    X = np.ascontiguousarray(features.X, dtype=np.float32)
    X.setflags(write=False)
    return X
