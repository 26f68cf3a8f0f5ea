"""The variables of a node's environment that its operator sets: limits, processor threads and device."""

import difflib
import functools
import math
import os
import re
from collections.abc import Mapping
from typing import Any

from threadpoolctl import threadpool_limits

from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.rules import limits
from v6_federated.rules.limits import LIMITS, MOST_BANDS, PREFIX, Limit

OTHERS = ("DEBUG", "DEVICE", "PROFILE", "SECRET", "THREADS")
RESEARCHERS = ("PASSWORD", "NETWORK")
MOST_DIGITS = 15  # of a limit: a larger number does not fit everywhere
AT_LEAST_ONE = {"MINIMUM_ROWS", "MINIMUM_ROWS_A_CLASS", "MINIMUM_BATCH", "MINIMUM_ORGANIZATIONS", "MINIMUM_SAMPLE"}
CORRECT_IT = f"correct it in algorithm_env of the node's configuration. {NOTHING_COMPUTED}"


def number_of_threads(environment: Mapping[str, str] | None = None) -> int:
    """How many threads the operator gives a task.

    Args:
        environment: environment variables; None means those of this process.

    Returns:
        The value of ``V6_FEDERATED_THREADS``, or 1 if it is not set.

    Raises:
        NodePermissionException: the value is not a whole number from 1.
    """
    env = os.environ if environment is None else environment
    text = env.get(PREFIX + "THREADS", "").strip() or "1"
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise NodePermissionException(f"{PREFIX}THREADS of this node must be a whole number from 1; {CORRECT_IT}")
    return int(text)


@functools.cache
def limit_threads() -> None:
    """Use one thread unless the operator gives more: with a varying number, results would differ in their last bits."""
    threadpool_limits(limits=number_of_threads())


def debugging() -> bool:
    """Whether errors are shown in full, which may quote values of rows: ``V6_FEDERATED_DEBUG`` is 1."""
    return os.environ.get(PREFIX + "DEBUG") == "1"


def read_environment(environment: Mapping[str, str] | None = None) -> tuple[str, dict[str, Any]]:
    """Read the profile and the limits, and check the other variables."""
    env = os.environ if environment is None else environment
    _check_names(env)
    profile = env.get(PREFIX + "PROFILE", "").strip() or limits.DEFAULT
    accepted = f"{', '.join(limits.PROFILES[:-1])} or {limits.PROFILES[-1]}"
    if profile not in limits.PROFILES:
        raise NodePermissionException(f"{PREFIX}PROFILE={profile} of this node must be {accepted}; {CORRECT_IT}")
    values: dict[str, Any] = {}
    for limit in LIMITS:
        text = env.get(PREFIX + limit.name, "").strip()
        default = limit.value(profile)
        if not text and default in limits.BY_NAME:
            values[limit.name.lower()] = values[str(default).lower()]
        else:
            values[limit.name.lower()] = _read(limit, text if text else default)
    _check_budget(profile, values)
    if values["score_bands"] > MOST_BANDS:
        raise NodePermissionException(
            f"{PREFIX}SCORE_BANDS={values['score_bands']} of this node must be {MOST_BANDS} at most; {CORRECT_IT}"
        )
    if not re.fullmatch("|cpu|cuda(:[0-9]+)?", device := env.get(PREFIX + "DEVICE", "")):
        raise NodePermissionException(
            f"{PREFIX}DEVICE={device} of this node must be cpu, cuda or cuda:NUMBER; {CORRECT_IT}"
        )
    number_of_threads(env)  # so that a wrong one is found before a task computes
    return profile, values


def _check_budget(profile: str, values: Mapping[str, Any]) -> None:
    """The profile ``private`` needs a budget, and the others count none."""
    budget = [name for name in ("epsilon", "delta", "epsilon_per_job") if values[name] is not None]
    if profile != "private" and budget:
        raise NodePermissionException(
            f"{PREFIX}{budget[0].upper()} of this node counts only with {PREFIX}PROFILE=private; set it, or remove the "
            f"budget. {NOTHING_COMPUTED}"
        )
    if profile == "private" and not {"epsilon", "delta"} <= {*budget}:
        raise NodePermissionException(
            f"{PREFIX}PROFILE=private needs a privacy budget; set {PREFIX}EPSILON, for example 3, and {PREFIX}DELTA, "
            f"for example 1e-5. {NOTHING_COMPUTED}"
        )
    if (values["delta"] or 0) >= 1:
        raise NodePermissionException(f"{PREFIX}DELTA of this node must be below 1, for example 1e-5; {CORRECT_IT}")


def _check_names(env: Mapping[str, str]) -> None:
    """Refuse unknown variables: a misspelt limit would limit nothing, and the operator would not notice."""
    names = [limit.name for limit in LIMITS]
    known = (*names, *OTHERS, *RESEARCHERS)
    ours = (n for n in env if n.upper().startswith(PREFIX))  # one in lower case is misspelt too
    for unknown in sorted(n for n in ours if n.removeprefix(PREFIX) not in known):
        near = difflib.get_close_matches(unknown.upper().removeprefix(PREFIX), (*names, *OTHERS), n=1)
        known_names = ", ".join(PREFIX + name for name in near or names)
        question = f"did you mean {known_names}?" if near else f"the limits are {known_names}."
        raise NodePermissionException(f"{unknown} is not a setting of a node; {question} {NOTHING_COMPUTED}")


def _read(limit: Limit, value: limits.Value) -> Any:
    """A limit's value, from its variable or from the table."""
    if limit.kind == "names":
        if value is None or (limit.stricter == "unlisted" and str(value).strip() == limits.EVERY):
            return None
        return frozenset(name.strip() for name in str(value).split(",") if name.strip())
    if limit.kind == "mode":
        if str(value) not in limits.MODES:
            raise NodePermissionException(
                f"{PREFIX}{limit.name} of this node must be {', '.join(limits.MODES[:-1])} or {limits.MODES[-1]}; "
                f"{CORRECT_IT}"
            )
        return str(value)
    if value is None:
        return None
    if limit.kind == "share":
        try:
            share = float(value)
        except ValueError:
            share = math.nan
        if not 0 < share < math.inf:
            raise NodePermissionException(f"{PREFIX}{limit.name} of this node must be a number above 0; {CORRECT_IT}")
        return share
    switch = limit.kind == "switch"
    if not str(value).isdecimal() or len(str(value)) > MOST_DIGITS or (switch and int(value) > 1):
        accepted = "0 or 1" if switch else f"a whole number of at most {MOST_DIGITS} digits"
        raise NodePermissionException(f"{PREFIX}{limit.name} of this node must be {accepted}; {CORRECT_IT}")
    number = int(value)
    if switch:
        return bool(number)
    return max(number, 1) if limit.name in AT_LEAST_ONE else number
