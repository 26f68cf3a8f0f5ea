"""What a sum over a block of a study must not tell: numbers of single hospitals, by bounds, columns or limits."""

import importlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from forged import Central, central, k_rows, table_of
from masked_jobs import nodes

from v6_federated import partial
from v6_federated.base.errors import SafeError
from v6_federated.data import preprocessing
from v6_federated.masks import summing
from v6_federated.masks.summands import TRUTHS, Part, Truth
from v6_federated.masks.summing import Sums
from v6_federated.messages import codec
from v6_federated.node import local_training
from v6_federated.rules.schema import Column, Schema
from v6_workbench import registry
from v6_workbench.simulation import mock_node
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork, StudyPlan
from v6_workbench.simulation.row_store import RowStore

CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}


def labels_far_apart(network: MockNetwork) -> None:
    """Each hospital's labels are numbers about a mean of its own."""
    store = RowStore(network.folder / "numbers")
    for k, node in network.nodes.items():
        table = table_of(node).copy()
        table["label"] = 100.0 * k + np.random.default_rng(k).normal(size=len(table)).round(3)
        network.nodes[k] = replace(node, rows=mock_node.stored(k, table, store))
    store.close()


def asked(lying, function, seq, weights, **arguments):
    """The sums of a block."""
    arrays = codec.encode({"weights": np.asarray(weights, dtype=float)})
    answers = [lying.ask(k, function, seq, arrays=arrays, **arguments) for k in lying.network.nodes]
    assert not any(isinstance(a, str) for a in answers), answers
    nodes, failed, found, _ = lying.opened(answers)
    assert nodes == len(lying.network.nodes) and not failed
    return found


@pytest.mark.parametrize("function", ["client_update", "evaluate"])
def test_a_sum_of_squared_errors_has_no_steps(function, tmp_path):
    """Of a model that predicts m it is a polynomial of m, so nothing shows where one hospital's part of it rounds.

    If each hospital rounds its own mean first, the sum jumps by its rows times its step; if predictions far from its
    own mean are moved nearer, the sum has a kink. Both name the hospital, and its mean.
    """
    with central("pinned", tmp_path, environment=CAREFUL) as lying:
        labels_far_apart(lying.network)
        lying.job["model"] = {"name": "linear", "features": 4, "classes": 1}
        lying.job["data"] = {**lying.job["data"], "classes": None, "regression": True, "holdout": 0.5}
        lying.agree()
        evaluates = function == "evaluate"
        loss = "one evaluation.loss" if evaluates else "rows train_loss"
        more = {"evaluate": "held_out"} if evaluates else {"local": {"lr": 0.0}}
        at, total = np.linspace(-3000, 3000, 13), []
        for seq, m in enumerate(at, start=1):
            model = {**lying.job["model"], "loss": {"name": "squared", "mean": float(m), "scale": 1.0}}
            found = asked(lying, function, seq, np.zeros(5), job={"model": model}, **more)
            total.append(float(found[loss]))
        np.testing.assert_allclose(np.diff(total, 3), 0, atol=1e-6 * max(total))
        assert min(total) > 0


def test_losses_of_classes_are_whole_numbers_of_rows_too(tmp_path):
    """With all probabilities p, loss and Brier score follow from the numbers of rows of both classes."""
    few = {"V6_FEDERATED_MINIMUM_ROWS_A_CLASS": "1"}  # which rows a hospital holds out follows from its secret
    with central("pinned", tmp_path, environment=CAREFUL | few) as lying:
        lying.job["data"] = {**lying.job["data"], "holdout": 0.5}
        lying.agree()
        for seq, z in enumerate((0.3, 0.7, -1.1), start=1):
            found = asked(lying, "evaluate", seq, [0, 0, 0, 0, z], evaluate="held_out", last=True)
            p, rows = 1 / (1 + np.exp(-z)), int(found["one evaluation.n"])
            ill = (float(found["one brier 2^28"][0]) - rows * p**2) / ((1 - p) ** 2 - p**2)
            assert abs(ill - round(ill)) < 1e-4 and 0 < ill < rows, ill
            of_loss = (float(found["one evaluation.loss 2^44"]) + rows * np.log(1 - p)) / -z
            assert of_loss == pytest.approx(ill, abs=0.05)  # 200 units of 2^-12


