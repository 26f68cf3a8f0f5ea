"""The partial functions that every method offers beside its own."""

from typing import Any, Literal

import numpy as np

from v6_federated.base.vantage6_api import algorithm_client
from v6_federated.data import aggregates, pca
from v6_federated.data.columns import kinds
from v6_federated.data.source import plain
from v6_federated.messages.job import Job
from v6_federated.node.kept_steps import keep
from v6_federated.node.node import Node
from v6_federated.node.task import partial


@partial
def describe(node: Node, *, raw: bool) -> dict[str, Any]:
    """What central must know first: feature names, label values that enough rows have.

    Where steps are to follow (``raw``), columns may hold words and missing values, and are told by their kind.
    """
    spec = node.job.data
    features, label = node.source.columns(spec)
    answer: dict[str, Any] = {"label": label}
    if raw and node.source.table is not None:
        answer |= {"features": features, "kinds": kinds(node.source.table, features)}
    else:
        answer["features"] = features or node.rows.X.shape[1]
    if spec.classes is None and spec.supervised and not spec.regression:
        values, counts = np.unique(node.source.labels(spec), return_counts=True)
        node.policy.check_classes(len(values))
        answer["classes"] = [
            plain(v) for v, count in zip(values, counts, strict=True) if count >= node.policy.minimum_rows_a_class
        ]
    return answer


@partial
def fit_step(
    node: Node,
    mean: Any,
    scale: Any,
    lower: Any,
    upper: Any,
    *,
    statistic: Literal["moments", "present", "below", "levels", "covariance", "product"],
    columns: list[str] | None = None,
    counts: bool = False,
    draw: int | None = None,
    block: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A statistic of the training rows that a preprocessing step, or PCA, is fitted to; see ``preprocess``."""
    arrays = {"mean": mean, "scale": scale, "lower": lower, "upper": upper}
    features, columns, policy = node.features, columns or [], node.policy
    if statistic == "product":
        arrays["block"] = pca.read_block(len(features.names), draw, block)
    if statistic == "levels":
        aggregates.check_categories(columns, node.source.training(node.job.data, node.organization_id, policy), policy)
    return aggregates.statistic(statistic, features, policy, columns, counts, arrays)


@partial
def keep_steps(node: Node) -> dict[str, Any]:
    """Keep the job's fitted steps, so that later tasks only name them."""
    keep(node.job.data.preprocess, node.state)
    return {}


@algorithm_client
def forget(client: Any, *, job: dict[str, Any], round: int, mock_data: Any = None) -> dict[str, Any]:
    """Remove what this node keeps for the job; no limit of the node stops it."""
    Node.state_of(client.organization_id, Job.from_json(job), round).remove()
    return {"organization_id": client.organization_id, "round": round, "n": 0}


forget.wrapped_in_data_decorator = True


@partial
def evaluate(node: Node, weights: Any) -> dict[str, Any]:
    """How well the weights do at this node; the decorator has put the answer together."""
    return {}
