"""A model of each hospital's own, which never leaves it: fine-tuned after training, or Ditto's."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from v6_fedavg.clients import Clients
from v6_fedavg.robust import Aggregate
from v6_federated import (
    Answers,
    Epochs,
    Excludes,
    Federation,
    LocalSGD,
    Needs,
    Node,
    Number,
    Record,
    Role,
    Vector,
)

OF_OWN_ROWS = "each node evaluates its own model on rows that it holds out"

PersonalizeName = Annotated[
    Literal["none", "finetune", "ditto"],
    Field(description="a model of each hospital's own; only its evaluation leaves"),
    Role.OTHER,
    Needs("holdout", because=OF_OWN_ROWS),
    Excludes("evaluators", "clip", because=OF_OWN_ROWS),
    Excludes(schedule="cyclic", when="ditto", instead="set personalize=finetune"),
]
PersonalMu = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="lambda of Ditto's pull of a hospital's model to the global one"),
    Number,
    Role.OTHER,  # no model that is pulled leaves the node
    Needs(personalize="ditto"),
]
Known = Annotated[
    dict[str, int], Field(description="the round in which each node (or block) kept its own model"), Role.KEPT
]


class Personal(Record):
    """How a hospital gets a model of its own.

    Attributes:
        personalize: "finetune" trains the last global model for ``personal_epochs`` on the hospital's rows; "ditto"
            (Li et al. 2021, Algorithm 1) trains a model v_k beside the global one, in each round in which the node
            takes part, on its loss + lambda/2 |v_k - w_t|^2.
        personal_epochs: epochs of "finetune".
        personal_mu: lambda of "ditto".
    """

    personalize: PersonalizeName = "none"
    personal_epochs: Annotated[Epochs, Needs(personalize="finetune")] = 1
    personal_mu: PersonalMu = 0.1

    def carried(self) -> dict[str, Any]:
        """Name what the server carries for it: with it, a job cannot go on from what nodes were sent."""
        return {} if self.personalize == "none" else {"own_models": self.personalize}

    def evaluated(self, federation: Federation, s: Any, local: LocalSGD) -> dict[str, Any]:
        """Have the nodes evaluate their own models.

        Args:
            federation: the nodes.
            s: the job's state, with the last model w (d,).
            local: local training, as it was in round 1.

        Returns:
            Their evaluation, for the result; nothing if they have none.
        """
        if self.personalize == "none":
            return {}
        told = {"known": s.known} if self.personalize == "ditto" else {"known": {}, "local": local}
        return {"personal": federation.evaluate_own_models("evaluate_own", s.w, personal=self, **told)}


class Ditto(Clients):
    """Nodes that train a model of their own beside the global one."""

    def __init__(self, federation: Federation, aggregate: Aggregate, personal: Personal) -> None:
        """Begin without own models.

        Args:
            federation: the nodes.
            aggregate: how their models are combined.
            personal: lambda.
        """
        super().__init__(federation, aggregate)
        self.personal = personal
        self.carried = {"known": dict[str, int]()}  # the round in which a node kept its own model

    def update(self, S_t: Sequence[int], s: Any, local: LocalSGD, t: int) -> Answers:
        """Ask for w_k <- ClientUpdate(k, w_t), and a round of v_k."""
        own = {"personal": self.personal, "known": s.known, "values": ["state_lost"]}
        answers = self.federation.ask("ditto_update", S_t, weights=s.w, local=local, **own)
        s.known |= dict.fromkeys(answers.keys(), t)
        return answers


def train_ditto(node: Node, w_t: Vector, local: LocalSGD, personal: Personal, known: dict[str, int]) -> bool:
    """Train the node's own model v_k (d,) for a round, and keep it.

    Args:
        node: the node.
        w_t: the global model (d,) of the round; v_k starts from the one of the node's first round.
        local: local training.
        personal: lambda.
        known: the rounds in which nodes kept their models.

    Returns:
        Whether the model was lost, and starts again from ``w_t``.
    """
    v, lost = own_model(node, w_t, known)
    pulled = local.replace(proximal_mu=personal.personal_mu)
    node.train(v, pulled, node.optimizer(pulled, w_t=w_t))
    node.state.save({"v": v})
    return lost


def own_model(node: Node, w: Vector, known: dict[str, int]) -> tuple[Vector, bool]:
    """Find the node's own model.

    Args:
        node: the node.
        w: the global model (d,).
        known: the rounds in which nodes kept their models.

    Returns:
        The model (d,), or a copy of ``w`` if there is none; and whether there should be one.
    """
    last = known.get(node.key)
    kept = None if last is None else node.state.load(last)
    v = None if kept is None else kept.get("v")
    if v is None or v.shape != tuple(w.shape):
        return w + 0, last is not None
    return node.model.asarray(v), False
