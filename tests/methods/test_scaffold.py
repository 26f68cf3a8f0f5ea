"""SCAFFOLD: rounds by hand, its state at the nodes, and a case in which it beats FedAvg."""

import numpy as np
import pytest
from by_hand import SEED, arrays, check, gradient, order
from helpers import OPEN, table, train

from v6_federated.base.randomness import generator
from v6_federated.messages import codec
from v6_workbench.conformance import MethodCase, conformance_tests
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork


def follow(result, nodes):
    """Algorithm 1, option II, over the participants of each round; all c start at zero."""
    lr, x, c, c_k = result["settings"]["lr"], np.zeros(5), np.zeros(5), {k: np.zeros(5) for k in nodes}
    for row in result["history"]:
        S, dy, dc = row["participants"], [], []
        for k in S:
            y = x - lr * (gradient(x, *arrays(nodes[k])) - c_k[k] + c)
            new = c_k[k] - c + (x - y) / lr
            dy.append(y - x)
            dc.append(new - c_k[k])
            c_k[k] = new
        x = x + np.mean(dy, axis=0)
        c = c + len(S) / len(nodes) * np.mean(dc, axis=0)
    return x


test_conformance = conformance_tests(
    MethodCase(
        "scaffold",
        keeps_state=True,
        vectors_down=2,
        follow=follow,
        exceptions={"resuming_changes_nothing": "nodes keep c_k for one job, and start another from zero"},
    )
)


def test_scaffold(hospitals):
    """Karimireddy et al. 2020, Algorithm 1, option II: eta_l = 0.2, eta_g = 0.8, |S| = 2 of N = 3, E = 2, B = 10."""
    eta_l, eta_g, B = 0.2, 0.8, 10
    result = train(
        "v6_scaffold",
        hospitals,
        rounds=3,
        fraction=0.7,
        epochs=2,
        batch_size=B,
        lr=eta_l,
        global_lr=eta_g,
        holdout=0,
        seed=SEED,
    )
    x, c, far = np.zeros(5), np.zeros(5), {}
    c_k = {k: np.zeros(5) for k in hospitals}
    for t in (1, 2, 3):
        S = sorted(generator(SEED, "sample", 0, t).choice([3, 5, 8], 2, replace=False).tolist())
        assert result["history"][t - 1]["participants"] == S
        dy, dc, own = [], [], {}
        for k in S:
            X, y = arrays(hospitals[k])
            v, steps, shuffle = x.copy(), 0, order(k, t)
            for _ in range(2):
                rows = shuffle.permutation(len(y))
                for start in range(0, len(y), B):
                    b = rows[start : start + B]
                    v = v - eta_l * (gradient(v, X[b], y[b]) - c_k[k] + c)
                    steps += 1
            new = c_k[k] - c + (x - v) / (steps * eta_l)
            dy.append(v - x)
            own[k] = v
            dc.append(new - c_k[k])
            c_k[k] = new
        x = x + eta_g * np.mean(dy, axis=0)
        c = c + 2 / 3 * np.mean(dc, axis=0)
        far |= {(k, t): np.linalg.norm(v - x) for k, v in own.items()}
    check(result, x)
    assert {(row["organization_id"], row["round"]): row["distance"] for row in result["per_node"]} == pytest.approx(
        far, abs=1e-6
    )


def test_scaffold_with_rates_that_fall(hospitals):
    """c_k is the mean gradient of the steps weighted by their rates: (x - y_k) / (sum of the rates)."""
    x, c, c_k = np.zeros(5), np.zeros(5), {k: np.zeros(5) for k in hospitals}
    taken = 0
    for _ in (1, 2, 3):
        dy, dc = [], []
        for k, rows in hospitals.items():
            X, y = arrays(rows)
            v, travelled = x, 0.0
            for i in range(2):
                eta = 0.4 / (1 + 0.5 * (taken + i))
                v, travelled = v - eta * (gradient(v, X, y) - c_k[k] + c), travelled + eta
            new = c_k[k] - c + (x - v) / travelled
            dy.append(v - x)
            dc.append(new - c_k[k])
            c_k[k] = new
        taken += 2
        x, c = x + np.mean(dy, axis=0), c + np.mean(dc, axis=0)
    check(train("v6_scaffold", hospitals, rounds=3, epochs=2, lr=0.4, lr_decay_step=0.5, holdout=0), x)


