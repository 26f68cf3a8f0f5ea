"""What ``docs/python.md`` shows runs, and so does the notebook."""

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import matplotlib
import pytest
from markdown_it import MarkdownIt

from v6_federated import models
from v6_workbench import registry
from v6_workbench.simulation.mock import MockNetwork

ROOT = Path(__file__).parents[1]
TOKENS = [token for token in MarkdownIt().parse((ROOT / "docs" / "python.md").read_text()) if token.type == "fence"]
TITLED = {m[1]: token.content for token in TOKENS if (m := re.search(r'title="(\w+)"', token.info))}
OTHERS = {token.info: token.content for token in TOKENS}
PLAIN = [token.content for token in TOKENS if token.info == "python"]


@pytest.fixture(autouse=True)
def own_models(monkeypatch):
    monkeypatch.setattr(models, "MODELS", dict(models.MODELS))
    matplotlib.use("Agg")


@pytest.fixture(scope="module")
def page():
    """The names that the page's first lines define."""
    names = {}
    exec(PLAIN[0].replace("rounds=10", "rounds=2"), names)
    return names


def test_ten_lines(page, tmp_path):
    assert len(PLAIN[0].strip().splitlines()) <= 13, "with imports"
    assert page["federated"]["final"]["evaluated"] == page["centralized"]["final"]["evaluated"]
    page["path"] = tmp_path / "model.npz"
    for script in PLAIN[1:]:  # each goes on from the ones before
        exec(script, page)
    assert (tmp_path / "model.npz").exists()


def recorder(name, monkeypatch):
    """A module that is not installed here: it notes its calls, and is a context as well."""

    class Calls(list):
        def __enter__(self):
            return self

        def __exit__(self, *exception):
            self.append(("exit",))

        def __getattr__(self, function):
            if function.startswith("__"):
                raise AttributeError(function)
            return lambda *args, **kwargs: self.append((function, *args, kwargs)) or self

    calls, module = Calls(), ModuleType(name)
    module.__getattr__ = lambda attribute: getattr(calls, attribute)
    monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_errors_of_coefficients_are_in_the_result(page):
    names = dict(page)
    exec(TITLED["errors"], names)
    shown = re.search(r"# (name, .*), \.\.\.", TITLED["errors"])[1].split(", ")
    intercept, radius, texture = names["result"]["coefficients"]
    assert {*shown} <= {*radius} == {*texture} and intercept["name"] == "intercept"


def test_mlflow_gets_every_round(page, monkeypatch):
    calls = recorder("mlflow", monkeypatch)
    names = dict(page)
    exec(TITLED["mlflow"], names)
    assert [call[0] for call in calls] == ["start_run", "log_params", "log_metrics", "log_metrics", "log_dict", "exit"]
    _, _, params, *rounds, result, _ = calls[:1] + calls
    assert params[1]["method"] == "fedavg" and result[1]["history"] == names["result"]["history"]
    assert [call[-1]["step"] for call in rounds] == [1, 2]
    assert all(isinstance(v, float) for call in rounds for v in call[1].values()) and "loss" in rounds[0][1]
    json.dumps(result[1])


def test_tensorboard_gets_every_round(page, monkeypatch):
    calls = recorder("torch.utils.tensorboard", monkeypatch)
    exec(TITLED["tensorboard"], dict(page))
    assert calls[0][:2] == ("SummaryWriter", "runs/fedavg")
    scalars = [call for call in calls if call[0] == "add_scalar"]
    assert {(name, step) for _, name, _, step, _ in scalars} == {
        (name, step) for name in ("loss", "accuracy", "auc", "train_loss") for step in (1, 2)
    }


def test_a_model_of_ones_own(page):
    exec(TITLED["model"], dict(page))
    assert "small" in models.MODELS


def test_a_package_of_ones_own_is_a_method(page, tmp_path, monkeypatch):
    """As ``pip install -e .`` would make it known, without an installation."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    project = tomllib.loads(OTHERS["toml"])["project"]
    assert project["entry-points"]["v6_federated.methods"] == {"small": "v6_small:central [torch]"}
    (tmp_path / "v6_small").mkdir()
    (tmp_path / "v6_small" / "__init__.py").write_text(TITLED["package"])
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = next(iter(registry._registered().values()))
    made = type(entry)("small", "v6_small:central [torch]", registry.GROUP)
    installed = registry._registered()
    monkeypatch.setattr(registry, "_registered", lambda: {**installed, "small": made})
    result = page["experiment"].federated("small", model="small:width=4", rounds=1, preprocess=["standardize"])
    assert result["model"]["width"] == 4
    assert result["method"] == registry.called("small") == "fedavg" == registry.called("fedavg")
    v6_fedavg, v6_small = map(importlib.import_module, ("v6_fedavg", "v6_small"))
    assert set(v6_fedavg.__all__) <= set(vars(v6_small)), "all that a task calls"
    with MockNetwork("v6_small", page["experiment"].deal(), processes=2) as network:  # workers import the package
        assert network.run(rounds=1, model="small", preprocess=["standardize"])["history"]


def test_the_image_adds_the_package_to_a_method():
    base, copy, package = OTHERS["dockerfile"].strip().splitlines()
    recipe = (ROOT / "docker" / "Dockerfile").read_text()
    assert base == "FROM v6-fedavg" and (ROOT / "algorithms" / "v6_fedavg").is_dir()
    assert copy == "COPY v6_small /packages/v6_small" and "PYTHONPATH=/packages" in recipe
    assert package == "ENV PKG_NAME=v6_small" and "ENV PKG_NAME=${PACKAGE}" in recipe


# ---- the notebook


@pytest.fixture(scope="module")
def notebooks():
    sys.path.append(str(ROOT / "docs"))
    try:
        import notebooks
    finally:
        sys.path.pop()
    return notebooks


def test_the_tour_runs_and_shows_what_its_file_shows(notebooks):
    """Its kinds of output; numbers may differ, since noise does. Otherwise run ``python docs/notebooks.py``."""
    kept = notebooks.read(notebooks.FOLDER / "tour.ipynb")
    assert notebooks.structure(notebooks.executed(kept)) == notebooks.structure(kept)
    assert [cell["execution_count"] for cell in kept["cells"] if cell["cell_type"] == "code"] == [*range(1, 12)]
    assert (notebooks.FOLDER / "tour.ipynb").stat().st_size < 150_000


def test_the_tour_is_a_page(notebooks):
    page = notebooks.page(notebooks.read(notebooks.FOLDER / "tour.ipynb"))
    assert page.count("data:image/png;base64,") == 2 and "<table" in page and "```python\n" in page
    assert "Axes" not in page, "what a cell with a figure returns is not shown"
