"""The decorator ``central``: a method's server, as a vantage6 task."""

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from v6_federated import models
from v6_federated.base import database, json_text
from v6_federated.base.errors import Interrupted, SafeError, place_of
from v6_federated.base.logs import print_anything
from v6_federated.base.vantage6_api import CollectResultsError, ServerAway, UserInputError, central_task
from v6_federated.central import charts, noise_plan
from v6_federated.central.federation import Federation
from v6_federated.data import preprocessing
from v6_federated.masks.summands import Declaration
from v6_federated.messages import in_a_study, relations, settings
from v6_federated.messages.common import Common, Training, TrainingWithNoise, WithNoise
from v6_federated.messages.settings import Role, with_role
from v6_federated.messages.step_length import check_steps
from v6_federated.rules.environment import debugging, limit_threads

Result = dict[str, Any]  # JSON: see docs/reference/result.md
# settings for methods that train a model
OF_MODELS = (
    "model",
    "start_from",
    "classes",
    "class_weights",
    "subgroup",
    "holdout",
    "evaluators",
    "target",
    "until_converged",
    "evaluate_every",
    "precision",
)


def central(
    function: Callable[..., dict[str, Any]] | None = None,
    *,
    supervised: bool = True,
    recoverable: bool = False,
    single_answers: str | Callable[[Any], str] = "",
    missing: bool = False,
    known_as: Mapping[str, str] = MappingProxyType({}),
    private: bool | noise_plan.Planner = False,
    common: type[Common] | None = None,
    check: Callable[[Any], None] = lambda settings: None,
    not_in_a_study: Callable[[Any], str] = lambda settings: "",
    of_hospitals: Callable[[Any], str] = lambda settings: "",
) -> Any:
    """Make ``function(federation, *, settings...)`` a central function of vantage6: ``central(client, **settings)``.

    Use it as ``@central`` or ``@central(recoverable=True)``. The settings are checked against the function's
    annotations; before the function starts, every node describes its data, preprocessing is fitted and the model is
    built. If a job cannot go on after its first round, it returns the model of the last round, with the reason under
    ``stopped``.

    Args:
        function: the method's server.
        supervised: whether the method has labels, and a model to train.
        recoverable: whether every round sends the nodes all that the method carries from round to round, under the
            names in ``federation.start`` (the model as ``weights``). A job whose central was lost can then go on from
            the last tasks.
        single_answers: why the method needs single answers, so that it only runs where nodes allow aggregation=plain;
            empty if sums over nodes suffice. A function of the settings if only some of them need single answers.
        missing: whether the model takes missing values as they are; its attribute ``takes_missing`` is then True.
        known_as: other names, in small letters, of what the method does with some settings, and these settings as
            options. An error that knows no method of such a name points here.
        private: whether nodes read their rows for nothing but what noise can be added to: ``Node.train``,
            ``Node.noisy_gradient``, ``Node.noisy_sum`` and evaluations. A function of the settings says what the
            method asks of a node in all; True means ``epochs`` in each round. The method then takes the settings of
            ``WithNoise`` too (``TrainingWithNoise`` if it has labels); a ``common`` of its own must be one of these.
        common: the settings that every method takes; None: those of methods that train step by step, ``Training``, or
            of methods without labels, ``Common``. A method that accepts fewer values of some declares these again in a
            subclass of ``Common``, with a narrower type.
        check: raises a SafeError for settings that do not fit each other, as far as ``Needs`` and ``Excludes`` in their
            annotations do not say it.
        not_in_a_study: says of settings why they cannot be used with aggregation=pinned, and what to use in their
            place; empty if they can.
        of_hospitals: says of settings which sums are no sums over rows, and what serves instead in a study that answers
            sums over rows only (``hospital_totals=hidden``); empty if all are.

    Returns:
        The central function. Its attributes ``settings``, ``check``, ``supervised``, ``recoverable`` and others hold
        what the method declares. It raises UserInputError for wrong settings.
    """
    if function is None:
        return functools.partial(
            central,
            supervised=supervised,
            recoverable=recoverable,
            single_answers=single_answers,
            missing=missing,
            known_as=known_as,
            private=private,
            common=common,
            check=check,
            not_in_a_study=not_in_a_study,
            of_hospitals=of_hospitals,
        )
    method_function = function
    if common is None and private:
        common = TrainingWithNoise if supervised else WithNoise
    elif common is None:
        common = Training if supervised else Common
    accepted = settings.settings_of(function, common)
    accepted.unused = _unused(accepted, supervised)
    plan_of = functools.partial(noise_plan.plan_of, planned=private if callable(private) else noise_plan.training_plan)
    package = function.__module__.split(".")[0]
    method = package.removeprefix("v6_")

    def why_single(checked: Any) -> str:
        return single_answers(checked) if callable(single_answers) else single_answers

    def check_study(checked: Any) -> None:
        in_a_study.check(checked)
        if reason := not_in_a_study(checked):
            raise SafeError(reason)

    def declared(name: str) -> Declaration | None:
        """What a function that a task may call, which its package exports, declares as its sums."""
        found: Declaration | None = getattr(getattr(sys.modules[package], name, None), "sums", None)
        return found

    def instead(name: str) -> str:
        """What serves in its place where only sums over rows are answered."""
        said: str = getattr(getattr(sys.modules[package], name, None), "instead", "")
        return said

    def check_all(checked: Any) -> None:
        if (why := why_single(checked)) and checked.aggregation in ("masked", "pinned"):
            raise SafeError(f"{method} needs aggregation=plain: {why}")
        relations.check(checked, method)
        for step in checked.preprocess:
            preprocessing.parse(step)
        _check_training(checked)
        noise_plan.check(checked, method, bool(why))
        check(checked)
        if checked.aggregation == "pinned":
            check_study(checked)
        if getattr(checked, "loss", "") == "cox" and 1 in with_role(checked, Role.BATCH):
            raise SafeError(
                "minibatches of one row have no partial likelihood, as loss=cox compares rows; set batch_size, for "
                "example batch_size=32, or batch_size=none for all rows of a node"
            )

    @central_task
    def call(client: Any, /, **values: Any) -> dict[str, Any]:
        print_anything()
        try:
            database.check_alone()
            json_text.check(values)
            checked = settings.validate(accepted, values)
            check_all(checked)
            single = why_single(checked)
            plan = plan_of(checked)
            of_sums = check_study, declared, of_hospitals, instead, recoverable
            federation = Federation(client, method, checked, supervised, single, missing, plan, *of_sums)
        except ValueError as error:
            raise UserInputError(str(error)) from None
        limit_threads()  # with another number of threads, eigenvectors differ in their last bits
        try:
            federation.prepare()
            return charts.added(method_function(federation, **settings.arguments(method_function, checked)))
        except Exception as error:
            expected = isinstance(error, UserInputError | CollectResultsError | SafeError)
            if not expected and debugging():
                federation.give_up()
                raise
            where = "" if expected else f"{type(error).__name__} at the coordinator, in {place_of(error)}: "
            certain = isinstance(error, SafeError) or getattr(error, "refused", False)
            away = isinstance(error, ServerAway)
            result = federation.stopped(f"{where}{error}", resumable=not certain, away=away)
            if result is None:
                raise
            return charts.added(result)  # so that the trained model is not lost
        except KeyboardInterrupt:  # on mock nodes
            with contextlib.suppress(Exception):
                if (result := federation.stopped("interrupted")) is not None:
                    raise Interrupted(charts.added(result)) from None
            raise
        except BaseException:
            federation.give_up()
            raise

    functools.update_wrapper(call, function)
    call.settings, call.check = accepted, check_all
    call.supervised, call.recoverable = supervised, recoverable
    call.single_answers = "" if callable(single_answers) else single_answers  # whatever the settings are
    call.why_single, call.of_hospitals = why_single, of_hospitals
    call.private, call.plan_of, call.missing, call.known_as = bool(private), plan_of, missing, known_as
    return call


def _unused(declared: type[Common], supervised: bool) -> dict[str, str]:
    """The settings that have no effect on a method, and why."""
    idle = {} if supervised else dict.fromkeys(OF_MODELS, "which trains no model")
    if not declared.evaluates:
        idle |= dict.fromkeys(("target", "subgroup"), "which evaluates no model")
    if declared.times_only:  # it has curves of groups
        idle.pop("subgroup", None)
    return {**idle, **declared.unused}


def _check_training(checked: Common) -> None:
    """Reject a model or a learning rate that nodes would reject, before any node is asked."""
    if isinstance(checked, Training) and not (checked.regression and checked.loss == "cross_entropy"):
        models.check_loss(models.parse(checked.named_model), checked.loss)
    penalty = models.parse(checked.named_model).get("l2", 0)
    if any(with_role(checked, Role.BATCH)):  # without minibatches, each step is on all rows
        check_steps(checked, penalty)
