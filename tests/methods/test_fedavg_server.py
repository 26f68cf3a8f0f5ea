"""FedAvg's server: its optimisers, robust means and the cycle, each by hand."""

import numpy as np
import pytest
from by_hand import average, check, step
from helpers import table, train
from scipy import optimize, stats

from v6_fedavg.robust import geometric_median
from v6_federated import CollectResultsError, UserInputError, codec
from v6_federated.base.randomness import generator
from v6_workbench import registry
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

JOB = {"lr": 0.3, "holdout": 0}


def local_models(hospitals, w):
    return {k: step(w, rows, 0.3) for k, rows in hospitals.items()}


@pytest.mark.parametrize("name", ["adagrad", "adam", "yogi"])
def test_three_adaptive_rounds_by_hand(hospitals, name):
    """Reddi et al. 2021, Algorithm 2, with beta_1 = .8, beta_2 = .95, eta = .05, tau = .01, v from 0."""
    asked = {"server_momentum": 0.8, "server_lr": 0.05, "server_tau": 0.01}
    asked |= {} if name == "adagrad" else {"server_beta2": 0.95}
    result = train("v6_fedavg", hospitals, rounds=3, server_optimizer=name, **asked, **JOB)
    w = m = v = np.zeros(5)
    for _ in range(3):
        delta = average(hospitals, local_models(hospitals, w)) - w
        m = 0.8 * m + 0.2 * delta
        if name == "adagrad":
            v = v + delta**2
        elif name == "adam":
            v = 0.95 * v + 0.05 * delta**2
        else:
            v = v - 0.05 * delta**2 * np.sign(v - delta**2)
        w = w + 0.05 * m / (np.sqrt(v) + 0.01)
    check(result, w)


def test_unset_momentum_is_the_usual_one(hospitals):
    usual = train("v6_fedavg", hospitals, rounds=2, server_optimizer="adam", server_lr=0.01)
    said = train("v6_fedavg", hospitals, rounds=2, server_optimizer="adam", server_lr=0.01, server_momentum=0.9)
    assert usual["weights"] == said["weights"]


def test_a_rate_of_the_server_by_hand(hospitals):
    """w_t+1 = w_t + eta (w - w_t)."""
    result = train("v6_fedavg", hospitals, rounds=2, server_lr=0.5, **JOB)
    w = np.zeros(5)
    for _ in range(2):
        w = w + 0.5 * (average(hospitals, local_models(hospitals, w)) - w)
    check(result, w)


@pytest.mark.parametrize("name", ["adagrad", "adam", "yogi"])
def test_an_optimiser_goes_on_after_an_interruption(hospitals, name):
    asked = {"server_optimizer": name, "server_lr": 0.02}
    half = train("v6_fedavg", hospitals, rounds=2, **asked)
    resumed = train("v6_fedavg", hospitals, rounds=4, resume=half, **asked)
    assert resumed["weights"] == train("v6_fedavg", hospitals, rounds=4, **asked)["weights"]


@pytest.fixture
def five():
    return {k: table(30 + k, seed=k) for k in range(1, 6)}


def test_robust_means_by_hand(five):
    W = np.array([*local_models(five, np.zeros(5)).values()])
    for aggregate, wanted in (("median", np.median(W, axis=0)), ("trimmed", stats.trim_mean(W, 0.25, axis=0))):
        trim = {"trim": 0.25} if aggregate == "trimmed" else {}
        check(train("v6_fedavg", five, rounds=1, aggregate=aggregate, **trim, **JOB), wanted)


def test_the_geometric_median_is_the_nearest_point_to_all(five):
    W, n = np.array([*local_models(five, np.zeros(5)).values()]), np.array([len(rows) for rows in five.values()])
    found = optimize.minimize(lambda z: n @ np.linalg.norm(W - z, axis=1), W.mean(axis=0), tol=1e-12).x
    np.testing.assert_allclose(geometric_median(W, n), found, atol=1e-6)
    check(train("v6_fedavg", five, rounds=1, aggregate="geometric", **JOB), found)


@pytest.mark.parametrize("points", [[[1.0, 2.0]], [[1.0, 2.0]] * 3, [[0.0], [0.0], [9.0]]])
def test_the_geometric_median_may_lie_on_a_point(points):
    W = np.array(points)
    np.testing.assert_allclose(geometric_median(W, np.ones(len(W))), W[0], atol=1e-4)


