"""The server of dynamic averaging, with three protocols for who communicates when."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from v6_dynavg.divergence import by_divergence
from v6_dynavg.schedule import by_schedule
from v6_federated import Excludes, Federation, LocalSGD, Needs, Number, Result, Role, Rounds, Training, central

WHO = "who communicates is decided by single answers"

Protocol = Annotated[
    Literal["divergence", "svd", "loss"],
    Field(description="who communicates, and when"),
    Excludes("local_steps", because="its schedule counts epochs"),
]
Delta = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="squared distance from the reference allowed"),
    Number,
    Role.OTHER,
    Needs(protocol="divergence"),
]
Augmentation = Annotated[
    Literal["random", "doubling"],
    Field(description="nodes added to the violators: one at a time, or as many again"),
    Needs(protocol="divergence"),
]
TrainFrom = Annotated[
    Literal["own", "newest", "newest_pass"],
    Field(description="model that a due node trains: its own, the newest, the newest for this round"),
    Needs(protocol=("svd", "loss")),
]


class Settings(Training):
    """The settings that every method takes."""

    unused: ClassVar[Mapping[str, str]] = {"until_converged": "whose model stays as it is between averages"}


@central(common=Settings, single_answers=WHO)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    protocol: Protocol = "divergence",
    delta: Delta = 0.3,
    augmentation: Augmentation = "random",
    train_from: TrainFrom = "own",
    local: LocalSGD = LocalSGD(),
) -> Result:
    """Dynamic averaging: by divergence (Kamp et al. 2018; Reddy 2020, Algorithm 1), SVD or loss (Algorithms 3, 4).

    Symbols: K nodes, f_k (d,) the model of node k, r (d,) the reference, B the nodes whose models are averaged, v the
    violations since the last full average; q_k a node's singular index or loss, q' the same scaled to [0, 1], E =
    rounds, rho_k the rounds between node k's communications. What leaves a node: its model, when it communicates; in
    other rounds only n_k, its mean training loss and its distance from r (divergence), or nothing (svd, loss); once q_k
    (svd); counts of how the newest model does on its held-out rows. Bytes a round: 16/3 d up and down for each node
    that communicates.
    """
    if protocol == "divergence":
        w = by_divergence(federation, rounds, delta, augmentation, local)
    else:
        w = by_schedule(federation, rounds, protocol, train_from, local)
    return federation.result(w)
