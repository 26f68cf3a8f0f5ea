"""Every method on real nodes under the profile ``careful``, and the audit logs of these nodes.

A job either ends as on mock nodes under ``careful``, or is refused with the same line. The rows of an epoch are
shuffled by each node's own secret, so the weights differ. Nodes answer with masked numbers; methods that need single
answers are refused, and run on a second network, whose operators allow them.
"""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from four_hospitals import complaint, selected, training
from leftovers import once

from v6_workbench.cli.main import main
from v6_workbench.network import docker_engine, images, local
from v6_workbench.registry import names, settings_of, single_answers

NODES = [1, 2, 3]
BATCH = 10  # careful's minimum
PLAIN = ["--node-env", "V6_FEDERATED_AGGREGATION=plain"]
SINGLE = [method for method in names() if single_answers(method)]
AGREEMENT = {"describe", "confirm", "keep_steps"}  # of which a masked job needs the nodes' own answers


def options(method: str) -> list[str]:
    """Settings of an honest job on hospitals of 40 rows."""
    settings = {"batch_size": BATCH} if method != "pca" else {"components": 2}
    declared = settings_of(method).model_fields
    chosen = [text for name, value in settings.items() if name in declared for text in ("--set", f"{name}={value}")]
    return [*training(method), *chosen, "--set", f"organizations={NODES}"]


@pytest.fixture(scope="module")
def network(engine, state, table, named):
    """Starts a network of careful nodes."""
    started = []

    def up(name, *options):
        started.append(named(name))
        command = ["network", "up", "--name", named(name), "--data", str(table), "--partition", "column:hospital"]
        assert main([*command, *options]) == 0
        return named(name)

    try:
        yield up
    finally:
        for name in started:
            local.down(name)


@pytest.fixture(scope="module")
def careful(network):
    return network("careful")


@pytest.fixture(scope="module")
def plain(network):
    """Careful nodes whose operators let central see their own answers."""
    return network("plain", *PLAIN)


@pytest.fixture(scope="module")
def jobs(careful, plain, image_of, request, tmp_path_factory):
    """A job of each method, at once: its process, and the folder of its result. Those that are refused begin with -."""
    folder = tmp_path_factory.mktemp("careful")

    def submit(name):
        method = name.removeprefix("-")
        image_of(method)
        there = plain if name in SINGLE else careful
        command = ["submit", method, "--network", there, *options(method), "--out", str(folder / name)]
        return subprocess.run([sys.executable, "-m", "v6_workbench.cli.main", *command], capture_output=True, text=True)

    with ThreadPoolExecutor(4) as pool:
        wanted = [f"-{method}" for method in selected(request, "test_a_method_of_single_answers_is_refused")]
        wanted += selected(request, "test_a_job_ends_as_on_mock_nodes")
        yield {name: (pool.submit(submit, name), folder / name) for name in wanted}


@pytest.fixture
def on_mock_nodes(table, tmp_path, capsys):
    """The same job on careful mock nodes: its exit status, and standard error."""

    def run(method, *arguments):
        command = ["run", method, "--data", str(table), "--partition", "column:hospital", *options(method), *arguments]
        status = main([*command, "--node-env", "V6_FEDERATED_PROFILE=careful", "--out", str(tmp_path)])
        return status, capsys.readouterr().err

    return run


@pytest.mark.parametrize("method", SINGLE)
def test_a_method_of_single_answers_is_refused(jobs, on_mock_nodes, method):
    future, folder = jobs[f"-{method}"]
    process = future.result()
    status, err = on_mock_nodes(method)
    assert (process.returncode, status) == (1, 2), process.stderr
    line = without_task(complaint(process.stderr))
    assert line == complaint(err)
    assert single_answers(method) in line and "V6_FEDERATED_AGGREGATION=plain" in line
    assert not (folder / "result.json").exists()


@pytest.mark.parametrize("method", names())
def test_a_job_ends_as_on_mock_nodes(jobs, careful, plain, on_mock_nodes, audited, method):
    future, folder = jobs[method]
    process = future.result()
    assert "Traceback" not in process.stderr
    status, err = on_mock_nodes(method, *(PLAIN if method in SINGLE else []))
    assert process.returncode == status, process.stderr
    if status:
        assert complaint(err) == without_task(complaint(process.stderr)) and "V6_FEDERATED_" in err
        return
    result = json.loads((folder / "result.json").read_text())
    traffic = sum(row["bytes_up"] for row in [*result["history"], *result["traffic"].values()])
    there = plain if method in SINGLE else careful
    entries = [entry for k in NODES for entry in audited(there, k) if entry.method == method]
    assert not any(entry.refused for entry in entries)
    left = sum(entry.bytes for entry in entries)
    # answers of coop that are on their way when the job ends have left, and central never took them
    assert left == traffic or (method == "coop" and left > traffic)
    assert result["privacy"]["aggregation"] == ("plain" if method in SINGLE else "masked")
    if method not in SINGLE:
        assert result["privacy"]["blocks"] == [NODES]
        assert {(*entry.left,) for entry in entries if entry.function not in AGREEMENT} == {("T", "y32", "y64")}


def without_task(line: str) -> str:
    return re.sub(r"task \d+: ", "", line, count=1)


def test_the_operator_reads_the_log_with_the_image(jobs, careful, engine, image_of, audited):
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
        labels=once(),
    ).decode()
    print(printed)
    assert "runs at the server: " in printed and "profile careful" in printed and "client_update" in printed
    assert json.loads(printed.splitlines()[-1])["bytes"] == sum(entry.bytes for entry in audited(careful, 1))


def test_the_folder_is_no_database_of_rows(careful, image_of, capsys):
    image_of("fedavg")
    capsys.readouterr()
    command = ["submit", "fedavg", "--network", careful, *options("fedavg"), "--database", "hospital"]
    assert main(command) == 1
    assert "is the hospital's own folder and holds no rows" in complaint(capsys.readouterr().err)


def test_it_uses_the_images_of_this_project():
    assert {f"v6-{method}" for method in names()} == set(images.listed())
