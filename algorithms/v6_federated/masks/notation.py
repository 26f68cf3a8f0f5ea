"""Notation: one unambiguous encoding of lists of parts, one hash, one key derivation."""

import hashlib

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

PROTOCOL = "v6-federated/secagg/1"
KEY_BYTES = 32  # of public keys, pair keys, digests and HMACs
MOST_HOSPITALS = 100  # of a block: sums of so many 64-bit values cannot wrap (encoding.py)


def enc(*parts: bytes | int | str) -> bytes:
    """Encode a list of parts, so that different lists never give the same bytes."""
    encoded = bytearray(PROTOCOL.encode())
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode() if isinstance(part, str) else part.to_bytes(8, "big")
        encoded += len(data).to_bytes(8, "big") + data
    return bytes(encoded)


def H(*parts: bytes | int | str) -> bytes:
    """Hash a list of parts."""
    return hashlib.sha256(enc(*parts)).digest()


def hkdf(salt: bytes, ikm: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """Derive a key from a secret that is not uniform, such as the result of a key agreement: HKDF-SHA256 (RFC 5869)."""
    return HKDF(SHA256(), length, salt, info).derive(ikm)


def expand(key: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """Derive a key from a uniform key: the second half of HKDF-SHA256."""
    return HKDFExpand(SHA256(), length, info).derive(key)
