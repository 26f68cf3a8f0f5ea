"""Every method trains on preprocessed rows."""

import pytest
from helpers import ALL_STEPS, train

from v6_workbench.registry import names, supervised

TRAINING = ["v6_fedavg", "v6_scaffold", "v6_fsvrg", "v6_loadaboost", "v6_colearning", "v6_dynavg", "v6_coop", "v6_gbdt"]


@pytest.mark.parametrize("package", TRAINING)
def test_every_method_trains_on_components(package, clinics):
    own = {"min_rows_leaf": 10} if package == "v6_gbdt" else {}
    result = train(package, clinics, rounds=2, preprocess=ALL_STEPS, **own)
    assert result["model"]["features"] == 4 and result["final"]["accuracy"] is not None
    assert [step["step"] for step in result["data"]["preprocess"]] == [step.partition(":")[0] for step in ALL_STEPS]


def test_no_method_is_left_out():
    assert {f"v6_{method}" for method in names() if supervised(method)} == {*TRAINING}
