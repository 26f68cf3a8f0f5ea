"""Every method on real nodes under the profile ``careful``, and the audit logs of these nodes.

A job either ends as on mock nodes under ``careful``, or is refused with the same line. The rows of an epoch are
shuffled by each node's own secret, so the weights differ.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from four_hospitals import TRAINING, complaint, selected

from v6_federated.privacy import audit
from v6_workbench.cli.main import main
from v6_workbench.network import docker_engine, images, local
from v6_workbench.registry import names, settings_of

NODES = [1, 2, 3]
BATCH = 10  # careful's minimum


def options(method: str) -> list[str]:
    """Settings of an honest job on hospitals of 40 rows."""
    settings = {"batch_size": BATCH, "min_rows_leaf": BATCH} if method != "pca" else {"components": 2}
    declared = settings_of(method).model_fields
    chosen = [text for name, value in settings.items() if name in declared for text in ("--set", f"{name}={value}")]
    return [*TRAINING, *chosen, "--set", f"organizations={NODES}"]


@pytest.fixture(scope="module")
def careful(engine, state, table, named, image_of):
    name = named("careful")
    try:
        assert main(["network", "up", "--name", name, "--data", str(table), "--split", "column:hospital"]) == 0
        yield name
    finally:
        local.down(name)


@pytest.fixture(scope="module")
def jobs(careful, image_of, request, tmp_path_factory):
    """A job of each method, at once: its process, and the folder of its result."""
    folder = tmp_path_factory.mktemp("careful")

    def submit(method):
        image_of(method)
        command = ["submit", method, "--network", careful, *options(method), "--out", str(folder / method)]
        return subprocess.run([sys.executable, "-m", "v6_workbench.cli.main", *command], capture_output=True, text=True)

    with ThreadPoolExecutor(4) as pool:
        methods = selected(request, "test_a_job_ends_as_on_mock_nodes")
        yield {method: (pool.submit(submit, method), folder / method) for method in methods}


@pytest.mark.parametrize("method", names())
def test_a_job_ends_as_on_mock_nodes(jobs, careful, table, tmp_path, capsys, method):
    future, folder = jobs[method]
    process = future.result()
    assert "Traceback" not in process.stderr
    run = ["run", method, "--data", str(table), "--partition", "column:hospital", *options(method)]
    status = main([*run, "--node-env", "V6_FEDERATED_PROFILE=careful", "--out", str(tmp_path)])
    err = capsys.readouterr().err
    assert process.returncode == status, process.stderr
    if status:
        assert complaint(err) == complaint(process.stderr) and "V6_FEDERATED_" in err
        return
    result = json.loads((folder / "result.json").read_text())
    traffic = sum(row["bytes_up"] for row in [*result["history"], *result["traffic"].values()])
    entries = [entry for k in NODES for entry in log(careful, k) if entry.method == method]
    assert not any(entry.refused for entry in entries)
    left = sum(entry.bytes for entry in entries)
    # answers of coop that are on their way when the job ends have left, and central never took them
    assert left == traffic or (method == "coop" and left > traffic)


def log(network: str, node: int) -> list[audit.Entry]:
    """The audit log of a node: a file that the node's containers wrote, on this machine."""
    folder = local.folder(network) / docker_engine.node_name(network, node) / docker_engine.HOSPITAL
    return [entry for entry in audit.read(folder / audit.NAME) if entry]


def test_the_operator_reads_the_log_with_the_image(jobs, careful, engine, image_of):
    """From the page for operators: docker run --network none -v FOLDER:/mnt/hospital IMAGE ..."""
    for future, _ in jobs.values():
        future.result()
    folder = local.folder(careful) / docker_engine.node_name(careful, 1) / docker_engine.HOSPITAL
    printed = engine.containers.run(
        image_of("fedavg"),
        ["python", "-m", "v6_federated", "audit", "/mnt/hospital"],
        network_mode="none",
        volumes={str(folder): {"bind": "/mnt/hospital", "mode": "ro"}},
        remove=True,
    ).decode()
    print(printed)
    assert "runs at the server: " in printed and "profile careful" in printed and "client_update" in printed
    assert json.loads(printed.splitlines()[-1])["bytes"] == sum(entry.bytes for entry in log(careful, 1))


def test_the_folder_is_no_database_of_rows(careful, image_of, capsys):
    image_of("fedavg")
    capsys.readouterr()
    command = ["submit", "fedavg", "--network", careful, *options("fedavg"), "--database", "hospital"]
    assert main(command) == 1
    assert "is the hospital's own folder and holds no rows" in complaint(capsys.readouterr().err)


def test_it_uses_the_images_of_this_project():
    assert {f"v6-{method}" for method in names()} == set(images.listed())
