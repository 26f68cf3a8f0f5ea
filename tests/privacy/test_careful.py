"""The limits of the profile ``careful``: what they allow, what they refuse, and the attack that each stops."""

import json
from types import SimpleNamespace

import helpers
import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, crafted, hospital, refused, table, train
from vantage6.algorithm.tools.exceptions import CollectResultsError

from v6_federated import models
from v6_federated.data import pca, preprocessing, statistics
from v6_federated.data.columns import Features
from v6_federated.data.source import Source
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_federated.rules.policy import Policy, PrivacyThresholdViolation
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

CAREFUL = {"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_AGGREGATION": "plain"}
WEIGHTS = codec.encode({"weights": np.zeros(5)})
JOB = {**helpers.JOB, "precision": "float64"}


def setting(name: str, value: object) -> dict[str, str]:
    return {**CAREFUL, f"V6_FEDERATED_{name}": str(value)}


def answers(nodes, requests, environment=CAREFUL, package="v6_fedavg"):
    """What organization 3 answers to tasks, one after the other: ``(function, arguments)``, with the job above."""
    found = []
    with MockNetwork(package, nodes, environment=environment) as network:
        client = network.client()
        for function, arguments in requests:
            kwargs = {"job": JOB, "round": 1, **arguments}
            task = client.task.create({"method": function, "kwargs": kwargs}, [3])
            [run] = client.wait_for_results(task["id"])
            found.append(json.loads(run["result"]) if isinstance(run, dict) and "result" in run else run)
    return found


# ---- classes


def with_rare_class(hospitals, rows):
    """The first hospital has so few rows of class 2; the others have many."""
    nodes = {k: t.copy() for k, t in hospitals.items()}
    for k, t in nodes.items():
        t.loc[t.index[: rows if k == 3 else 8], "label"] = 2
    return nodes


def test_a_class_of_too_few_rows_is_refused_without_a_word_about_it(hospitals):
    text = refused(
        "organization 3: the job has a class that fewer than 5 rows to train on have at this node",
        with_rare_class(hospitals, 4),
        environment=CAREFUL,
        classes=[0, 1, 2],
        holdout=0,
    )
    assert "4" not in text and "2" not in text.replace("V6_FEDERATED_CLASSES=NAME,NAME,...", "")
    train("v6_fedavg", with_rare_class(hospitals, 5), environment=CAREFUL, classes=[0, 1, 2], rounds=1, holdout=0)


@pytest.mark.parametrize("allowed", ["2", "*", "1, 2"])
def test_an_operator_can_allow_classes_of_few_rows(hospitals, allowed):
    nodes = with_rare_class(hospitals, 4)
    own = {3: setting("CLASSES", allowed)}
    train("v6_fedavg", nodes, environment=CAREFUL, environments=own, classes=[0, 1, 2], rounds=1, holdout=0)


@pytest.mark.parametrize(
    ("function", "request_"),
    [
        ("client_update", {}),
        ("evaluate", {"arrays": codec.encode({"weights": np.zeros(15)}), "evaluate": "held_out"}),
        ("fit_step", {"statistic": "moments"}),
        ("describe", {"raw": False}),
    ],
)
def test_an_invented_class_is_refused_in_every_function(hospitals, function, request_):
    job = {"model": {"name": "logreg", "features": 4, "classes": 3}, "data": {**JOB["data"], "classes": [0, 1, 7]}}
    if function == "client_update":
        request_ = {"arrays": codec.encode({"weights": np.zeros(15)})}
    status, log = crafted(hospitals, function, job, environment=CAREFUL, **request_)
    assert status != "completed" and "V6_FEDERATED_CLASSES" in log
    assert crafted(hospitals, function, job, environment=setting("CLASSES", "7"), **request_)[0] == "completed"


