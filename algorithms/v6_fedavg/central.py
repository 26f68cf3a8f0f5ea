"""The server of FederatedAveraging."""

from v6_federated import Federation, Fraction, LocalSGD, Result, Rounds, central


@central(recoverable=True)
def central(
    federation: Federation, *, rounds: Rounds, fraction: Fraction = 1.0, local: LocalSGD = LocalSGD()
) -> Result:
    """FederatedAveraging: McMahan et al. 2017, Algorithm 1. FedSGD is E = 1 and B unset, the defaults.

    Symbols: K nodes, C = fraction, S_t the m nodes asked in round t, n_k rows of node k, m_t the rows of S_t,
    w (d,) the model. What leaves a node: its w after local training, n_k, its mean training loss, and counts of how w_t
    does on its held-out rows. Bytes a round: 16/3 d down and up for each of the m nodes, and a little JSON.
    """
    s = federation.start(w=federation.initial_weights)
    for _t in federation.rounds(rounds):
        S_t = federation.sample(fraction)  # m <- max(floor(C K), 1)
        answers = federation.ask("client_update", S_t, weights=s.w, local=local)
        s.w = answers.weighted_mean("weights")  # sum over S_t of n_k / m_t w_k
        federation.record(answers, s.w)
    return federation.result(s.w)
