"""What describes local training: one record, declared once, that central passes whole to the nodes."""

from typing import Annotated, Literal

from pydantic import Field

from v6_federated.messages.settings import LARGE, Number, Record, Role

Epochs = Annotated[
    int, Field(ge=1, le=LARGE, description="E, passes over a node's rows in a round"), Number, Role.OTHER
]
BatchSize = Annotated[
    int | None,
    Field(ge=1, le=LARGE, description="B, rows of a minibatch (unset: all rows of the node)"),
    Number,
    Role.BATCH,
]
LearningRate = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="eta, the step of the local optimiser"), Number, Role.RATE
]
LrDecayRound = Annotated[
    float, Field(gt=0, le=1, description="factor on lr from each round to the next"), Number, Role.OTHER
]
LrDecayStep = Annotated[
    float, Field(ge=0, le=1, description="lambda of lr / (1 + lambda * local steps so far)"), Number, Role.OTHER
]  # not above 1: a rate that vanishes after the first row would send that row's gradient
OptimizerName = Annotated[
    Literal["sgd", "adam"], Field(description="local optimiser; Adam's moments start anew each round"), Role.OPTIMIZER
]
Momentum = Annotated[
    float,
    Field(ge=0, lt=1, description="beta of v <- beta v + g, the step of sgd; v starts at zero each round"),
    Number,
    Role.MOMENTUM,
]
ProximalMu = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="mu of FedProx's term mu/2 |w - w_t|^2"), Number, Role.PULL
]


class PlainSGD(Record):
    """Minibatch gradient descent: E epochs of steps w <- w - eta g on B rows each."""

    epochs: Epochs = 1
    batch_size: BatchSize = None
    lr: LearningRate = 0.1
    lr_decay_round: LrDecayRound = 1.0
    lr_decay_step: LrDecayStep = 0.0


class LocalSGD(PlainSGD):
    """The same with a choice of optimiser, momentum, and FedProx's pull towards the model that the node began with."""

    optimizer: OptimizerName = "sgd"
    momentum: Momentum = 0.0
    proximal_mu: ProximalMu = 0.0
