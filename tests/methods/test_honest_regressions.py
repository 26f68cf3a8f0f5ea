"""Sums of regressions are compared so that honest hospitals end no job, and a lie a thousand times too large does."""

import sys

import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, train
from vantage6.algorithm.tools.exceptions import CollectResultsError

import v6_cox
from v6_cox.likelihood import of_stratum
from v6_federated.central.answer import Answer
from v6_federated.central.bounds import Bounds, norms
from v6_federated.messages import codec
from v6_federated.messages.common import Common
from v6_workbench.conformance.jobs import FORESEEN
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

COX = sys.modules[v6_cox.central.__module__]

PLAIN = {"gradient": lambda a: a["gradient"] / a.n, "hessian": lambda a: a["hessian"] / a.n, "measures": None}


def rows_of(rng, sizes, p=1, effect=0.0):
    """Columns, times and events of hospitals whose patients are alike."""
    found = []
    for n in sizes:
        X = rng.normal(size=(n, p))
        T, C = rng.exponential(1, n) * np.exp(-effect * X.sum(axis=1)), rng.uniform(0.2, 3, n)
        found.append((X, np.minimum(T, C), (T <= C) * 1))
    return found


def why_ended(seed: int, K: int, p: int, effect: float, lie=(), measures=COX.COMPARED) -> str:
    """Why central ends a job of cox, by its own functions; empty if it does not."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(30, 200, K)
    hospitals, beta = rows_of(rng, sizes, p, effect), np.zeros(p)
    bounds = Bounds(Common())
    bounds.rows = {k: int(n) for k, n in enumerate(sizes)}
    for _ in range(6):
        answers = []
        for k, (X, time, event) in enumerate(hospitals):
            found = of_stratum(X, time, event, beta, "efron")
            numbers = np.array([len(time), event.sum(), found["log_likelihood"], 0, 0])
            triangle = found["hessian"][np.tril_indices(p)]
            arrays = {"gradient": found["gradient"], "hessian": triangle, "measures": numbers}
            answers.append(Answer(k, len(time), arrays, {}, 0, 0, "newton"))
        answers[1].arrays.update({name: 1000 * answers[1][name] for name in lie})
        try:
            bounds.check_norms("r", "newton", {a.organization_id: norms(a, {}, measures) for a in answers})
        except CollectResultsError as error:
            return str(error)
        H = sum(COX.inference.symmetric(a["hessian"], p) for a in answers)
        beta = beta + np.linalg.solve(H, sum(a["gradient"] for a in answers))
    return ""


def test_no_honest_job_of_cox_is_ended():
    """Plain norms of gradients end some of these jobs: near 0, one is soon ten times another."""
    seeds = [*range(60), 147, 216, 320, 411]
    assert not [seed for seed in seeds if why_ended(seed, 3, 1, 0.0)]
    assert [seed for seed in seeds if why_ended(seed, 3, 1, 0.0, measures=PLAIN)] == seeds[-4:]


@pytest.mark.parametrize("lie", [["gradient"], ["hessian"], ["gradient", "hessian"]], ids="+".join)
def test_sums_a_thousand_times_too_large_end_each_job_of_cox(lie):
    said = [why_ended(seed, 4, 2, 0.3, lie) for seed in range(20)]
    assert all("organization 1: sent" in why and "maximum_norm_ratio=30" in why for why in said)
    assert not any("eave it out" in why for why in said), "that would choose rows by their outcome"


def hospitals():
    rng = np.random.default_rng(3)
    made = {}
    for k, (X, time, event) in enumerate(rows_of(rng, [60, 80, 100, 120], 2, 0.4), start=1):
        made[k] = pd.DataFrame({"x0": X[:, 0], "x1": 50 + 10 * X[:, 1], "dead": event, "months": time})
    return made


JOBS = {
    "cox": ("v6_cox", {"label": "months", "event": "dead"}, ["gradient", "hessian"]),
    "cox on bins": ("v6_cox", {"label": "months", "event": "dead", "strata": "none"}, ["risk", "hessian"]),
    "binomial": ("v6_glm", {"label": "dead"}, ["gradient", "hessian"]),
    "gaussian": ("v6_glm", {"label": "months", "family": "gaussian"}, ["gradient", "hessian"]),
    "poisson": ("v6_glm", {"label": "dead", "family": "poisson"}, ["gradient", "hessian"]),
    "gamma": ("v6_glm", {"label": "months", "family": "gamma"}, ["gradient", "hessian"]),
}


def ended(job: str, lying=()) -> str:
    """Why a job on mock nodes ends; empty if it comes to its end. ``lying`` names what hospital 2 sends too large."""
    package, settings, _ = JOBS[job]

    def alter(answer):
        found = codec.decode(answer["arrays"])
        sent = {name: 1000 * array if name in lying else array for name, array in found.items()}
        return {**answer, "arrays": codec.encode(sent, "float64")}

    def outcomes(k, input_):
        here = k == 2 and lying and input_["method"].startswith("newton")
        return CallOutcome(1.0, alter=alter if here else None)

    with MockNetwork(package, hospitals(), environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        try:
            return network.run(**settings).get("stopped", "")
        except FORESEEN as error:
            return str(error)


@pytest.mark.parametrize("job", JOBS)
def test_each_sum_that_is_a_thousand_times_too_large_ends_the_job_and_names_its_hospital(job):
    assert ended(job) == ""
    for name in JOBS[job][2]:
        assert "organization 2: sent" in ended(job, [name]), name


def test_hospitals_with_twenty_times_the_counts_end_no_job():
    """A plain gradient of one of these hospitals is 40 times the median."""
    rng = np.random.default_rng(0)
    nodes = {}
    for k, rate in enumerate([1, 1, 2, 20], start=1):
        x = rng.normal(size=100)
        nodes[k] = pd.DataFrame({"x": x, "y": rng.poisson(rate * np.exp(0.2 * x))})
    assert train("v6_glm", nodes, family="poisson")["converged"]
