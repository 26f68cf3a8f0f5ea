"""The partial functions that a method offers in addition to its own; one without a model offers only some of them."""

import contextlib
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from v6_federated.base.errors import SafeError
from v6_federated.base.logs import one_line
from v6_federated.base.vantage6_api import DataError, node_task
from v6_federated.data import statistics, times
from v6_federated.data.labels import MOST_NUMBERS, check_classes_of_numbers, plain
from v6_federated.data.reading import DECIMAL, kinds, marks
from v6_federated.data.source import Rows
from v6_federated.gate import own_results, under_masks
from v6_federated.gate.call import partial
from v6_federated.masks.summands import Count, Declared
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec, Job
from v6_federated.messages.local_sgd import RISK_SETS
from v6_federated.models import details
from v6_federated.models.layouts import Asked
from v6_federated.node.kept_steps import keep
from v6_federated.node.node import Node
from v6_federated.rules.schema import Schema


@partial(sums=None)
def describe(node: Node, *, raw: bool) -> dict[str, Any]:
    """Describe this node's data before anything else happens.

    Args:
        node: this node.
        raw: whether preprocessing steps follow, so that columns may hold words and missing values.

    Returns:
        ``label``: its name. ``features``: their names, or their number if the data are arrays. ``kinds``, if ``raw``:
        columns of words, of words and numbers, and of nothing, by kind; ``marks``, if there are some: by column of
        numbers, what stands there for a missing value, such as a point. ``absent``: excluded columns that the table
        lacks. ``classes``, if they are to be agreed: values
        of the label that enough rows have. Where central learns sums only, also what ``under_masks.hello`` returns, and
        ``levels`` by column.

    Raises:
        PrivacyThresholdViolation: the label has too many values to be named.
    """
    spec = node.job.data
    features, label = node.source.columns(spec)
    mode = under_masks.mode_of(node.job, node.request)
    answer: dict[str, Any] = {"label": label}
    if spec.exclude and node.source.table is not None:
        answer["absent"] = [c for c in spec.exclude if c not in node.source.table.columns]
    if mode != "plain":
        answer |= under_masks.hello(node, node.request, mode)
    elif node.noising is not None:  # there will be nothing to confirm
        node.noising.reserve()
    declared = _schema(node, mode)
    if spec.subgroup is not None:
        answer["subgroup"] = _subgroup(node, spec.subgroup, declared)
    if declared is not None:
        return answer | _declared(declared, spec, raw, arrays=node.source.table is None)
    if raw and node.source.table is not None:
        found = kinds(node.source.table, features)
        answer |= {"features": features, "kinds": found}
        if marked := marks(node.source.table, [*found["words"], *found["mixed"]]):
            answer["marks"] = marked
        if mode != "plain":
            answer["levels"] = _levels(node, [c for c in features if c in {*found["words"], *found["mixed"]}])
    else:
        answer["features"] = features if node.source.table is not None else node.source.rows(spec).X.shape[1]
    if spec.classes is None and spec.supervised and not spec.regression:
        values, counts = np.unique(node.source.labels(spec), return_counts=True)
        node.policy.check_classes(len(values))
        if node.source.table is not None:
            check_classes_of_numbers(values, label)
        answer["classes"] = [
            plain(v) for v, count in zip(values, counts, strict=True) if count >= node.policy.minimum_rows_a_class
        ]
    return answer


def _schema(node: Node, mode: str) -> Schema | None:
    """What the operator has declared, if descriptions follow from it: in a study, or with a privacy budget."""
    declared = under_masks.schema(node.request) if mode == "pinned" else None
    return node.schema or declared


def _declared(schema: Schema, spec: DataSpec, raw: bool, arrays: bool) -> dict[str, Any]:
    """The description that the hospital's operator has declared: nothing of a row is needed for it."""
    schema.check(spec)
    features = [*(schema.features if spec.features is None else spec.features)]
    kinds = {kind: [name for name in names if name in features] for kind, names in schema.kinds.items()}
    found: dict[str, Any] = {"label": schema.label, "features": len(features) if arrays else features}
    if raw and not arrays:
        found |= {"kinds": kinds, "levels": {name: [*schema.levels[name]] for name in kinds["words"]}}
    elif kinds["words"]:
        raise SafeError(f"the column(s) {', '.join(kinds['words'])} hold words; add a step onehot, or leave them out")
    found["bounds"] = {
        column.name: [column.lower, column.upper] for column in schema.columns if column.kind == "number"
    }
    if schema.bounds is not None:
        found["bounds"][schema.label] = [*schema.bounds]
    if spec.classes is None and schema.classes is not None and spec.supervised:
        found["classes"] = [*schema.classes]
    return found


