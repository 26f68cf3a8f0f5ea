"""The decorator ``partial``: a method's function at a node, as a vantage6 task, in four steps.

``read`` turns the message into what it asks for, ``check`` compares that with what the operator allows, ``compute``
runs the method's function on the rows, and ``release`` is the only place at which an answer leaves.
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast, overload

import numpy as np
from pydantic import BaseModel

from v6_federated import models
from v6_federated.base import json_text
from v6_federated.base.arrays import Array
from v6_federated.base.database import named, read_database
from v6_federated.base.errors import SafeError, place_of
from v6_federated.base.logs import WITHHELD, one_line, print_anything
from v6_federated.base.text import DIVERGED, NOTHING_COMPUTED
from v6_federated.base.vantage6_api import (
    AlgorithmExecutionError,
    NodePermissionException,
    in_container,
    node_task,
)
from v6_federated.gate import under_masks
from v6_federated.gate.under_masks import SAFE_ERRORS
from v6_federated.masks.summands import Declaration, Layout, Loss, Mean, check_declared
from v6_federated.masks.summing import Change, Sums
from v6_federated.messages import codec, in_a_study, settings
from v6_federated.messages.job import Job
from v6_federated.messages.settings import Role
from v6_federated.messages.step_length import check_steps, on_minibatches, steps_asked
from v6_federated.models import layouts, metrics
from v6_federated.models.layouts import Asked
from v6_federated.node import local_training
from v6_federated.node.node import Node
from v6_federated.node.noising import UNCOVERED
from v6_federated.node.request import Request
from v6_federated.node.silence import silent, subnormals_as_zero
from v6_federated.rules.environment import debugging

ALONE = ("describe", "confirm", "keep_steps")  # they answer nothing that is computed from rows
A_MODEL: Declaration = {"weights": Mean(), "train_loss": Loss()}

Function = Callable[..., dict[str, Any]]
Computed: TypeAlias = tuple[dict[str, Any], dict[str, Any] | None]  # what a function returns, and an evaluation


@dataclass(frozen=True)
class Declared:
    """A partial function, as its developer has declared it.

    Attributes:
        function: gets a ``Node``, arrays and settings, and returns a dictionary.
        sums: what its answer is a sum of; None if it answers alone.
        own_model: whether a request to evaluate is about a model that the function makes.
        single_answers: why it needs single answers; empty if these may be added up.
        instead: what serves in a study that answers sums over rows only.
        wanted: names of its arrays.
        required: those of them that have no default.
        accepted: its settings.
    """

    function: Function
    sums: Declaration | None
    own_model: bool
    single_answers: str
    instead: str
    wanted: list[str] = field(init=False)
    required: list[str] = field(init=False)
    accepted: type[BaseModel] = field(init=False)

    def __post_init__(self) -> None:
        """Read the signature."""
        if self.sums is not None:
            check_declared(self.sums)
        arrays = [p for p in inspect.signature(self.function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        object.__setattr__(self, "wanted", [p.name for p in arrays[1:]])
        object.__setattr__(self, "required", [p.name for p in arrays[1:] if p.default is p.empty])
        object.__setattr__(self, "accepted", settings.settings_of_partial(self.function))

    @property
    def name(self) -> str:
        """The function's name, as a task says it."""
        return self.function.__name__

    @property
    def shared(self) -> bool:
        """Whether all methods offer it: these may answer with names of columns and levels."""
        return self.function.__module__.startswith("v6_federated.")


