"""The settings of local training: a record that methods pass from central to the nodes as one argument."""

from typing import Annotated, Any, Literal

from pydantic import Field

from v6_federated.messages.relations import Excludes, Needs
from v6_federated.messages.settings import LARGE, Number, Record, Role

SHRINKS = Excludes("until_converged", because="steps that shrink look like a model that has converged")
Epochs = Annotated[
    int, Field(ge=1, le=LARGE, description="E, passes over a node's rows in a round"), Number, Role.EPOCHS
]
LocalSteps = Annotated[
    int | None,
    Field(ge=1, le=LARGE, description="steps on minibatches of a round, in place of whole epochs (unset: E epochs)"),
    Number,
    Role.STEPS,
]
BatchSize = Annotated[
    int | None,
    Field(ge=1, le=LARGE, description="B, rows of a minibatch (unset: all rows of the node)", examples=[32]),
    Number,
    Role.BATCH,
]
LearningRate = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="eta, the step of the local optimiser"), Number, Role.RATE
]
LrDecayRound = Annotated[
    float, Field(gt=0, le=1, description="factor on lr from each round to the next"), Number, Role.OTHER, SHRINKS
]
LrDecayStep = Annotated[
    float,
    # at most 1: if the rate vanished after the first row, the node would send that row's gradient
    Field(ge=0, le=1, description="lambda of lr / (1 + lambda * local steps so far)"),
    Number,
    Role.OTHER,
    SHRINKS,
]
OptimizerName = Annotated[
    Literal["sgd", "adam"],
    Field(description="local optimiser; Adam's moments restart every round"),
    Role.OPTIMIZER,
    Excludes("clip", because="the noise is that of sgd's steps"),
]
Momentum = Annotated[
    float,
    Field(ge=0, lt=1, description="beta of sgd's step v <- beta v + g; v restarts at zero every round"),
    Number,
    Role.MOMENTUM,
    Needs(optimizer="sgd"),
]
ProximalMu = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="mu of FedProx's term mu/2 |w - w_t|^2"), Number, Role.PULL
]


class PlainSGD(Record):
    """Minibatch gradient descent: E epochs of steps w <- w - eta g, g the mean gradient of B rows.

    Attributes:
        epochs: E, passes over a node's rows in a round.
        local_steps: steps of a round, through as many epochs as they take; None means those of E epochs.
        batch_size: B, rows of a minibatch; None means all rows of the node.
        lr: eta, the learning rate.
        lr_decay_round: factor on the rate from each round to the next.
        lr_decay_step: lambda of eta / (1 + lambda i) after i local steps.
    """

    epochs: Annotated[Epochs, Excludes("local_steps", because="they take the place of epochs")] = 1
    local_steps: Annotated[
        LocalSteps, Excludes("clip", because="its plan counts epochs", instead="use epochs in its place")
    ] = None
    batch_size: Annotated[
        BatchSize, Excludes("clip", because="rows are drawn", instead="use sampling in its place, as sampling=0.1")
    ] = None
    lr: LearningRate = 0.1
    lr_decay_round: LrDecayRound = 1.0
    lr_decay_step: LrDecayStep = 0.0


class LocalSGD(PlainSGD):
    """Minibatch gradient descent with a choice of optimiser, with momentum, and with FedProx's proximal term.

    Attributes:
        optimizer: "sgd" or "adam".
        momentum: beta of sgd's step v <- beta v + g, w <- w - eta v.
        proximal_mu: mu of FedProx's term mu/2 |w - w_t|^2, w_t the model that the node was sent.
    """

    optimizer: OptimizerName = "sgd"
    momentum: Momentum = 0.0
    proximal_mu: ProximalMu = 0.0


ONE_STEP = (
    "use fedavg with one step a round on all rows (FedSGD): epochs=1, without local_steps, batch_size and optimizer, "
    "and a model that is added up exactly (logreg, svm, linear, fnn, 2nn, mlp without dropout and norm)"
)
RISK_SETS = "for times, use cox with strata=none, on a grid of times that all hospitals share"


def one_step(local: LocalSGD) -> bool:
    """Whether local training is one plain step on all rows: its mean by rows is a step on the rows of all."""
    return (local.local_steps or local.epochs) == 1 and local.batch_size is None and local.optimizer == "sgd"


def of_gradients(asked: Any) -> Literal["row", "hospital"]:
    """Say what a mean gradient over rows, and their loss, is additive in.

    Args:
        asked: what the task asks for.

    Returns:
        "row"; "hospital" if rows of a node are compared with each other, as times are, if nodes add noise of their own,
        and if each of them rounds the sum of its rows, as networks in torch do: at a size that the weights decide.
    """
    return "hospital" if asked.job.loss == "cox" or asked.noisy or not asked.summing else "row"


def of_steps(asked: Any) -> Literal["row", "hospital"]:
    """Say what the mean of models after local training is additive in.

    Args:
        asked: what the task asks for, with the setting ``local``.

    Returns:
        "row" if nodes take one plain step on all of their rows, see also ``of_gradients``; "hospital" otherwise.
    """
    return of_gradients(asked) if one_step(LocalSGD(**asked.settings.get("local", {}))) else "hospital"
