"""Columns after the steps as affine functions of columns before them, to which coefficients are folded back."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.data import preprocessing
from v6_federated.messages import codec


def original(
    steps: Sequence[Mapping[str, Any]], names: Sequence[str], categories: Sequence[str] = ()
) -> tuple[list[str], Array]:
    """Express the columns after the steps by original ones: those of the table, as far as steps are affine.

    Steps standardize, scale and pca are affine. A filled column is still the table's. Indicators, and columns that are
    clipped after an affine step, are original themselves.

    Args:
        steps: fitted steps.
        names: columns of the table.
        categories: those that hold words.

    Returns:
        The names of k original columns, and E (d, 1 + k): column i is E[i, 0] plus E[i, 1:] times the original ones. So
        coefficients b (d,) are b E of the original columns, of which the first is added to the intercept.
    """
    layout = preprocessing.layout(names, categories)
    base = list(layout.numeric)
    E = np.eye(len(base), 1 + len(base), 1)
    for step in steps:
        after = preprocessing.apply(layout, [step])
        if step["step"] in ("standardize", "scale", "pca"):
            fitted = codec.decode(step["fitted"])
            E[:, 0] -= codec.whole(fitted, "mean")
            E /= fitted["scale"][:, None].astype(np.float64)
            E = fitted["components"].astype(np.float64) @ E if "components" in fitted else E
        else:
            clipped = step["fitted"].get("bounds", {}) if step["step"] == "clip" else {}
            before, E_before, kept = {c: i for i, c in enumerate(layout.numeric)}, E, len(base)
            affine = {c for c, i in before.items() if not (E[i, 1:].max(initial=0.0) == 1 and np.abs(E[i]).sum() == 1)}
            anew = [c for c in after.numeric if c not in before or (c in clipped and c in affine)]
            base += anew
            E = np.zeros((len(after.numeric), 1 + len(base)))
            for i, c in enumerate(after.numeric):
                if c in anew:
                    E[i, 1 + kept + anew.index(c)] = 1
                else:
                    E[i, : 1 + kept] = E_before[before[c]]
        layout = after
    used = np.flatnonzero((E[:, 1:] != 0).any(axis=0))
    return [base[i] for i in used], E[:, [0, *(used + 1)]]


def groups_of(
    steps: Sequence[Mapping[str, Any]], names: Sequence[str], categories: Sequence[str]
) -> tuple[Array, Array, list[str]]:
    """Say what each column after the steps is made of.

    Args:
        steps: fitted steps.
        names: columns of the table.
        categories: those that hold words.

    Returns:
        By column, a and s (d,) of the column a + s x for one original column x, with s = 0 if it is made of several;
        and a name for x, the same for all levels of one column of words.
    """
    originals, E = original(steps, names, categories)
    owners = {
        f"{column}={level}": column
        for step in steps
        if step["step"] == "onehot"
        for column, levels in step["fitted"]["levels"].items()
        for level in levels
    }
    single = (E[:, 1:] != 0).sum(axis=1) == 1
    which = np.abs(E[:, 1:]).argmax(axis=1) if E.shape[1] > 1 else np.zeros(len(E), np.intp)
    s = np.where(single, E[np.arange(len(E)), 1 + which] if E.shape[1] > 1 else 0.0, 0.0)
    own = [owners.get(originals[w], originals[w]) if fits else "" for w, fits in zip(which, single, strict=True)]
    return E[:, 0], s, own
