"""The server of federated SVRG."""

from typing import Annotated

from pydantic import BaseModel, Field

from v6_federated import ONE_STEP, BatchSize, Federation, Number, Result, Role, Rounds, SafeError, central, models

Stepsize = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="h of FSVRG; a node's step is h / n_k a row"),
    Number,
    Role.ROW_RATE,
]


def check_settings(checked: BaseModel) -> None:
    """Reject loss=cox: the mean of the partial likelihoods of minibatches is not that of all rows.

    Args:
        checked: the job's settings.

    Raises:
        SafeError: the loss is Cox's.
    """
    if dict(checked).get("loss") == "cox":
        raise SafeError(
            "loss=cox cannot be used with fsvrg, which corrects minibatches' gradients by that of all rows: partial "
            "likelihoods of minibatches do not add up to that of all rows; use fedavg or scaffold"
        )


def check_model(model: models.Model) -> None:
    """Reject dropout: grad f_i(w) and grad f_i(w_t) would drop different units, and not cancel out at w = w_t.

    Args:
        model: the job's model.

    Raises:
        SafeError: it draws random numbers while it trains, as also for distorted images.
    """
    if model.traits.random:
        raise SafeError(
            "fsvrg cannot train a model with dropout or random distortions, as two gradients of a row must be equal; "
            "set the option dropout=0, as in cnn_reddy:dropout=0, or choose another model, such as cnn"
        )


@central(
    recoverable=True,
    check=check_settings,
    of_hospitals=lambda settings: f"after a pass over its rows a hospital's model is no sum over them; {ONE_STEP}",
)
def central(federation: Federation, *, rounds: Rounds, stepsize: Stepsize = 1.0, batch_size: BatchSize = 1) -> Result:
    """Federated SVRG: Nilsson et al. 2018, Algorithm 2.

    Symbols: K nodes, n_k rows of node k of n in all, w_t (d,) the model, grad f(w_t) (d,) the full gradient, h =
    stepsize. What leaves a node: its full gradient, then its model after one pass, n_k, its mean training loss, and
    counts of how w_t does on its held-out rows. Bytes a round: 32/3 d up and 16 d down for each of the K nodes, in
    two answers.
    """
    K = federation.organizations
    check_model(federation.model)
    s = federation.start(w=federation.initial_weights)
    for _t in federation.rounds(rounds):
        gradients = federation.ask("gradient", K, weights=s.w)
        full_gradient = gradients.weighted_mean("gradient")  # grad f(w_t) = sum n_k / n grad F_k(w_t)
        answers = federation.ask(
            "client_update",
            gradients.organizations,
            weights=s.w,
            full_gradient=full_gradient,
            stepsize=stepsize,
            batch_size=batch_size,
            quorum_of=len(K),  # a node that dropped out after the first request counts as missing
        )
        s.w = answers.weighted_mean("weights")
        uploads = len(gradients) + len(answers)
        federation.record(gradients + answers, s.w, participants=answers.organizations, uploads=uploads)
    return federation.result(s.w)
