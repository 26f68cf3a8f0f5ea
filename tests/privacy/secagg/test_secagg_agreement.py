"""Roster, pair keys and tags: both sides agree, and everything that somebody in between changes is noticed."""

import dataclasses

import pytest
import second
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks import keys
from v6_federated.masks.agreement import Entry, check_roster, check_tag, pair_key, roster_digest, tag


def private(text):
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(text))


def entry(vectors, i):
    h = vectors["hospitals"][i]
    return Entry(*(bytes.fromhex(h[name]) for name in "SED"), version=vectors["version"])


def test_vectors(vectors):
    study, job = bytes.fromhex(vectors["study"]["digest"]), vectors["job"]
    for members, block in zip(vectors["study"]["blocks"], vectors["blocks"], strict=True):
        entries = [entry(vectors, i) for i in members]
        R = roster_digest(study, job, entries)
        assert R.hex() == block["R"]
        for made in block["pairs"]:
            own, peer = (entries[made[name]] for name in ("of", "with"))
            hospital = vectors["hospitals"][members[made["of"]]]
            K = pair_key(private(hospital["s"]), private(hospital["e"]), own, peer, study, job)
            assert K.hex() == made["K"]
            assert tag(K, own.S, peer.S, R).hex() == made["tag"]
            check_tag(K, own.S, peer.S, R, bytes.fromhex(made["tag"]))


def test_both_sides_have_one_key_and_no_two_pairs_have_the_same(block_of):
    block = block_of(5)
    found = {}
    for own, K in zip(block.entries, block.K, strict=True):
        for peer, key in K.items():
            found.setdefault(frozenset((own.S, peer)), set()).add(key)
    assert len(found) == 10 and all(len(both) == 1 for both in found.values())
    assert len({key for [key] in found.values()}) == 10


def test_another_job_or_study_has_other_keys(block_of):
    blocks = [block_of(2), block_of(2, job="other"), block_of(2, study=bytes([1] * 32))]
    assert len({key for block in blocks for key in block.K[0].values()}) == 3
    assert len({block.R for block in blocks}) == 3


def test_an_entry_is_read_as_it_was_written(block_of):
    for own in block_of(3).entries:
        assert Entry.from_json(own.to_json()) == own


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"S": "00"}, "32 bytes"),
        ({"S": "00" * 32}, "small order"),
        ({"E": "00" * 32}, "small order"),
        ({"E": "ff" * 32}, "one accepted form"),
        ({"D": "00" * 31}, "31 bytes; expected 32"),
        ({"D": "xx"}, "hexadecimal"),
        ({"D": 1}, "must be texts"),
        ({"version": ""}, "printable text of 1 to 100"),
        ({"version": "1\n"}, "printable text"),
        ({"more": "x"}, "nothing else"),
    ],
)
def test_a_malformed_entry_is_refused(block_of, change, error):
    with pytest.raises(SafeError, match=error):
        Entry.from_json(block_of(2).entries[0].to_json() | change)


def test_no_entry_is_refused():
    with pytest.raises(SafeError, match="must have S, E, D and version"):
        Entry.from_json([])


def test_the_order_of_the_roster_does_not_matter_and_all_else_does(block_of):
    block = block_of(3)
    assert roster_digest(block.study, block.job, block.entries[::-1]) == block.R
    first, *rest = block.entries
    changes = {"E": rest[0].S, "D": bytes([9] * 32), "version": "2.0"}
    others = [[dataclasses.replace(first, **{name: value}), *rest] for name, value in changes.items()]
    assert len({block.R, *(roster_digest(block.study, block.job, other) for other in [*others, rest])}) == 5


@pytest.mark.parametrize("name", ["S", "E"])
def test_a_key_twice_in_the_roster_is_refused(block_of, name):
    first, *rest = block_of(3).entries
    twin = dataclasses.replace(rest[0], **{name: getattr(first, name)})
    with pytest.raises(SafeError, match=f"two entries with the same key {name}"):
        roster_digest(bytes(32), "job", [first, twin])


def test_swapped_job_keys_are_noticed(vectors, block_of):
    """Central gives node 0 a roster in which the job keys of 1 and 2 are swapped."""
    block = block_of(3)
    own, a, b = block.entries
    swapped = [own, dataclasses.replace(a, E=b.E), dataclasses.replace(b, E=a.E)]
    R = roster_digest(block.study, block.job, swapped)
    K = pair_key(block.s[0], block.e[0], own, swapped[1], block.study, block.job)
    assert block.K[0][a.S] != K
    with pytest.raises(NodePermissionException, match=r"of North did not confirm .* compare the study's code") as error:
        check_tag(K, a.S, own.S, R, tag(block.K[1][own.S], a.S, own.S, block.R), {a.S: "North", b.S: "South"})
    assert str(error.value).startswith(f"the key {keys.short(a.S)} of North did not")

    given = vectors["negatives"]["swapped_E"]
    entries = [entry(vectors, i) for i in range(3)]
    entries[0], entries[1] = (dataclasses.replace(x, E=y.E) for x, y in (entries[:2], entries[1::-1]))
    R = roster_digest(bytes.fromhex(vectors["study"]["digest"]), vectors["job"], entries)
    made = vectors["blocks"][0]["pairs"][0]
    assert R.hex() == given["R"] != vectors["blocks"][0]["R"]
    assert tag(bytes.fromhex(made["K"]), entries[0].S, entries[1].S, R).hex() == given["tag"] != made["tag"]


