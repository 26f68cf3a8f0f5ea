"""Fitted steps that a node keeps for a job, so that later tasks only name them."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated.base import json_text
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.data.preprocessing import reference
from v6_federated.node.state import State


def keep(steps: Sequence[Mapping[str, Any]], state: State) -> None:
    """Keep fitted steps for the rounds to come."""
    for step in steps:
        text = np.frombuffer(json.dumps(step).encode(), dtype=np.uint8)
        state.part(f"step-{reference(step)['kept']}").save({"step": text})


def kept(steps: Sequence[dict[str, Any]], state: State) -> Sequence[dict[str, Any]]:
    """Replace references by the steps that the node keeps."""
    whole = []
    for step in steps:
        if "kept" in step:
            if not re.fullmatch("[0-9a-f]{64}", str(step["kept"])):
                raise SafeError("the digest of a kept step must be 64 hexadecimal digits")
            found = state.part(f"step-{step['kept']}").load(0)
            if found is None:
                raise SafeError(f"the fitted step {step['step']} is no longer in the job's folder; run the job again")
            step = _checked(found, step)
        whole.append(step)
    return whole


def _checked(found: Mapping[str, Array], wanted: dict[str, Any]) -> dict[str, Any]:
    """The step in a file, if it is the one that central names: all containers of the job can write to the file."""
    try:
        step: dict[str, Any] = json_text.parse(bytes(found["step"]))
        if reference(step) == wanted:
            return step
    except (KeyError, TypeError, ValueError):
        pass
    raise SafeError(
        f"the fitted step {wanted['step']} in the job's folder is not the one that was kept: its digest differs; ask "
        "the node's operator which other program writes there, and run the job again"
    )
