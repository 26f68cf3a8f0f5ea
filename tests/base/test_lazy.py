"""Names that packages import when they are used: whichever is imported first, everybody gets the same."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import v6_federated
import v6_workbench
from v6_workbench.reporting import tables

PACKAGES = [v6_federated, v6_workbench, tables]
IS_THE_DECORATOR = """
import types, v6_federated
from v6_federated import central
import v6_federated.central.federation
from v6_federated.central.server import central as decorator
assert central is v6_federated.central is decorator and isinstance(decorator, types.FunctionType)
"""


def starts(code):
    """Whether code runs in a new interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_name_is_what_its_import_says(package):
    tree = ast.parse(Path(package.__file__).read_text())
    (imports,) = [node.body for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    names: dict = {}
    exec(compile(ast.Module(imports, []), "imports", "exec"), names)
    del names["__builtins__"]
    assert names.keys() == set(package.__all__) <= set(dir(package))
    for name, value in names.items():
        assert getattr(package, name) is value


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_another_name_is_refused_as_python_does(package):
    with pytest.raises(AttributeError, match=f"^module '{package.__name__}' has no attribute 'Nodde'$"):
        _ = package.Nodde
    with pytest.raises(ImportError, match=f"^cannot import name 'Nodde' from '{package.__name__}'"):
        exec(f"from {package.__name__} import Nodde")


@pytest.mark.parametrize(
    "first",
    [
        "from v6_federated import central",
        "from v6_federated import *",
        "import v6_federated.central",
        "import v6_federated.central.federation",
        "import v6_federated.central.newton",
        "from v6_federated.central import newton",
        "from v6_federated.central.method import Result",
        "from v6_federated.central.answer import Answer",
        "from v6_federated import Result, newton",
        "from v6_federated import models, Federation",
        "import importlib; importlib.import_module('v6_federated.central.server')",
        "import v6_federated, importlib; v6_federated.central; importlib.reload(v6_federated)",
        "import v6_fedavg",
        "import v6_workbench.registry",
    ],
)
def test_central_is_the_decorator_whatever_is_imported_first(first):
    """A package inside ``v6_federated`` has this name as well, and Python puts what it imports in the name's place."""
    done = starts(f"{first}\n{IS_THE_DECORATOR}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("package", ["v6_federated", "v6_workbench", "v6_workbench.reporting.tables"])
def test_a_package_alone_imports_nothing_slow(package):
    slow = "{'numpy', 'pandas', 'pydantic', 'rich', 'vantage6'}"
    assert starts(f"import sys, {package}; sys.exit(bool({slow} & {{*sys.modules}}))").returncode == 0
