"""What a node keeps between the rounds of a job."""

import numpy as np
import pytest

from v6_federated.base.errors import SafeError
from v6_federated.node.state import State


def test_state_of_a_round_that_is_run_again(tmp_path):
    """A second try of a round finds what the first try found."""
    for round_ in (1, 2, 3):
        state = State(tmp_path, "m-job-1", round_)
        state.load(round_ - 1)
        state.save({"c": np.full(3, round_)})
    third = State(tmp_path, "m-job-1", 3)
    np.testing.assert_array_equal(third.load(2)["c"], np.full(3, 2))
    assert third.load(1) is None, "what came before the round that was loaded is gone"
    # the answer of round 3 never reached central: round 4 goes on from round 2, whose state is still there
    fourth = State(tmp_path, "m-job-1", 4)
    np.testing.assert_array_equal(fourth.load(2)["c"], np.full(3, 2))
    fourth.save({"c": np.full(3, 4)})
    np.testing.assert_array_equal(State(tmp_path, "m-job-1", 5).load(4)["c"], np.full(3, 4))
    assert State(tmp_path, "m-job-2", 3).load(3) is None and State(tmp_path, "m-other-1", 3).load(3) is None
    whole = (tmp_path / "m-job-1-round-2.npz").read_bytes()
    for broken in (b"", b"broken", whole[:-30], whole[: len(whole) // 2], whole[:60] + b"x" + whole[61:]):
        (tmp_path / "m-job-1-round-2.npz").write_bytes(broken)
        assert third.load(2) is None
    State(tmp_path, "m-job-*", 9).remove()
    assert len(list(tmp_path.iterdir())) == 2
    State(tmp_path, "m-job-1", 9).remove()
    assert not list(tmp_path.iterdir())


def test_a_masked_request_keeps_what_it_names_whatever_becomes_of_it(tmp_path):
    first = State(tmp_path, "m-job-1", 1)
    first.bind(b"T1", None)
    first.save({"c": np.ones(3)})
    second = State(tmp_path, "m-job-1", 2)
    second.bind(b"T2", 1)
    assert second.loaded_stamp == first.history != b"T1"
    with pytest.raises(SafeError, match="what `known` names and nothing else"):
        second.load(0)
    second.settle()  # nothing was saved
    third = State(tmp_path, "m-job-1", 3)
    third.bind(b"T3", 2)
    assert third.loaded_stamp == second.history and third.load(2)["c"].tolist() == [1, 1, 1]
    third.save({"c": np.zeros(3)})
    third.settle()
    assert State(tmp_path, "m-job-1", 4).load(3)["c"].tolist() == [0, 0, 0]
    lost = State(tmp_path, "m-job-2", 5)
    lost.bind(b"T5", 4)
    lost.settle()
    assert lost.loaded_stamp == b"" and State(tmp_path, "m-job-2", 6).load(5) is None, "a stamp is nothing to load"


def test_two_containers_of_one_round_keep_their_state(tmp_path, monkeypatch):
    """vantage6 may start a task twice; the one ends while the other writes."""
    first, second = (State(tmp_path, "scaffold-x-1", 5) for _ in range(2))
    truly = np.savez

    def meanwhile(stream, **arrays):
        monkeypatch.setattr(np, "savez", truly)
        truly(stream, **arrays)
        second.save({"c_k": np.ones(3)})

    monkeypatch.setattr(np, "savez", meanwhile)
    first.save({"c_k": np.zeros(3)})
    assert State(tmp_path, "scaffold-x-1", 6).load(5)["c_k"].shape == (3,)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_in_the_place_of_a_state_is_refused_and_not_followed(tmp_path):
    """Every container of the job can write to the folder: the link could lead to the rows of the node."""
    np.savez(tmp_path / "rows.npz", c=np.arange(3))
    before = (tmp_path / "rows.npz").read_bytes()
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "m-job-1-round-2.npz").symlink_to(tmp_path / "rows.npz")
    state = State(tmp_path / "job", "m-job-1", 2)
    for use in (lambda: state.load(2), lambda: state.save({"c": np.ones(3)})):
        with pytest.raises(SafeError, match="m-job-1-round-2.npz in a folder of the node is a link or no regular file"):
            use()
    state.remove()
    assert not list((tmp_path / "job").iterdir()) and (tmp_path / "rows.npz").read_bytes() == before


def test_a_folder_that_another_program_made_does_not_break_the_removal(tmp_path):
    (tmp_path / "m-job-1-round-2.npz").mkdir()
    State(tmp_path, "m-job-1", 1).save({"c": np.ones(3)})
    with pytest.raises(SafeError, match="m-job-1-round-2.npz in a folder of the node is a link or no regular file"):
        State(tmp_path, "m-job-1", 2).remove()
    assert [file.name for file in tmp_path.iterdir()] == ["m-job-1-round-2.npz"]
