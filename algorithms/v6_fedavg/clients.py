"""How the server asks the nodes of a round, and what it makes of their answers: Algorithm 1, and FedSGD with noise.

Other ways, which nodes refuse unless they show single answers, are in ``cyclic`` and ``compression``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from v6_fedavg.robust import Aggregate
from v6_federated import Answer, Answers, Federation, LocalSGD


class Clients:
    """The nodes of Algorithm 1: each trains the model that it is sent.

    Attributes:
        carried: what the server carries from round to round for them beside the model, with its first values.
    """

    def __init__(self, federation: Federation, aggregate: Aggregate) -> None:
        """Ask all nodes of a round at once.

        Args:
            federation: the nodes.
            aggregate: how their models are combined.
        """
        self.federation, self.aggregate = federation, aggregate
        self.carried: dict[str, Any] = {}

    def update(self, S_t: Sequence[int], s: Any, local: LocalSGD, t: int) -> Answers:
        """Ask for w_k <- ClientUpdate(k, w_t).

        Args:
            S_t: ids of the nodes that take part in the round.
            s: the job's state: w (d,), and what is carried.
            local: local training in the round.
            t: the round.

        Returns:
            The answers.
        """
        return self.federation.ask("client_update", S_t, weights=s.w, local=local)

    def combined(self, answers: Answers, s: Any) -> np.ndarray:
        """Combine the answers of a round.

        Args:
            answers: the answers.
            s: the job's state.

        Returns:
            The sum over S_t of n_k / m_t w_k (d,), or another combination.
        """
        return self.aggregate.of(answers)

    def own_model(self, w_t: np.ndarray) -> Callable[[Answer], np.ndarray] | None:
        """Say how a node's own model (d,) is found in its answer.

        Args:
            w_t: the model (d,) that the nodes were sent.

        Returns:
            A function; None if it is the ``weights`` that the node has sent.
        """
        return None


class NoisyGradients(Clients):
    """FedSGD with noise, of which the nodes of a block share one draw."""

    def update(self, S_t: Sequence[int], s: Any, local: LocalSGD, t: int) -> Answers:
        """Ask for the noisy sum of clipped gradients at w_t."""
        self.eta = np.float32(local.lr * local.lr_decay_round ** (t - 1) / (1 + local.lr_decay_step * (t - 1)))
        return self.federation.ask("noisy_gradient", S_t, weights=s.w)

    def combined(self, answers: Answers, s: Any) -> np.ndarray:
        """Return w_t - eta g (d,), for the mean g of clipped gradients."""
        return s.w - self.eta * self.federation.mean_gradient(answers, s.w)