def test_the_parameters_of_an_invented_class_are_a_row(hospitals):
    """The attack: an svm's invented class has a slope on every row, full batch; with one row per sign, it is the row.

    Under trusting, its parameters are the mean of all rows exactly; under careful nothing leaves.
    """
    job = {
        **JOB,
        "model": {"name": "svm", "features": 4, "classes": 3},
        "data": {**JOB["data"], "classes": [0, 1, 7]},
        "precision": "float32",
    }
    w = np.zeros((3, 5), np.float32)
    request_ = {"job": job, "arrays": codec.encode({"weights": w.ravel()}), "local": {"lr": 1}}
    [told] = answers(hospitals, [("client_update", request_)], environment=OPEN)
    invented = codec.decode(told["arrays"])["weights"][8:12]
    np.testing.assert_allclose(invented, -hospitals[3].iloc[:, :4].mean(), rtol=1e-4)
    status, _ = crafted(
        hospitals, job={k: job[k] for k in ("model", "data")}, environment=CAREFUL, arrays=request_["arrays"]
    )
    assert status != "completed"


# ---- columns that mark few rows


def marking(rows, few):
    """A table whose column ``mark`` is 0 except in the last ``few`` rows."""
    return table(rows).assign(mark=np.r_[np.zeros(rows - few), np.ones(few)])[["x0", "x1", "mark", "label"]]


@pytest.mark.parametrize(("few", "left"), [(1, 0), (4, 0), (5, 5), (36, 40), (35, 35)])
def test_a_column_that_marks_few_rows_is_constant(few, left):
    spec, policy = DataSpec(classes=[0, 1], holdout=0), Policy.of("careful")
    trained, _ = Source(table=marking(40, few)).prepared(spec, 1, policy)
    assert trained.X[:, 2].sum() == left
    trusting, _ = Source(table=marking(40, few)).prepared(spec, 1, Policy.of("trusting"))
    assert trusting.X[:, 2].sum() == few
    np.testing.assert_array_equal(trained.X[:, :2], trusting.X[:, :2])


def test_the_same_columns_are_constant_where_rows_are_evaluated():
    rows = marking(100, 4)
    spec, policy = DataSpec(classes=[0, 1], holdout=0.2), Policy.of("careful")
    held = Source(table=rows).split(spec, 1, 10)[1]
    rows.loc[rows.index[held], "mark"] = np.arange(len(held))  # many values there, few among the rows to train on
    trained, evaluated = Source(table=rows).prepared(spec, 1, policy)
    assert len(evaluated) == 20
    assert not trained.X[:, 2].any() and not evaluated.X[:, 2].any()


def test_a_clipped_column_marks_nobody():
    """The attack: clip so that one patient differs from all others, whose other values the covariances then hold."""
    rows = table(40)
    top = np.sort(rows["x0"])[-2:]
    clip = {"step": "clip", "fitted": {"bounds": {"x0": [float(top.mean()), None]}}}
    features = Features([f"x{i}" for i in range(4)], rows.iloc[:, :4].to_numpy(), {})
    found = {}
    for profile in ("trusting", "careful"):
        levelling = preprocessing.Levelling(Policy.of(profile).minimum_rows_a_side)
        after = preprocessing.apply(features, [clip], levelling.fit)
        mean = after.X.mean(axis=0)
        A = np.zeros((4, 4))
        A[np.triu_indices(4)] = pca.covariance(after.X, mean, np.ones(4))
        found[profile] = A[0, 1:]
    target = rows["x0"].idxmax()
    height = rows["x0"].max() - top.mean()
    told = found["trusting"] / height + features.X[:, 1:].mean(axis=0)
    np.testing.assert_allclose(told, features.X[target, 1:], rtol=1e-6)
    assert np.abs(found["careful"]).max() < 1e-12  # the mean of equal numbers is off by a rounding error


