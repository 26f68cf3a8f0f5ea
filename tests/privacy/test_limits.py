"""The operator's limits on rows, organizations and rounds, and on what is evaluated."""

from helpers import refused, table, train


def limit(name: str, value: object) -> dict[str, str]:
    return {f"V6_FEDERATED_{name}": str(value)}


def test_a_node_with_fewer_rows_than_the_minimum_refuses(hospitals):
    text = refused("organization 9: fewer than 10 rows to compute on", {**hospitals, 9: table(9)}, holdout=0)
    assert "organization 3" not in text


def test_the_number_of_rows_is_not_named(hospitals):
    """A job that asks for one column after another would learn how many rows have a value."""
    assert "9 rows" not in refused("organization 11: fewer than 10 rows", {**hospitals, 11: table(9)}, holdout=0)


def test_rows_are_counted_without_those_held_out(hospitals):
    refused("organizations 3, 5, 8: fewer than 10 rows to compute on", hospitals, holdout=0.9)


def test_an_operator_can_ask_for_more_rows(hospitals):
    refused("organization 5: fewer than 50 rows", hospitals, environments={5: limit("MINIMUM_ROWS", 50)})


def test_a_request_can_ask_for_more_rows_but_not_for_fewer(hospitals):
    refused("fewer than 40 rows to compute on", hospitals, minimum_rows=40)
    refused("minimum_rows=5, but this node requires 10 rows", hospitals, minimum_rows=5)
    train("v6_fedavg", hospitals, rounds=1, minimum_rows=10)


def test_central_refuses_too_few_organizations(hospitals):
    two = {k: hospitals[k] for k in (3, 5)}
    refused(
        "only 2 organization(s) take part, but this node requires 3", two, environment=limit("MINIMUM_ORGANIZATIONS", 3)
    )


def test_a_node_that_requires_more_organizations_than_central_refuses(hospitals):
    strict = {5: limit("MINIMUM_ORGANIZATIONS", 4)}
    refused(
        "organization 5: only 3 organization(s) take part, but this node requires 4", hospitals, environments=strict
    )


def test_a_job_has_no_more_rounds_than_the_operator_allows(hospitals):
    four = limit("MAXIMUM_ROUNDS", 4)
    refused("5 rounds are more than the 4 that this node allows", hospitals, environment=four, rounds=5)
    train("v6_fedavg", hospitals, environment=four, rounds=4)


def test_a_node_with_few_rows_trains_and_does_not_evaluate(hospitals):
    result = train("v6_fedavg", {**hospitals, 9: table(15)}, rounds=1)
    assert result["final"]["evaluated"] == 10 + 10 + 10  # of 30, 44 and 26 rows
    assert result["history"][0]["n"] == 20 + 34 + 16 + 15


def test_an_operator_can_switch_off_the_counts_for_the_auc(hospitals):
    result = train("v6_fedavg", hospitals, rounds=1, environment=limit("SCORE_BANDS", 0))
    assert result["final"]["auc"] is None and result["final"]["accuracy"] is not None
