"""The server of dynamic averaging, with three protocols for who communicates when."""

from typing import Annotated, Any, Literal

from pydantic import Field

from v6_dynavg.divergence import by_divergence
from v6_dynavg.schedule import by_schedule
from v6_federated import Federation, LocalSGD, Number, Result, Role, Rounds, SafeError, central, changed

WHO = "who communicates is decided by single answers"

Protocol = Annotated[Literal["divergence", "svd", "loss"], Field(description="who communicates, and when")]
Delta = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="squared distance from the reference allowed"),
    Number,
    Role.OTHER,
]
Augmentation = Annotated[
    Literal["random", "doubling"], Field(description="nodes added to the violators: one at a time, or as many again")
]
TrainFrom = Annotated[
    Literal["own", "newest", "newest_pass"],
    Field(description="model that a due node trains: its own, the newest, the newest for this round"),
]


def check_settings(settings: Any) -> None:
    """Reject settings that the protocol does not read.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: there are some.
    """
    if settings.until_converged is not None:
        raise SafeError("until_converged cannot be used with dynavg: between averages its model stays as it is")
    others = ("train_from",) if settings.protocol == "divergence" else ("delta", "augmentation")
    if idle := changed(settings, others):
        raise SafeError(f"{', '.join(idle)} has no effect with protocol={settings.protocol}; leave it out")
    if settings.local_steps is not None and settings.protocol != "divergence":
        raise SafeError(
            f"local_steps cannot be used with protocol={settings.protocol}, which counts epochs; leave it out"
        )


@central(single_answers=WHO, check=check_settings)
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
