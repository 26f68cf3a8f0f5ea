"""Models of hospitals' own: fine-tuning and Ditto, by hand; only their evaluation leaves."""

import numpy as np
import pytest
from by_hand import average, step
from helpers import OPEN, train

from v6_federated import UserInputError, codec
from v6_federated.data.source import Source, split
from v6_federated.models import LinearModel
from v6_federated.node import node
from v6_workbench.reporting import export, tables
from v6_workbench.reporting.prediction import predict
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

JOB = {"lr": 0.3, "rounds": 3, "seed": 5}


def trained(rows, k):
    """The node's training rows."""
    return rows.iloc[split(len(rows), 0.2, k)[0]]


def own_models(hospitals, folder, **settings):
    """A job's result, and each node's own model as its hospital finds it."""
    options = {"environment": OPEN, "hospital_folder": folder, "on_round": lambda row: None}
    with MockNetwork("v6_fedavg", hospitals, **options) as network:
        result = network.run(**{**JOB, **settings})
    found = {}
    for k in hospitals:
        (file,) = (folder / f"node-{k}" / "own-models").glob("*.npz")
        found[k] = export.load(file)
    return result, found


def measured(hospitals, models):
    """Accuracy of each node's own model on its held-out rows, by hand."""
    right = rows_in_all = 0
    model = LinearModel("logistic", 4, 2)
    for k, rows in hospitals.items():
        held = rows.iloc[split(len(rows), 0.2, k)[1]]
        X, y = held.iloc[:, :-1].to_numpy(np.float32), held["label"].to_numpy()
        right += int((model.predict(models[k], X) == y).sum())
        rows_in_all += len(held)
    return right / rows_in_all, rows_in_all


def test_fine_tuning_by_hand(hospitals, tmp_path):
    result, found = own_models(hospitals, tmp_path, personalize="finetune", personal_epochs=4)
    w = codec.decode(result["weights"])["weights"].astype(float)
    own = {}
    for k, rows in hospitals.items():
        own[k] = w
        for _ in range(4):
            own[k] = step(own[k], trained(rows, k), 0.3)
        np.testing.assert_allclose(codec.decode(found[k]["weights"])["weights"], own[k], atol=1e-5)
    accuracy, n = measured(hospitals, {k: v.astype(np.float32) for k, v in own.items()})
    assert result["personal"]["accuracy"] == pytest.approx(accuracy) and result["personal"]["evaluated"] == n
    assert result["weights"] == train("v6_fedavg", hospitals, **JOB)["weights"]  # the global model is what it was


def test_ditto_by_hand(hospitals, tmp_path):
    """Li et al. 2021, Algorithm 1: v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w_t)), beside FedAvg's w."""
    result, found = own_models(hospitals, tmp_path, personalize="ditto", personal_mu=0.5, epochs=2)
    rows_of = {k: trained(rows, k) for k, rows in hospitals.items()}
    w, v = np.zeros(5), {k: np.zeros(5) for k in hospitals}
    for _ in range(3):
        for k, rows in rows_of.items():
            for _ in range(2):
                v[k] = step(v[k], rows, 0.3) - 0.3 * 0.5 * (v[k] - w)
        w = average(rows_of, {k: step(step(w, rows, 0.3), rows, 0.3) for k, rows in rows_of.items()})
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], w, atol=1e-5)
    for k in hospitals:
        np.testing.assert_allclose(codec.decode(found[k]["weights"])["weights"], v[k], atol=1e-5)
    accuracy, n = measured(hospitals, {k: own.astype(np.float32) for k, own in v.items()})
    assert result["personal"]["accuracy"] == pytest.approx(accuracy) and result["personal"]["evaluated"] == n


@pytest.mark.parametrize("personalize", ["finetune", "ditto"])
def test_nothing_of_an_own_model_leaves(hospitals, personalize):
    """Only the global model and counts are in the answers."""
    names = set()

    def look(answer):
        names.update(answer, *(answer[part] for part in ("arrays",) if part in answer))
        names.update(answer.get("arrays", {}).get("shapes", {}))
        return answer

    outcomes = lambda organization, input_: CallOutcome(alter=look)  # noqa: E731
    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, on_round=lambda row: None, outcomes=outcomes) as network:
        network.run(**JOB, personalize=personalize)
    known = {"organization_id", "round", "n", "arrays", "evaluation", "train_loss", "weights", "own_results", "details"}
    described = {"label", "features", "classes", "kinds", "absent", "mode"}
    assert names <= known | described | {"data", "dtype", "shapes"}


