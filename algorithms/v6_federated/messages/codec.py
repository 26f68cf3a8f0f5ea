"""Payloads: arrays as they cross the network, one base64 string of a little-endian buffer with names and shapes.

Never pickle, which could run code. A float32 number takes 4 bytes, 5.33 in base64; in a JSON list it takes about 22.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pybase64

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import DIVERGED
from v6_federated.messages import compression

MOST_DIMENSIONS = 8  # of an array; none of ours has more than 4
MOST_NUMBERS = 2**40  # of an array: more than any memory holds, and their product with 8 bytes still fits an int64
MOST_ARRAYS = 1000  # of a payload; ours have at most 20, a network's file has one for each layer's tensor
MOST_LETTERS = 100  # of an array's name, which errors quote
DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2"), "float64": np.dtype("<f8")}
WORDS: dict[str, np.dtype[Any]] = {"uint32": np.dtype("<u4"), "uint64": np.dtype("<u8")}

Shape = tuple[int | range | None, ...]  # a range: a length in it; None: any length
PAYLOAD = {"dtype", "shapes", "data"}


def encode(arrays: Mapping[str, Array], precision: str = "float32") -> dict[str, Any]:
    """Make a payload of arrays.

    Args:
        arrays: arrays of any shape, by name.
        precision: type of the numbers that are sent: "float32", "float16" or "float64".

    Returns:
        JSON with the keys ``dtype`` (the precision), ``shapes`` (by name) and ``data`` (base64).

    Raises:
        SafeError: a number is not finite in this precision.
    """
    dtype = DTYPES[precision]
    with np.errstate(over="ignore"):
        flat = [np.ascontiguousarray(a, dtype=dtype).reshape(-1) for a in arrays.values()]
    buffer: Array = flat[0] if len(flat) == 1 else np.concatenate(flat) if flat else np.empty(0, dtype)
    if not np.isfinite(buffer).all():
        raise SafeError(f"{', '.join(arrays)}: some numbers are not finite in {precision}; {DIVERGED}")
    return {
        "dtype": precision,
        "shapes": {name: list(np.shape(a)) for name, a in arrays.items()},
        "data": pybase64.b64encode_as_string(buffer.data),
    }


@dataclass(frozen=True)
class Compressed:
    """An array in fewer bytes, as a partial function returns it: its answer may hold no other array.

    Attributes:
        array: what central will read (d,), float32.
        form: "int8" or "topk", see ``compression``.
        buffer: what is sent.
    """

    array: Array
    form: str
    buffer: bytes = field(repr=False)

    @classmethod
    def of(cls, array: Array, form: str, k: int = 0) -> "Compressed":
        """Compress an array.

        Args:
            array: numbers (d,).
            form: "int8" or "topk".
            k: how many numbers "topk" keeps.

        Returns:
            The array in this form.

        Raises:
            SafeError: a number is not finite.
        """
        array = np.asarray(array, np.float32)
        if not np.isfinite(array).all():
            raise SafeError(f"some numbers are not finite; {DIVERGED}")
        if form == "int8":
            buffer = compression.quantize(array)
            return cls(compression.dequantize(buffer, len(array)), form, buffer)
        buffer = compression.sparsify(array, k)
        return cls(compression.densify(buffer, len(array)), form, buffer)

    def payload(self, name: str) -> dict[str, Any]:
        """Make a payload of it, in the form of ``encode``.

        Args:
            name: the array's name.
        """
        data = pybase64.b64encode_as_string(self.buffer)
        return {"dtype": self.form, "shapes": {name: [len(self.array)]}, "data": data}


def decode(payload: Mapping[str, Any], expected: Mapping[str, Shape] | None = None, most: int = 0) -> dict[str, Array]:
    """Read the arrays of a payload.

    Args:
        payload: what ``encode`` or ``Compressed.payload`` made, or what a message claims to be one.
        expected: shapes of the arrays that must be there. Check them before computing: numpy would broadcast an array
            with a number for each row, and a sum over rows would become a row.
        most: how many numbers a compressed array may have: one of 2^40 numbers takes a few bytes, but not in memory.

    Returns:
        The arrays by name, parts of one new buffer: float64 if they were sent so, float32 otherwise.

    Raises:
        SafeError: the payload is malformed, holds numbers that are not finite, or lacks an expected array.
    """
    try:
        form = payload["dtype"]
        shapes: dict[str, tuple[int, ...]] = {name: tuple(shape) for name, shape in payload["shapes"].items()}
        buffer = pybase64.b64decode_as_bytearray(payload["data"], validate=True)
        plain = None if form in compression.FORMS else np.frombuffer(buffer, dtype=DTYPES[form])
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise SafeError(
            f"malformed payload of arrays ({type(error).__name__}); send what v6_federated.codec.encode returns"
        ) from None
    if len(shapes) > MOST_ARRAYS or not all(isinstance(k, str) and len(k) <= MOST_LETTERS for k in shapes):
        raise SafeError(
            f"malformed payload: expected at most {MOST_ARRAYS} arrays, with names of at most {MOST_LETTERS} letters"
        )
    if not all(map(_is_shape, shapes.values())):
        raise SafeError(
            f"malformed payload: shapes that no array can have; expected at most {MOST_DIMENSIONS} whole numbers from 0"
        )
    sizes = [math.prod(shape) for shape in shapes.values()]
    numbers = _decompressed(form, buffer, sum(sizes), most) if plain is None else plain
    if sum(sizes) != numbers.size:
        raise SafeError(f"malformed payload: {numbers.size} numbers, but its shapes need {sum(sizes)}")
    if not np.isfinite(numbers).all():
        raise SafeError(f"{', '.join(shapes)}: some numbers are not finite")
    numbers = numbers.astype(np.float64 if numbers.dtype.itemsize == 8 else np.float32, copy=False)
    parts = np.split(numbers, np.cumsum(sizes)[:-1]) if sizes else []
    arrays = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    for name, shape in (expected or {}).items():
        if name not in arrays or not fits(arrays[name], shape):
            found = f"has shape {arrays[name].shape}" if name in arrays else "is missing"
            raise SafeError(f"the array {name} {found}; its shape must be {written(shape)}")
    return arrays


def _decompressed(form: str, buffer: bytearray, size: int, most: int) -> Array:
    if not most:
        raise SafeError(f"an array in the form {form} cannot be read here; expected {', '.join(DTYPES)}")
    if size > most:
        raise SafeError(f"a compressed array of {size} numbers; expected {most} at most")
    try:
        return (compression.dequantize if form == "int8" else compression.densify)(buffer, size)
    except ValueError:
        raise SafeError(f"malformed payload: its {form} numbers do not fit its shapes") from None


def encode_words(words: Array) -> dict[str, Any]:
    """Make a payload of whole numbers, such as masked ones.

    Args:
        words: uint32 or uint64, (n,).

    Returns:
        JSON in the form of a payload, with one array ``y``.
    """
    little = np.ascontiguousarray(words, WORDS[words.dtype.name])
    return {"dtype": words.dtype.name, "shapes": {"y": [len(words)]}, "data": pybase64.b64encode_as_string(little.data)}


def decode_words(payload: Any, dtype: str, size: int) -> Array:
    """Read what ``encode_words`` made.

    Args:
        payload: JSON, or what a message claims to be one.
        dtype: "uint32" or "uint64".
        size: how many words there must be.

    Returns:
        The words (size,).

    Raises:
        SafeError: it is no such payload.
    """
    try:
        if {**payload, "data": ""} != {"dtype": dtype, "shapes": {"y": [size]}, "data": ""}:
            raise ValueError
        words = np.frombuffer(pybase64.b64decode_as_bytearray(payload["data"], validate=True), WORDS[dtype])
        if len(words) != size:
            raise ValueError
    except (TypeError, KeyError, ValueError):
        raise SafeError(f"malformed masked numbers; expected {size} of type {dtype}") from None
    found: Array = words.astype(dtype, copy=False)
    return found


def _is_shape(shape: tuple[Any, ...]) -> bool:
    """Whether an array can have the shape. An empty one with a shape of [2**40, 2**40, 0] would still be too big."""
    whole = len(shape) <= MOST_DIMENSIONS and all(type(n) is int and n >= 0 for n in shape)
    return whole and math.prod(n or 1 for n in shape) <= MOST_NUMBERS


def fits(array: Array, shape: Shape) -> bool:
    """Whether an array has a shape.

    Args:
        array: the array.
        shape: its length along each dimension, or the range of its lengths; None stands for any.
    """
    return array.ndim == len(shape) and all(
        m in n if isinstance(n, range) else n in (None, m) for n, m in zip(shape, array.shape, strict=True)
    )


def most_numbers(shape: Shape) -> int:
    """Count the numbers of the largest array of a shape.

    Args:
        shape: the shape.

    Returns:
        Their number; 0 if the shape sets no limit.
    """
    lengths = [n[-1] if isinstance(n, range) else n or 0 for n in shape]
    return math.prod(lengths)


def written(shape: Shape) -> str:
    """Write a shape for an error.

    Args:
        shape: its length along each dimension.

    Returns:
        The text, for example "(any, 3)".
    """
    lengths = ["any" if n is None else f"{n[0]} to {n[-1]}" if isinstance(n, range) else str(n) for n in shape]
    return f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"


def two_parts(name: str, numbers: Array) -> dict[str, Array]:
    """Divide float64 numbers into two float32 arrays that add up to 48 of their 53 bits: enough for a time stamp.

    Args:
        name: what to call them.
        numbers: float64, of any shape.

    Returns:
        ``NAME`` and ``NAME_rest``, of the same shape; ``whole`` adds them.
    """
    first = np.asarray(numbers, dtype=np.float32)
    return {name: first, f"{name}_rest": np.asarray(numbers - first.astype(np.float64), dtype=np.float32)}


def whole(arrays: Mapping[str, Array], name: str) -> Array:
    """Add the arrays that ``two_parts`` made.

    Args:
        arrays: the arrays NAME and NAME_rest, among others.
        name: their name.

    Returns:
        The numbers in float64.
    """
    return arrays[name].astype(np.float64) + arrays[f"{name}_rest"]