@dataclass(frozen=True)
class Task:
    """What a message asks for.

    Attributes:
        job: the job.
        round: the round.
        values: the settings, as they were sent.
        settings: the settings, checked.
        arrays: the arrays, by name.
        evaluate: which rows the model is evaluated on; None if it is not.
        bands: in how many bands of scores rows are counted.
        sums: the sum that the answer is a part of; None if the node's own answer is asked for.
    """

    job: Job
    round: Any
    values: Mapping[str, Any]
    settings: BaseModel
    arrays: Mapping[str, Array]
    evaluate: str | None
    bands: int
    sums: Sums | None


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
            ``layouts.Asked``. A node adds up nothing else. By default, the mean of the models and their loss. None:
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
    declared = Declared(function, None if single_answers else sums, own_model, single_answers, instead)

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
        message = {"job": job, "round": round, "evaluate": evaluate, "arrays": arrays, "sums": sums}
        arguments = {**message, **values} | ({"bands": bands} if bands else {})
        try:
            request = Request.of(organization, declared.name, arguments)
            task = read(declared, request, arguments, message | {"bands": bands}, values)
            mode = check(declared, task, request)
            node = opened(declared, task, request, mode, mock_data)
            return release(declared, task, request, mode, node, functools.partial(compute, declared, task, node))
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
    made.single_answers, made.sums, made.instead = single_answers, declared.sums, instead
    return cast(Callable[..., dict[str, Any]], made)


def read(
    declared: Declared,
    request: Request,
    arguments: Mapping[str, Any],
    message: Mapping[str, Any],
    values: dict[str, Any],
) -> Task:
    """Step 1. What the message asks for, if the function has declared it. No row is read."""
    request.check_stopped()
    json_text.check(arguments)
    evaluate, bands = message["evaluate"], message["bands"]
    if evaluate and "weights" not in declared.wanted:  # some of these functions are not counted
        raise SafeError(f"{declared.name} takes no model and evaluates none; call evaluate instead")
    checked = settings.validate(declared.accepted, values)
    job = Job.from_json(message["job"])
    job.check(request.entry.organization, message["round"])
    received = codec.decode(message["arrays"]) if message["arrays"] else {}
    summed = None
    if message["sums"] is not None:
        if declared.sums is None:
            why = declared.single_answers or "its answer is no sum"
            raise NodePermissionException(f"{declared.name} needs aggregation=plain: {why}. {NOTHING_COMPUTED}")
        layout = _layout(declared.sums, Asked(job, values, received, bool(evaluate), bands), request)
        under_masks.check_totals(job, request, declared.name, layout, declared.instead)
        summed = Sums.from_json(message["sums"], layout)
    return Task(job, message["round"], values, checked, received, evaluate, bands, summed)


def check(declared: Declared, task: Task, request: Request) -> str:
    """Step 2. What the operator allows, as far as the message alone tells; ``Node`` checks what depends on rows."""
    if task.job.privacy is None:  # otherwise noise covers each step
        for batch_size in settings.with_role(task.settings, Role.BATCH):
            if batch_size is not None:  # masks would hide why, and no row decides it
                request.policy.check_batch(batch_size)
        request.policy.check_local_steps(steps_asked(task.settings), on_minibatches(task.settings))
    mode = under_masks.mode_of(task.job, request)
    if mode == "pinned":
        _check_in_a_study(task.settings, declared.name, declared.own_model)
    return mode


def opened(declared: Declared, task: Task, request: Request, mode: str, mock_data: list[Any] | None) -> Node:
    """Open the node's table: the function's ``Node``, which refuses what the operator's limits on rows do not allow."""
    if mock_data is not None and in_container():
        raise SafeError("mock_data are the rows of a mock node, and this is a real one; leave them out")
    queries = request.policy.allow_queries and not request.policy.private  # a query can repeat a row
    database = read_database(queries, request.policy.private) if mock_data is None else mock_data[0]
    request.table = named(database)
    schema = under_masks.schema(request) if mode == "pinned" else None
    node = Node(request.entry.organization, database, task.job, task.round, request, schema)
    if node.noising is not None and declared.name == "fit_step":
        raise SafeError(UNCOVERED)
    return node


def compute(declared: Declared, task: Task, node: Node) -> Computed:
    """Step 3. What the function returns, and the evaluation of the weights that were sent; of its own model, if any."""
    evaluation = None
    _check_received(node, task.arrays)
    received = _as_model(node, task.arrays)
    with subnormals_as_zero():
        for batch_size in settings.with_role(task.settings, Role.BATCH):
            _check_training(node, task.settings, batch_size)
        if missing := [name for name in declared.required if received.get(name) is None]:
            raise SafeError(f"the task lacks the array(s) {', '.join(missing)}; send them as central does")
        if task.evaluate and received.get("weights") is None:
            raise SafeError("the task asks for an evaluation without weights; send the model to evaluate")
        if task.evaluate and not declared.own_model:
            with node.later():
                evaluation = node.evaluate(received["weights"], task.evaluate)
        returned = declared.function(
            node, **{name: received.get(name) for name in declared.wanted}, **dict(task.settings)
        )
        if task.evaluate and declared.own_model:
            with node.later():
                evaluation = node.evaluate(node.own_model, task.evaluate)
    returned = {k: v.item() if isinstance(v, np.generic) else v for k, v in returned.items()}
    losses = [k for k, v in returned.items() if k.endswith("loss") and isinstance(v, float)]
    return returned | {k: node.rounded(returned[k]) for k in losses}, evaluation


