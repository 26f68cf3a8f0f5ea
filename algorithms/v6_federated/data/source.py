"""The rows of a node: read from a table, a ``.npz`` file or a folder of images, checked, and split for evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.randomness import generator
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import preprocessing
from v6_federated.data.columns import Features, read_features
from v6_federated.messages.job import DataSpec
from v6_federated.privacy.policy import Policy

LARGEST = 1e12  # label of a regression: sums of squares over many rows must fit float32
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp"}


@dataclass(frozen=True)
class Rows:
    """Rows of a node.

    Attributes:
        X: features (n, d), float32 once they are prepared.
        y: labels (n,): class indices, int64, once the classes are agreed; numbers, float64, for a regression.
    """

    X: Array
    y: Array

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.y)


@dataclass
class Source:
    """The database of one node: a table, or arrays.

    Attributes:
        table: the table; None if the data are arrays.
        X: features (n, d) or (n, height, width); None if the data are a table.
        y: labels (n,); None if the data are a table.

    Raises:
        DataError: two columns of the table have the same name.
    """

    table: pd.DataFrame | None = None
    X: Array | None = None
    y: Array | None = None
    _read: dict[Any, Any] = field(default_factory=dict, repr=False)
    _prepared: tuple[Any, tuple[Rows, Rows]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Name the columns by texts."""
        if self.table is not None:
            names = [str(c) for c in self.table.columns]
            if len(set(names)) < len(names):
                twice = sorted({c for c in names if names.count(c) > 1})
                raise DataError(f"two columns of the table have the name {', '.join(twice)}; rename one of them")
            self.table = self.table.set_axis(names, axis=1)

    def columns(self, spec: DataSpec) -> tuple[list[str], str]:
        """Find the columns that a job uses.

        Args:
            spec: which columns the job names.

        Returns:
            The feature columns, and the label's column; "" if there is no label.

        Raises:
            DataError: a column is missing, or the label is among the features.
        """
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
            # the table's names are not listed: the operator may not allow some
            raise DataError(f"no column {', '.join(missing)} in the table; name others with --features and --label")
        if label in features:
            raise DataError(f"the label {label} is among the features; remove it from features, or name another label")
        if not features:
            raise DataError("no feature column; expected at least one in addition to the label")
        return features, label

    def twins(self, columns: Sequence[str]) -> list[str]:
        """Find columns that had the same name as another in the file: pandas renames the second to NAME.1.

        Args:
            columns: columns of the table.

        Returns:
            The names in the file of those that were renamed.
        """
        assert self.table is not None
        before = {c: c.rpartition(".") for c in columns}
        return [name for name, dot, n in before.values() if dot and n.isdecimal() and name in self.table.columns]

    def features(self, spec: DataSpec) -> Features:
        """Return the features of all rows before any step; words and missing values may be among them.

        Args:
            spec: which columns the job uses.

        Returns:
            The features.

        Raises:
            DataError: the columns cannot be read.
        """
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
        features: Features = self._read[key]
        return features

    def labels(self, spec: DataSpec) -> Array:
        """Return the labels of all rows as they are in the data.

        Args:
            spec: which columns the job uses.

        Returns:
            The labels (n,); zeros if there is no label.

        Raises:
            DataError: they are missing or of different kinds.
        """
        key = ("labels", spec.label, spec.supervised, spec.regression)
        if key not in self._read:
            self._read[key] = self._labels(spec)
        labels: Array = self._read[key]
        return labels

    def rows(self, spec: DataSpec) -> Rows:
        """Return all rows, for data without steps.

        Args:
            spec: which columns the job uses.

        Returns:
            The rows: features as numbers, labels as they are in the data.

        Raises:
            DataError: values are missing or not numbers. It names columns, never rows or values.
        """
        features = self.features(spec)
        features.check_complete()
        return Rows(features.X, self.labels(spec))

    def split(self, spec: DataSpec, organization: int, step: int) -> tuple[Array | slice, Array | slice]:
        """Split the rows.

        Args:
            spec: the share of rows to hold out.
            organization: id of the organization, on which the order of its rows depends.
            step: the number of rows held out is a multiple of this.

        Returns:
            Which rows to train on, and which are held out.
        """
        if not spec.holdout:
            return slice(None), slice(0)
        return split(len(self.labels(spec)), spec.holdout, organization, step)

    def training(self, spec: DataSpec, organization: int, policy: Policy) -> Features:
        """Return the features of the rows to train on, before any step. Words that few rows have are folded into one.

        Args:
            spec: which columns the job uses.
            organization: id of the organization.
            policy: the operator's limits.

        Returns:
            The features.

        Raises:
            DataError: the columns cannot be read.
            PrivacyThresholdViolation: in a column, too few rows have a value, or words are too many to be categories.
        """
        kept, _ = self.split(spec, organization, policy.minimum_rows)
        features = self._categories(spec, policy).take(kept)
        if self.table is None:
            return features
        policy.check_values(features.scarce(policy.minimum_rows))
        return features.folded(policy.minimum_rows_a_class, preprocessing.filled(spec.preprocess))

    def prepared(self, spec: DataSpec, organization: int, policy: Policy, trains: bool = True) -> tuple[Rows, Rows]:
        """Return the preprocessed rows, with class indices as labels. They are kept for the next call.

        Args:
            spec: which columns the job uses, and the fitted steps.
            organization: id of the organization.
            policy: the operator's limits.
            trains: whether the node trains. If it only evaluates, its rows are read as for a prediction.

        Returns:
            The rows to train on, and those held out.

        Raises:
            DataError: the columns cannot be read, or values are missing after the steps.
            PrivacyThresholdViolation: in a column, too few rows have a value, or words are too many to be categories.
        """
        key = (spec, organization, policy, trains)
        if self._prepared is None or self._prepared[0] != key:
            y = self.labels(spec)
            if spec.classes is not None:
                y = encode_labels(y, spec.classes)
            kept, held = self.split(spec, organization, policy.minimum_rows)
            if spec.preprocess:
                self.features(spec).check_finite()  # even if a step would clip them
            levelling = preprocessing.Levelling(policy.minimum_rows_a_side)
            if trains:
                X = ready(self.training(spec, organization, policy), spec.preprocess, levelling.fit)
            else:
                X = ready(self._evaluated(spec, kept, kept, policy), spec.preprocess, levelling.fit)
            evaluated = self._evaluated(spec, held, kept, policy)
            held_out = Rows(ready(evaluated, spec.preprocess, levelling.repeat()), y[held])
            self._prepared = key, (Rows(X, y[kept]), held_out)
        return self._prepared[1]

    def _evaluated(self, spec: DataSpec, rows: Array | slice, kept: Array | slice, policy: Policy) -> Features:
        """The features of rows that a model is only evaluated on, before any step.

        A column in which too few rows have a value counts as missing: a loss would reveal the values. Where evaluations
        are rounded, words that few of the rows ``kept`` have are replaced as in training.
        """
        every = self._categories(spec, policy)
        features = every.take(rows)
        if self.table is None:
            return features
        features = features.without(features.scarce(policy.minimum_rows))
        if not policy.round_evaluations:
            return features
        filled = preprocessing.filled(spec.preprocess)
        return features.folded(policy.minimum_rows_a_class, filled, every.take(kept))

    def _categories(self, spec: DataSpec, policy: Policy) -> Features:
        """The features of all rows, after a check that no column has too many words to be a category."""
        features = self.features(spec)
        for name, said in features.words.items():
            policy.check_classes(pd.Series(said).nunique(), f"the column {name}")
        return features

    def _labels(self, spec: DataSpec) -> Array:
        _, label = self.columns(spec)
        if not spec.supervised:
            rows = self.X if self.table is None else self.table
            assert rows is not None
            return np.zeros(len(rows))
        y = np.asarray(self.y) if self.table is None else self.table[label].to_numpy()
        if self.table is not None and self.table[label].isna().any():
            raise DataError(
                f"missing values in the label column {label} (in text, None, NA and null count as missing); expected "
                "a label in every row"
            )
        return checked_numbers(y) if spec.regression else checked_labels(y)


