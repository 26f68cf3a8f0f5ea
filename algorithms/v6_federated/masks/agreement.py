"""Key agreement: the roster that all nodes of a block confirm, a key for each pair of nodes, and tags that prove it."""

import hashlib
import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from v6_federated.base.errors import SafeError
from v6_federated.base.text import NOTHING_COMPUTED, shortened
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks import keys
from v6_federated.masks.notation import KEY_BYTES, H, enc, expand, hkdf

MOST_LETTERS = 100  # of a code version
MOST_NAMED = 5  # hospitals in one error

Names = Mapping[bytes, str]  # of hospitals, by S, as a study has them; only errors need them
NO_NAMES: Names = MappingProxyType({})


@dataclass(frozen=True)
class Entry:
    """What a node says of itself in ``hello``; all entries of a block are its roster.

    Attributes:
        S: public half of the identity key, 32 bytes. In the mode ``masked``, of a key that is made for the job.
        E: public half of the job's key, 32 bytes.
        D: a keyed digest of the node's table, 32 bytes, which nobody else can compare with another job's.
        version: version of the node's code.
    """

    S: bytes
    E: bytes
    D: bytes
    version: str

    def __post_init__(self) -> None:
        keys.check_public(self.S)
        keys.check_public(self.E)
        if len(self.D) != KEY_BYTES:
            raise SafeError(f"the digest of a node's table has {len(self.D)} bytes; expected {KEY_BYTES}")
        if not (0 < len(self.version) <= MOST_LETTERS and self.version.isprintable()):
            raise SafeError(f"a code version is a printable text of 1 to {MOST_LETTERS} letters")

    def to_json(self) -> dict[str, str]:
        """The entry as JSON."""
        return {"S": self.S.hex(), "E": self.E.hex(), "D": self.D.hex(), "version": self.version}

    @classmethod
    def from_json(cls, value: Any) -> "Entry":
        """Read what ``to_json`` wrote."""
        if not isinstance(value, Mapping) or set(value) != {"S", "E", "D", "version"}:
            raise SafeError("an entry of a roster must have S, E, D and version, and nothing else")
        if not all(isinstance(part, str) for part in value.values()):
            raise SafeError("S, E, D and version of a roster's entry must be texts")
        try:
            S, E, D = (bytes.fromhex(value[name]) for name in "SED")
        except ValueError:
            raise SafeError("S, E and D of a roster's entry must be hexadecimal") from None
        return cls(S, E, D, value["version"])


def roster_digest(study: bytes, job: str, entries: Sequence[Entry]) -> bytes:
    """R: the digest of who takes part, with which keys, table and code."""
    for name in ("S", "E"):
        if len({getattr(entry, name) for entry in entries}) < len(entries):
            raise SafeError(f"the roster has two entries with the same key {name}; each hospital must be there once")
    parts: list[bytes | str] = []
    for entry in sorted(entries, key=lambda entry: entry.S):
        parts += [entry.S, entry.E, entry.D, entry.version]
    return H("roster", study, job, *parts)


def check_roster(
    entries: Sequence[Entry], own: Entry, block: Collection[bytes] | None, minimum: int, names: Names = NO_NAMES
) -> None:
    """Check the roster that central sent before confirming it."""
    found = {entry.S for entry in entries}
    problem = None
    if own not in entries:
        problem = "the roster lacks this node's own entry, or changes it; start a new job"
    elif block is not None and found != set(block):
        more, fewer = found - set(block), set(block) - found
        which = [("too many", more), ("missing", fewer)]
        listed = "; ".join(f"{what}: {_listed(some, names)}" for what, some in which if some)
        problem = (
            f"the roster is not this node's block of the study: {len(more)} keys too many, {len(fewer)} missing "
            f"({listed}); train with the whole block"
        )
    elif len(found) < minimum:
        problem = f"the roster has {len(found)} hospitals and must have at least {minimum}; train with more hospitals"
    else:
        others = sorted({entry.version for entry in entries} - {own.version})
        if others:
            problem = (
                f"this node runs version {own.version} and others run {', '.join(others)}; use the same image at all "
                "hospitals"
            )
    if problem:
        raise NodePermissionException(f"{problem}. {NOTHING_COMPUTED}")


def pair_key(s: X25519PrivateKey, e: X25519PrivateKey, own: Entry, peer: Entry, study: bytes, job: str) -> bytes:
    """K_ij: the key that this node and a peer share for a job, and nobody else.

    With lo and hi by S: K = HKDF(salt = study, ikm = X25519(s_i, S_j) || X25519(e_i, E_j) || X25519(e_lo, S_hi) ||
    X25519(s_lo, E_hi), info = enc("pair", job, S_lo, E_lo, S_hi, E_hi)).
    """
    if (keys.public_of(s), keys.public_of(e)) != (own.S, own.E):
        raise NodePermissionException(
            f"this node's keys are not those that it sent at the job's beginning; start a new job. {NOTHING_COMPUTED}"
        )
    if own.S == peer.S:
        raise NodePermissionException(f"a peer has this node's own key; start a new job. {NOTHING_COMPUTED}")
    e_with_s, s_with_e = _agree(e, peer.S), _agree(s, peer.E)
    lo, hi = (own, peer) if own.S < peer.S else (peer, own)
    third_and_fourth = e_with_s + s_with_e if own is lo else s_with_e + e_with_s
    dh = _agree(s, peer.S) + _agree(e, peer.E) + third_and_fourth
    return hkdf(study, dh, enc("pair", job, lo.S, lo.E, hi.S, hi.E))


def tag(K: bytes, sender: bytes, receiver: bytes, R: bytes) -> bytes:
    """Prove to a peer that this node has the same key and the same roster."""
    return hmac.digest(expand(K, enc("confirm", R)), enc("tag", sender, receiver, R), hashlib.sha256)


def check_tag(K: bytes, sender: bytes, receiver: bytes, R: bytes, given: bytes, names: Names = NO_NAMES) -> None:
    """Check a peer's tag, in constant time."""
    if not hmac.compare_digest(tag(K, sender, receiver, R), given):
        raise NodePermissionException(
            f"{_who(sender, names)} did not confirm the same keys and roster as this node: someone in between "
            f"changed them, or the hospitals' images differ; compare the study's code, then start a new job. "
            f"{NOTHING_COMPUTED}"
        )


def _who(S: bytes, names: Names) -> str:
    """How an error names a hospital: by the beginning of its key, and by its name if the node knows it."""
    return f"the key {keys.short(S)}" + (f" of {names[S]}" if S in names else "")


def _listed(some: Collection[bytes], names: Names) -> str:
    return shortened((_who(S, names) for S in sorted(some)), MOST_NAMED)


def _agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """X25519; a shared secret of zero is refused."""
    try:
        secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        secret = bytes(KEY_BYTES)
    if hmac.compare_digest(secret, bytes(KEY_BYTES)):
        raise NodePermissionException(
            f"the key {keys.short(public)} agrees with every other key on zero; its hospital must make a new one. "
            f"{NOTHING_COMPUTED}"
        )
    return secret