def test_large_numbers_that_float32_rounds_mark_nobody():
    """The attack: a crafted mean of -2^30 rounds all values to one in float32, except the largest."""
    rows = table(40)
    high = np.sort(rows["x0"])
    scale = (high[-1] - high[0]) / 60  # so the range fits between two numbers of float32, which are 128 apart
    mean = np.array([(high[-1] + high[-2]) / 2 - scale * (2**30 + 64), 0, 0, 0])
    fitted = codec.encode({**codec.two_parts("mean", mean), "scale": np.array([scale, 1, 1, 1])}, "float64")
    spec = DataSpec(classes=[0, 1], holdout=0, preprocess=[{"step": "standardize", "fitted": fitted}])
    values = {}
    for profile in ("trusting", "careful"):
        X = Source(table=rows.copy()).prepared(spec, 1, Policy.of(profile))[0].X
        counts = np.unique(X[:, 0], return_counts=True)[1]
        values[profile] = counts.tolist()
    assert values == {"trusting": [39, 1], "careful": [40]}


def test_missing_values_are_no_marks_and_stay_missing():
    X = np.zeros((20, 3))
    X[:3, 0], X[:8, 1], X[9, 1] = np.nan, np.nan, 7.0
    X[:, 2] = np.arange(20)
    features = Features(["a", "b", "c"], X, {})
    marks = features.marks(5)
    assert (marks.columns, marks.values.tolist()) == ([1], [0.0])
    after = features.without_marks(marks).X
    assert np.isnan(after[:8, 1]).all() and not after[8:, 1].any()
    np.testing.assert_array_equal(after[:, [0, 2]], X[:, [0, 2]])


@pytest.mark.parametrize("seed", range(20))
def test_marks_are_found_as_by_counting(seed):
    rng = np.random.default_rng(seed)
    n, least = int(rng.integers(10, 3000)), int(rng.integers(1, 8))
    X = np.zeros((n, 30))
    for column in X.T:
        column[rng.permutation(n)[: rng.integers(0, 9)]] = rng.integers(1, 3, 1)
        column *= rng.choice([-1.0, 2.5])
        column += rng.choice([0.0, 3.0])
    expected = []
    for i, column in enumerate(X.T):
        rest = n - np.unique(column, return_counts=True)[1].max()
        expected += [i] if 0 < rest < least else []
    assert sorted(Features([str(i) for i in range(30)], X, {}).marks(least).columns) == expected


def test_standardize_and_pca_work_on_columns_that_mark_few_rows(hospitals):
    nodes = {k: t.assign(mark=np.arange(len(t)) < 2)[["x0", "x1", "mark", "label"]] for k, t in hospitals.items()}
    for steps in (["standardize"], ["standardize", "pca:2"]):
        result = train("v6_fedavg", nodes, environment=CAREFUL, rounds=1, preprocess=steps)
        assert np.isfinite(result["final"]["loss"])


def test_rare_words_are_replaced_where_rows_are_evaluated():
    rows = hospital(100, 1, ["f", "m"]).fillna({"sex": "f", "x1": 0.0})
    steps = [{"step": "onehot", "fitted": {"levels": {"sex": ["f", "m", "x"]}}}]
    spec = DataSpec(classes=[0, 1], holdout=0.3, categories=["sex"], preprocess=steps)
    held = Source(table=rows).split(spec, 1, 10)[1]
    rows.loc[rows.index[held[:1]], "sex"] = "x"
    seen = {}
    for profile in ("trusting", "careful"):
        evaluated = Source(table=rows.copy()).prepared(spec, 1, Policy.of(profile))[1]
        seen[profile] = evaluated.X[:, 2].sum()
    assert seen == {"trusting": 1, "careful": 0}


# ---- covariances, sizes, time


def moments_of(d):
    return {"mean": np.zeros(d), "scale": np.ones(d)}


def of_rows(name, features, policy, check_time=lambda: None, **asked):
    """A node's own answer about rows, as ``statistics.OwnRows`` has them."""
    rows = SimpleNamespace(
        features=features, as_read=features, policy=policy, pinned=False, check_time=check_time, job=None
    )
    return statistics.read(name, asked, asked).of_rows(rows)