def as_features(X: Array) -> Array:
    """Turn an array into features.

    Args:
        X: numbers (n, ...).

    Returns:
        (n, d): pixels of 8 bits divided by 255, other numbers as they are; float32 if it holds all values of the
        array's type, otherwise float64.

    Raises:
        DataError: the array holds other values, or none.
    """
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
    """Open a node's database.

    Args:
        database: a table, or the path of a ``.npz`` file, or of a folder with images or one ``.npz`` file.

    Returns:
        The database.

    Raises:
        DataError: it cannot be read.
    """
    if isinstance(database, Source):
        return database
    if isinstance(database, pd.DataFrame):
        return Source(table=database)
    if database.is_dir():
        archives = sorted(database.glob("*.npz"))
        return read_npz(archives[0]) if len(archives) == 1 else read_images(database)
    if database.suffix == ".npz":
        return read_npz(database)
    kind = f"a {database.suffix} file" if database.suffix else "a file without an ending"
    raise DataError(f"the database is {kind}; expected a table, .npz or a folder of images")


def load_npz(path: Path) -> dict[str, Array]:
    """Read a ``.npz`` file; pickled objects are never loaded.

    Args:
        path: the file.

    Returns:
        Its arrays by name.

    Raises:
        DataError: it cannot be read.
    """
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise DataError(f"{path.name} is a .npy, a single array; expected an .npz, as numpy.savez writes it")
        with found as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, KeyError) as error:
        raise DataError(f"{path.name} cannot be read as .npz ({type(error).__name__})") from None
    except Exception as error:  # zipfile and zlib have errors of their own
        if type(error).__module__ in ("zipfile", "zlib"):
            raise DataError(f"{path.name} cannot be read as .npz (broken archive)") from None
        raise


