"""What is in an image of a method, and what is not."""

import re
from pathlib import Path

import pytest
from leftovers import once

from v6_workbench.network import images
from v6_workbench.network.project import INSTALLED
from v6_workbench.registry import names


def printed(engine, image: str, code: str) -> str:
    return engine.containers.run(image, ["python", "-c", code], remove=True, labels=once()).decode().strip()


def test_only_v6_federated_and_one_method(engine, toy):
    code = "import pathlib; print(*sorted({p.parts[2] for p in pathlib.Path('/packages').rglob('v6_*/*.py')}))"
    assert printed(engine, toy, code) == "v6_federated v6_toy"
    assert printed(engine, toy, "import importlib.util as u; print(u.find_spec('v6_workbench'))") == "None"
    assert printed(engine, toy, "import importlib.util as u; print(u.find_spec('torch'))") == "None"


def test_no_command_and_no_entry_point_of_this_project(engine, toy):
    assert printed(engine, toy, "import shutil; print(shutil.which('v6-federated'))") == "None"
    code = "from importlib.metadata import entry_points as e; print(*e(group='v6_federated.methods'))"
    assert printed(engine, toy, code) == ""


def test_no_build_tools(engine, toy):
    code = "import shutil; print(*map(shutil.which, ('gcc', 'make')))"
    assert printed(engine, toy, code) == "None None"
    code = "import os; print(*map(os.path.exists, ('/root/.cache', '/requirements.txt', '/packages/bin/pip')))"
    assert printed(engine, toy, code) == "False False False"


def test_what_is_installed_are_the_versions_with_hashes(engine, toy):
    """Nothing else got in, such as a newer version that an index offered."""
    code = (
        "from importlib.metadata import distributions as d; print(*(f'{i.name}=={i.version}'.lower() for i in d(path="
    )
    code += "[__import__('sysconfig').get_path('purelib')])))"
    installed = {line.replace("_", "-") for line in printed(engine, toy, code).split()}
    text = (images.RECIPES / "requirements" / "numpy.txt").read_text()
    pinned = {line.split()[0] for line in text.splitlines() if "==" in line and not line.startswith("#")}
    assert installed <= pinned
    assert len(installed) > 30


def test_the_standard_library_and_the_method_are_compiled(engine, toy):
    """Otherwise every container would compile them again, which takes longer than all that it imports."""
    code = (
        "import importlib.util as u, os; print(*(os.path.exists(u.cache_from_source(u.find_spec(name).origin)) for name"
    )
    code += " in ('json', 'numpy', 'v6_federated', 'v6_toy')))"
    assert printed(engine, toy, code) == "True True True True"


@pytest.mark.parametrize("method", ["pca", "gbdt"])
def test_no_torch_where_nothing_needs_it(engine, image_of, method):
    code = f"import sys, importlib.util as u, v6_{method}; print(u.find_spec('torch'), 'torch' in sys.modules)"
    assert printed(engine, image_of(method), code) == "None False"


def test_labels_and_the_method_that_vantage6_calls(engine, toy):
    image = engine.images.get(toy)
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in image.labels.items()}
    assert labels["licenses"] == "Apache-2.0"
    assert labels["title"] == "v6_toy"
    assert labels["base.name"].startswith(INSTALLED.python.partition(":")[0])
    assert labels["version"] and labels["source"]
    assert "PKG_NAME=v6_toy" in image.attrs["Config"]["Env"]
    assert "wrap_algorithm(log_traceback=False)" in " ".join(image.attrs["Config"]["Cmd"])


def test_no_address_of_a_package_index_is_left(engine, toy):
    history = " ".join(layer["CreatedBy"] for layer in engine.images.get(toy).history())
    assert "PIP_" not in history and "pip install" not in history


def test_every_method_has_an_image_of_a_kind_that_there_is():
    listed = images.listed()
    assert set(listed) == {f"v6-{method}" for method in names()}
    kinds = {path.stem for path in (Path(__file__).parents[2] / "docker" / "requirements").glob("*.txt")}
    assert {image.kind for image in listed.values()} <= kinds


def test_the_line_for_a_node_allows_one_name_alone():
    name = "registry.hospitals.example:5000/project/v6-fedavg@sha256:0123"
    pattern = images.allowed(name).strip("'")
    assert re.match(pattern, name)
    assert not any(re.match(pattern, other) for other in (name + "4", "x" + name, name.replace(".", "-", 1)))