@pytest.mark.parametrize("name", ["covariance", "product"])
def test_a_covariance_needs_rows_for_each_column(name):
    policy = Policy.of("careful")
    rng = np.random.default_rng(0)
    for n, fine in ((20, True), (19, False)):
        features = Features([str(i) for i in range(10)], rng.normal(size=(n, 10)), {})
        asked = {**moments_of(10), "draw": 1}
        if fine:
            of_rows(name, features, policy, **asked)
        else:
            with pytest.raises(PrivacyThresholdViolation, match="V6_FEDERATED_MINIMUM_ROWS_A_COLUMN"):
                of_rows(name, features, policy, **asked)
        of_rows(name, features, Policy.of("trusting"), **asked)


@pytest.mark.parametrize("name", models.SIZES)
@pytest.mark.parametrize(("features", "classes"), [(64, 2), (784, 10), (49, 3)])
def test_sizes_of_models_are_known_without_building_them(name, features, classes):
    if name in models.ON_TORCH:
        pytest.importorskip("torch")
    spec = {"name": name, "features": features, "classes": classes}
    if name == "linear":  # of numbers only
        spec |= {"classes": 1, "loss": {"name": "cox"}}
    if features < {"cnn": 64, "resnet18": 64, "cnn_cifar": 24 * 24}.get(name, 0):
        return  # these images are too small
    assert models.parameters(spec) == models.build(spec).size
    assert (models.parameters(spec) <= Policy.of("careful").maximum_parameters) == (name != "resnet18")


def test_a_model_of_too_many_parameters_is_refused_before_it_takes_memory(hospitals):
    within = 4 * 10 + 10 + 10 * 2 + 2
    wide = {"model": "fnn:hidden=10", "environment": setting("MAXIMUM_PARAMETERS", within), "rounds": 1}
    train("v6_fedavg", hospitals, **wide)
    wide["environment"] = setting("MAXIMUM_PARAMETERS", within - 1)
    refused(f"the model fnn has {within} numbers, more than the {within - 1} that this node allows", hospitals, **wide)
    job = {"model": {"name": "2nn", "features": 10**9, "classes": 2, "hidden": 10_000}}
    status, log = crafted(hospitals, job=job, environment=CAREFUL)
    assert status != "completed" and "V6_FEDERATED_MAXIMUM_PARAMETERS" in log


def test_a_model_of_other_features_than_the_rows_have_is_refused(hospitals):
    job = {"model": {"name": "logreg", "features": 5, "classes": 2}}
    for environment in (CAREFUL, OPEN):
        status, log = crafted(
            hospitals, job=job, environment=environment, arrays=codec.encode({"weights": np.zeros(6)})
        )
        assert status != "completed" and "does not have 4 features" in log


def test_statistics_of_too_many_numbers_are_refused():
    policy = Policy.of("careful", minimum_rows_a_column=0)
    wide = Features([str(i) for i in range(2000)], np.zeros((20, 2000)), {})
    most = [str(i) for i in range(2000)]
    ends = {"columns": most, "lower": np.zeros(2000), "upper": np.ones(2000)}
    with pytest.raises(PrivacyThresholdViolation, match="the covariance of 2000 columns has 2001000 numbers"):
        of_rows("covariance", wide, policy, **moments_of(2000))
    with pytest.raises(PrivacyThresholdViolation, match="the product with the block has 2002000 numbers"):
        of_rows("product", wide, policy, **moments_of(2000), block=codec.encode({"Q": np.zeros((2000, 1001))}))
    few = Policy.of("careful", maximum_parameters=2000 * statistics.EDGES - 1)
    with pytest.raises(PrivacyThresholdViolation, match="the histogram of 2000 columns"):
        of_rows("below", wide, few, **ends)
    of_rows("below", wide, policy, **ends)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"statistic": "levels", "columns": ["x0"] * 1000}, "names a column twice"),
        ({"statistic": "present", "columns": ["x0", "x0"]}, "names a column twice"),
        ({"statistic": "below", "columns": [f"x{i}" for i in range(10**5)]}, "names 100000 columns, and there are 4"),
        ({"statistic": "product", "draw": 10**9}, "V6_FEDERATED_MAXIMUM_PARAMETERS"),
        ({"statistic": "product", "draw": 5}, "a block of 5 columns; expected from 1 to 4"),
        ({"statistic": "product", "block": codec.encode({"Q": np.zeros((4, 5))})}, "at most 4 columns"),
    ],
)
def test_statistics_that_nobody_needs_are_refused(hospitals, request_, says):
    arrays = moments_of(4)
    if request_["statistic"] == "below":
        arrays = {"lower": np.zeros(10**5), "upper": np.ones(10**5)}
    columns = [f"x{i}" for i in range(4)]
    job = {"model": None, "data": {**JOB["data"], "supervised": False, "classes": None, "features": columns}}
    status, log = crafted(hospitals, "fit_step", job, "v6_pca", CAREFUL, arrays=codec.encode(arrays), **request_)
    assert status != "completed" and says in log and "\n" not in log


