"""The audit by canaries: it catches faults of the noise, and not the right noise; and the noise of whole jobs."""

import contextlib
import importlib
import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import canaries, private_functions
from benchmarks.attacks.researcher import Refused
from scipy import stats

from v6_federated.messages import codec
from v6_federated.node import noising
from v6_federated.node.node import Node
from v6_federated.noise import accountant, units
from v6_federated.noise.clipping import clipped_sum, sensitivity
from v6_federated.noise.plan import Plan
from v6_workbench import registry

MANY = 300  # canaries
PLAN = accountant.calibrated(Plan(steps=1), 8.0, canaries.DELTA)  # each step is an audit of its own
SOUND = contextlib.nullcontext


def test_sound_scores_are_caught_as_often_as_stated():
    rng = np.random.default_rng(1)
    present = np.arange(MANY) % 2 == 0
    verdicts = [canaries.score_test(rng.normal(size=MANY) + 0.3 * present, present, 0.3) for _ in range(10_000)]
    by_test = np.array([[v.less_noise, v.more_influence] for v in verdicts]) < canaries.LEVEL / 2
    assert abs(by_test.mean(axis=0) - 0.015).max() < 4 * math.sqrt(0.015 / 10_000)
    assert abs(np.mean([v.caught for v in verdicts]) - 0.0298) < 4 * math.sqrt(0.03 / 10_000)
    assert np.mean([v.measured for v in verdicts]) == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_the_measured_epsilon_is_that_of_the_accountant(epsilon):
    """PLD's number for a Gaussian mechanism is the exact one, rounded up."""
    plan = accountant.calibrated(Plan(steps=4), epsilon, canaries.DELTA)
    exact = canaries.epsilon_of(math.sqrt(4) / plan.noise)
    assert exact <= accountant.epsilon_pld(plan, canaries.DELTA) < exact + 0.01


def test_the_right_noise_is_not_caught():
    """60 audits of whole jobs: 9 or more false alarms would come by chance once in 10,000 runs of this test."""
    verdicts = canaries.job(replace(PLAN, steps=60), MANY, 1).verdicts()
    assert len(verdicts) == 60 and sum(v.caught for v in verdicts) < 9
    assert np.mean([v.variance for v in verdicts]) == pytest.approx(1, abs=0.05)
    assert np.median([v.measured for v in verdicts]) == pytest.approx(1 / PLAN.noise, abs=0.1)


def test_audits_of_several_steps():
    plan = accountant.calibrated(Plan(steps=5), 8.0, canaries.DELTA)
    audited = canaries.job(replace(plan, steps=20), MANY, 2)
    assert sum(v.caught for v in audited.verdicts(5)) < 3
    halved = canaries.job(plan, MANY, 2, canaries.FAULTS["noise halved"])
    (verdict,) = halved.verdicts(5)
    assert verdict.caught and verdict.measured > 1.5 * verdict.claimed


@pytest.mark.parametrize(
    ("fault", "by"),
    [
        ("noise halved", "less_noise"),
        ("sensitivity doubled: clipped at 2 C", "more_influence"),
        ("a second hospital adds no noise", "less_noise"),
    ],
)
def test_faults_are_caught(fault, by):
    """Each step is an audit; all are caught, but for one in 200 of those of a missing share."""
    verdicts = canaries.job(replace(PLAN, steps=5), MANY, 3, canaries.FAULTS[fault]).verdicts()
    assert sum(v.caught for v in verdicts) >= 4
    assert sum(getattr(v, by) < canaries.LEVEL / 2 for v in verdicts) >= 4


@pytest.mark.parametrize("at", [2, 3])
def test_a_person_at_several_hospitals_is_hidden_if_the_study_says_so(at):
    """Otherwise epsilon is that of noise which is so many times smaller: 1 becomes 2.1 or 3.4."""
    plan = replace(accountant.calibrated(Plan(steps=1), 1.0, canaries.DELTA), steps=8)
    said = canaries.job(plan, MANY, 4, at=at, declared=at).verdicts(8)[0]
    unsaid = canaries.job(plan, MANY, 4, at=at).verdicts(8)[0]
    exact, error = math.sqrt(8) / plan.noise, 4 * 2 / math.sqrt(MANY)
    assert min(said.less_noise, said.more_influence) > 1e-5  # one in thirty is below LEVEL by chance
    assert said.measured == pytest.approx(exact, abs=error)
    assert unsaid.more_influence < canaries.LEVEL / 2 and unsaid.measured == pytest.approx(at * exact, abs=error)
    print(f"at {at}: claimed mu {exact:.3f}, measured {said.measured:.3f} if declared, {unsaid.measured:.3f} if not")


def test_noise_of_whole_jobs(monkeypatch):
    """What nodes add to their exact sums: variance, quantiles, last digits, and nothing in common between draws."""
    drawn = []
    real = noising.Noising.gradient

    def gradient(self, model, w, X, y, step, shared):
        found = real(self, model, w, X, y, step, shared)
        exact = clipped_sum(model, w, X, y, self.plan.clip, units.GRADIENT)
        drawn.append((self.request.entry.organization, found - exact))
        return found

    monkeypatch.setattr(noising.Noising, "gradient", gradient)
    rounds, d = 10, MANY + 1
    for seed in range(2):  # jobs with equal settings and other keys
        canaries.job(Plan(noise=5, steps=rounds), MANY, seed)
    noise = np.stack([found for _, found in drawn])
    assert noise.shape == (2 * rounds * canaries.HOSPITALS, d) and noise.dtype == np.int64
    sigma = 5 * sensitivity(d, units.GRADIENT) / math.sqrt(canaries.HOSPITALS - 1)
    n = noise.size
    assert (noise / sigma).var() == pytest.approx(1, abs=4.5 * math.sqrt(2 / n))
    for k in range(1, canaries.HOSPITALS + 1):
        own = np.concatenate([found for organization, found in drawn if organization == k]) / sigma
        assert own.var() == pytest.approx(1, abs=4.5 * math.sqrt(2 / own.size)), k
    bins = (stats.norm.cdf((noise.ravel() + 0.5) / sigma) * 200).astype(int)
    assert stats.chisquare(np.bincount(bins, minlength=200)).pvalue > 1e-5
    for modulus in (2, 256):
        assert stats.chisquare(np.bincount(noise.ravel() % modulus, minlength=modulus)).pvalue > 1e-5
    correlations = np.corrcoef(noise)[np.triu_indices(len(noise), 1)]  # of nodes, rounds and jobs
    assert abs(correlations).max() < 6.5 / math.sqrt(d)


