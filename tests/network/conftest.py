"""A Docker engine, the images of the methods and of an algorithm that does nothing, a real network of three nodes, and
one of four hospitals."""

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import leftovers
import numpy as np
import pandas as pd
import pytest
from four_hospitals import GENES, LIMITS, ROWS, training

from v6_federated.base.vantage6_api import FIVE
from v6_federated.rules import audit
from v6_workbench.cli.main import main
from v6_workbench.errors import EngineError
from v6_workbench.network import docker_engine, images, local, project
from v6_workbench.network.submit import AGAIN
from v6_workbench.registry import names
from v6_workbench.simulation.mock import TRUSTING

# each vantage6 has its own tests, of its own network
collect_ignore = [
    file.name for file in Path(__file__).parent.glob("test_*.py") if file.name.startswith("test_five_") != FIVE
]


@pytest.fixture(scope="session")
def engine():
    if not leftovers.REQUIRED:
        pytest.skip("a test on a real network, which needs Docker: make test-network")
    try:
        return images.engine()
    except EngineError as error:
        pytest.fail(f"REQUIRE_DOCKER=1, but {error}")


@pytest.fixture(scope="session", autouse=True)
def _no_networks_are_left() -> None:
    """Remove the networks of earlier runs of the tests that were killed: Docker has addresses for some thirty."""
    if leftovers.REQUIRED:
        with contextlib.suppress(EngineError):  # ``engine`` says it
            leftovers.clear(lambda began: not Path("/proc", began).exists())


@pytest.fixture(scope="session")
def toy(engine) -> str:
    source = Path(__file__).parent / "algorithms" / "v6_toy"
    images.build_method(images.Image("v6-toy", source))
    return "v6-toy"


@pytest.fixture(scope="session")
def image_of(engine) -> Callable[[str], str]:
    """Builds the image of a method, of the code as it is; layers that did not change are the engine's."""

    @functools.cache
    def build(method: str) -> str:
        image = images.listed()[f"v6-{method}"]
        if FIVE and image.kind == "torch":
            tag = images.build_method(image, python=project.FOUR.python)
            recipe = Path(__file__).parent / "torch_on_five.Dockerfile"
            images.build(tag, recipe, arguments={"BASE": tag, "VANTAGE6": project.FIVE.version})
            engine.images.get(tag).tag(*images.of_method(method).split(":"))
        else:
            images.build_method(image)
        return images.of_method(method)

    return build


@pytest.fixture(scope="session")
def audited(engine, tmp_path_factory) -> Callable[[str, int], list[audit.Entry]]:
    """Reads the audit log of a node: in its container, since the file belongs to root."""
    copy = tmp_path_factory.mktemp("audit") / audit.NAME

    def entries(network: str, node: int) -> list[audit.Entry]:
        container = engine.containers.get(docker_engine.container_name(docker_engine.node_name(network, node)))
        status, printed = container.exec_run(["cat", f"/mnt/{docker_engine.HOSPITAL}/{audit.NAME}"])
        assert status == 0, printed
        copy.write_bytes(printed)
        return [entry for entry in audit.read(copy) if entry]

    return entries


@pytest.fixture(scope="session")
def databases(tmp_path_factory) -> list[Path]:
    """Three tables of 20 rows; in table k the column x is k everywhere."""
    folder = tmp_path_factory.mktemp("databases")
    paths = [folder / f"{k}.csv" for k in (1, 2, 3)]
    for k, path in enumerate(paths, start=1):
        rows = (f"{k},{row / 7},{'well' if row % (k + 2) else 'ill'}\n" for row in range(20))
        path.write_text("x,z,y\n" + "".join(rows))
    return paths


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory) -> Iterator[Path]:
    """Networks of the tests are not among the user's."""
    before, folder = os.environ.get("XDG_STATE_HOME"), tmp_path_factory.mktemp("state")
    os.environ["XDG_STATE_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(scope="session")
def named() -> Callable[[str], str]:
    """Names that no other run of the tests on this machine uses."""
    return leftovers.named


@pytest.fixture(scope="session")
def three(engine, toy, databases, state, named) -> Iterator[local.Network]:
    limits = [{**TRUSTING, "V6_TOY_LIMIT": limit} for limit in ("a, b", "ABCDEFGH", "")]
    try:
        yield local.up(databases, name=named("three"), algorithm_env=limits)
    finally:
        local.down(named("three"))


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """Four hospitals of 40 rows. Each value of a feature has many digits, so that a search of the logs finds it."""
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
    rows["days"] = rng.exponential(100, size=len(rows)).round(6)
    path = tmp_path_factory.mktemp("hospitals") / "patients.csv"
    rows.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def hospitals(engine, state, table, named):
    name = named("hospitals")
    limits = [text for key, value in LIMITS.items() for text in ("--node-env", f"4:V6_FEDERATED_{key}={value}")]
    try:
        up = [
            "network",
            "up",
            "--name",
            name,
            "--data",
            str(table),
            "--partition",
            "column:hospital",
            "--profile",
            "trusting",
            *limits,
        ]
        assert main(up) == 0
        yield name
    finally:
        local.down(name)


@pytest.fixture
def call(network, capsys):
    """A command about a file's network: exit status, the last line of standard output, and standard error."""

    def call(command, *words):
        capsys.readouterr()
        status = main([command, *map(str, words), "--network", network])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, json.loads(out.splitlines()[-1]) if status == 0 else None, err

    return call


@pytest.fixture
def submit(hospitals, image_of, capsys):
    """``v6-federated submit``: its exit status, the last line of standard output, and standard error."""

    def call(method, *arguments):
        if method in names():
            image_of(method)
        capsys.readouterr()
        for _ in range(2):  # as in ``at_once``
            status = main(["submit", method, "--network", hospitals, *training(method), *map(str, arguments)])
            out, err = capsys.readouterr()
            assert "Traceback" not in err
            if AGAIN not in err:
                break
        return status, (out.strip().splitlines() or [""])[-1], err

    return call


@pytest.fixture(scope="session")
def at_once(hospitals, image_of):
    """``v6-federated submit`` of several jobs at a time: futures of what has come of them."""

    def submit_in_a_process(method, *arguments):
        command = ["submit", method, "--network", hospitals, *training(method), *map(str, arguments)]
        for _ in range(2):  # under load a node of vantage6 loses a container now and then, and asks for the task again
            process = subprocess.run(
                [sys.executable, "-m", "v6_workbench.cli.main", *command], capture_output=True, text=True
            )
            assert "Traceback" not in process.stderr
            if AGAIN not in process.stderr:
                break
        return process

    with ThreadPoolExecutor(4) as pool:

        def call(method, *arguments):
            image_of(method)
            return pool.submit(submit_in_a_process, method, *arguments)

        yield call
