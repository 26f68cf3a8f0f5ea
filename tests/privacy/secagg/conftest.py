"""Fixtures of the tests of secure aggregation: the vectors, and a block of hospitals in folders."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import single_values
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from v6_federated.masks import agreement, keys
from v6_federated.masks.study import Hospital, Study


@pytest.fixture(scope="session")
def vectors():
    return json.loads(single_values.FILE.read_text(encoding="utf-8"))


@dataclass
class Block:
    """A block of hospitals with fixed keys that have agreed on pair keys."""

    s: list
    e: list
    entries: list
    study: bytes
    job: str
    R: bytes
    K: list  # by hospital: the pair key by the peer's S


@pytest.fixture(scope="session")
def block_of():
    """Make a block of N hospitals."""

    def make(n: int, job: str = "job", study: bytes = bytes(32)) -> Block:
        private = [
            [X25519PrivateKey.from_private_bytes(hashlib.sha256(f"{kind}{i}".encode()).digest()) for i in range(n)]
            for kind in "se"
        ]
        s, e = private
        entries = [
            agreement.Entry(keys.public_of(a), keys.public_of(b), bytes([i] * 32), "1.0")
            for i, (a, b) in enumerate(zip(s, e, strict=True))
        ]
        K = [
            {peer.S: agreement.pair_key(s[i], e[i], own, peer, study, job) for peer in entries if peer.S != own.S}
            for i, own in enumerate(entries)
        ]
        return Block(s, e, entries, study, job, agreement.roster_digest(study, job, entries), K)

    return make


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    """Eight hospitals' own folders, each with an identity key."""
    made = [tmp_path / str(i) for i in range(8)]
    for folder in made:
        folder.mkdir()
        keys.new_identity(folder)
    return made


@pytest.fixture
def study_of(folders):
    """Make a study of the folders' hospitals: blocks are lists of their numbers."""

    def make(*blocks: list[int], version: int = 1, **kwargs) -> Study:
        key = [keys.public_of(keys.identity(folder)) for folder in folders]
        dealt = tuple(tuple(Hospital(f"H{i}", key[i]) for i in block) for block in blocks)
        return Study("Trial", version, dealt, **{"hospital_totals": "told", **kwargs})

    return make
