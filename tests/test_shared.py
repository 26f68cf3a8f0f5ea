"""Codec, randomness, metrics, partitions, data and guards."""

import functools
import importlib
import inspect
import itertools
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pytest
from helpers import OPEN, table, train
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from sklearn.metrics import log_loss, roc_auc_score
from vantage6.algorithm.tools.exceptions import (
    CollectResultsError,
    DataError,
    NodePermissionException,
    PrivacyThresholdViolation,
    UserInputError,
)

from v6_federated import models, partial
from v6_federated.base import vantage6_api
from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.central import dispatch, history
from v6_federated.data import source
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_federated.messages.local_sgd import BatchSize, LearningRate, LocalSGD, PlainSGD, ProximalMu
from v6_federated.messages.settings import Role
from v6_federated.models import metrics
from v6_federated.models.linear import LinearModel
from v6_federated.node import local_training, node
from v6_federated.privacy.policy import Policy
from v6_workbench import registry
from v6_workbench.network import submit
from v6_workbench.reporting import export
from v6_workbench.simulation import partitions
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

# ---- codec


@given(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["float32", "float16"]))
def test_payload_round_trip(shape, precision):
    array = np.random.default_rng(0).normal(size=shape).astype(codec.DTYPES[precision])
    payload = json.loads(json.dumps(codec.encode({"a": array, "b": array[..., None]}, precision)))
    decoded = codec.decode(payload)
    np.testing.assert_array_equal(decoded["a"], array.astype(np.float32))
    assert decoded["b"].shape == (*shape, 1)


def test_float64_travels_whole():
    numbers = np.random.default_rng(0).normal(size=(3, 4)) * 1e9
    decoded = codec.decode(json.loads(json.dumps(codec.encode({"a": numbers}, "float64"))))
    np.testing.assert_array_equal(decoded["a"], numbers)


def test_payload_is_little_endian_base64():
    payload = codec.encode({"w": np.array([1.0, -2.0])})
    assert payload == {"dtype": "float32", "shapes": {"w": [2]}, "data": "AACAPwAAAMA="}


@pytest.mark.parametrize(
    "change",
    [
        {"data": "!"},
        {"data": "AACA"},
        {"dtype": "float64"},
        {"shapes": {"w": [3]}},
        {"shapes": {"w": [-2]}},
        {"shapes": {"w": [-1, -2]}},
        {"shapes": {"w": [2**41, 0], "v": [2]}},
        {"shapes": {"w": [2, *[1] * 8]}},
        {"shapes": {"w": [10**400] * 100_000}},  # whose product would take minutes
        {"shapes": 1},
    ],
)
def test_what_is_no_payload_is_refused(change):
    with pytest.raises(SafeError) as error:
        codec.decode({**codec.encode({"w": np.ones(2)}), **change})
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_not_finite_are_refused_both_ways(bad):
    with pytest.raises(SafeError, match="not finite"):
        codec.encode({"w": np.array([1, bad])})
    import base64

    source = base64.b64encode(np.array([1, bad], "<f4")).decode()
    with pytest.raises(SafeError, match="not finite"):
        codec.decode({"dtype": "float32", "shapes": {"w": [2]}, "data": source})


def test_size_is_that_of_the_message_as_vantage6_sends_it():
    message = {"method": "x", "kwargs": {"arrays": codec.encode({"w": np.ones(100)}), "list": [1, {"a": None}, "é"]}}
    assert codec.size(message) == len(json.dumps(message).encode())


# ---- randomness


def test_random_numbers_depend_on_what_they_are_for():
    draws = [
        generator(*a).random() for a in [(0, "a", 1, 1), (1, "a", 1, 1), (0, "b", 1, 1), (0, "a", 2, 1), (0, "a", 1, 2)]
    ]
    assert len(set(draws)) == 5
    assert generator(0, "a", 1, 1).random() == draws[0]


# ---- metrics


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["logreg", "svm", "fnn"])
def test_metrics_from_counts_equal_those_from_scores(name, classes):
    rng = np.random.default_rng(0)
    model = models.build({"name": name, "features": 4, "classes": classes})
    w = rng.normal(size=model.size).astype(np.float32)
    rows = table(3000, classes=classes)
    X, y = rows.iloc[:, :-1].to_numpy(np.float32), rows["label"].to_numpy()
    parts = [slice(0, 1000), slice(1000, 3000)]
    placed = metrics.next_bands([metrics.evaluate(model, w, source.Rows(X, y), classes, 64)], metrics.SCALE, None)
    found = metrics.combine([metrics.evaluate(model, w, source.Rows(X[p], y[p]), classes, 64, *placed) for p in parts])
    scores = model.scores(w, X).astype(float)
    assert found["accuracy"] == np.mean(model.predict(w, X) == y)
    assert found["loss"] == pytest.approx(model.loss(model.scores(w, X), y), rel=1e-5)
    if classes == 2:
        exact = roc_auc_score(y, scores[:, -1] - (scores[:, 0] if scores.shape[1] == 2 else 0))
    else:
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        exact = roc_auc_score(y, p / p.sum(axis=1, keepdims=True), multi_class="ovr")
    assert found["auc"] == pytest.approx(exact, abs=0.005)
    assert np.sum(found["confusion"]) == 3000
    if name == "logreg" and classes == 3:
        assert found["loss"] == pytest.approx(log_loss(y, p / p.sum(axis=1, keepdims=True)), rel=1e-4)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("spread", [1.0, 0.01])
@pytest.mark.parametrize("classes", [2, 3])
def test_bands_follow_the_scores(classes, spread, intercept):
    """Scores of rows of which few have the class lie about its odds, far from even, or, of a model that has just begun,
    all close together: there the bands get fine."""
    rng = np.random.default_rng(3)
    y = rng.choice(classes, 4000, p=[0.93, 0.07] if classes == 2 else [0.8, 0.15, 0.05])
    X = (rng.normal(size=(4000, classes)) * 0.4 + 0.3 * np.eye(classes)[y]).astype(np.float32) * np.float32(spread)
    model = models.build({"name": "logreg", "features": classes, "classes": classes})
    prior = intercept * np.log(np.bincount(y) / len(y))
    w = np.array([-1, 1, prior[1] - prior[0]] if classes == 2 else [*np.eye(3).flatten(), *prior], np.float32)
    rows = source.Rows(X, y)
    scores = model.scores(w, X).astype(float)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    exact = roc_auc_score(y, scores[:, 0] if classes == 2 else p / p.sum(axis=1, keepdims=True), multi_class="ovr")
    placement, answers = (metrics.SCALE, None), []
    for _ in range(4):
        answers.append(metrics.evaluate(model, w, rows, classes, 64, *placement))
        off = abs(metrics.combine(answers[-1:])["auc"] - exact)
        assert off <= metrics.blur(answers[-1:]) + 1e-9, "what the bands leave open"
        placement = metrics.next_bands(answers[-1:], *placement)
        assert metrics.is_placement(*placement, classes) and metrics.is_evaluation(answers[-1], classes)
    assert off < 0.001 and metrics.blur(answers[-1:]) < 0.012 and len({np.sum(a["bands"]) for a in answers}) == 1
    share = p / p.sum(axis=1, keepdims=True)
    odds = scores[:, 0] if classes == 2 else np.log(share / (1 - share))
    np.testing.assert_allclose(placement[1], np.median(odds.reshape(4000, -1), axis=0), atol=0.02 * spread)


