"""The decorator ``central``: a method's server, as a vantage6 task."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from v6_federated.base import database, json_text
from v6_federated.base.errors import Interrupted, SafeError, place_of
from v6_federated.base.logs import print_anything
from v6_federated.base.vantage6_api import CollectResultsError, ServerAway, UserInputError, central_task
from v6_federated.central import charts, noise_plan
from v6_federated.central.federation import Federation
from v6_federated.central.method import Method, Result
from v6_federated.messages import settings
from v6_federated.messages.common import Common
from v6_federated.rules.environment import debugging, limit_threads


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

    def decorate(server: Callable[..., Result]) -> Any:
        of_settings = check, not_in_a_study, of_hospitals
        method = Method(server, supervised, recoverable, single_answers, missing, private, common, *of_settings)

        @central_task
        def call(client: Any, /, **values: Any) -> Result:
            return run(method, client, values)

        functools.update_wrapper(call, server)
        call.settings, call.check = method.settings, method.check
        call.supervised, call.recoverable = supervised, recoverable
        call.single_answers = "" if callable(single_answers) else single_answers  # whatever the settings are
        call.why_single, call.of_hospitals = method.why_single, of_hospitals
        call.private, call.plan_of, call.missing, call.known_as = bool(private), method.plan_of, missing, known_as
        return call

    return decorate if function is None else decorate(function)


def run(method: Method, client: Any, values: dict[str, Any]) -> Result:
    """Run a job, with the settings of a task; it raises UserInputError if they are wrong."""
    print_anything()
    try:
        database.check_alone()
        json_text.check(values)
        checked = settings.validate(method.settings, values)
        method.check(checked)
        federation = Federation(client, method, checked, method.plan_of(checked))
    except ValueError as error:
        raise UserInputError(str(error)) from None
    limit_threads()  # with another number of threads, eigenvectors differ in their last bits
    try:
        federation.prepare()
        return charts.added(method.server(federation, **settings.arguments(method.server, checked)))
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
