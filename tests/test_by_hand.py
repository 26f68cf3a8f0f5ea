"""Two rounds of each method by hand, in plain numpy, for binary logistic regression.

For labels y in {0, 1}, rows x with a 1 appended, f = x w and p = 1 / (1 + exp(-f)), the mean loss over rows is
mean(log(1 + exp(f)) - y f) and its gradient mean((p - y) x). Shuffles and samples come from the same generators as the
methods', everything else is written out here.
"""

import math

import numpy as np
import pytest
import torch
from helpers import OPEN, table, train

from v6_federated import Federation, LocalSGD, models
from v6_federated.base.randomness import generator
from v6_federated.messages import codec
from v6_federated.node import local_training
from v6_fsvrg.perceptron import svrg_pass
from v6_workbench.reporting import pictures
from v6_workbench.simulation import mock, mock_node

SEED = 11


def arrays(rows):
    X = np.column_stack([rows.iloc[:, :-1], np.ones(len(rows))]).astype(np.float32).astype(float)
    return X, rows["label"].to_numpy(float)


def gradient(w, X, y):
    return (1 / (1 + np.exp(-X @ w)) - y) @ X / len(y)


def loss(w, X, y):
    return np.mean(np.logaddexp(0, X @ w) - y * (X @ w))


def order(k, t):
    """The node's shuffles in round t: one permutation an epoch, in turn."""
    return generator(SEED, "shuffle", k, t)


def epoch(w, X, y, B, shuffle, eta):
    """One epoch of minibatch SGD; ``eta(i)`` is the rate of the epoch's i-th step."""
    rows = shuffle.permutation(len(y))
    for i, start in enumerate(range(0, len(y), B)):
        b = rows[start : start + B]
        w = w - eta(i) * gradient(w, X[b], y[b])
    return w


def check(result, w, atol=1e-6):
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], w, atol=atol)


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
    assert pictures.distances_of(result) == ("distance", pytest.approx(far, abs=1e-6))


def test_fsvrg(hospitals):
    """Nilsson et al. 2018, Algorithm 2: h = 3, one row a step (B = 1)."""
    h = 3.0
    result = train("v6_fsvrg", hospitals, rounds=2, stepsize=h, holdout=0, seed=SEED)
    n = sum(len(rows) for rows in hospitals.values())
    w = np.zeros(5)
    for t in (1, 2):
        full = sum(len(rows) / n * gradient(w, *arrays(rows)) for rows in hospitals.values())
        models = {}
        for k, rows in hospitals.items():
            X, y = arrays(rows)
            v = w.copy()
            for i in order(k, t).permutation(len(y)):
                x_i, y_i = X[i : i + 1], y[i : i + 1]
                v = v - h / len(y) * (gradient(v, x_i, y_i) - gradient(w, x_i, y_i) + full)
            models[k] = v
        w = sum(len(hospitals[k]) / n * models[k] for k in hospitals)
    check(result, w)


@pytest.mark.parametrize("name", ["2nn", "nn_reddy"])
def test_fsvrg_on_networks_is_the_box_row_by_row(name, monkeypatch):
    """The fast pass of networks equals lines 7 to 11 of the paper's box, written with ``loss_and_gradient``."""
    monkeypatch.setattr("v6_fsvrg.perceptron.BLOCK", 16)  # 16, 16 and 8 rows
    rng = np.random.default_rng(0)
    model = models.build({"name": name, "hidden": 8, "features": 6, "classes": 3})
    X = rng.normal(size=(40, 6)).astype(np.float32) * (rng.random((40, 6)) > 0.4)
    y, order = np.arange(40) % 3, rng.permutation(40)
    w_t = model.init(rng)
    full = model.loss_and_gradient(w_t, X, y)[1].copy()
    fast, w = w_t + 0, w_t + 0
    svrg_pass(model, fast, w_t, X, y, full, 0.05, order)
    for i in order:
        g_t = model.loss_and_gradient(w_t, X[i : i + 1], y[i : i + 1])[1].copy()
        g = model.loss_and_gradient(w, X[i : i + 1], y[i : i + 1])[1]
        w -= np.float32(0.05) * (g - g_t + full)
    assert np.abs(w - w_t).max() > 0.05
    np.testing.assert_allclose(fast, w, atol=1e-6)


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
        epsilon=0.25,
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
    result = train("v6_colearning", hospitals, rounds=12, epochs=1, epsilon=10.0, maximum_epochs=3, lr=0.1)
    assert [row["epochs"] for row in result["history"]][-1] == 3


FIVE = {k: 0.3 * (k % 3) for k in (1, 2, 4, 5, 7)}
EIGHT = {k: 0.9 * (k % 4) for k in range(1, 9)}


