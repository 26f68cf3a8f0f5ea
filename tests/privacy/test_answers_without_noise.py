"""Under a privacy budget, nothing that depends on rows leaves without noise: no failure, no single node's part.

Each test is an attack that once worked.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from benchmarks.attacks.isolation import standardize
from benchmarks.attacks.researcher import Refused, Researcher, hospitals

import v6_fedavg
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.declared import conformed
from v6_federated.data.source import Rows, Source
from v6_federated.masks.summands import Count, Layout, Mean, Sum, each, of_the_model
from v6_federated.masks.summing import Sums, encoded
from v6_federated.messages.job import DataSpec, Job
from v6_federated.models import build, metrics
from v6_federated.node import noising
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Column, Schema

LARGEST = float(np.finfo(np.float32).max)


@pytest.fixture
def researcher():
    with Researcher(hospitals(rows=320), "private 8", True) as found:
        found.reserve(steps=5, evaluations=5)
        yield found


def step(researcher, parameters, **data):
    return researcher.ask(
        "v6_fedavg", "client_update", data=data, model={"name": "svm"}, arrays={"weights": np.zeros(parameters)}
    )


@pytest.mark.parametrize("share", [0.999, 1.001])
def test_whether_values_overflow_after_a_step_follows_from_the_schema(researcher, share):
    """A step divides so that only the largest value is too large: whether a node fails told where that value is."""
    column = researcher.features[researcher.finest()]
    largest = max(table[column].max() for table in researcher.tables.values())
    divide = standardize(np.zeros(1), np.sqrt([largest * share / LARGEST]), "scale")
    with pytest.raises(Refused, match="infinite values"):
        step(researcher, 2, features=[column], preprocess=[divide, divide])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"classes": [0]}, r"leaves out the class\(es\) 1 of the schema"),  # whether some row has another class
        ({"categories": ["mean radius"]}, "hold numbers in the schema"),  # whether it has more than 100 values
        ({"preprocess": [{"step": "clip", "fitted": {"bounds": {}}}]}, "no noise covers what the step clip reads"),
    ],
)
def test_a_job_that_only_some_rows_would_fit_is_refused_before_a_row_is_read(researcher, data, says):
    with pytest.raises(Refused, match=says):
        step(researcher, 31, **data)


NUMBERS = Schema((Column("x", "number", -5, 5), Column("grade", "number", 0, 3)), "visits", None, (-10.0, 50.0))


class OneByOne(Researcher):
    """Hospitals with a budget, whose label is a number, and of which each answers alone."""

    schema = NUMBERS
    mode = "plain"

    @property
    def environment(self):
        return {**super().environment, "V6_FEDERATED_AGGREGATION": "plain"}


def visits(**odd):
    """Hospitals of which the first has one odd row."""
    rng = np.random.default_rng(0)
    columns = {"x": rng.normal(size=40).round(3), "grade": rng.integers(0, 2, 40), "visits": rng.integers(0, 6, 40)}
    table = pd.DataFrame(columns).assign(target=0)
    return {1: table.assign(**{name: table[name].where(table.index != 7, value) for name, value in odd.items()})} | {
        k: table for k in (2, 3, 4)
    }


ABOUT = {"label": "visits", "features": ["x"], "classes": None, "regression": True, "holdout": 0.0, "preprocess": []}


def begun(researcher, package):
    """The key of a job that has reserved its plan."""
    job = researcher.job(package, data=ABOUT)
    researcher.send(package, "describe", [1], job=job, round=0, raw=True)
    return {"key": job["key"]}


@pytest.mark.parametrize("odd", [{}, {"grade": 2}, {"visits": -1}])
def test_columns_that_no_noise_covers_are_refused_whatever_is_in_them(odd):
    """Events other than 0 and 1, or times below 0, made a node fail: whether one row has them was told."""
    with OneByOne(visits(**odd), "private 8") as found:
        found.reserve(statistics=1)
        job = begun(found, "v6_pca")
        for name in ("offset", "weights", "event", "time", "subgroup"):
            with pytest.raises(
                Refused,
                match=r"column\(s\) grade are asked for as offset.* no sum with noise uses such"
                if name != "subgroup"
                else "subgroup=grade is no column of words in the schema",
            ):
                found.ask("v6_pca", "noisy_moments", job=job, data={**ABOUT, name: "grade"}, d=1)
        found.ask("v6_pca", "noisy_moments", job=job, data=ABOUT, d=1)


@pytest.mark.parametrize("odd", [{}, {"visits": 37}])
def test_the_label_is_the_schemas_in_every_request(odd):
    """Only descriptions were compared with it: with classes, whether one row had another label was told."""
    with OneByOne(visits(**odd), "private 8") as found:
        found.reserve(steps=9)
        job = begun(found, "v6_coop")
        for classes in ([n for n in range(51) if n != 37], None):
            data, model = {"classes": classes, "regression": False}, {"name": "logreg"} if classes else None
            asked = {"job": job, "model": model, "arrays": {"weights": np.zeros(100)}, "local": {}}
            with pytest.raises(Refused, match="the schema's label visits is a number"):
                found.ask("v6_coop", "client_update", data={**ABOUT, **data}, **asked)
        with pytest.raises(Refused, match="the label grade is not the schema's"):
            found.ask("v6_coop", "client_update", data={**ABOUT, **data, "label": "grade"}, **asked)
        with pytest.raises(Refused, match="visits are not in the schema"):
            wrong = {"features": ["x", "visits"], "supervised": False, "regression": False, "label": None}
            found.ask("v6_coop", "client_update", data={**ABOUT, **wrong}, **asked)


def test_a_job_with_noise_names_the_classes():
    with Researcher(hospitals(rows=160), "private 8") as found:
        found.reserve(statistics=1)
        with pytest.raises(Refused, match="the job names no classes"):
            found.ask("v6_pca", "noisy_moments", data={"classes": None}, d=len(found.features))


def test_numbers_that_are_too_large_to_predict_follow_from_the_schema():
    spec = DataSpec("y", ["x"], regression=True, holdout=0.0)
    job = Job("glm", "0" * 32, 0, [1], [], 1, None, spec, None, "float64")
    for largest in (1e12, 1e13):
        schema = Schema((Column("x", "number", 0, 1),), "y", None, (0.0, largest))
        with nullcontext() if largest == 1e12 else pytest.raises(DataError, match="above 1e"):
            noising.check_declared(job, schema, Policy.of("private"), arrays=False, reads=True)


@pytest.mark.parametrize(
    "summand",
    [
        Mean(),  # with the exact sum, it tells one hospital's part
        Mean(weight="equal"),
        Sum(of_the_model),  # each node rounds by itself
        (Count(of_the_model), Mean()),
    ],
    ids=["share", "equal", "rounded", "count and share"],
)
def test_shared_noise_is_only_in_an_exact_sum(researcher, summand, monkeypatch):
    """No request can ask for another sum, and no function that declares one gets it."""
    agreed = researcher.agreed("v6_fedavg")
    agreed.rows = 320
    job = researcher.job("v6_fedavg", model={"name": "svm", "features": 30, "classes": 2})
    request = {"job": job, "arrays": {"weights": np.zeros(31)}}
    assert agreed.opened(*researcher.sums("v6_fedavg", "noisy_gradient", agreed, **request))[:2] == (4, 0)
    with monkeypatch.context() as patch, pytest.raises(Refused, match="another sum than this node's code declares"):
        patch.setattr(v6_fedavg.noisy_gradient, "sums", {"gradient": summand})  # as central's code says
        researcher.sums("v6_fedavg", "noisy_gradient", agreed, **request)
    given = {"gradient": np.arange(31), "n": 80}
    asked = Sums.of(Layout(tuple(_items(summand))), 1, 1, 320, [(64, 10)] * (not isinstance(summand, Sum)))
    with pytest.raises(SafeError, match="Count is for whole numbers, and only it"):
        encoded(asked, given, 80, 4, bytes(32), bytes(32))


def _items(summand):
    asked = SimpleNamespace(size=31)
    return [item for _, each_of in each({"gradient": summand}) for item in each_of.items("gradient", asked)]


def test_a_row_whose_score_is_not_finite_does_not_change_how_others_are_counted():
    """All counts once were 0 if one score was infinite, and a count of all rows has more than one row's noise."""
    model = build({"name": "logreg", "features": 1, "classes": 2})
    rows = Rows(np.array([[0.1], [0.2], [-0.3], [0.9]]), np.array([0, 1, 0, 1]))
    with np.errstate(over="ignore"):
        w = np.array([1e308, 1.5e308])  # the last row's score is above 1.8e308
        few = metrics.evaluate(model, w, Rows(rows.X[:3], rows.y[:3]), 2, 15, row_by_row=True)
        found = metrics.evaluate(model, w, rows, 2, 15, row_by_row=True)
    assert (found["n"], found["confusion"], found["bands"]) == (3, few["confusion"], few["bands"])