@pytest.mark.parametrize("tied", [0.45, 0.6, 0.8, 0.95])
def test_tied_scores_do_not_make_the_others_coarse(tied):
    """Of a column that is mostly zero: what shares a band cannot be told apart, however fine the bands are there."""
    rng = np.random.default_rng(5)
    z = np.where(rng.random(6000) < tied, 0.0, rng.normal(size=6000))
    y = (rng.random(6000) < 1 / (1 + np.exp(-2 * z))).astype(int)
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    rows, w, placement = (
        source.Rows(z[:, None].astype(np.float32), y),
        np.array([2, 0.3], np.float32),
        (metrics.SCALE, None),
    )
    for _ in range(6):
        answer = metrics.evaluate(model, w, rows, 2, 64, *placement)
        assert metrics.combine([answer])["auc"] == pytest.approx(roc_auc_score(y, z), abs=0.003)
        placement = metrics.next_bands([answer], *placement)


@pytest.mark.parametrize("fail", [[], [2], [1, 2, 3, 4]])
def test_a_second_look_changes_nothing_but_the_auc(fail):
    """And who fails in it has not failed."""
    rng = np.random.default_rng(1)
    nodes = {}
    for k in (1, 2, 3, 4):
        x = rng.normal(size=(300, 2))
        y = (rng.random(300) < 1 / (1 + np.exp(2.5 - x[:, 0]))).astype(int)
        nodes[k] = pd.DataFrame({"a": 0.01 * x[:, 0], "b": x[:, 1] * 0.001, "ill": y})
    looks = []

    def outcomes(organization, input_):
        if input_["method"] == "evaluate":  # in a round only where the first look, on the way, was not enough
            looks.append(input_["kwargs"]["round"])
            return CallOutcome(status="failed" if organization in fail and looks[-1] == 2 else "completed")
        return CallOutcome()

    settings = {"rounds": 3, "min_responses": 0.5, "cooldown_rounds": 3, "retries": 0, "lr": 0.01}
    with MockNetwork("v6_fedavg", nodes, environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        result = network.run(**settings)
    assert [row["participants"] for row in result["history"]] == [[1, 2, 3, 4]] * 3
    assert [row["evaluated"] for row in result["history"]] == [240] * 3
    assert not any(row["unevaluated"] or row["missing"] for row in result["history"])
    assert 2 in looks, "the bands of round 1 are about no model's scores"
    assert result["traffic"]["evaluation"]["bytes_up"] > 0


def test_a_second_look_that_nobody_answers_places_no_bands():
    """The first look's counts are read with the first look's bands."""
    rng = np.random.default_rng(5)
    rows = source.Rows(rng.normal(size=(500, 1)).astype(np.float32) * np.float32(0.001), rng.integers(0, 2, 500))
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    told = metrics.evaluate(model, np.array([1, -2], np.float32), rows, 2, 64)
    answer = dispatch.Answer(1, 500, {}, {"evaluation": told}, 1, 1, "evaluate")
    job = history.History([], False, lambda row: None)
    placed = metrics.next_bands([told], job.scale, job.centers)
    assert job.look_again([[answer]]) == [1] and job.scale < metrics.SCALE
    assert job.look_again([[answer], []]) == []
    job.evaluated(1, [[answer], []])
    assert (job.scale, job.centers) == placed


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "gbdt"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_the_auc_of_a_result_is_that_of_its_scores(method, rounds):
    """Also of a rare class, of which a model that has just begun knows nothing yet."""
    nodes = {}
    for k in (1, 2, 3):
        rows = table(400, seed=k)
        nodes[k] = rows.assign(label=(np.random.default_rng(k).random(400) < 0.02 + 0.08 * rows["label"]).astype(int))
    with MockNetwork(f"v6_{method}", nodes, on_round=lambda row: None) as network:
        result = network.run(rounds=rounds, preprocess=["standardize"])
    held = [source.split(400, 0.2, k)[1] for k in nodes]
    test = pd.concat([nodes[k].iloc[i] for k, i in zip(nodes, held, strict=True)])
    told, _ = export.predict(result, source.Source(table=test))
    assert result["final"]["auc"] == pytest.approx(roc_auc_score(test["label"], told["score"]), abs=0.01)
    assert result["history"][-1]["auc"] == result["final"]["auc"]


@pytest.mark.parametrize("lr", [0.02, 0.05])
def test_the_auc_after_rounds_without_change(lr):
    """Dynamic averaging whose nodes stay silent until the last round, after which scores lie elsewhere."""
    nodes = {k: table(400, seed=k) for k in (1, 2, 3, 4)}
    result = train("v6_dynavg", nodes, rounds=6, lr=lr)
    assert [row["uploads"] for row in result["history"]] == [0] * 5 + [4]
    test = pd.concat([nodes[k].iloc[source.split(400, 0.2, k)[1]] for k in nodes])
    told, _ = export.predict(result, source.Source(table=test))
    assert result["final"]["auc"] == pytest.approx(roc_auc_score(test["label"], told["score"]), abs=0.01)


def test_tied_scores_are_not_looked_at_for_ever():
    """Three models in a row, and the last one."""
    looks = []

    def outcomes(organization, input_):
        looks.append(input_["kwargs"]["round"] if input_["method"] == "evaluate" and organization == 1 else 0)
        return CallOutcome()

    nodes = {k: table(60, seed=k).assign(x0=0.0, x1=0.0, x2=0.0, x3=[0, 1] * 30) for k in (1, 2)}
    nodes = {k: rows.assign(label=[0, 0, 1, 1] * 15) for k, rows in nodes.items()}
    with MockNetwork("v6_fedavg", nodes, environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        network.run(rounds=10, lr=0.1)
    assert looks.count(10) > 1, "the last model's are looked at whatever came before"
    assert not {7, 8, 9} & {*looks}
    assert max(looks.count(t) for t in range(2, 10)) <= 2 < history.LOOKS, "the same ties whatever the bands"


def _counted(scores, y, job):
    rows = source.Rows(np.asarray(scores, np.float32)[:, None], np.asarray(y))
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    told = metrics.evaluate(model, np.array([1, 0], np.float32), rows, 2, 64, job.scale, job.centers)
    return [dispatch.Answer(1, len(y), {}, {"evaluation": told}, 1, 1, "evaluate")]


def test_scores_that_lie_elsewhere_are_looked_at_from_the_beginning():
    job, rng = history.History([], False, lambda row: None), np.random.default_rng(0)
    y = np.arange(400) % 2
    job.scale, job.centers, job._futile = 1e-4, [-3.0], history.FUTILE
    looks = [_counted(rng.normal(size=400) + y, y, job)]
    assert job.look_again(looks) == [1] and (job.scale, job.centers) == (metrics.SCALE, None)
    looks.append(_counted(rng.normal(size=400) + y, y, job))
    assert job.look_again(looks) == [] and job.evaluated(1, looks)["auc"] > 0.7
    assert job._futile == 0


def test_a_look_without_all_nodes_ends_the_looking():
    """It is of other rows, and says nothing of ties."""
    job, rng = history.History([], False, lambda row: None), np.random.default_rng(0)
    y, scores = np.arange(400) % 2, rng.normal(size=400) * 1e-3
    both = [
        *_counted(scores, y, job),
        dispatch.Answer(2, 400, {}, _counted(scores, y, job)[0].values, 1, 1, "evaluate"),
    ]
    assert job.look_again([both]) == [1, 2]
    looks = [both, _counted(scores, y, job)]
    assert job.look_again(looks) == []
    auc = metrics.combine([a.values["evaluation"] for a in both])["auc"]
    assert job.evaluated(1, looks)["auc"] == auc and job._futile == 0


def test_a_look_that_tells_no_bands_is_not_better():
    job, rng = history.History([], False, lambda row: None), np.random.default_rng(0)
    y, scores = np.arange(400) % 2, rng.normal(size=400) * 1e-3
    looks = [_counted(scores, y, job)]
    assert job.look_again(looks) == [1]
    looks.append(
        [
            dispatch.Answer(
                1, 400, {}, {"evaluation": {**looks[0][0].values["evaluation"], "bands": []}}, 1, 1, "evaluate"
            )
        ]
    )
    assert job.look_again(looks) == [] and job.evaluated(1, looks)["auc"] is not None


def test_no_rows_or_one_class_give_no_auc():
    assert metrics.combine([{"n": 0}])["accuracy"] is None
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    rows = source.Rows(np.ones((5, 1), np.float32), np.ones(5, np.int64))
    assert metrics.combine([metrics.evaluate(model, np.ones(2, np.float32), rows, 2, 64)])["auc"] is None


def test_rounds_to_target_is_mcmahans():
    # best so far .5 .8 .8 .9: crosses .85 halfway from round 3 to round 4
    assert metrics.rounds_to_target([0.5, 0.8, 0.7, 0.9], [1, 2, 3, 4], 0.85) == pytest.approx(3.5)
    assert metrics.rounds_to_target([0.5, 0.5, 0.9], [0, 0, 5], 0.8) == pytest.approx(3.75), "rounds without uploads"
    assert metrics.rounds_to_target([0.9], [1], 0.85) == 1
    assert metrics.rounds_to_target([0.5, None, 0.9], [1, 2, 3], 0.7) == pytest.approx(2)
    assert metrics.rounds_to_target([0.5], [1], 0.85) is None


# ---- partitions


@pytest.mark.parametrize("name", [*partitions.PARTITIONS, "shards:4", "class:0.5", "classes:3", "dirichlet:5"])
@pytest.mark.parametrize("nodes", [5, 10])
def test_every_row_goes_to_one_node(name, nodes):
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))
    parts = partitions.partition(name, y, nodes, 3)
    assert len(parts) == nodes
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(600))
    again = partitions.partition(name, y, nodes, 3)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))


