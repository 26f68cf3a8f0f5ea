"""What the evaluation of the last model shows beside the measures: curves, subgroups and hospitals' own results."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.central.answer import Answer
from v6_federated.central.blocks import Blocks
from v6_federated.central.calls import Group
from v6_federated.data.statistics import FEWEST
from v6_federated.masks.summands import Item, Part, each
from v6_federated.messages import codec
from v6_federated.messages.job import Job
from v6_federated.models import Model, details, metrics
from v6_federated.rules.policy import Policy

POOLED = "each hospital finds its own results in its folder"


class LastEvaluation:
    """The evaluation of one job's last model."""

    def __init__(self, job: Job, model: Model, blocks: Blocks) -> None:
        """Settle what is asked for."""
        self._job, self._blocks = job, blocks
        self._spec = job.data
        self._noisy = job.privacy is not None
        self._calibrated = not self._noisy and details.has_probabilities(model, job.data.classes)
        self._sizes = self._calibrated, len(self._spec.levels), len(self._spec.classes or ())

    def asked(self, group: Group) -> Group:
        """Add what else is asked for to the calls that evaluate the last model."""
        if self._noisy:
            return group
        return replace(group, expected=replace(group.expected, validate=self._wrong))

    def _wrong(self, answer: Answer) -> str | None:
        n = answer.values.get("evaluation", {}).get("n", 0)
        try:
            found = _sent(answer)
        except SafeError as error:
            return f"sent details of its evaluation that cannot be used: {error}"
        if (problem := details.wrong(found, *self._sizes)) is not None:
            return problem
        counted = found["counts"].sum() if "counts" in found else n
        grouped = found["subgroups"].sum() if "subgroups" in found else 0
        if counted != n or grouped > n:
            return f"sent details of other rows than the {n} of its evaluation"
        return None

    def of(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Read the answers. Call it before the history takes the evaluations out of them."""
        if self._noisy:
            return {"own_results": f"no hospital's own results are shown: no noise would be left for them; {POOLED}"}
        found = [self._details(a) for a in answers]
        evaluations = [a.values.get("evaluation", {}) for a in answers]
        shown: dict[str, Any] = {}
        if self._calibrated:
            shown["curves"] = details.curves([d for d in found if "counts" in d], evaluations)
        if self._spec.subgroup is not None:
            counts = [d["subgroups"] for d in found if "subgroups" in d]
            if masked := [d["contributes"] for d in found if "contributes" in d]:
                several = np.sum(masked, axis=0) >= FEWEST
                counts = [np.where(several[:, None, None], c, 0) for c in counts]
            shown["subgroups"] = details.subgroups(self._spec.subgroup, self._spec.levels, counts)
        single = [a for a in answers if not a.members]
        if not single:
            return {**shown, "own_results": f"central knows sums only, and no hospital's own results; {POOLED}"}
        shown["by_hospital"] = [self._own(a) for a in single if a.values.get("own_results") is True]
        hidden = [a.organization_id for a in single if a.values.get("own_results") is not True]
        if hidden:
            shown["own_results"] = (
                f"the operators of organizations {', '.join(map(str, hidden))} do not let their own results be shown, "
                f"although central has seen them, as all answers with aggregation=plain; {POOLED}"
            )
        return shown

    def _details(self, answer: Answer) -> dict[str, Array]:
        if not answer.members:
            return _sent(answer)
        sums = answer.values["sums"]
        declared = details.summands(*self._sizes, hospitals=self._job.counts_hospitals)
        items: list[Item] = [i for name, of in each(declared) for i in of.items(name, None)]
        found = {item.name: np.asarray(item.parts()[0].of(sums)) for item in items}
        if not (found and self._blocks.in_a_study):
            return found
        confusion = np.asarray(sums[Part("evaluation.confusion", "one", 64).key])
        return details.of_a_block(found, confusion, Policy.of_node(), self._blocks.rounding)

    def _own(self, answer: Answer) -> dict[str, Any]:
        """One hospital's own results."""
        evaluation, counted = answer.values.get("evaluation", {}), _sent(answer)
        regression = self._spec.regression
        found = (
            metrics.combine_regression([evaluation], self._job.loss) if regression else metrics.combine([evaluation])
        )
        row = {"organization": answer.organization_id, **found}
        brier = details.curves([counted], []) if "counts" in counted else {}
        return {**row, "brier": brier["brier"]} if brier else row


def _sent(answer: Answer) -> dict[str, Array]:
    """The details that a node sent; empty if it sent none."""
    payload = answer.values.get("details")
    return {} if payload is None else codec.decode(payload)
