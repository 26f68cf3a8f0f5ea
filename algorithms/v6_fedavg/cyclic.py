"""Cyclic weight transfer (Chang et al. 2018): each node trains the model of the one before."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from v6_fedavg.clients import Clients
from v6_fedavg.robust import Aggregate
from v6_federated import Answers, Federation, LocalSGD

ScheduleName = Annotated[
    Literal["parallel", "cyclic"],
    Field(description="nodes train at once, or one after the other (aggregation=plain)"),
]


class Cyclic(Clients):
    """The nodes of a round train one after another. Each round draws a new order."""

    def __init__(self, federation: Federation, aggregate: Aggregate) -> None:
        """Begin without an order."""
        super().__init__(federation, aggregate)
        self.carried = {"order": list[int]()}  # nodes are not sent it: a job cannot go on from what they were sent

    def update(self, S_t: Sequence[int], s: Any, local: LocalSGD, t: int) -> Answers:
        """Pass the model on. A node that gives no answer is passed over, as far as the job's settings allow it."""
        s.order = self.federation.generator("cycle").permutation(S_t).tolist()
        self.w, answers = s.w, Answers([])
        for k in s.order:
            answer = self.federation.ask("client_update", [k], weights=self.w, local=local, quorum_of=0)
            if len(answer):
                self.w = answer.weighted_mean("weights")
            answers += answer
        self.federation.require(answers, s.order)
        return answers

    def combined(self, answers: Answers, s: Any) -> np.ndarray:
        """Return the last node's model (d,)."""
        return self.w
