"""Masks: for each pair of nodes one keystream that one node adds and the other subtracts, so that they cancel."""

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from v6_federated.base.arrays import Array
from v6_federated.masks.notation import enc, expand

WORDS: dict[int, np.dtype[np.unsignedinteger]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}
NONCE = bytes(16)  # a counter and a nonce of zero: each key is used for one mask only
PART = 2**16  # bytes made at a time, so that they stay in the processor's cache
ZEROS = bytes(PART)
MOST_BYTES = 2**38  # of a mask: then ChaCha20's counter of 64-byte blocks, 32 bits, is at its end


def mask(K: bytes, T: bytes, bits: Literal[32, 64], size: int) -> Array:
    """The mask of a pair of nodes for one request."""
    words = np.empty(size, WORDS[bits])
    start = 0
    for part in _parts(K, T, bits, size):
        words[start : start + part.size] = part
        start += part.size
    return words


def masked(words: Array, own: bytes, keys: Mapping[bytes, bytes], T: bytes) -> Array:
    """Mask an answer's words."""
    bits = words.dtype.itemsize * 8
    if words.dtype not in WORDS.values() or words.ndim != 1:
        raise ValueError("words must be a vector of uint32 or uint64")
    if not keys or own in keys:
        raise ValueError("a node's words are masked with one key for each peer, of which there must be at least one")
    result = words.copy()
    for peer, K in keys.items():
        start = 0
        for part in _parts(K, T, bits, words.size):
            here = result[start : start + part.size]
            (np.add if peer > own else np.subtract)(here, part, out=here)
            start += part.size
    return result


def _parts(K: bytes, T: bytes, bits: int, size: int) -> Iterator[Array]:
    """The mask in parts; each part is overwritten by the next."""
    dtype = WORDS[bits]
    left = size * dtype.itemsize
    if left > MOST_BYTES:
        raise ValueError(f"a mask of {left} bytes; at most {MOST_BYTES} are possible")
    encryptor = Cipher(ChaCha20(expand(K, enc(f"mask{bits}", T)), NONCE), mode=None).encryptor()
    buffer = bytearray(PART)
    while left:
        length = min(left, PART)
        encryptor.update_into(memoryview(ZEROS)[:length], buffer)  # ChaCha20 of zeros is its keystream
        yield np.frombuffer(buffer, dtype, length // dtype.itemsize)
        left -= length
