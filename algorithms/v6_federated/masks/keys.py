"""Identity keys: X25519 pairs of which the private half stays in the hospital's own folder."""

import base64
import binascii
import functools
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from v6_federated.base.errors import SafeError
from v6_federated.base.files import create, open_regular
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks.notation import KEY_BYTES, H

NAME = "identity.key"
MOST_BYTES = 2**14  # of the file; ours has about 120
CHECKSUM_BYTES = 3  # with the key, 280 bits: 56 letters of base32 without padding
LETTERS = (KEY_BYTES + CHECKSUM_BYTES) * 8 // 5
GROUP = 4  # letters between two hyphens
PRIME = 2**255 - 19  # coordinates of points are numbers below it
PROBE = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))  # with a point of small order every key agrees on zero


def new_identity(folder: Path) -> bytes:
    """Make an identity key, whose private half never leaves the folder."""
    private = X25519PrivateKey.generate()
    try:
        create(folder / NAME, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    except FileExistsError:
        raise SafeError(
            f"{folder / NAME} exists already, and other hospitals may have pinned it; keep using it, or move the file "
            "away, make a new key and agree on a new version of the study"
        ) from None
    except OSError as error:
        raise SafeError(f"{folder / NAME} cannot be written ({error.strerror}); choose a writable folder") from None
    return public_of(private)


def identity(folder: Path) -> X25519PrivateKey:
    """Read the hospital's identity key."""
    try:
        with open_regular(folder / NAME) as stream:
            key = load_pem_private_key(stream.read(MOST_BYTES), password=None)
    except FileNotFoundError:
        raise NodePermissionException(
            f"the hospital's folder has no {NAME}; make one with `v6-federated keys new FOLDER` and have the other "
            f"hospitals put its public half into the study. {NOTHING_COMPUTED}"
        ) from None
    except OSError as error:
        raise NodePermissionException(
            f"{NAME} in the hospital's folder cannot be read ({error.strerror}); correct its permissions. "
            f"{NOTHING_COMPUTED}"
        ) from None
    except (ValueError, TypeError) as error:
        if isinstance(error, SafeError):
            raise
        raise _broken() from None
    if not isinstance(key, X25519PrivateKey):
        raise _broken()
    return key


def public_of(private: X25519PrivateKey) -> bytes:
    """The public half of a key."""
    return private.public_key().public_bytes_raw()


@functools.lru_cache(maxsize=1000)  # every request names the keys of its block
def check_public(public: bytes) -> None:
    """Check that bytes are a public key, in the one form that the key has."""
    if len(public) != KEY_BYTES:
        raise SafeError(f"a public key has {KEY_BYTES} bytes, and this one has {len(public)}; send the key again")
    if int.from_bytes(public, "little") >= PRIME:
        raise SafeError("a public key is not in its one accepted form (a number below 2^255 - 19); make a new key")
    try:
        PROBE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # the shared secret would be zero
        raise SafeError(
            "a public key is a point of small order, which nobody makes by chance; make a new key"
        ) from None


def written(public: bytes) -> str:
    """Write a public key as text that people can send to each other."""
    text = base64.b32encode(public + _checksum(public)).decode()
    return "-".join(text[i : i + GROUP] for i in range(0, len(text), GROUP))


def parsed(text: str) -> bytes:
    """Read a public key that ``written`` wrote."""
    letters = "".join(text.split()).replace("-", "")
    if len(letters) != LETTERS:
        raise SafeError(
            f"a written public key has {LETTERS} letters and digits besides hyphens, and this one has {len(letters)}; "
            "copy the whole line that `v6-federated keys new` printed"
        )
    try:
        data = base64.b32decode(letters, casefold=True, map01="I")
    except (binascii.Error, ValueError):
        raise SafeError(
            "a written public key has a character that is none of A to Z and 2 to 7; copy it again"
        ) from None
    public, checksum = data[:KEY_BYTES], data[KEY_BYTES:]
    if checksum != _checksum(public):
        raise SafeError("the checksum of a written public key is wrong: it has a typing error; copy it again")
    check_public(public)
    return public


def short(public: bytes) -> str:
    """The beginning of a written key, for errors."""
    return written(public)[: 2 * GROUP + 1]


def _checksum(public: bytes) -> bytes:
    return H("key", public)[:CHECKSUM_BYTES]


def _broken() -> NodePermissionException:
    return NodePermissionException(
        f"{NAME} in the hospital's folder holds no X25519 key in PEM; restore it from the operator's copy, or move it "
        f"away, make a new one with `v6-federated keys new FOLDER` and agree on a new study. {NOTHING_COMPUTED}"
    )
