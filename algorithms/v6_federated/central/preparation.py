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
from v6_federated.base.tables import MARKS
from v6_federated.base.text import MOST_TEXT, shortened
from v6_federated.base.vantage6_api import CollectResultsError, DataError
from v6_federated.central.answer import Answer, Expected
from v6_federated.central.rounds import Group, parted
from v6_federated.central.same_nodes import attempts
from v6_federated.data import preprocessing, statistics
from v6_federated.data.columns import Features
from v6_federated.data.reading import KINDS
from v6_federated.data.statistics import Statistic
from v6_federated.data.steps import Step
from v6_federated.masks.agreement import Entry
from v6_federated.masks.study import TOTALS
from v6_federated.messages.common import Common
from v6_federated.messages.job import MODES, SPECIAL, DataSpec, Job
from v6_federated.messages.result import MOST_CROSSED, crossed
from v6_federated.models import outcomes
from v6_federated.rules.limits import MOST_BANDS
from v6_federated.rules.policy import Policy

Ask = Callable[[Group], list[Answer]]  # returns usable answers, enough of them, by ascending id
Agree = Callable[[Job, Sequence[Answer]], Job]
Measure = Callable[..., list[Answer]]  # takes job, organizations, number of columns, and a statistic by name


def parties(common: Common, present: Sequence[int]) -> tuple[list[int], list[int]]:
    """Settle who trains and who only evaluates.

    Args:
        common: the job's settings.
        present: ids of the organizations in the collaboration.

    Returns:
        The ids of each, ascending.

    Raises:
        SafeError: the settings name organizations that cannot take part.
    """
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
    """Return what central tells the nodes before they have described their data.

    Args:
        method: the method's name.
        common: the job's settings, with those of the method.
        organizations: ids of those that train.
        evaluators: ids of those that only evaluate.
        supervised: whether the method has labels.
        missing: whether its model takes missing values.

    Returns:
        The job, with a new random key.
    """
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


def describe(job: Job, raw: bool, ask: Ask, organizations: Sequence[int] | None = None) -> list[Answer]:
    """Have the nodes describe their data.

    Args:
        job: what central tells the nodes.
        raw: whether preprocessing steps follow.
        ask: sends a request to nodes.
        organizations: ids of those that are asked; None means all that train.

    Returns:
        Their descriptions.

    Raises:
        CollectResultsError: too few nodes answered.
    """
    asked = job.data.supervised and not job.data.regression and job.data.classes is None
    most = Policy.of_node().most_classes  # the limit of the node where central runs
    expected = Expected(
        parts=frozenset(
            (
                "label",
                "features",
                "kinds",
                "marks",
                "classes",
                "mode",
                "entry",
                "block",
                "levels",
                "bounds",
                "absent",
                "subgroup",
                "score_bands",
                "hospital_totals",
            )
        ),
        minimum_rows=job.minimum_rows or 1,
        validate=lambda answer: _wrong_description(answer.values, raw, asked, most),
        without_rows=job.aggregation != "plain",
    )
    who = job.participants if organizations is None else organizations
    return ask(Group("describe", who, job, {"raw": raw}, expected=expected))


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
    """Settle columns, classes, fitted steps and the model with all nodes.

    Args:
        job: what central tells the nodes.
        steps: preprocessing steps, as the researcher named them.
        model: the model, as the researcher named it.
        ask: sends a request to nodes.
        agree: settles with the nodes what central will see of their answers.
        measure: asks nodes for a statistic of their training rows.
        class_weights: by class, or "balanced".
        loss: what training lowers.

    Returns:
        The job with all of these; and the names of the features after the steps.

    Raises:
        SafeError: the steps or the model do not fit the columns or the label.
        CollectResultsError: too few nodes answered, or their columns or labels differ.
    """
    parsed = [preprocessing.parse(step) for step in steps]
    answers = describe(job, bool(parsed), ask)
    features, spec = _same_features(answers), job.data
    if absent := [c for c in spec.exclude if all(c in a.values.get("absent", ()) for a in answers)]:
        raise SafeError(f"exclude={', '.join(absent)}: no organization has such a column; name columns of the tables")
    if spec.classes is None and spec.supervised and not spec.regression:
        spec = replace(spec, classes=_agreed_classes(answers))
    if spec.subgroup is not None:
        spec = replace(spec, levels=sorted({level for a in answers for level in a.values.get("subgroup", ())}))
        if not spec.levels:
            raise SafeError(f"subgroup={spec.subgroup}: no organization has a value of it in enough rows; leave it out")
        _check_levels(spec.subgroup, len(spec.levels), answers)
        if len(spec.classes or ()) > MOST_CROSSED:
            raise SafeError(crossed(spec.subgroup))
    if isinstance(features, list):  # one order and one label at all nodes, also at those that come later
        label = spec.label or answers[0].values.get("label") or None
        spec = replace(spec, features=spec.features or features, label=label, exclude=[])
    names = features if isinstance(features, list) else [str(i) for i in range(features)]
    if parsed and isinstance(features, list):
        kinds = {a.organization_id: a.values["kinds"] for a in answers}
        marks = {a.organization_id: a.values.get("marks", {}) for a in answers}
        spec = replace(spec, categories=preprocessing.categories(parsed, kinds, names, marks))
    layout = preprocessing.layout(names, spec.categories or ())
    here = [a.organization_id for a in answers]
    job = agree(replace(job, data=spec), answers)
    try:
        job, layout = _fit(parsed, layout, job, here, measure)
    except DataError as error:  # the request's steps do not fit the columns
        raise SafeError(str(error)) from None
    if spec.supervised:
        classes = 1 if spec.classes is None else len(spec.classes)  # 1: a regression
        models.check_classes(models.parse(model), spec.classes or [])
        full = {**models.parse(model), "features": len(layout.names), "classes": classes}
        if class_weights is not None:
            full["weights"] = _weights(class_weights, job, here, measure)
        if loss != "cross_entropy":
            full["loss"] = _outcome(loss, job, here, measure).to_json()
        job = replace(job, model=full)
    return job, layout.names


