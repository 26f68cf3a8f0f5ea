"""Opening a node's database: a table, a ``.npz`` file, or a folder of images."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.source import Source

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp"}


def open_database(database: pd.DataFrame | Path | Source) -> Source:
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
