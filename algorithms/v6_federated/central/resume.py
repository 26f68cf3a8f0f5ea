"""Checks of the earlier result that a job goes on from. The researcher sends it, so none of it is trusted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from v6_federated import models
from v6_federated.base.vantage6_api import UserInputError
from v6_federated.central import checkpoint
from v6_federated.data import preprocessing
from v6_federated.data.steps import Step
from v6_federated.messages import codec
from v6_federated.messages.common import Common
from v6_federated.messages.job import DataSpec

SAME = ("label", "features", "classes", "holdout")  # settings that must be as before, if they are set
NUMBERS = ("loss", "accuracy", "auc", "n", "bytes_up", "bytes_down", "seconds")  # of a row of history
BYTES = ("bytes_up", "bytes_down")


def check(
    kept: Mapping[str, Any], method: str, asked: Common, organizations: Sequence[int], rounds: int | None
) -> None:
    """Check that a job can go on from an earlier result.

    Args:
        kept: the earlier result.
        method: the method.
        asked: the job's settings.
        organizations: ids of those that train.
        rounds: rounds of the job in all, the earlier ones included; None if the method counts none.

    Raises:
        UserInputError: it cannot; one line says why.
    """
    check_kind(kept, method, asked)
    _check_same_rows(kept, asked, organizations)
    _check_form(kept)
    alike = {"features": 0, "classes": 0}  # these depend on the data
    if {**models.parse(asked.model), **alike} != {**kept["model"], **alike}:
        raise UserInputError(
            f"resume: the earlier job had the model {kept['model']['name']!r} or other options of it; expected the same"
        )
    steps, earlier = _parsed(asked.preprocess), kept["settings"].get("preprocess")
    fitted = [step["step"] for step in kept["data"]["preprocess"]]
    if steps and [step.name for step in steps] != fitted:
        raise UserInputError(f"resume: the earlier job had the steps {fitted}; expected the same, or none")
    if steps and earlier and steps != _parsed(earlier):
        raise UserInputError(f"resume: the earlier job had the steps {earlier}; expected the same, or none")
    finished = len(kept["history"])
    if rounds is not None and rounds <= finished:
        raise UserInputError(
            f"rounds={rounds}: the earlier job has {finished} rounds already; expected more, which includes these"
        )


def check_kind(kept: Mapping[str, Any], method: str, asked: Any) -> None:
    """Check the method and objective of an earlier result.

    Args:
        kept: the earlier result.
        method: the method.
        asked: the job's settings.

    Raises:
        UserInputError: they differ.
    """
    if kept.get("method") != method:
        raise UserInputError(f"resume: a result of the method {kept.get('method')!r}; expected one of {method!r}")
    data = kept.get("data")
    objective = "regression" if isinstance(data, dict) and data.get("regression") else "classification"
    if getattr(asked, "objective", objective) != objective:
        raise UserInputError(f"resume: a result of objective={objective!r}; expected the same objective")


def _check_same_rows(kept: Mapping[str, Any], asked: Common, organizations: Sequence[int]) -> None:
    """Check that hospitals, rows and classes are as before; settings that are unset are taken from the earlier job."""
    data = kept.get("data")
    before = {**(data if isinstance(data, dict) else {}), "organizations": kept.get("organizations")}
    now = {"organizations": [*organizations], **{name: getattr(asked, name) for name in SAME}}
    for name, value in now.items():
        if value is not None and before.get(name) is not None and before[name] != value:
            raise UserInputError(
                f"resume: the earlier job had {name}={before[name]!r}; expected the same, not {value!r}"
            )


def _check_form(kept: Mapping[str, Any]) -> None:
    """Check that each part of the earlier result is there and has its form."""
    for part, check_part in FORMS.items():
        try:
            check_part(kept[part])
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, AssertionError):
            raise UserInputError(
                f"resume: not a result, its {part} is missing or malformed; expected the whole result.json of an "
                "earlier job"
            ) from None


def _check_data(data: Any) -> None:
    spec = DataSpec(**data)
    if (spec.classes is None) != spec.regression:
        raise ValueError
    for step in spec.preprocess:
        step["step"], step["fitted"]


def _check_history(history: Any) -> None:
    if not history or [row["round"] for row in history] != list(range(1, len(history) + 1)):
        raise ValueError
    for row in history:
        if not isinstance(row["participants"], list) or not all(_is_number(row[name], none=True) for name in NUMBERS):
            raise TypeError


def _check_per_node(rows: Any) -> None:
    if not all(_is_number(row["round"]) and _is_number(row["organization_id"]) for row in rows):
        raise TypeError


def _check_traffic(traffic: Any) -> None:
    if not all(_is_number(traffic[part][name]) for part in ("preparation", "evaluation") for name in BYTES):
        raise TypeError


def _check_undescribed(undescribed: Any) -> None:
    if not isinstance(undescribed, list):
        raise TypeError


def _check_settings(settings: Any) -> None:
    _parsed(settings.get("preprocess", []))


def _check_state(state: Any) -> None:
    if not isinstance(checkpoint.from_json(state), dict):
        raise TypeError


def _check_weights(weights: Any) -> None:
    codec.decode(weights)["weights"]


def _is_number(value: Any, none: bool = False) -> bool:
    return (none and value is None) or (isinstance(value, int | float) and not isinstance(value, bool))


def _parsed(steps: Sequence[Any]) -> list[Step]:
    return [preprocessing.parse(step) for step in steps]


FORMS: dict[str, Callable[[Any], object]] = {  # what each part of a result must pass
    "data": _check_data,
    "history": _check_history,
    "per_node": _check_per_node,
    "traffic": _check_traffic,
    "undescribed": _check_undescribed,
    "settings": _check_settings,
    "state": _check_state,
    "weights": _check_weights,
    "model": models.build,
}