# ---- one audit for each private function

PRIVATE = [name for name in registry.names() if registry.central_of(name).private]
STEPS = {"fedavg.compressed_update", "fedavg.ditto_update", "fedavg.evaluate_own"}  # train as fedavg.client_update does
TREE = np.array([[0, 0.5, 1.0], [-1, 1.0, 0.0], [-1, 1.0, 0.0]])
OF_TREES = {"weights": TREE[1:2], "structure": TREE}
EDGES = {"edges": codec.encode({"edges": np.zeros(2), "lengths": np.full(1, 2)})}
WITHOUT_NOISE = {  # what each is asked with; it is refused
    "gbdt.average": (None, {}, {}),
    "gbdt.count": (None, {"low": np.zeros(1), "high": np.ones(1)}, {"max_bin": 8}),
    "gbdt.leaf_sums": ({"name": "trees"}, OF_TREES, EDGES),
    "gbdt.bin_sums": ({"name": "trees"}, OF_TREES, EDGES),
    "gbdt.grow": ({"name": "trees"}, {"weights": TREE[1:2]}, {**EDGES, "growth": {}}),
    "glm.newton": ({"name": "glm", "family": "binomial"}, {}, {}),
    "pca.transform": (None, {"mean": np.zeros(1), "scale": np.ones(1), "components": np.eye(1)}, {}),
    "fit_step": (None, {}, {"statistic": "moments"}),
}
TELLS_NO_ROW = {"describe", "confirm", "keep_steps", "forget", "extract", "count_rows"}  # of the schema, and no value


def functions():
    """All functions of methods that take a privacy plan; those of all methods without a method's name."""
    shared = importlib.import_module("v6_federated")
    for method in PRIVATE:
        module = importlib.import_module(f"v6_{method}")
        for name in {*module.__all__} - {"central"}:
            yield name if getattr(shared, name, None) is getattr(module, name) else f"{method}.{name}"


def test_every_private_function_is_audited():
    """A new one is found by its method, which declares ``private``."""
    assert {*functions()} == {*private_functions.FUNCTIONS, *STEPS, *WITHOUT_NOISE} | TELLS_NO_ROW


@pytest.mark.parametrize("function", private_functions.FUNCTIONS)
def test_canaries_see_too_little_noise_in_each_private_function(function):
    """Of the right noise, 1 run in 10,000 looks so; of a quarter of it, nearly all do."""
    sound, quartered = private_functions.audited(function, 60, 1, (SOUND, canaries.scaled_noise(0.25)))
    assert min(sound.less_noise, sound.more_influence) > 5e-5
    assert quartered.less_noise < 1e-3


@pytest.mark.parametrize("function", WITHOUT_NOISE)
def test_what_has_no_noise_is_refused_under_a_budget(function):
    method, _, name = function.rpartition(".")
    package, (model, arrays, settings) = f"v6_{method or 'fedavg'}", WITHOUT_NOISE[function]
    tables = {
        k: table[["c0", "target"]]
        for k, table in private_functions.frames(np.eye(60), np.zeros(60), 1.0, False).items()
    }
    with private_functions.Plain(tables, "private 8", True) as researcher:
        researcher.reserve(steps=1, statistics=1)
        sizes = model and {"features": 1, "classes": 2, **model}
        job = researcher.job(package, model=sizes)
        researcher.send(package, "describe", [1], job=job, round=0, raw=True)
        sent = {"arrays": codec.encode(arrays, "float64")} if arrays else {}
        with pytest.raises(Refused, match="reads rows in a way that no noise covers"):
            researcher.send(package, name, [1], job=job, round=1, **sent, **settings)


@pytest.mark.parametrize("function", sorted(STEPS))
def test_other_functions_train_by_the_steps_of_the_audited_one(function, monkeypatch):
    """All of their noise is drawn by ``Node.train``, in whose place nothing is trained here."""
    drawn = []
    monkeypatch.setattr(Node, "train", lambda node, w, *more, **settings: None)
    monkeypatch.setattr(noising, "discrete_gaussian", lambda *asked: drawn.append(asked) or 0)
    tables = {
        k: table[["c0", "target"]]
        for k, table in private_functions.frames(np.eye(60), np.zeros(60), 1.0, False).items()
    }
    settings = {"local": {}, "known": {}}
    settings |= {"compression": {}} if "compressed" in function else {"personal": {}}
    with private_functions.Plain(tables, "private 8", True) as researcher:
        researcher.reserve(steps=1)
        job = researcher.job("v6_fedavg", model={"features": 1, "classes": 2, **private_functions.LOGREG})
        researcher.send("v6_fedavg", "describe", [1], job=job, round=0, raw=True)
        sent = {"arrays": codec.encode({"weights": np.zeros(2)}, "float64"), **settings}
        researcher.send("v6_fedavg", function.rpartition(".")[2], [1], job=job, round=1, **sent)
    assert not drawn
