"""What a block tells by whether some node could not compute its part: one bit a job.

Each attack halves a bound that the request chooses. Without its cure, it finds a number of the hospital whose own is
the largest, or the smallest. With it no bound makes a node fail.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from forged import Central

from v6_federated.data.statistics import Moments
from v6_federated.gate import call
from v6_federated.masks import exact
from v6_federated.messages import codec
from v6_federated.node.node import Node
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

SIZES = (43, 61, 87, 110)
ILL = (9, 28, 55, 86)
SCHEMA = Schema((Column("cells", "number", 0, 10), Column("age", "number", 0, 120)), "ill", (0, 1))
AGES = Schema((Column("cells", "number", 0, 10), Column("ill", "number", 0, 1)), "age", None, (0, 120))
CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}
LARGEST = float(np.finfo(np.float32).max)


def tables() -> dict[int, pd.DataFrame]:
    """Hospitals whose numbers of rows, shares of ill patients and means of age all differ."""
    rng = np.random.default_rng(3)
    found = {}
    for k, (n, ill) in enumerate(zip(SIZES, ILL, strict=True), start=1):
        age = rng.integers(20 + 3 * k, 90, n).astype(float)
        cells = rng.uniform(0, 10, n).round(2)
        found[k] = pd.DataFrame({"cells": cells, "age": age, "ill": rng.permutation(np.arange(n) < ill).astype(int)})
    return found


@pytest.fixture
def fails(tmp_path):
    """A function that begins a job of its own for each question, and says whether some node of the block failed."""
    networks, keys = {}, itertools.count(1)

    def ask(function: str, job: dict, schema=SCHEMA, package="v6_fedavg", **asked) -> bool:
        if package not in networks:
            options = {"hospital_folder": tmp_path / package, "study": StudyPlan(4, schema=schema)}
            networks[package] = MockNetwork(package, tables(), environment=CAREFUL, **options).__enter__()
        lying = Central(networks[package], "pinned")
        data = {
            **lying.job["data"],
            "features": ["cells", "age"],
            "label": "ill",
            "holdout": 0.0,
            **job.pop("data", {}),
        }
        lying.job |= {"method": package.removeprefix("v6_"), "key": f"{next(keys):032x}", "data": data, **job}
        lying.agree()
        send = lying.update if function == "client_update" else lambda k, **more: lying.ask(k, function, 1, **more)
        answers = [send(k, **asked) for k in lying.network.nodes]
        assert not any(isinstance(answer, str) for answer in answers), answers
        nodes, failed = lying.opened(answers)[:2]
        assert nodes == len(SIZES)
        return failed

    yield ask
    for network in networks.values():
        network.__exit__(None, None, None)


def bound(failed, low: float, high: float, digits: float) -> float | None:
    """Where nodes begin, or cease, to fail; None if all between fail, or none."""
    at_low = failed(low)
    if at_low == failed(high):
        return None
    while high / low > 1 + digits:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if failed(middle) == at_low else (low, middle)
    return math.sqrt(low * high)


def largest_loss(fails, rows: float) -> bool:
    """All rows have the loss 2^260 / rows, so that ``rows`` of them reach 2^260."""
    weights = np.array([0, 0, 1e20])
    loss = {"name": "squared", "mean": 0.0, "scale": math.sqrt(2.0**260 / rows) / 1e20}
    data = {"label": "age", "features": ["cells", "ill"], "classes": None, "regression": True}
    job = {"model": {"name": "linear", "features": 2, "classes": 1, "loss": loss}, "data": data}
    return fails("client_update", job, AGES, weights=weights, unit=(64, 10), lr=0.0)


@pytest.mark.parametrize("cured", [True, False])
def test_a_sum_of_losses_that_is_too_large_tells_no_number_of_rows(cured, fails, monkeypatch):
    """A node failed where its sum of losses reached 2^260. With equal losses, that was its number of rows."""
    if not cured:
        real = call._summands

        def as_before(node, *more):
            found = real(node, *more)
            assert found["train_loss"].floats()[0] < 2.0**260
            return found

        monkeypatch.setattr(call, "_summands", as_before)
        monkeypatch.setattr(exact, "MOST", 2.0**400)
        monkeypatch.setattr("v6_federated.models.outcomes.MOST", 1e150)
    found = bound(lambda rows: largest_loss(fails, rows), 20.3, 400.7, 0.004)
    assert found is None if cured else round(found) == max(SIZES)


@pytest.mark.parametrize("cured", [True, False])
def test_squares_that_are_too_large_tell_no_variance(cured, fails, monkeypatch):
    """A node failed where its sum of squares about its own mean passed float32, by a scale of the task's choice."""
    if not cured:
        real = Moments.as_sums
        monkeypatch.setattr(Moments, "as_sums", lambda moments, node: moments.of_rows(node) and real(moments, node))

    def failed(squares: float) -> bool:
        scale = np.full(2, math.sqrt(squares / LARGEST))
        arrays = {"mean": np.zeros(2), "mean_rest": np.zeros(2), "scale": scale}
        arrays["components"] = np.array([[0.0, 1.0]])
        steps = [{"step": "pca", "fitted": codec.encode(arrays, "float64")}]
        center = codec.encode({"center": np.zeros(1)}, "float64")
        asked = {"statistic": "moments", "arrays": center}
        return fails("fit_step", {"model": None, "data": {"preprocess": steps}}, **asked)

    found = bound(failed, 1e2, 1e7, 1e-3)
    squares = max(((table.age - table.age.mean()) ** 2).sum() for table in tables().values())
    assert found is None if cured else found == pytest.approx(squares, rel=1e-3)