def test_shards_are_mcmahans():
    """Sorted by digit, 200 shards of 300, two a node: most nodes have two digits."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    parts = partitions.partition("shards", y, 100, 1)
    assert {len(p) for p in parts} == {600}
    assert all(len(np.unique(y[p])) <= 2 for p in parts)


def test_shapes_of_the_other_partitions():
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(2), 3000))
    sizes = [len(p) for p in partitions.partition("size", y, 10, 0)]
    assert sizes[0] * 10 == pytest.approx(sizes[-1], rel=0.02) and sizes == sorted(sizes)
    shares = [y[p].mean() for p in partitions.partition("class", y, 10, 0)]
    assert min(shares) == pytest.approx(0.05, abs=0.01) and max(shares) == pytest.approx(0.95, abs=0.01)
    assert np.ptp([len(p) for p in partitions.partition("class", y, 10, 0)]) <= 2
    assert [set(y[p]) for p in partitions.partition("classes:1", y, 2, 0)] == [{0}, {1}]
    for name in ("unbalanced", "sorted-balanced", "sorted-unbalanced"):
        assert all(len(np.unique(y[p])) == 2 for p in partitions.partition(name, y, 7, 0))


@pytest.mark.parametrize("name", ["shard", "iid:3", "dirichlet:0", "dirichlet:x", "column:", "class:2", "classes:9"])
def test_wrong_partitions_are_refused(name):
    with pytest.raises(SafeError):
        partitions.partition(name, np.arange(20) % 2, 4, 0)


# ---- data


def test_a_missing_value_names_the_column_only():
    rows = table(20)
    rows.loc[7, "x2"] = np.nan
    rows.loc[3, "x1"] = np.inf
    with pytest.raises(DataError) as error:
        source.Source(table=rows).rows(DataSpec())
    assert "x1, x2" in str(error.value) and "7" not in str(error.value)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (DataSpec(label="age"), "no column age"),
        (DataSpec(features=["x0", "x9"]), "no column x9"),
        (DataSpec(features=["x0", "label"]), "among the features"),
    ],
)
def test_columns_that_are_not_there(spec, says):
    with pytest.raises(DataError, match=says):
        source.Source(table=table(20)).rows(spec)


def test_text_in_a_feature_is_refused_without_quoting_it():
    rows = table(20).astype({"x0": object})
    rows.loc[2, "x0"] = "Mr Smith"
    with pytest.raises(DataError) as error:
        source.Source(table=rows).rows(DataSpec())
    assert "x0" in str(error.value) and "Smith" not in str(error.value)


def test_a_label_that_is_no_class_is_refused_without_quoting_it():
    with pytest.raises(DataError) as error:
        source.encode_labels(np.array([1, 2, 77]), [1, 2])
    assert "77" not in str(error.value)


def test_labels_may_be_words_or_whole_floats():
    assert source.encode_labels(np.array(["b", "a"]), ["a", "b"]).tolist() == [1, 0]
    assert source.encode_labels(np.array([1.0, 0.0]), [0, 1]).tolist() == [1, 0]


def test_npz_and_folders_of_images(tmp_path):
    from PIL import Image

    X, y = np.random.default_rng(0).integers(0, 255, (12, 4, 4), dtype=np.uint8), np.arange(12) % 2
    np.savez(tmp_path / "rows.npz", x=X, y=y)
    for name in ("benign", "malign"):
        (tmp_path / "images" / name).mkdir(parents=True)
    for i, (image, label) in enumerate(zip(X, y, strict=True)):
        Image.fromarray(image).save(tmp_path / "images" / ("benign", "malign")[label] / f"{i:02}.png")
    archive = source.open_source(tmp_path / "rows.npz").rows(DataSpec())
    folder = source.open_source(tmp_path / "images").rows(DataSpec())
    assert archive.X.shape == (12, 16) and archive.X.dtype == np.float32 and archive.X.max() <= 1
    order = np.argsort(y, kind="stable")
    np.testing.assert_array_equal(folder.X, archive.X[order])
    assert folder.y.tolist() == ["benign"] * 6 + ["malign"] * 6


def test_images_of_16_bits(tmp_path):
    """As radiology has them: the same picture as their first 8 bits, not all white."""
    from PIL import Image

    X = np.random.default_rng(0).integers(0, 255, (4, 5, 5), dtype=np.uint8)
    for bits in (8, 16):
        for i, image in enumerate(X):
            folder = tmp_path / str(bits) / "ab"[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            pixels = image if bits == 8 else image.astype(np.uint16) * 257
            Image.fromarray(pixels).save(folder / f"{i}.png")
    few, many = (source.open_source(tmp_path / bits).rows(DataSpec()) for bits in ("8", "16"))
    np.testing.assert_allclose(many.X, few.X, atol=1e-6)
    Image.fromarray(X[0]).save(tmp_path / "16" / "a" / "mixed.png")
    with pytest.raises(DataError, match="images of 8 bits and of 16"):
        source.open_source(tmp_path / "16")


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 broken"])
def test_a_broken_npz(tmp_path: Path, content):
    (tmp_path / "rows.npz").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        source.open_source(tmp_path / "rows.npz")


def test_an_npz_that_needs_unpickling_is_refused(tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.array([{}, {}], dtype=object), y=np.arange(2))
    with pytest.raises(DataError, match="cannot be read"):
        source.open_source(tmp_path / "rows.npz")


# ---- guards


def refused(says, hospitals, environment=None, environments=None, **settings):
    try:
        result = train(
            "v6_fedavg", hospitals, environment=environment, environments=environments, **{"rounds": 2, **settings}
        )
        text = result["stopped"]
    except (CollectResultsError, PrivacyThresholdViolation, UserInputError) as error:
        text = str(error)
    assert says in text
    return text


def test_too_few_rows_at_one_node(hospitals):
    text = refused("organization 9: fewer than 10 rows", {**hospitals, 9: table(9)}, holdout=0)
    assert "organization 3" not in text


def test_held_out_rows_come_in_multiples_of_the_minimum():
    """Two jobs that differ in holdout or seed tell nothing of fewer rows than the minimum."""
    sizes = {len(source.split(40, holdout, 7)[1]) for holdout in np.linspace(0.01, 0.99, 50)}
    assert sizes == {10, 20, 30, 40}
    ten, twenty = (set(source.split(40, holdout, 7)[1]) for holdout in (0.25, 0.5))
    assert ten < twenty
    assert len(source.split(19, 0.5, 7)[1]) == 0 and len(source.split(100, 0.1, 7, step=50)[1]) == 50


def test_rows_are_counted_after_the_holdout(hospitals):
    refused("organizations 3, 5, 8: fewer than 10 rows", hospitals, holdout=0.9)


def test_an_operator_can_ask_for_more_rows(hospitals):
    refused("organization 5: fewer than 50", hospitals, environments={5: {"V6_FEDERATED_MINIMUM_ROWS": "50"}})


def test_a_request_can_ask_for_more_rows_but_not_for_fewer(hospitals):
    refused("fewer than 40 rows", hospitals, minimum_rows=40)
    refused("a request can only raise it", hospitals, minimum_rows=5)


def test_too_few_organizations(hospitals):
    two = {k: hospitals[k] for k in (3, 5)}
    refused("at least 3 must", two, environment={"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "3"})
    # central asks little, one node asks more: the partial refuses
    refused(
        "organization 5: 3 organization(s) take part, at least 4 must",
        hospitals,
        environments={5: {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "4"}},
    )


def test_columns(hospitals):
    refused(
        "organizations 3, 5, 8: the column(s) x1 may not be used",
        hospitals,
        environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "x1"},
    )
    allowed = {"V6_FEDERATED_ALLOWED_COLUMNS": "x0, x1, label"}
    refused("x2, x3 may not be used", hospitals, environment=allowed)
    train("v6_fedavg", hospitals, environment=allowed, rounds=1, features=["x0", "x1"])


@pytest.mark.parametrize(
    ("column", "listed"),
    [
        ("Patient_ID", "patient_id"),
        ("patient_id", "PATIENT_ID"),
        ("patient_id\u200b", "patient_id"),
        ("gro\u0308\u00dfe", "gr\u00f6sse"),
        ("patient\uff3fid", "patient_id"),
        ("patient_id\u3164", "patient_id"),
        ("patient\ufe0f_id", "patient_id"),
        ("\u2800patient_id", "patient_id"),
        ("patient\x7f_id\x00", "patient_id"),
    ],
)
def test_a_disallowed_column_that_reads_like_the_one_listed(hospitals, column, listed):
    named = {k: rows.rename(columns={"x1": column}) for k, rows in hospitals.items()}
    refused("may not be used", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": listed})
    train("v6_fedavg", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": f"{listed}s"}, rounds=1)


def test_a_column_whose_name_holds_a_comma(hospitals):
    """The list of columns has it in parts."""
    named = {k: rows.rename(columns={"x1": "weight, kg"}) for k, rows in hospitals.items()}
    refused("weight, kg may not be used", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "age,weight, kg"})
    named = {k: rows.rename(columns={"x1": "weight,"}) for k, rows in hospitals.items()}
    refused("weight, may not be used", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "weight,"})
    train("v6_fedavg", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "kg"}, rounds=1)


def test_a_database_that_is_asked_by_a_query(monkeypatch):
    """The task must bring one; vantage6 itself would only end."""
    for name, value in [
        ("USER_REQUESTED_DATABASE_LABELS", "warehouse"),
        ("WAREHOUSE_DATABASE_URI", "sqlite://"),
        ("WAREHOUSE_DATABASE_TYPE", "sql"),
    ]:
        monkeypatch.setenv(name, value)
    with pytest.raises(NodePermissionException, match="does not run a task's queries"):
        vantage6_api.read_database()
    monkeypatch.setenv("V6_FEDERATED_ALLOW_QUERIES", "1")
    with pytest.raises(UserInputError, match="the task brings none"):
        vantage6_api.read_database()
    monkeypatch.setenv("WAREHOUSE_QUERY", "select 1 as x, 'no' as y")
    assert vantage6_api.read_database().to_dict("list") == {"x": [1], "y": ["no"]}


def test_a_task_brings_its_query():
    sent = []
    client = SimpleNamespace(task=SimpleNamespace(create=lambda **task: sent.append(task) or {"id": 7}))
    common = {"collaboration": 1, "organization": 1, "image": "v6-fedavg", "label": "warehouse"}
    assert submit.send(client, "fedavg", {"rounds": 1}, **common, query="select 1") == 7
    submit.send(client, "fedavg", {"rounds": 2, "model": "svm"}, **common)
    assert [task["description"] for task in sent] == ["fedavg, 1 rounds", "fedavg, 2 rounds of svm"]
    assert [task["databases"] for task in sent] == [
        [{"label": "warehouse", "query": "select 1"}],
        [{"label": "warehouse"}],
    ]


def test_small_batches(hospitals):
    refused("batch_size=4 is below the 5", hospitals, environment={"V6_FEDERATED_MINIMUM_BATCH": "5"}, batch_size=4)
    train("v6_fedavg", hospitals, environment={"V6_FEDERATED_MINIMUM_BATCH": "5"}, rounds=1, batch_size=5)


def test_no_minibatch_is_smaller_than_the_operators_minimum(hospitals):
    """The rows that are left at the end of an epoch join the minibatch before them."""
    rng = np.random.default_rng(0)
    for n, size, least, lengths in [
        (41, 20, 20, [20, 21]),
        (41, 20, 1, [20, 20, 1]),
        (40, 20, 20, [20, 20]),
        (15, 10, 10, [15]),
        (5, 10, 10, [5]),
        (45, 20, 5, [20, 20, 5]),
        (45, 20, 6, [20, 25]),
        (3, 1, 1, [1, 1, 1]),
    ]:
        for batches in (
            list(local_training.batches(rng, n, 1, size, least)),
            list(local_training.batches(rng, n, 1, size, least)),
        ):
            taken = [np.arange(n)[batch] for batch in batches]
            assert [len(rows) for rows in taken] == lengths
            assert len(batches) == local_training.steps_per_epoch(n, size, least)
            assert sorted(np.concatenate(taken)) == list(range(n))
    seen = []

    def spied(self, w, X, y):
        seen.append(len(y))
        return gradient(self, w, X, y)

    gradient = LinearModel.loss_and_gradient
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LinearModel, "loss_and_gradient", spied)
        nodes = {k: table(41, seed=k) for k in (1, 2, 3)}
        train("v6_fedavg", nodes, environment={"V6_FEDERATED_MINIMUM_BATCH": "20"}, rounds=1, batch_size=20, holdout=0)
    assert seen == [20, 21] * 3


@pytest.mark.parametrize(
    "package", ["v6_fedavg", "v6_scaffold", "v6_fsvrg", "v6_loadaboost", "v6_colearning", "v6_dynavg", "v6_gbdt"]
)
def test_as_many_rounds_as_a_node_allows(hospitals, package):
    """The last model is evaluated too."""
    result = train(package, hospitals, environment={"V6_FEDERATED_MAXIMUM_ROUNDS": "2"}, rounds=2)
    assert len(result["history"]) == 2 and "stopped" not in result and result["final"]["evaluated"]


@pytest.mark.parametrize("settings", [{"proximal_mu": 1.0}, {"model": "logreg:l2=1"}, {"model": "svm:l2=0.6"}])
def test_no_setting_lets_the_last_rows_stand_alone(hospitals, settings):
    """A step that forgets those before it would send the last minibatch's gradient: of one row, the row."""
    refused("the last rows would stand alone", hospitals, lr=1.0, batch_size=20, **settings)


