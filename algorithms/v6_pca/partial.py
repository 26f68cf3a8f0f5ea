"""The client of federated principal component analysis; what it sums is in ``v6_federated.components``."""

from typing import Any

from v6_federated import functions
from v6_federated.components import project
from v6_federated.errors import SafeError
from v6_federated.node import Node


@functions.partial
def transform(node: Node, mean: Any, scale: Any, components: Any, mean_rest: Any) -> dict[str, Any]:
    """Put the node's rows on the components (k, d) and keep them, (n_k, k) float64, as ``projection`` in the job's
    folder; nothing of them is sent. ``mean_rest`` is the second part of a float64 ``mean`` (d,) sent in float32."""
    d = len(node.features.names)
    none = any(a is None for a in (mean, scale, components)) or components.shape[1:] != (d,)
    if none or mean.shape != (d,) or scale.shape != (d,) or not scale.all():
        raise SafeError(f"not the components of these {d} features; expected mean, scale and components of a result")
    mean = mean.astype("float64") if mean_rest is None else mean.astype("float64") + mean_rest
    node.features.check_complete("pca")
    node.state.save({"projection": project(node.features.X, mean, scale, components)})
    return {"kept": True}
