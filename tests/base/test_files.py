"""Files that are written whole or not at all."""

import os

import pytest

from v6_federated.base.files import write_whole


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_and_its_folder_are_made_and_the_file_is_replaced(tmp_path, durable):
    file = tmp_path / "new" / "result.json"
    for text in ("first", "später"):
        write_whole(file, text, durable)
        assert file.read_text(encoding="utf-8") == text
    assert [f.name for f in file.parent.iterdir()] == ["result.json"]


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
