"""More classes than an evaluation crosses: what cannot be counted is refused before training."""

import numpy as np
import pandas as pd
import pytest
from helpers import train

from v6_federated import SafeError
from v6_federated.messages.result import MOST_CROSSED

CLASSES = MOST_CROSSED + 1


def test_subgroups_are_refused():
    rng = np.random.default_rng(0)
    rows = {}
    for k in (1, 2):
        labels = np.tile(np.arange(CLASSES), 4)
        rows[k] = pd.DataFrame({"x": rng.normal(size=len(labels)), "sex": ["f", "m"] * (2 * CLASSES), "label": labels})
    limits = {"V6_FEDERATED_MAXIMUM_CLASSES": "2000", "V6_FEDERATED_MINIMUM_ORGANIZATIONS": "1"}
    asked = {"rounds": 1, "classes": [*range(CLASSES)], "features": ["x"], "subgroup": "sex", "environment": limits}
    with pytest.raises(SafeError, match="subgroup=sex cannot be used with more than 1000 classes; leave it out"):
        train("v6_fedavg", rows, **asked)
