"""A model that training starts from, read from a file where central runs."""

import hashlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.files import open_regular
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.opening import read_archive
from v6_federated.models import Model
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy

FOLDER = "models"  # of the hospital's folder
MOST_BYTES = 2**31


def read(name: str, policy: Policy, model: Model, drawn: Array, on_a_node: bool) -> tuple[Array, dict[str, Any]]:
    """Read weights to start from.

    Args:
        name: on a real node, a file in the folder ``models`` of the hospital's own folder; elsewhere a path.
        policy: the limits of the node where central runs.
        model: the model.
        drawn: the weights (d,) that it would start with; layers that the file lacks keep theirs.
        on_a_node: whether central runs on a real node.

    Returns:
        The weights (d,), float32; and for the result the file's name and SHA-256, and the layers that it lacks.
    """
    file = _in_hospital(name, policy) if on_a_node else Path(name)
    try:
        with open_regular(file) as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise SafeError(f"start_from={name}: the file cannot be read ({error.strerror}){_where(on_a_node)}") from None
    if len(content) > MOST_BYTES:
        raise SafeError(f"start_from={name}: the file has more than {MOST_BYTES} bytes; expected a model's weights")
    try:
        arrays = read_archive(io.BytesIO(content), file.name)
    except DataError as error:
        raise SafeError(f"start_from: {error}") from None
    w, lacking = _fitted(arrays, model, drawn, name)
    if not np.isfinite(w).all():
        raise SafeError(f"start_from={name} holds numbers that are not finite; expected a trained model")
    return w, {"file": file.name, "sha256": hashlib.sha256(content).hexdigest(), "drawn": lacking}


def _in_hospital(name: str, policy: Policy) -> Path:
    if not re.fullmatch(r"\w[\w.-]*\.npz", name, re.ASCII):
        raise SafeError(f"start_from={name}: expected the name of a file, for example start.npz{_where(True)}")
    folder = HospitalFolder.of_node(policy, needed=True)
    assert folder is not None
    return folder.path / FOLDER / name


def _where(on_a_node: bool) -> str:
    where = f"; the operator of the node where central runs puts it in the folder {FOLDER} of the hospital's own folder"
    return where if on_a_node else ""


def _fitted(arrays: dict[str, Array], model: Model, drawn: Array, name: str) -> tuple[Array, list[str]]:
    """The weights: all in one array, as in a result and an exported file, or layer by layer, as in a state_dict."""
    if "weights" in arrays:
        if arrays["weights"].shape != drawn.shape or arrays["weights"].dtype.kind != "f":
            raise SafeError(
                f"start_from={name} holds weights of shape {arrays['weights'].shape}; this model has {drawn.shape}"
            )
        return arrays["weights"].astype(np.float32), []
    parts, lacking, at = [], [], 0
    for layer, shape in model.shapes.items():
        size = int(np.prod(shape))
        own, at = drawn[at : at + size], at + size
        if layer not in arrays:
            lacking.append(layer)
        elif arrays[layer].shape != shape or arrays[layer].dtype.kind != "f":
            raise SafeError(
                f"start_from={name}: the layer {layer} has the shape {arrays[layer].shape}; this model has {shape}. "
                "Leave the layer out of the file, and it is initialised at random"
            )
        parts.append(own if layer in lacking else arrays[layer].reshape(-1))
    if len(lacking) == len(model.shapes):
        raise SafeError(
            f"start_from={name} holds {', '.join([*arrays][:5]) or 'nothing'}; expected weights, or layers of the "
            f"model: {', '.join([*model.shapes][:5])}"
        )
    return np.concatenate(parts).astype(np.float32), lacking