@pytest.mark.parametrize("aggregate", ["median", "trimmed", "geometric"])
def test_one_wrong_model_moves_a_robust_mean_little(five, aggregate):
    trim = {"trim": 0.2} if aggregate == "trimmed" else {}
    asked = {"maximum_norm_ratio": 1e6, "rounds": 20, **JOB}
    wrong = {**five, 5: five[5].assign(label=1 - five[5]["label"])}  # of the columns' meaning, and 200 times as long
    wrong[5] = wrong[5].assign(**{c: 200 * wrong[5][c] for c in wrong[5].columns[:-1]})
    kept, mean = (
        _w(train("v6_fedavg", wrong, aggregate=aggregate, **trim, **asked)),
        _w(train("v6_fedavg", wrong, **asked)),
    )
    honest = _w(train("v6_fedavg", {k: five[k] for k in (1, 2, 3, 4)}, **asked))
    assert np.linalg.norm(kept - honest) < 0.5 * np.linalg.norm(honest) < np.linalg.norm(mean - honest)


def _w(result):
    return codec.decode(result["weights"])["weights"]


def test_a_cycle_by_hand(hospitals):
    """Chang et al. 2018: each node trains the model of the one before, in an order drawn anew."""
    result = train("v6_fedavg", hospitals, rounds=3, schedule="cyclic", seed=7, **JOB)
    w = np.zeros(5)
    for t in (1, 2, 3):
        order = generator(7, "cycle", 0, t).permutation(sorted(hospitals)).tolist()
        for k in order:
            w = step(w, hospitals[k], 0.3)
    check(result, w)
    assert [row["participants"] for row in result["history"]] == [sorted(hospitals)] * 3
    assert dict(result["state"]["items"])["order"] == order


def test_a_cycle_goes_on_after_an_interruption(hospitals):
    half = train("v6_fedavg", hospitals, rounds=1, schedule="cyclic")
    resumed = train("v6_fedavg", hospitals, rounds=3, schedule="cyclic", resume=half)
    assert resumed["weights"] == train("v6_fedavg", hospitals, rounds=3, schedule="cyclic")["weights"]


def test_a_cycle_does_not_go_on_from_what_a_node_was_sent(hospitals):
    lost = train("v6_fedavg", hospitals, rounds=1, schedule="cyclic")
    lost["state"] = {"items": []}  # as `earlier_tasks.left_by` finds it
    with pytest.raises(UserInputError, match="lacks a part"):
        train("v6_fedavg", hospitals, rounds=3, schedule="cyclic", resume=lost)


def breaks_down(organization, input_):
    """Node 3 fails whenever it is to train."""
    fails = organization == 3 and input_["method"] == "client_update"
    return CallOutcome(status="failed") if fails else CallOutcome()


@pytest.mark.parametrize("least", [0.6, 4])
def test_a_cycle_passes_over_a_node_that_fails(five, least):
    settings = {"rounds": 1, "schedule": "cyclic", "retries": 0, **JOB}
    with MockNetwork("v6_fedavg", five, outcomes=breaks_down) as network:
        result = network.run(**settings, min_responses=least)
    assert result["history"][0]["participants"] == [1, 2, 4, 5]
    w = np.zeros(5)
    for k in [k for k in dict(result["state"]["items"])["order"] if k != 3]:
        w = step(w, five[k], 0.3)
    check(result, w)
    with (
        MockNetwork("v6_fedavg", five, outcomes=breaks_down) as network,
        pytest.raises(CollectResultsError, match="round 1: 4 of 5 answered, 5 are needed"),
    ):
        network.run(**settings, min_responses=5)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"aggregate": "median", "aggregation": "masked"}, "compares the nodes' models"),
        ({"schedule": "cyclic", "aggregation": "pinned"}, "trains the model of the one before"),
        ({"schedule": "cyclic", "aggregate": "median"}, "aggregate=median cannot be used with schedule=cyclic"),
        ({"trim": 0.2}, "trim=0.2 needs aggregate=trimmed"),
        ({"server_beta2": 0.9}, "server_beta2=0.9 needs server_optimizer=adam or yogi"),
        ({"server_tau": 0.1}, "server_tau=0.1 needs server_optimizer=adagrad or adam or yogi"),
        ({"trim": 0.5, "aggregate": "trimmed"}, "less than 0.5"),
        ({"aggregate": "mode"}, "'mean', 'median', 'trimmed' or 'geometric'"),
    ],
)
def test_settings_that_do_not_fit(hospitals, asked, says):
    with pytest.raises(UserInputError, match=says):
        train("v6_fedavg", hospitals, **{"rounds": 1, **asked})


@pytest.mark.parametrize("name", ["FedAdam", "fedyogi", "FedAdagrad", "FedAvgM", "cyclic"])
def test_other_names_point_to_the_settings(name):
    with pytest.raises(Exception, match="fedavg"):
        registry.package_of(name)
