"""Dynamic averaging: rounds by hand of its three protocols, and what silent nodes send."""

import functools
import math

import numpy as np
import pytest
from by_hand import SEED, arrays, average, check, epoch, loss, order, rows_of, step
from helpers import OPEN, table, train
from vantage6.algorithm.tools.exceptions import CollectResultsError, UserInputError

from v6_federated import models
from v6_federated.base.randomness import generator
from v6_federated.messages import codec
from v6_workbench.conformance import MethodCase, conformance_tests
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork


def by_schedule(result, nodes, newest=False, passes=None):
    """Protocols svd and loss: a node that is due does all steps since its last communication, or ``passes``, from the
    model that it was sent then, or from the newest one."""
    lr, w = result["settings"]["lr"], np.zeros(5)
    version, sent = dict.fromkeys(nodes, 0), {0: np.zeros(5)}
    for row in result["history"]:
        t, S_t = row["round"], row["participants"]
        if S_t:
            start = {k: w if newest else sent[version[k]] for k in S_t}
            w = sent[t] = average(nodes, {k: step(start[k], nodes[k], lr, passes or t - version[k]) for k in S_t})
            version |= dict.fromkeys(S_t, t)
    return w


def by_divergence(result, nodes):
    """Protocol divergence: all nodes train; the participants' mean goes to them, and to all as the reference if all
    took part. A node that gave no answer starts again from the reference."""
    lr, w = result["settings"]["lr"], np.zeros(5)
    r, f = w, {k: w for k in nodes}
    for row in result["history"]:
        here = {answer["organization_id"] for answer in rows_of(result, row["round"]) if "from_reference" in answer}
        f = {k: step(f[k], nodes[k], lr) for k in here}
        B = row["participants"]
        if B:
            w = average(nodes, {k: f[k] for k in B})
        r = w if len(B) == len(nodes) else r
        gone = {missing["organization_id"] for missing in row["missing"]}
        f = {k: w if k in B else f[k] if k in here and k not in gone else r for k in nodes}
    return w


FETCHED = {"send_model": "models are fetched from nodes that need not be there any more"}
DUE = {"train": "of the nodes that are due none need come"}
PLANNED = {"resuming_changes_nothing": "communications are planned for the rounds of one job"}
test_conformance = conformance_tests(
    MethodCase("dynavg", {"delta": 0.0}, "all violate", keeps_state=True, optional=FETCHED),
    MethodCase(
        "dynavg",
        {"delta": 0.1},
        "some are silent",
        keeps_state=True,
        follow=by_divergence,
        optional=FETCHED,
        exceptions={
            "resuming_changes_nothing": "the last round of each job averages all models",
            "bytes_equal_the_formula": "a silent node sends no model",
        },
    ),
    MethodCase("dynavg", {"protocol": "svd"}, "svd", follow=by_schedule, optional=DUE),
    MethodCase("dynavg", {"protocol": "loss"}, "loss", follow=by_schedule, optional=DUE, exceptions=PLANNED),
    MethodCase(
        "dynavg",
        {"protocol": "loss", "train_from": "newest"},
        "loss newest",
        follow=functools.partial(by_schedule, newest=True),
        optional=DUE,
        exceptions=PLANNED,
    ),
    MethodCase(
        "dynavg",
        {"protocol": "loss", "train_from": "newest_pass"},
        "loss newest pass",
        follow=functools.partial(by_schedule, newest=True, passes=1),
        optional=DUE,
        exceptions=PLANNED,
    ),
)


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
    moved = {
        (row["organization_id"], row["round"]): row["from_reference"]
        for row in result["per_node"]
        if "from_reference" in row
    }
    assert moved == pytest.approx(far, abs=1e-6)


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


def test_a_silent_node_sends_no_model(hospitals):
    """An answer has 16/3 d bytes if it holds a model, and otherwise none that grow with the model."""
    result = train("v6_dynavg", hospitals, rounds=6, model="fnn:hidden=50", lr=0.3, delta=0.2)
    numbers = models.build(result["model"]).size * 16 / 3
    beyond = [row["bytes_up"] - numbers * (row["bytes_up"] > numbers) for row in result["per_node"]]
    assert max(beyond) < 1500
    uploads = [row["uploads"] for row in result["history"]]
    assert sum(row["bytes_up"] > numbers for row in result["per_node"]) == sum(uploads)
    assert {0, 3} < {*uploads}, "some rounds are silent, some whole, some neither"


def test_a_node_that_is_asked_later_may_have_moved_further():
    """Three nodes send their models in rounds 16 to 18, the first before a mean, the others soon after one: the first
    is then 10.5 times as far from the newest mean as the others. All are within the root of Delta of the reference."""
    nodes = {k: table(60, seed=k) for k in range(1, 9)}
    result = train("v6_dynavg", nodes, rounds=19, delta=0.3, lr=0.01, batch_size=10)
    assert [row["uploads"] for row in result["history"]][14:] == [0, 2, 2, 8, 8]


def test_a_model_far_from_the_reference_ends_the_job(hospitals):
    def outcomes(organization, input_):
        return CallOutcome(alter=moved if organization == 5 else None)

    def moved(answer):
        if "arrays" not in answer:
            return answer
        [(name, w)] = codec.decode(answer["arrays"]).items()
        return {**answer, "arrays": codec.encode({name: w * 1000})}

    with (
        MockNetwork("v6_dynavg", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network,
        pytest.raises(
            CollectResultsError, match="organization 5: sent weights with an update of norm .* times at most"
        ),
    ):
        network.run(rounds=9, delta=0.05, lr=0.3)


def test_too_few_answers_are_an_error_if_all_are_due(hospitals):
    """By loss all nodes are due in round 1. Later, of the nodes that are due, none need come."""

    def outcomes(organization, input_):
        failed = input_["method"] == "train" and input_["kwargs"]["round"] == 1 and organization != 3
        return CallOutcome(status="crashed" if failed else "completed")

    with (
        MockNetwork("v6_dynavg", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network,
        pytest.raises(CollectResultsError, match="round 1, train: .*1 of 3 answered, 2 are needed"),
    ):
        network.run(rounds=4, protocol="loss", min_responses=0.6, retries=0)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"train_from": "newest"}, "train_from=newest needs protocol=svd or loss"),
        ({"protocol": "svd", "delta": 9.0}, "delta=9.0 needs protocol=divergence"),
        ({"protocol": "loss", "augmentation": "doubling"}, "augmentation=doubling needs protocol=divergence"),
    ],
)
def test_a_setting_that_the_protocol_does_not_read_is_refused(hospitals, settings, says):
    """Two results would differ by it in nothing except what they say of themselves."""
    with pytest.raises(UserInputError, match=f"^{says}"):
        train("v6_dynavg", hospitals, rounds=2, **settings)


@pytest.mark.parametrize("protocol", ["svd", "loss"])
def test_a_resumed_job_plans_for_its_own_rounds(protocol, hospitals):
    """A job that was to last longer and is ended sooner: in its last round all come, so that no training is lost."""
    half = train("v6_dynavg", hospitals, rounds=40, protocol=protocol, target=0.01)
    assert len(half["history"]) < 12
    whole = train("v6_dynavg", hospitals, rounds=12, protocol=protocol, resume=half)
    assert whole["history"][-1]["participants"] == sorted(hospitals)
    if protocol == "loss":  # none is known: all come in the first round again
        assert whole["history"][len(half["history"])]["participants"] == sorted(hospitals)
