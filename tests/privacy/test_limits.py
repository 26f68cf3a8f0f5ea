"""The operator's limits on rows, organizations and rounds."""

import pytest
from helpers import refused, table, train
from vantage6.algorithm.tools.exceptions import (
    NodePermissionException,
)

from v6_federated.privacy.policy import Policy


def test_too_few_rows_at_one_node(hospitals):
    text = refused("organization 9: fewer than 10 rows", {**hospitals, 9: table(9)}, holdout=0)
    assert "organization 3" not in text


def test_rows_are_counted_after_the_holdout(hospitals):
    refused("organizations 3, 5, 8: fewer than 10 rows", hospitals, holdout=0.9)


def test_an_operator_can_ask_for_more_rows(hospitals):
    refused("organization 5: fewer than 50", hospitals, environments={5: {"V6_FEDERATED_MINIMUM_ROWS": "50"}})


def test_a_request_can_ask_for_more_rows_but_not_for_fewer(hospitals):
    refused("fewer than 40 rows", hospitals, minimum_rows=40)
    refused("a request can only raise it", hospitals, minimum_rows=5)


def test_too_few_organizations(hospitals):
    two = {k: hospitals[k] for k in (3, 5)}
    refused("at least 3 must", two, environment={"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "3"})
    # central asks little, one node asks more: the partial refuses
    refused(
        "organization 5: 3 organization(s) take part, at least 4 must",
        hospitals,
        environments={5: {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "4"}},
    )


def test_rounds(hospitals):
    refused("5 rounds are more than the 4", hospitals, environment={"V6_FEDERATED_MAXIMUM_ROUNDS": "4"}, rounds=5)


def test_a_limit_that_cannot_be_read_stops_everything():
    with pytest.raises(NodePermissionException, match="MINIMUM_ROWS"):
        Policy.of_node({"V6_FEDERATED_MINIMUM_ROWS": "ten"})


def test_a_node_with_few_rows_gives_no_evaluation(hospitals):
    result = train("v6_fedavg", {**hospitals, 9: table(15)}, rounds=1)
    assert result["final"]["evaluated"] == 10 + 10 + 10  # of 30, 44 and 26 rows
    assert result["history"][0]["n"] == 20 + 34 + 16 + 15


def test_score_bands_can_be_switched_off(hospitals):
    result = train("v6_fedavg", hospitals, rounds=1, environment={"V6_FEDERATED_SCORE_BANDS": "0"})
    assert result["final"]["auc"] is None and result["final"]["accuracy"] is not None
