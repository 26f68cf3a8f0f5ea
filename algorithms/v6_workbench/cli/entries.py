"""The entries of ``compare``: which method is trained with which settings, and on which rows."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.data import preprocessing
from v6_federated.data.source import Source
from v6_federated.messages.common import OF_NOISE
from v6_federated.messages.job import DataSpec
from v6_workbench import registry
from v6_workbench.cli import values
from v6_workbench.cli.experiment import check_job
from v6_workbench.simulation.experiments import Experiment

KINDS = ("centralized", "alone")
LOSSES = {
    "cross_entropy": "cross-entropy",
    "hinge": "hinge loss",
    "squared": "squared error",
    "poisson": "Poisson deviance",
    "cox": "partial likelihood",
}
# settings that all compared methods share, and the option that sets them for all
SHARED = {"label": "--label ", "holdout": "--holdout ", **{k: f"--set {k}=" for k in ("organizations", "evaluators")}}


@dataclass(frozen=True)
class Entry:
    """One entry: ``METHOD[:key=value,...]``, ``centralized:METHOD[...]`` or ``alone:METHOD[...]``.

    Attributes:
        kind: how it is trained: ``centralized`` on pooled rows, ``alone`` at each node, or empty for federated.
        method: the method's name.
        settings: its settings.
    """

    kind: str
    method: str
    settings: dict[str, Any]

    @property
    def measure(self) -> str:
        """What its models are measured by: ``accuracy``, ``r2`` of numbers or ``c_index`` of times."""
        return registry.measured_by(self.method, self.settings)

    @property
    def loss(self) -> str:
        """What the loss of its models is, in words; losses of different kinds have different units."""
        checked = registry.validate(self.method, {**self.settings})
        if checked.regression:
            return LOSSES[getattr(checked, "loss", "squared")]
        return LOSSES["hinge" if models.parse(checked.named_model)["name"] == "svm" else "cross_entropy"]


def read(text: str, shared: dict[str, Any]) -> Entry:
    """Read an entry.

    Args:
        text: the entry.
        shared: settings of all entries.

    Returns:
        The entry, its own settings on top of those of all.

    Raises:
        SafeError: the entry names no method, or has settings that all must share.
    """
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        kind, rest = "", text
    method, colon, settings = rest.partition(":")
    if not method:
        named = settings.strip(":")
        example = ":".join(filter(None, [kind, named if named.partition(":")[0] in registry.names() else "fedavg"]))
        raise SafeError(f"{text!r} does not name a method; expected for example {example}")
    if colon and not settings:
        raise SafeError(f"{text!r} ends with a colon and no setting; expected {text.rstrip(':')}, or {text}lr=0.1")
    if not kind and settings.partition(":")[0] in registry.names():
        raise SafeError(f"{text!r}: unknown word {method!r}; expected centralized:{settings} or alone:{settings}")
    own: dict[str, Any] = {}
    for part in re.split(r",(?=\w+=)", settings) if settings else ():
        key, written = values.pair(part, f"{text}:", "lr=0.1")
        if key in SHARED:
            raise SafeError(
                f"{text}: all methods are compared on the same rows, so {key} cannot be set for one of them; use "
                f"{SHARED[key]}{written} for all"
            )
        if key in own:
            raise SafeError(f"{text}: {key} is given twice; remove one")
        own[key] = values.setting(key, written)
    if kind and "aggregation" in own:
        raise SafeError(f"{text}: a baseline has one node, whose answers are plain; leave aggregation out")
    if kind and (noise := [name for name in OF_NOISE if name in own]):
        raise SafeError(f"{text}: a baseline evaluates without noise, and has none in training; leave {noise[0]} out")
    idle = ("aggregation", *OF_NOISE) if kind else ()
    settings_of_all = {name: value for name, value in shared.items() if name not in idle}
    return Entry(kind, method, {**settings_of_all, **own})


def check(text: str, entry: Entry, experiment: Experiment, target: float | None) -> None:
    """Check an entry before the first one is trained, its own columns and model too.

    Args:
        text: the entry as the user wrote it.
        entry: the entry.
        experiment: the experiment of all entries.
        target: the accuracy to count the rounds to.

    Raises:
        SafeError: the entry cannot be trained.
    """
    if entry.kind and entry.method in registry.names() and not registry.supervised(entry.method):
        raise SafeError(f"{text}: {entry.method} trains no model; expected a method that does")
    if entry.kind and (chosen := [name for name in ("organizations", "evaluators") if name in entry.settings]):
        raise SafeError(
            f"{text} cannot be compared with --set {chosen[0]}, since it would be trained on other rows; remove one of "
            "the two"
        )
    if entry.kind and "scale" in (preprocessing.parse(step).name for step in entry.settings.get("preprocess") or ()):
        raise SafeError(
            f"{text}: a baseline has no study, whose schema the step scale needs; compare with {entry.method} without "
            "clip, or use standardize for all"
        )
    with errors_name(text):
        if isinstance(entry.settings.get("features"), list):
            experiment = replace(experiment, features=entry.settings["features"])
        check_job(entry.method, entry.settings, experiment, target)
        _check_model(entry, experiment)


def _check_model(entry: Entry, experiment: Experiment) -> None:
    checked = registry.validate(entry.method, {**entry.settings})
    steps = {preprocessing.parse(step).name for step in checked.preprocess}
    if not registry.supervised(entry.method) or steps & {"onehot", "pca"}:  # these steps change the columns
        return
    rows = next(iter(experiment.named().values()))
    data = DataSpec(label=experiment.label, features=experiment.features)
    features = rows[0][0].size if isinstance(rows, tuple) else len(Source(table=rows).columns(data)[0])
    classes = 1 if entry.measure != "accuracy" else len(experiment.class_counts())
    spec = {**models.parse(checked.named_model), "features": features, "classes": classes}
    if (outcome := models.outcomes.OUTCOMES.get(getattr(checked, "loss", ""))) is not None:
        spec["loss"] = outcome().to_json()
    models.build(spec)


def trainings(entry: Entry, name: str, experiment: Experiment) -> dict[str, Callable[..., dict[str, Any]]]:
    """Return what an entry trains.

    Args:
        entry: the entry.
        name: its name.
        experiment: the experiment.

    Returns:
        A function of method and settings for each result, by the result's name: one for each node if the entry is
        trained ``alone``.
    """
    if entry.kind == "alone":
        nodes = enumerate(experiment.named(), start=1)
        return {f"{node} {name}": partial(experiment.alone, organization=k) for k, node in nodes}
    return {name: experiment.centralized if entry.kind == "centralized" else experiment.federated}


@contextmanager
def errors_name(entry: str) -> Iterator[None]:
    """Let errors begin with the entry that they are from; their type, and so the exit status, stays."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:  # its text is made from this, not from its arguments
            error.strerror = f"{entry}: {error.strerror}"
        else:
            error.args = (f"{entry}: {error}",)
        raise
