"""CO-OP under a privacy budget: single answers, each with all of the noise, where operators allow single answers."""

import itertools

import numpy as np
import pandas as pd
import pytest

from v6_federated.base.vantage6_api import CollectResultsError, UserInputError
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec, Job
from v6_federated.node import noising
from v6_federated.noise import units
from v6_federated.noise.clipping import sensitivity
from v6_federated.noise.ledger import Ledger
from v6_federated.noise.plan import Plan
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

SCHEMA = Schema((Column("age", "number", 20, 100),), label="ill", classes=(0, 1))
PRIVATE = {
    "V6_FEDERATED_PROFILE": "private",
    "V6_FEDERATED_EPSILON": "8",
    "V6_FEDERATED_EPSILON_PER_JOB": "8",
    "V6_FEDERATED_DELTA": "1e-5",
}
PLAIN = {**PRIVATE, "V6_FEDERATED_AGGREGATION": "plain"}
JOB = {"rounds": 4, "lr": 1.0, "clip": 1.0, "preprocess": ["scale"], "aggregation": "plain", "evaluate_every": 4}


def hospital(k: int) -> pd.DataFrame:
    rng = np.random.default_rng(k)
    age = rng.normal(60, 10, 600).round()
    return pd.DataFrame({"age": age, "ill": (age + rng.normal(0, 5, 600) > 60).astype(int)})


TABLES = {k: hospital(k) for k in range(1, 5)}


def network(environment=PLAIN, package="v6_coop", **options):
    study = StudyPlan(schema=SCHEMA)
    return MockNetwork(package, TABLES, environment=environment, study=study, on_round=lambda row: None, **options)


def ledgers(found):
    return [Ledger(file.parent, 8, 1e-5).spent() for file in sorted(found.folder.rglob("ledger.sqlite"))]


def test_it_learns_and_each_node_counts_its_own_steps():
    with network() as found:
        result = found.run(**JOB, epsilon=3)
        spent = ledgers(found)
    assert result["final"]["accuracy"] > 0.75 and result["final"]["loss"] is None  # 0.5 without training
    assert result["final"]["accuracy_error"] > 0 and result["history"][0]["train_loss"] is None
    said = result["privacy"]
    assert 2.9 < said["epsilon"] <= 3 and said["noise_shared_in_a_block"] is False and said["plan"]["steps"] == 4
    assert len(spent) == 4
    for ledger in spent:
        [job] = ledger.jobs
        assert 0 < job.steps <= 4 and job.evaluations == 1


def test_each_answer_has_all_of_the_noise_also_in_a_study(monkeypatch):
    sigmas = []
    real = noising.discrete_gaussian
    monkeypatch.setattr(
        noising, "discrete_gaussian", lambda key, sigma, size: sigmas.append((sigma, size)) or real(key, sigma, size)
    )
    with network() as found:
        found.run(**JOB, noise=5)
    gradients = [sigma for sigma, size in sigmas if size == 2]
    assert gradients == pytest.approx([5 * sensitivity(2, units.GRADIENT)] * len(gradients)) and len(gradients) >= 13
    counts = {sigma for sigma, size in sigmas if size != 2}
    assert counts == {10 * np.sqrt(2) * units.COUNT}


def test_a_fast_node_is_not_called_beyond_the_plan():
    """Node 1 is so fast that it is overactive again and again; when its steps are used up, the others go on."""
    with network(outcomes=lambda k, _: CallOutcome(0.1 if k == 1 else k)) as found:
        result = found.run(**JOB, epsilon=3, age_lower=1)
        used = [ledger.jobs[0].steps for ledger in ledgers(found)]
    assert used[0] == 4 and max(used) <= 4 and 1 <= len(result["history"]) <= 4
    assert sum(row["overactive"] for row in result["history"]) >= 1 and "stopped" not in result
    assert np.isfinite(codec.decode(result["weights"])["weights"]).all()


def test_the_same_request_again_has_other_noise_and_counts_again():
    """Single answers are not stored. Computed again from other rows under the same noise, two would differ by rows."""
    plan = Plan(noise=5, steps=3).to_json()
    spec = DataSpec("ill", ["age"], [0, 1], holdout=0.0)
    model = {"name": "svm", "features": 1, "classes": 2}
    job = Job("coop", "0" * 32, 0, [1, 2, 3, 4], [], 4, model, spec, None, "float32", "plain", plan).to_json()
    with network() as found:
        client = found.client()

        def ask(function, **kwargs):
            task = client.task.create({"method": function, "kwargs": {"job": job, **kwargs}}, [1])
            [run] = client.run.from_task(task["id"])
            return run, client.wait_for_results(task["id"])

        ask("describe", round=0, raw=False)
        step = {"round": 1, "local": {"lr": 1.0}, "arrays": codec.encode({"weights": np.zeros(2)}, "float32")}
        answers = [ask("client_update", **step)[1][0] for _ in range(3)]
        models = [codec.decode(answer["arrays"])["weights"] for answer in answers]
        assert all((a != b).all() for a, b in itertools.combinations(models, 2))
        run, _ = ask("client_update", **step)
        assert "asks for 1 more steps" in run["log"] and ledgers(found)[0].jobs[0].steps == 3


def test_it_needs_operators_who_allow_single_answers():
    with network(PRIVATE) as found, pytest.raises(CollectResultsError, match="requires aggregation="):
        found.run(**JOB, epsilon=3)
    with network() as found, pytest.raises(UserInputError, match="set aggregation=plain"):
        found.run(**{**JOB, "aggregation": "auto"}, epsilon=3)
    with network() as found, pytest.raises(CollectResultsError, match="privacy budget"):
        found.run(rounds=2, aggregation="plain")


def test_what_does_not_fit_is_refused_before_anything_is_computed():
    with network() as found, pytest.raises(CollectResultsError, match=r"8 is spent .*What would fit"):
        found.run(**JOB, epsilon=9)