# ---- hospitals that cannot compute their part


def overflowing(lying):
    """Weights with which the score of one row of all hospitals is not finite."""
    values = np.sort(np.concatenate([table_of(node)["x0"].abs() for node in lying.network.nodes.values()]))
    return [float(np.finfo(np.float32).max) / values[-2:].mean(), 0, 0, 0, 0]


def scores_overflow(lying):
    return overflowing(lying), {}


def steps_overflow(lying):
    """Two fitted steps make a value of the row infinite, so that no model is needed."""
    components = np.diag([np.sqrt(overflowing(lying)[0]), 1, 1, 1])
    arrays = {"mean": np.zeros(4), "mean_rest": np.zeros(4), "scale": np.ones(4), "components": components}
    step = {"step": "pca", "fitted": codec.encode(arrays, "float64")}
    return np.zeros(5), {"preprocess": [step, step]}


def few_rows_of_a_class(lying):
    """One hospital's label is rare there."""
    node = lying.network.nodes[2]
    store = RowStore(lying.network.folder / "rare")
    rare = table_of(node).assign(label=np.arange(k_rows(node)) < 2)
    lying.network.nodes[2] = replace(node, rows=mock_node.stored(2, rare.astype({"label": int}), store))
    store.close()
    return np.zeros(5), {}


@pytest.mark.parametrize("fails", [scores_overflow, steps_overflow, few_rows_of_a_class])
def test_a_hospital_that_cannot_compute_its_part_trains_as_long_as_the_others(fails, tmp_path, monkeypatch):
    """The number of such hospitals is seen. But a run that ended at once told which one, and with chosen weights at
    which hospital a known person is. So the node takes all steps, now and in later requests of the job.
    """
    steps, real = [], local_training.Descent.__call__
    monkeypatch.setattr(local_training.Descent, "__call__", lambda *args: steps.append(1) or real(*args))
    with central("pinned", tmp_path, environment=CAREFUL) as lying:
        weights, data = fails(lying)
        lying.job["data"] = {**lying.job["data"], **data}
        lying.agree()
        for seq in (1, 2):
            taken, answers, arrays = [], [], codec.encode({"weights": np.asarray(weights, float)})
            for k in lying.network.nodes:
                steps.clear()
                asked = {"arrays": arrays, "evaluate": "all", "local": {"lr": 0.1, "epochs": 30}}
                answers.append(lying.ask(k, "client_update", seq, round_=seq, **asked))
                taken.append(len(steps))
            assert taken == [30] * 5
            assert lying.opened(answers)[:2] == (5, True)
            failed = 5 - len(whole(lying))
            assert failed in ((1,) if fails is few_rows_of_a_class else (1, 5))  # losses overflow at all
        said = [line["refused"] for k in lying.network.nodes for line in lying.audit(k) if "refused" in line]
        assert len(said) == 2 * failed and "instead" in said[0] and "earlier part" in said[1], said


# ---- steps that tell hospitals apart

GRID = {"hospital": None, "none": [2.0, 6.0]}
PERSONAL = {"personal": {"personalize": "finetune"}, "known": {}, "evaluate": "held_out"}


