"""The decorator ``partial``: a method's function at a node, as a vantage6 task."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, cast, overload

import numpy as np
from pydantic import BaseModel

from v6_federated import models
from v6_federated.base import json_text
from v6_federated.base.arrays import Array
from v6_federated.base.database import named, read_database
from v6_federated.base.errors import SafeError, place_of
from v6_federated.base.logs import WITHHELD, one_line, print_anything
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import (
    AlgorithmExecutionError,
    NodePermissionException,
    in_container,
    node_task,
)
from v6_federated.messages import codec, in_a_study, settings
from v6_federated.messages.job import Job
from v6_federated.messages.settings import Role
from v6_federated.messages.step_length import check_steps, on_minibatches, steps_asked
from v6_federated.models import metrics, questions
from v6_federated.models.questions import Asked
from v6_federated.node import local_training, masking
from v6_federated.node.masking import SAFE_ERRORS
from v6_federated.node.node import Node
from v6_federated.node.noising import UNCOVERED
from v6_federated.node.request import Request
from v6_federated.node.silence import silent, subnormals_as_zero
from v6_federated.privacy.environment import debugging
from v6_federated.privacy.summands import Declaration, Layout, Loss, Mean, check_declared
from v6_federated.privacy.sums import Change, Sums

ALONE = ("describe", "confirm", "keep_steps")  # they answer nothing that is computed from rows
A_MODEL: Declaration = {"weights": Mean(), "train_loss": Loss()}

Function = Callable[..., dict[str, Any]]


@overload
def partial(function: Function) -> Function: ...


@overload
def partial(
    *, sums: Declaration | None = ..., own_model: bool = ..., single_answers: str = ..., instead: str = ...
) -> Callable[[Function], Function]: ...


def partial(
    function: Function | None = None,
    *,
    sums: Declaration | None = A_MODEL,
    own_model: bool = False,
    single_answers: str = "",
    instead: str = "",
) -> Any:
    """Make ``function(node, arrays..., *, settings...)`` a partial function of vantage6.

    Before the function runs, the settings are checked against its annotations, the operator's limits are checked, and
    if central asks for it, the incoming ``weights`` are evaluated. No error's text contains a value of a row.

    Args:
        function: gets a ``Node``, the arrays that central sent, by name (those with the default None may be missing),
            and the settings as keyword arguments. It returns a dictionary of arrays, numbers, truth values and None.
        sums: what its answer is a sum of where central learns sums only, by the names of what it returns: ``Count``,
            ``Sum``, ``Mean``, ``Loss`` and ``Truth``, or a function of what the task asks for that returns these, see
            ``questions.Asked``. A node adds up nothing else. By default, the mean of the models and their loss. None:
            it answers alone, and says nothing of rows.
        own_model: whether a request to evaluate is about the model that the function gives to
            ``Node.keep_own_model``, and not about the incoming weights.
        single_answers: why the function needs single answers, as ``central`` says it of a method; empty if its answers
            may be added up. A function that compares a number of its rows with one of the task must not be: the sum
            would count the hospitals above it.
        instead: what serves in a study that answers sums over rows only (``hospital_totals=hidden``), as far as what
            this function adds up is none.

    Returns:
        The partial function. Its answer holds what ``function`` returns, arrays as a payload and everything else as
        JSON, with ``organization_id``, ``round`` and ``n``, the number of rows.
    """
    if function is None:
        return functools.partial(
            partial, sums=sums, own_model=own_model, single_answers=single_answers, instead=instead
        )
    declaration = None if single_answers else sums
    if declaration is not None:
        check_declared(declaration)
    parameters = inspect.signature(function).parameters.values()
    wanted = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][1:]
    required = [p.name for p in parameters if p.name in wanted and p.default is p.empty]

    accepted = settings.settings_of_partial(function)
    shared = function.__module__.startswith("v6_federated.")

    def computed(
        node: Node, checked: BaseModel, received: Mapping[str, Any], evaluate: str | None
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """What the function returns, and the evaluation of the weights that were sent."""
        evaluation = None
        _check_received(node, received)
        received = _as_model(node, received)
        with subnormals_as_zero():
            for batch_size in settings.with_role(checked, Role.BATCH):
                _check_training(node, checked, batch_size)
            if missing := [name for name in required if received.get(name) is None]:
                raise SafeError(f"the task lacks the array(s) {', '.join(missing)}; send them as central does")
            if evaluate and received.get("weights") is None:
                raise SafeError("the task asks for an evaluation without weights; send the model to evaluate")
            if evaluate and not own_model:
                with node.later():
                    evaluation = node.evaluate(received["weights"], evaluate)
            returned = function(node, **{name: received.get(name) for name in wanted}, **dict(checked))
            if evaluate and own_model:
                with node.later():
                    evaluation = node.evaluate(node.own_model, evaluate)
        returned = {k: v.item() if isinstance(v, np.generic) else v for k, v in returned.items()}
        losses = [k for k, v in returned.items() if k.endswith("loss") and isinstance(v, float)]
        return returned | {k: node.rounded(returned[k]) for k in losses}, evaluation

    def answer_of(
        node: Node, returned: Mapping[str, Any], evaluation: dict[str, Any] | None, rows: bool
    ) -> dict[str, Any]:
        answer: dict[str, Any] = {"organization_id": node.organization_id, "round": node.round}
        if evaluation is not None:
            answer["evaluation"] = evaluation if node.noising is None else node.noising.readable(evaluation)
        sent = {k: _to_numpy(v) for k, v in returned.items() if isinstance(v, np.ndarray) or hasattr(v, "cpu")}
        compressed = {k: v for k, v in returned.items() if isinstance(v, codec.Compressed)}
        if compressed and len(sent) + len(compressed) > 1:
            raise SafeError("the method returns a compressed array and others; it may return one alone")
        others = {k: v for k, v in returned.items() if k not in sent and k not in compressed}
        if not shared:
            _check_plain(others)
        answer |= ({"n": node.n} if rows else {}) | others
        _check_finite(answer)
        if compressed:
            ((name, array),) = compressed.items()
            answer["arrays"] = array.payload(name)
        if sent:
            answer["arrays"] = codec.encode(sent, node.job.precision)
        return answer

    @node_task
    @silent()
    def call(
        client: Any,
        /,
        *,
        job: Any = None,
        round: Any = None,
        evaluate: str | None = None,
        bands: int = 0,
        arrays: dict[str, Any] | None = None,
        sums: Any = None,
        mock_data: list[Any] | None = None,
        **values: Any,
    ) -> dict[str, Any]:
        print_anything()
        organization, request = client.organization_id, None
        arguments = {"job": job, "round": round, "evaluate": evaluate, "arrays": arrays, "sums": sums, **values}
        arguments |= {"bands": bands} if bands else {}
        try:
            request = Request.of(organization, function.__name__, arguments)
            request.check_stopped()
            json_text.check(arguments)
            if mock_data is not None and in_container():
                raise SafeError("mock_data are the rows of a mock node, and this is a real one; leave them out")
            if evaluate and "weights" not in wanted:  # some of these functions are not counted
                raise SafeError(f"{function.__name__} takes no model and evaluates none; call evaluate instead")
            checked = settings.validate(accepted, values)
            told = Job.from_json(job)
            told.check(organization, round)
            received = codec.decode(arrays) if arrays else {}
            summed = None
            if sums is not None:  # before any row is read
                if declaration is None:
                    why = single_answers or "its answer is no sum"
                    raise NodePermissionException(
                        f"{function.__name__} needs aggregation=plain: {why}. {NOTHING_COMPUTED}"
                    )
                asked = Asked(told, values, received, bool(evaluate), bands)
                layout = _layout(declaration, asked, request)
                masking.check_totals(told, request, function.__name__, layout, instead)
                summed = Sums.from_json(sums, layout)
            queries = request.policy.allow_queries and not request.policy.private  # a query can repeat a row
            database = read_database(queries, request.policy.private) if mock_data is None else mock_data[0]
            request.table = named(database)
            for batch_size in settings.with_role(checked, Role.BATCH):
                if batch_size is not None and told.privacy is None:  # masks would hide why, and no row decides it
                    request.policy.check_batch(batch_size)
            if told.privacy is None:  # otherwise noise covers each step
                request.policy.check_local_steps(steps_asked(checked), on_minibatches(checked))
            mode = masking.mode_of(told, request)
            if mode == "pinned":
                _check_in_a_study(checked, function.__name__, own_model)
            schema = masking.schema(request) if mode == "pinned" else None
            node = Node(organization, database, told, round, request, schema)
            if node.noising is not None and function.__name__ == "fit_step":
                raise SafeError(UNCOVERED)
            compute = functools.partial(computed, node, checked, received, evaluate)
            rows: int | None
            if summed is not None:
                summands = functools.partial(_summands, node, bands, received, compute)
                binds = {"evaluate": evaluate, "bands": bands, **values}
                node.known = next(iter(settings.with_role(checked, Role.KEPT)), None)
                answer, rows = masking.answer(node, request, function.__name__, summed, binds, received, summands)
            else:
                alone = shared and function.__name__ in ALONE
                if mode != "plain" and not alone:
                    raise NodePermissionException(
                        f"{function.__name__} is asked for this node's own answer, and this job only has masked ones; "
                        f"its operator would have to set V6_FEDERATED_AGGREGATION=plain. {NOTHING_COMPUTED}"
                    )
                request.count(node.state.version())
                if node.noising is not None:
                    node.noising.renew()
                answer = answer_of(node, *compute(), rows=mode == "plain")
                rows = answer.get("n")
            request.answered(answer, rows)
            return answer
        except SAFE_ERRORS as error:
            text = _noted(request, one_line(error))
            raise type(error)(f"organization {organization}: {text}") from None
        except Exception as error:
            # the text of any other error, for example from numpy or pandas, may quote a row
            where = _noted(request, f"{type(error).__name__} in {place_of(error)}")
            if debugging():
                raise
            raise AlgorithmExecutionError(
                f"organization {organization}: {where}; {WITHHELD} because it could contain a value of a row "
                "(V6_FEDERATED_DEBUG=1 shows it; do not set it at a node with real data)"
            ) from None

    made: Any = functools.update_wrapper(call, function)
    made.single_answers, made.sums, made.instead = single_answers, declaration, instead
    return cast(Callable[..., dict[str, Any]], made)


def _noted(request: Request | None, reason: str) -> str:
    """Note in the audit log that nothing leaves; what the researcher reads is the reason, or that the log is broken."""
    try:
        if request is not None:
            request.refused(reason)
    except NodePermissionException as error:
        return one_line(error)
    return reason


def _check_received(node: Node, received: Mapping[str, Array]) -> None:
    """Reject arrays that are not as long as the model: a longer one could have a number for each row."""
    if not received or node.job.model is None:
        return
    size = node.model.size
    if size is not None and (wrong := [name for name, array in received.items() if array.shape != (size,)]):
        raise SafeError(f"the task sends {', '.join(wrong)} of another shape; expected ({size},)")


def _as_model(node: Node, received: Mapping[str, Array]) -> Mapping[str, Any]:
    return received if node.job.model is None else {k: node.model.asarray(array) for k, array in received.items()}


def _layout(declaration: Declaration, asked: Asked, request: Request) -> Layout:
    """What this node's own code adds up. No row is read for it."""
    if asked.job.model is not None:
        spec = models.parse(asked.job.model)
        request.policy.check_size(models.parameters(spec), f"the model {spec['name']}")
    own = request.policy.score_bands
    # zeros in place of counts in bands that a node does not have would leave the other nodes alone in the sum
    if type(asked.bands) is not int or (asked.bands and asked.bands != own):
        raise SafeError(
            f"the task asks for counts of scores in {asked.bands!r:.20} bands, and this node's operator has set {own} "
            f"(V6_FEDERATED_SCORE_BANDS); ask for {own}, or for none"
        )
    return questions.layout(declaration, asked)


