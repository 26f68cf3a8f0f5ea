"""Files that are written whole or not at all."""

import os
import secrets

import pytest

from v6_federated.base import files
from v6_federated.base.errors import SafeError
from v6_federated.base.files import check_regular, open_regular, replacing, write_whole


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_and_its_folder_are_made_and_the_file_is_replaced(tmp_path, durable):
    file = tmp_path / "new" / "result.json"
    for text in ("first", "später"):
        write_whole(file, text, durable)
        assert file.read_text(encoding="utf-8") == text
    assert [f.name for f in file.parent.iterdir()] == ["result.json"]


def test_a_file_of_keys_can_never_be_read_by_others(tmp_path, monkeypatch):
    """Also not while it is written, whatever the process's umask is."""
    modes = []
    monkeypatch.setattr(os, "fsync", lambda stream: modes.append(os.fstat(stream).st_mode & 0o777))
    before = os.umask(0)
    try:
        write_whole(tmp_path / "keys.json", "{}", durable=True, mode=0o600)
    finally:
        os.umask(before)
    assert [*modes, (tmp_path / "keys.json").stat().st_mode & 0o777] == [0o600, 0o600]


@pytest.mark.parametrize("durable", [False, True])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch, durable):
    file = tmp_path / "result.json"
    write_whole(file, "first", durable)

    def full(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync" if durable else "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(file, "second", durable)
    assert file.read_text() == "first" and [f.name for f in tmp_path.iterdir()] == ["result.json"]


def test_the_name_of_a_temporary_file_cannot_be_foreseen(tmp_path):
    """A link of that name would be written through, to any file that the process can write."""
    file, names = tmp_path / "state.npz", set()
    for _ in range(3):
        with replacing(file) as stream:
            (part,) = (f for f in tmp_path.iterdir() if f != file)
            names.add(part.name)
            stream.write(b"x")
    assert len(names) == 3 and all(len(name) >= len("state.npz..part") + 32 for name in names)


def test_a_link_of_the_name_of_a_temporary_file_is_not_written_through(tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.write_text("kept")
    monkeypatch.setattr(secrets, "token_hex", lambda n: "known")
    (tmp_path / "state.npz.known.part").symlink_to(other)
    with pytest.raises(FileExistsError), replacing(tmp_path / "state.npz") as stream:
        stream.write(b"x")
    assert other.read_text() == "kept" and not (tmp_path / "state.npz").exists()


def planted(file, kind, other):
    """Put something that is no regular file in the place of a file."""
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to(other if kind == "link" else file.parent / "nothing")


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
@pytest.mark.parametrize("append", [False, True])
def test_what_another_program_put_there_is_neither_read_nor_written(tmp_path, kind, append):
    """A pipe would keep the reader waiting for ever."""
    other = tmp_path / "other"
    other.write_text("kept")
    planted(tmp_path / "state.npz", kind, other)
    says = "state.npz in a folder of the node is a link or no regular file, which another program has put there; ask"
    for use in (lambda: open_regular(tmp_path / "state.npz", append), lambda: check_regular(tmp_path / "state.npz")):
        with pytest.raises(SafeError, match=says):
            use()
    assert other.read_text() == "kept"


def test_a_link_that_is_planted_after_the_check_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "state.npz").symlink_to(tmp_path / "other")
    (tmp_path / "other").write_text("kept")
    monkeypatch.setattr(files, "check_regular", lambda file: None)
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "state.npz")
