"""Binary logistic regression in plain numpy, with which the rounds of methods are written out by hand.

For labels y in {0, 1}, rows x with a 1 appended, f = x w and p = 1 / (1 + exp(-f)), the mean loss over rows is
mean(log(1 + exp(f)) - y f) and its gradient mean((p - y) x). Shuffles and samples come from the same generators as the
methods', everything else is written out here.
"""

import numpy as np

from v6_federated.base.randomness import generator
from v6_federated.messages import codec

SEED = 11


def arrays(rows):
    """X (n, 5) with a column of ones, and y (n,), of a table."""
    X = np.column_stack([rows.iloc[:, :-1], np.ones(len(rows))]).astype(np.float32).astype(float)
    return X, rows["label"].to_numpy(float)


def gradient(w, X, y):
    return (1 / (1 + np.exp(-X @ w)) - y) @ X / len(y)


def loss(w, X, y):
    return np.mean(np.logaddexp(0, X @ w) - y * (X @ w))


def order(k, t):
    """The node's shuffles in round t: one permutation an epoch, in turn."""
    return generator(SEED, "shuffle", k, t)


def epoch(w, X, y, B, shuffle, eta):
    """One epoch of minibatch SGD; ``eta(i)`` is the rate of the epoch's i-th step."""
    rows = shuffle.permutation(len(y))
    for i, start in enumerate(range(0, len(y), B)):
        b = rows[start : start + B]
        w = w - eta(i) * gradient(w, X[b], y[b])
    return w


def step(w, rows, lr, times=1):
    """Local training: that many steps of gradient descent on all rows of a node."""
    for _ in range(times):
        w = w - lr * gradient(w, *arrays(rows))
    return w


def average(nodes, models):
    """The mean of models by organization, weighted by the rows of their nodes."""
    return sum(len(nodes[k]) * w for k, w in models.items()) / sum(len(nodes[k]) for k in models)


def rows_of(result, t):
    """The rows of single nodes of round t in a result."""
    return [row for row in result["per_node"] if row["round"] == t]


def check(result, w, atol=1e-6):
    """The result's model is w."""
    np.testing.assert_allclose(codec.decode(result["weights"])["weights"], w, atol=atol)
