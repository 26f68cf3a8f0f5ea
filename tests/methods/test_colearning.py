"""Co-Learning: rounds by hand."""

import math

import numpy as np
from by_hand import SEED, arrays, average, check, epoch, order, step
from helpers import train

from v6_workbench.conformance import MethodCase, conformance_tests


def follow(result, nodes):
    """The mean of models after the epochs of each round, of one step each, whose rate falls within the round."""
    settings, w = result["settings"], np.zeros(5)
    for row in result["history"]:
        models = {}
        for k in row["participants"]:
            models[k] = w
            for e in range(row["epochs"]):
                models[k] = step(models[k], nodes[k], settings["lr"] * settings["lr_cycle"] ** (e / row["epochs"]))
        w = average(nodes, models)
    return w


test_conformance = conformance_tests(
    MethodCase("colearning", {"tolerance": 0.0}, follow=follow, noisy={"maximum_epochs": 2})
)


def test_colearning(hospitals):
    """Xu et al. 2018; the poster: eta_0 = 0.3, lambda = 0.25, E_0 = 2, epsilon = 0.25, B = 10."""
    result = train(
        "v6_colearning",
        hospitals,
        rounds=6,
        lr_decay_step=0.02,
        epochs=2,
        batch_size=10,
        lr=0.3,
        lr_cycle=0.25,
        tolerance=0.25,
        holdout=0,
        seed=SEED,
    )
    n = sum(len(rows) for rows in hospitals.values())
    w, E, done = np.zeros(5), 2, 0
    for t in range(1, 7):
        assert result["history"][t - 1]["epochs"] == E
        models = {}
        for k, rows in hospitals.items():
            X, y = arrays(rows)
            v, shuffle = w.copy(), order(k, t)
            steps = math.ceil(len(y) / 10)
            for e in range(E):

                def eta(i, e=e, E=E, steps=steps, done=done):
                    return 0.3 / (1 + 0.02 * ((done + e) * steps + i)) * 0.25 ** (e / E)

                v = epoch(v, X, y, 10, shuffle, eta)
            models[k] = v
        done += E
        before, w = w, sum(len(hospitals[k]) / n * models[k] for k in hospitals)
        if np.any(before) and np.linalg.norm(w - before) / np.linalg.norm(before) <= 0.25:
            E = 2 * E
    assert E > 2, "the schedule was put to the test"
    check(result, w)


def test_colearning_has_a_cap(hospitals):
    result = train("v6_colearning", hospitals, rounds=12, epochs=1, tolerance=10.0, maximum_epochs=3, lr=0.1)
    assert [row["epochs"] for row in result["history"]][-1] == 3