@pytest.mark.parametrize(
    ("function", "arguments", "says"),
    [
        ("client_update", {"local": {"optimizer": "adam"}}, "optimizer=adam cannot be used in a study"),
        ("client_update", {"local": {"batch_size": 25}}, "batch_size=25 alone cannot be used in a study"),
        ("evaluate_own", PERSONAL, "evaluate_own evaluates a model of each hospital's own"),
    ],
    ids=["adam", "batch_size", "evaluate_own"],
)
def test_steps_that_tell_hospitals_apart_are_refused(function, arguments, says, tmp_path):
    """A step of Adam is the sign of a hospital's gradient. Minibatches between two sizes of hospitals make the larger
    one take one step more, so that the difference of two sums is its gradient. And a model that was trained on its
    rows alone, with a large rate, predicts the class by the sign of its gradient.
    """
    with central("pinned", tmp_path, environment=CAREFUL) as lying:
        lying.agree()
        arrays = codec.encode({"weights": np.zeros(5)})
        for k in lying.network.nodes:
            assert lying.ask(k, function, 1, arrays=arrays, **arguments).startswith(says)


@pytest.mark.parametrize("aggregation", ["auto", "pinned"])
@pytest.mark.parametrize(
    ("package", "settings", "says"),
    [
        ("v6_fedavg", {"optimizer": "adam"}, "server_optimizer=adam"),
        ("v6_fedavg", {"batch_size": 10}, "set local_steps too"),
        ("v6_scaffold", {"batch_size": 10, "epochs": 2}, "set local_steps too"),
        ("v6_fedavg", {"personalize": "finetune", "holdout": 0.4}, "leave personalize out"),
    ],
    ids=str,
)
def test_a_job_with_such_steps_ends_before_any_row_is_read(package, settings, says, aggregation, tmp_path):
    called = []

    def note(organization, message):
        called.append(message["method"])
        return CallOutcome()

    options = {"hospital_folder": tmp_path, "study": StudyPlan(4), "environment": CAREFUL, "outcomes": note}
    with MockNetwork(package, nodes(4), **options) as network, pytest.raises(Exception, match=says):
        network.run(rounds=1, aggregation=aggregation, **settings)
    assert {*called} <= ({"describe", "forget"} if aggregation == "auto" else set())


@pytest.mark.parametrize("settings", [{"epochs": 3}, {"local_steps": 3, "batch_size": 10}], ids=str)
def test_several_local_steps_of_the_same_number_are_possible(settings, tmp_path):
    few = CAREFUL | {"V6_FEDERATED_MINIMUM_ROWS_A_CLASS": "1"}
    with MockNetwork("v6_fedavg", nodes(4), hospital_folder=tmp_path, study=StudyPlan(4), environment=few) as network:
        assert "stopped" not in network.run(rounds=2, server_optimizer="adam", server_lr=0.1, **settings)


@pytest.mark.parametrize("strata", ["hospital", "none"])
def test_pairs_of_rows_are_not_counted_in_a_study(strata, tmp_path):
    """With a column of 0 and 1 as the time, the pairs of a hospital are the product of its numbers of both."""
    rng = np.random.default_rng(0)
    tables = {k: pd.DataFrame({"x": rng.normal(size=60), "time": rng.exponential(5, 60)}) for k in range(1, 5)}
    found = {}
    for mode, study in (("masked", None), ("pinned", StudyPlan(4))):
        folder = tmp_path / mode
        with MockNetwork("v6_cox", tables, hospital_folder=folder, study=study, environment=CAREFUL) as network:
            found[mode] = network.run(label="time", strata=strata, aggregation=mode, rounds=9, grid=GRID[strata])
    assert 0 < found["masked"]["concordance"] < 1 and found["pinned"]["concordance"] is None
    estimates = [found[mode]["coefficients"][0]["estimate"] for mode in found]
    assert estimates[0] == pytest.approx(estimates[1], abs=1e-6)


# ---- truth values, and functions of single answers


def test_truth_values_of_rows_are_not_counted():
    for name in ("violation", "better", "n above"):
        with pytest.raises(TypeError, match=f"{name} may follow from rows"):
            partial(sums={name: Truth()})(lambda node: {})
    for name in TRUTHS:
        q = summing.encoded(Sums(1, 0, None, (Part(name, "one", 64),)), {name: True}, 9, 3, b"s" * 32, b"T" * 32)
        assert q[1].tolist() == [1, 0, 1]


