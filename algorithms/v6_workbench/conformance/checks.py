"""The list of checks, and running them: with pytest or without."""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_workbench.conformance import (
    answers,
    careful,
    faults,
    fitting,
    interruptions,
    laws,
    node_limits,
    package,
    places,
    sums,
)
from v6_workbench.conformance.case import MethodCase, import_errors_of
from v6_workbench.conformance.outcome import CheckFailed, NotApplicable, Outcome

OF_CASES: tuple[Callable[[MethodCase], str | None], ...] = (
    laws.one_node_equals_centralized_training,
    laws.order_of_nodes_changes_nothing,
    laws.equal_nodes_equal_one,
    laws.rate_zero_changes_nothing,
    laws.rows_held_out_are_not_trained_on,
    laws.bytes_equal_the_formula,
    laws.half_precision_halves_the_bytes,
    laws.history_names_who_took_part,
    laws.as_many_rounds_as_a_node_allows,
    laws.preprocessing_comes_first,
    node_limits.operators_limits_hold_in_every_function,
    node_limits.hostile_tasks_are_refused,
    node_limits.long_training_is_ended,
    node_limits.arrays_of_another_shape_are_refused,
    careful.under_the_profile_careful_it_trains_or_says_why_not,
    sums.the_sum_under_masks_equals_the_sum_without,
    answers.too_few_answers_are_an_error_in_every_request,
    answers.nonsense_in_an_answer_does_not_end_the_job,
    faults.faults_end_in_a_model_or_one_line,
    faults.failed_answers_change_nothing,
    faults.model_follows_from_the_history,
    interruptions.a_lost_central_goes_on,
    interruptions.a_central_lost_at_the_end_changes_nothing,
    interruptions.a_result_can_be_resumed,
    interruptions.resuming_changes_nothing,
    interruptions.nodes_are_sent_what_central_carries,
    interruptions.nodes_keep_what_is_declared_and_nothing_in_the_end,
    interruptions.a_node_that_has_lost_its_state_says_so,
    places.same_bits_everywhere,
    places.traffic_equals_bytes_sent,
)
OF_PACKAGES: tuple[Callable[[Sequence[MethodCase]], None], ...] = (
    package.exports_are_the_functions_that_a_task_may_call,
    package.imports_are_from_the_face_of_v6_federated,
    package.every_partial_function_is_called,
    fitting.settings_that_do_not_fit_are_refused,
    package.store_entry_is_up_to_date,
    package.page_names_what_leaves_a_node,
)


class Check:
    """One check of one method: call it.

    Attributes:
        name: the method, the case and what is checked.
        purpose: what must hold, in a sentence.
    """

    def __init__(
        self, name: str, purpose: str, function: Callable[[], str | None], exception: str | None = None
    ) -> None:
        self.name, self.purpose = name, purpose
        self._function, self._exception = function, exception

    def __str__(self) -> str:
        return self.name

    def __call__(self) -> str | None:
        """Run the check.

        Returns:
            What the check found out about the method, if it tells.

        Raises:
            CheckFailed: the method does not pass.
            NotApplicable: the check says nothing about the method.
        """
        try:
            found = self._function()
        except CheckFailed as error:
            if self._exception is None:
                raise
            raise NotApplicable(f"does not hold, as declared: {self._exception}") from error
        if self._exception is not None:
            raise CheckFailed(f"declared not to hold ({self._exception}), and it does; remove it from `exceptions`")
        return found


def checks_of(*cases: MethodCase) -> list[Check]:
    """All checks of one or more methods.

    Args:
        cases: the methods with settings; several of one method are checked one by one, its package once.

    Returns:
        The checks. With pytest: ``@pytest.mark.parametrize("check", checks_of(CASE), ids=str)``, or
        ``conformance_tests``.

    Raises:
        SafeError: a method is unknown, or ``exceptions`` names a check that there is not.
    """
    checks: list[Check] = []
    for case in cases:
        known = [function.__name__ for function in (*OF_CASES, *OF_PACKAGES)]
        if unknown := sorted({*case.exceptions} - {*known}):
            raise SafeError(f"exceptions of {case} name no check: {', '.join(unknown)}; expected some of {known}")
        checks += [_check(str(case), function, case, case.exceptions) for function in OF_CASES]
    packages = {case.package: [other for other in cases if other.package == case.package] for case in cases}
    for own in packages.values():
        exceptions = {name: reason for case in own for name, reason in case.exceptions.items()}
        checks += [_check(own[0].short_name, function, own, exceptions) for function in OF_PACKAGES]
    return checks


