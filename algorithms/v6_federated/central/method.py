"""What a method declares of its server, and the checks of its settings, before any node is asked."""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.central import noise_plan
from v6_federated.data import preprocessing
from v6_federated.masks.summands import Declaration
from v6_federated.messages import in_a_study, relations, settings
from v6_federated.messages.common import Common, Training, TrainingWithNoise, WithNoise
from v6_federated.messages.settings import Role, with_role
from v6_federated.messages.step_length import check_steps
from v6_federated.noise.plan import Plan

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


@dataclass(frozen=True, eq=False)
class Method:
    """A method's server and what is declared of it, under the names that ``central`` explains."""

    server: Callable[..., Result]
    supervised: bool
    recoverable: bool
    single_answers: str | Callable[[Any], str]
    missing: bool
    private: bool | noise_plan.Planner
    common: type[Common] | None
    own_check: Callable[[Any], None]
    not_in_a_study: Callable[[Any], str]
    of_hospitals: Callable[[Any], str]

    @property
    def package(self) -> str:
        """The name of its package."""
        return self.server.__module__.split(".")[0]

    @property
    def name(self) -> str:
        """Its name."""
        return self.package.removeprefix("v6_")

    @functools.cached_property
    def settings(self) -> type[Common]:
        """All of its settings."""
        usual = (TrainingWithNoise, WithNoise) if self.private else (Training, Common)
        accepted = settings.settings_of(self.server, self.common or usual[0 if self.supervised else 1])
        accepted.unused = _unused(accepted, self.supervised)
        return accepted

    def why_single(self, checked: Any) -> str:
        """Why it needs single answers with these settings; empty if sums suffice."""
        return self.single_answers(checked) if callable(self.single_answers) else self.single_answers

    def plan_of(self, checked: Any) -> Plan | None:
        """What a job asks of a node in all; None if nodes add no noise."""
        return noise_plan.plan_of(checked, self.private if callable(self.private) else noise_plan.training_plan)

    def declared(self, function: str) -> Declaration | None:
        """What a partial function that the package exports, so that a task may call it, declares as its sums."""
        found: Declaration | None = getattr(self._exported(function), "sums", None)
        return found

    def instead(self, function: str) -> str:
        """What serves in its place where only sums over rows are answered."""
        said: str = getattr(self._exported(function), "instead", "")
        return said

    def _exported(self, function: str) -> Any:
        return getattr(sys.modules[self.package], function, None)

    def check_mode(self, checked: Any, aggregation: str) -> None:
        """Reject settings that cannot be used in a study, if the mode is that of a study."""
        if aggregation != "pinned":
            return
        in_a_study.check(checked)
        if reason := self.not_in_a_study(checked):
            raise SafeError(reason)

    def check(self, checked: Any) -> None:
        """Reject settings that do not fit together."""
        if (why := self.why_single(checked)) and checked.aggregation in ("masked", "pinned"):
            raise SafeError(f"{self.name} needs aggregation=plain: {why}")
        relations.check(checked, self.name)
        for step in checked.preprocess:
            preprocessing.parse(step)
        _check_training(checked)
        noise_plan.check(checked, self.name, bool(why))
        self.own_check(checked)
        self.check_mode(checked, checked.aggregation)
        if getattr(checked, "loss", "") == "cox" and 1 in with_role(checked, Role.BATCH):
            raise SafeError(
                "minibatches of one row have no partial likelihood, as loss=cox compares rows; set batch_size, for "
                "example batch_size=32, or batch_size=none for all rows of a node"
            )


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
