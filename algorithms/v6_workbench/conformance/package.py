"""What belongs to a method besides its rounds: exported functions, the store's entry, the page."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import v6_federated
from v6_federated.base.vantage6_api import is_task
from v6_federated.messages.job import SHARED_FUNCTIONS
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import MethodCase
from v6_workbench.conformance.jobs import Tape, run, told_by
from v6_workbench.conformance.outcome import NotApplicable, require
from v6_workbench.network import project, store
from v6_workbench.simulation.studies import StudyPlan


def exports_are_the_functions_that_a_task_may_call(cases: Sequence[MethodCase]) -> None:
    """``__init__.py`` exports central, the partial functions and the shared ones, and nothing else.

    A task may call whatever stands there.
    """
    module = cases[0].module
    public = sorted(name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("__"))
    listed = sorted(getattr(module, "__all__", []))
    require(public == listed, f"the public functions are {public}, and __all__ is {listed}; expected the same")
    shared = SHARED_FUNCTIONS if cases[0].supervised else ("describe", "extract", "fit_step", "forget")
    for name in shared:
        same = getattr(module, name, None) is getattr(v6_federated, name)
        require(same, f"{name} is not exported; expected `from v6_federated import {', '.join(shared)}`")
    for name in public:
        require(
            is_task(getattr(module, name)),
            f"{name} can be called by a task, and is no `@central` or `@partial`; import it elsewhere",
        )


def imports_are_from_the_face_of_v6_federated(cases: Sequence[MethodCase]) -> None:
    """The package imports names from ``v6_federated`` itself, never from its rooms, the workbench or another method.

    An image holds nothing else.
    """
    case = cases[0]
    allowed = {"v6_federated", case.package}
    for file in sorted(Path(str(case.module.__file__)).parent.rglob("*.py")):
        for name in _imported(file):
            own = name in allowed or name.startswith(f"{case.package}.") or not name.startswith("v6_")
            require(own, f"{file.name} imports {name}; expected names that `from v6_federated import ...` offers")


def _imported(file: Path) -> Iterator[str]:
    """The modules that a Python file imports, apart from relative ones."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def every_partial_function_is_called(cases: Sequence[MethodCase]) -> None:
    """The cases, and the first one's job with noise, call each partial function, so that its limits are checked."""
    called = {function for case in cases for function in _told(case)}
    if cases[0].central.private:
        called |= _called_with_noise(cases[0])
    idle = sorted({*cases[0].functions} - called)
    require(
        not idle, f"no case calls {', '.join(idle)}; expected a MethodCase with settings under which they are called"
    )


def store_entry_is_up_to_date(cases: Sequence[MethodCase]) -> None:
    """The entries for vantage6's algorithm stores in the package, if there are any, are what the code says."""
    case = cases[0]
    folder = Path(str(case.module.__file__)).parent
    releases = [release for release in project.RELEASES.values() if (folder / release.store).exists()]
    if not releases:
        raise NotApplicable(f"the package has no {project.FOUR.store} or {project.FIVE.store}")
    for release in releases:
        require(
            (folder / release.store).read_text(encoding="utf-8") == store.text_of(case.module, release),
            f"{release.store} differs from the code; run: python -m v6_workbench.network.store {case.method}",
        )


def page_names_what_leaves_a_node(cases: Sequence[MethodCase]) -> None:
    """The method's page, if there is one, names all that nodes answer, as ``code``."""
    page = cases[0].page_of()
    if page is None:
        raise NotApplicable("the method has no page")
    named = set(re.findall(r"`([a-z_0-9]+)`", page.read_text(encoding="utf-8")))
    for case in cases:
        for function, names in _told(case).items():
            lacking = ", ".join(sorted(names - named))
            require(not lacking, f"{page.name} does not name {lacking}, which {function} sends from a node")


def _told(case: MethodCase) -> dict[str, set[str]]:
    tape = Tape()
    run(case, case.nodes(tables.three()), outcomes=tape, **case.values(rounds=3))
    return told_by(tape.own())


def _called_with_noise(case: MethodCase) -> set[str]:
    tape = Tape()
    options: dict[str, Any] = (
        {"aggregation": "plain"} if case.single_answers else {"study": StudyPlan(schema=tables.schema())}
    )
    values = case.values(**{"rounds": 2, **case.noisy}, **options, clip=1.0, noise=1.0)
    run(case, case.nodes(tables.three()), outcomes=tape, **values)
    return {call.function for call in tape.own()}