def _subgroup(node: Node, column: str, declared: Schema | None) -> list[str]:
    """The levels of a subgroup's column that the schema declares, or that enough of the rows have."""
    if declared is not None:
        declared.check_named(node.job.data)
        return [*declared.levels[column]]
    said = [word for word in node.source.words(column) if isinstance(word, str)]
    found, rows = np.unique(np.asarray(said, dtype=str), return_counts=True)
    node.policy.check_classes(len(found), f"the column {column}")
    if len(found) > MOST_NUMBERS and all(map(DECIMAL.fullmatch, found)):
        raise DataError(
            f"the subgroup's column {column} has more than {MOST_NUMBERS} different numbers, like a quantity; name a "
            "column of words or of few numbers, such as groups of ages"
        )
    return [str(v) for v in found[rows >= node.policy.minimum_rows_a_class]]


def _levels(node: Node, columns: Sequence[str]) -> dict[str, list[str]]:
    """The levels that enough of the training rows have: sums of their counts need their names."""
    spec, policy = replace(node.job.data, categories=columns), node.policy
    features = node.source.training(spec, node.identity, policy)
    named = statistics.Levels(columns=[*columns]).named(features, node, policy.minimum_rows_a_class)
    return {c: sorted(levels) for c, levels in named.items()}


@partial(sums=None)
def confirm(node: Node, *, roster: list[dict[str, Any]]) -> dict[str, Any]:
    """Agree on keys with the other nodes of the block. Nothing here depends on rows.

    Args:
        node: this node, whose job names the classes.
        roster: the entries of all nodes of the block, from their answers to ``describe``.

    Returns:
        ``tags``, which show the others that this node holds the same keys; in a study its ``colluders``.

    Raises:
        NodePermissionException: the roster is not this node's block.
    """
    mode = under_masks.mode_of(node.job, node.request)
    if (declared := _schema(node, mode)) is not None:
        _declared(declared, node.job.data, raw=True, arrays=node.source.table is None)
    return under_masks.confirm(node, node.request, roster)


@partial(sums={})
def count_rows(node: Node) -> dict[str, Any]:
    """Do nothing: the number of rows is part of every sum.

    Args:
        node: this node.

    Returns:
        Nothing.
    """
    return {}


def summands(asked: Asked) -> Declared:
    """Declare what a statistic is a sum of."""
    return statistics.read(asked.settings["statistic"], asked.settings, asked.arrays).summands(asked)


def _with_parameters(function: Any) -> Any:
    """A task may send what statistics take, and nothing else."""
    node = inspect.signature(function).parameters["node"]
    function.__signature__ = inspect.Signature([node, *statistics.parameters()])
    return function


@partial(sums=summands)
@_with_parameters
def fit_step(node: Node, *, statistic: str, **arguments: Any) -> dict[str, Any]:
    """Compute a statistic of the training rows, to which a preprocessing step, PCA or boosted trees are fitted.

    Args:
        node: this node.
        statistic: its name in ``data.statistics.STATISTICS``.
        arguments: the arrays and settings of all statistics, see there; None for those that were not sent.

    Returns:
        The statistic; where central learns sums only, what this node adds to them.

    Raises:
        SafeError: the request does not fit the columns, or asks for the sum of what is not a sum over rows.
        DataError: values are missing, or words among them, where only numbers can be used.
        PrivacyThresholdViolation: the statistic would describe too few rows.
    """
    asked = statistics.read(statistic, arguments, arguments)
    return asked.of_rows(node) if node.job.aggregation == "plain" else asked.as_sums(node)


def cells_of_time(asked: Asked) -> dict[str, Count]:
    """What ``count_events`` is a sum of. Only in a study no node rounds its own counts."""
    cells, additive = times.cells(asked.settings.get("end")).shape, asked.only_in_a_study
    of_cells = Count(cells, additive)
    return {"counts": of_cells, "leavers": of_cells, "off_grain": Count(len(times.GRAINS), additive)}


@partial(sums=cells_of_time)
def count_events(node: Node, *, end: float | None = None) -> dict[str, Any]:
    """Count events and leavers up to the end of each cell of time, so that central can choose bins, see ``times.upto``.

    Args:
        node: this node.
        end: the end of the last of equal cells; None for cells that end at powers of 2.

    Returns:
        ``counts`` of events and ``leavers``, all rows that leave, by cell; and ``off_grain``, the rows whose time is no
        multiple of each of ``times.GRAINS``. In a study they are exact, so that sums over a block do not depend on who
        has which rows; otherwise they are in multiples of the rows that a class must have.

    Raises:
        SafeError: no cells end there, or the rows hold no times.
        PrivacyThresholdViolation: there are too few rows.
    """
    time, event = node.times(few_events=True)
    step = 1 if node.pinned else node.policy.minimum_rows_a_class
    counts, leavers = times.upto(time, event, end, step)
    return {"counts": counts, "leavers": leavers, "off_grain": times.off_grain(time, step)}


