"""Dynamic averaging by a schedule: by SVD (Reddy 2020, Algorithm 3) or by loss (Algorithm 4)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from v6_federated import Answer, Federation, LocalSGD


def by_schedule(federation: Federation, rounds: int, protocol: str, train_from: str, local: LocalSGD) -> np.ndarray:
    """Nodes with a higher q_k, or a higher loss, communicate more often.

    Args:
        federation: the nodes.
        rounds: E, how many rounds to train.
        protocol: "svd" or "loss".
        train_from: from which model a node that is due trains, see ``Means``.
        local: how a node trains.

    Returns:
        The last mean w (d,).
    """
    K, E = federation.organizations, rounds
    s = federation.start(
        w=federation.initial_weights,
        version=dict.fromkeys(K, 0),
        models=lambda: {0: federation.initial_weights()},
        plans=lambda: first_plans(federation, E, protocol),
    )
    if federation.resumed:  # with another E
        s.plans = first_plans(federation, E, protocol)
    means = Means(s, train_from)
    for t in federation.rounds(E):
        federation.evaluate(s.w)
        S_t = [k for k in K if is_due(protocol, Plan(*s.plans[k]), t, s.version[k])]
        answers = federation.ask_groups(
            "train",
            [(who, {**work, "local": local}) for who, work in means.work(S_t, t)],
            numbers=["local_loss", "passes"],
            measures={"weights": means.change_a_round},
            quorum_of=None if len(S_t) == len(K) else 0,  # if not all are due, none of them need answer
        )
        if answers:
            s.w = answers.weighted_mean()  # over S_t; the boxes print a sum over all K
        means.send(answers.organizations, t)
        if protocol == "loss" and answers and t < E:
            # losses of S_t are compared with each other, so the worst node of S_t comes again at once
            s.plans |= plans(answers.numbers("local_loss"), E - t, t)
        federation.record(answers, s.w, uploads=len(answers), communication_rate=len(answers) / len(K))
    return s.w


class Plan(NamedTuple):
    """When a node communicates: every ``rho`` rounds, and in every round from ``switch`` on."""

    rho: int
    switch: int

    @classmethod
    def of(cls, share: float, E: int, start: int) -> "Plan":
        """Plan some rounds of a node (Reddy, eq. 3.8 to 3.11).

        Args:
            share: q'_k, from 0 to 1.
            E: number of rounds.
            start: the round after which they begin.

        Returns:
            The plan.
        """
        # as printed; eq. 3.11 does not always bring E_k communications: 6 for E = 10 and E_k = 7
        E_k = max(math.ceil(share * E - 1e-9), 1)  # 0.55 * 100 is a little more than 55
        rho = math.ceil(E / E_k)
        return cls(rho, start + E - (E_k - E // rho))


def plans(q: Mapping[int, float], E: int, start: int) -> dict[int, Plan]:
    """Normalise q over the nodes (eq. 3.7; 1 if all are equal) and plan their rounds.

    Args:
        q: each node's singular index or loss.
        E: number of rounds.
        start: the round after which they begin.

    Returns:
        Each node's plan.
    """
    low, high = min(q.values()), max(q.values())
    return {k: Plan.of((value - low) / (high - low) if high > low else 1.0, E, start) for k, value in q.items()}


def first_plans(federation: Federation, E: int, protocol: str) -> dict[int, Plan]:
    """Plan all rounds: by SVD from every node's q_k; by loss, as none is known yet, all communicate in round 1.

    Args:
        federation: the nodes.
        E: number of rounds.
        protocol: "svd" or "loss".

    Returns:
        Each node's plan.
    """
    always = dict.fromkeys(federation.organizations, Plan(1, 1))
    if protocol == "loss":
        return always
    indices = federation.ask("singular_index", federation.organizations, returns=(), numbers=["q"])
    federation.count_preparation(indices)
    return always | plans(indices.numbers("q"), E, 0)  # a node that gave no q_k communicates in every round


def is_due(protocol: str, plan: Plan, t: int, last: int) -> bool:
    """Say whether a node communicates in a round.

    By SVD at multiples of rho; by loss, since plans change, rho rounds after the last time; from the switch on always.

    Args:
        protocol: "svd" or "loss".
        plan: the node's plan.
        t: the round.
        last: the round in which the node communicated last.

    Returns:
        Whether it does.
    """
    return t >= plan.switch or (t % plan.rho == 0 if protocol == "svd" else t - last >= plan.rho)


class Means:
    """Which mean each node was last sent, and so from which model its next passes start.

    A node that is due does all its passes since its last communication at once, so it keeps nothing between its rounds.

    Args:
        s: what the job carries from round to round: ``s.w`` the newest mean, ``s.version`` the round after which each
            node was last sent a mean, ``s.models`` these means by round.
        train_from: "own": passes start from the mean that the node was last sent, as if it had gone on from it by
            itself; "newest": from the newest mean; "newest_pass": the round's passes alone, from the newest mean.
    """

    def __init__(self, s: SimpleNamespace, train_from: str) -> None:
        self._s, self._train_from = s, train_from
        self._sent: dict[int, tuple[np.ndarray, int]] = {}  # the model, and for how many rounds passes are due

    def work(self, S_t: Sequence[int], t: int) -> list[tuple[list[int], dict[str, Any]]]:
        """Group nodes with the same work in a round.

        Args:
            S_t: ids of the nodes that are due.
            t: the round.

        Returns:
            Groups of ids, and what they are sent: a model (d,), and the round since which passes are due.
        """
        s = self._s
        done = {k: t - 1 if self._train_from == "newest_pass" else s.version[k] for k in S_t}
        groups = []
        for since in sorted({*done.values()}):
            w = s.models[since] if self._train_from == "own" else s.w
            who = [k for k in S_t if done[k] == since]
            groups.append((who, {"weights": w, "since": since}))
            self._sent |= dict.fromkeys(who, (w, t - since))
        return groups

    def change_a_round(self, answer: Answer) -> np.ndarray:
        """Compute what is compared of the nodes' models: a node that has trained for more rounds has moved further.

        Args:
            answer: a node's answer to ``train``.

        Returns:
            The change of the model that it was sent for each round of passes, (d,).
        """
        w, rounds = self._sent[answer.organization_id]
        return (answer["weights"] - w) / np.float32(rounds)

    def send(self, S_t: Iterable[int], t: int) -> None:
        """Note that the nodes S_t are sent the mean of round t. Means that no node starts from any more are dropped."""
        s = self._s
        s.version |= dict.fromkeys(S_t, t)
        s.models = {v: model for v, model in {**s.models, t: s.w}.items() if v in s.version.values()}