def check_pair(X: Array, y: Array, names: str) -> None:
    """Check that features and labels are of the same rows.

    Args:
        X: features.
        y: labels.
        names: what the error calls them.

    Raises:
        DataError: they are not.
    """
    if X.ndim < 2 or y.ndim != 1 or len(X) != len(y):  # in this order: an array without dimensions has no length
        raise DataError(f"{names} do not fit; expected (n, ...) features and (n,) labels")


def read_npz(path: Path) -> Source:
    """Read a node's rows from a ``.npz`` file.

    Args:
        path: a file with the arrays ``x`` and ``y``, or ``x_train`` and ``y_train``.

    Returns:
        The rows.

    Raises:
        DataError: it cannot be read, or lacks these arrays.
    """
    arrays = load_npz(path)
    for x, y in (("x", "y"), ("x_train", "y_train")):
        if x in arrays and y in arrays:
            check_pair(arrays[x], arrays[y], f"{path.name}: {x} and {y}")
            return Source(X=arrays[x], y=arrays[y])
    raise DataError(f"{path.name} holds {', '.join(arrays) or 'nothing'}; expected x and y, or x_train and y_train")


def read_images(folder: Path) -> Source:
    """Read a node's rows from images ``folder/CLASS/*.png`` (or jpg, bmp).

    Args:
        folder: holds a folder of images for each class. All images must have one size; they are read as grey.

    Returns:
        The rows: pixels (n, height, width) of 8 bits as they are, of 16 bits divided by 65535; and names of the
        folders as labels.

    Raises:
        DataError: there are no images, or they cannot be read or differ in size or kind.
    """
    try:
        from PIL import Image  # only images need Pillow
    except ImportError:
        raise DataError("images cannot be read because Pillow is not installed here; use an .npz file") from None

    images, labels = [], []
    for file in sorted(f for f in folder.glob("*/*") if f.suffix.lower() in IMAGE_SUFFIXES):
        try:
            with Image.open(file) as image:
                images.append(_grey(image))
        except OSError:  # its text contains the file's name
            raise DataError("an image cannot be read; expected complete image files") from None
        labels.append(file.parent.name)
    if not images:
        raise DataError("no images in the folder; expected CLASS/NAME.png, a folder for each class")
    if len({image.shape for image in images}) > 1:
        raise DataError("images of different sizes; expected one size")
    if len({image.dtype for image in images}) > 1:
        raise DataError("images of 8 bits and of 16 bits; expected one kind")
    return Source(X=np.stack(images), y=np.asarray(labels))


