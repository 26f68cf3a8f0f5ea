from typing import Annotated, Literal

from pydantic import Field

from v6_federated import Common, Federation, LearningRate, Result, Rounds, central

Objective = Annotated[Literal["regression"], Field(description="what the label is: a number to predict")]


class Pinned(Common):
    model: Annotated[Literal["line"], Field(description="the only model of this method")] = "line"


@central(common=Pinned)
def central(
    federation: Federation, *, rounds: Rounds, lr: LearningRate = 0.1, objective: Objective = "regression"
) -> Result:
    """Gradient descent on all rows."""
    s = federation.start(w=federation.initial_weights)
    for _ in federation.rounds(rounds):
        answers = federation.ask("client_update", federation.organizations, weights=s.w, lr=lr)
        s.w = answers.weighted_mean("weights")
        federation.record(answers, s.w)
    return federation.result(s.w)
