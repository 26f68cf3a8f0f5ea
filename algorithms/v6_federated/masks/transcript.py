"""The transcript T of a request: all that determines the answer. A mask depends on it and is used for one answer only.

Numbers in the layout and the arguments are written as RFC 8785 says: a float as the shortest text that gives the same
float64 back, as ECMAScript writes it. So 1 and 1.0 are the same number, as are 0.0 and -0.0; NaN, infinities, and whole
numbers of more than 53 bits, which float64 cannot tell apart, are refused. Arrays are bound by their bytes.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import rfc8785

from v6_federated.base import json_text
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.masks.notation import KEY_BYTES, H

LARGEST = 2**53 - 1  # whole numbers up to it are exact in float64
KINDS = "fiu"  # of arrays: floats and whole numbers


def transcript(
    R: bytes,
    seq: int,
    round_: int,
    method: str,
    function: str,
    layout: Sequence[Any],
    arguments: Mapping[str, Any],
    arrays: Mapping[str, Array],
) -> bytes:
    """T: the digest of a request.

    Args:
        R: digest of the roster, which binds study, job, nodes, tables and code.
        seq: number of the request in the job, over all functions.
        round_: number of the round.
        method: name of the method.
        function: name of the partial function.
        layout: names, widths, shapes and exponents of the answer's values (``encoding.layout_json``).
        arguments: resolved arguments, with defaults filled in, as JSON.
        arrays: arrays that were sent, after decoding, by name.

    Returns:
        T = H("round", R, seq, round, method, function, canonical layout, canonical arguments, digest of each array in
        order of names), 32 bytes.

    Raises:
        SafeError: a number or a text has no canonical form, or is out of range.
    """
    if len(R) != KEY_BYTES:
        raise SafeError(f"the roster's digest has {len(R)} bytes; expected {KEY_BYTES}")
    for name, number in (("seq", seq), ("round", round_)):
        if type(number) is not int or not 0 <= number <= LARGEST:
            raise SafeError(f"{name} of a request must be a whole number from 0 to 2^53 - 1")
    digests = [array_digest(name, arrays[name]) for name in sorted(arrays)]
    return H("round", R, seq, round_, method, function, canonical(list(layout)), canonical(dict(arguments)), *digests)


def canonical(value: Any) -> bytes:
    """Write JSON in its one canonical form (RFC 8785).

    Args:
        value: JSON.

    Returns:
        UTF-8 text.

    Raises:
        SafeError: it is nested too deeply, holds NaN, an infinity or a whole number of more than 53 bits, or is not
            JSON.
    """
    json_text.check(value)
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        raise SafeError(
            "a whole number in the request is beyond 2^53 - 1, the largest that JSON keeps exactly; send a smaller "
            "number, or a text"
        ) from None
    except rfc8785.FloatDomainError:
        raise SafeError("a number in the request is not finite; send finite numbers") from None
    except (rfc8785.CanonicalizationError, ValueError, TypeError) as error:
        raise SafeError(
            f"the request holds something that is not JSON ({type(error).__name__}); send texts, numbers, lists and "
            "objects whose keys are texts"
        ) from None


def array_digest(name: str, array: Array) -> bytes:
    """The digest of an array with its name, type and shape.

    Args:
        name: the name.
        array: the array, of floats or whole numbers.

    Returns:
        H("array", name, type, number of dimensions, each length, SHA-256 of the elements), 32 bytes. The type is one
        letter and the bytes of an element, for example "f4"; elements are little-endian, the last index running first.

    Raises:
        SafeError: its type is another one.
    """
    if array.dtype.kind not in KINDS:
        raise SafeError(f"the array {name} holds {array.dtype.name}; expected floats or whole numbers")
    elements = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    content = hashlib.sha256(elements.tobytes()).digest()
    kind = f"{array.dtype.kind}{array.dtype.itemsize}"
    return H("array", name, kind, array.ndim, *array.shape, content)
