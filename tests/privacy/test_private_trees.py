"""Boosted trees from noisy sums of clipped derivatives."""

import math

import numpy as np
import pandas as pd
import pytest
from benchmarks.attacks.researcher import Refused, Researcher, hospitals
from hypothesis import given, settings
from hypothesis import strategies as st

from v6_federated import Federation
from v6_federated.base.vantage6_api import CollectResultsError, UserInputError
from v6_federated.messages import codec
from v6_federated.node import noising
from v6_federated.noise.ledger import Ledger
from v6_federated.rules.schema import Column, Schema
from v6_gbdt import bins, leaves, structures
from v6_gbdt.trees import FEATURE, LEAF, VALUE, Trees
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

PRIVATE = {
    "V6_FEDERATED_PROFILE": "private",
    "V6_FEDERATED_EPSILON": "8",
    "V6_FEDERATED_EPSILON_PER_JOB": "8",
    "V6_FEDERATED_DELTA": "1e-5",
}
SCHEMA = Schema(
    (Column("age", "number", 20, 100), Column("sex", "words", levels=("f", "m"))), label="ill", classes=(0, 1)
)
JOB = {"rounds": 3, "trees": 5, "clip": 1.0, "preprocess": ["scale", "onehot"], "evaluate_every": 3}


def hospital(k: int) -> pd.DataFrame:
    rng, n = np.random.default_rng(k), 300 + 10 * k
    age = rng.normal(60, 12, n).round().clip(20, 100)
    y = age + rng.normal(0, 8, n) > 60
    return pd.DataFrame({"age": age, "ill": y.astype(int), "sex": rng.choice(["m", "f"], n)})


TABLES = {k: hospital(k) for k in range(1, 5)}


def network(environment=PRIVATE, **options):
    study = StudyPlan(schema=SCHEMA)
    return MockNetwork("v6_gbdt", TABLES, environment=environment, study=study, on_round=lambda row: None, **options)


def ensemble(result) -> np.ndarray:
    return codec.decode(result["weights"])["weights"]


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, sigma, size: np.zeros(size, np.int64))


def test_by_hand():
    """z = rint(u v / max(|v|, C)) of v = (g, 3 h), added up by leaf."""
    tree = np.array([[0, 0.5, 0], [LEAF, 0, 0], [LEAF, 0, 0]], np.float32)
    X = np.array([[0.0], [1.0], [1.0]], np.float32)
    g, h = np.array([[0.5], [-0.6], [np.nan]]), np.array([[0.25], [0.8 / 3], [0.1]])
    u = 2.0**20 * (1 - 2.0**-29)
    expected = [round(u * 0.5), round(u * -0.6 / 1.0), round(u * 0.75), round(u * 0.8)]
    got = leaves.clipped_sums([tree], X, g, h, 1.0, lambda: None)
    assert np.abs(got - expected).max() <= 1  # 0.6 and 0.8 in binary
    halved = leaves.clipped_sums([tree], X, g, h, 0.5, lambda: None)
    assert halved[1] == pytest.approx(expected[1], abs=2) and halved[0] == round(u * 0.5 / math.hypot(0.5, 0.75))


def test_clipping_at_one_changes_nothing_of_two_classes():
    """|(g, 3 h)| of a logistic loss is 1 at most: p^2 (1 + 9 (1 - p)^2) <= 1."""
    f = np.concatenate([np.linspace(-40, 40, 100_001), [-700, 700]])[:, None]
    for y in (0, 1):
        g, h = Trees(1, 2).gradient(f, np.full(len(f), y))
        assert np.hypot(g, leaves.STEEPER * h).max() <= 1