def release(
    declared: Declared, task: Task, request: Request, mode: str, node: Node, computed: Callable[[], Computed]
) -> dict[str, Any]:
    """Step 4. Count the request, compute, and write down what leaves: words under masks, or the node's own answer."""
    rows: int | None
    if task.sums is not None:
        binds = {"evaluate": task.evaluate, "bands": task.bands, **task.values}
        node.known = next(iter(settings.with_role(task.settings, Role.KEPT)), None)
        summands = functools.partial(_summands, node, task, computed)
        answer, rows = under_masks.answer(node, request, declared.name, task.sums, binds, task.arrays, summands)
    else:
        if mode != "plain" and not (declared.shared and declared.name in ALONE):
            raise NodePermissionException(
                f"{declared.name} is asked for this node's own answer, and this job only has masked ones; its operator "
                f"would have to set V6_FEDERATED_AGGREGATION=plain. {NOTHING_COMPUTED}"
            )
        request.count(node.state.version())
        if node.noising is not None:
            node.noising.renew()
        answer = _own_answer(node, *computed(), rows=mode == "plain", plain=not declared.shared)
        rows = answer.get("n")
    request.answered(answer, rows)
    return answer


def _own_answer(
    node: Node, returned: Mapping[str, Any], evaluation: dict[str, Any] | None, rows: bool, plain: bool
) -> dict[str, Any]:
    """The node's own answer; with the number of rows, and with numbers and arrays alone, if so."""
    answer: dict[str, Any] = {"organization_id": node.organization_id, "round": node.round}
    if evaluation is not None:
        answer["evaluation"] = evaluation if node.noising is None else node.noising.readable(evaluation)
    sent = {k: _to_numpy(v) for k, v in returned.items() if isinstance(v, np.ndarray) or hasattr(v, "cpu")}
    compressed = {k: v for k, v in returned.items() if isinstance(v, codec.Compressed)}
    if compressed and len(sent) + len(compressed) > 1:
        raise SafeError("the method returns a compressed array and others; it may return one alone")
    others = {k: v for k, v in returned.items() if k not in sent and k not in compressed}
    if plain:
        _check_plain(others)
    answer |= ({"n": node.n} if rows else {}) | others
    _check_finite(answer)
    if compressed:
        ((name, array),) = compressed.items()
        answer["arrays"] = array.payload(name)
    if sent:
        answer["arrays"] = codec.encode(sent, node.job.precision)
    return answer


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
    return layouts.layout(declaration, asked)


def _summands(node: Node, task: Task, computed: Callable[[], Computed]) -> dict[str, Any]:
    """What the function returns, and the evaluation, as numbers that can be added to those of other nodes."""
    returned, evaluation = computed()
    found = {k: _moved(node, v, task.arrays.get(k)) for k, v in returned.items() if v is not None}
    found |= {"n": node.n, "has train_loss": "train_loss" in found}
    found.setdefault("train_loss", 0.0)
    if evaluation is None:
        return found
    if node.noising is not None:
        counted = {**evaluation, "bands": evaluation["bands"] if task.bands else evaluation["bands"][..., :0]}
    elif node.job.data.regression:
        counted = metrics.regression_to_sums(evaluation, node.job.loss)
    else:
        counted = metrics.to_sums(evaluation, len(node.job.data.classes or ()), task.bands)
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
        raise SafeError(f"{name} is not finite; {DIVERGED}")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_finite(inner, key)


def _to_numpy(array: Any) -> Array:
    found: Array = array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()
    return found
