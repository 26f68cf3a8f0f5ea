"""Jobs on four mock nodes, whose calls may fail."""

from helpers import OPEN, table

from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

NODES = {k: table(20 + 3 * k, seed=k) for k in (1, 2, 3, 4)}
CRASHED = CallOutcome(status="crashed")


def run(outcomes=None, method="fedavg", *, nodes=NODES, online=None, environment=OPEN, **settings):
    """The result of a job, of two rounds and two classes unless ``settings`` say otherwise."""
    with MockNetwork(
        f"v6_{method}", nodes, environment=environment, on_round=lambda row: None, outcomes=outcomes, online=online
    ) as network:
        return network.run(**{"rounds": 2, "classes": [0, 1], **settings})


def at(organizations, outcome, function="client_update"):
    """CallOutcomes: some organizations' calls of a function end with ``outcome``, all others well after a second."""

    def outcomes(k, input_):
        return outcome if k in organizations and input_["method"] == function else CallOutcome(1.0)

    return outcomes


def edited(**values):
    """An answer that has these values."""
    return CallOutcome(1.0, alter=lambda answer: {**answer, **values})


def training(seconds):
    """CallOutcomes by the seconds, or the outcome, of training: a function of organization and round. All other calls
    take no time."""

    def outcomes(organization, input_):
        if input_["method"] != "client_update":
            return CallOutcome()
        outcome = seconds(organization, input_["kwargs"]["round"])
        return outcome if isinstance(outcome, CallOutcome) else CallOutcome(float(outcome))

    return outcomes
