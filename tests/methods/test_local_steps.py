"""Local steps in place of epochs."""

import numpy as np
import pytest
from by_hand import check
from helpers import train

from v6_federated import UserInputError
from v6_federated.base.randomness import generator
from v6_workbench import registry

JOB = {"batch_size": 10, "lr": 0.3, "holdout": 0, "rounds": 2, "seed": 4}


def test_steps_by_hand(hospitals):
    """Each node takes five steps a round, through as many of its epochs as that needs: FedAvg, B = 10, eta_i decays."""
    result = train("v6_fedavg", hospitals, local_steps=5, lr_decay_step=0.1, **JOB)
    w_t = np.zeros(5)
    for t in (1, 2):
        w_k = {}
        for k, rows in hospitals.items():
            X = np.column_stack([rows.iloc[:, :-1].to_numpy(np.float32), np.ones(len(rows))]).astype(float)
            y, shuffle, w, taken = rows["label"].to_numpy(float), generator(4, "shuffle", k, t), w_t.copy(), 0
            while taken < 5:
                order = shuffle.permutation(len(y))
                for start in range(0, len(y), 10):
                    b = order[start : start + 10]
                    if taken < 5:
                        eta = 0.3 / (1 + 0.1 * ((t - 1) * 5 + taken))
                        w = w - eta * ((1 / (1 + np.exp(-X[b] @ w)) - y[b]) @ X[b]) / len(b)
                        taken += 1
            w_k[k] = w
        n = sum(map(len, hospitals.values()))
        w_t = sum(len(hospitals[k]) / n * w for k, w in w_k.items())
    check(result, w_t)


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "dynavg", "coop"])
def test_as_many_steps_as_two_epochs_have(hospitals, method):
    """All nodes with the same rows: steps of two epochs are those of ``epochs=2``."""
    same = dict.fromkeys(hospitals, hospitals[3])
    steps = 2 * -(-len(hospitals[3]) // 10)
    by_steps = train(f"v6_{method}", same, local_steps=steps, **JOB)
    assert by_steps["weights"] == train(f"v6_{method}", same, epochs=2, **JOB)["weights"]
    assert by_steps["weights"] != train(f"v6_{method}", same, epochs=1, **JOB)["weights"]


@pytest.mark.parametrize("method", registry.names())
def test_methods_that_count_epochs_refuse_them(hospitals, method):
    if "local_steps" not in registry.settings_of(method).model_fields:
        return
    if method in ("colearning", "loadaboost"):
        with pytest.raises(UserInputError, match=r"local_steps has no effect on .*, which counts epochs; leave it out"):
            train(f"v6_{method}", hospitals, local_steps=5, **JOB)
    else:
        assert train(f"v6_{method}", hospitals, local_steps=5, **JOB)["history"]


@pytest.mark.parametrize("protocol", ["svd", "loss"])
def test_a_schedule_of_communication_counts_epochs(hospitals, protocol):
    with pytest.raises(
        UserInputError, match=f"protocol={protocol} cannot be used with local_steps: its schedule counts epochs"
    ):
        train("v6_dynavg", hospitals, local_steps=5, protocol=protocol, **JOB)


def test_a_privacy_plan_counts_epochs(hospitals):
    with pytest.raises(UserInputError, match="its plan counts epochs; use epochs in its place"):
        train("v6_fedavg", hospitals, rounds=1, local_steps=5, clip=1.0, epsilon=1.0, aggregation="masked")
