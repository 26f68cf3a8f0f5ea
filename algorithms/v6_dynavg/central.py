"""The coordinator of dynamic averaging, with three protocols for who communicates when."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from v6_federated import (
    Answer,
    Answers,
    Federation,
    LocalSGD,
    Number,
    Result,
    Role,
    Rounds,
    SafeError,
    central,
    changed,
)

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
    Field(description="model that a due node trains: its own, the newest, the newest for this round alone"),
]


def check_settings(checked: BaseModel) -> None:
    """Refuse what the protocol does not read: two results would differ by it in nothing but the settings told."""
    protocol = dict(checked)["protocol"]
    if idle := changed(checked, ("train_from",) if protocol == "divergence" else ("delta", "augmentation")):
        raise SafeError(f"{', '.join(idle)} is of no use to protocol={protocol}; leave it out")


@central(check=check_settings)
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
    """Dynamic averaging: by divergence (Kamp et al. 2018; Reddy 2020, Algorithm 1), by SVD (Algorithm 3) or by loss
    (Algorithm 4).

    Symbols: K nodes, f_k (d,) the model of node k, r (d,) the reference, B the nodes whose models are averaged, v the
    violations since the last full average; q_k a node's singular index or loss, q' the same in [0, 1], E = rounds,
    rho_k the rounds between node k's communications. What leaves a node: its model, where it communicates; else only
    n_k, its mean training loss and distance from r (divergence) or nothing (svd, loss); once q_k (svd); counts of
    how the newest model does on its held-out rows. Bytes a round: 16/3 d up and down for each node that communicates.
    """
    if protocol == "divergence":
        w = by_divergence(federation, rounds, delta, augmentation, local)
    else:
        w = by_schedule(federation, rounds, protocol, train_from, local)
    return federation.result(w)


def by_divergence(federation: Federation, rounds: int, delta: float, augmentation: str, local: LocalSGD) -> np.ndarray:
    """Only nodes that have moved far from the reference send their models."""
    everyone = federation.organizations
    federation.keep_state()  # f_k and r
    # v: violations since the last full average; news: what whom is to be sent, of those that took part in the last one
    s = federation.start(
        w=federation.initial_weights,
        r=federation.initial_weights,
        v=0,
        news=lambda: [[everyone, {"weights": federation.initial_weights(), "is_reference": True}]],
    )
    if federation.resumed:  # nodes keep nothing of that job: all go on from its model
        s.r, s.v, s.news = s.w, 0, [[everyone, {"weights": s.w, "is_reference": True}]]
    for t in federation.rounds(rounds):
        federation.evaluate(s.w)
        answers = federation.ask_groups(
            "local_update",
            [(who, {**what, "delta": delta, "local": local}) for who, what in s.news],
            returns=(),
            optional=["weights"],
        )
        B = {a.organization_id: a for a in answers.each() if a.values.get("violation") and "weights" in a.arrays}
        here = [a.organization_id for a in answers.each() if not a.values.get("state_lost")]
        fetched: list[Answer] = []
        violations = len(B)
        s.v += violations
        # the box prints v = m, which v can pass; and after the last round nobody's training may be lost
        if s.v >= len(everyone) or t == rounds:
            fetched += _fetch(federation, B, here, [k for k in here if k not in B])
            s.v = 0
        while B and len(B) < len(here) and _distance(Answers([*B.values()]).weighted_mean(), s.r) > delta:
            rest = [k for k in here if k not in B]
            more = 1 if augmentation == "random" else min(len(B), len(rest))
            chosen = federation.generator("augment").permutation(rest)[:more].tolist()
            fetched += _fetch(federation, B, here, chosen)
        if B:
            s.w = Answers([*B.values()]).weighted_mean()  # by rows, as the text has it; the box prints a plain mean
        full = len(B) == len(everyone)
        if full:
            s.r = s.w
        others = [k for k in here if k not in B]
        lost = [k for k in everyone if k not in here]  # its model, or it gave no answer: it starts from the reference
        s.news = [
            [who, what]
            for who, what in (
                (sorted(B), {"weights": s.w, "is_reference": full}),
                (others, {}),
                (lost, {"weights": s.r, "is_reference": True}),
            )
            if who
        ]
        federation.record(
            [*answers.each(), *fetched],
            participants=sorted(B),
            uploads=len(B),
            communication_rate=len(B) / len(everyone),
            violations=violations,
            full_average=full,
        )
    return s.w


def _fetch(federation: Federation, B: dict[int, Answer], here: list[int], chosen: list[int]) -> list[Answer]:
    """Ask nodes for their models and add them to B; one that has none any more is ``here`` no longer."""
    if not chosen:
        return []
    answers = federation.ask("send_model", chosen, returns=(), optional=["weights"], quorum_of=0)
    sent = {a.organization_id: a for a in answers.each() if "weights" in a.arrays}
    B |= sent
    here[:] = [k for k in here if k not in chosen or k in sent]
    return list(answers.each())


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.square(a - b, dtype=np.float64).sum())


class Plan(NamedTuple):
    """When a node communicates: every ``rho`` rounds, and every round from ``switch`` on (Reddy, eq. 3.8 to 3.11)."""

    rho: int
    switch: int

    @classmethod
    def of(cls, share: float, E: int, start: int) -> "Plan":
        """From q'_k in [0, 1] and the E rounds that come after round ``start``."""
        # as printed; eq. 3.11 does not always bring E_k communications: 6 where E = 10 and E_k = 7
        E_k = max(math.ceil(share * E - 1e-9), 1)  # 0.55 * 100 is a little more than 55
        rho = math.ceil(E / E_k)
        return cls(rho, start + E - (E_k - E // rho))


def by_schedule(federation: Federation, rounds: int, protocol: str, train_from: str, local: LocalSGD) -> np.ndarray:
    """Nodes with a higher q_k communicate more often. Between its communications a node trains on from the mean that it
    was last sent, so that all its passes can be done when it is due, and no node keeps anything; or, ``train_from``
    newest, it does them from the newest mean; or, newest_pass, it does nothing between, and in its rounds those of the
    round, from the newest."""
    K = federation.organizations
    E = rounds
    s = federation.start(
        w=federation.initial_weights,
        version=dict.fromkeys(K, 0),  # the round after which node k was last sent a model
        models=lambda: {0: federation.initial_weights()},  # those that some node still has
        plans=lambda: _first_plans(federation, E, protocol),
    )
    if federation.resumed:
        s.plans = _first_plans(federation, E, protocol)  # E is another
    for t in federation.rounds(rounds):
        federation.evaluate(s.w)
        S_t = [k for k in K if _due(protocol, Plan(*s.plans[k]), t, s.version[k])]
        since = dict.fromkeys(K, t - 1) if train_from == "newest_pass" else s.version  # the rounds after it are done
        groups = {v: [k for k in S_t if since[k] == v] for v in sorted({since[k] for k in S_t})}
        models = s.models if train_from == "own" else dict.fromkeys(groups, s.w)
        answers = federation.ask_groups(
            "train",
            [(who, {"weights": models[v], "since": v, "local": local}) for v, who in groups.items()],
            numbers=["local_loss"],
            quorum_of=None if len(S_t) == len(K) else 0,  # of those whose turn it is none need come
        )
        if answers:
            s.w = s.models[t] = answers.weighted_mean()  # over S_t; the boxes print all K
        for k in answers.organizations:
            s.version[k] = t
        s.models = {v: model for v, model in s.models.items() if v in s.version.values()}
        if protocol == "loss" and answers and t < E:
            # of S_t alone: of nodes that came together the worst comes again at once
            s.plans |= _plans(answers.numbers("local_loss"), E - t, t)
        federation.record(answers, s.w, uploads=len(answers), communication_rate=len(answers) / len(K))
    return s.w


def _first_plans(federation: Federation, E: int, protocol: str) -> dict[int, tuple[int, int]]:
    """By SVD from every node's q_k; by loss, of which none is known, all communicate in round 1."""
    K = federation.organizations
    if protocol == "loss":
        return dict.fromkeys(K, (1, 1))
    indices = federation.ask("singular_index", K, returns=(), numbers=["q"])
    federation.count_preparation(indices)
    plans = _plans(indices.numbers("q"), E, 0)
    return {k: plans.get(k, (1, 1)) for k in K}  # a node that is away now communicates whenever it is there


def _plans(q: Mapping[int, float], E: int, start: int) -> dict[int, tuple[int, int]]:
    """Min-max normalise q over the nodes (all equal: 1) and plan each node's communications."""
    low, high = min(q.values()), max(q.values())
    return {k: Plan.of((value - low) / (high - low) if high > low else 1.0, E, start) for k, value in q.items()}


def _due(protocol: str, plan: Plan, t: int, last: int) -> bool:
    """By SVD at multiples of rho, by loss rho rounds after the last time (plans change); from the switch on always."""
    return t >= plan.switch or (t % plan.rho == 0 if protocol == "svd" else t - last >= plan.rho)
