"""The server of boosted trees."""

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from v6_federated import (
    LARGE,
    Answer,
    Common,
    Federation,
    LearningRate,
    Number,
    Record,
    Result,
    Rounds,
    SafeError,
    central,
    codec,
    pooling,
)
from v6_gbdt import bins
from v6_gbdt.early_stopping import best_round, check_early_stopping
from v6_gbdt.trees import EVERY, FEATURE, LEAF, VALUE, Trees

TreesARound = Annotated[int, Field(ge=1, le=1000, description="trees that a node adds in its round (a class)"), Number]
MaxLeaves = Annotated[int, Field(ge=2, le=4096, description="leaves of a tree at most"), Number]
MinRowsLeaf = Annotated[
    int, Field(ge=1, le=LARGE, description="rows in a leaf at least; not below a node's minimum of rows"), Number
]
MaxDepth = Annotated[int | None, Field(ge=1, le=1000, description="splits above a leaf (unset: no limit)"), Number]
LambdaL2 = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="lambda of the penalty on a leaf's output"), Number
]
MaxBin = Annotated[int, Field(ge=4, le=255, description="bins of a column at most, agreed before training"), Number]
Objective = Annotated[
    Literal["classification", "regression"], Field(description="what the label is: a class, or a number to predict")
]
EarlyStopping = Annotated[
    int | None, Field(ge=1, le=LARGE, description="rounds without a smaller loss on held-out rows that end it"), Number
]


class Growth(Record):
    """How a node grows its trees."""

    trees: TreesARound = 1
    lr: LearningRate = 0.1
    max_leaves: MaxLeaves = 31
    min_rows_leaf: MinRowsLeaf = 20
    max_depth: MaxDepth = None
    lambda_l2: LambdaL2 = 1.0  # with LightGBM's 0, a node's leaf of small curvature can undo the other nodes' trees


class Pinned(Common):
    """The settings that every method takes; here the model is always trees, and they are sent in full."""

    for_numbers: ClassVar[str] = "objective=regression"

    @classmethod
    def predicts_numbers(cls, values: Mapping[str, Any]) -> bool:
        """Say whether the objective is a regression."""
        return values.get("objective") == "regression"

    model: Annotated[Literal["trees"], Field(description="boosted trees, which this method makes")] = "trees"
    precision: Annotated[Literal["float32"], Field(description="number format of what is sent, here in full")] = (
        "float32"
    )


def check_settings(settings: Any) -> None:
    """Reject settings that do not fit each other.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: they do not.
    """
    if settings.start_from is not None:
        raise SafeError("start_from cannot be used with gbdt, which starts from no tree; use resume to go on")
    if settings.until_converged is not None:
        raise SafeError("until_converged cannot be used with gbdt: every round adds trees; use early_stopping")
    held_out = bool(settings.holdout or settings.evaluators)
    check_early_stopping(settings.early_stopping, held_out, settings.evaluate_every)
    for name in ("classes", "target", "class_weights", "subgroup"):
        value = getattr(settings, name)
        if settings.objective == "regression" and value is not None:
            raise SafeError(f"{name}={value} has no effect with objective=regression; leave it out")


@central(
    single_answers="each tree is one node's own",
    missing=True,
    known_as={"lightgbm": "", "xgboost": ""},
    common=Pinned,
    check=check_settings,
)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    objective: Objective = "classification",
    growth: Growth,
    max_bin: MaxBin = 64,
    early_stopping: EarlyStopping = None,
) -> Result:
    """Gradient boosted trees, InPrivate: Zhao et al. 2018; Garst 2021, Algorithm 2.

    Symbols: N nodes in the order of their ids, r the round, C_active the one node asked in it, W^g (m, 3) the ensemble,
    a row for each split and leaf. What leaves a node: before round 1, for each column the number, mean and sum of
    squares of its values, and its rows counted by cell in multiples of its minimum of rows; in its rounds, one tree for
    each class, n_k and its mean loss; and counts of how W^g does on its held-out rows. Bytes a round: 16 m down to each
    node that evaluates, 16 for each new split or leaf up.
    """
    N = len(federation.organizations)
    regression = objective == "regression"
    s = federation.start(
        # the box starts from a random W^g; here from no tree, and for a regression from one leaf, the labels' mean
        W_g=(lambda: mean_label(federation)) if regression else federation.initial_weights,
        edges=lambda: agree_on_edges(federation, max_bin),
        ends=[int(regression)],  # rows of W^g after each round, from round 0
        names=lambda: [*federation.features],
    )
    ensemble, edges = federation.model, codec.encode(s.edges)
    assert isinstance(ensemble, Trees)
    validate = functools.partial(wrong_trees, ensemble, bins.unpack(s.edges), growth.trees, growth.max_leaves)
    most = growth.trees * ensemble.columns * (2 * growth.max_leaves - 1)  # rows of a round's trees
    for r in federation.rounds(rounds):
        C_active = federation.organizations[(r - 1) % N]
        (answer,) = federation.ask(
            "grow",
            [C_active],
            weights=s.W_g,
            edges=edges,
            growth=growth,
            returns={"trees": (range(1, most + 1), 3)},
            validate=validate,
            measures={"trees": outputs},
        ).each()
        # the nodes have evaluated the last W^g with this request
        best = best_round(federation.history, early_stopping, federation.evaluate_every)
        if best is None:
            s.W_g = np.concatenate([s.W_g, answer["trees"]])  # a node sends its new trees alone, not all of W^g
        else:
            s.W_g = s.W_g[: s.ends[best]]
        s.ends.append(len(s.W_g))
        federation.record([answer], trees=len(ensemble.split(s.W_g)))
        if best is not None:
            break
    result = federation.result(s.W_g)
    return {**result, "bins": edges, "feature_importance": importance(ensemble, s.W_g, s.names)}


