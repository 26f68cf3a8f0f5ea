"""Checks of the earlier result that a job goes on from. The researcher sends it, so none of it is trusted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import UserInputError
from v6_federated.central import checkpoint
from v6_federated.data import preprocessing
from v6_federated.data.steps import Step
from v6_federated.messages import codec, result
from v6_federated.messages.common import Common

SAME = ("label", "features", "classes", "holdout")  # settings that must be as before, if they are set


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
    if asked.class_weights != kept["settings"].get("class_weights"):
        raise UserInputError("resume: the earlier job had other class_weights; expected the same")
    alike = {"features": 0, "classes": 0, "weights": None, "loss": None}  # these depend on the data
    if {**models.parse(asked.named_model), **alike} != {**kept["model"], **alike}:
        raise UserInputError(
            f"resume: the earlier job had the model {kept['model']['name']!r} or other options of it; expected the same"
        )
    steps, earlier = _parsed(asked.preprocess), kept["settings"].get("preprocess")
    fitted = [step["step"] for step in kept["data"]["preprocess"]]
    if steps and [step.name for step in steps] != fitted:
        raise UserInputError(f"resume: the earlier job had the steps {fitted}; expected the same, or none")
    if steps and earlier and steps != _parsed(earlier):
        raise UserInputError(f"resume: the earlier job had the steps {earlier}; expected the same, or none")
    finished, evaluated = len(kept["history"]), kept["final"] is not None
    if rounds is not None and (rounds < finished or (rounds == finished and evaluated)):  # only the evaluation is left
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
    regression = isinstance(data, dict) and bool(data.get("regression"))
    if asked.regression != regression:
        found = "a number" if regression else "a class"
        raise UserInputError(f"resume: the earlier job predicts {found}; expected the same")
    model, asked_loss = kept.get("model"), getattr(asked, "loss", "cross_entropy")
    outcome = model.get("loss") if isinstance(model, dict) else None
    loss = outcome.get("name") if isinstance(outcome, dict) else "cross_entropy"
    if loss != asked_loss:
        raise UserInputError(f"resume: the earlier job had loss={loss}; expected the same, not {asked_loss}")


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
    """Check that the earlier result has the form of one, and that its parts can be read."""
    try:
        result.check(kept)
        for part, read in READERS.items():
            try:
                read(kept[part])
            except (KeyError, TypeError, IndexError, AttributeError, ValueError, AssertionError):
                raise SafeError(f"{part}: it cannot be read") from None
    except SafeError as error:
        raise UserInputError(
            f"resume: not a result ({error}); expected the whole result.json of an earlier job"
        ) from None


def _read_state(state: Any) -> None:
    if not isinstance(checkpoint.from_json(state), dict):
        raise TypeError


def _parsed(steps: Sequence[Any]) -> list[Step]:
    return [preprocessing.parse(step) for step in steps]


READERS: dict[str, Callable[[Any], object]] = {  # of parts whose contents have a form of their own
    "settings": lambda settings: _parsed(settings.get("preprocess", [])),
    "state": _read_state,
    "weights": lambda weights: codec.decode(weights)["weights"],
    "model": models.build,
}
