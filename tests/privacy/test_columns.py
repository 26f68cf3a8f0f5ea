"""The operator's limits on columns."""

import pytest
from helpers import refused, train


def test_a_disallowed_column_is_refused(hospitals):
    disallowed = {"V6_FEDERATED_DISALLOWED_COLUMNS": "x1"}
    refused("organizations 3, 5, 8: the column(s) x1 may not be used", hospitals, environment=disallowed)
    train("v6_fedavg", hospitals, environment=disallowed, rounds=1, features=["x0", "x2"])


def test_a_column_that_is_not_on_the_list_of_allowed_ones_is_refused(hospitals):
    allowed = {"V6_FEDERATED_ALLOWED_COLUMNS": "x0, x1, label"}
    refused("the column(s) x2, x3 may not be used", hospitals, environment=allowed)
    train("v6_fedavg", hospitals, environment=allowed, rounds=1, features=["x0", "x1"])


def test_the_label_is_a_column_too(hospitals):
    disallowed = {"V6_FEDERATED_DISALLOWED_COLUMNS": "label"}
    refused("the column(s) label may not be used", hospitals, environment=disallowed)


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
def test_a_column_that_looks_like_a_disallowed_one_is_refused(hospitals, column, listed):
    named = {k: rows.rename(columns={"x1": column}) for k, rows in hospitals.items()}
    disallowed = {"V6_FEDERATED_DISALLOWED_COLUMNS": listed}
    shown = "".join(c for c in column if c.isprintable())  # as the server shows the last words of a log
    refused(f"the column(s) {shown} may not be used", named, environment=disallowed)
    train("v6_fedavg", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": f"{listed}s"}, rounds=1)


def test_a_disallowed_column_whose_name_holds_a_comma_is_refused(hospitals):
    """The list of columns is divided at its commas."""
    named = {k: rows.rename(columns={"x1": "weight, kg"}) for k, rows in hospitals.items()}
    refused(
        "the column(s) weight, kg may not be used",
        named,
        environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "age,weight, kg"},
    )
    named = {k: rows.rename(columns={"x1": "weight,"}) for k, rows in hospitals.items()}
    refused("the column(s) weight, may not be used", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "weight,"})
    train("v6_fedavg", named, environment={"V6_FEDERATED_DISALLOWED_COLUMNS": "kg"}, rounds=1)


def test_a_column_that_pandas_renamed_is_disallowed_like_its_twin(hospitals):
    """If ssn is twice in a file, pandas calls the second ssn.1. Alone, ssn.1 is another column."""
    named = {k: rows.rename(columns={"x0": "ssn", "x1": "ssn.1"}) for k, rows in hospitals.items()}
    limit = {"V6_FEDERATED_DISALLOWED_COLUMNS": "ssn"}
    refused("ssn (twice in the file) may not be used", named, environment=limit, features=["ssn.1", "x2"])
    alone = {k: rows.drop(columns="ssn") for k, rows in named.items()}
    train("v6_fedavg", alone, environment=limit, rounds=1, features=["ssn.1", "x2"])
    listed = {"V6_FEDERATED_ALLOWED_COLUMNS": "ssn.1,x2,label"}
    train("v6_fedavg", named, environment=listed, rounds=1, features=["ssn.1", "x2"])
