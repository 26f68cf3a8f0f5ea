"""What makes a method's functions callable as vantage6 tasks: the decorators ``central`` and ``partial``, and the
partial functions that methods offer beside their own: ``describe``, ``fit_step``, ``keep_steps``, ``evaluate`` and
``forget``."""

import contextlib
import functools
import inspect
import math
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from v6_federated import codec, components, metrics, preprocess, settings, statistics, training
from v6_federated.data import plain
from v6_federated.errors import Interrupted, SafeError
from v6_federated.features import kinds
from v6_federated.federation import Federation
from v6_federated.node import Job, Node, limit_threads
from v6_federated.settings import Role
from v6_federated.vantage import (
    WITHHELD,
    AlgorithmExecutionError,
    CollectResultsError,
    DataError,
    NodePermissionException,
    PrivacyThresholdViolation,
    UserInputError,
    algorithm_client,
    read_database,
)

OF_MODELS = ("model", "classes", "target", "evaluate_every", "precision")  # settings of no use without a model
SAFE_ERRORS = (SafeError, DataError, NodePermissionException, PrivacyThresholdViolation, UserInputError)


def central(
    function: Callable[..., dict[str, Any]],
    *,
    supervised: bool = True,
    told_in_full: bool = False,
    check: Callable[[Any], None] = lambda settings: None,
) -> Callable[..., dict[str, Any]]:
    """Make ``function(federation, *, settings...)`` a central function: ``central(client, **settings)``.

    The settings are checked against the function's annotations; the federation is prepared (every node describes its
    data, preprocessing is fitted, the model is built) before the function starts. A job that cannot go on after its
    first round returns the model of the last one, and why under ``stopped``. Raises UserInputError for wrong settings.

    Args:
        supervised: whether the method has labels, and a model to train.
        told_in_full: whether nodes are told, in each round, all that the method carries: then a job whose central was
            lost can go on from its tasks.
        check: refuses settings that do not fit each other.
    """

    def check_all(checked: Any) -> None:
        if not supervised and (idle := settings.changed(checked, OF_MODELS)):
            raise SafeError(f"{', '.join(idle)} is of no use to {method}, which trains no model; leave it out")
        training.check_settings(checked)
        check(checked)

    accepted = settings.settings_of(function)
    method = function.__module__.split(".")[0].removeprefix("v6_")

    @algorithm_client
    def call(client: Any, **values: Any) -> dict[str, Any]:
        try:
            checked = settings.validate(accepted, values)
            check_all(checked)
            federation = Federation(client, method, checked, supervised)
        except ValueError as error:
            raise UserInputError(str(error)) from None
        common = set(settings.Common.model_fields)
        limit_threads()  # eigenvectors of a covariance have other bits with other numbers of threads
        try:
            federation.prepare()
            return function(federation, **{k: v for k, v in checked if k not in common})
        except Exception as error:
            foreseen = isinstance(error, UserInputError | CollectResultsError | SafeError)
            if not foreseen and os.environ.get("V6_FEDERATED_DEBUG") == "1":
                federation.give_up()
                raise
            where = "" if foreseen else f"{type(error).__name__} at the coordinator, in {_place(error)}: "
            result = federation.stopped(f"{where}{error}")
            if result is None:
                raise
            return result  # what has been trained is not lost
        except KeyboardInterrupt:  # on mock nodes
            with contextlib.suppress(Exception):
                if (result := federation.stopped("interrupted")) is not None:
                    raise Interrupted(result) from None
            raise
        except BaseException:
            federation.give_up()
            raise

    functools.update_wrapper(call, function)
    call.settings, call.check = accepted, check_all
    call.supervised, call.told_in_full = supervised, told_in_full
    return call


