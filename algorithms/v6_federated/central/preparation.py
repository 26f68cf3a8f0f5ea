"""Before the first round: nodes describe their data, agree on columns and classes, and preprocessing is fitted.

Nodes may be missing as in a round. Whoever drops out is asked no more until the first round: a step is fitted to the
rows of the nodes that have answered all that it asks.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import CollectResultsError, DataError
from v6_federated.central.dispatch import MOST_REASON, Answer, Expected
from v6_federated.central.rounds import Group, parted
from v6_federated.central.same_nodes import attempts
from v6_federated.data import pooling, preprocessing
from v6_federated.data.columns import KINDS, Features
from v6_federated.data.steps import Step
from v6_federated.messages.codec import Shape
from v6_federated.messages.job import Job
from v6_federated.models import metrics
from v6_federated.privacy.policy import Policy

Ask = Callable[[Group], list[Answer]]  # brings the answers of those that gave one, enough of them, by ascending id


def prepare(job: Job, steps: Sequence[Any], model: str | dict[str, Any], ask: Ask) -> tuple[Job, Sequence[str]]:
    """The job with its columns, classes, fitted steps and model; and the features' names after the steps.

    Args:
        steps, model: as the request has them.
    """
    parsed = [preprocessing.parse(step) for step in steps]
    asked = job.data.supervised and not job.data.regression and job.data.classes is None
    most = Policy.of_node().most_classes  # of the coordinator's node; where all have more, it must have too
    expected = Expected(validate=lambda answer: _wrong_description(answer.values, bool(parsed), asked, most))
    answers = ask(Group("describe", job.participants, job, {"raw": bool(parsed)}, expected=expected))
    features, spec = _same_features(answers), job.data
    if spec.classes is None and spec.supervised and not spec.regression:
        spec = replace(spec, classes=_agreed_classes(answers))
    if isinstance(features, list):  # one order and one label at all nodes, also those that come later
        label = spec.label or answers[0].values.get("label") or None
        spec = replace(spec, features=spec.features or features, label=label)
    names = features if isinstance(features, list) else [str(i) for i in range(features)]
    if parsed and isinstance(features, list):
        told = {a.organization_id: a.values["kinds"] for a in answers}
        spec = replace(spec, categories=preprocessing.categories(parsed, told, names))
    layout = preprocessing.layout(names, spec.categories or ())
    here = [a.organization_id for a in answers]
    try:
        job, layout = _fit(parsed, layout, replace(job, data=spec), here, ask)
    except DataError as error:  # the request's steps do not fit the columns
        raise SafeError(str(error)) from None
    if spec.supervised:
        classes = 1 if spec.classes is None else len(spec.classes)  # 1: a regression
        models.check_classes(models.parse(model), spec.classes or [])
        full = {**models.parse(model), "features": len(layout.names), "classes": classes}
        job = replace(job, model=full)
    return job, layout.names


def _fit(steps: Sequence[Step], layout: Features, job: Job, here: Sequence[int], ask: Ask) -> tuple[Job, Features]:
    """Fit the steps in order, each on rows that the ones before have been applied to; also the columns left."""
    for step in steps:
        fitted, here = _fit_one(step, layout, job, here, ask)
        done = {"step": step.name, "fitted": fitted}
        layout = preprocessing.apply(layout, [done])
        job = replace(job, data=replace(job.data, preprocess=[*job.data.preprocess, done]))
    layout.check_complete()
    return job, layout


def _fit_one(step: Step, layout: Features, job: Job, here: Sequence[int], ask: Ask) -> tuple[dict[str, Any], list[int]]:
    def ask_nodes(organizations: Sequence[int], name: str, **arguments: Any) -> list[Answer]:
        return ask(statistic(job, organizations, len(layout.numeric), name, **arguments))

    for nodes in attempts(here, ask_nodes):  # what a step is fitted to must be sums over the same rows
        with nodes:
            fitted = step.fit(layout, nodes.ask)
    return fitted, nodes.organizations


def statistic(
    job: Job, organizations: Sequence[int], d: int, name: str, precision: str = "float64", **arguments: Any
) -> Group:
    """What asks for a statistic of the training rows, see ``aggregates.statistic``, of d columns of numbers."""
    settings, arrays = parted({"statistic": name, **arguments})
    shapes: Mapping[str, Shape] = pooling.shapes(d=d, **settings)
    wrong = functools.partial(_wrong_levels, settings["columns"]) if name == "levels" else pooling.what_is_wrong
    expected = Expected(shapes, minimum_rows=job.minimum_rows or 1, validate=wrong)
    return Group("fit_step", list(organizations), replace(job, precision=precision), settings, arrays, expected)


def _wrong_description(values: Mapping[str, Any], raw: bool, classes_asked: bool, most: int) -> str | None:
    """What is wrong with a node's answer to ``describe``, if anything."""
    features, found = values.get("features"), values.get("kinds")
    classes = values.get("classes", None if classes_asked else [])
    names = {name for name in features if isinstance(name, str)} if isinstance(features, list) else set()
    named = isinstance(features, list) and len(names) == len(features)
    plain = isinstance(classes, list) and all(
        type(value) is bool
        or (type(value) is str and len(value) <= MOST_REASON)
        or (type(value) in (int, float) and abs(value) < 2**63)  # beyond, JSON is read differently
        for value in classes
    )
    if plain and len(classes) > most:
        return f"names {len(classes)} classes; expected {most} at most (MAXIMUM_CLASSES where central runs)"
    if not (named or type(features) is int) or not plain or not isinstance(values.get("label"), str | None):
        return "describes its data as nobody does; expected features, label and classes"
    if raw and named and not (isinstance(found, dict) and sorted(found) == sorted(KINDS)):
        return "does not tell columns of words from those of numbers; expected them by kind"
    for columns in (found or {}).values() if raw and named else ():
        if not isinstance(columns, list) or not set(map(str, columns)) <= names:
            return "tells the kind of columns that are not its features; expected some of them"
    return None


