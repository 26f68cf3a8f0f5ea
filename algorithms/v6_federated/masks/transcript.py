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
    """T: the digest of a request."""
    if len(R) != KEY_BYTES:
        raise SafeError(f"the roster's digest has {len(R)} bytes; expected {KEY_BYTES}")
    for name, number in (("seq", seq), ("round", round_)):
        if type(number) is not int or not 0 <= number <= LARGEST:
            raise SafeError(f"{name} of a request must be a whole number from 0 to 2^53 - 1")
    digests = [array_digest(name, arrays[name]) for name in sorted(arrays)]
    return H("round", R, seq, round_, method, function, canonical(list(layout)), canonical(dict(arguments)), *digests)


def canonical(value: Any) -> bytes:
    """Write JSON in its one canonical form (RFC 8785)."""
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
    """The digest of an array with its name, type and shape."""
    if array.dtype.kind not in KINDS:
        raise SafeError(f"the array {name} holds {array.dtype.name}; expected floats or whole numbers")
    elements = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    content = hashlib.sha256(elements.tobytes()).digest()
    kind = f"{array.dtype.kind}{array.dtype.itemsize}"
    return H("array", name, kind, array.ndim, *array.shape, content)
