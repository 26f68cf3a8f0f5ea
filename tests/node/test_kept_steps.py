"""Fitted steps that a node keeps in the job's folder, to which all containers of the job can write."""

import json

import numpy as np
import pytest

from v6_federated.base.errors import SafeError
from v6_federated.data.preprocessing import reference
from v6_federated.node.kept_steps import keep, kept
from v6_federated.node.state import State

STEP = {"step": "clip", "fitted": {"bounds": {"age": [0.1, 100.0], "größe": [None, 2.5]}}}


@pytest.fixture
def state(tmp_path):
    return State(tmp_path, "fedavg-job-1", 1)


def test_a_kept_step_is_found_by_its_digest(state):
    keep([STEP], state)
    assert kept([reference(STEP)], state) == [STEP]


def as_text(text):
    return {"step": np.frombuffer(text.encode(), dtype=np.uint8)}


@pytest.mark.parametrize(
    "content",
    [
        as_text(json.dumps(STEP).replace("100.0", "0.2")),  # bounds that single rows out
        as_text(json.dumps({**STEP, "step": "impute"})),
        as_text("[1]"),
        as_text("no JSON"),
        as_text("[" * 100_000),
        {"other": np.ones(3)},
        {"step": np.ones((3, 3))},
    ],
)
def test_a_step_that_was_changed_is_refused_in_one_line(state, content):
    keep([STEP], state)
    state.part(f"step-{reference(STEP)['kept']}").save(content)
    with pytest.raises(SafeError) as refusal:
        kept([reference(STEP)], state)
    assert str(refusal.value).startswith("the fitted step clip in the job's folder is not the one that was kept: its ")
    assert "\n" not in str(refusal.value)


def test_another_name_for_a_kept_step_is_refused(state):
    keep([STEP], state)
    with pytest.raises(SafeError, match="the fitted step impute in the job's folder is not the one"):
        kept([{**reference(STEP), "step": "impute"}], state)