def test_steps_that_make_very_many_columns_are_refused(hospitals):
    levels = {f"x{i}": [f"{j}" for j in range(6000)] for i in range(2)}
    steps = [{"step": "onehot", "fitted": {"levels": levels}}]
    data = {**JOB["data"], "preprocess": steps, "categories": ["x0", "x1"]}
    status, log = crafted(hospitals, job={"data": data}, environment=CAREFUL)
    assert status != "completed" and "make 12000 columns of levels" in log


@pytest.mark.parametrize("name", ["below", "levels", "covariance", "product"])
def test_statistics_look_at_the_time(name):
    def late():
        raise TimeoutError

    features = Features(["a"], np.zeros((20, 1)), {})
    asked = {**moments_of(1), "draw": 1, "columns": ["a"], "lower": np.zeros(1), "upper": np.ones(1)}
    with pytest.raises(TimeoutError):
        of_rows(name, features, Policy.of("careful"), late, **asked)


# ---- minibatches, their order, and samples


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "coop", "loadaboost", "dynavg", "colearning"])
def test_minibatches_of_few_rows_are_refused(hospitals, name):
    says = "batch_size=9 is below the 10 rows that this node requires (V6_FEDERATED_MINIMUM_BATCH); set batch_size=10"
    refused(says, hospitals, f"v6_{name}", environment=CAREFUL, batch_size=9)
    # with the secrets that some nodes draw, too few rows of a class are left to train on
    train(
        f"v6_{name}",
        hospitals,
        environment={**CAREFUL, "V6_FEDERATED_SECRET": "same secret " * 3},
        batch_size=10,
        rounds=1,
    )


def test_fsvrg_says_which_steps_are_long_enough(hospitals):
    refused("batch_size=1 is below the 10 rows", hospitals, "v6_fsvrg", environment=CAREFUL)
    result = train("v6_fsvrg", hospitals, environment=CAREFUL, batch_size=10, rounds=3)
    assert result["final"]["loss"] < np.log(2)


def test_a_fraction_of_too_few_organizations_is_refused_before_any_node_is_asked():
    four, seen = {k: table(30, seed=k) for k in (1, 2, 3, 4)}, []

    def outcomes(organization, message):
        seen.append(message["method"])
        return CallOutcome()

    says = "asks 2 of 4 organizations in a round, and the node where central runs requires 3"
    text = refused(says, four, environment=CAREFUL | {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "3"}, fraction=0.74)
    assert text.endswith("(V6_FEDERATED_MINIMUM_SAMPLE); set fraction=0.75 or more")
    with (
        pytest.raises(Exception, match="MINIMUM_SAMPLE"),
        MockNetwork("v6_scaffold", four, environment=CAREFUL, outcomes=outcomes) as network,
    ):
        network.run(rounds=1, fraction=0.5)
    assert not seen
    train("v6_fedavg", four, environment=CAREFUL | {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "3"}, fraction=0.75, rounds=1)


