"""Minibatches: their sizes, their order, and the operator's minimum."""

import numpy as np
import pytest
from helpers import a_method, crafted, refused, table, train

from v6_federated import BatchSize, LearningRate, PlainSGD, codec
from v6_federated.node import local_training


def test_minibatches_below_the_operators_minimum_are_refused(hospitals):
    five = {"V6_FEDERATED_MINIMUM_BATCH": "5"}
    refused("batch_size=4 is below the 5 rows that this node requires", hospitals, environment=five, batch_size=4)
    train("v6_fedavg", hospitals, environment=five, rounds=1, batch_size=5)


SIZES = [  # rows, rows of a minibatch, the operator's minimum, the rows of each minibatch
    (41, 20, 20, [20, 21]),
    (41, 20, 1, [20, 20, 1]),
    (40, 20, 20, [20, 20]),
    (15, 10, 10, [15]),
    (5, 10, 10, [5]),
    (45, 20, 5, [20, 20, 5]),
    (45, 20, 6, [20, 25]),
    (3, 1, 1, [1, 1, 1]),
    (59, 20, 20, [20, 39]),
    (7, 20, 1, [7]),
    (21, 10, 5, [10, 11]),
]


@pytest.mark.parametrize(("n", "size", "least", "lengths"), SIZES)
def test_rows_left_over_at_the_end_of_an_epoch_join_the_minibatch_before(n, size, least, lengths):
    rng = np.random.default_rng(0)
    taken = [np.arange(n)[batch] for batch in local_training.batches(rng, n, 2, size, least)]
    assert [len(rows) for rows in taken] == 2 * lengths
    for epoch in (taken[: len(lengths)], taken[len(lengths) :]):
        assert sorted(np.concatenate(epoch)) == list(range(n))
    assert local_training.steps_per_epoch(n, size, least) == len(lengths)
    assert local_training.largest(n, size, least) == max(lengths)


def test_all_rows_are_one_minibatch_if_no_size_is_set():
    assert [*local_training.batches(np.random.default_rng(0), 7, 3, None)] == [slice(None)] * 3


def test_rows_are_shuffled_in_every_epoch():
    first, second = local_training.batches(np.random.default_rng(0), 1000, 2, 999, 2)  # one minibatch: in their order
    assert first == second == slice(None)
    taken = [*local_training.batches(np.random.default_rng(0), 100, 2, 50)]
    assert np.concatenate(taken[:2]).tolist() != np.concatenate(taken[2:]).tolist()
    assert np.concatenate(taken[:2]).tolist() != list(range(100))


def test_a_node_gives_no_minibatch_below_the_operators_minimum(hospitals, monkeypatch):
    """41 rows in minibatches of 20: one of the rows would be left alone."""

    def client_update(node, weights, *, size: BatchSize, eta: LearningRate):
        lengths = [len(y) for _, y in node.batches(2, size)]
        node.train(weights, PlainSGD(batch_size=size), lambda w, g: lengths.append(0))
        assert lengths == [20, 21, 20, 21, 0, 0]
        return {}

    settings = {"size": 20, "eta": 0.1, "arrays": codec.encode({"weights": np.zeros(5)})}
    nodes = {k: table(41, seed=k) for k in hospitals}
    package, minimum = a_method(monkeypatch, client_update), {"V6_FEDERATED_MINIMUM_BATCH": "20"}
    assert crafted(nodes, package=package, environment=minimum, **settings) == ("completed", "")


def test_an_operator_can_keep_the_order_of_rows_to_the_node(hospitals):
    """Otherwise the researcher, who knows the seed, knows the rows of each minibatch."""
    settings = {"rounds": 2, "batch_size": 7, "seed": 3}
    own = {"V6_FEDERATED_OWN_SHUFFLE": "1"}
    one, two = (train("v6_fedavg", hospitals, environment=own, **settings)["weights"] for _ in range(2))
    assert one != two
    assert train("v6_fedavg", hospitals, **settings)["weights"] == train("v6_fedavg", hospitals, **settings)["weights"]
