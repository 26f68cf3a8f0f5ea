"""Jobs under a privacy budget, on mock nodes: what is computed, what is refused, and what the ledger lets through."""

import numpy as np
import pandas as pd
import pytest

from v6_federated import Federation
from v6_federated.base.vantage6_api import CollectResultsError, UserInputError
from v6_federated.data.source import split
from v6_federated.messages import codec
from v6_federated.models import build
from v6_federated.node import noising
from v6_federated.node.request import Request
from v6_federated.noise import units
from v6_federated.noise.clipping import clipped_sum, sensitivity
from v6_federated.noise.ledger import Ledger
from v6_federated.noise.plan import Plan
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

SCHEMA = Schema(
    (Column("age", "number", 20, 100), Column("sex", "words", levels=("f", "m", "x"))), label="ill", classes=(0, 1)
)
PRIVATE = {
    "V6_FEDERATED_PROFILE": "private",
    "V6_FEDERATED_EPSILON": "3",
    "V6_FEDERATED_EPSILON_PER_JOB": "3",
    "V6_FEDERATED_DELTA": "1e-5",
}
STEPS = ["scale", "onehot"]
JOB = {"rounds": 3, "lr": 1.0, "clip": 1.0, "preprocess": STEPS, "evaluate_every": 3}


def hospital(k: int) -> pd.DataFrame:
    rng, n = np.random.default_rng(k), 200 + 10 * k
    age = rng.normal(60, 10, n).round()
    return pd.DataFrame(
        {"age": age, "ill": (age + rng.normal(0, 5, n) > 60).astype(int), "sex": rng.choice(["m", "f"], n)}
    )


TABLES = {k: hospital(k) for k in range(1, 5)}


def network(package="v6_fedavg", tables=TABLES, environment=PRIVATE, schema=SCHEMA, **options) -> MockNetwork:
    study = StudyPlan(schema=schema)
    return MockNetwork(package, tables, environment=environment, study=study, on_round=lambda row: None, **options)


def weights(result) -> np.ndarray:
    return codec.decode(result["weights"])["weights"]


@pytest.fixture
def silent(monkeypatch):
    """Nodes without noise."""
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, sigma, size: np.zeros(size, np.int64))


@pytest.mark.parametrize(("sampling", "steps_per_epoch"), [(1.0, None), (0.3, 1), (0.3, None)])
def test_the_sum_over_hospitals_is_exactly_that_of_all_rows(sampling, steps_per_epoch, monkeypatch):
    """The same draws of rows and noise: a centralized run adds up to the same whole numbers."""
    sums, drawn = [], {}
    real = noising.Noising.gradient

    def gradient(self, model, w, X, y, step, shared):
        found = real(self, model, w, X, y, step, shared)
        noise = found - clipped_sum(model, w, X, y, self.plan.clip, units.GRADIENT)
        drawn.setdefault(np.asarray(w).tobytes(), []).append((X, y, noise))
        return found

    real_mean = Federation.mean_gradient

    def mean_gradient(self, answers, w):
        sums.append((w, sum(a.arrays["gradient, count"] for a in answers.parts())))
        return real_mean(self, answers, w)

    monkeypatch.setattr(noising.Noising, "gradient", gradient)
    monkeypatch.setattr(Federation, "mean_gradient", mean_gradient)
    with network() as found:
        result = found.run(**JOB, noise=5, sampling=sampling, steps_per_epoch=steps_per_epoch)
    if (sampling, steps_per_epoch) == (0.3, None):  # several local steps a round: no one sum
        assert not sums and result["privacy"]["noise_shared_in_a_block"] is False
        return
    assert len(sums) == JOB["rounds"] and result["privacy"]["noise_shared_in_a_block"] is True
    model = build(result["model"])
    for w, total in sums:
        parts = drawn[w.tobytes()]
        assert len(parts) == len(TABLES)
        central = sum(clipped_sum(model, w, X, y, 1.0, units.GRADIENT) for X, y, _ in parts)
        assert (total == central + sum(noise for _, _, noise in parts)).all()


