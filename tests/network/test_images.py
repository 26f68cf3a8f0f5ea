"""What is in an image of a method, and what is not."""

import pytest

from v6_workbench.network import images


def printed(engine, image: str, code: str) -> str:
    return engine.containers.run(image, ["python", "-c", code], remove=True).decode().strip()


def test_only_one_method_and_no_build_tools(engine, toy):
    code = "import os; print(*sorted(n for n in os.listdir('/packages') if n.startswith('v6_') and 'dist' not in n))"
    assert printed(engine, toy, code) == "v6_federated v6_toy"
    assert printed(engine, toy, "import shutil; print(shutil.which('gcc'), shutil.which('make'))") == "None None"
    assert printed(engine, toy, "import os; print(os.path.exists('/root/.cache'), os.path.exists('/build'))") == (
        "False False"
    )
    assert printed(engine, toy, "import importlib.util as u; print(u.find_spec('torch'))") == "None"


def test_the_standard_library_is_compiled(engine, toy):
    """Else every container would do it anew, which takes longer than all that it imports."""
    code = "import importlib.util as u, os; print(os.path.exists(u.cache_from_source(u.find_spec('json').origin)))"
    assert printed(engine, toy, code) == "True"


@pytest.mark.parametrize("method", ["pca", "gbdt"])
def test_no_torch_where_nothing_needs_it(engine, image_of, method):
    code = f"import sys, importlib.util as u, v6_{method}; print(u.find_spec('torch'), 'torch' in sys.modules)"
    assert printed(engine, image_of(method), code) == "None False"


def test_labels_and_the_method_that_vantage6_calls(engine, toy):
    image = engine.images.get(toy)
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in image.labels.items()}
    assert labels["licenses"] == "Apache-2.0"
    assert labels["title"] == "v6_toy"
    assert labels["version"] and labels["source"]
    assert "PKG_NAME=v6_toy" in image.attrs["Config"]["Env"]
    assert "wrap_algorithm(log_traceback=False)" in " ".join(image.attrs["Config"]["Cmd"])


def test_no_address_of_a_package_index_is_left(engine, toy):
    history = " ".join(layer["CreatedBy"] for layer in engine.images.get(toy).history())
    assert "PIP_" not in history and "pip install" not in history


def test_each_line_of_the_list_names_a_method():
    listed = images.listed()
    assert listed
    for image in listed.values():
        assert (images.ROOT / "algorithms" / image.package / "__init__.py").exists()
        assert image.kind in ("numpy", "torch", "lightgbm")