def partial(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Make ``function(node, arrays..., *, settings...)`` a partial function of vantage6.

    It gets a ``Node`` whose policy has been checked, and the arrays that central sent, by name. What it returns is
    sent back: arrays as payload, everything else as JSON, with ``organization_id`` and ``n``. Where central asks, the
    incoming ``weights`` are evaluated first.
    """
    parameters = inspect.signature(function).parameters.values()
    wanted = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][1:]

    accepted = settings.settings_of_partial(function)

    @algorithm_client
    def call(
        client: Any,
        *,
        job: dict[str, Any],
        round: int,
        evaluate: str | None = None,
        scale: float = metrics.SCALE,
        centers: list[float] | None = None,
        arrays: dict[str, Any] | None = None,
        mock_data: list[Any] | None = None,
        **values: Any,
    ) -> dict[str, Any]:
        organization = client.organization_id
        try:
            classes = job.get("data", {}).get("classes") if isinstance(job, dict) else None
            if not metrics.is_placement(scale, centers, len(classes) if isinstance(classes, list) else None):
                raise SafeError(
                    "the scores' bands cannot be placed; expected a scale from 0.0001 to 10000, and for each problem a "
                    "centre of at most 10000"
                )
            checked = settings.validate(accepted, values)
            database = read_database() if mock_data is None else mock_data[0]
            node = Node(organization, database, Job.from_json(job), round)
            received = _received(node, arrays) if arrays else {}
            answer: dict[str, Any] = {"organization_id": node.organization_id, "round": round}
            with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are refused
                for batch_size in settings.with_role(checked, Role.BATCH):
                    _check_training(node, checked, batch_size)
                if evaluate:
                    answer["evaluation"] = node.evaluate(received["weights"], evaluate, scale, centers)
                returned = function(node, *(received.get(name) for name in wanted), **dict(checked))
            returned = {k: v.item() if isinstance(v, np.generic) else v for k, v in returned.items()}
            sent = {k: _to_numpy(v) for k, v in returned.items() if isinstance(v, np.ndarray) or hasattr(v, "cpu")}
            answer |= {"n": node.n} | {k: v for k, v in returned.items() if k not in sent}
            _check_finite(answer)
            if sent:
                answer["arrays"] = codec.encode(sent, node.job.precision)
            return answer
        except SAFE_ERRORS as error:
            raise type(error)(f"organization {organization}: {error}") from None
        except Exception as error:
            # the text of any other error, numpy's or pandas', may quote a row
            if os.environ.get("V6_FEDERATED_DEBUG") == "1":
                raise
            raise AlgorithmExecutionError(
                f"organization {organization}: {type(error).__name__} in {_place(error)}; {WITHHELD}, it could hold a "
                "value of a row (V6_FEDERATED_DEBUG=1 shows it)"
            ) from None

    functools.update_wrapper(call, function)
    call.wrapped_in_data_decorator = True  # vantage6's mock client then passes mock_data
    return call


def _place(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(place.filename).name}, line {place.lineno}"


def _received(node: Node, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays that central sent, each as long as the model where it has one of fixed size: of another shape, it
    could have a number for each row."""
    received = codec.decode(arrays)
    if node.job.model is None:
        return received
    size = node.model.size
    if size is not None and (wrong := [name for name, array in received.items() if array.shape != (size,)]):
        raise SafeError(f"the task sends {', '.join(wrong)} of another shape than the model has; expected ({size},)")
    return {name: node.model.asarray(array) for name, array in received.items()}


def _check_training(node: Node, checked: BaseModel, batch_size: int | None) -> None:
    """Refuse a task whose steps would single out rows, see ``training.check_pull``; rates would grow before round 1."""
    if node.round < 1:
        raise SafeError(f"round {node.round} is none of training; expected a whole number from 1")
    if batch_size is not None and node.steps_per_epoch(batch_size) > 1:  # else each step is of all rows
        n = len(node.rows)
        share = training.largest(n, batch_size, node.policy.minimum_batch) / n
        training.check_steps(checked, float(getattr(node.model, "l2", 0)), share)
        node.batch_sizes.add(batch_size)


def _check_finite(value: Any, name: str = "the answer") -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise SafeError(f"{name} is not finite; {codec.DIVERGED}")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_finite(inner, key)


def _to_numpy(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()


@partial
def describe(node: Node, *, raw: bool) -> dict[str, Any]:
    """What central must know first: feature names, label values that enough rows have.

    Where steps are to follow (``raw``), columns may hold words and missing values, and are told by their kind.
    """
    spec = node.job.data
    features, label = node.source.columns(spec)
    answer: dict[str, Any] = {"label": label}
    if raw and node.source.table is not None:
        answer |= {"features": features, "kinds": kinds(node.source.table, features)}
    else:
        answer["features"] = features or node.rows.X.shape[1]
    if spec.classes is None and spec.supervised and not spec.regression:
        values, counts = np.unique(node.source.labels(spec), return_counts=True)
        node.policy.check_classes(len(values))
        answer["classes"] = [
            plain(v) for v, count in zip(values, counts, strict=True) if count >= node.policy.minimum_rows_a_class
        ]
    return answer


@partial
def fit_step(
    node: Node,
    mean: Any,
    scale: Any,
    lower: Any,
    upper: Any,
    *,
    statistic: Literal["moments", "present", "below", "levels", "covariance", "product"],
    columns: list[str] | None = None,
    counts: bool = False,
    draw: int | None = None,
    block: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A statistic of the training rows that a preprocessing step, or PCA, is fitted to; see ``preprocess``."""
    arrays = {"mean": mean, "scale": scale, "lower": lower, "upper": upper}
    features, columns, policy = node.features, columns or [], node.policy
    if statistic == "product":
        arrays["block"] = components.read_block(len(features.names), draw, block)
    if statistic == "levels":
        statistics.check_categories(columns, node.source.training(node.job.data, node.organization_id, policy), policy)
    return statistics.statistic(statistic, features, policy, columns, counts, arrays)


@partial
def keep_steps(node: Node) -> dict[str, Any]:
    """Keep the job's fitted steps, so that later tasks only name them."""
    preprocess.keep(node.job.data.preprocess, node.state)
    return {}


@algorithm_client
def forget(client: Any, *, job: dict[str, Any], round: int, mock_data: Any = None) -> dict[str, Any]:
    """Remove what this node keeps for the job; no limit of the node stops it."""
    Node.state_of(client.organization_id, Job.from_json(job), round).remove()
    return {"organization_id": client.organization_id, "round": round, "n": 0}


forget.wrapped_in_data_decorator = True


@partial
def evaluate(node: Node, weights: Any) -> dict[str, Any]:
    """How well the weights do at this node; the decorator has put the answer together."""
    return {}
