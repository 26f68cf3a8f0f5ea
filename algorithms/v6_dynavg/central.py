"""The coordinator of dynamic averaging, with three protocols for who communicates when."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from v6_federated import functions
from v6_federated.federation import Answer, Federation, weighted_mean
from v6_federated.settings import (
    Augmentation,
    BatchSize,
    Delta,
    LearningRate,
    LocalPasses,
    LrDecayRound,
    LrDecayStep,
    OptimizerName,
    Protocol,
    Rounds,
)
from v6_federated.vantage import CollectResultsError


@functions.central
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    protocol: Protocol = "divergence",
    delta: Delta = 0.3,
    augmentation: Augmentation = "random",
    local_passes: LocalPasses = 1,
    batch_size: BatchSize = None,
    lr: LearningRate = 0.1,
    lr_decay_round: LrDecayRound = 1.0,
    lr_decay_step: LrDecayStep = 0.0,
    optimizer: OptimizerName = "sgd",
) -> dict[str, Any]:
    """Dynamic averaging: by divergence (Kamp et al. 2018; Reddy 2020, Algorithm 1), by SVD (Algorithm 3) or by loss
    (Algorithm 4).

    Symbols: K nodes, f_k (d,) the model of node k, r (d,) the reference, B the nodes whose models are averaged, v the
    violations since the last full average; q_k a node's singular index or loss, q' the same in [0, 1], E = rounds,
    rho_k the rounds between node k's communications. What leaves a node: its model, where it communicates; else only
    n_k, its mean training loss and distance from r (divergence) or nothing (svd, loss); once q_k (svd); counts of
    how the newest model does on its held-out rows. Bytes a round: 16/3 d up and down for each node that communicates.
    """
    local = {
        "batch_size": batch_size,
        "lr": lr,
        "lr_decay_round": lr_decay_round,
        "lr_decay_step": lr_decay_step,
        "optimizer": optimizer,
    }
    if protocol == "divergence":
        w = by_divergence(federation, rounds, delta, augmentation, {**local, "passes": local_passes})
    else:
        w = by_schedule(federation, rounds, protocol, local_passes, local)
    return federation.result(w)


def by_divergence(
    federation: Federation, rounds: int, delta: float, augmentation: str, local: Mapping[str, Any]
) -> np.ndarray:
    """Only nodes that have moved far from the reference send their models."""
    everyone = federation.organizations
    w = r = federation.initial_weights()
    v = 0
    federation.keep_state()  # f_k and r
    sent: list[tuple[list[int], dict[str, Any]]] = [(everyone, {"weights": w, "is_reference": True})]
    for t in federation.rounds(rounds):
        federation.evaluate(w)
        answers = federation.ask_groups(
            "local_update", [(who, {**what, "delta": delta, **local}) for who, what in sent]
        )
        B = {a.organization_id: a for a in answers if a.values["violation"]}
        lost = [a.organization_id for a in answers if a.values.get("state_lost")]
        fetched: list[Answer] = []
        violations = len(B)
        v += violations
        # the box prints v = m, which v can pass; and after the last round nobody's training may be lost
        if v >= len(everyone) or t == rounds:
            fetched += _fetch(federation, B, [k for k in everyone if k not in B and k not in lost])
            v = 0
        while B and len(B) < len(everyone) - len(lost) and _distance(weighted_mean([*B.values()]), r) > delta:
            rest = [k for k in everyone if k not in B and k not in lost]
            more = 1 if augmentation == "random" else min(len(B), len(rest))
            chosen = federation.generator("augment").permutation(rest)[:more].tolist()
            fetched += _fetch(federation, B, chosen)
        if B:
            w = weighted_mean([*B.values()])
        full = len(B) == len(everyone)
        if full:
            r = w
        others = [k for k in everyone if k not in B and k not in lost]
        sent = [
            (who, what)
            for who, what in (
                (sorted(B), {"weights": w, "is_reference": full}),
                (others, {}),
                (lost, {"weights": r, "is_reference": True}),
            )
            if who
        ]
        federation.record(
            [*answers, *fetched], participants=sorted(B), uploads=len(B), violations=violations, full_average=full
        )
    return w


def _fetch(federation: Federation, B: dict[int, Answer], chosen: list[int]) -> list[Answer]:
    """Ask nodes for their models and add them to B."""
    if not chosen:
        return []
    answers = federation.ask("send_model", chosen)
    for a in answers:
        if "weights" not in a.arrays:
            raise CollectResultsError(f"organization {a.organization_id} has lost its model within a round")
        B[a.organization_id] = a
    return answers


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.square(a - b, dtype=np.float64).sum())


@dataclass
class Plan:
    """When a node communicates: every ``rho`` rounds, and every round from ``switch`` on (Reddy, eq. 3.8 to 3.11)."""

    rho: int
    switch: int

    @classmethod
    def of(cls, share: float, E: int, start: int) -> "Plan":
        """From q'_k in [0, 1] and the E rounds that come after round ``start``."""
        E_k = max(math.ceil(share * E - 1e-9), 1)  # 0.55 * 100 is a little more than 55
        rho = math.ceil(E / E_k)
        return cls(rho, start + E - (E_k - E // rho))


def by_schedule(
    federation: Federation, rounds: int, protocol: str, local_passes: int, local: Mapping[str, Any]
) -> np.ndarray:
    """Nodes with a higher q_k communicate more often. Between its communications a node trains on from the mean that it
    was last sent, so that all its passes can be done when it is due, and no node keeps anything."""
    K = federation.organizations
    E = rounds
    w = federation.initial_weights()
    version = dict.fromkeys(K, 0)  # the round after which node k was last sent a model
    models = {0: w}  # those that some node still has
    losses: dict[int, float] = {}
    if protocol == "svd":
        indices = federation.ask("singular_index", K)
        federation.count_preparation(indices)
        plans = _plans({a.organization_id: float(a.values["q"]) for a in indices}, E, 0)
    else:
        plans = {k: Plan(1, 1) for k in K}  # no loss is known: all communicate in round 1
    for t in federation.rounds(rounds):
        federation.evaluate(w)
        S_t = [k for k in K if _due(protocol, plans[k], t, version[k])]
        groups = {v: [k for k in S_t if version[k] == v] for v in sorted({version[k] for k in S_t})}
        answers = federation.ask_groups(
            "train",
            [
                (who, {"weights": models[v], "since": v, "local_passes": local_passes, **local})
                for v, who in groups.items()
            ],
        )
        if answers:
            w = models[t] = weighted_mean(answers)
        for a in answers:
            version[a.organization_id] = t
            losses[a.organization_id] = a.values["local_loss"]
        models = {v: model for v, model in models.items() if v in version.values()}
        if protocol == "loss" and answers and t < E:
            renewed = _plans(losses, E - t, t)
            plans |= {k: renewed[k] for k in S_t}  # a node learns how long to train on with the model it is sent
        federation.record(answers, w, uploads=len(answers))
    return w


def _plans(q: Mapping[int, float], E: int, start: int) -> dict[int, Plan]:
    """Min-max normalise q over the nodes (all equal: 1) and plan each node's communications."""
    low, high = min(q.values()), max(q.values())
    return {k: Plan.of((value - low) / (high - low) if high > low else 1.0, E, start) for k, value in q.items()}


def _due(protocol: str, plan: Plan, t: int, last: int) -> bool:
    """By SVD at multiples of rho, by loss rho rounds after the last time (plans change); from the switch on always."""
    return t >= plan.switch or (t % plan.rho == 0 if protocol == "svd" else t - last >= plan.rho)
