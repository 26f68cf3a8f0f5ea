"""LoAdaBoost: rounds by hand."""

import numpy as np
import pytest
from by_hand import SEED, arrays, average, check, epoch, loss, order, rows_of, step
from helpers import train

from v6_workbench.conformance import MethodCase, conformance_tests


def follow(result, nodes):
    """The mean of models after as many steps as each node says that it took."""
    lr, w = result["settings"]["lr"], np.zeros(5)
    for t in range(1, len(result["history"]) + 1):
        used = {row["organization_id"]: row["epochs"] for row in rows_of(result, t)}
        w = average(nodes, {k: step(w, nodes[k], lr, epochs) for k, epochs in used.items()})
    return w


test_conformance = conformance_tests(MethodCase("loadaboost", {"epochs": 3}, follow=follow))


@pytest.mark.parametrize("retrain", ["above", "below"])
def test_loadaboost(hospitals, retrain):
    """Huang et al. 2020; the poster: E = 6, so 3 epochs, then 2, 1, 1, ... more up to 9 in all; eta = 0.1, B = 10."""
    result = train(
        "v6_loadaboost", hospitals, rounds=3, epochs=6, batch_size=10, lr=0.1, holdout=0, seed=SEED, retrain=retrain
    )
    n = sum(len(rows) for rows in hospitals.values())
    w, median = np.zeros(5), None
    for t in (1, 2, 3):
        models, losses, used = {}, {}, {}
        for k, rows in hospitals.items():
            X, y = arrays(rows)
            v, shuffle = w.copy(), order(k, t)

            def run(v, epochs, X=X, y=y, shuffle=shuffle):
                for _ in range(epochs):
                    v = epoch(v, X, y, 10, shuffle, lambda i: 0.1)
                return v

            v, used[k], trial = run(v, 3), 3, 1
            while median is not None and used[k] < 9:
                if not (loss(v, X, y) > median if retrain == "above" else loss(v, X, y) < median):
                    break
                more = min(max(3 - trial, 1), 9 - used[k])
                v, used[k], trial = run(v, more), used[k] + more, trial + 1
            models[k], losses[k] = v, loss(v, X, y)
        w = sum(len(hospitals[k]) / n * models[k] for k in hospitals)
        median = np.median(list(losses.values()))
        rows = [row for row in result["per_node"] if row["round"] == t]
        assert {row["organization_id"]: row["epochs"] for row in rows} == used
        assert result["history"][t - 1]["median_loss"] == pytest.approx(median, abs=1e-6)
    check(result, w)