def test_steps_that_forget_nothing_or_little_are_taken(hospitals):
    """All rows a step, Adam, and a product of 0.5 in the model's own precision."""
    for package, settings in [
        ("v6_fedavg", {"lr": 5.0, "model": "logreg:l2=0.1", "batch_size": 10}),
        ("v6_fedavg", {"lr": 1.0, "model": "logreg:l2=1", "epochs": 2}),
        ("v6_fedavg", {"lr": 1.0, "proximal_mu": 1.0, "optimizer": "adam", "batch_size": 10}),
        ("v6_fsvrg", {"stepsize": 1.0, "model": "logreg:l2=1", "batch_size": 5}),
    ]:
        assert len(train(package, hospitals, rounds=1, **settings)["history"]) == 1


def test_a_label_of_as_many_values_as_rows_is_none(hospitals):
    """Whoever names them all would have parameters of its own for each patient."""
    named = {k: rows.assign(id=np.arange(len(rows)) + 1000 * k) for k, rows in hospitals.items()}
    ids = sorted({value for rows in named.values() for value in rows["id"].tolist()})
    refused("fewer than 3 rows a value on the average", named, label="id", classes=ids[: max(map(len, named.values()))])
    refused("the request names 101 classes; expected 100 at most", hospitals, classes=[*range(101)])


