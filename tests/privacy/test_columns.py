"""The operator's limits on columns."""

import pytest
from helpers import refused, train


def test_columns(hospitals):
    refused(
        "organizations 3, 5, 8: the column(s) x1 may not be used",
        hospitals,
        environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "x1"},
    )
    allowed = {"V6_FEDERATED_ALLOWED_COLUMNS": "x0, x1, label"}
    refused("x2, x3 may not be used", hospitals, environment=allowed)
    train("v6_fedavg", hospitals, environment=allowed, rounds=1, features=["x0", "x1"])


@pytest.mark.parametrize(
    ("column", "listed"),
    [
        ("Patient_ID", "patient_id"),
        ("patient_id", "PATIENT_ID"),
        ("patient_id\u200b", "patient_id"),
        ("gro\u0308\u00dfe", "gr\u00f6sse"),
        ("patient\uff3fid", "patient_id"),
        ("patient_id\u3164", "patient_id"),
        ("patient\ufe0f_id", "patient_id"),
        ("\u2800patient_id", "patient_id"),
        ("patient\x7f_id\x00", "patient_id"),
    ],
)
def test_a_disallowed_column_that_reads_like_the_one_listed(hospitals, column, listed):
    named = {k: rows.rename(columns={"x1": column}) for k, rows in hospitals.items()}
    refused("may not be used", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": listed})
    train("v6_fedavg", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": f"{listed}s"}, rounds=1)


def test_a_column_whose_name_holds_a_comma(hospitals):
    """The list of columns has it in parts."""
    named = {k: rows.rename(columns={"x1": "weight, kg"}) for k, rows in hospitals.items()}
    refused("weight, kg may not be used", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "age,weight, kg"})
    named = {k: rows.rename(columns={"x1": "weight,"}) for k, rows in hospitals.items()}
    refused("weight, may not be used", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "weight,"})
    train("v6_fedavg", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "kg"}, rounds=1)


def test_a_column_that_is_twice_in_a_file(hospitals):
    """pandas calls the second ssn.1: it is as disallowed as the first. Of another column called so nothing is known."""
    named = {k: rows.rename(columns={"x0": "ssn", "x1": "ssn.1"}) for k, rows in hospitals.items()}
    limit = {"V6_FEDERATED_DISALLOWED_COLUMNS": "ssn"}
    refused("ssn (twice in the file) may not be used", named, environment=limit, features=["ssn.1", "x2"])
    alone = {k: rows.drop(columns="ssn") for k, rows in named.items()}
    train("v6_fedavg", alone, environment=limit, rounds=1, features=["ssn.1", "x2"])
    listed = {"V6_FEDERATED_ALLOWED_COLUMNS": "ssn.1,x2,label"}
    train("v6_fedavg", named, environment=listed, rounds=1, features=["ssn.1", "x2"])
