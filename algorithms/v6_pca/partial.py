"""The client of federated principal component analysis; what it sums is in ``v6_federated.data.pca``."""

from v6_federated import Asked, Count, Node, Result, SafeError, Truth, Vector, partial, pca


def sums_of_columns(asked: Asked) -> int:
    """How many sums of d columns and of their products there are."""
    d: int = asked.settings["d"]
    return d + d * (d + 1) // 2


@partial(sums={"moments": Count(sums_of_columns)})
def noisy_moments(node: Node, *, d: int) -> Result:
    """With noise, in place of lines 1 to 16: the sums of clipped rows and of their products, d + d (d + 1) / 2."""
    C = node.clip
    if d != node.width:
        raise SafeError(f"the task asks for the moments of {d} columns; expected d={node.width}")
    size, reach = d + d * (d + 1) // 2, pca.moments_sensitivity()
    return {"moments": node.noisy_sum(lambda rows: pca.clipped_moments(rows.X, C), size, reach)}


@partial(sums={"kept": Truth()})
def transform(node: Node, mean: Vector, scale: Vector, components: Vector, mean_rest: Vector = None) -> Result:
    """Project the node's rows on the components (k, d). Garst 2021, Algorithm 3, lines 19 and 20.

    The node keeps them, (n_k, k) float64, as ``projection`` in the job's folder; nothing of them is sent. ``mean_rest``
    is the second part of a float64 ``mean`` (d,) sent in float32.
    """
    d = len(node.features.names)
    none = any(a is None for a in (mean, scale, components)) or components.shape[1:] != (d,)
    if none or any(a.shape != (d,) for a in (mean, scale, mean_rest) if a is not None) or not scale.all():
        raise SafeError(
            f"not the components of these {d} features; expected mean, mean_rest, scale and components of a result"
        )
    mean = mean.astype("float64") if mean_rest is None else mean.astype("float64") + mean_rest
    node.features.check_complete("pca")
    node.state.save({"projection": pca.project(node.features.X, mean, scale, components)})
    return {"kept": True}
