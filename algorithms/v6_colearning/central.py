"""The server of Co-Learning."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from v6_federated import (
    LARGE,
    ONE_STEP,
    Federation,
    Fraction,
    LocalSGD,
    Number,
    Plan,
    Result,
    Role,
    Rounds,
    SafeError,
    TrainingWithNoise,
    central,
    training_plan,
)

Tolerance = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="epsilon, relative change up to which epochs double"), Number
]
LrCycle = Annotated[
    float,
    Field(gt=0, le=1, description="lambda: lr falls to this share of itself within a round"),
    Number,
    Role.OTHER,
]
MaximumEpochs = Annotated[
    int | None, Field(ge=1, le=LARGE, description="epochs that are not exceeded (unset: no limit)"), Number
]


class Settings(TrainingWithNoise):
    """The settings that every method takes; a resumed job goes on with the epochs that it has come to."""

    same_when_resumed: ClassVar[tuple[str, ...]] = ("epochs",)
    unused: ClassVar[Mapping[str, str]] = {"local_steps": "which counts epochs"}


def most_epochs(settings: Any) -> Plan:
    """With noise a node is asked for no more steps than if epochs double after each round.

    When they double follows from models with noise, and tells no more of a row than these do.
    """
    E_0, most = settings.epochs, settings.maximum_epochs
    if most is None:
        raise SafeError(
            "clip needs maximum_epochs: a privacy plan holds all steps, and epochs may double in each round; set it, "
            f"for example maximum_epochs={4 * E_0}"
        )
    # 2^t with t > 63 is beyond any number of epochs that can be set
    epochs = sum(min(E_0 * 2 ** min(t, 63), max(E_0, most)) for t in range(settings.rounds))
    return training_plan(settings, epochs)


@central(
    common=Settings,
    recoverable=True,
    private=most_epochs,
    of_hospitals=lambda settings: f"its rounds take more and more local steps; {ONE_STEP}",
)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    fraction: Fraction = 1.0,
    local: LocalSGD = LocalSGD(),
    tolerance: Tolerance = 0.01,
    lr_cycle: LrCycle = 0.25,
    maximum_epochs: MaximumEpochs = None,
) -> Result:
    """Co-Learning: Xu et al. 2018; Pfitzner and Arnrich's poster.

    Symbols: S_t the nodes of round t, w_t (d,) the model, E_t the local epochs of round t, E_0 = epochs, lambda =
    lr_cycle, epsilon = tolerance. What leaves a node: w after local training, n_k, its mean training loss, and counts
    of how w_t does on its held-out rows. Bytes a round: 16/3 d down and up for each node of S_t.
    """
    s = federation.start(w=federation.initial_weights, epochs=local.epochs, epochs_before=0)  # s.epochs is E_t
    for _t in federation.rounds(rounds):
        S_t = federation.sample(fraction)
        answers = federation.ask(
            "client_update",
            S_t,
            weights=s.w,
            epochs=s.epochs,
            epochs_before=s.epochs_before,
            local=local,
            lr_cycle=lr_cycle,
        )
        s.epochs_before += s.epochs
        s.w = answers.weighted_mean("weights")
        federation.record(answers, s.w, epochs=s.epochs)
        change = federation.history[-1]["change"]  # None in round 1 of linear models, which start at zero
        if change is not None and change <= tolerance:  # the cap is ours
            s.epochs = 2 * s.epochs if maximum_epochs is None else max(s.epochs, min(2 * s.epochs, maximum_epochs))
    return federation.result(s.w)