def _grey(image: Any) -> Array:
    """Its pixels (height, width). Pillow's own conversion turns images of 16 bits white."""
    if image.mode == "F":
        raise DataError("images whose pixels are not whole numbers; expected 8 or 16 bits")
    if not image.mode.startswith("I"):
        return np.asarray(image.convert("L"))
    pixels = np.asarray(image)
    if pixels.min() < 0 or pixels.max() > 65535:
        raise DataError("images of more than 16 bits; expected 8 or 16 bits")
    return (pixels / 65535).astype(np.float32)


def checked_labels(y: Array) -> Array:
    """Check labels of classes.

    Args:
        y: labels (n,).

    Returns:
        The labels: texts or numbers.

    Raises:
        DataError: they are missing, of different kinds, or neither words nor finite numbers.
    """
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


def checked_numbers(y: Array) -> Array:
    """Check labels of a regression.

    Args:
        y: labels (n,).

    Returns:
        The labels, float64.

    Raises:
        DataError: they are not finite numbers up to ``LARGEST``.
    """
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
            f"labels that are missing, infinite or above {LARGEST:g}; expected numbers, large ones in another unit"
        )
    return numbers


def encode_labels(y: Array, classes: Sequence[Any]) -> Array:
    """Turn labels into class indices.

    Args:
        y: labels (n,).
        classes: the classes in the order of their indices.

    Returns:
        Indices into ``classes``, int64 (n,).

    Raises:
        DataError: a label is not among the classes. It does not name the label.
    """
    index = {plain(value): i for i, value in enumerate(classes)}
    values, inverse = np.unique(y, return_inverse=True)
    codes = [index.get(plain(value), -1) for value in values]
    if -1 in codes:
        raise DataError(
            f"labels that are not among the {len(classes)} classes of the job. The classes are those in `classes`, or "
            "those that some node has in 3 rows or more: name all of them, for example classes=no,yes,unknown, or "
            "choose another label if this one is a number to predict"
        )
    return np.asarray(codes, dtype=np.int64)[inverse]


def plain(value: Any) -> Any:
    """Turn a label into JSON. A whole number is the same label whether it is stored as 1 or 1.0.

    Args:
        value: a label, possibly of numpy's.

    Returns:
        A text, number, or true or false.
    """
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def split(n: int, holdout: float, organization: int, step: int = 10) -> tuple[Array, Array]:
    """Choose which rows are held out.

    Their number is a multiple of ``step``, and they are chosen in the same order in all jobs: otherwise two jobs whose
    splits differ by one row would reveal this row.

    Args:
        n: number of rows.
        holdout: the share to hold out.
        organization: id of the organization.
        step: the node's minimum of rows. If there are fewer than two such steps, no row is held out.

    Returns:
        The indices of the rows to train on, and of those held out, both ascending.
    """
    held = max(step, step * round(holdout * n / step)) if holdout and n >= 2 * step else 0
    order = generator(0, "holdout", organization).permutation(n)
    return np.sort(order[held:]), np.sort(order[:held])


def ready(
    features: Features,
    steps: Sequence[dict[str, Any]],
    between: Callable[[Features], Features] = lambda features: features,
) -> Array:
    """Prepare features for a model.

    Args:
        features: the features before any step.
        steps: fitted steps.
        between: what is done before the first step and after each.

    Returns:
        The features after the steps, (n, d) float32, read-only.

    Raises:
        DataError: values are missing, infinite or not numbers after the steps.
    """
    features = preprocessing.apply(features, steps, between)
    features.check_complete()
    X = np.ascontiguousarray(features.X, dtype=np.float32)
    X.setflags(write=False)
    return X