def test_the_hospitals_above_a_bound_are_not_counted(tmp_path):
    """Whatever is asked for: dynamic averaging compares its distance with a bound of the task."""
    with central("pinned", tmp_path, package="v6_dynavg", environment=CAREFUL) as lying:
        lying.job["method"] = "dynavg"
        lying.agree()
        for seq in (1, 2):
            sums = lying.sums(seq, "count_rows").to_json()
            arrays = codec.encode({"weights": np.zeros(5)})
            says = lying.call(1, "local_update", sums=sums, is_reference=True, delta=0.3, local={}, arrays=arrays)
            assert says.startswith(
                "local_update needs aggregation=plain: who communicates is decided by single answers"
            )


def test_all_functions_of_methods_of_single_answers_say_so():
    methods = [name for name in registry.names() if registry.central_of(name).single_answers]
    assert {"coop", "dynavg", "loadaboost"} <= {*methods}
    for method in methods:
        partial = importlib.import_module(f"v6_{method}.partial")
        own = [f for f in vars(partial).values() if getattr(f, "__module__", "") == partial.__name__]
        functions = [f for f in own if hasattr(f, "single_answers")]
        assert functions and all(f.single_answers == registry.central_of(method).single_answers for f in functions)


def test_what_two_local_steps_tell_of_single_hospitals(tmp_path):
    """The attack that the page leaves open: the share of ill patients at each of four hospitals of a study, by weight.

    With a large rate, the first step sends the model to one end or the other, by the sign of the hospital's gradient,
    and the second step shows which. The sum jumps where a hospital's gradient is 0, by its number of rows.
    """
    rng, lr = np.random.default_rng(3), 1e4
    tables = {
        k: pd.DataFrame(
            {"cells": rng.uniform(4e3, 1e4, n).round(), "ill": (rng.random(n) < 0.2 + 0.15 * k).astype(int)}
        )
        for k, n in zip((1, 2, 3, 4), (103, 143, 187, 230), strict=True)
    }
    schema = Schema((Column("cells", "number", 0, 1e5),), "ill", (0, 1))
    with MockNetwork(
        "v6_fedavg", tables, hospital_folder=tmp_path, study=StudyPlan(schema=schema), environment=CAREFUL
    ) as network:
        lying = Central(network, "pinned")
        lying.job |= {
            "model": {"name": "logreg", "features": 1, "classes": 2},
            "data": {**lying.job["data"], "label": "ill", "features": ["cells"]},
        }
        lying.agree()
        steps = dict[float, float]()

        def step(q: float) -> float:
            """The sum of the intercepts after two steps from a model that predicts q, over the rate."""
            if q not in steps:
                w = [0.0, np.log(q / (1 - q))]
                sent = [lying.update(k, len(steps) + 1, weights=w, unit=(64, 10), lr=lr, epochs=2) for k in tables]
                steps[q] = -lying.opened(sent)[2]["share weights 2^10"][1] / lr
            return steps[q]

        def jumps(low: float, high: float) -> list[tuple[float, float]]:
            rows = abs(step(high) - step(low) - (high - low)) * lying.rows
            if rows < 50:
                return []
            middle = (low + high) / 2
            return [(middle, rows)] if high - low < 2e-5 else [*jumps(low, middle), *jumps(middle, high)]

        found = jumps(0.05, 0.95)
    truth = [(np.average(t["ill"], weights=t["cells"]), len(t)) for t in tables.values()]
    np.testing.assert_allclose(found, sorted(truth), atol=0.1, rtol=0)
    np.testing.assert_allclose([q for q, _ in found], sorted(q for q, _ in truth), atol=2e-5)
    assert len(steps) < 70