def test_nodes_of_a_block_share_the_noise_but_for_the_assumed_colluder(monkeypatch):
    sigmas = []
    monkeypatch.setattr(
        noising, "discrete_gaussian", lambda key, sigma, size: sigmas.append((sigma, size)) or np.zeros(size, np.int64)
    )
    with network() as found:
        result = found.run(**JOB, noise=5)
    d = weights(result).size
    whole = 5 * sensitivity(d, units.GRADIENT)
    gradients = [sigma for sigma, size in sigmas if size == d and sigma > 1000]
    assert gradients == pytest.approx([whole / np.sqrt(4 - 1)] * 12)
    sigmas.clear()
    with network() as found:  # several steps: each node adds all of it
        found.run(**JOB, noise=5, epochs=2)
    assert [sigma for sigma, size in sigmas if size == d] == pytest.approx([whole] * 24)


def test_without_noise_it_is_gradient_descent(silent):
    """Clipping at a norm that no gradient reaches, and no noise: the model of the plain job."""
    with network(
        environment={**PRIVATE, "V6_FEDERATED_EPSILON": "1000", "V6_FEDERATED_EPSILON_PER_JOB": "1000"}
    ) as found:
        noisy = found.run(**{**JOB, "clip": 100.0}, noise=1, holdout=0.0)
    scaled = {k: table.assign(age=(table["age"].clip(20, 100) - 60) / 40) for k, table in TABLES.items()}
    with MockNetwork("v6_fedavg", scaled, on_round=lambda row: None) as found:
        plain = found.run(rounds=3, lr=1.0, preprocess=["onehot"], label="ill", features=["age", "sex"], holdout=0.0)
    coefficients, others = weights(noisy), weights(plain)
    assert coefficients.size == others.size + 1  # the declared level x, which no row has
    np.testing.assert_allclose(np.delete(coefficients, 3), others, atol=2e-4)
    assert coefficients[3] == 0


def test_momentum_at_the_server_by_hand(silent):
    """FedAvgM (Hsu et al. 2019) on noisy sums: v <- beta v + eta g, w <- w - v."""
    job = {**JOB, "clip": 100.0, "holdout": 0.0, "noise": 1}
    with network(
        environment={**PRIVATE, "V6_FEDERATED_EPSILON": "1000", "V6_FEDERATED_EPSILON_PER_JOB": "1000"}
    ) as found:
        result = found.run(**job, server_momentum=0.5)
        first = weights(found.run(**{**job, "rounds": 1}))
    tables = TABLES.values()
    X = np.concatenate(
        [np.stack([(t["age"].clip(20, 100) - 60) / 40] + [t["sex"] == c for c in "fmx"], 1) for t in tables]
    )
    X, y = np.column_stack([X.astype(float), np.ones(len(X))]), np.concatenate([t["ill"] for t in tables])
    w = v = np.zeros(5)
    for t in range(3):
        v = 0.5 * v + X.T @ (1 / (1 + np.exp(-X @ w)) - y) / len(y)
        w = w - v
        if t == 0:
            np.testing.assert_allclose(first, w, atol=1e-5)
    np.testing.assert_allclose(weights(result), w, atol=3e-5)


def test_two_runs_with_the_same_seed_have_other_noise():
    models = []
    for _ in range(2):
        with network() as found:
            models.append(weights(found.run(**JOB, epsilon=1)))
    assert (models[0] != models[1]).all()