def test_an_operator_can_keep_the_order_of_rows_to_the_node(hospitals):
    """Else whoever has the seed knows which rows make up a minibatch. Shuffled anew each time, with other bits."""
    settings = {"rounds": 2, "batch_size": 7, "seed": 3}
    own = {"V6_FEDERATED_OWN_SHUFFLE": "1"}
    one, two = (train("v6_fedavg", hospitals, environment=own, **settings)["weights"] for _ in range(2))
    assert one != two
    assert train("v6_fedavg", hospitals, **settings)["weights"] == train("v6_fedavg", hospitals, **settings)["weights"]


def test_rounds(hospitals):
    refused("5 rounds are more than the 4", hospitals, environment={"V6_FEDERATED_MAXIMUM_ROUNDS": "4"}, rounds=5)


def test_a_limit_that_cannot_be_read_stops_everything():
    with pytest.raises(NodePermissionException, match="MINIMUM_ROWS"):
        Policy.of_node({"V6_FEDERATED_MINIMUM_ROWS": "ten"})


def test_a_node_with_few_rows_gives_no_evaluation(hospitals):
    result = train("v6_fedavg", {**hospitals, 9: table(15)}, rounds=1)
    assert result["final"]["evaluated"] == 10 + 10 + 10  # of 30, 44 and 26 rows
    assert result["history"][0]["n"] == 20 + 34 + 16 + 15


def test_score_bands_can_be_switched_off(hospitals):
    result = train("v6_fedavg", hospitals, rounds=1, environment={"V6_FEDERATED_SCORE_BANDS": "0"})
    assert result["final"]["auc"] is None and result["final"]["accuracy"] is not None


def test_no_value_of_a_row_in_any_message(hospitals):
    """Whatever goes wrong at a node, the text that leaves it holds nothing of its rows."""
    secret = 987654.25
    for column, value in (("label", secret), ("label", str(secret)), ("x1", str(secret))):
        spoiled = {**hospitals, 9: table(30).astype({column: object})}
        spoiled[9].loc[5, column] = value
        assert str(secret) not in refused("organization 9", spoiled, classes=[0, 1])


def test_an_error_of_a_library_is_withheld(hospitals, monkeypatch):
    def quotes_a_row(self, w, X, y):
        raise RuntimeError(f"bad value {X[0, 0]}")

    monkeypatch.setattr("v6_federated.models.linear.LinearModel.loss_and_gradient", quotes_a_row)
    text = refused("RuntimeError in test_shared.py", hospitals)
    assert "its text is withheld" in text and "bad value" not in text


def test_divergence_is_named(hospitals):
    text = refused(
        "training has diverged",
        {k: v * 1e6 for k, v in hospitals.items()},
        lr=1e38,
        rounds=5,
        model="svm",
        classes=[0, 1000000],
    )
    assert "organization" in text


def test_a_model_that_a_node_cannot_build(hospitals):
    with pytest.raises(ValueError, match="not a square image"):
        train("v6_fedavg", hospitals, rounds=1, model="cnn_garst", features=["x0", "x1", "x2"])


def test_settings_are_checked_in_the_task_too(hospitals):
    for bad, says in [
        ({"fraction": 1.5}, "fraction=1.5 is refused"),
        ({"rounds": 0}, "rounds=0 is refused"),
        ({"epoch": 3}, "unknown setting 'epoch'"),
        ({"organizations": [3, 4]}, "[4]: not in the collaboration"),
        ({"evaluators": [3, 5, 8], "organizations": [3]}, "train as well"),
    ]:
        refused(says, hospitals, **bad)


FEDAVG = {"local": {}, "arrays": codec.encode({"weights": np.zeros(5)})}


