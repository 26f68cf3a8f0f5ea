"""Every method as its researcher uses it, on one real network of four nodes: results, refusals, failures.

The fourth hospital is strict; methods train at the other three. The methods are those of tests/methods.
"""

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from v6_federated.data import source
from v6_federated.messages.settings import Role
from v6_workbench.cli.main import main
from v6_workbench.conformance import MethodCase, cases_in
from v6_workbench.network import docker_engine, images, local, server
from v6_workbench.registry import names
from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

METHODS = Path(__file__).parents[1] / "methods"
CASES = [case for name in names() for case in cases_in(METHODS / f"test_{name}.py")]
ROWS = 40
GENES = [f"g{i}" for i in range(30)]
FEATURES = "a,b,c"
TRAINING = ["--rounds", "2", "--seed", "3", "--label", "outcome", "--features", FEATURES]
THREE = ["--set", "organizations=[1,2,3]"]
STRICT = ["--set", "organizations=[1,2,4]"]
LIMITS = {
    "MINIMUM_ROWS": "1000",
    "DISALLOWED_COLUMNS": "FEDAVGXX",  # decoded twice, as vantage6's get_env_var does, this name would be garbled
    "MAXIMUM_ROUNDS": "8",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Four hospitals of 40 rows; every value of a feature has many digits, so that it is found wherever it is told."""
    rng = np.random.default_rng(5)
    # rounded to what pandas' quick parser, which vantage6 uses, reads exactly: else the last bit of a double differs
    rows = pd.DataFrame(rng.normal(size=(4 * ROWS, 4)).round(9), columns=["a", "b", "c", "FEDAVGXX"])
    genes = rng.normal(size=(len(rows), len(GENES))) + rows[["a"]].to_numpy() * np.linspace(0, 2, len(GENES))
    rows[GENES] = genes.round(9)
    rows["name"] = [f"patient-{number:08d}" for number in rng.integers(1e8, size=len(rows))]
    rows["rare"] = ["usual", "other"] * (len(rows) // 2)
    rows.loc[0, "rare"] = "unheard-of"
    rows["hospital"] = np.repeat(["north", "east", "south", "west"], ROWS)
    rows["outcome"] = np.where(rows["a"] + rng.normal(size=len(rows)) > 0, "ill", "well")
    path = tmp_path_factory.mktemp("hospitals") / "patients.csv"
    rows.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def hospitals(engine, state, table, named):
    name = named("hospitals")
    limits = [text for key, value in LIMITS.items() for text in ("--node-env", f"4:V6_FEDERATED_{key}={value}")]
    try:
        up = ["network", "up", "--name", name, "--data", str(table), "--split", "column:hospital", *limits]
        assert main(up) == 0
        yield name
    finally:
        local.down(name)


@pytest.fixture
def submit(hospitals, image_of, capsys):
    """``v6-federated submit``: its exit status, the last line of standard output, and standard error."""

    def call(method, *arguments):
        if method in names():
            image_of(method)
        capsys.readouterr()
        status = main(["submit", method, "--network", hospitals, *TRAINING, *map(str, arguments)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, (out.strip().splitlines() or [""])[-1], err

    return call


def selected(request, test: str) -> list[str]:
    """The ids of the cases of a test that are to run."""
    return [item.callspec.id for item in request.session.items if item.originalname == test]


@pytest.fixture(scope="module")
def at_once(hospitals, image_of):
    """``v6-federated submit`` of several jobs at a time: futures of what has come of them."""

    def submit_in_a_process(method, *arguments):
        command = ["submit", method, "--network", hospitals, *TRAINING, *map(str, arguments)]
        process = subprocess.run(
            [sys.executable, "-m", "v6_workbench.cli.main", *command], capture_output=True, text=True
        )
        assert "Traceback" not in process.stderr
        return process

    with ThreadPoolExecutor(4) as pool:

        def call(method, *arguments):
            image_of(method)
            return pool.submit(submit_in_a_process, method, *arguments)

        yield call


def complaint(err: str) -> str:
    """The one line that says what is wrong."""
    [line] = [line for line in err.splitlines() if line.startswith("v6-federated: ")]
    return line


def three(arguments: list[str]) -> list[str]:
    """The three hospitals that are not strict, unless the arguments name others."""
    return [] if any(text.startswith("organizations=") for text in arguments) else THREE


def asked(case: MethodCase) -> list[str]:
    """A case as options of the command line, with small minibatches and rows that standardize has prepared."""
    values = {**dict.fromkeys(case.having(Role.BATCH), 7), **case.settings}
    texts = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()]
    options = [option for text in texts for option in ("--set", text)]
    steps = [] if case.short_name == "gbdt" else ["--preprocess", "standardize"]  # of which its text has no place
    return [*options, *steps, *(["--label", "b", "--features", "a,c"] if case.regression else []), "--rounds", "3"]


SYNCHRONOUS = {str(case).replace(" ", "-"): case for case in CASES if not case.asynchronous}


@pytest.fixture(scope="module")
def jobs(at_once, request, tmp_path_factory):
    """A job of each method, and the folder of its result."""
    names, folder = selected(request, "test_the_weights_are_those_of_run"), tmp_path_factory.mktemp("jobs")
    cases = {name: SYNCHRONOUS[name] for name in names}
    return {
        name: (at_once(case.short_name, *asked(case), *THREE, "--out", folder / name), folder / name)
        for name, case in cases.items()
    }


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_the_weights_are_those_of_run(jobs, table, tmp_path, name):
    method, settings = SYNCHRONOUS[name].short_name, asked(SYNCHRONOUS[name])
    future, real = jobs[name]
    mock, process = tmp_path / "mock", future.result()
    assert process.returncode == 0, process.stderr
    if method != "pca":  # which ends once it has all components
        assert json.loads(process.stdout.splitlines()[-1])["rounds"] == 3
    run = ["run", method, "--data", str(table), "--partition", "column:hospital", *TRAINING, *settings, *THREE]
    assert main([*run, "--out", str(mock)]) == 0
    ours, theirs = (json.loads((folder / "result.json").read_text()) for folder in (real, mock))
    assert ours["weights"] == theirs["weights"]
    for result in (ours, theirs):
        for row in result["history"]:
            del row["seconds"]
    assert ours["history"] == theirs["history"]
    assert ours["per_node"] == theirs["per_node"]
    if method == "pca":  # nothing is evaluated
        assert not (real / "curves.png").exists()
        assert (real / "components.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert (real / "curves.png").read_bytes().startswith(b"\x89PNG")
    if method == "gbdt":
        assert main(["export", str(real), "--to", str(tmp_path / "model.txt")]) == 0
        assert (tmp_path / "model.txt").read_text().startswith("tree\nversion=v4\n")
        return
    assert main(["export", str(real), "--to", str(tmp_path / "model.npz")]) == 0
    with np.load(tmp_path / "model.npz") as model:
        assert model["components" if method == "pca" else "coef"].shape[1] == 3


def test_the_exported_model_predicts_what_the_nodes_counted(submit, table, tmp_path, capsys):
    """standardize, pca:20 and logistic regression in one job; the accuracy on the rows that each node held out."""
    steps = ["--preprocess", "standardize", "--preprocess", "pca:20", "--features", ",".join(GENES)]
    status, line, err = submit("fedavg", *steps, *THREE, "--set", "lr=0.5", "--rounds", "2", "--out", tmp_path)
    assert status == 0, err
    databases = Experiment(datasets.load(str(table)), None, "column:hospital").deal()
    held = [databases[k].iloc[source.split(ROWS, 0.2, k)[1]] for k in (1, 2, 3)]
    pd.concat(held).to_csv(tmp_path / "held.csv", index=False)
    assert main(["export", str(tmp_path), "--to", str(tmp_path / "model.npz")]) == 0
    capsys.readouterr()
    call = ["predict", str(tmp_path / "model.npz"), "--data", str(tmp_path / "held.csv")]
    assert main([*call, "--out", str(tmp_path / "predictions.csv")]) == 0
    predicted = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert predicted["rows"] == json.loads((tmp_path / "result.json").read_text())["final"]["evaluated"] == 30
    assert predicted["accuracy"] == pytest.approx(json.loads(line)["accuracy"], abs=1e-9)
    assert predicted["accuracy"] > 0.6


def test_the_merges_of_coop_replayed(submit, table, tmp_path):
    """On a real network answers are merged as they arrive. Mock nodes that answer in the same order: the same bits."""
    status, _, err = submit("coop", *THREE, "--rounds", "2", "--out", tmp_path)
    assert status == 0, err
    real = json.loads((tmp_path / "result.json").read_text())
    arrivals = sorted(real["per_node"], key=lambda row: (row["round"], row["place"]))
    times: dict[int, list[float]] = {k: [] for k in (1, 2, 3)}
    for time_, row in enumerate(arrivals, start=1):
        times[row["organization_id"]].append(float(time_))
    waits = {k: iter(np.diff([0.0, *at, 1e6])) for k, at in times.items()}

    def outcomes(organization, input_):
        return CallOutcome(float(next(waits[organization])) if input_["method"] == "client_update" else 0.0)

    experiment = Experiment(
        datasets.load(str(table)), None, "column:hospital", 3, 0, "outcome", FEATURES.split(","), outcomes=outcomes
    )
    mock = experiment.federated("coop", {"rounds": 2, "organizations": [1, 2, 3]})
    assert mock["weights"] == real["weights"]
    assert mock["per_node"] == real["per_node"]


def test_every_image_is_tried():
    assert {f"v6-{case.short_name}" for case in CASES} == set(images.listed())


# what is asked, and what the strict hospital says
REFUSED = {
    "rows": ([], "fewer than 1000 rows"),
    "lower": (["--set", "minimum_rows=20"], "asks for a minimum of 20 rows, this node's is 1000"),
    "column": (["--features", "a,b,FEDAVGXX"], "column(s) FEDAVGXX may not be used"),
    "rounds": (["--rounds", "9"], "9 rounds are more than the 8"),
}
FAILED = {
    "text": (["--features", "a,name"], "the column(s) name hold values that are not numbers"),
    "rare": (["--label", "rare"], "labels that are not among the 2 classes of the job"),
    "few": (["--set", "organizations=[1,2]"], "only 2 organization(s) take part, but this node requires 3"),
    "no-image": (["--image", "v6-no-such-image"], "organization 1: its node finds no image v6-no-such-image"),
    "other-method": (["--image", "v6-toy", "--rounds", "1"], "image v6-toy holds another method; expected fedavg"),
    "no-algorithm": (
        ["--image", images.INFRASTRUCTURE],
        "ended without a result; expected the image of a vantage6 algorithm",
    ),
}


@pytest.fixture(scope="module")
def refusals(at_once, toy, request):
    """Jobs that fail, all at once."""
    refused, failed = (
        selected(request, f"test_{name}") for name in ("the_strict_hospital_refuses", "a_failed_task_is_one_line")
    )
    asked = {name: [*STRICT, *REFUSED[name][0]] for name in refused}
    asked |= {name: [*three(FAILED[name][0]), *FAILED[name][0]] for name in failed}
    return {name: at_once("fedavg", *arguments) for name, arguments in asked.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_the_strict_hospital_refuses(refusals, name):
    process = refusals[name].result()
    line = complaint(process.stderr)
    assert process.returncode == 1, process.stderr
    assert "organization 4: " in line and REFUSED[name][1] in line and "V6_FEDERATED_" in line
    assert "organization 1" not in line and "organization 2" not in line


@pytest.mark.parametrize("name", FAILED)
def test_a_failed_task_is_one_line(refusals, name):
    process = refusals[name].result()
    assert process.returncode == 1, process.stderr
    assert FAILED[name][1] in complaint(process.stderr)


@pytest.mark.parametrize(
    ("method", "arguments", "says"),
    [
        ("fedavg", ["--set", "organizations=[1,2,9]"], "organizations [9] have no node in the collaboration"),
        ("fedavg", ["--set", "speed=3"], "unknown setting 'speed'; expected one of "),
        ("fedavg", ["--model", "mlp"], "unknown model 'mlp'; expected one of "),
        ("nothing", [], "unknown method 'nothing'; expected one of "),
    ],
    ids=["organization", "setting", "model", "method"],
)
def test_a_wrong_request_is_one_line_and_no_task(hospitals, submit, method, arguments, says):
    status, _, err = submit(method, *three(arguments), *arguments)
    assert status == 2, err
    assert says in complaint(err)
    assert "was sent to" not in err


def test_a_database_that_no_node_has(engine, hospitals, submit):
    tell_labels(engine, hospitals)
    status, _, err = submit("fedavg", *THREE, "--database", "nothing")
    assert status == 2, err
    assert "its node has no database 'nothing'; use --database default" in complaint(err)
    assert "was sent to" not in err


def tell_labels(engine, hospitals: str) -> None:
    """Until every node has told the server its labels; one that does not is started again.

    A node whose connection breaks and that is back before the server notices is forgotten: when the server ends the old
    connection, a minute later, it deletes what was told by the new one.
    """
    found, deadline = local.load(hospitals), time.monotonic() + 90
    user = local.client(found)

    def silent() -> list[int]:
        nodes = server.nodes(user, found.collaboration)
        return sorted(n["organization"]["id"] for n in nodes if n["status"] != "online" or not n["config"])

    for number in silent():
        name = docker_engine.container_name(docker_engine.node_name(hospitals, number))
        engine.containers.get(name).restart(timeout=5)
    while who := silent():
        assert time.monotonic() < deadline, f"nodes {who} do not tell their labels"
        time.sleep(0.5)


def test_a_database_that_nodes_do_not_tell(hospitals, submit):
    """With ``share_config: false`` only the program at the node can say that a label is wrong."""
    found = local.load(hospitals)
    user = local.client(found)
    task = user.task.create(
        collaboration=1,
        organizations=[1],
        name="label",
        image="v6-fedavg",
        description="",
        input_={"method": "central", "kwargs": {"rounds": 1, "organizations": [1, 2, 3]}},
        databases=[{"label": "no"}],
    )["id"]
    while user.request(f"task/{task}/status")["status"] in ("pending", "initializing", "active"):
        time.sleep(0.5)
    central = server.one_run(user, task)
    said = "organizations 1, 2, 3: this node has no database 'no'; expected a label of its configuration"
    assert said in central["log"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"--username": "nobody"}, "does not accept the user nobody with this password"),
        ({"--collaboration": "7"}, "cannot see collaboration 7"),
        ({"--server": "http://127.0.0.1:9/api"}, "no vantage6 server answers at http://127.0.0.1:9/api"),
        (
            {"--server": "server.org"},
            "--server server.org is not an address; expected for example https://server.org:443/api",
        ),
    ],
    ids=["user", "collaboration", "server", "address"],
)
def test_another_server(hospitals, capsys, monkeypatch, change, says):
    found = local.load(hospitals)
    monkeypatch.setenv("V6_FEDERATED_PASSWORD", found.password)
    there = {
        "--server": f"{found.url}:{found.port}/api",
        "--username": found.username,
        "--collaboration": "1",
        "--organization": "1",
    }
    options = [text for pair in (there | change).items() for text in pair]
    assert main(["submit", "fedavg", *TRAINING, *options]) in (1, 2)
    out, err = capsys.readouterr()
    assert says in complaint(err)
    assert out == ""


@pytest.mark.parametrize(("answer", "status"), [("y", "killed by user"), ("n", "active")])
def test_control_c_asks(hospitals, image_of, answer, status):
    image_of("fedavg")
    command = ["submit", "fedavg", "--network", hospitals, *TRAINING, *THREE, "--rounds", "50"]
    with subprocess.Popen(
        [sys.executable, "-m", "v6_workbench.cli.main", *command],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test run in the background ignores it
    ) as process:
        for line in process.stderr:
            if found := re.match(r"task (\d+) was sent to", line):
                break
        user, task = local.client(local.load(hospitals)), found[1]
        while user.request(f"task/{task}/status")["status"] != "active":
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(answer + "\n", timeout=30)
    assert f"Stop task {task} at the nodes too? [y/N]" in err
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    time.sleep(2)
    try:
        assert user.request(f"task/{task}/status")["status"] == status
    finally:
        user.task.kill(int(task))


def test_the_example_for_a_notebook(three, image_of, monkeypatch, tmp_path):
    image_of("fedavg")
    matplotlib.use("Agg")
    monkeypatch.setenv("V6_FEDERATED_NETWORK", three.name)
    monkeypatch.chdir(tmp_path)
    ran = runpy.run_path(str(images.ROOT / "examples" / "user_client.py"))
    assert [row["round"] for row in ran["result"]["history"]] == [1, 2, 3]
    assert (tmp_path / "model.npz").exists()


def test_no_value_of_a_row_is_told(hospitals, table, engine):
    """Runs last of those on this network: what all of the above has left in logs and results."""
    user = local.client(local.load(hospitals))
    tasks = user.request("task", params={"per_page": 1000})["data"]
    if len(tasks) < 20:
        pytest.skip("looks at what the tests above have left, and they did not run")
    logs = [run["log"] or "" for task in tasks for run in user.request("run", params={"task_id": task["id"]})["data"]]
    for container in engine.containers.list(all=True, ignore_removed=True):
        if hospitals in container.name:
            logs.append(container.logs().decode(errors="replace"))
    told = "\n".join(logs)
    assert "organization 4: " in told
    rows = pd.read_csv(table)
    numbers = [str(abs(value))[:9] for value in rows[["a", "b", "c", "FEDAVGXX"]].to_numpy().ravel()]
    leaked = [text for text in [*numbers, *rows["name"], "unheard-of"] if text in told]
    assert leaked == []


def test_images_in_a_folder_and_arrays(engine, state, named, image_of, tmp_path):
    """Two hospitals with folders of pictures and one with a .npz: a network with convolutions, the same bits."""
    image_of("fedavg")
    name, rng = named("scans"), np.random.default_rng(0)
    arrays, paths = {}, []
    for k in (1, 2, 3):
        y = np.repeat(["ill", "well"], 15)
        X = rng.integers(0, 256, size=(30, 12, 12), dtype=np.uint8)
        X[:15, :6] //= 4
        arrays[k], folder = (X, y), tmp_path / f"node-{k}"
        for i, (x, label) in enumerate(zip(X, y, strict=True)):
            file = folder / label / f"{i:02d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(x).save(file)
        paths.append(folder)
    np.savez(tmp_path / "node-3.npz", x=arrays[3][0], y=arrays[3][1])
    shutil.rmtree(paths.pop())
    local.up([*paths, tmp_path / "node-3.npz"], name=name, label="scans")
    try:
        command = ["submit", "fedavg", "--network", name, "--model", "cnn_garst", "--rounds", "1", "--seed", "2"]
        assert main([*command, "--set", "batch_size=10", "--out", str(tmp_path / "out")]) == 0
    finally:
        local.down(name)
    ours = json.loads((tmp_path / "out" / "result.json").read_text())
    with MockNetwork("v6_fedavg", arrays) as mock:
        theirs = mock.run(model="cnn_garst", rounds=1, seed=2, batch_size=10)
    assert ours["weights"] == theirs["weights"]
    assert main(["export", str(tmp_path / "out"), "--to", str(tmp_path / "model.pt")]) == 0


def test_without_a_network_the_way_up_is_named(state, capsys):
    assert os.environ["XDG_STATE_HOME"] == str(state)
    assert main(["submit", "fedavg", "--network", "nobody", "--rounds", "1"]) == 1
    assert "no network 'nobody' is up" in complaint(capsys.readouterr().err)