@pytest.mark.parametrize("personalize", ["finetune", "ditto"])
def test_masks_give_the_same_sums(hospitals, personalize):
    plain = train("v6_fedavg", hospitals, personalize=personalize, **JOB)["personal"]
    masked = train("v6_fedavg", hospitals, personalize=personalize, aggregation="masked", **JOB)["personal"]
    assert "by_hospital" not in masked and masked["accuracy"] == plain["accuracy"]
    assert masked["loss"] == pytest.approx(plain["loss"], abs=1e-5)
    assert sum(row["evaluated"] for row in plain["by_hospital"]) == plain["evaluated"]


def test_a_hospital_hides_its_own_results(hospitals):
    hidden = train("v6_fedavg", hospitals, personalize="finetune", environment={"V6_FEDERATED_OWN_RESULTS": "0"}, **JOB)
    assert "by_hospital" not in hidden["personal"]


def test_nodes_that_were_not_asked_in_a_round_go_on_from_their_last(hospitals, tmp_path):
    result, found = own_models(hospitals, tmp_path, personalize="ditto", fraction=0.7)
    rows_of = {k: trained(rows, k) for k, rows in hospitals.items()}
    w, v = np.zeros(5), {}
    for row in result["history"]:
        for k in row["participants"]:
            start = v.get(k, w)
            v[k] = step(start, rows_of[k], 0.3) - 0.3 * 0.1 * (start - w)
        asked = {k: rows_of[k] for k in row["participants"]}
        w = average(asked, {k: step(w, rows, 0.3) for k, rows in asked.items()})
    for k, own in v.items():
        np.testing.assert_allclose(codec.decode(found[k]["weights"])["weights"], own, atol=1e-5)


def test_the_hospital_predicts_with_its_own_model(hospitals, tmp_path):
    _, found = own_models(hospitals, tmp_path, personalize="finetune", preprocess=["standardize"])
    table, _ = predict(found[3], Source(table=hospitals[3].drop(columns="label")))
    assert len(table) == len(hospitals[3])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"personalize": "finetune", "holdout": 0}, "personalize=finetune needs holdout: each node evaluates"),
        (
            {"personalize": "ditto", "clip": 1.0, "epsilon": 1.0, "aggregation": "masked"},
            "personalize=ditto cannot be used with clip",
        ),
        ({"personal_mu": 0.2}, "personal_mu=0.2 needs personalize=ditto"),
        ({"personal_epochs": 2, "personalize": "ditto"}, "personal_epochs=2 needs personalize=finetune"),
        ({"personalize": "ditto", "schedule": "cyclic"}, "set personalize=finetune"),
        ({"personalize": "fedper"}, "'none', 'finetune' or 'ditto'"),
    ],
)
def test_settings_that_do_not_fit(hospitals, asked, says):
    with pytest.raises(UserInputError, match=says):
        train("v6_fedavg", hospitals, **{**JOB, **asked})


def test_tables_show_own_models_beside_the_global_one(hospitals):
    result = train("v6_fedavg", hospitals, personalize="finetune", **JOB)
    table = tables.personal_table(result)
    assert [*table.columns[0].cells] == ["global", "own (finetune)", "own, 3", "own, 5", "own, 8"]
    assert f"{result['personal']['accuracy']:.3f}" in list(table.columns[2].cells)[1]
    assert tables.personal_table(train("v6_fedavg", hospitals, **JOB)) is None


def test_tasks_do_not_fill_the_hospitals_disk(hospitals, tmp_path, monkeypatch):
    monkeypatch.setattr(node, "MOST_OWN_MODELS", 2)
    options = {"environment": OPEN, "hospital_folder": tmp_path, "on_round": lambda row: None}
    for seed in range(4):
        with MockNetwork("v6_fedavg", hospitals, **options) as network:
            network.run(**{**JOB, "seed": seed}, personalize="finetune")
    assert len([*(tmp_path / "node-3" / "own-models").glob("*.npz")]) == 2
