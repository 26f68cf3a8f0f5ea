"""Labels: which columns may be one, and which of their values may leave a node."""

import numpy as np
import pytest
from helpers import refused, table, train
from vantage6.algorithm.tools.exceptions import (
    DataError,
)

from v6_federated.data import labels


def test_a_label_outside_the_classes_is_refused_without_quoting_it():
    with pytest.raises(DataError) as error:
        labels.encode_labels(np.array([1, 2, 77]), [1, 2])
    assert "77" not in str(error.value)


def test_labels_may_be_words_or_whole_floats():
    assert labels.encode_labels(np.array(["b", "a"]), ["a", "b"]).tolist() == [1, 0]
    assert labels.encode_labels(np.array([1.0, 0.0]), [0, 1]).tolist() == [1, 0]


def test_a_label_with_nearly_as_many_values_as_rows_is_refused(hospitals):
    """A job that names all of them would train parameters for each patient."""
    named = {k: rows.assign(id=np.arange(len(rows)) + 1000 * k) for k, rows in hospitals.items()}
    ids = sorted({value for rows in named.values() for value in rows["id"].tolist()})
    refused("fewer than 3 rows per value on average", named, label="id", classes=ids[: max(map(len, named.values()))])
    refused("the request names 101 classes, but this node accepts at most 100", hospitals, classes=[*range(101)])


def test_a_measurement_is_refused_as_a_label(hospitals):
    """Its values are not sent to the server."""
    many = {
        k: v.assign(label=np.arange(len(v)) * 1.5) for k, v in {1: table(330), 2: table(330), 3: table(330)}.items()
    }
    text = refused("the label has more than 100 values", many)
    assert "1.5" not in text


def test_a_label_value_of_few_rows_is_not_named(hospitals):
    """Fewer than 3 rows of a node have it."""
    hospitals[5].loc[0, "label"] = 2
    refused("labels that are not among the 2 classes of the job", hospitals)
    result = train("v6_fedavg", hospitals, rounds=1, classes=[0, 1, 2])
    assert result["model"]["classes"] == 3