def crafted(hospitals, function="client_update", job=None, package="v6_fedavg", environment=None, **request):
    """Send a partial function's task as a malicious researcher could; returns status and last words of a node."""
    environment = environment or {"V6_FEDERATED_MAXIMUM_ROUNDS": "5"}
    whole = {
        "method": package.removeprefix("v6_"),
        "key": "0" * 32,
        "seed": 0,
        "participants": [3, 5, 8],
        "evaluators": [],
        "rounds": 1,
        "model": {"name": "logreg", "features": 4, "classes": 2},
        "minimum_rows": None,
        "precision": "float32",
        "data": {"label": None, "features": None, "classes": [0, 1], "holdout": 0.0, "preprocess": []},
        **(job or {}),
    }
    settings = {}
    if (package, function) == ("v6_fedavg", "client_update"):
        own = {name: request.pop(name) for name in [*request] if name in LocalSGD.model_fields}
        settings = {**FEDAVG, "local": {**FEDAVG["local"], **own}}
    with MockNetwork(package, hospitals, environment=environment) as network:
        client = network.client()
        kwargs = {"job": whole, "round": 1, **settings, **request}
        task = client.task.create({"method": function, "kwargs": kwargs}, [3])
        client.wait_for_results(task["id"])
        run = client.run.from_task(task["id"])[0]
        return run["status"], run["log"]


STEP = {"local": {}}
W = {"weights": np.zeros(5)}
UNLABELLED = {"model": None, "data": {"classes": None, "holdout": 0.0, "preprocess": [], "supervised": False}}
TREES = {"model": {"name": "trees", "features": 4, "classes": 2}}
REGRESSION = {
    "model": {"name": "trees", "features": 4, "classes": 1},
    "data": {"classes": None, "holdout": 0.0, "preprocess": [], "regression": True},
}
GROW = {"trees": 1, "lr": 0.1, "max_leaves": 4, "min_rows_leaf": 10, "max_depth": None, "lambda_l2": 0.0}
EDGES = codec.encode({"edges": np.zeros(4), "lengths": np.ones(4)})
# every partial function of every method, as central calls it
PARTIALS = [
    ("v6_fedavg", "client_update", {}, None, {}),
    ("v6_scaffold", "client_update", {**STEP, "known": {}}, {**W, "c": np.zeros(5)}, {}),
    ("v6_fsvrg", "gradient", {}, W, {}),
    ("v6_fsvrg", "client_update", {"stepsize": 1.0, "batch_size": None}, {**W, "full_gradient": np.zeros(5)}, {}),
    (
        "v6_loadaboost",
        "client_update",
        {**STEP, "median": None, "retrain": "above"},
        W,
        {},
    ),
    (
        "v6_colearning",
        "client_update",
        {**STEP, "epochs": 1, "epochs_before": 0, "lr_cycle": 0.25},
        W,
        {},
    ),
    (
        "v6_dynavg",
        "local_update",
        {**STEP, "is_reference": True, "delta": 0.0},
        W,
        {},
    ),
    ("v6_dynavg", "singular_index", {}, None, {}),
    ("v6_dynavg", "train", {**STEP, "since": 0}, W, {}),
    ("v6_dynavg", "send_model", {}, None, {}),
    ("v6_coop", "client_update", STEP, W, {}),
    ("v6_gbdt", "average", {}, None, REGRESSION),
    ("v6_gbdt", "count", {"max_bin": 8}, {"low": np.zeros(4), "high": np.ones(4)}, TREES),
    ("v6_gbdt", "grow", {**GROW, "edges": EDGES}, {"weights": np.zeros((0, 3))}, TREES),
    (
        "v6_pca",
        "transform",
        {},
        {"mean": np.zeros(4), "scale": np.ones(4), "components": np.eye(4)},
        UNLABELLED,
    ),
]
SHARED = {"central", "describe", "evaluate", "fit_step", "forget", "keep_steps"}


def test_no_partial_function_is_left_out():
    exported = {f"v6_{method}": importlib.import_module(f"v6_{method}").__all__ for method in registry.names()}
    assert {(p, f) for p, f, *_ in PARTIALS} == {(p, f) for p, every in exported.items() for f in {*every} - SHARED}
    assert all(SHARED - {*every} <= {"evaluate", "keep_steps"} for every in exported.values())


@pytest.mark.parametrize(("package", "function", "settings", "arrays", "job"), PARTIALS)
def test_every_partial_function_keeps_to_the_limits(hospitals, package, function, settings, arrays, job):
    """Called by itself, as whoever may send tasks can."""
    if arrays:
        settings = {**settings, "arrays": codec.encode(arrays)}
    assert crafted(hospitals, function, job, package, **settings) == ("completed", "")
    for name, limit, says in (
        ("MINIMUM_ROWS", "1000", "1000 rows"),
        ("MINIMUM_ORGANIZATIONS", "4", "4"),
        ("MAXIMUM_ROUNDS", "1", "round"),
    ):
        asked = {"round": 2} if name == "MAXIMUM_ROUNDS" else {}
        environment = {f"V6_FEDERATED_{name}": limit}
        status, log = crafted(hospitals, function, job, package, environment, **settings, **asked)
        assert status != "completed" and says in log, log


def test_limits_on_steps_do_not_hang_on_names(hospitals, monkeypatch):
    """Whatever a method's developer calls the settings."""
    payload = codec.encode(W)

    def named(function, **settings):
        module = ModuleType("v6_named")
        module.client_update = partial(function)
        monkeypatch.setitem(sys.modules, "v6_named", module)
        return crafted(hospitals, package="v6_named", arrays=payload, **settings)

    def passes(node, weights, size):
        node.train(weights + 0, PlainSGD(batch_size=size), lambda w, g: None)
        return {}

    def prox(node, weights, *, size: BatchSize, eta: LearningRate, mu: ProximalMu):
        return passes(node, weights, size)

    assert named(prox, size=10, eta=1.0, mu=0.4) == ("completed", "")
    assert named(prox, size=None, eta=1.0, mu=4.0) == ("completed", "")  # a step of all rows forgets none
    for settings, says in (
        ({"mu": 0.6}, "a step of 1 with a penalty of 0.6"),
        ({"mu": 0.0, "round": 0}, "round 0 is none of training"),
    ):
        status, log = named(prox, size=10, eta=1.0, **settings)
        assert status != "completed" and says in log, log

    def momentum(
        node,
        weights,
        *,
        size: BatchSize,
        mu: ProximalMu,
        eta: LearningRate,
        rule: Annotated[Literal["adam", "momentum"], Role.OPTIMIZER],
    ):
        return passes(node, weights, size)

    assert named(momentum, size=10, eta=1.0, mu=4.0, rule="adam") == ("completed", "")
    status, log = named(momentum, size=10, eta=1.0, mu=4.0, rule="momentum")
    assert status != "completed" and "a step of 1 with a penalty of 4" in log, log

    def unsized(node, weights, *, eta: LearningRate):
        return passes(node, weights, 10)

    def other(node, weights, *, size: BatchSize, eta: LearningRate):
        return passes(node, weights, 5)

    def all_rows(node, weights, *, size: BatchSize, eta: LearningRate):
        return passes(node, weights, min(size, node.n))

    for function, settings, says in ((unsized, {}, "of 10 rows"), (other, {"size": 10}, "of 5 rows")):
        status, log = named(function, eta=1.0, **settings)
        assert status != "completed" and f"minibatches {says} are refused" in log, log
    assert named(all_rows, eta=1.0, size=1000) == ("completed", "")