@settings(max_examples=100)
@given(
    classes=st.integers(2, 4),
    trees=st.integers(1, 4),
    scale=st.sampled_from([1e-3, 1.0, 50.0, 1e30, np.inf]),
    clip=st.sampled_from([1e-6, 0.3, 1.0, 7.0]),
    seed=st.integers(0, 10**6),
)
def test_one_row_moves_the_sum_no_further_than_is_proven(classes, trees, scale, clip, seed):
    """Whatever the ensemble so far and the boxes are."""
    rng = np.random.default_rng(seed)
    model, edges = Trees(2, classes), bins.even([False, True], 8)
    grown = structures.drawn(rng, edges, 2, 3 * model.columns)
    is_leaf = grown[:, FEATURE] == LEAF
    with np.errstate(all="ignore"):
        grown[is_leaf, VALUE] = (rng.normal(size=is_leaf.sum()) * scale).astype(np.float32)
        X, y = rng.normal(size=(6, 2)).astype(np.float32), rng.integers(0, classes, 6)
        boxes = model.split(structures.drawn(rng, edges, 3, trees * model.columns))

        def total(rows):
            g, h = model.gradient(model.scores(grown, X[rows]), y[rows])
            return leaves.clipped_sums(boxes, X[rows], g, h, clip, lambda: None)

        moved = total(np.arange(6)) - total(np.arange(5))
    assert math.sqrt(sum(int(x) ** 2 for x in moved)) <= leaves.reach(trees, model.columns)


def test_the_bound_is_reached():
    """A row of whose class the ensemble is sure that it is another."""
    trees = [np.array([[LEAF, 0, 0]], np.float32)] * 3
    g, h = Trees(1, 2).gradient(np.array([[30.0]]), np.array([0]))
    moved = leaves.clipped_sums(trees, np.zeros((1, 1), np.float32), g, h, 1.0, lambda: None)
    assert np.linalg.norm(moved) == pytest.approx(leaves.reach(3, 1), rel=1e-5)


def test_the_sum_over_hospitals_is_exactly_that_of_all_rows(monkeypatch):
    """And the first trees follow from it, by hand."""
    drawn, sums = [], []
    real = noising.Noising.statistic

    def statistic(self, total, reach, number):
        found = real(self, total, reach, number)
        drawn.append(found - total)
        return found

    real_sum = Federation.noisy_sum
    monkeypatch.setattr(noising.Noising, "statistic", statistic)
    monkeypatch.setattr(Federation, "noisy_sum", lambda *args: sums.append(real_sum(*args)) or sums[-1])
    with network() as found:
        result = found.run(**{**JOB, "rounds": 1, "holdout": 0.0}, noise=2)
    assert len(drawn) == 4 and result["privacy"]["noise_shared_in_a_block"] is True
    pooled = pd.concat(TABLES.values())
    X = np.column_stack([(pooled["age"] - 60) / 40, pooled["sex"] == "f", pooled["sex"] == "m"]).astype(np.float32)
    w, (total,) = ensemble(result), sums
    p = 0.5
    g, h = p - pooled["ill"].to_numpy()[:, None], np.full((len(X), 1), p * (1 - p))
    trees = Trees(3, 2).split(w)
    exact = leaves.clipped_sums(trees, X, g, h, 1.0, lambda: None)
    assert len(trees) == 5 and (total == exact + sum(drawn)).all()
    G, H = np.split(total / 2**20, 2)
    sigma = 2 * math.sqrt(4 / 3) * math.sqrt(5)  # of four hospitals one may tell its noise; five trees are one answer
    known = (
        H / 3 >= structures.MINIMUM_HESSIAN
    )  # noise can make it negative; the leaf then has the sums of those around
    expected = -0.1 * G / (H / 3 + 1 + sigma)
    assert known.sum() > 10  # of 40; 30 on average, with a standard deviation of 2.7 over the noise
    np.testing.assert_allclose(w[w[:, FEATURE] == LEAF, VALUE][known], expected[known], rtol=1e-5)


def test_thresholds_follow_from_what_is_declared(silent):
    """Columns of 0 and 1 are split in the middle, others between their bounds."""
    with network() as found:
        result = found.run(**{**JOB, "rounds": 4}, noise=2)
    w = ensemble(result)
    of_words, of_age = w[w[:, FEATURE] > 0], w[w[:, FEATURE] == 0]
    assert set(of_words[:, VALUE].tolist()) == {0.5} and len(of_age)
    assert set(of_age[:, VALUE].tolist()) <= set(np.linspace(-1, 1, 65)[1:-1].astype(np.float32).tolist())


