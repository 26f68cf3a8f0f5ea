"""Names that a package imports when they are used, so that a command does not wait for what it does not need."""

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any


def names_of(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Import what a package offers as late as possible.

    The package lists its names once: in imports under ``if TYPE_CHECKING``, which type checkers and readers see as any
    other, and of which this function reads where each name is. A package inside it may be called as a name of its own:
    the name wins, whichever is imported first.
    """
    module = sys.modules[package]
    body = ast.parse(inspect.getsource(module)).body
    imports = [each for node in body if isinstance(node, ast.If) for each in node.body]
    homes = {name.name: str(each.module) for each in imports if isinstance(each, ast.ImportFrom) for name in each.names}
    for name, home in homes.items():
        if home.startswith(f"{package}.{name}."):  # once imported, Python never puts it in the name's place again
            importlib.import_module(f"{package}.{name}")
            vars(module).pop(name, None)

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(homes[name])
        found = vars(home)[name] if name in vars(home) else importlib.import_module(f"{homes[name]}.{name}")
        setattr(module, name, found)
        return found

    return find, lambda: sorted({*vars(module), *module.__all__})