def test_a_wrong_tag_is_refused(vectors):
    made = vectors["blocks"][0]["pairs"][0]
    K, R = bytes.fromhex(made["K"]), bytes.fromhex(vectors["blocks"][0]["R"])
    S, peer = (bytes.fromhex(vectors["hospitals"][i]["S"]) for i in (0, 1))
    own = bytes.fromhex(made["tag"])
    for wrong in (bytes.fromhex(vectors["negatives"]["wrong_tag"]), own[:31], b"", own + b"\0"):
        with pytest.raises(NodePermissionException, match=f"{keys.short(S)} did not confirm"):
            check_tag(K, S, peer, R, wrong)
    with pytest.raises(NodePermissionException):  # a node's own tag, reflected
        check_tag(K, peer, S, R, own)


@pytest.mark.parametrize("name", ["S", "E"])
def test_a_point_of_small_order_is_refused_even_past_the_entry(block_of, vectors, name):
    block = block_of(2)
    own, peer = block.entries
    for point in vectors["negatives"]["zero_points"]:
        forged = object.__new__(Entry)
        parts = {"S": peer.S, "E": peer.E, "D": peer.D, "version": peer.version, name: bytes.fromhex(point)}
        for key, value in parts.items():
            object.__setattr__(forged, key, value)
        with pytest.raises(NodePermissionException, match="agrees with every other key on zero"):
            pair_key(block.s[0], block.e[0], own, forged, block.study, block.job)


def test_a_node_agrees_neither_with_itself_nor_with_foreign_keys(block_of):
    block = block_of(2)
    own, peer = block.entries
    with pytest.raises(NodePermissionException, match="this node's own key"):
        pair_key(block.s[0], block.e[0], own, own, block.study, block.job)
    with pytest.raises(NodePermissionException, match="not those that it sent at the job's beginning"):
        pair_key(block.s[0], block.e[1], own, peer, block.study, block.job)
    with pytest.raises(NodePermissionException, match="not those that it sent"):
        pair_key(block.s[1], block.e[0], own, peer, block.study, block.job)


def test_the_key_depends_on_each_of_the_four_agreements(block_of):
    """With two (identity with identity, job with job), a thief of s_0 could pose as any peer to node 0."""
    block = block_of(2)
    lo, hi = sorted(range(2), key=lambda i: block.entries[i].S)
    s, e = ([x.private_bytes_raw() for x in private] for private in (block.s, block.e))
    S, E = ([getattr(entry, name) for entry in block.entries] for name in "SE")
    agreements = [
        second.x25519(s[lo], S[hi]),
        second.x25519(e[lo], E[hi]),
        second.x25519(e[lo], S[hi]),
        second.x25519(s[lo], E[hi]),
    ]
    info = second.enc("pair", block.job, S[lo], E[lo], S[hi], E[hi])
    K = block.K[lo][S[hi]]
    assert second.hkdf(block.study, b"".join(agreements), info) == K
    assert agreements[2] == second.x25519(s[hi], E[lo])  # needs e_lo or s_hi: s_lo alone makes it not
    assert agreements[3] == second.x25519(e[hi], S[lo])  # needs s_lo or e_hi
    for i in range(4):
        without = [*agreements[:i], bytes(32), *agreements[i + 1 :]]
        assert second.hkdf(block.study, b"".join(without), info) != K


def test_check_roster(block_of):
    block = block_of(4)
    own, *peers = block.entries
    pinned = [e.S for e in block.entries]
    check_roster(block.entries, own, pinned, 3)
    check_roster(block.entries, own, None, 4)
    newer = dataclasses.replace(peers[0], version="2.0")
    for entries, members, minimum, error in [
        (peers, pinned, 3, "lacks this node's own entry, or changes it"),
        ([dataclasses.replace(own, D=bytes([9] * 32)), *peers], pinned, 3, "lacks this node's own entry, or changes"),
        (block.entries[:3], pinned, 3, "not this node's block of the study: 0 keys too many, 1 missing"),
        (block.entries, pinned[:3], 3, "1 keys too many, 0 missing"),
        (block.entries, None, 5, "has 4 hospitals and must have at least 5"),
        ([own, newer, *peers[1:]], pinned, 3, r"runs version 1.0 and others run 2.0"),
    ]:
        with pytest.raises(NodePermissionException, match=error):
            check_roster(entries, own, members, minimum)


def test_a_roster_that_is_not_the_block_names_keys_and_hospitals(block_of):
    """Central has put a stranger's key in the place of North's."""
    block = block_of(5)
    own, north, *others, stranger = block.entries
    pinned = {e.S: name for e, name in zip(block.entries[:4], ("Own", "North", "East", "West"), strict=True)}
    with pytest.raises(NodePermissionException) as error:
        check_roster([own, *others, stranger], own, pinned, 3, pinned)
    listed = f"too many: the key {keys.short(stranger.S)}; missing: the key {keys.short(north.S)} of North"
    assert f"1 keys too many, 1 missing ({listed}); train with the whole block" in str(error.value)
    many = block_of(12).entries
    with pytest.raises(NodePermissionException, match=r"11 missing \(missing: the key .* and 6 more\)"):
        check_roster(many[:1], many[0], [e.S for e in many], 3)
