"""The privacy plan of a job: what central calibrates, and what the result says of it."""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.data import preprocessing
from v6_federated.data.steps import WITHOUT_ROWS
from v6_federated.messages.common import Common
from v6_federated.noise.plan import Plan

Planner = Callable[[Any], Plan]
NOISED = {
    "steps": "sums of clipped gradients of rows",
    "evaluations": "counts of evaluations",
    "statistics": "sums over clipped rows",
}
EVALUATION_NOISE = 10.0  # if neither it nor an epsilon is set
# The share of epsilon that evaluations may cost the rows held out. With 1, training on the other rows would need up to
# 2% more noise, since divergences are compared order by order; with this it needs none more.
OF_EVALUATIONS = 0.9


def check(checked: Common, method: str, single_answers: bool) -> None:
    """Check settings of noise, before any node is asked."""
    if getattr(checked, "clip", None) is None:
        return
    if single_answers and checked.aggregation != "plain":
        raise SafeError(
            f"{method} needs single answers with clip, too; set aggregation=plain, which every operator must allow"
        )
    if checked.aggregation == "plain" and not single_answers:
        raise SafeError(
            "aggregation=plain cannot be used with clip: noise is for sums; leave it out, or set masked or pinned"
        )
    if wrong := [step.name for step in map(preprocessing.parse, checked.preprocess) if step.name not in WITHOUT_ROWS]:
        raise SafeError(
            f"preprocess={wrong[0]} cannot be used with clip: no noise covers what it reads; use "
            f"{' and '.join(WITHOUT_ROWS)}, which follow from the declared schema"
        )


def training_plan(checked: Any, epochs: int | None = None) -> Plan:
    """Plan the training and the evaluations of a job, without noise yet.

    Args:
        checked: the job's settings.
        epochs: of all rounds together; None means as many as ``epochs`` says in each.

    Returns:
        The plan.
    """
    per_epoch = checked.steps_per_epoch or max(round(1 / checked.sampling), 1)
    return Plan(
        rate=checked.sampling,
        steps=per_epoch * (checked.rounds * checked.epochs if epochs is None else epochs),
        steps_per_epoch=per_epoch,
        evaluations=(checked.rounds - 1) // checked.evaluate_every + 1,
        holdout=checked.holdout,
    )


def plan_of(checked: Any, planned: Planner = training_plan) -> Plan | None:
    """Plan a job, and find the noise for its epsilon."""
    if getattr(checked, "clip", None) is None:
        return None
    from v6_federated.noise import accountant  # its library takes a second to import

    earlier(checked)  # refused now, if it cannot be read
    noise, of_evaluations = checked.noise or 1.0, getattr(checked, "evaluation_noise", None)
    plan = replace(
        planned(checked),
        clip=checked.clip,
        noise=noise,
        statistics_noise=noise,
        evaluation_noise=of_evaluations or EVALUATION_NOISE,
    )
    if checked.epsilon is None:
        return plan
    if of_evaluations is None:
        most = OF_EVALUATIONS * checked.epsilon
        found = accountant.calibrated(replace(plan, steps=0, statistics=0), most, checked.delta)
        plan = replace(plan, evaluation_noise=found.evaluation_noise)
    return accountant.calibrated(plan, checked.epsilon, checked.delta, noises=["noise", "statistics_noise"])


def earlier(checked: Any) -> list[Plan]:
    """The plans of the jobs that a job goes on from: what they cost belongs to the model too."""
    said = (checked.resume or {}).get("privacy")
    if not isinstance(said, dict) or "plan" not in said:
        return []
    return [Plan.from_json(plan) for plan in (*said.get("earlier_plans", []), said["plan"])]


def described(plan: Plan, checked: Any, shared: bool, hospitals_a_person: int = 1) -> dict[str, Any]:
    """Say what a job costs, for its result."""
    from v6_federated.noise import accountant

    delta, before = checked.delta, earlier(checked)
    alone = {"epsilon_by_privacy_loss_distribution": accountant.epsilon_pld(plan, delta)}
    return {
        "epsilon": accountant.epsilon([*before, plan], delta),
        **({"earlier_plans": [other.to_json() for other in before]} if before else alone),
        "delta": delta,
        "adjacency": "zero-out: one row's contribution is left out, and the number of rows is public",
        "hospitals_a_person": hospitals_a_person,
        "accountant": f"RDP, dp-accounting {version('dp-accounting')}",
        "noised": " and ".join(words for count, words in NOISED.items() if getattr(plan, count)),
        "noise_shared_in_a_block": shared,
        "plan": plan.to_json(),
    }
