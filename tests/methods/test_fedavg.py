"""FederatedAveraging: two rounds by hand, FedProx, and what its settings do."""

import re
from pathlib import Path

import numpy as np
from by_hand import arrays, average, check, gradient, step
from helpers import table, train

from v6_federated.base.randomness import generator
from v6_federated.messages import codec
from v6_workbench.conformance import MethodCase, conformance_tests


def follow(result, nodes):
    """Algorithm 1 over the participants of each round, of one step on all rows each."""
    w = np.zeros(5)
    for row in result["history"]:
        w = average(nodes, {k: step(w, nodes[k], result["settings"]["lr"]) for k in row["participants"]})
    return w


HELD_OUT = "a node's own model is evaluated on rows that it holds out, and this check holds out none"
OWN_MODELS = {
    "one_node_equals_centralized_training": HELD_OUT,
    "equal_nodes_equal_one": HELD_OUT,
    "faults_end_in_a_model_or_one_line": HELD_OUT,
    "nodes_are_sent_what_central_carries": "the last request, about nodes' own models, is of no round",
}
LOSSY = {
    "one_node_equals_centralized_training": "numbers are rounded or left out",
    "half_precision_halves_the_bytes": "precision is that of the model that is sent down; updates have their own form",
}
test_conformance = conformance_tests(
    MethodCase("fedavg", follow=follow),
    *(
        MethodCase("fedavg", {"loss": loss}, name, models=("linear", "fnn:hidden=5"))
        for loss, name in (("squared", "numbers"), ("cox", "times"))
    ),
    MethodCase(
        "fedavg", {"personalize": "ditto"}, "own models", keeps_state=True, follow=follow, exceptions=OWN_MODELS
    ),
    MethodCase("fedavg", {"compression": "8bit"}, "8-bit updates", vectors_up=(1 + 4 / 256) / 4, exceptions=LOSSY),
    MethodCase(
        "fedavg",
        {"compression": "topk", "topk_fraction": 0.4},
        "largest numbers",
        keeps_state=True,
        vectors_up=2 * 0.4,
        exceptions=LOSSY | {"resuming_changes_nothing": "nodes keep what they left out for one job"},
    ),
)


def test_two_rounds_by_hand(hospitals):
    """McMahan et al. 2017, Algorithm 1, for logistic regression, C = 2/3, E = 2, B = 10, in plain numpy float64.

    For binary logistic regression with labels y in {0, 1}, f = x w + b and p = 1 / (1 + exp(-f)), the gradient of the
    mean loss over a batch is mean((p - y) x) for w and mean(p - y) for b.
    """
    eta, E, B, seed = 0.2, 2, 10, 11
    result = train(
        "v6_fedavg",
        hospitals,
        rounds=2,
        fraction=0.7,
        epochs=E,
        batch_size=B,
        lr=eta,
        lr_decay_round=0.5,
        holdout=0,
        seed=seed,
    )
    w_t = np.zeros(5)  # four weights and the intercept
    for t in (1, 2):
        # m <- max(floor(C K), 1) = floor(2.1) = 2; S_t <- random set of m clients
        S_t = sorted(generator(seed, "sample", 0, t).choice([3, 5, 8], 2, replace=False).tolist())
        assert result["history"][t - 1]["participants"] == S_t
        w_k = {}
        for k in S_t:
            X = (
                np.column_stack([hospitals[k].iloc[:, :-1], np.ones(len(hospitals[k]))])
                .astype(np.float32)
                .astype(float)
            )
            y = hospitals[k]["label"].to_numpy(float)
            shuffle = generator(seed, "shuffle", k, t)
            w = w_t.copy()
            for _epoch in range(E):
                order = shuffle.permutation(len(y))
                for start in range(0, len(y), B):
                    b = order[start : start + B]
                    p = 1 / (1 + np.exp(-X[b] @ w))
                    w = w - eta * 0.5 ** (t - 1) * ((p - y[b]) @ X[b]) / len(b)
            w_k[k] = w
        m_t = sum(len(hospitals[k]) for k in S_t)
        w_t = sum(len(hospitals[k]) / m_t * w_k[k] for k in S_t)
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], w_t, atol=1e-6)


def test_fedsgd_is_one_step_on_the_pooled_rows(hospitals):
    """FedSGD (E = 1, B unset) averages gradients: one step of gradient descent on all rows."""
    federated = train("v6_fedavg", hospitals, rounds=1, lr=0.3, holdout=0)
    import pandas as pd

    pooled = train("v6_fedavg", {1: pd.concat(hospitals.values(), ignore_index=True)}, rounds=1, lr=0.3, holdout=0)
    np.testing.assert_allclose(
        codec.decode(federated["weights"])["weights"], codec.decode(pooled["weights"])["weights"], atol=1e-6
    )


def test_momentum_at_the_server_by_hand(hospitals):
    """FedAvgM (Hsu et al. 2019): v <- beta v + (w_t - w), w_t+1 = w_t - v, for the mean w that FedAvg would take."""
    job = {"lr": 0.3, "holdout": 0, "epochs": 2}
    result = train("v6_fedavg", hospitals, rounds=3, server_momentum=0.9, **job)
    w = v = np.zeros(5)
    for _ in range(3):
        mean = average(hospitals, {k: step(step(w, t, 0.3), t, 0.3) for k, t in hospitals.items()})
        v = 0.9 * v + (w - mean)
        w = w - v
    check(result, w)


