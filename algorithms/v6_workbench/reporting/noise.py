"""How much noise a job would have under a privacy budget, and other ways to spend the same budget.

Nothing here knows the data. So it compares the noise with the largest signal that there can be, and says nothing of how
accurate a model becomes.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.data.source import held_out
from v6_federated.messages.result import confusion_shape
from v6_federated.models import metrics
from v6_federated.noise import accountant
from v6_federated.noise.plan import Plan
from v6_workbench import registry

METHOD = "fedavg"
SAMPLINGS = (0.1, 0.01)
ROUNDS = (10, 20, 50, 100, 200, 500, 1000)  # of the picture
FEDSGD = {"sampling": 1.0, "epochs": 1, "steps_per_epoch": None}
STUDY, ALONE = "FedSGD in a study", "FedSGD without a study"


@dataclass(frozen=True, kw_only=True)
class Hospitals:
    """Hospitals whose rows are not known.

    Attributes:
        number: K, how many they are.
        rows: of all of them together, about equally many at each.
        holdout: the share of rows that are held out.
        classes: of the label.
        parameters: d, of the model.
        blocks: hospitals of each block of a study.
        colluders: hospitals of a block that the study assumes to work with the server.
        hospitals_a_person: N, at how many of them the study lets a person have rows.
    """

    number: int
    rows: int
    holdout: float
    classes: int
    parameters: int
    blocks: Sequence[int]
    colluders: int
    hospitals_a_person: int = 1

    @property
    def held_out(self) -> int:
        """Rows of all hospitals that are held out."""
        each, more = divmod(self.rows, self.number)
        return more * held_out(each + 1, self.holdout) + (self.number - more) * held_out(each, self.holdout)

    @property
    def training(self) -> int:
        """N, the rows that all hospitals train on."""
        return self.rows - self.held_out

    def spread(self, study: bool, shared: bool = True) -> float:
        """Say how much larger the noise of a sum over all hospitals is than that which hides a row.

        Args:
            study: whether the hospitals are in a study.
            shared: whether those of a block then share it.

        Returns:
            The factor.
        """
        N = self.hospitals_a_person if study else 1
        if not (study and shared):
            return math.sqrt(N * self.number)
        return N * math.sqrt(sum(size / (size - self.colluders) for size in self.blocks))


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """One way to spend the budget.

    Attributes:
        name: what is done.
        rounds: of the job.
        plan: what it asks of a node.
        epsilon: what it costs, by Renyi differential privacy, as the ledgers count.
        delta: the probability that epsilon does not bound the loss.
        rows_a_step: q N, the rows that take part in a step, on average.
        deviation: standard deviation of the noise in a coordinate of the mean gradient.
        of_step: the same over C / sqrt(d), a coordinate of the mean gradient if all rows pull the same way.
        of_job: the noise of all steps added up, over the same signal of all steps.
        accuracy_error: standard deviation that noise adds to the accuracy in an evaluation; None without held-out rows.
    """

    name: str
    rounds: int
    plan: Plan
    epsilon: float
    delta: float
    rows_a_step: float
    deviation: float
    of_step: float
    of_job: float
    accuracy_error: float | None

    @cached_property
    def epsilon_pld(self) -> float:
        """What it costs alone, by privacy loss distributions. This takes seconds, and pictures do not show it."""
        return accountant.epsilon_pld(self.plan, self.delta)

    def to_json(self) -> dict[str, Any]:
        """Write it.

        Returns:
            Its attributes, by longer names.
        """
        return {
            "name": self.name,
            "rounds": self.rounds,
            "plan": self.plan.to_json(),
            "epsilon": self.epsilon,
            "epsilon_by_privacy_loss_distribution": self.epsilon_pld,
            "rows_a_step": self.rows_a_step,
            "gradient_deviation": self.deviation,
            "noise_to_signal_step": self.of_step,
            "noise_to_signal_job": self.of_job,
            "accuracy_error": self.accuracy_error,
        }


def alternatives(asked: Mapping[str, Any], hospitals: Hospitals) -> list[Alternative]:
    """Plan a job, and other jobs of the same cost.

    Args:
        asked: settings of the job, with ``rounds``, ``clip`` and ``epsilon``.
        hospitals: the hospitals.

    Returns:
        The job that is asked for, then the others. Those that no plan can describe are left out.

    Raises:
        SafeError: a setting is wrong, or no noise is enough for this epsilon.
    """
    checked = registry.validate(METHOD, dict(asked))
    rounds, every = asked["rounds"], checked.evaluate_every
    q, epochs, steps = (getattr(checked, name) for name in ("sampling", "epochs", "steps_per_epoch"))
    name = f"FedAvg, sampling={q:g}, epochs={epochs}"
    others = _kinds()
    if epochs == 1 and (q == 1 or steps == 1):
        name = STUDY if q == 1 else _sampled(q)
        others = [kind for kind in others if kind[0] != name]
    half_and_double = {max(rounds // 2, 1), 2 * rounds} - {rounds}
    others += [(f"the first, {r} rounds", {"rounds": r}, True) for r in sorted(half_and_double)]
    if every < rounds:
        others.append((f"the first, evaluate_every={rounds}", {"evaluate_every": rounds}, True))
    found = [_alternative(name, checked, hospitals)]
    for name, changes, study in others:
        with suppress(SafeError):
            found.append(_alternative(name, registry.validate(METHOD, {**asked, **changes}), hospitals, study))
    return found


def by_rounds(asked: Mapping[str, Any], hospitals: Hospitals) -> dict[str, list[Alternative]]:
    """Plan jobs of the same cost with more and fewer rounds.

    Args:
        asked: settings of the job, with ``rounds``, ``clip`` and ``epsilon``.
        hospitals: the hospitals.

    Returns:
        By what is done, the jobs by their rounds. Those that no plan can describe are left out.
    """
    found: dict[str, list[Alternative]] = {}
    for name, changes, study in _kinds():
        for rounds in sorted({*ROUNDS, asked["rounds"]}):
            with suppress(SafeError):
                checked = registry.validate(METHOD, {**asked, **changes, "rounds": rounds})
                found.setdefault(name, []).append(_alternative(name, checked, hospitals, study))
    return found


def _kinds() -> list[tuple[str, dict[str, Any], bool]]:
    """Ways to train: name, settings, and whether the hospitals are in a study."""
    return [
        (STUDY, FEDSGD, True),
        (ALONE, FEDSGD, False),
        *((_sampled(q), FEDSGD | {"sampling": q, "steps_per_epoch": 1}, True) for q in SAMPLINGS),
        *((f"FedAvg, sampling={q:g}", FEDSGD | {"sampling": q}, True) for q in SAMPLINGS),
    ]


def _sampled(q: float) -> str:
    return f"{STUDY}, sampling={q:g}"


def _alternative(name: str, checked: Any, hospitals: Hospitals, study: bool = True) -> Alternative:
    plan = registry.central_of(METHOD).plan_of(checked)
    assert plan is not None
    # as ``Federation.one_noisy_sum`` has it; evaluations are sums over a block in any case
    shared = plan.steps == checked.rounds and (plan.rate == 1 or hospitals.hospitals_a_person == 1)
    spread = hospitals.spread(study, shared)
    rows = plan.rate * hospitals.training
    deviation = plan.noise * spread * plan.clip / rows
    of_step = deviation * math.sqrt(hospitals.parameters) / plan.clip
    # a row is in one cell, and in one band of each problem
    cells = min(confusion_shape(hospitals.classes)) * (1 + metrics.problems(hospitals.classes))
    on_the_diagonal = plan.evaluation_noise * hospitals.spread(study) * math.sqrt(cells)
    return Alternative(
        name=name,
        rounds=checked.rounds,
        plan=plan,
        epsilon=accountant.epsilon([plan], checked.delta),
        delta=checked.delta,
        rows_a_step=rows,
        deviation=deviation,
        of_step=of_step,
        of_job=of_step / math.sqrt(plan.steps),
        accuracy_error=on_the_diagonal / hospitals.held_out if hospitals.held_out else None,
    )