def _check_levels(subgroup: str | None, named: int, answers: Sequence[Answer]) -> None:
    """Refuse more levels in all than a node would count, and say who named most: it may not be honest."""
    if named <= (most := Policy.of_node().most_classes):
        return
    first = max(answers, key=lambda a: len(a.values.get("subgroup", ())))
    raise CollectResultsError(
        f"subgroup={subgroup}: the organizations name {named} levels in all, and {most} are accepted (MAXIMUM_CLASSES "
        f"at the node where central runs); organization {first.organization_id} names most, "
        f"{len(first.values.get('subgroup', ()))}: leave it out (organizations), or choose a column with fewer levels"
    )


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
    """Return the calls that ask for a statistic of the training rows.

    Args:
        job: what central tells the nodes.
        organizations: ids of those that are asked.
        d: number of columns of numbers.
        statistic: the statistic.
        precision: type of the numbers that are sent, whatever the job's is.

    Returns:
        The calls.
    """
    settings, arrays = parted(statistic.sent)
    expected = Expected(
        statistic.shapes(d),
        parts=statistic.parts,
        minimum_rows=job.minimum_rows or 1,
        validate=statistic.wrong,
        measures=statistic.measures,
    )
    return Group("fit_step", list(organizations), replace(job, precision=precision), settings, arrays, expected)


