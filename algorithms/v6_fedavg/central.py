"""The server of FederatedAveraging."""

from typing import Any

import numpy as np

from v6_fedavg.combining import AggregateName, ScheduleName, Trim, combined, passed_on
from v6_fedavg.decay import LocalDecay
from v6_fedavg.personal import Personal
from v6_fedavg.server_optimizer import ServerOptimizer
from v6_federated import Answers, Federation, Fraction, LocalSGD, Result, Rounds, SafeError, central, changed


def why_single(settings: Any) -> str:
    """Say which settings need the nodes' own models.

    Args:
        settings: the job's settings.

    Returns:
        The reason; empty if their sum suffices.
    """
    if settings.schedule == "cyclic":
        return "with schedule=cyclic each node trains the model of the one before"
    return "" if settings.aggregate == "mean" else f"aggregate={settings.aggregate} compares the nodes' models"


def check_settings(settings: Any) -> None:
    """Reject settings that do not fit each other.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: they do not.
    """
    if settings.schedule == "cyclic" and settings.aggregate != "mean":
        raise SafeError(f"aggregate={settings.aggregate} has no effect with schedule=cyclic; leave one out")
    if settings.aggregate != "trimmed" and changed(settings, ["trim"]):
        raise SafeError(f"trim={settings.trim} has no effect without aggregate=trimmed; leave it out, or set both")
    if settings.personalize != "none" and (not settings.holdout or settings.evaluators or settings.clip is not None):
        raise SafeError(
            "personalize needs rows that each node holds out to evaluate its own model; leave out holdout=0, "
            "evaluators and clip"
        )
    if settings.personalize == "ditto" and settings.schedule == "cyclic":
        raise SafeError("personalize=ditto cannot be used with schedule=cyclic; use personalize=finetune")
    for name, needed in (("personal_epochs", "finetune"), ("personal_mu", "ditto")):
        if settings.personalize != needed and changed(settings, [name]):
            raise SafeError(f"{name} has no effect without personalize={needed}; leave it out, or set both")
    if settings.server_optimizer in ("sgd", "adagrad") and changed(settings, ["server_beta2"]):
        raise SafeError(f"server_beta2 has no effect with server_optimizer={settings.server_optimizer}; leave it out")
    if settings.server_optimizer == "sgd" and changed(settings, ["server_tau"]):
        raise SafeError("server_tau has no effect with server_optimizer=sgd; leave it out")
    _check_decay(settings)


def _check_decay(settings: Any) -> None:
    """Reject a decay of local computation that changes nothing, or that other settings do not reckon with."""
    decays = changed(settings, ["epochs_decay_round", "batch_size_growth_round"])
    if "epochs_decay_round" in decays and settings.local_steps is not None:
        raise SafeError(
            "epochs_decay_round has no effect with local_steps, which takes the place of epochs; leave it out"
        )
    if "epochs_decay_round" in decays and settings.epochs == 1:
        raise SafeError("epochs_decay_round has no effect with epochs=1; leave it out, or set epochs higher")
    if "batch_size_growth_round" in decays and settings.batch_size is None:
        raise SafeError("batch_size_growth_round has no effect without batch_size; leave it out, or set both")
    if not decays:
        return
    if settings.clip is not None:
        raise SafeError(f"{decays[0]} cannot be used with clip, whose plan counts the same epochs in each round")
    if settings.lr_decay_step and settings.local_steps is None:  # nodes take earlier rounds to have had as many steps
        raise SafeError(
            f"lr_decay_step cannot be used with {decays[0]}, since it counts equal rounds; use lr_decay_round"
        )
    if settings.until_converged is not None:
        raise SafeError(
            f"until_converged cannot be used with {decays[0]}: rounds that train less look like a model that has "
            "converged; leave one of them out"
        )


