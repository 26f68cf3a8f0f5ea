"""Updates in fewer bytes: 8-bit numbers, or the largest numbers alone with what was left out added next time."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from v6_fedavg.clients import Clients
from v6_fedavg.robust import Aggregate
from v6_federated import (
    Answer,
    Answers,
    Excludes,
    Federation,
    LocalSGD,
    Needs,
    Node,
    Number,
    Record,
    Role,
    SafeError,
    Vector,
    codec,
)

CompressionName = Annotated[
    Literal["none", "8bit", "topk"],
    Field(description="how a node sends the change of the model in fewer bytes (aggregation=plain)"),
    Role.OTHER,  # what is sent follows from what would be sent without it
    Excludes(
        schedule="cyclic",
        aggregate=("median", "trimmed", "geometric"),
        personalize="ditto",
        because="these need the nodes' models in full",
    ),
    Excludes("clip", because="its sums are masked"),
]
TopkFraction = Annotated[
    float,
    Field(gt=0, le=1, description="share of the numbers that compression=topk sends, the largest"),
    Number,
    Role.OTHER,
    Needs(compression="topk"),
]
Known = Annotated[
    dict[str, int], Field(description="the round in which each node kept what it had left out"), Role.KEPT
]


class Compression(Record):
    """How nodes send updates.

    Attributes:
        compression: "8bit" sends each number of the update in a byte, to 1/254 of the largest of 256; "topk" sends the
            largest numbers alone, and adds to the next update what it has left out (error feedback: Stich et al. 2018,
            Algorithm 1).
        topk_fraction: share of the numbers that "topk" sends.
    """

    compression: CompressionName = "none"
    topk_fraction: TopkFraction = 0.01


def compressed(node: Node, u: Vector, how: Compression, known: dict[str, int]) -> tuple[codec.Compressed, bool]:
    """Compress an update.

    Args:
        node: the node.
        u: its update w_k - w_t (d,).
        how: the form.
        known: the rounds in which nodes kept what they had left out.

    Returns:
        What is sent; and whether the node has lost what it had left out before.

    Raises:
        SafeError: central is to see a masked sum, whose numbers cannot be compressed.
    """
    if node.job.aggregation != "plain":
        raise SafeError(f"compression={how.compression} needs aggregation=plain; masked numbers cannot be compressed")
    u = np.asarray(u.cpu() if hasattr(u, "cpu") else u, np.float32)
    if how.compression == "8bit":
        return codec.Compressed.of(u, "int8"), False
    last = known.get(node.key)
    kept = None if last is None else node.state.load(last)
    e = None if kept is None else kept.get("e")
    lost = last is not None
    if e is not None and e.shape == u.shape:
        u, lost = u + e, False
    sent = codec.Compressed.of(u, "topk", max(round(how.topk_fraction * len(u)), 1))
    node.state.save({"e": u - sent.array})
    return sent, lost


class Compressed(Clients):
    """Nodes that send the change of the model in fewer bytes."""

    def __init__(self, federation: Federation, aggregate: Aggregate, how: Compression) -> None:
        """Ask for compressed updates.

        Args:
            federation: the nodes.
            aggregate: the mean.
            how: the form of the updates.
        """
        super().__init__(federation, aggregate)
        self.how = how
        if how.compression == "topk":  # the round in which a node kept what it had left out
            self.carried = {"known": dict[str, int]()}

    def update(self, S_t: Sequence[int], s: Any, local: LocalSGD, t: int) -> Answers:
        """Ask for w_k - w_t."""
        keeps = bool(self.carried)
        own = {"compression": self.how, "known": s.known if keeps else {}, "values": ["state_lost"]}
        answers = self.federation.ask("compressed_update", S_t, weights=s.w, local=local, **own)
        if keeps:
            s.known |= dict.fromkeys(answers.keys(), t)
        return answers

    def combined(self, answers: Answers, s: Any) -> np.ndarray:
        """Return w_t + sum over S_t of n_k / m_t (w_k - w_t) (d,)."""
        return s.w + answers.weighted_mean("update")

    def own_model(self, w_t: np.ndarray) -> Callable[[Answer], np.ndarray]:
        """Return a function that adds a node's update to w_t (d,)."""
        return lambda answer: w_t + answer["update"]