def test_momentum_goes_on_after_an_interruption(hospitals):
    half = train("v6_fedavg", hospitals, rounds=2, server_momentum=0.9)
    resumed = train("v6_fedavg", hospitals, rounds=4, server_momentum=0.9, resume=half)
    straight = train("v6_fedavg", hospitals, rounds=4, server_momentum=0.9)
    assert resumed["weights"] == straight["weights"]


def test_fraction_zero_asks_one_node(hospitals):
    result = train("v6_fedavg", hospitals, rounds=4, fraction=0)
    assert [len(row["participants"]) for row in result["history"]] == [1, 1, 1, 1]


def test_fraction_of_a_hundred_nodes():
    nodes = {k: table(12, seed=k) for k in range(1, 101)}
    result = train("v6_fedavg", nodes, rounds=1, fraction=0.29)
    assert len(result["history"][0]["participants"]) == 29


def test_learns(hospitals):
    result = train("v6_fedavg", hospitals, rounds=30, lr=0.3, epochs=2)
    assert result["final"]["accuracy"] > 0.85
    losses = [row["loss"] for row in result["history"]]
    assert losses[-1] < losses[0]


def test_adam_and_decay_change_the_model(hospitals):
    plain = train("v6_fedavg", hospitals, rounds=3, lr=0.05)
    for other in (
        {"optimizer": "adam"},
        {"lr_decay_round": 0.5},
        {"lr_decay_step": 0.5},
        {"proximal_mu": 1.0, "epochs": 2},
    ):
        assert train("v6_fedavg", hospitals, rounds=3, lr=0.05, **other)["weights"] != plain["weights"]


def test_adam_by_hand():
    """One node, one batch: Adam's first step is lr * g / (|g| + eps), its sign times lr."""
    result = train("v6_fedavg", {1: table(40)}, rounds=1, lr=0.05, optimizer="adam", holdout=0)
    w = codec.decode(result["weights"])["weights"]
    np.testing.assert_allclose(np.abs(w[:4]), 0.05, atol=1e-4)


def test_keras_decay_by_hand():
    """lr / (1 + decay * steps): with one step a round, step t - 1 in round t."""
    from v6_federated.models.linear import LinearModel

    rows = table(40)
    result = train("v6_fedavg", {1: rows}, rounds=3, lr=0.4, lr_decay_step=0.5, holdout=0)
    model, X, y = LinearModel("logistic", 4, 2), rows.iloc[:, :-1].to_numpy(np.float32), rows["label"].to_numpy()
    w = np.zeros(5, np.float32)
    for rate in (0.4, 0.4 / 1.5, 0.4 / 2.0):
        w = w - np.float32(rate) * model.loss_and_gradient(w, X, y)[1]
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], w, atol=1e-6)


def test_fedprox(hospitals):
    """Li et al. 2020: steps w <- w - eta (g + mu (w - w_t)), two epochs on all rows at each node, two rounds."""
    mu, eta, w = 0.7, 0.3, np.zeros(5)
    for _ in (1, 2):
        parts = []
        for rows in hospitals.values():
            X, y = arrays(rows)
            v = w
            for _ in (1, 2):
                v = v - eta * (gradient(v, X, y) + mu * (v - w))
            parts.append((len(y), v))
        w = sum(n * v for n, v in parts) / sum(n for n, _ in parts)
    check(train("v6_fedavg", hospitals, rounds=2, epochs=2, lr=eta, proximal_mu=mu, holdout=0), w)


def test_training_stops_at_the_target(hospitals):
    result = train("v6_fedavg", hospitals, rounds=50, lr=0.3, target=0.6)
    assert len(result["history"]) < 10
    assert result["history"][-1]["accuracy"] is not None


def test_evaluation_less_often(hospitals):
    result = train("v6_fedavg", hospitals, rounds=7, evaluate_every=3)
    evaluated = [row["round"] for row in result["history"] if row["accuracy"] is not None]
    assert evaluated == [3, 6, 7]


def test_a_node_that_holds_a_test_set(hospitals):
    result = train("v6_fedavg", {**hospitals, 9: table(200, seed=42)}, rounds=3, evaluators=[9], lr=0.3)
    assert result["organizations"] == [3, 5, 8]
    assert [row["evaluated"] for row in result["history"]] == [200, 200, 200]
    assert all(9 not in row["participants"] for row in result["history"])


def test_the_method_that_contributing_shows_is_fedsgd(tmp_path, monkeypatch, hospitals):
    """As a method's developer would: its three files from the page, beside the installed methods."""
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    blocks = dict(re.findall(r"`(\w+\.py)`[^\n]*:\n\n```python\n(.*?)```", page, re.DOTALL))
    assert set(blocks) == {"central.py", "partial.py", "__init__.py"}
    (tmp_path / "v6_shown").mkdir()
    for name, block in blocks.items():
        (tmp_path / "v6_shown" / name).write_text(block.replace("v6_METHOD", "v6_shown"))
    monkeypatch.syspath_prepend(tmp_path)
    settings = {"rounds": 4, "lr": 0.3, "seed": 2}
    shown, fedsgd = train("v6_shown", hospitals, **settings), train("v6_fedavg", hospitals, **settings)
    assert shown["method"] == "shown" and shown["weights"] == fedsgd["weights"] and shown["final"] == fedsgd["final"]