@pytest.mark.parametrize("cured", [True, False])
@pytest.mark.parametrize("minibatches", [True, False])
def test_weights_of_classes_tell_no_share_of_ill_patients(cured, minibatches, fails, monkeypatch):
    """A node failed where its own rows, or those of a minibatch, counted as too few by Kish's number."""
    if not cured:
        plain = property(lambda node: False, lambda node, value: None)
        monkeypatch.setattr(Node, "pinned", plain, raising=False)

    def failed(weight: float) -> bool:
        model = {"name": "logreg", "features": 2, "classes": 2, "weights": [weight, 1.0]}
        local = {"batch_size": 12, "local_steps": 2} if minibatches else {}
        return fails("client_update", {"model": model}, weights=np.zeros(3), unit=(64, 10), lr=0.1, **local)

    found = bound(failed, 0.05 if minibatches else 1e-3, 1.0, 1e-3)
    if cured and not minibatches:
        assert found is None
        return
    if cured:  # it follows from the weights
        assert 12 * 4 * found / (found + 1) ** 2 == pytest.approx(10, rel=1e-3)
        return
    kish = [((n - ill) * found + ill) ** 2 / ((n - ill) * found**2 + ill) for n, ill in zip(SIZES, ILL, strict=True)]
    least = [10 / 12 * n for n in SIZES] if minibatches else [10] * len(SIZES)
    assert min(k / m for k, m in zip(kish, least, strict=True)) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("weights", [[1.0, 1.0], [0.2, 1.0, 0.7], [30.0, 0.5]])
def test_a_minibatch_that_any_hospital_may_have_counts_as_enough_rows(weights):
    """Kish's number of any rows with these weights is at least the minimum."""
    policy = Policy.of("careful")
    rng = np.random.default_rng(1)
    least = policy.least_batch(weights)
    for _ in range(300):
        rows = rng.choice(weights, least, p=rng.dirichlet(np.full(len(weights), 0.3)))
        assert rows.sum() ** 2 / np.square(rows).sum() >= policy.minimum_batch - 1e-9
    assert policy.least_batch([1.0, 1.0]) == policy.minimum_batch


@pytest.mark.parametrize(("weight", "says"), [(1e-3, ""), (1e-9, "with these class_weights the study's rows count as")])
def test_weights_of_classes_are_checked_over_the_study(weight, says, tmp_path):
    """At a hospital with 9 ill patients the rows may count as 9, as long as those of the study are enough."""
    few = tables()
    options = {"hospital_folder": tmp_path, "study": StudyPlan(4, schema=SCHEMA), "environment": CAREFUL}
    if says:
        few = {k: pd.concat([t[t.ill == 0], t[t.ill == 1][:2]]) for k, t in few.items()}
        options["environment"] = CAREFUL | {"V6_FEDERATED_CLASSES": "*"}
    with MockNetwork("v6_fedavg", few, **options) as network:
        asked = {"label": "ill", "rounds": 2, "holdout": 0.0, "class_weights": {"0": weight}}
        if says:
            with pytest.raises(Exception, match=says):
                network.run(**asked)
        else:
            assert len(network.run(**asked)["history"]) == 2