@pytest.mark.parametrize("augmentation", ["random", "doubling"])
@pytest.mark.parametrize(
    ("delta", "passes", "shifts"), [(0.1, 1, FIVE), (0.45, 2, FIVE), (0.02, 1, FIVE), (0.4, 1, EIGHT)]
)
def test_dynamic_averaging_by_divergence(augmentation, delta, passes, shifts):
    """Reddy 2020, Algorithm 1, on five and eight nodes: B = 10, eta = 0.3; the last round averages all."""
    nodes = {k: table(24 + 4 * k, seed=k, shift=shift) for k, shift in shifts.items()}
    E, K = 9, sorted(nodes)
    result = train(
        "v6_dynavg",
        nodes,
        rounds=E,
        delta=delta,
        augmentation=augmentation,
        epochs=passes,
        batch_size=10,
        lr=0.3,
        lr_decay_round=0.9,
        holdout=0,
        seed=SEED,
    )
    n = {k: len(rows) for k, rows in nodes.items()}
    f = {k: np.zeros(5) for k in nodes}
    r, w, v, far = np.zeros(5), np.zeros(5), 0, {}

    def mean(some):
        return sum(n[k] * f[k] for k in some) / sum(n[k] for k in some)

    for t in range(1, E + 1):
        for k, rows in nodes.items():
            shuffle = order(k, t)
            for _ in range(passes):
                f[k] = epoch(f[k], *arrays(rows), 10, shuffle, lambda i, t=t: 0.3 * 0.9 ** (t - 1))
        B = [k for k in K if np.sum((f[k] - r) ** 2) > delta]
        far |= {(k, t): np.linalg.norm(f[k] - r) for k in K}
        assert result["history"][t - 1]["violations"] == len(B)
        v += len(B)
        if v >= len(K) or t == E:
            B, v = list(K), 0
        draw = generator(SEED, "augment", 0, t)
        while B and len(B) < len(K) and np.sum((mean(B) - r) ** 2) > delta:
            rest = draw.permutation([k for k in K if k not in B])
            B += rest[: 1 if augmentation == "random" else len(B)].tolist()
        if B:
            w = mean(B)
            for k in B:
                f[k] = w
        if len(B) == len(K):
            r = w
        assert result["history"][t - 1]["participants"] == sorted(B)
        assert result["history"][t - 1]["communication_rate"] == len(B) / len(K)
    check(result, w)
    assert pictures.distances_of(result) == ("from_reference", pytest.approx(far, abs=1e-6))


def test_the_ways_to_augment_differ():
    """On the eight nodes above: else one could be the other, and none of the cases would tell."""
    nodes = {k: table(24 + 4 * k, seed=k, shift=shift) for k, shift in EIGHT.items()}
    settings = {"rounds": 9, "delta": 0.4, "batch_size": 10, "lr": 0.3, "lr_decay_round": 0.9, "holdout": 0}
    one, more = (
        [row["participants"] for row in train("v6_dynavg", nodes, **settings, seed=SEED, augmentation=how)["history"]]
        for how in ("random", "doubling")
    )
    assert one != more


def test_the_cases_above_meet_every_branch():
    """Between them: nobody, some and all violate; v is reached without all; augmentation stops short of all."""
    seen = set()
    nodes = {k: table(24 + 4 * k, seed=k, shift=0.3 * (k % 3)) for k in (1, 2, 4, 5, 7)}
    for delta, passes in ((0.1, 1), (0.45, 2), (0.02, 1)):
        settings = {"delta": delta, "epochs": passes, "batch_size": 10, "lr": 0.3, "lr_decay_round": 0.9}
        history = train("v6_dynavg", nodes, rounds=9, holdout=0, seed=SEED, **settings)["history"]
        for row in history[:-1]:
            sent, violations = len(row["participants"]), row["violations"]
            seen.add("nobody" if not violations else "all" if violations == 5 else "some")
            if violations < sent:
                seen.add("fetched all" if sent == 5 else "augmented to some")
            elif 0 < violations < 5:
                seen.add("mean near the reference")
    assert {"nobody", "some", "fetched all"} <= seen
    assert seen & {"augmented to some", "mean near the reference"}


