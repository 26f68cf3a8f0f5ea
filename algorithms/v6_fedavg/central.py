"""The server of FederatedAveraging."""

import numpy as np

from v6_fedavg.checks import check_settings, not_in_a_study, of_hospitals, why_single
from v6_fedavg.combining import AggregateName, ScheduleName, Trim, combined, passed_on
from v6_fedavg.compression import Compression, moved, trained
from v6_fedavg.decay import LocalDecay
from v6_fedavg.personal import Personal
from v6_fedavg.server_optimizer import ServerOptimizer
from v6_federated import Answers, Federation, Fraction, LocalSGD, Result, Rounds, central


@central(
    recoverable=True,
    private=True,
    single_answers=why_single,
    check=check_settings,
    not_in_a_study=not_in_a_study,
    of_hospitals=of_hospitals,
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
    compression: Compression,
) -> Result:
    """FederatedAveraging: McMahan et al. 2017, Algorithm 1. FedSGD is E = 1 and B unset, the defaults.

    Symbols: K nodes, C = fraction, S_t the m nodes asked in round t, n_k rows of node k, m_t the rows of S_t,
    w (d,) the model. What leaves a node: its w after local training, n_k, its mean training loss, and counts of how
    w_t does on its held-out rows. Bytes a round: 16/3 d down and up for each of the m nodes, and a little JSON.
    With ``compression``, the change of w takes the place of w, in fewer bytes.
    """
    # nodes are not sent what the server's optimiser carries, nor, in a cycle, a round's model; the last request about
    # their own models is of no round: with these, a job cannot go on from what nodes were sent
    cycle = {"order": list[int]()} if schedule == "cyclic" else {}
    own_models = {} if personal.personalize == "none" else {"own_models": personal.personalize}
    ditto = personal.personalize == "ditto"
    keeps = ditto or compression.compression == "topk"
    known = {"known": dict[str, int]()} if keeps else {}  # the round in which a node kept its own model, or an error
    s = federation.start(w=federation.initial_weights, **server.carried(), **cycle, **own_models, **known)
    if keeps:
        federation.keep_state()
    for t in federation.rounds(rounds):
        S_t = federation.sample(fraction)  # m <- max(floor(C K), 1)
        local_t = decay.local(local, t)  # E and B of the round
        if schedule == "cyclic":
            s.order = federation.generator("cycle").permutation(S_t).tolist()
            w, answers = passed_on(federation, s.order, s.w, local_t)
        elif federation.one_noisy_sum:  # FedSGD with noise
            w, answers = noisy_step(federation, S_t, s.w, local, t)
        elif compression.compression != "none":
            w, answers = moved(federation, S_t, s, local_t, compression, t)
        else:
            if ditto:
                own = {"personal": personal, "known": s.known, "values": ["state_lost"]}
                answers = federation.ask("ditto_update", S_t, weights=s.w, local=local_t, **own)
                s.known |= dict.fromkeys(answers.keys(), t)
            else:
                answers = federation.ask("client_update", S_t, weights=s.w, local=local_t)
            w = combined(answers, aggregate, trim)  # sum over S_t of n_k / m_t w_k
        w_t, s.w = s.w, server.step(s, w)  # w itself, unless another optimiser is set
        found_by = trained(w_t) if compression.compression != "none" else None
        federation.record(answers, s.w, found_by, **decay.columns(local_t))
    if personal.personalize == "none":
        return federation.result(s.w)
    told = {"personal": personal, "known": s.known} if ditto else {"personal": personal, "known": {}, "local": local}
    return {"personal": federation.evaluate_own_models("evaluate_own", s.w, **told), **federation.result(s.w)}


def noisy_step(
    federation: Federation, S_t: list[int], w: np.ndarray, local: LocalSGD, t: int
) -> tuple[np.ndarray, Answers]:
    """A step w <- w - eta g (d,), for the mean g of clipped gradients with noise that the nodes of a block share."""
    answers = federation.ask("noisy_gradient", S_t, weights=w)
    eta = local.lr * local.lr_decay_round ** (t - 1) / (1 + local.lr_decay_step * (t - 1))
    return w - np.float32(eta) * federation.mean_gradient(answers, w), answers