def test_one_infinite_score_does_not_empty_the_counts(researcher):
    """The same at the nodes: a network whose score is infinite for values above a bound alone."""
    mean, scale, _ = researcher.moments()
    k = researcher.finest()
    column, values = researcher.features[k], np.sort(researcher.truth[:, researcher.finest()])
    counts = []
    for bound in (values[-1] + 1, values[-7]):
        answer = researcher.ask(
            "v6_fedavg",
            "evaluate",
            data={"features": [column], "holdout": 0.5, "preprocess": [standardize(mean[[k]], scale[[k]], "scale")]},
            model={"name": "fnn", "hidden": 1},
            arrays={"weights": np.array([1e180, -1e180 * (bound - mean[k]) / scale[k], 3e130, -3e130, 0, 0])},
        )
        counts.append(np.sum(answer.values["evaluation"]["confusion"]))
    assert min(counts) > 100  # of 160 rows that are held out; some have infinite scores


def test_a_row_with_an_undeclared_label_does_not_move_the_others():
    """How many rows are held out, and which, once changed with such a row: sums over all rows changed by ten rows."""
    table = pd.DataFrame({"x": np.arange(75.0), "y": [0, 1, 0] * 25})
    schema = Schema((Column("x", "number", 0, 100),), "y", (0, 1))
    spec, policy = DataSpec(features=["x"], label="y", classes=[0, 1], holdout=0.2), Policy.of("private")
    odd = table.assign(y=table["y"].where(table.index != 7, 5))
    (trained, held), (odd_trained, odd_held) = (
        conformed(Source(table=rows), schema).prepared(spec, 1, policy) for rows in (table, odd)
    )
    every = np.concatenate([trained.X, held.X])
    assert len(every) == 75 and len(held) == 20
    for rows, others in ((trained, odd_trained), (held, odd_held)):
        np.testing.assert_array_equal(np.where(rows.X == 7, np.nan, rows.X), others.X)
