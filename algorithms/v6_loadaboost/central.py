"""The server of LoAdaBoost."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from v6_federated import Federation, Fraction, LocalSGD, Result, Role, Rounds, Training, central

UNTIL = "nodes train on until their losses are below the median of all"

Retrain = Annotated[
    Literal["above", "below"],
    Field(description="retrain while the loss is above (Huang) or below (poster) the median"),
    Role.OTHER,
]


class Settings(Training):
    """The settings that every method takes."""

    unused: ClassVar[Mapping[str, str]] = {"local_steps": "which counts epochs"}


@central(common=Settings, recoverable=True, single_answers=UNTIL)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    fraction: Fraction = 1.0,
    local: LocalSGD = LocalSGD(epochs=2),
    retrain: Retrain = "above",
) -> Result:
    """LoAdaBoost: Huang et al. 2020; Pfitzner and Arnrich's poster.

    Symbols: S_t the nodes of round t, L_k node k's loss after its local training, median their median in the last
    round, w (d,) the model, E = epochs. ``retrain`` is "above" after Huang; the poster prints the condition the other
    way round, which is "below". What leaves a node: w after local training, n_k, L_k, the epochs it used, and counts
    of how w_t does on its held-out rows. Bytes a round: 16/3 d down and up for each node of S_t.
    """
    s = federation.start(w=federation.initial_weights, median=None)  # round 1 has no median: E/2 epochs
    for _t in federation.rounds(rounds):
        S_t = federation.sample(fraction)
        answers = federation.ask(
            "client_update",
            S_t,
            weights=s.w,
            median=s.median,
            local=local,
            retrain=retrain,
            numbers=["local_loss", "epochs"],
        )
        s.w = answers.weighted_mean("weights")
        s.median = float(np.median([*answers.numbers("local_loss").values()]))
        epochs_used = float(np.mean([*answers.numbers("epochs").values()]))
        federation.record(answers, s.w, median_loss=s.median, epochs=epochs_used)
    return federation.result(s.w)
