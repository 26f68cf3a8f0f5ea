"""The server of federated SVRG."""

import functools
from typing import Any

from pydantic import BaseModel

from v6_federated import functions, models
from v6_federated.errors import SafeError
from v6_federated.federation import Federation, weighted_mean
from v6_federated.settings import BatchSize, Rounds, Stepsize

DROPOUT = 0.5  # of cnn_reddy, where it is not told


def check_settings(checked: BaseModel) -> None:
    """Refuse dropout: grad f_i(w) and grad f_i(w_t) would be of other units, and not cancel out at w = w_t."""
    model = models.parse(dict(checked)["model"])
    if model.get("dropout", DROPOUT if model["name"] == "cnn_reddy" else 0):
        raise SafeError(f"a model with dropout is of no use to fsvrg; expected {model['name']}:dropout=0")


@functools.partial(functions.central, told_in_full=True, check=check_settings)
def central(
    federation: Federation, *, rounds: Rounds, stepsize: Stepsize = 1.0, batch_size: BatchSize = 1
) -> dict[str, Any]:
    """Federated SVRG: Nilsson et al. 2018, Algorithm 2.

    Symbols: K nodes, n_k rows of node k of n in all, w_t (d,) the model, grad f(w_t) (d,) the full gradient, h =
    stepsize. What leaves a node: its full gradient, then its model after one pass, n_k, its mean training loss, and
    counts of how w_t does on its held-out rows. Bytes a round: 32/3 d up and 16 d down for each of the K nodes, in
    two answers.
    """
    s = federation.start(w=federation.initial_weights)
    for _t in federation.rounds(rounds):
        gradients = federation.ask("gradient", federation.organizations, weights=s.w, returns=["gradient"])
        full_gradient = weighted_mean(gradients, "gradient")  # grad f(w_t) = sum n_k / n grad F_k(w_t)
        answers = federation.ask(
            "client_update",
            [a.organization_id for a in gradients],
            weights=s.w,
            full_gradient=full_gradient,
            stepsize=stepsize,
            batch_size=batch_size,
            of=len(federation.organizations),
        )
        s.w = weighted_mean(answers)
        averaged = [a.organization_id for a in answers]
        federation.record([*gradients, *answers], s.w, participants=averaged, uploads=len(gradients) + len(answers))
    return federation.result(s.w)
