"""Lists that must agree: what pyproject.toml declares, what is checked, and what images install."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grimp
import pytest

from v6_federated.base.version import __version__
from v6_workbench.network.project import FIVE, FOUR

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "docker"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = sorted((RECIPES / "requirements").glob("*.txt"))
OURS = {"v6_federated", "v6_workbench", "benchmarks"}
METHODS = {entry.partition(":")[0] for entry in PYPROJECT["project"]["entry-points"]["v6_federated.methods"].values()}


def pins(path: Path) -> dict[str, set[str]]:
    """The versions of each package in a file of requirements; several if they differ by Python."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", path.read_text(), re.MULTILINE):
        found.setdefault(re.sub(r"[._]", "-", name.lower()), set()).add(version)
    return found


def test_a_method_imports_the_face_alone_and_nobody_imports_a_method():
    """What import-linter's contracts cannot say without a list of methods."""
    ours = {"v6_federated", "v6_workbench", *METHODS}
    graph = grimp.build_graph(*sorted(ours))
    for module in graph.modules:
        package = module.partition(".")[0]
        for imported in graph.find_modules_directly_imported_by(module):
            other = imported.partition(".")[0]
            if other == package:
                continue
            assert other not in METHODS, f"{module} imports {imported}"
            if package in METHODS:  # v6_federated.models is a name of the face as well
                assert other == "v6_federated" and imported.count(".") <= 1, f"{module} imports {imported}"


def test_no_two_files_that_run_at_a_hospital_have_the_same_name():
    names = Counter(path.name for path in (ROOT / "algorithms" / "v6_federated").rglob("*.py"))
    assert [name for name, k in names.items() if k > 1 and not name.startswith("__")] == []


def test_every_package_here_is_a_method_or_shared():
    folders = {path.parent.name for path in (ROOT / "algorithms").glob("v6_*/__init__.py")}
    assert folders == METHODS | {"v6_federated", "v6_workbench"}


def test_versions_are_fixed_in_constraints_alone():
    project = PYPROJECT["project"]
    ranges = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    constrained = pins(ROOT / "constraints.txt")
    for requirement in ranges:
        assert "==" not in requirement
        assert re.split(r"[\[<>=]", requirement)[0] in constrained, requirement


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_images_install_the_versions_of_constraints(path):
    """Otherwise run `make requirements`."""
    constrained, installed = pins(ROOT / "constraints.txt"), pins(path)
    project = PYPROJECT["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"].get(path.stem, [])]
    assert {re.split(r"[<>=]", one)[0] for one in needed} - {"torch"} <= set(installed)
    assert {name: version for name, version in installed.items() if name in constrained} == {
        name: version for name, version in constrained.items() if name in installed
    }


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_everything_but_torch_has_a_hash_and_no_index_is_named(path):
    text = path.read_text()
    blocks = [block for block in re.split(r"\n(?=[^ #])", text) if "==" in block]
    assert len(blocks) > 30
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.search(r"^(torch|triton|nvidia-|cuda-)", text, re.MULTILINE)
    assert "://" not in text and "index" not in text


@pytest.mark.parametrize(("release", "server"), [(FOUR, "vantage6-server"), (FIVE, "vantage6-hq")])
def test_the_infrastructure_installs_its_constraints_with_hashes(release, server):
    """Otherwise run `make requirements`."""
    file = RECIPES / release.server_packages
    assert pins(file) == pins(Path(str(file).replace("requirements", "constraints")))
    assert pins(file)[server] == {release.version}
    blocks = [block for block in re.split(r"\n(?=[^ #])", file.read_text()) if "==" in block]
    assert all("--hash=sha256:" in block for block in blocks)


def imported(file: Path) -> list[str]:
    """What a file imports, with dots between the names."""
    found = []
    for statement in ast.walk(ast.parse(file.read_text())):
        if isinstance(statement, ast.Import):
            found += [name.name for name in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            found += [f"{statement.module}.{name.name}" for name in statement.names]
    return found


def is_private(name: str) -> bool:
    """Whether a name belongs to the inside of a library, which may change it in any release."""
    library, *inside = name.split(".")
    return library not in OURS | sys.stdlib_module_names and any(
        part in ("externals", "vendor") or (part.startswith("_") and not part.endswith("__")) for part in inside
    )


@pytest.mark.parametrize("folder", ["algorithms", "benchmarks", "docker", "docs", "tests"])
def test_no_private_name_of_a_library_is_imported(folder):
    found = {str(file): imported(file) for file in (ROOT / folder).rglob("*.py")}
    assert found
    assert [(file, name) for file, names in found.items() for name in names if is_private(name)] == []


def test_private_names_are_recognised():
    private = ["joblib.externals.loky", "torch.nn.modules.batchnorm._BatchNorm", "sklearn._loss.loss"]
    public = [
        "loky.BrokenProcessPool",
        "numpy.__version__",
        "v6_workbench.network.local._wait",
        "concurrent.futures._base",
    ]
    assert [*map(is_private, private + public)] == [True] * 3 + [False] * 4


def test_a_python_that_is_not_accepted_is_one_line(tmp_path):
    """It says which are accepted and how to get one; nothing is installed."""
    command = ["make", "demo", f"VENV={tmp_path / 'venv'}", "PYTHON=false"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert line.startswith("false cannot be used: Python 3.10, 3.11, 3.12 or 3.13 with venv is needed; get one ")
    assert line.endswith("then run: make demo PYTHON=PATH")
    assert done.returncode == 2 and not any(tmp_path.iterdir())


def test_there_is_one_place_for_the_version():
    assert "version" not in PYPROJECT["project"] and "version" in PYPROJECT["project"]["dynamic"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)


def test_files_of_tests_have_different_names():
    """Otherwise pytest cannot import the second one, and its tests do not run."""
    names = Counter(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, files in names.items() if files > 1] == []