# ---- rows and columns


def test_a_study_takes_no_minimum_of_rows(tmp_path):
    """The number of hospitals with fewer rows would be in the sum: forty jobs would tell the rows of each."""
    with central("pinned", tmp_path) as lying:
        says = lying.call(1, "describe", round_=0, raw=False, job={"minimum_rows": 24})
        assert says.startswith("minimum_rows cannot be used in a study")
        lying.hello()
        lying.job["minimum_rows"] = 24  # a central that says so only afterwards
        for k in lying.network.nodes:
            lying.confirm(k)
        for k in lying.network.nodes:
            says = lying.ask(k, "count_rows", 1)
            assert says.startswith("minimum_rows cannot be used in a study")


def test_the_size_of_minibatches_does_not_tell_rows(tmp_path):
    """Steps that are refused in minibatches are refused in a step on all rows too, whatever each hospital has."""
    with central("pinned", tmp_path) as lying:
        lying.job["model"] = {"name": "logreg", "features": 4, "classes": 2, "l2": 1.0}
        lying.agree()
        sizes = sorted(k_rows(node) for node in lying.network.nodes.values())
        answers = [lying.update(k, batch_size=sizes[2], local_steps=1, lr=0.9) for k in lying.network.nodes]
        assert lying.opened(answers)[:2] == (5, True) and not whole(lying)


def whole(lying) -> list[int]:
    """The nodes that could compute their parts of all sums: only their audit logs say so."""
    return [k for k in lying.network.nodes if not any("refused" in line for line in lying.audit(k))]


SCHEMA = Schema((Column("age", "number", 0, 120), Column("sex", "words", levels=("f", "m"))), "ill", (0, 1))


@pytest.mark.parametrize(
    "data",
    [
        {"exclude": ["hiv_therapy"]},
        {"exclude": ["hiv_therapy"], "label": "ill", "features": ["age"]},
        {"features": ["age", "hiv_therapy"]},
        {"label": "hiv_therapy"},
        {"categories": ["hiv_therapy"]},
        {"subgroup": "hiv_therapy"},
        {"weights": "hiv_therapy"},
        {"event": "hiv_therapy", "label": "ill", "features": ["age"], "regression": True, "classes": None},
    ],
    ids=str,
)
def test_columns_outside_the_schema_do_not_tell_which_tables_have_them(data, tmp_path):
    """Some hospitals' tables have such a column, and the operator of another one forbids it: all say the same."""
    rng = np.random.default_rng(0)
    tables = {
        k: pd.DataFrame(
            {"age": rng.normal(60, 9, 40).round(), "sex": rng.choice(["f", "m"], 40), "ill": rng.integers(0, 2, 40)}
        )
        for k in range(1, 5)
    }
    tables |= {k: tables[k].assign(hiv_therapy=0) for k in (2, 3)}
    with MockNetwork(
        "v6_fedavg",
        tables,
        hospital_folder=tmp_path,
        study=StudyPlan(schema=SCHEMA),
        environment=CAREFUL,
        environments={2: {"V6_FEDERATED_DISALLOWED_COLUMNS": "hiv_therapy"}},
    ) as network:
        spec = {"label": None, "features": None, "classes": [0, 1], "holdout": 0.0, "preprocess": [], **data}
        job = {
            "method": "fedavg",
            "key": "1" * 32,
            "seed": 0,
            "participants": [*tables],
            "evaluators": [],
            "rounds": 1,
            "model": None,
            "minimum_rows": None,
            "precision": "float32",
            "aggregation": "pinned",
            "data": spec,
        }
        client, said = network.client(), set()
        for k in tables:
            kwargs = {"job": job, "round": 0, "raw": True}
            task = client.task.create({"method": "describe", "kwargs": kwargs}, [k])
            assert not client.wait_for_results(task["id"])
            said.add(client.run.from_task(task["id"])[0]["log"].partition(f"organization {k}: ")[2])
        [one] = said
        assert "schema" in one, one


