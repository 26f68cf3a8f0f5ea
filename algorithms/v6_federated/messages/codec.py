"""Arrays as they cross the network: one base64 string of a little-endian buffer, with names and shapes. Never pickle.

float32 costs 4 bytes a number, base64 makes that 5.33; a JSON list of the same numbers costs about 22.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pybase64

from v6_federated.base.errors import SafeError

MOST_DIMENSIONS, MOST_NUMBERS = 8, 2**40  # of an array; of one dimension of it
DTYPES: dict[str, np.dtype] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2"), "float64": np.dtype("<f8")}

Shape = tuple[int | None, ...]  # None: of any length
DIVERGED = "training has diverged, a smaller lr may help"


def encode(arrays: Mapping[str, np.ndarray], precision: str = "float32") -> dict[str, Any]:
    """The payload of named arrays; ``precision`` names their type. Raises SafeError for numbers not finite."""
    dtype = DTYPES[precision]
    with np.errstate(over="ignore"):
        flat = [np.ascontiguousarray(a, dtype=dtype).reshape(-1) for a in arrays.values()]
    buffer: np.ndarray = flat[0] if len(flat) == 1 else np.concatenate(flat) if flat else np.empty(0, dtype)
    if not np.isfinite(buffer).all():
        raise SafeError(f"{', '.join(arrays)}: numbers that are not finite in {precision}; {DIVERGED}")
    return {
        "dtype": precision,
        "shapes": {name: list(np.shape(a)) for name, a in arrays.items()},
        "data": pybase64.b64encode_as_string(buffer.data),
    }


def decode(payload: Mapping[str, Any], expected: Mapping[str, Shape] | None = None) -> dict[str, np.ndarray]:
    """The named arrays of a payload, float64 if they were sent so and float32 otherwise, parts of one new buffer.

    ``expected``: arrays that must be among them, and their shapes: numpy would broadcast others, and with an array as
    long as there are rows a sum over rows becomes a row. Raises SafeError if it is no such payload.
    """
    try:
        dtype = DTYPES[payload["dtype"]]
        shapes = {str(name): tuple(int(n) for n in shape) for name, shape in payload["shapes"].items()}
        buffer = np.frombuffer(pybase64.b64decode_as_bytearray(payload["data"], validate=True), dtype=dtype)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise SafeError(f"not a payload of arrays: {type(error).__name__}") from None
    if any(len(s) > MOST_DIMENSIONS or not all(0 <= n <= MOST_NUMBERS for n in s) for s in shapes.values()):
        raise SafeError(f"a payload with shapes that no array has; expected up to {MOST_DIMENSIONS} dimensions")
    sizes = [math.prod(shape) for shape in shapes.values()]
    if sum(sizes) != buffer.size:
        raise SafeError(f"a payload of {buffer.size} numbers whose shapes are those of {sum(sizes)}")
    if not np.isfinite(buffer).all():
        raise SafeError(f"{', '.join(shapes)}: numbers that are not finite")
    numbers = buffer.astype(np.float64 if dtype.itemsize == 8 else np.float32, copy=False)
    parts = np.split(numbers, np.cumsum(sizes)[:-1]) if sizes else []
    arrays = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    for name, shape in (expected or {}).items():
        if name not in arrays or not fits(arrays[name], shape):
            told = arrays[name].shape if name in arrays else "none"
            raise SafeError(f"{name} of shape {told}; expected {shape}")
    return arrays


def fits(array: np.ndarray, shape: Shape) -> bool:
    """Whether an array has a shape."""
    return array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))


def two_parts(name: str, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """float64 numbers as two float32 arrays, NAME and NAME_rest, whose sum has 48 bits: enough for a time stamp."""
    first = np.asarray(numbers, dtype=np.float32)
    return {name: first, f"{name}_rest": np.asarray(numbers - first.astype(np.float64), dtype=np.float32)}


def whole(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """The float64 numbers of ``two_parts``."""
    return arrays[name].astype(np.float64) + arrays[f"{name}_rest"]


def size(message: Any) -> int:
    """Bytes of ``message`` as vantage6 sends it (``json.dumps``), without copying the payloads inside it."""
    extra = 0

    def hollow(value: Any) -> Any:
        nonlocal extra
        if isinstance(value, dict):
            if set(value) == {"dtype", "shapes", "data"}:
                extra += len(value["data"])  # base64 needs no escapes
                return {**value, "data": ""}
            return {k: hollow(v) for k, v in value.items()}
        if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
            return [hollow(v) for v in value]
        return value

    return len(json.dumps(hollow(message))) + extra
