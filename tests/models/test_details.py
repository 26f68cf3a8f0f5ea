"""Calibration, Brier score, curves and subgroups of the last evaluation, against scikit-learn and by hand."""

import json

import numpy as np
import pytest
from helpers import pooled, refused, table, train
from sklearn.calibration import calibration_curve
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from v6_federated import models
from v6_federated.messages import codec
from v6_federated.models import details
from v6_federated.rules.policy import Policy
from v6_federated.rules.rounding import Rounding

CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}


def hospitals(n=80):
    """Hospitals whose held-out rows are known: with ``evaluators``, all rows of organization 4 to 6."""
    return {k: table(n, seed=k) for k in range(1, 7)}


def scored(result, rows):
    """Labels and probabilities of rows under a result's model."""
    X, y = rows.iloc[:, :-1].to_numpy(dtype=np.float32), rows.iloc[:, -1].to_numpy()
    model = models.build(result["model"])
    return y, 1 / (1 + np.exp(-model.scores(codec.decode(result["weights"])["weights"], X)[:, 0].astype(float)))


@pytest.fixture(scope="module")
def trained():
    nodes = hospitals()
    result = train("v6_fedavg", nodes, rounds=3, lr=0.5, evaluators=[4, 5, 6])
    return result, pooled({k: nodes[k] for k in (4, 5, 6)})


def test_curves_are_scikit_learns_on_the_same_rows(trained):
    result, rows = trained
    y, p = scored(result, rows)
    curves = result["curves"]
    assert curves["brier"] == pytest.approx(brier_score_loss(y, p), abs=1e-6)
    observed, predicted = calibration_curve(y, p, n_bins=10)
    bins = [b for b in curves["calibration"] if b["n"]]
    assert np.allclose([b["observed"] for b in bins], observed, atol=1e-12)
    assert np.allclose([b["predicted"] for b in bins], predicted, atol=1e-6)
    assert [b["n"] for b in curves["calibration"]] == np.histogram(p, np.linspace(0, 1, 11))[0].tolist()
    fpr, tpr = np.transpose(curves["roc"])
    assert np.trapezoid(tpr, fpr) == pytest.approx(roc_auc_score(y, p), abs=0.01)
    recall, precision = np.transpose(curves["precision_recall"])
    assert np.sum(np.diff(recall) * precision[1:]) == pytest.approx(average_precision_score(y, p), abs=0.01)


def test_hospitals_own_results_are_those_of_their_rows(trained):
    result, _ = trained
    nodes = hospitals()
    assert [row["organization"] for row in result["by_hospital"]] == [4, 5, 6]
    for row in result["by_hospital"]:
        y, p = scored(result, nodes[row["organization"]])
        assert row["accuracy"] == np.mean((p > 0.5) == y) and row["evaluated"] == 80
        assert row["auc"] == pytest.approx(roc_auc_score(y, p), abs=0.01)
        assert row["brier"] == pytest.approx(brier_score_loss(y, p), abs=1e-6)
    assert "own_results" not in result["privacy"]


def test_only_operators_who_allow_it_show_their_own_results():
    nodes, hidden = {k: hospitals()[k] for k in (1, 2, 3)}, {"V6_FEDERATED_OWN_RESULTS": "0"}
    result = train("v6_fedavg", nodes, rounds=2, environments={2: hidden})
    assert [row["organization"] for row in result["by_hospital"]] == [1, 3]
    assert "the operators of organizations 2 do not let" in result["privacy"]["own_results"]
    assert Policy.of("trusting").own_results
    assert not Policy.of("careful").own_results and not Policy.of("private").own_results


def test_sums_under_masks_show_the_same_curves_and_no_hospital():
    nodes = {k: hospitals()[k].assign(sex=["f", "m"] * 40) for k in (1, 2, 3)}
    nodes = {k: rows[["sex", *rows.columns[:-1]]] for k, rows in nodes.items()}
    settings = {"rounds": 2, "holdout": 0.4, "exclude": ["sex"], "subgroup": "sex"}
    plain, masked = (train("v6_fedavg", nodes, aggregation=a, **settings) for a in ("plain", "masked"))
    assert masked["subgroups"] == plain["subgroups"] and len(plain["subgroups"]["rows"]) == 2
    counts = [[b["n"] for b in r["curves"]["calibration"]] for r in (plain, masked)]
    assert counts[0] == counts[1] and sum(counts[0]) == plain["final"]["evaluated"]
    assert masked["curves"]["brier"] == pytest.approx(plain["curves"]["brier"], abs=1e-6)
    assert "by_hospital" not in masked and "sums only" in masked["privacy"]["own_results"]


def test_careful_nodes_round_all_of_it():
    result = train("v6_fedavg", {k: hospitals()[k] for k in (1, 2, 3)}, rounds=2, holdout=0.5, environment=CAREFUL)
    bins = [b for b in result["curves"]["calibration"] if b["n"]]
    assert all(b["predicted"] == pytest.approx((b["lower"] + b["upper"]) / 2) for b in bins), "the middles of bins"
    assert all(b["n"] % 5 == 0 for b in bins) and "by_hospital" not in result


