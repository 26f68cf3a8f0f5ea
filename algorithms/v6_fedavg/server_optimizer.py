"""What the server does with the mean of the nodes' models: the optimisers of Reddi et al. 2021, and momentum."""

from types import SimpleNamespace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from v6_federated import Needs, Number, Record

ServerOptimizerName = Annotated[
    Literal["sgd", "adagrad", "adam", "yogi"],
    Field(description="the server's step on w - w_t, w the nodes' mean; sgd: w itself"),
]
ServerRate = Annotated[
    float, Field(gt=0, allow_inf_nan=False, description="eta, the step of the server's optimiser"), Number
]
ServerMomentum = Annotated[
    float | None,
    Field(ge=0, lt=1, description="beta_1 of the server's optimiser (unset: 0 for sgd, 0.9 for the others)"),
    Number,
]
ServerBeta = Annotated[
    float,
    Field(ge=0, lt=1, description="beta_2 of FedAdam and FedYogi"),
    Number,
    Needs(server_optimizer=("adam", "yogi")),
]
ServerTau = Annotated[
    float,
    Field(gt=0, allow_inf_nan=False, description="tau, added to the root of v in adaptive steps"),
    Number,
    Needs(server_optimizer=("adagrad", "adam", "yogi")),
]


class ServerOptimizer(Record):
    """A server's optimiser of the family FedOpt (Reddi et al. 2021, Algorithms 1 and 2), without bias correction.

    Delta (d,) is the mean of the nodes' models minus w_t. SGD: m <- beta_1 m + Delta, w_t+1 = w_t + eta m, which is
    FedAvg for eta = 1 and beta_1 = 0, and FedAvgM (Hsu et al. 2019) for beta_1 > 0. The others:
    m <- beta_1 m + (1 - beta_1) Delta, w_t+1 = w_t + eta m / (sqrt(v) + tau), where v, from 0, becomes

        FedAdagrad  v + Delta^2
        FedAdam     beta_2 v + (1 - beta_2) Delta^2
        FedYogi     v - (1 - beta_2) Delta^2 sign(v - Delta^2)
    """

    server_optimizer: ServerOptimizerName = "sgd"
    server_lr: ServerRate = 1.0
    server_momentum: ServerMomentum = None
    server_beta2: ServerBeta = 0.999
    server_tau: ServerTau = 1e-8

    @property
    def adaptive(self) -> bool:
        """Whether steps are divided by the root of v."""
        return self.server_optimizer != "sgd"

    @property
    def beta(self) -> float:
        """beta_1, the momentum."""
        return (0.9 if self.adaptive else 0.0) if self.server_momentum is None else self.server_momentum

    def carried(self) -> dict[str, float]:
        """Name what the server carries from round to round beside the model, with its first values.

        Returns:
            Of m and v those that the optimiser has.
        """
        return {**({"m": 0.0} if self.beta or self.adaptive else {}), **({"v": 0.0} if self.adaptive else {})}

    def step(self, s: SimpleNamespace, mean: np.ndarray) -> np.ndarray:
        """Take a step.

        Args:
            s: w (d,), and m and v, which are changed.
            mean: the nodes' mean (d,).

        Returns:
            w_t+1 (d,), float32.
        """
        if not self.adaptive and not self.beta and self.server_lr == 1:
            return mean
        delta, beta_1, beta_2, eta = mean - s.w, *map(np.float32, (self.beta, self.server_beta2, self.server_lr))
        if not self.adaptive:
            if self.beta:
                s.m = delta = beta_1 * s.m + delta
            return s.w + eta * delta
        s.m = beta_1 * s.m + (1 - beta_1) * delta
        squares = delta * delta
        if self.server_optimizer == "adagrad":
            s.v = s.v + squares
        elif self.server_optimizer == "adam":
            s.v = beta_2 * s.v + (1 - beta_2) * squares
        else:
            s.v = s.v - (1 - beta_2) * squares * np.sign(s.v - squares)
        return s.w + eta * s.m / (np.sqrt(s.v) + np.float32(self.server_tau))