@partial(sums=None)
def keep_steps(node: Node) -> dict[str, Any]:
    """Keep the job's fitted steps, so that later tasks only name them.

    Args:
        node: this node, whose task holds the steps.

    Returns:
        Nothing.

    Raises:
        SafeError: the job's folder cannot be written.
    """
    keep(node.job.data.preprocess, node.state)
    return {}


@node_task
def forget(
    client: Any, /, *, job: Any = None, round: Any = None, mock_data: Any = None, **unknown: Any
) -> dict[str, Any]:
    """Remove what this node keeps for a job. No limit of the node prevents it.

    Args:
        client: vantage6's client.
        job: what central tells all nodes, as JSON.
        round: the round.
        mock_data: rows that a mock client hands over; not used.
        **unknown: arguments that it does not take.

    Returns:
        The organization, the round, and 0 as the number of rows.

    Raises:
        SafeError: the job is malformed, or there are other arguments.
    """
    try:
        if unknown:
            raise SafeError(f"forget does not take {', '.join(map(repr, unknown))}; it takes a job and a round")
        told = Job.from_json(job)
        state = Node.state_of(client.organization_id, told, round)
        under_masks.forget(client.organization_id, state, told)
        state.remove()
    except SafeError as error:
        raise SafeError(f"organization {client.organization_id}: {one_line(error)}") from None
    return {"organization_id": client.organization_id, "round": round, "n": 0}


def evaluated(asked: Asked) -> Declared:
    """Declare what the last evaluation counts in addition."""
    if not asked.settings.get("last") or asked.noisy:
        return {}
    data = asked.job.data
    calibrated = (
        data.classes is not None and len(data.classes) == 2 and details.has_probabilities(asked.model, data.classes)
    )
    sizes = calibrated, len(data.levels), asked.classes
    return details.summands(*sizes, asked.of_counts, asked.job.counts_hospitals, asked.of_scores)


@partial(sums=evaluated, instead=f"a linear model is evaluated, and {RISK_SETS}")
def evaluate(node: Node, weights: Any, *, last: bool = False) -> dict[str, Any]:
    """Evaluate a model: the decorator adds the evaluation to the answer.

    Args:
        node: this node.
        weights: the model (d,).
        last: whether it is the job's last model. The hospital's own results are then written into its folder.

    Returns:
        Nothing, if it is not the last model or if nodes add noise. Otherwise ``counts``, ``predicted`` and ``brier``
        of ``details.calibration``, and ``subgroups`` of ``details.by_level``, as far as they are asked for: as arrays
        if answers are masked, with ``contributes``, whether this node has rows of each level; otherwise as a payload
        under ``details``, with ``own_results``, whether the operator lets this hospital's own results leave.
    """
    if not last:
        return {}
    if node.noising is not None:
        with contextlib.suppress(Exception):  # an answer must not depend on whether it could be written
            own_results.write(
                node, weights, node.evaluated[0] if node.evaluated else Rows(np.empty((0, 0)), np.empty(0))
            )
        return {}
    spec, masked = node.job.data, node.job.aggregation != "plain"
    found: dict[str, Any] = {}
    calibrated = details.has_probabilities(node.model, spec.classes)
    if node.evaluated is not None:
        rows, which = node.evaluated
        own_results.write(node, weights, rows)
        if calibrated:
            found |= details.calibration(node.model, weights, rows.X, rows.y, node.rounding, node.adds_losses)
        if spec.subgroup is not None and spec.classes is not None:
            said, c = node.source.words(spec.subgroup)[which], len(spec.classes)
            policy = None if node.pinned else node.policy
            found["subgroups"] = details.by_level(
                node.model, weights, rows.X, rows.y, said, spec.levels, c, policy, node.rounding
            )
            if masked and node.job.counts_hospitals:
                found["contributes"] = (found["subgroups"].sum(axis=(1, 2)) > 0).astype(np.int64)
    if not masked:
        return {"details": codec.encode(found, "float64"), "own_results": node.policy.own_results}
    sizes = len(spec.levels), len(spec.classes or ())
    return details.zeros(calibrated, *sizes, node.job.counts_hospitals) | found