def _wrong_levels(columns: Sequence[str], answer: Answer) -> str | None:
    """What is wrong with the levels of ``columns`` that a node names, if anything."""
    levels = answer.values.get("levels")
    if not isinstance(levels, dict) or sorted(levels) != sorted(columns):
        return "names levels of other columns; expected those asked for"
    for counts in levels.values():
        if not isinstance(counts, dict) or not all(
            type(c) is int and 0 < c < metrics.MOST_ROWS for c in counts.values()
        ):
            return "names levels without their counts; expected whole numbers from 1"
        most = Policy.of_node().most_classes
        if len(counts) > most or max(map(len, counts), default=0) > MOST_REASON:
            return f"names {len(counts)} levels of a column, or long ones; expected {most} at most (MAXIMUM_CLASSES)"
    return None


def _same_features(answers: Sequence[Answer]) -> Any:
    """The features, if all nodes have the same ones. Columns in another order are the same."""
    first = answers[0]
    for a in answers[1:]:
        mine, other = first.values["features"], a.values["features"]
        if (sorted(mine) != sorted(other)) if isinstance(mine, list) and isinstance(other, list) else mine != other:
            raise CollectResultsError(
                f"organizations {first.organization_id} and {a.organization_id} hold different features; "
                "expected the same columns at all nodes: name them in `features`"
            )
        if first.values["label"] != a.values["label"]:
            raise CollectResultsError(
                f"organizations {first.organization_id} and {a.organization_id} have another last column; "
                "name the label's column in `label`"
            )
    return first.values["features"]


def _agreed_classes(answers: Sequence[Answer]) -> list[Any]:
    """The union of the label values that nodes name, sorted."""
    union = {value for a in answers for value in a.values["classes"]}
    if len({isinstance(value, str) for value in union}) > 1:
        raise CollectResultsError("labels are words at some nodes and numbers at others; expected one kind")
    if len(union) < 2:
        raise CollectResultsError(
            f"the nodes name {len(union)} class(es) of the label, expected at least 2 that some node has in 3 rows or "
            "more; name them all in `classes`"
        )
    if len(union) > 1000:
        raise CollectResultsError(f"the label has {len(union)} values; expected classes, not a measurement")
    return sorted(union)
