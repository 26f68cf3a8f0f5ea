"""FedAvg with compressed updates: rounds by hand, bytes, and what is refused."""

import numpy as np
import pytest
from by_hand import step
from helpers import OPEN, train

from v6_federated import UserInputError
from v6_federated.messages import codec
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

JOB = {"lr": 0.3, "rounds": 4, "seed": 5, "holdout": 0, "aggregation": "plain"}


def largest(u, k):
    """The k largest numbers of u, zeros elsewhere."""
    kept = np.argsort(-np.abs(u))[:k]
    return np.where(np.isin(np.arange(len(u)), kept), u, 0)


def mean(nodes, updates):
    n = {k: len(nodes[k]) for k in updates}
    return sum(n[k] * u for k, u in updates.items()) / sum(n.values())


def test_the_largest_numbers_with_error_feedback_by_hand(hospitals):
    """Stich et al. 2018, Algorithm 1, of local updates: u_k = w_k - w_t + e_k; send the k largest; e_k <- the rest.

    With 5 numbers and a fraction of 0.4, two are sent. Two of three nodes are asked in a round, and the third keeps
    what it has left out.
    """
    result = train("v6_fedavg", hospitals, compression="topk", topk_fraction=0.4, fraction=0.7, **JOB)
    w, e = np.zeros(5), {k: np.zeros(5) for k in hospitals}
    for row in result["history"]:
        sent = {}
        for k in row["participants"]:
            u = step(w, hospitals[k], 0.3) - w + e[k]
            sent[k] = largest(u, 2)
            e[k] = u - sent[k]
        w = w + mean(hospitals, sent)
    assert {k for row in result["history"] for k in row["participants"]} == {*hospitals}
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], w, atol=1e-6)
    without = np.zeros(5)
    for row in result["history"]:  # the same without feedback is another model, so that the check can fail
        of = {k: largest(step(without, hospitals[k], 0.3) - without, 2) for k in row["participants"]}
        without = without + mean(hospitals, of)
    assert np.abs(without - w).max() > 1e-3


def test_8_bit_updates_by_hand(hospitals):
    result = train("v6_fedavg", hospitals, compression="8bit", **JOB)
    w = np.zeros(5)
    for _ in range(4):
        sent = {}
        for k, rows in hospitals.items():
            u = step(w, rows, 0.3) - w
            scale = np.abs(u).max() / 127
            sent[k] = np.rint(u / scale) * scale
        w = w + mean(hospitals, sent)
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], w, atol=1e-6)


def test_all_of_the_numbers_are_fedavg(hospitals):
    plain = codec.decode(train("v6_fedavg", hospitals, **JOB)["weights"])["weights"]
    found = train("v6_fedavg", hospitals, compression="topk", topk_fraction=1.0, **JOB)
    np.testing.assert_allclose(codec.decode(found["weights"])["weights"], plain, atol=1e-6)


def test_bytes(hospitals):
    """A number of 16/3 bytes takes 4/3 and a bit with 8bit; of a hundredth, 32/3 bytes for index and value."""
    common = {**JOB, "model": "fnn:hidden=1000", "rounds": 1, "lr": 0.1}
    d = 1000 * 5 + 1001 * 2
    up = {}
    for c in ("none", "8bit", "topk"):
        up[c] = train("v6_fedavg", hospitals, compression=c, **common)["history"][0]["bytes_up"]
    little = up["none"] - 3 * d * 16 / 3
    assert 0 < little < 6000
    assert up["8bit"] == pytest.approx(3 * d * 4 / 3 * (1 + 1 / 64) + little, rel=0.01)
    assert up["topk"] == pytest.approx(3 * 70 * 32 / 3 + little, rel=0.02)


def test_a_node_that_has_lost_what_it_left_out_says_so(hospitals):
    def lose(organization, input_):
        if (input_["method"], organization, input_["kwargs"]["round"]) == ("compressed_update", 5, 3):
            files = [*network.nodes[5].folder.rglob("*fedavg*.npz")]
            assert files
            for file in files:
                file.unlink()
        return CallOutcome()

    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=lose) as network:
        result = network.run(**JOB, compression="topk", topk_fraction=0.4)
    assert [(row["round"], row["organization_id"]) for row in result["per_node"] if row.get("state_lost")] == [(3, 5)]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"compression": "topk", "topk_fraction": 0}, "topk_fraction"),
        ({"topk_fraction": 0.1}, "topk_fraction=0.1 needs compression=topk"),
        ({"compression": "8bit", "topk_fraction": 0.1}, "topk_fraction=0.1 needs compression=topk"),
        ({"compression": "8bit", "schedule": "cyclic"}, "compression=8bit cannot be used with"),
        ({"compression": "8bit", "aggregate": "median"}, "compression=8bit cannot be used with"),
        ({"compression": "topk", "personalize": "ditto", "holdout": 0.2}, "compression=topk cannot be used with"),
        ({"compression": "8bit", "aggregation": "masked"}, "compression=8bit sends fewer bytes than masks need"),
        ({"compression": "4bit"}, "'none', '8bit' or 'topk'"),
    ],
)
def test_settings_that_do_not_fit(hospitals, asked, says):
    with pytest.raises(UserInputError, match=says):
        train("v6_fedavg", hospitals, **{**JOB, **asked})
