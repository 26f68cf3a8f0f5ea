"""Partitions of one's own: a function, lists of rows, and rows by the nodes' names."""

import functools

import numpy as np
import pandas as pd
import pytest
from helpers import table

from v6_federated.base.errors import SafeError
from v6_workbench import Experiment, load
from v6_workbench.simulation import partitions

ROWS = load(table(60))
HALVES = [np.arange(30), np.arange(30, 60)]


def sizes(partition, **options):
    return {name: len(rows) for name, rows in Experiment(ROWS, partition=partition, **options).named().items()}


def by_label(y, nodes, rng):
    return [np.flatnonzero(y == label) for label in np.unique(y)]


def test_a_function_deals_the_rows():
    experiment = Experiment(ROWS, partition=by_label, nodes=2)
    assert [set(rows["label"]) for rows in experiment.named().values()] == [{0}, {1}]
    assert experiment.description()["partition"] == "function by_label"
    assert sizes(lambda y, nodes, rng: np.array_split(rng.permutation(len(y)), nodes)) == dict.fromkeys("12345", 12)


def test_one_of_ours_with_another_number():
    partition = functools.partial(partitions.dirichlet, alpha=5)
    ours, own = (Experiment(ROWS, partition=p, nodes=3).named() for p in ("dirichlet:5", partition))
    assert all(ours[name].equals(own[name]) for name in ours), "the same seed"


def test_the_seed_of_the_partition_counts():
    shuffled = [
        Experiment(ROWS, partition=partitions.iid, nodes=2, partition_seed=seed).description()["digest"]
        for seed in (1, 1, 2)
    ]
    assert shuffled[0] == shuffled[1] != shuffled[2]


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (HALVES, {"1": 30, "2": 30}),
        ([list(part) for part in HALVES], {"1": 30, "2": 30}),
        ([np.arange(60) < 10, np.arange(60) >= 10], {"1": 10, "2": 50}),
        (np.arange(60).reshape(4, 15), {"1": 15, "2": 15, "3": 15, "4": 15}),
        ({"north": HALVES[0], "south": HALVES[1]}, {"north": 30, "south": 30}),
        (lambda y, nodes, rng: {"ill": np.flatnonzero(y == 1), "well": np.flatnonzero(y == 0)}, None),
    ],
)
def test_rows_of_each_node(partition, expected):
    found = sizes(partition)
    assert found == expected or (expected is None and [*found] == ["ill", "well"])


def test_a_job_and_its_baselines_run_on_it():
    experiment = Experiment(ROWS, partition={"north": HALVES[0], "south": HALVES[1]}, seed=1)
    federated, centralized = (train("fedavg", rounds=2) for train in (experiment.federated, experiment.centralized))
    assert federated["experiment"]["digest"] == centralized["experiment"]["digest"]
    assert federated["final"]["evaluated"] == centralized["final"]["evaluated"] > 0
    assert experiment.columns() == (["x0", "x1", "x2", "x3"], "label")


@pytest.mark.parametrize(
    ("partition", "options", "says"),
    [
        ([HALVES[0], HALVES[0]], {}, "the partition deals 30 of 60 rows more than once, and 30 to no node"),
        ([HALVES[0]], {}, "the partition deals 0 of 60 rows more than once, and 30 to no node; expected each row once"),
        ([HALVES[0], HALVES[1] + 1], {}, "gives the node 2 rows that do not exist; expected indices 0 to 59"),
        ([HALVES[0] - 1, HALVES[1]], {}, "gives the node 1 rows that do not exist"),
        ([HALVES[0], HALVES[1], []], {}, r"leaves the node\(s\) 3 without rows"),
        ([HALVES[0] + 0.5, HALVES[1]], {}, "gives the node 1 an array of type float64"),
        ([np.arange(50) < 10, HALVES[1]], {}, "the mask of the node 1 has 50 values; expected one for each of 60 rows"),
        ([table(30), table(30)], {}, r"gives the node 1 a DataFrame; expected indices .* load\({name: table, ...}\)"),
        ([], {}, r"the partition has 0 node\(s\); expected at least one"),
        (HALVES, {"nodes": 3}, r"the partition has 2 node\(s\); expected 3"),
        (by_label, {"nodes": 7}, r"the partition has 2 node\(s\); expected 7"),
    ],
)
def test_what_is_refused(partition, options, says):
    with pytest.raises(SafeError, match=says):
        sizes(partition, **options)


@pytest.mark.parametrize("organization", [0, 6, "north", "6"])
def test_a_node_that_there_is_not(organization):
    with pytest.raises(SafeError, match="there is no node .*; expected 1 to 5, or a name: '1', '2', '3', '4', '5'"):
        Experiment(ROWS).alone("fedavg", organization=organization, rounds=1)


def test_a_function_of_the_rows_of_a_fold():
    experiment = Experiment(ROWS, partition=by_label, nodes=2, fold=(0, 3))
    assert sum(map(len, experiment.named().values())) == 40 and isinstance(experiment.test, pd.DataFrame)
