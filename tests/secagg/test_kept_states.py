"""What a node keeps from round to round is bound to all requests that have led to it, not to the last one alone."""

import numpy as np
import pandas as pd
import pytest
from forged import Central

from v6_federated.messages import codec
from v6_federated.node.state import State
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}
SCHEMA = Schema((Column("x", "number", 0, 9),), "label", (0, 1))
AT = np.array([0.3, -0.2])
RATE = 0.1


def hospitals():
    rng = np.random.default_rng(1)
    return {
        k: pd.DataFrame({"x": rng.integers(0, 9, 40 + k).astype(float), "label": (rng.random(40 + k) < 0.15 * k) + 0})
        for k in range(1, 5)
    }


def gradient(table):
    """The mean gradient at ``AT`` of a hospital's rows alone."""
    X = np.column_stack([table["x"], np.ones(len(table))])
    return X.T @ (1 / (1 + np.exp(-X @ AT)) - table["label"]) / len(table)


def told(folder, equal_again):
    """What the sums of SCAFFOLD tell of hospital 1, which is asked alone before all; None if they do not open.

    ``equal_again``: a request with the rate 0 to all then keeps each hospital's state under the same request.
    """
    tables = hospitals()
    options = {"hospital_folder": folder, "study": StudyPlan(4, schema=SCHEMA), "environment": CAREFUL}
    with MockNetwork("v6_scaffold", tables, **options) as network:
        lying = Central(network, "pinned")
        lying.job |= {
            "method": "scaffold",
            "model": {"name": "logreg", "features": 1, "classes": 2},
            "data": {**lying.job["data"], "label": "label", "features": ["x"]},
        }
        lying.agree()
        arrays = codec.encode({"weights": AT, "c": np.zeros(2)})

        def asked(seq, members, known, lr):
            local = {"arrays": arrays, "known": known, "local": {"lr": lr}}
            found = [lying.ask(k, "client_update", seq, round_=seq, unit=(64, 10), **local) for k in members]
            assert not any(isinstance(each, str) for each in found), found
            return found

        asked(1, [1], {}, RATE)
        if equal_again:
            asked(2, tables, {"block 1": 1}, 0.0)
        with_state = lying.opened(asked(3, tables, {"block 1": 2 if equal_again else 1}, RATE))
        without = lying.opened(asked(4, tables, {}, RATE))
    assert without[:2] == (4, 0)
    if with_state[:2] != (4, 0):
        return None
    return (with_state[2]["equal dy 2^10"] - without[2]["equal dy 2^10"]) * 4 / RATE


@pytest.mark.parametrize("equal_again", [False, True], ids=["asked alone", "then asked with all"])
def test_a_state_of_one_hospital_alone_opens_no_sum(equal_again, tmp_path):
    assert told(tmp_path, equal_again) is None


def test_a_stamp_of_the_last_request_alone_told_one_hospitals_gradient(tmp_path, monkeypatch):
    load = State.load

    def of_the_last_request(state, round_):
        found = load(state, round_)
        state.loaded_stamp = b"" if found is None else bytes([round_])
        return found

    monkeypatch.setattr(State, "load", of_the_last_request)
    np.testing.assert_allclose(told(tmp_path, True), gradient(hospitals()[1]), rtol=1e-4)
