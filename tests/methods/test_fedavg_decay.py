"""FedAvg with fewer epochs or larger minibatches from round to round: by hand, and what does not fit them."""

import numpy as np
import pytest
from by_hand import SEED, arrays, average, check, epoch, order
from helpers import refused, train

from v6_fedavg.decay import LocalDecay
from v6_federated import LARGE, LocalSGD

JOB = {"lr": 0.2, "holdout": 0, "seed": SEED}
FEWER = {"epochs": 4, "epochs_decay_round": 0.5}
LARGER = {"batch_size": 10, "batch_size_growth_round": 1.5}
REFUSED = [
    ({"epochs_decay_round": 0.5}, "cannot be used with epochs=1: less cannot be; set epochs higher"),
    ({**FEWER, "local_steps": 3}, "epochs=4 cannot be used with local_steps"),
    ({"batch_size_growth_round": 2}, "batch_size_growth_round=2.0 needs batch_size; set batch_size=32"),
    ({**FEWER, "lr_decay_step": 0.1}, "lr_decay_step cannot be used with epochs_decay_round"),
    ({**LARGER, "lr_decay_step": 0.1}, "lr_decay_step cannot be used with batch_size_growth_round"),
    ({**FEWER, "until_converged": 0.01}, "epochs_decay_round=0.5 cannot be used with until_converged"),
    ({**FEWER, "clip": 1.0, "noise": 1.0}, "epochs_decay_round=0.5 cannot be used with clip"),
    ({"epochs": 4, "epochs_decay_round": 1.5}, "epochs_decay_round=1.5 is refused"),
    ({"batch_size": 10, "batch_size_growth_round": 0.9}, "batch_size_growth_round=0.9 is refused"),
    ({"batch_size": 10, "batch_size_growth_round": float("inf")}, "batch_size_growth_round"),
]


def by_hand(nodes, E, B):
    """Algorithm 1 with E[t] epochs of minibatches of B[t] rows in round t; B above a node's rows means all of them."""
    w = np.zeros(5)
    for t, (epochs, size) in enumerate(zip(E, B, strict=True), start=1):
        models = {}
        for k, rows in nodes.items():
            X, y = arrays(rows)
            models[k], shuffle = w, order(k, t)
            for _ in range(epochs):
                models[k] = epoch(models[k], X, y, size, shuffle, lambda i: 0.2)
        w = average(nodes, models)
    return w


def test_fewer_epochs_by_hand(hospitals):
    """4, 4 * .5, 4 * .25 and then 1, as .5 rounds to 1 and less than that stays 1."""
    result = train("v6_fedavg", hospitals, rounds=5, batch_size=10, **FEWER, **JOB)
    assert [(row["epochs"], row["batch_size"]) for row in result["history"]] == [
        (4, 10),
        (2, 10),
        (1, 10),
        (1, 10),
        (1, 10),
    ]
    check(result, by_hand(hospitals, [4, 2, 1, 1, 1], [10] * 5))


def test_larger_minibatches_by_hand(hospitals):
    """10, 15, 22.5 rounded, 33.75 rounded."""
    result = train("v6_fedavg", hospitals, rounds=4, epochs=2, **LARGER, **JOB)
    assert [row["batch_size"] for row in result["history"]] == [10, 15, 23, 34]
    check(result, by_hand(hospitals, [2] * 4, [10, 15, 23, 34]))


def test_as_many_steps_on_more_rows(hospitals):
    result = train("v6_fedavg", hospitals, rounds=2, local_steps=2, lr_decay_step=0.1, **LARGER, **JOB)
    assert [row["batch_size"] for row in result["history"]] == [10, 15]
    assert all("epochs" not in row for row in result["history"])


def test_after_very_many_rounds():
    decay = LocalDecay(epochs_decay_round=0.5, batch_size_growth_round=2)
    last = decay.local(LocalSGD(epochs=9, batch_size=10), 100_000)
    assert (last.epochs, last.batch_size) == (1, LARGE)


@pytest.mark.parametrize("settings", [FEWER, LARGER, {**FEWER, **LARGER}])
def test_resuming_equals_a_straight_run(hospitals, settings):
    half = train("v6_fedavg", hospitals, rounds=2, **settings)
    resumed = train("v6_fedavg", hospitals, rounds=4, resume=half, **settings)
    straight = train("v6_fedavg", hospitals, rounds=4, **settings)
    assert resumed["weights"] == straight["weights"]
    kept = [[(row.get("epochs"), row.get("batch_size")) for row in result["history"]] for result in (resumed, straight)]
    assert kept[0] == kept[1]


def test_cycles_and_own_models_train_less_too(hospitals):
    for settings in ({"schedule": "cyclic"}, {"personalize": "ditto", "holdout": 0.4}):
        plain = {**JOB, "epochs": 4, **settings}
        fewer = train("v6_fedavg", hospitals, rounds=2, **{**plain, **FEWER})
        assert [row["epochs"] for row in fewer["history"]] == [4, 2]
        assert fewer["weights"] != train("v6_fedavg", hospitals, rounds=2, **plain)["weights"]


def test_without_a_factor_the_history_is_as_before(hospitals):
    result = train("v6_fedavg", hospitals, rounds=1, epochs=2, batch_size=10)
    assert not {"epochs", "batch_size"} & {*result["history"][0]}


@pytest.mark.parametrize(("settings", "says"), REFUSED)
def test_what_does_not_fit_is_refused_in_a_line(hospitals, settings, says):
    assert "\n" not in refused(says, hospitals, **settings)


def test_a_node_still_refuses_small_minibatches(hospitals):
    """The first rounds' minibatches are the smallest."""
    refused("batch_size=10 is below the 12 rows", hospitals, environment={"V6_FEDERATED_MINIMUM_BATCH": "12"}, **LARGER)
