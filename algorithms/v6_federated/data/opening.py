"""Opening a node's database: a table, a ``.npz`` file, or a folder of images."""

import os
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.database import Frame
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.frames import decode
from v6_federated.data.source import Source

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp"}
NPY = b"\x93NUMPY"  # how a .npy file begins
MOST_BYTES = 2**36  # of a database of arrays: more than the memory of most machines
MOST_MEMBERS = 1000  # of an archive: a network's file has one for each layer's tensor
MOST_RATIO = 200  # of unpacked to packed bytes: images have 2 to 10, sparse tables up to 100, a zip bomb 1000
UNSUSPICIOUS = 2**28  # bytes that an archive may have at any ratio: a small one of zeros does no harm
MOST_PIXELS = 2**26  # of an image: a mammogram has 2**24; a slide of pathology is no row of a table
MOST_IMAGES = 2**20
TOO_MANY_PIXELS = f"an image of more than {MOST_PIXELS} pixels; expected smaller ones"


def open_database(database: pd.DataFrame | Frame | Path | Source) -> Source:
    """Open a node's database.

    Args:
        database: a table, a data frame of a session, or the path of a ``.npz`` file, or of a folder with images or one
            ``.npz`` file.

    Returns:
        The database.

    Raises:
        DataError: it cannot be read.
    """
    if isinstance(database, Source):
        return database
    if isinstance(database, Frame):
        return decode(database.rows)
    if isinstance(database, pd.DataFrame):
        return Source(table=database)
    if database.is_dir():
        archives = sorted(database.glob("*.npz"))
        return read_npz(archives[0]) if len(archives) == 1 else read_images(database)
    # a node of vantage6 5 gives a file the ending of its type: rows.npz becomes default.other
    if database.suffix == ".npz" or zipfile.is_zipfile(database):
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
        with path.open("rb") as stream:
            return read_archive(stream, path.name)
    except OSError as error:
        raise DataError(f"{path.name} cannot be read as .npz ({type(error).__name__}); check the file") from None


def read_archive(stream: BinaryIO, name: str) -> dict[str, Array]:
    """Read an open ``.npz`` file; pickled objects are never loaded, and archives that would fill the memory neither.

    Args:
        stream: the file.
        name: what errors call it.

    Returns:
        Its arrays by name.

    Raises:
        DataError: it is no such file, or broken, or too large.
    """
    if stream.read(len(NPY)) == NPY:
        raise DataError(f"{name} is a .npy, a single array; expected an .npz, as numpy.savez writes it")
    stream.seek(0)
    try:
        with zipfile.ZipFile(stream) as members:
            _check_size(members.infolist(), stream.seek(0, os.SEEK_END), name)
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        # a member that is no array is read as bytes; texts of no length could be claimed without end
        if all(isinstance(array, np.ndarray) and array.itemsize for array in arrays.values()):
            return arrays
        raise ValueError
    except zipfile.BadZipFile:
        raise DataError(f"{name} cannot be read as .npz (broken archive); save it again with numpy.savez") from None
    except MemoryError:
        raise DataError(f"{name} needs more memory than there is here; expected fewer or smaller arrays") from None
    except DataError:
        raise
    except Exception as error:  # zlib and numpy's reader of headers have many; their texts may quote a value
        raise DataError(
            f"{name} cannot be read as .npz ({type(error).__name__}); save it again with numpy.savez, with arrays of "
            "numbers or words and no Python objects"
        ) from None


def _check_size(members: Sequence[zipfile.ZipInfo], packed: int, name: str) -> None:
    """Refuse an archive of ``packed`` bytes by the sizes that it declares; zipfile reads no more than these."""
    size = sum(member.file_size for member in members)
    if len(members) > MOST_MEMBERS:
        raise DataError(f"{name} holds {len(members)} arrays; expected at most {MOST_MEMBERS}")
    if size > MOST_BYTES:
        raise DataError(f"{name} holds {size} bytes when unpacked; expected at most {MOST_BYTES}")
    if size > UNSUSPICIOUS and size > MOST_RATIO * packed:
        raise DataError(
            f"{name} is {size // max(packed, 1)} times as large when unpacked, like an archive made to fill a memory; "
            f"expected at most {MOST_RATIO} times: save it uncompressed with numpy.savez"
        )


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

    files = sorted(f for f in folder.glob("*/*") if f.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise DataError("no images in the folder; expected CLASS/NAME.png, a folder for each class")
    if len(files) > MOST_IMAGES:
        raise DataError(f"{len(files)} images in the folder; expected at most {MOST_IMAGES}")
    images: list[Array] = []
    for file in files:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                with Image.open(file) as image:
                    _check_pixels(image.size, len(files), images[0].shape if images else None)
                    images.append(_grey(image))
        except DataError:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise DataError(TOO_MANY_PIXELS) from None
        except MemoryError:
            raise DataError("the images need more memory than there is here; expected fewer or smaller ones") from None
        except Exception:  # Pillow's readers raise errors of many types, whose texts contain the file's name
            raise DataError("an image cannot be read; expected complete image files") from None
    if len({image.dtype for image in images}) > 1:
        raise DataError("images of 8 bits and of 16 bits; expected one kind")
    return Source(X=np.stack(images), y=np.asarray([file.parent.name for file in files]))


def _check_pixels(size: tuple[int, int], count: int, before: tuple[int, ...] | None) -> None:
    """Refuse an image by the size that it declares, before it is read."""
    width, height = size
    if width * height > MOST_PIXELS:
        raise DataError(TOO_MANY_PIXELS)
    if before not in (None, (height, width)):
        raise DataError("images of different sizes; expected one size")
    if count * width * height > MOST_BYTES:
        raise DataError(f"the images have more than {MOST_BYTES} pixels in all; expected fewer or smaller ones")


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
