"""Rates and optimisers of local steps, the same in every method that takes them."""

import numpy as np
import pytest
import torch
from by_hand import arrays, gradient
from helpers import table, train

from v6_federated import LocalSGD
from v6_federated.messages import codec
from v6_federated.node import local_training


@pytest.mark.parametrize("decay", [{"lr_decay_step": 0.5}, {"lr_decay_round": 0.5}, {}])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_rates_and_optimizers_of_local_steps(decay, optimizer):
    """Three steps a round on all rows, in rounds 1 and 2: rates lr d^(t-1), or lr / (1 + d i) with the steps of all
    rounds, and Adam anew in each round (Kingma and Ba 2015, Algorithm 1, epsilon 1e-7)."""
    rows = table(40)
    X, y = arrays(rows)

    def after_two_rounds(steps):
        w = np.zeros(5)
        for t in (1, 2):
            m, v = np.zeros(5), np.zeros(5)
            for i in range(1, steps + 1):
                taken = 3 * (t - 1) + i - 1
                eta = 0.2 * decay.get("lr_decay_round", 1) ** (t - 1) / (1 + decay.get("lr_decay_step", 0) * taken)
                g = gradient(w, X, y)
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                adam = (m / (1 - 0.9**i)) / (np.sqrt(v / (1 - 0.999**i)) + 1e-7)
                w = w - eta * (g if optimizer == "sgd" else adam)
        return w

    w, half = after_two_rounds(3), after_two_rounds(1)
    settings = {"rounds": 2, "lr": 0.2, "holdout": 0, "classes": [0, 1], **decay}
    three = {
        "v6_fedavg": {"epochs": 3},
        "v6_scaffold": {"epochs": 3},
        "v6_loadaboost": {"epochs": 3, "retrain": "above"},
        "v6_colearning": {"epochs": 3, "tolerance": 0.0, "lr_cycle": 1.0},
        "v6_coop": {"epochs": 3},
        "v6_dynavg": {"epochs": 3, "protocol": "svd"},
    }
    for package, own in three.items():
        if package == "v6_scaffold" and optimizer == "adam":
            continue
        chosen = {} if package == "v6_scaffold" else {"optimizer": optimizer}
        found = codec.decode(train(package, {1: rows}, **settings, **own, **chosen)["weights"])["weights"]
        if package == "v6_coop":  # which merges, and so only the direction of its first step is the same
            plain = codec.decode(train(package, {1: rows}, **settings, **own)["weights"])["weights"]
            assert (optimizer == "adam") == bool(np.abs(found - plain).max() > 1e-3)
        else:  # LoAdaBoost's node does E / 2 passes: its loss is the median
            expected = half if package == "v6_loadaboost" else w
            np.testing.assert_allclose(found, expected, atol=2e-6, err_msg=package)


def test_adam_is_torchs():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(6, 7)).astype(np.float32)
    w, theirs = np.zeros(7, np.float32), torch.zeros(7, requires_grad=True)
    step = local_training.optimizer(LocalSGD(optimizer="adam"), lambda i: 0.1 / (1 + i), w_t=None)
    reference = torch.optim.Adam([theirs], lr=0.1, eps=1e-7)
    for i, g in enumerate(gradients):
        step(w, g.copy())
        reference.param_groups[0]["lr"] = 0.1 / (1 + i)
        theirs.grad = torch.from_numpy(g)
        reference.step()
    np.testing.assert_allclose(w, theirs.detach().numpy(), atol=1e-6)