def test_noise_follows_from_the_request_and_the_secret(tmp_path):
    """So the same request never has two noises, and nobody else knows any."""

    def noise(digest: bytes, folder: str) -> np.ndarray:
        (tmp_path / folder).mkdir(exist_ok=True)
        hospital = HospitalFolder(tmp_path / folder, own=True)
        request = Request(Policy.of("careful"), hospital, None, {}, digest)
        plan = Plan(noise=1, steps=1, evaluations=1, evaluation_noise=10)
        return noising.Noising(plan, request, "job").counts(np.zeros((2, 50)), 1.0, "confusion")

    first = noise(b"T", "one")
    assert (first == noise(b"T", "one")).all() and abs(first).min() >= 0 and abs(first).max() > 0
    for other in (noise(b"U", "one"), noise(b"T", "two")):
        assert (first != other).mean() > 0.95


def test_the_result_says_what_it_cost():
    with network() as found:
        result = found.run(**JOB, epsilon=1)
    said = result["privacy"]
    assert 0.99 < said["epsilon"] <= 1 and said["epsilon_by_privacy_loss_distribution"] <= said["epsilon"]
    assert said["delta"] == 1e-5 and "zero-out" in said["adjacency"] and "dp-accounting" in said["accountant"]
    assert said["plan"]["steps"] == 3 and said["plan"]["evaluations"] == 1
    assert result["final"]["loss"] is None and result["history"][-1]["train_loss"] is None
    assert result["final"]["accuracy_error"] > 0


def test_the_ledger_counts_all_jobs_and_refuses_what_does_not_fit():
    with network() as found:
        for _ in range(2):
            found.run(**JOB, epsilon=1)
        folder = next(found.folder.rglob("ledger.sqlite")).parent
        spent = Ledger(folder, 3, 1e-5).spent()
        assert len(spent.jobs) == 2 and 1 < spent.epsilon < 2
        assert all((job.steps, job.evaluations) == (3, 1) for job in spent.jobs)
        with pytest.raises(
            CollectResultsError, match=r"costs epsilon 2\.9.* of 3 is spent .* What would fit: .*Nothing"
        ):
            found.run(**JOB, epsilon=2.9)
        assert len(Ledger(folder, 3, 1e-5).spent().jobs) == 2
    limited = {**PRIVATE, "V6_FEDERATED_EPSILON_PER_JOB": "0.5"}
    with network(environment=limited) as found, pytest.raises(CollectResultsError, match="a job may cost 0.5"):
        found.run(**JOB, epsilon=1)


