"""The model of a result."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_workbench import registry


def parts_of(result: Mapping[str, Any]) -> tuple[DataSpec, Any, dict[str, np.ndarray]]:
    """Return what predictions need of a result.

    Args:
        result: the result, or what ``export.load`` returns.

    Returns:
        The data's spec, the model (None if the result has principal components in its place), and the arrays.

    Raises:
        SafeError: the result has no model.
    """
    try:
        spec, arrays = DataSpec(**result["data"]), codec.decode(result["weights"])
        result["model"]["name"], result["method"]
        if "weights" not in arrays and not {"mean", "scale", "components"} <= {*arrays}:
            raise SafeError("the result has no model, but other arrays; expected a result.json as it was written")
        model = model_of(result) if "weights" in arrays else None
        if model is not None and model.size is not None and arrays["weights"].shape != (model.size,):
            raise SafeError("the result's weights have another size than its model; expected those that were trained")
        return spec, model, arrays
    except (KeyError, TypeError) as error:
        raise SafeError(
            f"the result has no model ({type(error).__name__} {error}); expected a result.json that `v6-federated run "
            "--out DIR` wrote"
        ) from None


def model_of(result: Mapping[str, Any]) -> Any:
    """Build the model of a result.

    Args:
        result: the result.

    Returns:
        The model, with the interface of ``models.Model``.

    Raises:
        SafeError: the model is unknown, or too large for this machine.
    """
    if result["model"]["name"] not in models.MODELS:
        registry.settings_of(result["method"])  # importing the method registers the model that it brings
    return models.build(result["model"])
