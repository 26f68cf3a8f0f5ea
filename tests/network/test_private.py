"""A privacy budget on a real network of four hospitals with a study: jobs until it is spent, and what is said then."""

import json

import pytest
from four_hospitals import FEATURES, complaint

from v6_federated.rules.schema import Column, Schema
from v6_workbench.cli.main import main
from v6_workbench.network import docker_engine, local

BUDGET = [
    "--node-env",
    "V6_FEDERATED_EPSILON=2",
    "--node-env",
    "V6_FEDERATED_EPSILON_PER_JOB=2",
    "--node-env",
    "V6_FEDERATED_DELTA=1e-5",
]
JOB = ["--rounds", "2", "--label", "outcome", "--features", FEATURES, "--preprocess", "scale", "--set", "clip=1"]


@pytest.fixture(scope="module")
def private(engine, state, table, named, image_of, tmp_path_factory):
    columns = tuple(Column(name, "number", -4.0, 4.0) for name in FEATURES.split(","))
    file = tmp_path_factory.mktemp("schema") / "schema.json"
    file.write_text(Schema(columns, "outcome", ("ill", "well")).text())
    name = named("private")
    image_of("fedavg")
    try:
        up = ["network", "up", "--name", name, "--data", str(table), "--partition", "column:hospital"]
        assert main([*up, "--profile", "private", *BUDGET, "--study", "--schema", str(file)]) == 0
        yield name
    finally:
        local.down(name)


@pytest.fixture(scope="module")
def trained(private, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    assert main(["submit", "fedavg", "--network", private, *JOB, "--set", "epsilon=1.5", "--out", str(out)]) == 0
    return json.loads((out / "result.json").read_text())


def test_a_job_trains_with_noise_that_the_hospitals_share(trained):
    said = trained["privacy"]
    assert said["aggregation"] == "pinned" and said["noise_shared_in_a_block"] is True
    assert 1.49 < said["epsilon"] <= 1.5 and said["plan"]["steps"] == 2
    assert trained["final"]["loss"] is None and 0 <= trained["final"]["accuracy"] <= 1


@pytest.mark.parametrize(
    ("method", "settings", "epsilon"),
    [
        ("pca", ["components=2"], 0.9),  # with less, noise can be larger than the variance of every column
        ("gbdt", ["trees=5"], 0.4),
        ("colearning", ["maximum_epochs=2", "sampling=0.5"], 0.4),
    ],
)
def test_other_methods_use_the_same_budget(method, settings, epsilon, trained, private, image_of, tmp_path):
    image_of(method)
    own = [word for setting in [*settings, f"epsilon={epsilon}"] for word in ("--set", setting)]
    assert main(["submit", method, "--network", private, *JOB, *own, "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["privacy"]["aggregation"] == "pinned" and 0.97 < result["privacy"]["epsilon"] / epsilon <= 1
    assert result["privacy"]["noise_shared_in_a_block"] is (method != "colearning")


def test_a_job_that_does_not_fit_is_refused_with_what_would_fit(trained, private, capsys):
    assert main(["submit", "fedavg", "--network", private, *JOB, "--set", "epsilon=1.9"]) == 1
    said = complaint(capsys.readouterr().err)
    print(said)
    assert "costs epsilon 1.9 at delta 1e-05" in said and "of 2 is spent (V6_FEDERATED_EPSILON)" in said
    assert "What would fit: " in said and said.endswith("Nothing was computed.")


def test_a_job_without_noise_is_refused(trained, private, capsys):
    plain = ["--rounds", "2", "--label", "outcome", "--features", FEATURES]
    assert main(["submit", "fedavg", "--network", private, *plain]) == 1
    assert "set clip and epsilon, for example clip=1 epsilon=1" in complaint(capsys.readouterr().err)


def test_the_ledger_lies_in_the_hospitals_folder(trained, private, engine):
    for k in (1, 2, 3, 4):
        container = engine.containers.get(docker_engine.container_name(docker_engine.node_name(private, k)))
        status, _ = container.exec_run(["test", "-s", f"/mnt/{docker_engine.HOSPITAL}/ledger.sqlite"])
        assert status == 0