def plan(q, E, start):
    """Equations 3.7 to 3.11 for one node, q in [0, 1]."""
    E_k = max(math.ceil(q * E), 1)
    rho = math.ceil(E / E_k)
    return rho, start + E - (E_k - E // rho)


def normalised(values):
    low, high = min(values.values()), max(values.values())
    return {k: (v - low) / (high - low) if high > low else 1.0 for k, v in values.items()}


@pytest.mark.parametrize("protocol", ["svd", "loss"])
@pytest.mark.parametrize("train_from", ["own", "newest", "newest_pass"])
def test_dynamic_averaging_by_schedule(hospitals, protocol, train_from):
    """Reddy 2020, Algorithms 3 and 4: B = 10, eta = 0.3. Every node trains two epochs each round from its own
    model, or all of them from the newest when it is due, or only that round's; those that are due send it, and take
    the mean. By loss, they are then compared with each other."""
    E, local = 13, 2
    hospitals[5]["x1"] *= 0.01  # fewer singular values make up 95%
    hospitals[8]["x1"] *= 0.2
    settings = {"batch_size": 10, "lr": 0.3, "lr_decay_round": 0.9, "lr_decay_step": 0.01, "epochs": local}
    settings |= {"protocol": protocol, "train_from": train_from}
    result = train("v6_dynavg", hospitals, rounds=E, holdout=0, seed=SEED, **settings)
    n = {k: len(rows) for k, rows in hospitals.items()}
    f = {k: np.zeros(5) for k in hospitals}
    w, last = np.zeros(5), dict.fromkeys(hospitals, 0)
    if protocol == "svd":
        q = {}
        for k, rows in hospitals.items():
            sigma = np.linalg.svd(arrays(rows)[0][:, :-1], compute_uv=False)
            q[k] = int(np.flatnonzero(np.cumsum(sigma) / sigma.sum() >= 0.95)[0])
        plans = {k: plan(v, E, 0) for k, v in normalised(q).items()}
    else:
        plans = dict.fromkeys(hospitals, (1, 1))
    for t in range(1, E + 1):
        due = []
        for k in hospitals:
            rho, switch = plans[k]
            if t >= switch or (t % rho == 0 if protocol == "svd" else t - last[k] >= rho):
                due.append(k)
        for k in due:
            # all passes since the last communication, shuffled by the generator of the round in which they are done
            f[k] = f[k] if train_from == "own" else w
            first = t - 1 if train_from == "newest_pass" else last[k]
            shuffle = order(k, t)
            steps = math.ceil(n[k] / 10)
            for p in range(first * local, t * local):  # its passes, counted from the first round

                def eta(i, p=p, steps=steps, rho=local):
                    return 0.3 * 0.9 ** (p // rho) / (1 + 0.01 * (p * steps + i))

                f[k] = epoch(f[k], *arrays(hospitals[k]), 10, shuffle, eta)
        if due:
            losses = {k: loss(f[k], *arrays(hospitals[k])) for k in due}
            w = sum(n[k] * f[k] for k in due) / sum(n[k] for k in due)
            for k in due:
                f[k], last[k] = w, t
            if protocol == "loss" and t < E:
                plans |= {k: plan(v, E - t, t) for k, v in normalised(losses).items()}
        assert result["history"][t - 1]["participants"] == due
    assert len({row["uploads"] for row in result["history"]}) > 1
    check(result, w)


def test_coop(hospitals):
    """Nilsson et al. 2018, Algorithm 3, with b_l = 1 and b_u = 3. Node 3 needs 1 second for its epoch, 5 needs 2.3,
    8 needs 9.7: 3 is overactive at times, 8 outdated."""
    seconds, b_l, b_u = {3: 1.0, 5: 2.3, 8: 9.7}, 1, 3

    def outcomes(organization, input_):
        return mock.CallOutcome(seconds[organization] if input_["method"] == "client_update" else 0.0)

    settings = {"batch_size": 10, "lr": 0.3, "lr_decay_round": 0.9, "lr_decay_step": 0.01}
    with mock.MockNetwork(
        "v6_coop", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes
    ) as network:
        result = network.run(rounds=6, age_lower=b_l, age_upper=b_u, holdout=0, seed=SEED, **settings)

    n = {k: len(rows) for k, rows in hospitals.items()}
    w, a, a_k = np.zeros(5), b_l, dict.fromkeys(hospitals, 0)
    start, calls = {k: np.zeros(5) for k in hospitals}, dict.fromkeys(hospitals, 0)
    happened, merged, clocks = [], 0, []
    due = [(seconds[k], k) for k in hospitals]
    while merged < 6 * 3:
        time, k = min(due)
        due = [(t, j) for t, j in due if j != k] + [(time + seconds[k], k)]
        calls[k] += 1
        before, steps = calls[k] - 1, math.ceil(n[k] / 10)

        def eta(i, before=before, steps=steps):
            return 0.3 * 0.9**before / (1 + 0.01 * (before * steps + i))

        w_k = epoch(start[k], *arrays(hospitals[k]), 10, order(k, calls[k]), eta)
        if a - a_k[k] > b_u:
            outcome, a_k[k], start[k] = "outdated", a, w
        elif a - a_k[k] < b_l:
            outcome, start[k] = "overactive", w_k
        else:
            alpha = (a - a_k[k] + 1) ** -0.5
            w = (1 - alpha) * w + alpha * w_k
            outcome, a, merged = "merged", a + 1, merged + 1
            a_k[k], start[k] = a, w
        happened.append((k, outcome))
        clocks.append(time)
    told = [
        [(row["organization_id"], row["outcome"]) for row in sorted(rows, key=lambda row: row["place"])]
        for rows in ([r for r in result["per_node"] if r["round"] == t] for t in range(1, 7))
    ]
    assert [event for round_ in told for event in round_] == happened
    assert {outcome for _, outcome in happened} == {"merged", "overactive", "outdated"}
    assert sum(row["seconds"] for row in result["history"]) == pytest.approx(clocks[-1])
    check(result, w)


# ---- state at the nodes


def test_c_k_never_travels(hospitals, monkeypatch):
    """No message of SCAFFOLD holds a node's control variate, which is its mean gradient."""
    messages, kept = [], []
    run = mock_node.run

    def spy(package, folder, node, message, number):
        from v6_federated.node.state import State

        save = State.save
        monkeypatch.setattr(State, "save", lambda self, a: (kept.append(np.array(a["c_k"])), save(self, a))[1])
        outcome = run(package, folder, node, message, number)
        monkeypatch.setattr(State, "save", save)
        for file in (message, message.parent / f"answer-{number}.json"):
            messages.append(codec_arrays(file))
        return outcome

    monkeypatch.setattr(mock_node, "run", spy)
    train("v6_scaffold", hospitals, rounds=3, epochs=2, batch_size=10, lr=0.2)
    assert len(kept) == 9 and len(messages) > 18
    everything = [a for message in messages for a in message]
    for c_k in kept:
        assert not any(a.shape == c_k.shape and np.allclose(a, c_k, atol=1e-7) for a in everything)


def codec_arrays(file):
    import orjson

    message = orjson.loads(file.read_bytes())
    payload = message.get("kwargs", message).get("arrays")
    return list(codec.decode(payload).values()) if payload else []


@pytest.mark.parametrize(("package", "settings"), [("v6_scaffold", {}), ("v6_dynavg", {"delta": 0.01})])
def test_state_is_removed_in_the_end_and_on_failure(hospitals, package, settings, monkeypatch):
    with mock.MockNetwork(package, hospitals, environment=OPEN, on_round=lambda row: None) as network:
        network.run(rounds=2, **settings)
        assert not list(network.folder.glob("node-*/tmp/*"))
        monkeypatch.setattr(Federation, "record", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            network.run(rounds=2, **settings)
        assert not list(network.folder.glob("node-*/tmp/*"))


def test_lost_state_is_said_and_treated(hospitals, monkeypatch):
    """A node whose c_k is gone starts again from zero; one whose model is gone starts again from the reference."""
    from v6_federated.node.state import State

    load = State.load

    def forgetful(self, *args, **kwargs):
        return None if self.round == 3 and self.name.endswith("-5") else load(self, *args, **kwargs)

    monkeypatch.setattr(State, "load", forgetful)
    for package, settings in (("v6_scaffold", {}), ("v6_dynavg", {"delta": 0.5})):
        result = train(package, hospitals, rounds=5, lr=0.2, **settings)
        lost = [(row["round"], row["organization_id"]) for row in result["per_node"] if row.get("state_lost")]
        assert lost == [(3, 5)]
        assert len(result["history"]) == 5


def test_state_of_a_round_that_is_run_again(tmp_path):
    """A second try of a round finds what the first try found."""
    from v6_federated.node.state import State

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


def test_state_is_removed_from_a_node_that_has_begun_to_refuse(hospitals, monkeypatch):
    from v6_federated.central.federation import Federation

    with mock.MockNetwork("v6_scaffold", hospitals, environment=OPEN, on_round=lambda row: None) as network:
        record = Federation.record

        def tighten(self, *args, **kwargs):
            network.nodes[5].environment["V6_FEDERATED_MAXIMUM_ROUNDS"] = "1"
            return record(self, *args, **kwargs)

        monkeypatch.setattr(Federation, "record", tighten)
        assert "organization 5: 3 rounds are more than the 1" in network.run(rounds=3)["stopped"]
        assert not list(network.folder.glob("node-*/tmp/*"))


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
        "v6_colearning": {"epochs": 3, "epsilon": 0.0, "lr_cycle": 1.0},
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