def _summands(
    node: Node,
    bands: int,
    received: Mapping[str, Array],
    compute: Callable[[], tuple[dict[str, Any], dict[str, Any] | None]],
) -> dict[str, Any]:
    """What the function returns, and the evaluation, as numbers that can be added to those of other nodes."""
    returned, evaluation = compute()
    found = {k: _moved(node, v, received.get(k)) for k, v in returned.items() if v is not None}
    found |= {"n": node.n, "has train_loss": "train_loss" in found}
    found.setdefault("train_loss", 0.0)
    if evaluation is None:
        return found
    if node.noising is not None:
        counted = {**evaluation, "bands": evaluation["bands"] if bands else evaluation["bands"][..., :0]}
    elif node.job.data.regression:
        counted = metrics.regression_to_sums(evaluation, node.job.loss)
    else:
        counted = metrics.to_sums(evaluation, len(node.job.data.classes or ()), bands)
    return found | {f"evaluation.{name}": value for name, value in counted.items()}


def _moved(node: Node, value: Any, sent: Array | None) -> Any:
    """A value for sums: the change of an array that was sent, in place of the array."""
    array = _to_numpy(value) if hasattr(value, "cpu") else value
    if sent is None or not isinstance(array, np.ndarray) or array.shape != sent.shape:
        return array
    u = None if node.job.model is None else node.carried(value, node.model.asarray(sent))
    return Change(np.subtract(array, sent, dtype=np.float64) if u is None else _to_numpy(u).astype(np.float64))


