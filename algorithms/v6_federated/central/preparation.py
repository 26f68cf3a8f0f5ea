"""Before the first round: nodes describe their data, agree on columns and classes, and preprocessing is fitted.

Nodes may be missing as in a round. A node that drops out is not asked any more until the first round: a step is fitted
to the rows of the nodes that have answered all of its requests.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError
from v6_federated.central.answer import Answer, Expected
from v6_federated.central.calls import Group, parted
from v6_federated.central.description import Ask, agreed_classes, agreed_levels, describe, same_features
from v6_federated.central.same_nodes import attempts
from v6_federated.data import preprocessing, statistics
from v6_federated.data.columns import Features
from v6_federated.data.statistics import Statistic
from v6_federated.data.steps import Step
from v6_federated.messages.common import Common
from v6_federated.messages.job import SPECIAL, DataSpec, Job
from v6_federated.models import outcomes
from v6_federated.rules.policy import Policy

Agree = Callable[[Job, Sequence[Answer]], Job]
Measure = Callable[..., list[Answer]]  # takes job, organizations, number of columns, and a statistic by name


def parties(common: Common, present: Sequence[int]) -> tuple[list[int], list[int]]:
    """Settle who trains and who only evaluates."""
    evaluators = sorted(common.evaluators or [])
    organizations = sorted(common.organizations or [o for o in present if o not in evaluators])
    for name, asked in (("organizations", organizations), ("evaluators", evaluators)):
        unknown = sorted(set(asked) - set(present))
        if unknown:
            raise SafeError(f"{name}={unknown}: not in the collaboration; expected some of {present}")
        if len(set(asked)) < len(asked):
            raise SafeError(f"{name}={asked} names an organization twice; name each once")
    if set(organizations) & set(evaluators):
        raise SafeError(f"evaluators={evaluators} train as well; name other evaluators, or other organizations")
    if not organizations:
        raise SafeError("all organizations are evaluators; expected at least one that trains")
    return organizations, evaluators


def first_job(
    method: str,
    common: Common,
    organizations: list[int],
    evaluators: list[int],
    supervised: bool,
    missing: bool = False,
) -> Job:
    """Return what central tells the nodes before they have described their data."""
    timed = common.times_only
    special: dict[str, Any] = {name: getattr(common, name, None) for name in SPECIAL}
    special |= {"time": common.label} if timed else {}
    features = common.features and [c for c in common.features if c not in special.values()]
    return Job(
        method=method,
        key=uuid.uuid4().hex,
        seed=common.seed,
        participants=organizations,
        evaluators=evaluators,
        rounds=getattr(common, "rounds", None),
        model=None,
        data=DataSpec(
            None if timed else common.label,
            [] if timed else features,
            common.classes if supervised else None,
            common.holdout if supervised else 0.0,  # without labels, nothing is evaluated on rows held out
            [],
            supervised=supervised,
            regression=common.regression,
            exclude=common.exclude or [],
            missing=missing,
            subgroup=common.subgroup,
            **special,
        ),
        minimum_rows=common.minimum_rows,
        precision=common.precision,
        aggregation=common.aggregation,
    )


def prepare(
    job: Job,
    steps: Sequence[Any],
    model: str | dict[str, Any],
    ask: Ask,
    agree: Agree,
    measure: Measure,
    class_weights: str | Mapping[str, float] | None = None,
    loss: str = "cross_entropy",
) -> tuple[Job, Sequence[str]]:
    """Settle columns, classes, fitted steps and the model with all nodes."""
    parsed = [preprocessing.parse(step) for step in steps]
    answers = describe(job, bool(parsed), ask)
    spec, names = _settled(job.data, parsed, answers)
    layout = preprocessing.layout(names, spec.categories or ())
    here = [a.organization_id for a in answers]
    job = agree(replace(job, data=spec), answers)
    try:
        job, layout = _fit(parsed, layout, job, here, measure)
    except DataError as error:  # the request's steps do not fit the columns
        raise SafeError(str(error)) from None
    if not spec.supervised:
        return job, layout.names
    models.check_classes(models.parse(model), spec.classes or [])
    classes = 1 if spec.classes is None else len(spec.classes)  # 1: a regression
    full = {**models.parse(model), "features": len(layout.names), "classes": classes}
    if class_weights is not None:
        full["weights"] = _weights(class_weights, job, here, measure)
    if loss != "cross_entropy":
        full["loss"] = _outcome(loss, job, here, measure).to_json()
    return replace(job, model=full), layout.names


def _settled(spec: DataSpec, steps: Sequence[Step], answers: Sequence[Answer]) -> tuple[DataSpec, list[str]]:
    """What all nodes agree on, and the names of their columns, or numbers if they hold arrays."""
    features = same_features(answers)
    if absent := [c for c in spec.exclude if all(c in a.values.get("absent", ()) for a in answers)]:
        raise SafeError(f"exclude={', '.join(absent)}: no organization has such a column; name columns of the tables")
    if spec.classes is None and spec.supervised and not spec.regression:
        spec = replace(spec, classes=agreed_classes(answers))
    if spec.subgroup is not None:
        spec = replace(spec, levels=agreed_levels(spec.subgroup, spec.classes or (), answers))
    if not isinstance(features, list):
        return spec, [str(i) for i in range(features)]
    # one order and one label at all nodes, also at those that come later
    label = spec.label or answers[0].values.get("label") or None
    spec = replace(spec, features=spec.features or features, label=label, exclude=[])
    if steps:
        kinds = {a.organization_id: a.values["kinds"] for a in answers}
        marks = {a.organization_id: a.values.get("marks", {}) for a in answers}
        spec = replace(spec, categories=preprocessing.categories(steps, kinds, features, marks))
    return spec, features


def _weights(class_weights: str | Mapping[str, float], job: Job, here: Sequence[int], measure: Measure) -> list[float]:
    """The weight of each class: as they were set, or n / (c n_c), of all training rows as scikit-learn has it."""
    classes = [*map(str, job.data.classes or [])]
    if not isinstance(class_weights, str):
        if strange := sorted({*class_weights} - {*classes}):
            raise SafeError(f"class_weights names {', '.join(strange)}; expected some of {', '.join(classes)}")
        weights = [float(class_weights.get(named, 1.0)) for named in classes]
        if job.aggregation == "pinned":  # its nodes do not check their own rows
            found = statistics.Classes.pool(measure(job, here, len(classes), "classes"))
            Policy.of_node().check_weights(found.tolist(), weights, job.minimum_rows, "the study's")
        return weights
    counts = statistics.Classes.pool(measure(job, here, len(classes), "classes"))
    if empty := [named for named, n in zip(classes, counts, strict=True) if not n]:
        raise SafeError(
            f"class_weights=balanced: no organization has enough rows of the class(es) {', '.join(empty)} to count; "
            "give weights by class"
        )
    return [float(weight) for weight in counts.sum() / (len(classes) * counts)]


def _outcome(loss: str, job: Job, here: Sequence[int], measure: Measure) -> outcomes.Outcome:
    """What the model predicts, on the scale of the label's mean and deviation over all nodes."""
    if loss == "cox":
        return outcomes.Time()
    moments = statistics.Label.pool(measure(job, here, 1, "label"))
    varies = bool(moments.std[0] > 1e-12 * abs(moments.mean[0]))  # otherwise it is rounding
    return outcomes.of_moments(loss, float(moments.mean[0]), float(moments.std[0]) if varies else 0.0)


