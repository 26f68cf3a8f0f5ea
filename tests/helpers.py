"""Small tables from a fixed seed, training on mock nodes, and tasks that no honest researcher sends."""

import sys
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from vantage6.algorithm.tools.exceptions import CollectResultsError, PrivacyThresholdViolation, UserInputError

from v6_federated import partial
from v6_federated.base import vantage6_api
from v6_federated.messages import codec
from v6_federated.messages.local_sgd import LocalSGD
from v6_workbench.conformance import tables
from v6_workbench.conformance.jobs import OPEN
from v6_workbench.simulation.mock import CallOutcome, MockNetwork

four = pytest.mark.skipif(vantage6_api.FIVE, reason="how a node of vantage6 4 describes itself; see tests/five")
server_of_four = pytest.mark.skipif(vantage6_api.FIVE, reason="a server in memory that answers as vantage6 4's does")
table, hospital = tables.table, tables.clinic  # as the checks of methods have them
ALL_STEPS = ["impute:median", "impute:most_frequent", "onehot", "clip:0.05", "standardize", "pca:4"]
JOB = {  # what a proper task says about its job
    "method": "fedavg",
    "key": "0" * 32,
    "seed": 0,
    "participants": [3, 5, 8],
    "evaluators": [],
    "rounds": 1,
    "model": {"name": "logreg", "features": 4, "classes": 2},
    "minimum_rows": None,
    "precision": "float32",
    "data": {"label": None, "features": None, "classes": [0, 1], "holdout": 0.0, "preprocess": []},
}
FEDAVG = {"local": {}, "arrays": codec.encode({"weights": np.zeros(5)})}


def train(
    package: str,
    databases: dict,
    processes: int = 1,
    environment: dict | None = None,
    environments=None,
    stops=False,
    **settings,
):
    """Run a method on mock nodes, to its end, or (``stops``) to a failure after which the model of the last round is
    the result."""
    with MockNetwork(
        package,
        databases,
        environment={**OPEN, **(environment or {})},
        environments=environments,
        processes=processes,
        on_round=lambda row: None,
    ) as network:
        result = network.run(**settings)
    assert ("stopped" in result) == stops, result.get("stopped")
    return result


def spoilt(**changes):
    """CallOutcomes under which organization 2 answers its evaluations with ``changes``."""

    def alter(answer):
        if "evaluation" in answer:
            answer["evaluation"] |= changes
        return answer

    return lambda organization, input_: CallOutcome(alter=alter) if organization == 2 else CallOutcome()


def pooled(nodes: dict) -> pd.DataFrame:
    """The rows of all nodes in one table."""
    return pd.concat(nodes.values(), ignore_index=True)


def fitted(nodes, *steps, **settings):
    """The fitted steps of a short job on all rows."""
    result = train("v6_fedavg", nodes, **{"rounds": 1, "holdout": 0, **settings}, preprocess=list(steps))
    return [step["fitted"] for step in result["data"]["preprocess"]]


def refused(says: str, nodes: dict, package: str = "v6_fedavg", **settings) -> str:
    """Check that a job of two rounds is refused with an error that holds ``says``; returns the whole text."""
    with pytest.raises((CollectResultsError, PrivacyThresholdViolation, UserInputError)) as caught:
        train(package, nodes, **{"rounds": 2, **settings})
    assert says in str(caught.value), str(caught.value)
    return str(caught.value)


def refused_steps(nodes: dict, *steps, error: type[Exception] = CollectResultsError, **settings) -> str:
    """The error, in one line, of a job whose preprocessing steps are refused."""
    with pytest.raises(error) as caught:
        train("v6_fedavg", nodes, **{"rounds": 1, **settings}, preprocess=list(steps))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def missing(rounds, who=(3,)):
    """CallOutcomes: some organizations do not answer a function ``newton`` in these rounds."""

    def outcomes(k, input_):
        gone = k in who and input_["method"].startswith("newton") and input_["kwargs"]["round"] in rounds
        return CallOutcome(status="failed" if gone else "completed")

    return outcomes


def with_gaps(package: str, nodes: dict, outcomes, study=None, **settings) -> dict:
    """The result of a job some of whose nodes may be missing, for half of the nodes are enough."""
    environment = OPEN if study is None else {**OPEN, "V6_FEDERATED_MINIMUM_ORGANIZATIONS": "2"}
    with MockNetwork(
        package, nodes, environment=environment, on_round=lambda row: None, outcomes=outcomes, study=study
    ) as network:
        result = network.run(**{"min_responses": 0.5, "retries": 0, **settings})
    assert "stopped" not in result, result["stopped"]
    return result


def crafted(hospitals, function="client_update", job=None, package="v6_fedavg", environment=None, **request):
    """Send organization 3 the task of a partial function, as a malicious researcher could; the run's status and log.

    ``job`` and ``request`` replace parts of a proper task. For FedAvg, settings of ``LocalSGD`` go into its record.
    """
    environment = environment or {"V6_FEDERATED_MAXIMUM_ROUNDS": "5"}
    whole = {**JOB, "method": package.removeprefix("v6_"), **(job or {})}
    settings = {}
    if (package, function) == ("v6_fedavg", "client_update"):
        own = {name: request.pop(name) for name in [*request] if name in LocalSGD.model_fields}
        settings = {**FEDAVG, "local": {**FEDAVG["local"], **own}}
    with MockNetwork(package, hospitals, environment=environment) as network:
        client = network.client()
        kwargs = {"job": whole, "round": 1, **settings, **request}
        task = client.task.create({"method": function, "kwargs": kwargs}, [3])
        client.wait_for_results(task["id"])
        run = client.run.from_task(task["id"])[0]
        return run["status"], run["log"]


def a_method(monkeypatch, client_update) -> str:
    """The package of a method, made on the spot, whose partial function is ``client_update``."""
    module = ModuleType("v6_named")
    module.client_update = partial(client_update)
    monkeypatch.setitem(sys.modules, "v6_named", module)
    return "v6_named"