def test_c_k_is_in_no_message(hospitals):
    """No message of SCAFFOLD holds a node's control variate, which is its mean gradient."""
    messages, kept = [], []

    def look(answer):
        messages.append(answer)
        for file in network.folder.glob("node-*/tmp/scaffold-*-round-*.npz"):
            kept.append(np.load(file)["c_k"])
        return answer

    def outcomes(organization, input_):
        messages.append(input_["kwargs"])
        return CallOutcome(alter=look)

    with MockNetwork(
        "v6_scaffold", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes
    ) as network:
        network.run(rounds=3, epochs=2, batch_size=10, lr=0.2)
    different = {c_k.tobytes() for c_k in kept}
    assert len(different) == 9, "of three nodes in three rounds"
    sent = [array for message in messages if "arrays" in message for array in codec.decode(message["arrays"]).values()]
    assert len(sent) > 18
    for c_k in kept:
        assert not any(array.shape == c_k.shape and np.allclose(array, c_k, atol=1e-7) for array in sent)


def test_scaffold_beats_fedavg_on_unlike_nodes():
    """Many local epochs on nodes with unlike classes: SCAFFOLD reaches a loss in fewer rounds than FedAvg."""
    rows = table(300, d=6, classes=2, seed=1)
    y = rows["label"]
    nodes = {
        1: rows[y == 0].iloc[:120],
        2: rows[y == 1].iloc[:120],
        3: rows.iloc[240:],
    }
    nodes = {k: v.reset_index(drop=True) for k, v in nodes.items()}
    settings = {"rounds": 40, "epochs": 20, "lr": 0.2, "holdout": 0, "evaluators": [4], "classes": [0, 1]}
    fedavg, scaffold = (
        [row["loss"] for row in train(package, {**nodes, 4: rows}, **settings)["history"]]
        for package in ("v6_fedavg", "v6_scaffold")
    )
    assert next(t for t, loss in enumerate(scaffold, 1) if loss < min(fedavg)) <= 25  # of 40


def test_state_at_nodes_does_not_survive_into_a_new_job(hospitals):
    """c_k stays in the folder of the old job: nodes start from zero, and say so."""
    half = train("v6_scaffold", hospitals, rounds=3, seed=3)
    resumed = train("v6_scaffold", hospitals, rounds=6, seed=3, resume=half)
    lost = [(row["round"], row["organization_id"]) for row in resumed["per_node"] if row.get("state_lost")]
    assert lost == [(4, 3), (4, 5), (4, 8)]
    assert len(resumed["history"]) == 6


@pytest.mark.long
def test_scaffold_converges_after_its_nodes_have_lost_their_state(hospitals):
    """c is the mean of the c_k. Were it kept when they begin anew, every step from then on would be biased."""
    settings = {"seed": 3, "lr": 0.3, "epochs": 3, "holdout": 0}
    straight = train("v6_scaffold", hospitals, rounds=400, **settings)
    half = train("v6_scaffold", hospitals, rounds=3, **settings)
    resumed = train("v6_scaffold", hospitals, rounds=400, **settings, resume=half)
    found, expected = (codec.decode(result["weights"])["weights"] for result in (resumed, straight))
    np.testing.assert_allclose(found, expected, rtol=3e-3)


def test_a_change_that_no_gradient_can_make_counts_as_a_failure(hospitals):
    """Else c, which is computed from it, would be infinite."""

    def outcomes(organization, input_):
        wrong = organization == 5 and input_["method"] == "client_update"
        return CallOutcome(alter=(lambda answer: {**answer, "travelled": 1e-300}) if wrong else None)

    with MockNetwork(
        "v6_scaffold", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes
    ) as network:
        history = network.run(rounds=2, min_responses=2, cooldown_rounds=1, retries=0)["history"]
    [missing] = history[0]["missing"]
    assert missing["organization_id"] == 5 and "dy and travelled" in missing["reason"]
    assert len(history) == 2
