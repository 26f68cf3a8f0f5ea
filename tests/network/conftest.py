"""A Docker engine, the images of the methods and of an algorithm that does nothing, and a real network of three nodes
for all tests here."""

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from v6_workbench.errors import EngineError
from v6_workbench.network import images, local


@pytest.fixture(scope="session")
def engine():
    try:
        return images.engine()
    except EngineError as error:
        if os.environ.get("REQUIRE_DOCKER") == "1":
            pytest.fail(f"REQUIRE_DOCKER=1, but {error}")
        pytest.skip(f"tests of the real network: {error}")


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
        images.build_method(images.listed()[f"v6-{method}"])
        return f"v6-{method}"

    return build


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
    return lambda name: f"test-{os.getpid()}-{name}"


@pytest.fixture(scope="session")
def three(engine, toy, databases, state, named) -> Iterator[local.Network]:
    limits = [{"V6_TOY_LIMIT": limit} for limit in ("a, b", "ABCDEFGH", "")]
    try:
        yield local.up(databases, name=named("three"), algorithm_env=limits)
    finally:
        local.down(named("three"))