def _fit(
    steps: Sequence[Step], layout: Features, job: Job, here: Sequence[int], measure: Measure
) -> tuple[Job, Features]:
    """Fit the steps in order, each on rows after the ones before; return the job and the columns that are left."""
    for step in steps:
        fitted, here = _fit_one(step, layout, job, here, measure)
        done = {"step": step.name, "fitted": fitted}
        layout = preprocessing.apply(layout, [done])
        job = replace(job, data=replace(job.data, preprocess=[*job.data.preprocess, done]))
    layout.check_complete()
    return job, layout


def _fit_one(
    step: Step, layout: Features, job: Job, here: Sequence[int], measure: Measure
) -> tuple[dict[str, Any], list[int]]:
    def ask_nodes(organizations: Sequence[int], name: str, **arguments: Any) -> list[Answer]:
        return measure(job, organizations, len(layout.numeric), name, **arguments)

    for nodes in attempts(here, ask_nodes):  # all sums that a step is fitted to must be over the same rows
        with nodes:
            fitted = step.fit(layout, nodes.ask)
    return fitted, nodes.organizations


def question(job: Job, organizations: Sequence[int], d: int, statistic: Statistic, precision: str = "float64") -> Group:
    """Return the calls that ask for a statistic of the training rows."""
    settings, arrays = parted(statistic.sent)
    expected = Expected(
        statistic.shapes(d),
        parts=statistic.parts,
        minimum_rows=job.minimum_rows or 1,
        validate=statistic.wrong,
        measures=statistic.measures,
    )
    return Group("fit_step", list(organizations), replace(job, precision=precision), settings, arrays, expected)