@pytest.mark.parametrize("model", ["svm", "logreg"])
def test_no_curves_without_probabilities_of_two_classes(model):
    nodes = {k: hospitals()[k] for k in (1, 2, 3)}
    if model == "logreg":
        nodes = {k: rows.assign(label=np.arange(len(rows)) % 3) for k, rows in nodes.items()}
    result = train("v6_fedavg", nodes, rounds=1, model=model)
    assert "curves" not in result and len(result["by_hospital"]) == 3


def test_noise_covers_no_details():
    nodes = {k: hospitals()[k] for k in (1, 2, 3)}
    noise = {"clip": 1.0, "noise": 5.0, "aggregation": "masked"}
    result = train("v6_fedavg", nodes, rounds=1, **noise)
    assert not {"curves", "by_hospital", "subgroups"} & {*result}
    assert "no noise would be left" in result["privacy"]["own_results"]
    refused("subgroup=x0 cannot be used with clip", nodes, subgroup="x0", **noise)


def confusions(said, y, policy="trusting", rounding=None, levels=None):
    """``by_level`` of a model that says class 1 for all rows."""
    model = models.build({"name": "logreg", "features": 1, "classes": 2})
    X, w = np.zeros((len(y), 1), np.float32), np.array([0, 1], np.float32)
    levels = levels or sorted({*said})
    found = details.by_level(model, w, X, np.array(y), np.array(said, object), levels, 2, Policy.of(policy), rounding)
    return dict(zip(levels, found.tolist(), strict=True))


def test_small_subgroups_are_not_counted():
    y = [0, 1] * 15
    assert confusions(["a"] * 20 + ["b"] * 10, y) == {"a": [[0, 10], [0, 10]], "b": [[0, 5], [0, 5]]}
    assert confusions(["a"] * 21 + ["b"] * 9, y) == {"a": [[0, 0]] * 2, "b": [[0, 0]] * 2}, "all minus a would be b"
    three = confusions(["a"] * 12 + ["b"] * 14 + ["c"] * 4, y)
    assert three == {"a": [[0, 0]] * 2, "b": [[0, 7], [0, 7]], "c": [[0, 0]] * 2}, "the next smallest goes too"
    one_by_one = [confusions(["a"] * 12 + ["b"] * 14 + ["c"] * 4, y, levels=[v])[v] for v in "abc"]
    assert one_by_one == [*three.values()], "a request for each level would tell c by subtraction"
    said = ["a"] * 15 + ["b"] * 15
    few = confusions(said, [0] * 14 + [1] + [0, 1] * 7 + [0])
    assert few == {"a": [[0, 0]] * 2, "b": [[0, 0]] * 2}, "one row of class 1 in a, and all minus b would tell it"
    most = confusions([*said, *["c"] * 15], [0] * 14 + [1] + [0, 1] * 7 + [0] + [0, 1] * 7 + [0])
    assert most == {"a": [[0, 0]] * 2, "b": [[0, 0]] * 2, "c": [[0, 8], [0, 7]]}, "b is left out with a"


def test_rounded_subgroups_have_no_small_cells():
    found = confusions(["a"] * 33 + ["b"] * 27, [0, 1, 1] * 20, "careful", Rounding(5, 2))
    assert all(cell == 0 or cell >= 5 for level in found.values() for row in level for cell in row)


def test_a_subgroup_is_named_as_it_is():
    nodes = {k: hospitals()[k] for k in (1, 2, 3)}
    assert "no column ward in the data" in refused("subgroup", nodes, subgroup="ward")
    refused("MAXIMUM_CLASSES", {k: table(150, seed=k) for k in (1, 2, 3)}, subgroup="x0")
    refused(
        "objective=regression cannot be used with subgroup", nodes, "v6_gbdt", subgroup="x0", objective="regression"
    )
    disallowed = {"V6_FEDERATED_DISALLOWED_COLUMNS": "x0"}
    refused("may not be used", nodes, exclude=["x0"], subgroup="x0", environment=disallowed)


def test_the_hospital_finds_its_own_results_in_its_folder(tmp_path):
    """Exact ones, also where nothing of them leaves, as a file and as a page without names that are markup."""
    from v6_workbench.simulation.mock import MockNetwork

    nodes = {k: hospitals()[k].assign(label=np.where(hospitals()[k]["label"], "<b>ill", "well")) for k in (1, 2, 3)}
    with MockNetwork("v6_fedavg", nodes, environment=CAREFUL, hospital_folder=tmp_path) as network:
        network.run(rounds=2, holdout=0.4)
    files = sorted(tmp_path.glob("node-*/results/*.json"))
    assert len(files) == 3
    for file in files:
        own = json.loads(file.read_text())
        assert sum(map(sum, own["confusion"])) == own["evaluated"] == 30 and 0 < own["brier"] < 1
        text = file.with_suffix(".html").read_text()
        assert "&lt;b&gt;ill" in text and "<b>ill" not in text and "src=" not in text
        assert file.stat().st_mode & 0o007 == 0