@central(
    recoverable=True,
    private=True,
    single_answers=why_single,
    check=check_settings,
    known_as={
        "fedprox": "--set proximal_mu=0.1",
        "fedsgd": "",
        "fedavgm": "--set server_momentum=0.9",
        "fedadagrad": "--set server_optimizer=adagrad --set server_lr=0.1",
        "fedadam": "--set server_optimizer=adam --set server_lr=0.01",
        "fedyogi": "--set server_optimizer=yogi --set server_lr=0.01",
        "cyclic": "--set schedule=cyclic",
    },
)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    fraction: Fraction = 1.0,
    local: LocalSGD = LocalSGD(),
    decay: LocalDecay,
    server: ServerOptimizer,
    aggregate: AggregateName = "mean",
    trim: Trim = 0.1,
    schedule: ScheduleName = "parallel",
    personal: Personal,
) -> Result:
    """FederatedAveraging: McMahan et al. 2017, Algorithm 1. FedSGD is E = 1 and B unset, the defaults.

    Symbols: K nodes, C = fraction, S_t the m nodes asked in round t, n_k rows of node k, m_t the rows of S_t,
    w (d,) the model. What leaves a node: its w after local training, n_k, its mean training loss, and counts of how
    w_t does on its held-out rows. Bytes a round: 16/3 d down and up for each of the m nodes, and a little JSON.
    """
    # nodes are not sent what the server's optimiser carries, nor, in a cycle, a round's model; the last request about
    # their own models is of no round: with these, a job cannot go on from what nodes were sent
    cycle = {"order": list[int]()} if schedule == "cyclic" else {}
    own_models = {} if personal.personalize == "none" else {"own_models": personal.personalize}
    ditto = personal.personalize == "ditto"
    known = {"known": dict[str, int]()} if ditto else {}  # the round in which a node kept its own model
    s = federation.start(w=federation.initial_weights, **server.carried(), **cycle, **own_models, **known)
    if ditto:
        federation.keep_state()
    for t in federation.rounds(rounds):
        S_t = federation.sample(fraction)  # m <- max(floor(C K), 1)
        local_t = decay.local(local, t)  # E and B of the round
        if schedule == "cyclic":
            s.order = federation.generator("cycle").permutation(S_t).tolist()
            w, answers = passed_on(federation, s.order, s.w, local_t)
        elif federation.one_noisy_sum:  # FedSGD with noise
            w, answers = noisy_step(federation, S_t, s.w, local, t)
        else:
            if ditto:
                own = {"personal": personal, "known": s.known, "values": ["state_lost"], "counts": ["state_lost"]}
                answers = federation.ask("ditto_update", S_t, weights=s.w, local=local_t, **own)
                s.known |= dict.fromkeys(answers.keys(), t)
            else:
                answers = federation.ask("client_update", S_t, weights=s.w, local=local_t)
            w = combined(answers, aggregate, trim)  # sum over S_t of n_k / m_t w_k
        s.w = server.step(s, w)  # w itself, unless another optimiser is set
        federation.record(answers, s.w, **decay.columns(local_t))
    if personal.personalize == "none":
        return federation.result(s.w)
    told = {"personal": personal, "known": s.known} if ditto else {"personal": personal, "known": {}, "local": local}
    return {"personal": federation.evaluate_own_models("evaluate_own", s.w, **told), **federation.result(s.w)}


def noisy_step(
    federation: Federation, S_t: list[int], w: np.ndarray, local: LocalSGD, t: int
) -> tuple[np.ndarray, Answers]:
    """A step w <- w - eta g (d,), for the mean g of clipped gradients with noise that the nodes of a block share."""
    means = {"gradient": ["count"]}
    answers = federation.ask("noisy_gradient", S_t, weights=w, returns=["gradient"], means=means)
    eta = local.lr * local.lr_decay_round ** (t - 1) / (1 + local.lr_decay_step * (t - 1))
    return w - np.float32(eta) * federation.mean_gradient(answers, w), answers