def mean_label(federation: Federation) -> np.ndarray:
    """Ask for the mean label of all nodes' rows.

    Args:
        federation: the nodes.

    Returns:
        An ensemble (1, 3) of one leaf with this output.
    """
    answers = federation.ask("average", federation.organizations, returns={"mean": (1,)})
    federation.count_preparation(answers)
    return np.array([(LEAF, *answers.weighted_mean("mean"), 0.0)], np.float32)


def agree_on_edges(federation: Federation, max_bin: int) -> dict[str, np.ndarray]:
    """Choose bin edges from moments and rounded counts of the values that are not missing, at all nodes.

    Args:
        federation: the nodes.
        max_bin: bins of a column at most.

    Returns:
        The edges of each column, in the form of ``bins.pack``.
    """
    columns = [*federation.features]
    answers = federation.statistic("present", columns=columns)
    federation.count_preparation(answers)
    n, mean, deviation = pooling.pooled_present(columns, list(answers.each()))
    low, high = ((mean + s * bins.SPREAD * deviation).astype(np.float32) for s in (-1, 1))
    at = bins.boundaries(low, high, max_bin)
    answers = federation.ask(
        "count",
        federation.organizations,
        returns={"counts": at.shape},
        validate=wrong_counts,
        low=low,
        high=high,
        max_bin=max_bin,
    )
    federation.count_preparation(answers)
    return bins.pack(bins.edges(answers.sum("counts"), at, n, max_bin))


def wrong_counts(answer: Answer) -> str | None:
    """Check the counts in a node's answer to ``count``.

    Args:
        answer: the node's answer.

    Returns:
        What is wrong with them; None if nothing is.
    """
    counts = answer["counts"]
    if counts.size and not (counts.min() >= 0 and counts.max() <= answer.n):
        return f"sent counts that {answer.n} rows cannot have; expected numbers from 0 to {answer.n}"
    return None


def outputs(answer: Answer) -> np.ndarray:
    """Select what is compared of the nodes' trees: the root of the mean square of their leaves' outputs.

    Args:
        answer: a node's answer to ``grow``.

    Returns:
        The outputs, divided by the root of their number.
    """
    trees = answer["trees"]
    leaves = trees[trees[:, FEATURE] == LEAF, VALUE].astype(np.float64)
    return leaves / np.sqrt(len(leaves))


def wrong_trees(
    ensemble: Trees, edges: Sequence[np.ndarray], trees: int, max_leaves: int, answer: Answer
) -> str | None:
    """Check the trees in a node's answer to ``grow``.

    Args:
        ensemble: the kind of ensemble that they are to be part of.
        edges: the agreed edges of each column.
        trees: how many the node was asked for (a class).
        max_leaves: leaves that each may have.
        answer: the node's answer.

    Returns:
        What is wrong with them; None if nothing is.
    """
    try:
        grown = ensemble.split(answer["trees"])
    except SafeError as error:
        return f"sends no trees: {error}"
    expected = trees * ensemble.columns
    if len(grown) != expected or max(map(len, grown)) > 2 * max_leaves - 1:
        return f"sends other trees than asked for; expected {expected} of at most {max_leaves} leaves"
    for row in answer["trees"]:
        if row[FEATURE] != LEAF and row[VALUE] != EVERY and row[VALUE] not in edges[int(row[FEATURE])]:
            return "sends a threshold that is not an agreed bin edge; expected one of them"
    return None


def importance(ensemble: Trees, W_g: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """Sum up which features split.

    Args:
        ensemble: the kind of ensemble.
        W_g: the ensemble (m, 3).
        names: of the features.

    Returns:
        A row for each feature that splits, the largest gain first: its name, number of splits and total gain.
    """
    splits, gain = ensemble.importance(W_g)
    used = sorted(np.flatnonzero(splits).tolist(), key=lambda i: (-gain[i], i))
    return [{"feature": names[i], "splits": int(splits[i]), "gain": float(f"{gain[i]:.4g}")} for i in used]