# ---- statistics


def statistic(lying, seq, center=None, **arguments):
    """Whether nodes have failed at a statistic, the sums, and why a node has failed."""
    arrays = {} if center is None else {"arrays": codec.encode({"center": np.asarray(center, float)}, "float64")}
    answers = [lying.ask(k, "fit_step", seq, round_=0, **arguments, **arrays) for k in lying.network.nodes]
    assert not any(isinstance(a, str) for a in answers), answers
    _, failed, found, _ = lying.opened(answers)
    refused = [line["refused"] for line in lying.audit(1) if "refused" in line]
    return failed, found, refused[-1] if refused else ""


def job_of(lying, key, **data):
    """A new job without a model."""
    lying.job |= {"model": None, "key": f"{key:032x}", "data": {**lying.job["data"], **data}}
    lying.entries, lying.tags = {}, {}
    lying.agree()


@pytest.mark.parametrize(("name", "c"), [("moments", 4), ("present", 2), ("label", 1)])
def test_means_of_hospitals_are_not_added_up(name, c, tmp_path):
    """In a sum of means a row counts 1 / n_k: 117 questions told the rows of each hospital, and how many of each age.

    One value more in a column then moves the sum by 1 / n_k. What the sums are about is needed in its right shape.
    """
    arguments = {"statistic": name, "columns": ["x0", "x1"] if name == "present" else []}
    with central("pinned", tmp_path, environment=CAREFUL) as lying:
        data = {}
        if name == "label":
            labels_far_apart(lying.network)
            data = {"classes": None, "regression": True}
        job_of(lying, 1, **data)
        failed, _, why = statistic(lying, 1, np.zeros(c + 1), **arguments)
        assert failed and not whole(lying) and f"asks for a sum of {name} without the center" in why
        job_of(lying, 9, **data)
        sums = lying.sums(1, "fit_step", arrays=codec.encode({"center": np.zeros(c)}), **arguments).to_json()
        for center in (None, np.zeros((c, 1)), 0.0):
            arrays = {} if center is None else {"arrays": codec.encode({"center": np.asarray(center)})}
            says = lying.call(1, "fit_step", sums=sums, round_=0, **arguments, **arrays)
            assert f"sum of {name} without the center" in says or "lacks the array center in 1 dim" in says
        failed, found, _ = statistic(lying, 1, np.zeros(c), **arguments)
        tables = [table_of(node) for node in lying.network.nodes.values()]
        column = "label" if name == "label" else "x0"
        assert not failed
        assert float(found["one first"][0]) == pytest.approx(sum(float(t[column].sum()) for t in tables), rel=1e-9)


def test_hospitals_with_a_level_are_not_counted(tmp_path):
    """A sum of ones counted the hospitals in which five rows have a level, or by a clip a large value."""
    with central("pinned", tmp_path, environment=CAREFUL) as lying:
        hospital_of_a_level(lying.network)
        arguments = {"statistic": "levels", "columns": ["x3"]}
        job_of(lying, 1)
        failed, _, why = statistic(lying, 1, known={"x3": ["1"]}, counts=False, **arguments)
        assert failed and not whole(lying) and "asks for a sum of levels without their counts" in why
        job_of(lying, 2)
        failed, found, _ = statistic(lying, 1, known={"x3": ["1"]}, counts=True, **arguments)
        assert not failed
        assert found["one counts"].tolist() == table_of(lying.network.nodes[2])["x3"].sum()


# ---- parts that are zeros


def hospital_of_a_level(network: MockNetwork) -> None:
    """Only rows of hospital 2 have the level that x3 = 1 stands for."""
    store = RowStore(network.folder / "levels")
    for k, node in network.nodes.items():
        table = table_of(node).copy()
        table["x3"] = np.arange(len(table)) % 2 * float(k == 2)
        network.nodes[k] = replace(node, rows=mock_node.stored(k, table, store))
    store.close()


