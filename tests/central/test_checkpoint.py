"""What central keeps after each round."""

import os

import pytest

from v6_federated.base.errors import SafeError
from v6_federated.central import checkpoint
from v6_federated.central.checkpoint import Checkpoint


def test_a_disk_that_was_full_for_a_moment_spoils_no_later_checkpoint(tmp_path, monkeypatch):
    """A line of rounds that was cut is written again, and the next reader finds all rounds."""
    kept, history = Checkpoint(tmp_path, "fedavg-1"), []

    def save(t):
        history.append({"round": t})
        kept.save({"history": history, "per_node": [{"round": t, "organization_id": 7}], "round": t})

    def full(file, append):
        with file.open("a") as stream:
            stream.write('{"row": {"ro')
        raise OSError(28, "No space left on device")

    for t in (1, 2, 3):
        save(t)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "open_regular", full)
        save(4)
    assert (tmp_path / "checkpoint-fedavg-1.jsonl").read_text().endswith('{"row": {"ro')
    for t in (5, 6):
        save(t)
        assert Checkpoint(tmp_path, "fedavg-1").load()["history"] == history


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_a_link_in_the_place_of_a_checkpoint_is_refused_and_not_followed(tmp_path, ending):
    """All containers of a job share the folder."""
    folder, other = tmp_path / "job", tmp_path / "other"
    kept = Checkpoint(folder, "fedavg-1")
    snapshot = {"history": [{"round": 1}], "per_node": [], "round": 1}
    kept.save(snapshot)
    other.write_text(text := (folder / f"checkpoint-fedavg-1.{ending}").read_text())
    (folder / f"checkpoint-fedavg-1.{ending}").unlink()
    (folder / f"checkpoint-fedavg-1.{ending}").symlink_to(other)
    for use in (lambda: kept.save({**snapshot, "round": 2}), Checkpoint(folder, "fedavg-1").load):
        with pytest.raises(SafeError, match=f"checkpoint-fedavg-1.{ending} in a folder of the node is a link"):
            use()
    assert other.read_text() == text
    kept.remove()
    assert other.read_text() == text and not list(folder.iterdir())


def test_what_a_killed_process_left_is_removed(tmp_path, monkeypatch):
    kept = Checkpoint(tmp_path, "fedavg-1")
    kept.save({"history": [], "per_node": [], "round": 0})
    (tmp_path / f"checkpoint-fedavg-1.json.{'0' * 32}.part").write_text("half")
    kept.remove()
    assert not os.listdir(tmp_path)
