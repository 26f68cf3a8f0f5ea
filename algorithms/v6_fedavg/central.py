"""The server of FederatedAveraging."""

from v6_fedavg.checks import check_settings, not_in_a_study, of_hospitals, why_single
from v6_fedavg.clients import Clients, NoisyGradients
from v6_fedavg.compression import Compressed, Compression
from v6_fedavg.cyclic import Cyclic, ScheduleName
from v6_fedavg.decay import LocalDecay
from v6_fedavg.personal import Ditto, Personal
from v6_fedavg.robust import Aggregate
from v6_fedavg.server_optimizer import ServerOptimizer
from v6_federated import Federation, Fraction, LocalSGD, Result, Rounds, central


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
    aggregate: Aggregate,
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
    clients = clients_of(federation, aggregate, schedule, personal, compression)
    s = federation.start(w=federation.initial_weights, **server.carried(), **clients.carried, **personal.carried())
    if "known" in clients.carried:
        federation.keep_state()
    for t in federation.rounds(rounds):
        S_t = federation.sample(fraction)  # m <- max(floor(C K), 1)
        local_t = decay.local(local, t)  # E and B of the round
        answers = clients.update(S_t, s, local_t, t)  # w_k <- ClientUpdate(k, w_t) for each k of S_t
        w_t, w = s.w, clients.combined(answers, s)  # sum over S_t of n_k / m_t w_k
        s.w = server.step(s, w)  # w itself, unless another optimiser is set
        federation.record(answers, s.w, clients.own_model(w_t), **decay.columns(local_t))
    return {**personal.evaluated(federation, s, local), **federation.result(s.w)}


def clients_of(
    federation: Federation, aggregate: Aggregate, schedule: str, personal: Personal, compression: Compression
) -> Clients:
    """Choose how the nodes of a round are asked. Settings that do not go together have been refused."""
    if schedule == "cyclic":
        return Cyclic(federation, aggregate)
    if federation.one_noisy_sum:
        return NoisyGradients(federation, aggregate)
    if compression.compression != "none":
        return Compressed(federation, aggregate, compression)
    if personal.personalize == "ditto":
        return Ditto(federation, aggregate, personal)
    return Clients(federation, aggregate)