def test_a_hospital_with_an_impossible_mean_adds_no_zeros(tmp_path):
    """Coefficients of a task can make the mean of one hospital's rows infinite: the sum without it tells its own."""
    with central("pinned", tmp_path, package="v6_glm", environment=CAREFUL) as lying:
        hospital_of_a_level(lying.network)
        lying.job["method"] = "glm"
        lying.job["model"] = {"name": "glm", "features": 4, "classes": 1, "family": "poisson"}
        lying.job["data"] = {**lying.job["data"], "classes": None, "regression": True}
        lying.agree()
        found = []
        for seq, slope in enumerate((0.0, 1000.0), start=1):
            beta = np.array([0, 0, 0, slope, 0.0])
            arrays = codec.encode({"weights": beta, "center": np.zeros(5), "scale": np.ones(5)}, "float64")
            answers = [lying.ask(k, "newton", seq, arrays=arrays, null=0.0) for k in lying.network.nodes]
            _, failed, opened, _ = lying.opened(answers)
            found.append((failed, opened["one hessian"]))
        (none, before), (failed, after) = found
        assert (none, failed) == (False, True) and whole(lying) == [1, 3, 4, 5]
        X = table_of(lying.network.nodes[2]).assign(label=1.0).to_numpy(float)
        assert not np.allclose(before - after, (X.T @ X)[np.tril_indices(5)], atol=1e-3)


OTHER_BANDS = {2: {"V6_FEDERATED_SCORE_BANDS": "101"}}


def test_a_hospital_with_other_bands_of_scores_is_not_alone_in_a_sum(tmp_path):
    """Zeros of all others left its own rows by class and band: no node counts other bands than its operator's."""
    with central("pinned", tmp_path, environment=CAREFUL, environments=OTHER_BANDS) as lying:
        lying.job["data"] = {**lying.job["data"], "holdout": 0.5}
        lying.agree()
        arrays = codec.encode({"weights": np.array([1.0, 0, 0, 0, 0])})
        for seq, bands in enumerate((101, 127), start=1):
            sent = {"arrays": arrays, "evaluate": "held_out", "bands": bands}
            said = {k: lying.ask(k, "evaluate", seq, **sent) for k in lying.network.nodes}
            refused = {k for k, answer in said.items() if isinstance(answer, str)}
            assert refused == ({1, 3, 4, 5} if bands == 101 else {2})
            for k in refused:
                own = 101 if k == 2 else 127
                assert said[k].startswith(f"the task asks for counts of scores in {bands} bands, and this node's")
                assert f"has set {own} (V6_FEDERATED_SCORE_BANDS); ask for {own}, or for none" in said[k]
        sums = lying.sums(3, "evaluate", arrays=arrays, evaluate="held_out", bands=127).to_json()
        for bands in (-1, True, 127.0, "127", None, [127]):
            says = lying.call(1, "evaluate", sums=sums, arrays=arrays, evaluate="held_out", bands=bands)
            assert "bands" in says, bands


def test_where_bands_differ_nothing_but_the_auc_is_missing(tmp_path):
    settings = {"rounds": 2, "lr": 0.1, "classes": [0, 1], "holdout": 0.5}
    tables = nodes(5, n=40)
    found = []
    for name, environments in (("same", {}), ("other", OTHER_BANDS)):
        study = StudyPlan(5)
        options = {"environment": CAREFUL, "environments": environments, "on_round": lambda row: None}
        with MockNetwork("v6_fedavg", tables, hospital_folder=tmp_path / name, study=study, **options) as network:
            found.append(network.run(**settings))
    same, other = found
    assert "auc" not in same["privacy"] and other["privacy"]["auc"].startswith("not computed: nodes count scores in")
    assert same["final"]["auc"] is not None and other["final"]["auc"] is None
    assert other["final"]["accuracy"] is not None and other["final"]["evaluated"] == same["final"]["evaluated"]