def test_the_first_job_cannot_take_the_whole_budget():
    """Who may send tasks could otherwise reserve all of it in one job and compute nothing."""
    unset = {name: text for name, text in PRIVATE.items() if not name.endswith("PER_JOB")}
    with network(environment=unset) as found:
        with pytest.raises(CollectResultsError, match="a job may cost 1 at this node"):
            found.run(**JOB, epsilon=2.9)
        for _ in range(3):
            found.run(**JOB, epsilon=0.99)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"clip": None}, "this node's operator has set a privacy budget .* set clip and epsilon"),
        ({"epsilon": 1, "classes": [1, 0, 2]}, "not in the schema"),
    ],
)
def test_a_job_that_noise_does_not_cover_is_refused(settings, says):
    with network() as found, pytest.raises(CollectResultsError, match=says):
        found.run(**{**JOB, **settings})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "clip=.* needs epsilon or noise"),
        ({"epsilon": 1, "noise": 1}, "noise=1.0 cannot be used with epsilon"),
        ({"epsilon": 1, "batch_size": 10}, "use sampling in its place"),
        ({"epsilon": 1, "aggregation": "plain"}, "noise is for sums"),
        ({"epsilon": 1, "preprocess": ["standardize"]}, "use onehot and scale"),
        ({"epsilon": 1, "evaluators": [4]}, "evaluators cannot be used with clip"),
        ({"epsilon": 1, "optimizer": "adam"}, "optimizer=adam cannot be used with clip"),
        ({"clip": None, "epsilon": 1}, "epsilon=1.0 needs clip"),
        ({"epsilon": 1e-9, "delta": 1e-12}, "no noise"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_any_node_is_asked(settings, says):
    with network() as found, pytest.raises(UserInputError, match=says):
        found.run(**{**JOB, **settings})


@pytest.mark.parametrize("package", ["v6_fsvrg", "v6_colearning", "v6_pca", "v6_gbdt", "v6_loadaboost", "v6_dynavg"])
def test_other_methods_are_refused(package):
    with network(package) as found, pytest.raises((CollectResultsError, UserInputError), match="privacy budget"):
        found.run(rounds=2)


def test_scaffold_trains_with_noise():
    with network("v6_scaffold") as found:
        result = found.run(**JOB, epsilon=2)
    assert result["privacy"]["plan"]["steps"] == 3 and np.isfinite(weights(result)).all()


def test_colearning_reserves_as_many_steps_as_there_can_be():
    """Epochs double in no round, in some, or in all: the plan is the same, and holds them."""
    job = {**JOB, "rounds": 4, "maximum_epochs": 4, "epsilon": 2, "sampling": 0.5}
    with network("v6_colearning") as found:
        calm = found.run(**job, tolerance=0)
        folder = next(found.folder.rglob("ledger.sqlite")).parent
        [used] = [entry.steps for entry in Ledger(folder, 3, 1e-5).spent().jobs]
    assert calm["privacy"]["plan"]["steps"] == 2 * (1 + 2 + 4 + 4) and used == 2 * 4
    assert [row["epochs"] for row in calm["history"]] == [1, 1, 1, 1] and calm["history"][0]["train_loss"] is None
    with network("v6_colearning") as found:
        lively = found.run(**job, tolerance=1e6)
        folder = next(found.folder.rglob("ledger.sqlite")).parent
        [used] = [entry.steps for entry in Ledger(folder, 3, 1e-5).spent().jobs]
    assert lively["privacy"]["plan"] == calm["privacy"]["plan"]
    epochs = [row["epochs"] for row in lively["history"]]
    assert epochs in ([1, 2, 4, 4], [1, 1, 2, 4]) and used == 2 * sum(epochs)  # a zero model has no relative change
    with network("v6_colearning") as found, pytest.raises(UserInputError, match="clip needs maximum_epochs"):
        found.run(**{**job, "maximum_epochs": None})


def test_a_table_that_does_not_fit_its_schema_changes_nothing_that_central_sees():
    """Missing, infinite, unknown and undeclared values: the job runs, and no node reports a failure."""
    odd = TABLES[1].copy()
    odd["age"] = odd["age"].astype(object)
    odd.loc[0, "age"], odd.loc[1, "age"], odd.loc[2, "age"] = None, np.inf, "old"
    odd.loc[3, "sex"], odd.loc[4, "ill"] = "unheard-of", 7
    with network(tables={**TABLES, 1: odd}) as found:
        result = found.run(**JOB, epsilon=1)
    rows = sum(len(split(len(table), 0.2, 1)[0]) for table in TABLES.values())
    assert "stopped" not in result and result["history"][-1]["n"] == rows


def test_a_budget_needs_a_schema():
    with (
        MockNetwork("v6_fedavg", TABLES, environment=PRIVATE, study=StudyPlan(), on_round=lambda row: None) as found,
        pytest.raises(CollectResultsError, match="a privacy budget needs schema.json"),
    ):
        found.run(**JOB, epsilon=1)


def test_a_job_that_goes_on_from_a_result_says_what_both_have_cost():
    with network() as found:
        first = found.run(**JOB, epsilon=1)
        second = found.run(**{**JOB, "rounds": 5}, epsilon=1, resume=first)
    assert 1 < second["privacy"]["epsilon"] < 2
    assert second["privacy"]["earlier_plans"] == [first["privacy"]["plan"]]
    with network() as found, pytest.raises(UserInputError, match="of a privacy plan"):
        found.run(**JOB, epsilon=1, resume={**first, "privacy": {"plan": {**first["privacy"]["plan"], "steps": -1}}})