def _check(who: str, function: Callable[[Any], str | None], argument: Any, exceptions: Any) -> Check:
    name = function.__name__
    purpose = " ".join((function.__doc__ or "").split())
    return Check(f"{who}: {name.replace('_', ' ')}", purpose, lambda: function(argument), exceptions.get(name))


def conformance_tests(*cases: MethodCase) -> Callable[..., None]:
    """All checks of one or more methods as one test function of pytest.

    ``test_fedavg = conformance_tests(MethodCase("fedavg"))`` is all that a test file needs.

    Args:
        cases: the methods with settings, as ``checks_of`` takes them.

    Returns:
        A test with a parameter, one check for each value.
    """
    import pytest  # only here: the checks run without it

    @pytest.mark.parametrize("check", checks_of(*cases), ids=str)
    def test(check: Check) -> None:
        check()

    test.cases = cases  # type: ignore[attr-defined]  # for cases_in
    return test


def cases_in(file: Path) -> list[MethodCase]:
    """Find the cases that a test file gives to ``conformance_tests``.

    Args:
        file: a Python file.

    Returns:
        The cases, in order.

    Raises:
        SafeError: there is no such file, it cannot be imported, or it holds no cases.
    """
    name = f"v6_conformance_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.exists():
        raise SafeError(f"no Python file {file}; expected one that calls conformance_tests(MethodCase(...))")
    module = importlib.util.module_from_spec(spec)
    folders = [str(folder) for folder in file.resolve().parents[:2]]  # with what tests share
    sys.path[:0] = folders
    try:
        with import_errors_of(file):
            spec.loader.exec_module(module)
    finally:
        for folder in folders:
            sys.path.remove(folder)  # the first: the user may have named the same one
    found = [case for value in vars(module).values() for case in getattr(value, "cases", ())]
    if not found:
        raise SafeError(f"{file} holds no cases; expected a test = conformance_tests(MethodCase(...))")
    return found


def cases_of(method: str) -> list[MethodCase]:
    """Find the cases of a method.

    Args:
        method: a method's name, its import package, or a test file that calls ``conformance_tests``.

    Returns:
        The cases of the method's test file, or one with the default settings if it has no test file.

    Raises:
        SafeError: there is no such method or file, or the file holds no case of the method.
    """
    if method.endswith(".py"):
        return cases_in(Path(method))
    case = MethodCase(method)
    file = case.test_file()
    if file is None:
        return [case]
    own = [found for found in cases_in(file) if found.package == case.package]
    if not own:
        raise SafeError(f"{file} holds no case of {case.package}; expected conformance_tests(MethodCase({method!r}))")
    return own


def check_method(method: MethodCase | str | Iterable[MethodCase]) -> list[Outcome]:
    """Run all checks of a method.

    Args:
        method: a case, several, or what ``cases_of`` takes.

    Returns:
        What came of each check, in order.

    Raises:
        SafeError: there is no such method.
    """
    if isinstance(method, str):
        cases = cases_of(method)
    else:
        cases = [method] if isinstance(method, MethodCase) else list(method)
    return [outcome_of(check) for check in checks_of(*cases)]


def outcome_of(check: Check) -> Outcome:
    """Run one check, whatever error it meets.

    Args:
        check: the check.

    Returns:
        What came of it.
    """
    try:
        found = check()
    except NotApplicable as error:
        return Outcome(check.name, "not applicable", str(error))
    except CheckFailed as error:
        return Outcome(check.name, "fail", str(error))
    except Exception as error:  # of the method's own code
        return Outcome(check.name, "fail", f"{type(error).__name__}: {error}")
    return Outcome(check.name, "pass", found or "")
