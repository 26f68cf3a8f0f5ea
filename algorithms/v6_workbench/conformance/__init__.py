"""A public set of checks that every method must pass, those of other repositories too.

In a method's test file, with pytest::

    from v6_workbench.conformance import MethodCase, conformance_tests

    test_fedavg = conformance_tests(MethodCase("fedavg"))

Without pytest: ``v6-federated check fedavg``.
"""

from v6_workbench.conformance.case import Arrays, MethodCase, Pooled
from v6_workbench.conformance.checks import Check, cases_in, cases_of, check_method, checks_of, conformance_tests
from v6_workbench.conformance.outcome import CheckFailed, NotApplicable, Outcome

__all__ = [
    "Arrays",
    "Check",
    "CheckFailed",
    "MethodCase",
    "NotApplicable",
    "Outcome",
    "Pooled",
    "cases_in",
    "cases_of",
    "check_method",
    "checks_of",
    "conformance_tests",
]
