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
from v6_federated.messages.job import COLUMNS
from v6_federated.messages.settings import with_words

# settings that must be as before, if they are set; the earlier job's data say what they were
SAME = ("label", "features", "classes", "holdout")
SAME_NAMES = ("exclude", "start_from")  # the same, and only the earlier job's settings say what they were


def check(
    kept: Mapping[str, Any], method: str, asked: Common, organizations: Sequence[int], rounds: int | None
) -> None:
    """Check that a job can go on from an earlier result."""
    check_kind(kept, method, asked)
    _check_same_rows(kept, asked, organizations)
    _check_form(kept)
    if asked.class_weights != (before := kept["settings"].get("class_weights")):
        raise _changed("class_weights", before, asked.class_weights)
    alike = {"features": 0, "classes": 0, "weights": None, "loss": None}  # these depend on the data
    earlier_model, model = {**kept["model"], **alike}, {**models.parse(asked.named_model), **alike}
    if model != earlier_model:
        other = [name for name in {**earlier_model, **model} if earlier_model.get(name) != model.get(name)]
        raise _differ("the model " + _named(earlier_model, other), _named(model, other))
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
    """Check the method and objective of an earlier result, and settings that decide what its model answers."""
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
    _check_columns(data if isinstance(data, dict) else {}, asked)
    settings = kept.get("settings")
    if isinstance(settings, dict):  # otherwise it is no result, which is found later
        _check_settings(settings, asked)


def _check_columns(data: Mapping[str, Any], asked: Common) -> None:
    """Check the columns that count or weight rows: the earlier job's are used, also if it has none."""
    for name in COLUMNS:
        now, before = getattr(asked, name, None), data.get(name)
        if now is not None and now != before:
            raise _changed(name, before, now)


def _check_settings(before: Mapping[str, Any], asked: Common) -> None:
    """Check settings that a new round cannot change any more, so that they would be ignored."""
    before, now = with_words(type(asked), before), asked.model_dump(mode="json", exclude={"resume"})
    for name in SAME_NAMES:
        if now[name] is not None and now[name] != before.get(name):
            raise _changed(name, before.get(name), now[name])
    for name in asked.same_when_resumed:
        if now[name] != (was := before.get(name, type(asked).model_fields[name].default)):
            raise _changed(name, was, now[name])
    if now.get("clip") is not None and before.get("clip") is None:
        raise UserInputError(
            "resume: the earlier job had no clip, so its model may tell more about rows than any epsilon says; leave "
            "clip out, or start a new job without resume"
        )


def _changed(name: str, before: Any, now: Any) -> UserInputError:
    return _differ(f"no {name}" if before is None else f"{name}={before!r}", "none" if now is None else repr(now))


def _differ(had: str, wanted: str) -> UserInputError:
    return UserInputError(f"resume: the earlier job had {had}; expected the same, not {wanted}: that needs a new job")


def _named(model: Mapping[str, Any], options: Sequence[str]) -> str:
    """A model by its name and some of its options."""
    said = [f"{name}={model[name]!r}" for name in options if name != "name" and name in model]
    return " with ".join([repr(model["name"]), *([", ".join(said)] if said else [])])


def _check_same_rows(kept: Mapping[str, Any], asked: Common, organizations: Sequence[int]) -> None:
    """Check that hospitals, rows and classes are as before; settings that are unset are taken from the earlier job."""
    data = kept.get("data")
    before = {**(data if isinstance(data, dict) else {}), "organizations": kept.get("organizations")}
    now = {"organizations": [*organizations], **{name: getattr(asked, name) for name in SAME}}
    for name, value in now.items():
        if value is not None and before.get(name) is not None and before[name] != value:
            raise _changed(name, before[name], value)


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
