"""What central keeps after each round."""

from pathlib import Path

from v6_federated.central.checkpoint import Checkpoint


def test_a_disk_that_was_full_for_a_moment_spoils_no_later_checkpoint(tmp_path, monkeypatch):
    """A line of rounds that was cut is written again, and the next reader finds all rounds."""
    kept, history = Checkpoint(tmp_path, "fedavg-1"), []

    def save(t):
        history.append({"round": t})
        kept.save({"history": history, "per_node": [{"round": t, "organization_id": 7}], "round": t})

    truly = Path.open

    def full(path, mode="r", *arguments, **options):
        with truly(path, mode, *arguments, **options) as stream:
            stream.write('{"row": {"ro')
        raise OSError(28, "No space left on device")

    for t in (1, 2, 3):
        save(t)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        save(4)
    assert (tmp_path / "checkpoint-fedavg-1.jsonl").read_text().endswith('{"row": {"ro')
    for t in (5, 6):
        save(t)
        assert Checkpoint(tmp_path, "fedavg-1").load()["history"] == history
