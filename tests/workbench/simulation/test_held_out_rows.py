"""In every profile, all jobs on the same simulated nodes hold out the same rows, as baselines do."""

import json

import numpy as np
import pandas as pd
import pytest

from v6_federated.data.source import Source
from v6_workbench import Experiment, load
from v6_workbench.simulation import search

CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}
SECRET = "V6_FEDERATED_SECRET"


@pytest.fixture
def numbered():
    """Rows whose column ``row`` is their number."""
    x = np.random.default_rng(0).normal(size=300)
    return pd.DataFrame({"x": x, "row": np.arange(300.0), "y": (x > 0).astype(int)})


@pytest.fixture
def used(monkeypatch):
    """A function that runs a job, and returns the numbers of the rows that nodes train on and of those held out."""
    prepared = Source.prepared

    def used(job, *arguments, **settings):
        trained, held = set(), set()

        def spied(self, *arguments, **options):
            rows = prepared(self, *arguments, **options)
            for part, found in zip(rows, (trained, held), strict=True):
                found |= {*part.X[:, 1].astype(int)}
            return rows

        with monkeypatch.context() as patch:
            patch.setattr(Source, "prepared", spied)
            result = job("fedavg", *arguments, rounds=settings.pop("rounds", 1), lr=1e-6, **settings)
        return trained, held, result

    return used


@pytest.fixture(params=["trusting", "careful", "mixed", "secrets", "folders"])
def experiment(request, numbered, tmp_path):
    """Three nodes with different ways of choosing the rows that they hold out."""
    settings = {
        "trusting": {},
        "careful": {"environment": CAREFUL},
        "mixed": {"environments": {2: {"V6_FEDERATED_OWN_SHUFFLE": "1"}}},
        "secrets": {"environment": CAREFUL, "environments": {3: {SECRET: "same secret " * 3}}},
        "folders": {"environment": CAREFUL, "hospital_folder": tmp_path / "hospitals"},
    }[request.param]
    return Experiment(load(numbered), nodes=3, **settings)


def test_baselines_are_evaluated_on_the_rows_that_nodes_hold_out(experiment, used):
    training, test = experiment.train_and_test()
    trained, held, federated = used(experiment.federated)
    assert held == {*test["row"].astype(int)} and len(held) == 60
    assert trained == {int(row) for rows in training.values() for row in rows["row"]} and not trained & held
    for baseline in (experiment.centralized, experiment.alone):
        assert baseline("fedavg", rounds=1)["final"]["evaluated"] == federated["final"]["evaluated"]


def test_all_jobs_hold_out_the_same_rows(experiment, used):
    trained, held, first = used(experiment.federated)
    trained_later, held_later, _ = used(experiment.federated, rounds=2, resume=first)
    assert held_later == held and not trained & held_later and trained_later == trained
    assert used(experiment.federated, seed=9)[1] == held, "for every seed of a job"


def test_the_rows_that_judge_a_search_are_in_none_of_its_tries(experiment, used):
    inner = search.choosing(experiment)
    trained, scored, _ = used(inner.federated)
    assert used(experiment.federated)[1] == {*range(300)} - trained - scored


def test_which_rows_are_held_out_depends_on_secrets_and_the_partitions_seed(numbered, tmp_path):
    hospitals = {name: numbered[100 * k : 100 * (k + 1)] for k, name in enumerate("abc")}

    def held(seed=0, **settings):
        one = Experiment(load(hospitals), partition_seed=seed, **settings)
        return {*one.train_and_test()[1]["row"]}, one.description()["digest"]

    different = [
        held(),
        held(environment=CAREFUL),
        held(1, environment=CAREFUL),
        held(environment={**CAREFUL, SECRET: "same secret " * 3}),
        held(environment=CAREFUL, hospital_folder=tmp_path / "a"),
        held(environment=CAREFUL, hospital_folder=tmp_path / "b"),
    ]
    for i, (rows, digest) in enumerate(different):
        assert all(rows != other and digest != last for other, last in different[:i])
    assert held(1) == held(), "trusting nodes hold out the same rows, whatever the seed"
    assert held(environment=CAREFUL, hospital_folder=tmp_path / "a") == different[4], "the folder keeps the secret"


def test_columns_that_count_as_empty_are_those_of_the_held_out_rows(numbered, used):
    """Of the rows that nodes hold out, one has a value in the column z, and so do all rows that are trained on."""
    careful = Experiment(load(numbered), nodes=3, environment=CAREFUL)
    trained, held, _ = used(careful.federated)
    [node] = [name for name, rows in careful.named().items() if min(held) in [*rows["row"]]]
    rows = numbered.assign(z=np.where(numbered["row"].isin([*trained, min(held)]), 1.0, np.nan))
    assert Experiment(load(rows), nodes=3, environment=CAREFUL, label="y").not_evaluated(["x", "z"]) == {node: ["z"]}


def test_a_job_is_not_resumed_where_other_rows_are_held_out(numbered, tmp_path, capsys):
    from v6_workbench.cli.main import main

    numbered.to_csv(tmp_path / "rows.csv", index=False)
    run = ["run", "fedavg", "--data", str(tmp_path / "rows.csv"), "--nodes", "3", "--rounds"]
    careful = ["--node-env", "V6_FEDERATED_PROFILE=careful"]
    assert main([*run, "1", *careful, "--out", str(tmp_path / "one")]) == 0
    assert main([*run, "2", *careful, "--resume", str(tmp_path / "one"), "--out", str(tmp_path / "two")]) == 0
    result = json.loads((tmp_path / "two" / "result.json").read_text())
    assert [row["round"] for row in result["history"]] == [1, 2]
    capsys.readouterr()
    for other in ([], [*careful, "--hospital-folder", str(tmp_path / "folder")]):
        assert main([*run, "2", *other, "--resume", str(tmp_path / "one")]) == 2
        assert "the earlier job had other nodes, rows or held-out rows; use the same" in capsys.readouterr().err