@pytest.mark.parametrize(
    "annotation",
    [
        float,
        float | None,
        object,
        dict[str, float],
        Literal[0, 400],
        Any,
        ProximalMu | None,
        Annotated[int, Field(ge=0)],
        inspect.Parameter.empty,
    ],
)
def test_a_setting_beside_minibatches_says_what_it_is(annotation):
    def client_update(node, weights, *, size, mu):
        return {}

    keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    parameters = [
        inspect.Parameter("node", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        keyword("size", annotation=BatchSize),
        keyword("mu", annotation=annotation),
    ]
    client_update.__signature__ = inspect.Signature(parameters)
    with pytest.raises(TypeError, match="client_update: 'mu' has no Role"):
        partial(client_update)
    parameters[-1] = keyword("mu", annotation=ProximalMu)
    client_update.__signature__ = inspect.Signature(parameters)
    partial(client_update)


@pytest.mark.parametrize(("n", "size", "least"), [(59, 20, 20), (59, 20, 1), (60, 20, 20), (7, 20, 1), (21, 10, 5)])
def test_the_largest_minibatch(n, size, least):
    parts = [
        len(range(n)[b]) if isinstance(b, slice) else len(b)
        for b in local_training.batches(np.random.default_rng(0), n, 1, size, least)
    ]
    assert local_training.largest(n, size, least) == max(parts) and sum(parts) == n


@pytest.mark.parametrize(
    ("package", "function", "settings", "arrays", "job", "name"),
    [
        (package, function, settings, arrays or W, job, name)
        for package, function, settings, arrays, job in PARTIALS
        for name in (arrays or W)
        if (package, name) != ("v6_gbdt", "weights")  # an ensemble, whose form has a test of its own
    ],
)
def test_no_array_of_a_task_may_have_a_number_a_row(hospitals, package, function, settings, arrays, job, name):
    """Numpy would broadcast it, and a sum over rows would be a row."""
    n, size = len(hospitals[3]), len(arrays[name])
    for shape in ((n, size), (size + n, 1), (size, 1), (1, size), (size, n), (1, size, size), ()):
        odd = codec.encode({**arrays, name: np.zeros(shape)})
        status, log = crafted(hospitals, function, job, package, **settings, arrays=odd)
        if (name, len(shape)) == ("components", 2) and shape[1] == size:
            continue  # of PCA there may be any number of them
        assert status == "crashed" and ("expected" in log or "features" in log), (shape, log)


def test_a_regression_is_of_models_that_predict_numbers(hospitals):
    """Else no limit on labels would hold: a hinge loss has a threshold, that of a class between two identifiers."""
    for model in ("svm", "logreg", "fnn"):
        job = {"model": {"name": model, "features": 4, "classes": 1}, "data": REGRESSION["data"]}
        status, log = crafted(hospitals, "client_update", job)
        assert status == "crashed" and f"the model {model} predicts classes" in log


def test_a_crafted_task_cannot_loosen_a_limit(hospitals):
    assert crafted(hospitals) == ("completed", "")
    for request, says in [
        ({"round": 6}, "6 rounds are more than the 5"),
        ({"round": 6, "job": {"rounds": None}}, "6 rounds are more than the 5"),
        ({"round": -1}, "not a whole number from 0"),
        ({"round": True}, "not a whole number from 0"),
        ({"job": {"participants": [3]}}, "at least 3 must"),
        ({"job": {"participants": [3, 3, 3]}}, "does not list who takes part"),
        ({"job": {"participants": [5, 8, 9]}}, "does not list who takes part"),
        ({"job": {"participants": "358"}}, "does not list who takes part"),
        ({"job": {"minimum_rows": 1}}, "a request can only raise it"),
        ({"lr_decay_step": 1e30, "batch_size": 1}, "lr_decay_step=1e+30 is refused"),
        ({"batch_size": 0}, "batch_size=0 is refused"),
        ({"epochs": "many"}, "epochs='many' is refused"),
        ({"job": {"key": "*"}}, "no proper key"),
        ({"job": {"method": "../x"}}, "no proper key or method"),
        ({"rows": "all"}, "unknown setting 'rows'"),
        # rates that would grow before the first round
        ({"round": 0, "lr_decay_step": 1 - 1e-9, "batch_size": 1}, "round 0 is none of training"),
        ({"lr": 1.0, "proximal_mu": 1.0, "batch_size": 1}, "expected a product up to 0.5"),
        ({"job": {"rounds": 1.5}}, "not described as central does"),
        ({"job": {"minimum_rows": "10"}}, "not described as central does"),
        ({"job": {"data": {"classes": [0, 1], "holdout": -1.0}}}, "not described as central does"),
        ({"job": {"data": {"classes": [0, 1], "features": "x0"}}}, "not described as central does"),
        ({"job": {"data": {"classes": [0, 1], "preprocess": {}}}}, "not described as central does"),
        # else no limit on labels would hold: a class of its own for each patient
        ({"job": {"data": {"classes": [0, 1], "regression": True}}}, "classes for labels that are none"),
        ({"job": {"data": {"classes": [0, 1], "supervised": False}}}, "classes for labels that are none"),
        ({"job": {"data": {"classes": [0, 0]}}}, "or one twice"),
        ({"job": {"model": {"name": "logreg", "features": 4, "classes": 9}}}, "other classes than the job names"),
        ({"job": {"data": {"classes": None}}}, "other classes than the job names"),
        ({"job": {"data": {"classes": None, "regression": True}}}, "other classes than the job names"),
        ({"job": {"data": {"classes": None, "supervised": False}}}, "other classes than the job names"),
    ]:
        status, log = crafted(hospitals, **request)
        assert status == "crashed" and says in log, (request, log)


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        ("v6_fedavg", {"epochs": 20}),
        ("v6_loadaboost", {"epochs": 40}),
        ("v6_fsvrg", {}),
        ("v6_fsvrg", {"model": "fnn:hidden=3"}),
        ("v6_gbdt", {"trees": 20, "min_rows_leaf": 10}),
    ],
)
def test_a_task_that_takes_too_long_is_ended(package, settings, hospitals, monkeypatch):
    """Between two minibatches, rows or trees, at the node whose operator says so."""
    clock = itertools.count(0, 5)
    monkeypatch.setattr(node, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    nodes, limit = {k: hospitals[k] for k in (5, 3, 8)}, {3: {"V6_FEDERATED_MAXIMUM_SECONDS": "60"}}
    asked = {"rounds": 1, "min_responses": 0.5, **settings}
    with pytest.raises(CollectResultsError, match=r"longer than 60 s \(V6_FEDERATED_MAXIMUM_SECONDS\)"):
        train(package, nodes, environments=limit, **{**asked, "min_responses": 1.0})
    train(package, nodes, environments={3: {"V6_FEDERATED_MAXIMUM_SECONDS": "6000"}}, **asked)


def test_a_column_that_is_twice_in_a_file(hospitals):
    """pandas calls the second ssn.1: it is as disallowed as the first. Of another column called so nothing is known."""
    named = {k: rows.rename(columns={"x0": "ssn", "x1": "ssn.1"}) for k, rows in hospitals.items()}
    limit = {"V6_FEDERATED_DISALLOWED_COLUMNS": "ssn"}
    refused("ssn (twice in the file) may not be used", named, environment=limit, features=["ssn.1", "x2"])
    alone = {k: rows.drop(columns="ssn") for k, rows in named.items()}
    train("v6_fedavg", alone, environment=limit, rounds=1, features=["ssn.1", "x2"])
    listed = {"V6_FEDERATED_ALLOWED_COLUMNS": "ssn.1,x2,label"}
    train("v6_fedavg", named, environment=listed, rounds=1, features=["ssn.1", "x2"])


def test_an_excel_file(monkeypatch, tmp_path):
    """What its reader would say of a cell is in no log, and the task does not choose the sheet."""
    file = tmp_path / "rows.xlsx"
    with pd.ExcelWriter(file) as book:
        pd.DataFrame({"age": [50.0] * 3, "label": [0, 1, 0]}).to_excel(book, sheet_name="for research", index=False)
        dates = pd.DataFrame({"age": [50.0] * 3, "birth": [19850412] * 3})
        dates.to_excel(book, sheet_name="all", index=False)
        for sheet in book.sheets.values():
            sheet["A2"].value, sheet["A2"].number_format = 19850412, "yyyy-mm-dd"
    for name, value in [("LABELS", "book"), ("BOOK_DATABASE_URI", str(file)), ("BOOK_DATABASE_TYPE", "excel")]:
        monkeypatch.setenv(name.replace("LABELS", "USER_REQUESTED_DATABASE_LABELS"), value)
    with pytest.warns(UserWarning, match="19850412"):  # as pandas alone does
        pd.read_excel(file)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert list(vantage6_api.read_database().columns) == ["age", "label"]
    assert said == []
    monkeypatch.setenv("BOOK_SHEET_NAME", "all")
    with pytest.raises(NodePermissionException, match="does not let a task choose a sheet"):
        vantage6_api.read_database()
    monkeypatch.setenv("V6_FEDERATED_ALLOW_QUERIES", "1")
    assert list(vantage6_api.read_database().columns) == ["age", "birth"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "the file of this node's database 'table' is not there, or not to be read"),
        (b"", "the table cannot be read as csv (EmptyDataError)"),
        (b"a,b\n1,2\n1,2,3,4\n", "the table cannot be read as csv (ParserError)"),
        ("a,b\nMüller,2\n".encode("latin-1"), "the table is not in UTF-8; expected it saved as CSV UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_by_its_fault(content, says, monkeypatch, tmp_path):
    """And by nothing that stands in it: a fault that is not foreseen would be without its text, and asked again."""
    file = tmp_path / "rows.csv"
    if content is not None:
        file.write_bytes(content)
    for name, value in [("LABELS", "table"), ("TABLE_DATABASE_URI", str(file)), ("TABLE_DATABASE_TYPE", "csv")]:
        monkeypatch.setenv(name.replace("LABELS", "USER_REQUESTED_DATABASE_LABELS"), value)
    with pytest.raises(DataError) as told:
        vantage6_api.read_database()
    assert str(told.value) == says


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_fault_of_the_mock_network_is_told(nodes, monkeypatch):
    """It is no server that is away for a moment."""
    monkeypatch.delattr("v6_fedavg.client_update")
    with pytest.raises(AttributeError, match="v6_fedavg/__init__.py exports no client_update; expected it there"):
        train("v6_fedavg", {k: table(seed=k) for k in range(1, nodes + 1)}, rounds=1, retries=0)


def test_a_server_that_is_away_for_a_moment_is_asked_again(monkeypatch):
    """Also for the organizations, with which central begins."""
    monkeypatch.setattr(vantage6_api, "POLL_SECONDS", 0)
    answers = iter([KeyError("data"), ConnectionError(), [{"id": 7}, {"id": 3}]])

    def listed():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = SimpleNamespace(organization=SimpleNamespace(list=listed), request=None)
    assert vantage6_api.organizations(client) == [3, 7]


def test_a_measurement_is_no_label(hospitals):
    """Its values are not named to the server."""
    many = {
        k: v.assign(label=np.arange(len(v)) * 1.5) for k, v in {1: table(330), 2: table(330), 3: table(330)}.items()
    }
    text = refused("the label has more than 100 values", many)
    assert "1.5" not in text


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_standardize_at_any_scale(hospitals, scale):
    scaled = {k: v.assign(**{c: v[c] * scale + 7 * scale for c in v.columns[:-1]}) for k, v in hospitals.items()}
    result = train("v6_fedavg", scaled, rounds=20, lr=0.5, preprocess=["standardize"], precision="float16")
    assert result["final"]["accuracy"] > 0.7


def test_standardize_with_a_large_offset(hospitals):
    """A time stamp keeps its digits: it is centred before it becomes float32."""
    shifted = {
        k: v.assign(x0=v["x0"] + 1e9, constant=5.0)[["x0", "x1", "constant", "label"]] for k, v in hospitals.items()
    }
    plain = {k: v.assign(constant=5.0)[["x0", "x1", "constant", "label"]] for k, v in hospitals.items()}
    one, two = (train("v6_fedavg", d, rounds=5, preprocess=["standardize"])["final"]["loss"] for d in (plain, shifted))
    assert one == pytest.approx(two, rel=0.05)


def test_evaluation_is_of_all_nodes_in_every_round(hospitals):
    result = train("v6_fedavg", hospitals, rounds=4, fraction=0.4)
    assert {row["evaluated"] for row in result["history"]} == {30}
    assert {len(row["participants"]) for row in result["history"]} == {1}
    assert result["traffic"]["evaluation"]["bytes_down"] > 0


def test_rows_cannot_be_changed_by_a_call(hospitals):
    rows, _ = source.Source(table=hospitals[3]).prepared(DataSpec(classes=[0, 1]), 3, Policy())
    with pytest.raises(ValueError, match="read-only"):
        rows.X[0] = 0


def test_unlike_nodes_are_named(hospitals):
    refused("organizations 3 and 9 hold different features", {**hospitals, 9: table(30, d=5)})


def test_columns_in_another_order_are_the_same(hospitals):
    turned = {k: v[["x2", "x0", "x3", "x1", "label"]] if k == 5 else v for k, v in hospitals.items()}
    assert train("v6_fedavg", turned, rounds=2)["weights"] == train("v6_fedavg", hospitals, rounds=2)["weights"]


def test_the_label_beside_named_features_is_one_at_all_nodes(hospitals):
    """Also at a node that only evaluates and has another last column."""
    *here, last = sorted(hospitals)
    turned = hospitals | {last: hospitals[last][["label", "x2", "x0", "x3", "x1"]]}
    settings = {"rounds": 2, "features": ["x0", "x1"], "organizations": here, "evaluators": [last]}
    assert train("v6_fedavg", turned, **settings)["final"] == train("v6_fedavg", hospitals, **settings)["final"]
    assert train("v6_fedavg", turned, **settings)["data"]["label"] == "label"


def test_rare_labels_are_not_named(hospitals):
    """A label value that fewer than 3 rows of a node have does not leave it."""
    hospitals[5].loc[0, "label"] = 2
    refused("labels that are not among the 2 classes of the job", hospitals)
    result = train("v6_fedavg", hospitals, rounds=1, classes=[0, 1, 2])
    assert result["model"]["classes"] == 3


def test_standardize_is_that_of_the_pooled_training_rows(hospitals):
    result = train("v6_fedavg", hospitals, rounds=1, preprocess=["standardize"], holdout=0)
    fitted = codec.decode(result["data"]["preprocess"][0]["fitted"])
    assert fitted["mean_rest"].any()
    pooled = pd.concat(hospitals.values()).iloc[:, :-1]
    np.testing.assert_allclose(fitted["mean"], pooled.mean(), rtol=1e-5)
    np.testing.assert_allclose(fitted["scale"], pooled.std(ddof=0), rtol=1e-5)
