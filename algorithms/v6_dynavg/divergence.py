"""Dynamic averaging by divergence (Kamp et al. 2018; Reddy 2020, Algorithm 1)."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from v6_federated import Answer, Answers, Federation, LocalSGD

STATUS = ("from_reference", "violation", "state_lost")  # values of a node's answer
OWN, MEAN, REFERENCE = "own", "mean", "reference"  # where a node's next round starts from: f_k, w or r


def by_divergence(federation: Federation, rounds: int, delta: float, augmentation: str, local: LocalSGD) -> np.ndarray:
    """Only nodes that have moved far from the reference send their models.

    Args:
        federation: the nodes.
        rounds: how many rounds to train; after the last one, all nodes are averaged.
        delta: Delta, the squared distance from the reference that a node may reach in silence.
        augmentation: which nodes join the violators, "random" or "doubling".
        local: how a node trains.

    Returns:
        The last mean w (d,).
    """
    m = len(federation.organizations)
    federation.keep_state()  # f_k and r
    s = federation.start(w=federation.initial_weights, r=federation.initial_weights, v=0, starts_from={})
    if federation.resumed:  # nodes keep nothing of the earlier job: all start from its model
        s.r, s.v, s.starts_from = s.w, 0, {}
    learners = Learners(federation, s, delta)
    for t in federation.rounds(rounds):
        federation.evaluate(s.w)
        B = learners.update(local)  # each node updates f_k and sends it if |f_k - r|^2 > Delta
        violations = len(B)
        s.v += violations
        # the box has v = m, which v can pass; after the last round, training in silence would be lost
        if s.v >= m or t == rounds:
            B, s.v = B + learners.send_models(learners.outside(B)), 0
        while B and learners.outside(B) and distance(B.weighted_mean(), s.r) > delta:
            rng = federation.generator("augment")
            B += learners.send_models(augment(B, learners.outside(B), augmentation, rng))
        if B:
            s.w = B.weighted_mean()  # weighted by rows, as in Reddy's text; the box prints a plain mean
        full = len(B) == m
        if full:
            s.r = s.w
        learners.send_mean(B.organizations, REFERENCE if full else MEAN)
        federation.record(
            learners.answers,
            participants=B.organizations,
            uploads=len(B),
            communication_rate=len(B) / m,
            violations=violations,
            full_average=full,
        )
    return s.w


def augment(B: Answers, outside: Sequence[int], augmentation: str, rng: np.random.Generator) -> list[int]:
    """Choose the nodes that join B: one of those outside at random, or as many as B has (doubling).

    Args:
        B: the answers with models so far.
        outside: ids of the nodes that have a model and are not in B.
        augmentation: "random" or "doubling".
        rng: chooses.

    Returns:
        Their ids.
    """
    more = 1 if augmentation == "random" else len(B)
    return rng.permutation(outside)[:more].tolist()


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Compute the squared distance of two models.

    Args:
        a: one model (d,).
        b: the other (d,).

    Returns:
        |a - b|^2.
    """
    return float(np.square(a - b, dtype=np.float64).sum())


class Learners:
    """The nodes: which of them take part in this round, and which model each starts from in the next one.

    Args:
        federation: the nodes.
        s: what the job carries from round to round. ``s.starts_from`` holds, by organization, where its next round
            starts from: ``OWN``, its own model f_k; ``MEAN``, the mean w that it is sent; ``REFERENCE``, the
            reference r that it is sent, as every node that is not named.
        delta: Delta, the squared distance from r that a node may reach in silence.

    Attributes:
        answers: all answers of this round.
    """

    def __init__(self, federation: Federation, s: SimpleNamespace, delta: float) -> None:
        self._federation, self._s, self._delta = federation, s, delta
        self._present: list[int] = []  # those that have a model of this round
        self.answers = Answers([])

    def update(self, local: LocalSGD) -> Answers:
        """Let each node train from where it starts.

        Args:
            local: how a node trains.

        Returns:
            The answers of the nodes that have passed it, with their models (d,).
        """
        s, everyone = self._s, self._federation.organizations
        sent: dict[str, dict[str, Any]] = {
            MEAN: {"weights": s.w},
            OWN: {},
            REFERENCE: {"weights": s.r, "is_reference": True},
        }
        groups = []
        for start, model in sent.items():
            if who := [k for k in everyone if s.starts_from.get(k, REFERENCE) == start]:
                groups.append((who, {**model, "delta": self._delta, "local": local}))
        self.answers = self._federation.ask_groups(
            "local_update", groups, returns=(), optional=["weights"], values=STATUS, measures={"weights": self._moved}
        )
        self._present = [a.organization_id for a in self.answers.each() if not a.values.get("state_lost")]
        return Answers([a for a in self.answers.each() if a.values.get("violation") and "weights" in a.arrays])

    def outside(self, B: Answers) -> list[int]:
        """List the nodes that have a model of this round and are not in B.

        Args:
            B: answers.

        Returns:
            Their ids.
        """
        return [k for k in self._present if k not in B.organizations]

    def send_models(self, chosen: Sequence[int]) -> Answers:
        """Ask nodes for their models; one that has lost its model takes no further part in this round.

        Args:
            chosen: ids of the nodes.

        Returns:
            The answers that hold a model (d,).
        """
        if not chosen:
            return Answers([])
        answers = self._federation.ask(
            "send_model",
            chosen,
            returns=(),
            optional=["weights"],
            values=STATUS,
            measures={"weights": self._moved},
            quorum_of=0,
        )
        models = Answers([a for a in answers.each() if "weights" in a.arrays])
        self._present = [k for k in self._present if k not in chosen or k in models.organizations]
        self.answers += answers
        return models

    def _moved(self, answer: Answer) -> np.ndarray:
        """How far a node is from r. Up to the root of Delta it only says how long ago r was made."""
        if "weights" not in answer.arrays:
            return np.zeros(0)
        return np.maximum(distance(answer["weights"], self._s.r), self._delta) ** 0.5

    def send_mean(self, B: Sequence[int], start: str) -> None:
        """Send the mean to the nodes in B with their next round, which starts from it.

        The others go on from their own models, and those that have lost theirs, or gave no answer, from the reference.

        Args:
            B: ids of the nodes.
            start: ``MEAN``, or ``REFERENCE`` if the mean is the new reference too.
        """
        self._s.starts_from = {k: start if k in B else OWN for k in self._present}
