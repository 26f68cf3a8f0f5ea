"""Fitted steps that a node keeps for a job, so that later tasks only name them."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated.base.errors import SafeError
from v6_federated.data.preprocessing import reference
from v6_federated.node.state import State


def keep(steps: Sequence[Mapping[str, Any]], state: State) -> None:
    """Keep fitted steps at a node for the rounds to come."""
    for step in steps:
        text = np.frombuffer(json.dumps(step).encode(), dtype=np.uint8)
        state.part(f"step-{reference(step)['kept']}").save({"step": text})


def kept(steps: Sequence[dict[str, Any]], state: State) -> Sequence[dict[str, Any]]:
    """The steps with those that the node keeps in full. Raises SafeError for one that is gone."""
    whole = []
    for step in steps:
        if "kept" in step:
            if not re.fullmatch("[0-9a-f]{64}", str(step["kept"])):
                raise SafeError("a step that is said to be kept has no proper digest; expected 64 hexadecimal digits")
            found = state.part(f"step-{step['kept']}").load(0)
            if found is None:
                raise SafeError(f"the fitted step {step['step']} is gone from the job's folder; run the job again")
            step = json.loads(bytes(found["step"]))
        whole.append(step)
    return whole