# ---- columns that a task invents

WORDS = [f"v{i}" for i in range(25)]
INVENTED = {
    "levels": (25, [{"step": "onehot", "fitted": {"levels": {"sex": WORDS}}}]),
    "levels of a number": (25, [{"step": "onehot", "fitted": {"levels": {"age": WORDS}}}]),
    "words that fill": (
        27,
        [
            *({"step": "impute", "fitted": {"values": {"sex": word}}} for word in WORDS),
            {"step": "onehot", "fitted": {"levels": {"sex": ["f", "m", *WORDS]}}},
        ],
    ),
    "marks of marks": (
        3,
        [{"step": "missing_indicator", "fitted": {"columns": [name]}} for name in ("age", "missing(age)")],
    ),
}


DECLARED = Schema(SCHEMA.columns, "label", (0, 1))


def hospitals_of_few_rows() -> dict[int, pd.DataFrame]:
    """Hospitals of 40, 44, 48 and 52 rows."""
    tables = {}
    for k in range(1, 5):
        n, rng = 36 + 4 * k, np.random.default_rng(k)
        sex, label = np.where(np.arange(n) % 2, "f", "m"), np.arange(n) // 2 % 2
        tables[k] = pd.DataFrame({"age": rng.normal(60, 9, n).round(), "sex": sex, "label": label})
    return tables


def asked_for_a_covariance(lying, steps, d):
    """What the nodes say, after a job has begun about the columns of these steps."""
    names = [name for name in ("age", "sex") if name in str(steps)]
    words = [name for name in names if name == "sex" or "onehot" in str(steps)]
    data = {"label": "label", "features": names, "categories": words}
    lying.job |= {"model": None, "data": {**lying.job["data"], **data}}
    for k in lying.network.nodes:
        lying.entries[k] = lying.call(k, "describe", round_=0, raw=True)["entry"]
    for k in lying.network.nodes:
        assert "tags" in lying.confirm(k)
    job = {"data": {**lying.job["data"], "preprocess": steps}}
    arrays = codec.encode({"mean": np.zeros(d), "scale": np.ones(d)}, "float64")
    sent = {"statistic": "covariance", "unit": (64, 3), "arrays": arrays, "job": job}
    return [lying.ask(k, "fit_step", 1, round_=0, **sent) for k in lying.network.nodes]


@pytest.mark.parametrize(("d", "steps"), INVENTED.values(), ids=INVENTED)
def test_invented_columns_do_not_count_the_hospitals_of_few_rows(d, steps, tmp_path):
    """Covariances of 25 columns need 50 rows: 42 jobs with other numbers told the rows of each of four hospitals."""
    tables, study = hospitals_of_few_rows(), StudyPlan(schema=DECLARED)
    with MockNetwork("v6_fedavg", tables, hospital_folder=tmp_path, study=study, environment=CAREFUL) as network:
        answers = asked_for_a_covariance(Central(network, "pinned"), steps, d)
        assert len({*map(str, answers)}) == 1 and "study's schema" in answers[0], answers


def test_the_words_that_fill_a_column_may_be_a_level_in_a_study():
    """One word more than the schema has, as missing values are usually filled; and marks of the schema's columns."""
    levels = {"sex": ["f", "m"]}
    steps = [
        {"step": "missing_indicator", "fitted": {"columns": ["age", "sex"]}},
        {"step": "impute", "fitted": {"values": {"sex": "unknown", "age": 50.0}}},
        {"step": "onehot", "fitted": {"levels": {"sex": ["f", "m", "unknown"]}}},
    ]
    preprocessing.check_foreseen(steps, ["age", "sex"], levels)
    with pytest.raises(SafeError, match="onehot names levels of the column sex"):
        preprocessing.check_foreseen(steps[2:], ["age", "sex"], levels)