def test_leaves_of_few_rows_are_not_folded(silent):
    """What is folded would depend on rows, in a way that no noise covers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 1)).astype(np.float32)
    alone = float(np.sort(X[:, 0])[0])
    tree = np.array([[0, alone, 0], [LEAF, 0, 0], [LEAF, 0, 0]], np.float32)
    g, h = Trees(1, 2).gradient(np.zeros((50, 1)), np.ones(50, np.int64))
    G, _ = leaves.of_clipped(leaves.clipped_sums([tree], X, g, h, 1.0, lambda: None), 1.0)
    np.testing.assert_allclose(G, [-0.5, -24.5], atol=1e-4)


def test_a_study_learns_and_the_ledger_counts():
    with network() as found:
        result = found.run(**{**JOB, "rounds": 6}, epsilon=4)
        folder = next(found.folder.rglob("ledger.sqlite")).parent
        [job] = Ledger(folder, 8, 1e-5).spent().jobs
    assert (job.steps, job.evaluations, job.statistics) == (0, 2, 6) and 0.99 < job.epsilon / 4 <= 1
    assert result["final"]["accuracy"] > 0.7 and result["final"]["loss"] is None
    assert result["privacy"]["noised"] == "counts of evaluations and sums over clipped rows"
    assert all("train_loss" not in row or row["train_loss"] is None for row in result["history"])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"mode": "histogram"}, "mode=histogram cannot be used with clip"),
        ({"mode": "cyclic"}, "mode=cyclic cannot be used with clip"),
        ({"mode": "bagging"}, "mode=bagging cannot be used with clip"),
        ({"early_stopping": 2, "holdout": 0.2, "evaluate_every": 1}, "early_stopping=2 cannot be used with clip"),
        ({"preprocess": ["onehot"]}, "add the step scale"),
        ({"preprocess": ["standardize"]}, "no noise covers what it reads"),
        ({"objective": "regression"}, "objective=regression cannot be used with clip"),
        ({"sampling": 0.5}, "unknown setting 'sampling'"),
        ({"clip": None, "evaluation_noise": 3}, "evaluation_noise=3.0 needs clip; set clip and epsilon"),
    ],
)
def test_what_noise_does_not_cover_is_refused(wrong, says):
    with network() as found, pytest.raises(UserInputError, match=says):
        found.run(**{**JOB, **({"epsilon": 1} if wrong.get("clip", 1) else {}), **wrong})


@pytest.mark.parametrize("function", ["average", "bin_sums", "count", "grow", "leaf_sums"])
def test_functions_without_noise_are_refused_to_tasks_of_any_kind(function):
    """Central's settings bind only who uses central."""
    with Researcher(hospitals(rows=320), "private 8", True) as researcher:
        researcher.reserve(evaluations=5)
        features = len(researcher.features)
        tree = np.array([[0, 0.5, 0], [LEAF, 1, 0], [LEAF, 1, 0]], np.float32)
        edges = codec.encode(bins.pack([np.array([0.5], np.float32)] * features))
        arrays = {"weights": np.zeros((0, 3), np.float32), "structure": tree}
        own = {"edges": edges}
        if function == "average":
            arrays, own = {}, {}
        if function == "count":
            ends = np.ones(features, np.float32)
            arrays, own = {"low": -ends, "high": ends}, {"max_bin": 4}
        if function == "grow":
            del arrays["structure"]
            own |= {"growth": {}}
        said = "grow needs aggregation=plain" if function == "grow" else "the nodes add noise alone"
        with pytest.raises(Refused, match=said):
            researcher.ask("v6_gbdt", function, model={"name": "trees"}, arrays=arrays, **own)


def test_a_job_without_noise_is_refused():
    with network() as found, pytest.raises((CollectResultsError, UserInputError), match="privacy budget"):
        found.run(rounds=2)