def update(**changes):
    local = {"batch_size": 10, "epochs": 1, "lr": 0.1}
    return "client_update", {"arrays": WEIGHTS, "local": local, **changes}


def weights_of(answer):
    return codec.decode(answer["arrays"])["weights"]


def test_a_repeated_request_has_the_same_answer_and_a_changed_one_other_minibatches(hospitals):
    moved = codec.encode({"weights": np.full(5, 1e-30)})  # the gradients are the same to the last bit
    first, again, changed, seeded = map(
        weights_of,
        answers(hospitals, [update(), update(), update(arrays=moved), update(job={**JOB, "seed": 1})]),
    )
    np.testing.assert_array_equal(first, again)
    assert (first != changed).any() and (first != seeded).any()
    # under trusting, the researcher knows the order
    first, changed = map(weights_of, answers(hospitals, [update(), update(arrays=moved)], OPEN))
    np.testing.assert_array_equal(first, changed)


def test_other_nodes_shuffle_otherwise(hospitals):
    """Each node has a secret of its own: a second network has made others."""
    first, second = (weights_of(answers(hospitals, [update()])[0]) for _ in range(2))
    assert (first != second).any()


def test_a_retry_finds_the_same_minibatches(hospitals):
    told = []

    def spoil(answer):
        told.append(answer["arrays"])
        return {"nothing": 1} if len(told) == 1 else answer

    def outcomes(organization, message):
        spoils = organization == 3 and message["method"] == "client_update"
        return CallOutcome(alter=spoil) if spoils else CallOutcome()

    with MockNetwork("v6_fedavg", hospitals, environment=CAREFUL, outcomes=outcomes) as network:
        network.run(rounds=1, retries=1, batch_size=10, epochs=3)
    assert len(told) == 2 and told[0] == told[1]


# ---- evaluations are rounded in test_rounding.py; here as a job has them


def test_evaluations_and_losses_of_a_job_are_rounded(hospitals):
    seen = []

    def outcomes(organization, message):
        return CallOutcome(alter=lambda answer: seen.append((organization, answer)) or answer)

    nodes = {k: pd.concat([t, table(30, seed=k + 50)]) for k, t in hospitals.items()}
    with MockNetwork("v6_loadaboost", nodes, environment=CAREFUL, outcomes=outcomes) as network:
        network.run(rounds=3, holdout=0.4)
    evaluated = [a["evaluation"] for _, a in seen if "evaluation" in a]
    assert len(evaluated) >= 9
    for found in evaluated:
        counts = np.asarray(found["confusion"])
        assert counts.sum() == found["n"] and set(np.unique(counts % 5)) == {0}
    losses = [(name, a["n"], a[name]) for _, a in seen for name in ("train_loss", "local_loss") if name in a]
    assert len(losses) == 18
    for name, n, loss in losses:
        assert loss / 2.0 ** (np.ceil(np.log2(loss)) - np.ceil(np.log2(n) / 2)) % 1 == 0, (name, n, loss)


def test_loadaboost_decides_by_the_rounded_loss(hospitals):
    """The number of epochs tells on which side of a median, which the task chooses, the loss is: of the rounded one."""
    [told] = answers(hospitals, [update(median=None, retrain="above")], package="v6_loadaboost")
    loss = told["local_loss"]
    near = [loss, loss * (1 + 1e-9), loss * (1 + 0.02)]
    requests = [update(median=m, retrain="above") for m in near]
    assert {a["epochs"] for a in answers(hospitals, requests, package="v6_loadaboost")} == {told["epochs"]}
    with pytest.raises(AssertionError):  # under trusting, the median can be moved to any digit of the loss
        [exact] = answers(hospitals, [update(median=None, retrain="above")], OPEN, "v6_loadaboost")
        assert exact["local_loss"] == loss


def test_an_error_of_several_lines_is_never_seen(hospitals):
    with pytest.raises(CollectResultsError) as caught:
        train("v6_fsvrg", hospitals, environment=CAREFUL, rounds=1)
    assert "\n" not in str(caught.value)
