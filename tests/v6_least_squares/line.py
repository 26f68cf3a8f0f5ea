"""The model: f = X w + b, whose loss is the mean of (f - y)^2."""

import numpy as np

from v6_federated import models


class Line:
    traits = models.Traits(regression=True)

    def __init__(self, features, classes):
        assert classes == 1
        self.features, self.size = features, features + 1
        self.shapes = {"coef": (features,), "intercept": (1,)}

    def init(self, rng):
        return np.zeros(self.size, np.float32)

    def asarray(self, array):
        return array

    def seed(self, rng):
        pass

    def scores(self, w, X):
        return (X @ w[:-1] + w[-1])[:, None]

    def loss(self, scores, y):
        return float(np.mean((scores[:, 0].astype(np.float64) - y) ** 2))

    def loss_and_gradient(self, w, X, y):
        scores = self.scores(w, X)
        slopes = (2 / len(y) * (scores[:, 0] - y)).astype(np.float32)
        return self.loss(scores, y), np.append(slopes @ X, slopes.sum(dtype=np.float64)).astype(np.float32)


models.register("line", Line)