def _wrong_description(values: Mapping[str, Any], raw: bool, classes_asked: bool, most: int) -> str | None:
    """What is wrong with a node's answer to ``describe``, if anything."""
    features, found = values.get("features"), values.get("kinds")
    classes = values.get("classes", None if classes_asked else [])
    names = {name for name in features if isinstance(name, str)} if isinstance(features, list) else set()
    named = isinstance(features, list) and len(names) == len(features)
    plain = isinstance(classes, list) and all(
        type(value) is bool
        or (type(value) is str and len(value) <= MOST_TEXT)
        or (type(value) in (int, float) and abs(value) < 2**63)  # JSON readers differ on larger ones
        for value in classes
    )
    if plain and len(classes) > most:
        return f"named {len(classes)} classes; expected {most} at most (MAXIMUM_CLASSES at the node where central runs)"
    if not (named or type(features) is int) or not plain or not isinstance(values.get("label"), str | None):
        return "sent a malformed data description; expected features, label and classes"
    if raw and named and not (isinstance(found, dict) and sorted(found) == sorted(KINDS)):
        return "did not sort its columns into words, mixed and empty; expected kinds"
    named_levels = values.get("subgroup", [])
    if not isinstance(named_levels, list) or not all(isinstance(v, str) and len(v) <= MOST_TEXT for v in named_levels):
        return "sent malformed levels of the subgroup's column; expected texts"
    if len(named_levels) > most:
        return f"named {len(named_levels)} levels of the subgroup's column; expected {most} at most"
    if not isinstance(values.get("absent", []), list):
        return "did not say which excluded columns it lacks; expected a list"
    mode = values.get("mode", "plain")
    if mode not in MODES or (mode != "plain" and not _is_hello(values)):
        return "sent a malformed greeting; expected mode, entry, block and score_bands"
    for columns in (found or {}).values() if raw and named else ():
        if not isinstance(columns, list) or not set(map(str, columns)) <= names:
            return "sent the kind of columns that are not its features; expected some of them"
    marks = values.get("marks", {})
    if not isinstance(marks, dict) or not set(marks) <= names or not all(mark in MARKS for mark in marks.values()):
        return "sent marks for missing values that are none, or of columns that are not its features"
    return None


def _is_hello(values: Mapping[str, Any]) -> bool:
    """Whether a description holds the node's keys, and levels by column."""
    block, levels = values.get("block"), values.get("levels", {})
    texts = isinstance(block, list) and all(isinstance(S, str) for S in block)
    bands = values.get("score_bands")
    counted = type(bands) is int and 0 <= bands <= MOST_BANDS
    named = isinstance(levels, dict) and all(
        isinstance(found, list) and all(isinstance(level, str) and len(level) <= MOST_TEXT for level in found)
        for found in levels.values()
    )
    try:
        Entry.from_json(values.get("entry"))
    except SafeError:
        return False
    return texts and named and counted and values.get("hospital_totals") in (None, *TOTALS)


def _same_features(answers: Sequence[Answer]) -> Any:
    """The features, if all nodes have the same ones, in any order."""
    first = answers[0]
    mine = first.values["features"]
    columns = sorted(mine) if isinstance(mine, list) else mine
    for a in answers[1:]:
        other = a.values["features"]
        if columns != (sorted(other) if isinstance(other, list) else other):
            raise CollectResultsError(_difference(answers))
        if first.values["label"] != a.values["label"]:
            raise CollectResultsError(
                f"organizations {first.organization_id} and {a.organization_id} have different last columns; name the "
                "label's column in `label`"
            )
    return mine


def _difference(answers: Sequence[Answer]) -> str:
    """Say which columns some nodes lack, or that nodes hold arrays of different shapes."""
    held = {a.organization_id: a.values["features"] for a in answers}
    if not all(isinstance(own, list) for own in held.values()):
        return "the nodes hold arrays of different shapes, or tables and arrays; expected as many features at all nodes"
    named = {organization: {*own} for organization, own in held.items()}
    shown = []
    for column in sorted(set().union(*named.values())):
        if absent := [organization for organization, own in named.items() if column not in own]:
            shown.append(f"{column!r} is missing at organization{'s' * (len(absent) > 1)} {shortened(absent, 5)}")
    return (
        f"the nodes hold different features: {shortened(shown, 5)}. Name those that all have in `features`, or leave "
        "out the others with `exclude`"
    )


def _agreed_classes(answers: Sequence[Answer]) -> list[Any]:
    """The union of the label values that nodes name, sorted."""
    union = {value for a in answers for value in a.values["classes"]}
    if len({isinstance(value, str) for value in union}) > 1:
        raise CollectResultsError(
            "labels are words at some nodes and numbers at others; expected one kind: name another column in `label`"
        )
    if len(union) < 2:
        raise CollectResultsError(
            f"the nodes named {len(union)} class(es) of the label; expected at least 2. A node names a class that "
            "enough of its rows have (V6_FEDERATED_MINIMUM_ROWS_A_CLASS): name all classes in `classes`"
        )
    if len(union) > (most := Policy.of_node().most_classes):
        raise CollectResultsError(
            f"the label has {len(union)} values; expected at most {most} classes (V6_FEDERATED_MAXIMUM_CLASSES at the "
            "node where central runs): name another column in `label`"
        )
    return sorted(union)
