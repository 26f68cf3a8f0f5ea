"""Random hostile tasks in two worlds that differ by one row: a node with a budget says the same in both.

The noise is switched off, so that what is left to see is what noise does not cover: refusals, their texts, and the
form of answers.
"""

import copy
import os
import random
import sys
from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import pytest

from v6_federated.messages import codec
from v6_federated.models import metrics
from v6_federated.node import noising
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

sys.path.append(str(Path(__file__).parent))
import hostile_tasks

TASKS = int(os.environ.get("HOSTILE_TASKS", "60"))
TARGET, ODD = 1, 3
ENVIRONMENT = {
    "V6_FEDERATED_PROFILE": "private",
    "V6_FEDERATED_AGGREGATION": "plain",
    "V6_FEDERATED_EPSILON": "1000000",
    "V6_FEDERATED_DELTA": "1e-5",
    "V6_FEDERATED_MAXIMUM_SECONDS": "1",
    "V6_FEDERATED_MAXIMUM_ROUNDS_A_WEEK": "1000000",
    "V6_FEDERATED_MAXIMUM_ROUNDS": "1000000",
}
TABLE = Schema(
    (Column("x0", "number", 0, 1), Column("x1", "number", -5, 100), Column("code", "words", levels=("1", "2"))),
    "label",
    (0, 1),
    person="who",
    m=2,
)
ARRAYS = Schema(tuple(Column(str(i), "number", 0, 3) for i in range(4)), "y", (0, 1, 2, 3))
PLAN = {"steps": 100_000, "evaluations": 100_000, "noise": 1000.0, "evaluation_noise": 1000.0}


def table(k: int) -> pd.DataFrame:
    rng = np.random.default_rng(k)
    numbers = {"x0": rng.random(90), "x1": rng.normal(20, 5, 90), "code": rng.integers(1, 3, 90)}
    return pd.DataFrame({**numbers, "label": rng.integers(0, 2, 90), "who": np.arange(90) // 2}).astype(object)


def arrays(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    return rng.integers(0, 4, (90, 4)).astype(float), rng.integers(0, 4, 90)


def odd(found, values):
    """The same with another row in one place."""
    if isinstance(found, pd.DataFrame):
        found.loc[ODD, ["x0", "x1", "code", "label"]] = values
        return found
    found[0][ODD, 0], found[1][ODD] = values[0], values[3]
    return found


WORLDS = {
    "table": (table, TABLE, "v6_coop", [[1e300, -np.inf, "none", 1], [None, "old", None, "ill"], [0.0, 100, "2", 0]]),
    "arrays": (arrays, ARRAYS, "v6_coop", [[1e300, 0, 0, 3], [-1.0, 0, 0, 77], [2.5, 0, 0, 0]]),
}


def network(folder, package, make, schema, values=None, **options):
    databases = {k: make(k) for k in (1, 2, 3)}
    if values is not None:
        databases[TARGET] = odd(databases[TARGET], values)
    for k in databases:
        (folder / f"node-{k}").mkdir(parents=True)
        (folder / f"node-{k}" / "secret").write_bytes(bytes([k] * 32))
    study = StudyPlan(schema=schema)
    return MockNetwork(
        package,
        databases,
        environment=ENVIRONMENT,
        hospital_folder=folder,
        study=study,
        on_round=lambda row: None,
        **options,
    )


def asked(found, task):
    client = found.client()
    sent = client.task.create(orjson.loads(orjson.dumps(task)), [TARGET])
    results = client.wait_for_results(sent["id"])
    [run] = client.run.from_task(sent["id"])
    return (run["status"], run["log"]), results[0] if results else None


def sendable(task) -> bool:
    """Whether it is nested so little that it can be sent."""
    try:
        return bool(orjson.dumps(task))
    except TypeError:
        return False


def recorded(folder, package, make, schema) -> list[dict]:
    """The tasks of an honest job, with a plan that is never used up."""
    tasks = []

    def note(organization, input_):
        if organization == TARGET:
            tasks.append(orjson.loads(orjson.dumps(input_)))
        return CallOutcome()

    steps = ["scale", "onehot"] if schema is TABLE else ["scale"]
    with network(folder, package, make, schema, outcomes=note) as found:
        found.run(rounds=2, clip=1.0, noise=5, preprocess=steps, aggregation="plain", holdout=0.3)
    for task in tasks:
        task["kwargs"]["job"]["privacy"] |= PLAN
    return [task for task in tasks if task["method"] != "forget"]


def counted(answer) -> np.ndarray:
    evaluation = answer["evaluation"]
    return np.concatenate([np.ravel(evaluation[name]) for name in ("confusion", "bands")])


@pytest.mark.parametrize("kind", WORLDS)
def test_a_node_says_the_same_whatever_one_row_holds(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(noising, "discrete_gaussian", lambda key, sigma, size: np.zeros(size, np.int64))
    make, schema, package, rows = WORLDS[kind]
    rng = random.Random(int(os.environ.get("HOSTILE_SEED", "0")))
    honest = recorded(tmp_path / "honest", package, make, schema)
    others = [part for task in honest for part in task["kwargs"].values()]
    answered = 0
    with (
        network(tmp_path / "one", package, make, schema) as one,
        network(tmp_path / "two", package, make, schema, rows[rng.randrange(len(rows))]) as two,
    ):
        for task in [
            *honest,
            *(hostile_tasks.mutated(rng, rng.choice(honest), copy.deepcopy(others)) for _ in range(TASKS)),
        ]:
            if not sendable(task):
                continue
            (status, said), (status_of_other, other) = asked(one, task), asked(two, task)
            assert status == status_of_other, task
            if status[0] != "completed":
                continue
            assert (said.keys(), said.get("n")) == (other.keys(), other.get("n"))
            if "evaluation" in said and said["evaluation"]["n"]:
                answered += 1
                moved = np.linalg.norm(counted(said) - counted(other))
                most = np.sqrt(2) * metrics.reach(len(said["evaluation"]["bands"]))  # out of one place, into another
                assert moved <= most + 0.1, task
            if "arrays" in said:
                pair = [codec.decode(run["arrays"]) for run in (said, other)]
                assert [{k: a.shape for k, a in found.items()} for found in pair] == [
                    {k: a.shape for k, a in pair[0].items()}
                ] * 2
            elif "evaluation" not in said:
                assert said == other, task
    assert answered
