"""Minibatches: their sizes, their order, and the operator's minimum."""

import numpy as np
import pytest
from helpers import refused, table, train

from v6_federated.models.linear import LinearModel
from v6_federated.node import local_training


def test_small_batches(hospitals):
    refused("batch_size=4 is below the 5", hospitals, environment={"V6_FEDERATED_MINIMUM_BATCH": "5"}, batch_size=4)
    train("v6_fedavg", hospitals, environment={"V6_FEDERATED_MINIMUM_BATCH": "5"}, rounds=1, batch_size=5)


def test_no_minibatch_is_smaller_than_the_operators_minimum(hospitals):
    """The rows that are left at the end of an epoch join the minibatch before them."""
    rng = np.random.default_rng(0)
    for n, size, least, lengths in [
        (41, 20, 20, [20, 21]),
        (41, 20, 1, [20, 20, 1]),
        (40, 20, 20, [20, 20]),
        (15, 10, 10, [15]),
        (5, 10, 10, [5]),
        (45, 20, 5, [20, 20, 5]),
        (45, 20, 6, [20, 25]),
        (3, 1, 1, [1, 1, 1]),
    ]:
        for batches in (
            list(local_training.batches(rng, n, 1, size, least)),
            list(local_training.batches(rng, n, 1, size, least)),
        ):
            taken = [np.arange(n)[batch] for batch in batches]
            assert [len(rows) for rows in taken] == lengths
            assert len(batches) == local_training.steps_per_epoch(n, size, least)
            assert sorted(np.concatenate(taken)) == list(range(n))
    seen = []

    def spied(self, w, X, y):
        seen.append(len(y))
        return gradient(self, w, X, y)

    gradient = LinearModel.loss_and_gradient
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LinearModel, "loss_and_gradient", spied)
        nodes = {k: table(41, seed=k) for k in (1, 2, 3)}
        train("v6_fedavg", nodes, environment={"V6_FEDERATED_MINIMUM_BATCH": "20"}, rounds=1, batch_size=20, holdout=0)
    assert seen == [20, 21] * 3


@pytest.mark.parametrize(("n", "size", "least"), [(59, 20, 20), (59, 20, 1), (60, 20, 20), (7, 20, 1), (21, 10, 5)])
def test_the_largest_minibatch(n, size, least):
    parts = [
        len(range(n)[b]) if isinstance(b, slice) else len(b)
        for b in local_training.batches(np.random.default_rng(0), n, 1, size, least)
    ]
    assert local_training.largest(n, size, least) == max(parts) and sum(parts) == n


def test_an_operator_can_keep_the_order_of_rows_to_the_node(hospitals):
    """Else whoever has the seed knows which rows make up a minibatch. Shuffled anew each time, with other bits."""
    settings = {"rounds": 2, "batch_size": 7, "seed": 3}
    own = {"V6_FEDERATED_OWN_SHUFFLE": "1"}
    one, two = (train("v6_fedavg", hospitals, environment=own, **settings)["weights"] for _ in range(2))
    assert one != two
    assert train("v6_fedavg", hospitals, **settings)["weights"] == train("v6_fedavg", hospitals, **settings)["weights"]
