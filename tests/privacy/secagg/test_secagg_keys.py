"""Identity keys: made once, kept in the folder, written so that a typing error is noticed."""

import os

import pytest
import second
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks import keys


def test_a_new_key_is_read_again_and_only_the_user_can(tmp_path):
    public = keys.new_identity(tmp_path)
    assert keys.public_of(keys.identity(tmp_path)) == public
    assert (tmp_path / "identity.key").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["identity.key"]


def test_a_key_is_never_replaced(tmp_path):
    public = keys.new_identity(tmp_path)
    with pytest.raises(SafeError, match="exists already.*keep using it, or move the file away"):
        keys.new_identity(tmp_path)
    assert keys.public_of(keys.identity(tmp_path)) == public


def test_a_folder_that_does_not_exist_has_no_key(tmp_path):
    with pytest.raises(SafeError, match="cannot be written"):
        keys.new_identity(tmp_path / "none")
    with pytest.raises(NodePermissionException, match="has no identity.key; make one with `v6-federated keys new"):
        keys.identity(tmp_path)


@pytest.mark.parametrize("content", [b"", b"key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_broken_key_is_named(tmp_path, content):
    (tmp_path / "identity.key").write_bytes(content)
    with pytest.raises(NodePermissionException, match="holds no X25519 key in PEM"):
        keys.identity(tmp_path)


def test_a_key_of_another_kind_is_refused(tmp_path):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    other = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "identity.key").write_bytes(other)
    with pytest.raises(NodePermissionException, match="holds no X25519 key"):
        keys.identity(tmp_path)


def test_a_link_in_the_keys_place_is_refused(tmp_path):
    keys.new_identity(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "identity.key").symlink_to(tmp_path / "identity.key")
    with pytest.raises(SafeError, match="link"):
        keys.identity(tmp_path / "other")


def test_vectors(vectors):
    for hospital in vectors["hospitals"]:
        S = bytes.fromhex(hospital["S"])
        assert keys.public_of(X25519PrivateKey.from_private_bytes(bytes.fromhex(hospital["s"]))) == S
        assert keys.written(S) == hospital["written"] == second.write_key(S)
        assert keys.parsed(hospital["written"]) == S
        assert hospital["written"].startswith(keys.short(S))


@given(st.binary(min_size=32, max_size=32), st.data())
def test_every_typing_error_of_one_letter_is_noticed(seed, data):
    public = X25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    text = keys.written(public).replace("-", "")
    assert keys.parsed(" ".join(text.lower())) == public
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567").filter(lambda x: x != text[place]))
    with pytest.raises(SafeError, match="typing error"):
        keys.parsed(text[:place] + letter + text[place + 1 :])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "has 56 letters"),
        ("A" * 55, "this one has 55"),
        ("!" * 56, "a character that is none of"),
        ("É" * 56, "a char"),
    ],
)
def test_what_is_no_key_is_refused(text, error):
    with pytest.raises(SafeError, match=error):
        keys.parsed(text)


def test_points_of_small_order_are_refused(vectors):
    for point in vectors["negatives"]["zero_points"]:
        with pytest.raises(ValueError):  # cryptography refuses them itself when agreeing
            X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(point)))
        with pytest.raises(SafeError, match="small order"):
            keys.check_public(bytes.fromhex(point))
        with pytest.raises(SafeError, match="small order"):
            keys.parsed(second.write_key(bytes.fromhex(point)))


def test_the_second_implementation_refuses_the_same_keys(vectors):
    negatives = vectors["negatives"]
    for wrong in (*negatives["zero_points"], negatives["not_shortest"]):
        with pytest.raises(second.Refused):
            second.checked_key(bytes.fromhex(wrong))
    with pytest.raises(second.Refused):
        second.read_key(negatives["mistyped"])
    for hospital in vectors["hospitals"]:
        assert second.read_key(hospital["written"]).hex() == hospital["S"]


def test_a_key_has_one_form(vectors):
    point = bytes.fromhex(vectors["hospitals"][0]["S"])
    for other in (bytes.fromhex(vectors["negatives"]["not_shortest"]), point[:31] + bytes([point[31] | 0x80])):
        with pytest.raises(SafeError, match="one accepted form"):
            keys.check_public(other)
    with pytest.raises(SafeError, match="32 bytes"):
        keys.check_public(point[:31])


def test_the_mistyped_vector(vectors):
    with pytest.raises(SafeError, match="typing error"):
        keys.parsed(vectors["negatives"]["mistyped"])


def test_a_key_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def denied(file):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(keys, "open_regular", denied)
    with pytest.raises(NodePermissionException, match="cannot be read .Permission denied.; correct its permissions"):
        keys.identity(tmp_path)