def _check_in_a_study(checked: BaseModel, function: str, own_model: bool) -> None:
    """Refuse what would tell single hospitals apart, whatever their rows are."""
    in_a_study.check(checked)
    if own_model:
        raise SafeError(
            f"{function} evaluates a model of each hospital's own, and their sum would show numbers of single "
            "hospitals in a study; leave personalize out"
        )


def _check_training(node: Node, checked: BaseModel, batch_size: int | None) -> None:
    """Reject a task whose steps would single out rows, see ``step_length.check_pull``."""
    if node.round < 1:  # rates that decay would be larger before round 1
        raise SafeError(f"training rounds start at 1; got {node.round}")
    if batch_size is None:
        return
    several = node.steps_per_epoch(batch_size) > 1  # otherwise each step is on all rows
    penalty = float(getattr(node.model, "l2", 0))
    if node.pinned:  # a sum shows whether a node has refused, which must not depend on its number of rows
        check_steps(checked, penalty, share=1.0)
    elif several:
        n = len(node.rows)
        check_steps(checked, penalty, local_training.largest(n, batch_size, node.minimum_batch) / n)
    if several:
        node.batch_sizes.add(batch_size)


def _check_plain(values: Mapping[str, Any]) -> None:
    """Reject lists and texts: they could hold a row. Only the shared functions name columns, classes and levels."""
    for name, value in values.items():
        if value is not None and not isinstance(value, bool | int | float):
            raise SafeError(f"the method returns {name} as a {type(value).__name__}; it may return arrays and numbers")


def _check_finite(value: Any, name: str = "the answer") -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise SafeError(f"{name} is not finite; {codec.DIVERGED}")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_finite(inner, key)


def _to_numpy(array: Any) -> Array:
    found: Array = array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()
    return found
