"""The server of boosted trees."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from v6_federated import (
    LARGE,
    Answer,
    CollectResultsError,
    Federation,
    LearningRate,
    Number,
    Result,
    Rounds,
    SafeError,
    UserInputError,
    central,
    codec,
    pca,
)
from v6_gbdt import bins
from v6_gbdt.trees import FEATURE, LEAF, VALUE, Trees

TreesModel = Annotated[Literal["trees"], Field(description="boosted trees, which this method makes")]
FullPrecision = Annotated[Literal["float32"], Field(description="number format of what is sent, here in full")]
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


def check_settings(settings: Any) -> None:
    """Refuse settings that do not fit each other."""
    early = settings.early_stopping
    if early is not None and (not (settings.holdout or settings.evaluators) or settings.evaluate_every > early + 1):
        raise SafeError(
            f"early_stopping={early} needs losses on held-out rows; expected a holdout above 0 or evaluators, and "
            f"evaluate_every of at most {early + 1}"
        )
    for name, value in (("classes", settings.classes), ("target", settings.target)):
        if settings.objective == "regression" and value is not None:
            raise SafeError(f"{name}={value} is of no use to objective=regression; leave it out")


@central(check=check_settings)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    objective: Objective = "classification",
    trees: TreesARound = 1,
    lr: LearningRate = 0.1,
    max_leaves: MaxLeaves = 31,
    min_rows_leaf: MinRowsLeaf = 20,
    max_depth: MaxDepth = None,
    lambda_l2: LambdaL2 = 1.0,  # LightGBM's 0 lets a node's leaf of small curvature undo the others' trees
    max_bin: MaxBin = 64,
    early_stopping: EarlyStopping = None,
    model: TreesModel = "trees",
    precision: FullPrecision = "float32",
) -> Result:
    """Gradient boosted trees, InPrivate: Zhao et al. 2018; Garst et al. 2021, Algorithm 2.

    Symbols: N nodes in the order of their ids, r the round, C_active the one node asked in it, W^g (m, 3) the ensemble,
    a row for each split and leaf. What leaves a node: before round 1 its columns' means and sums of squares, and rows
    counted by cell in multiples of its minimum of rows; in its rounds a tree a class, n_k and its mean loss; and counts
    of how W^g does on its held-out rows. Bytes a round: 16 m down to each node that evaluates, 16 a split or leaf up.
    """
    # W_g starts without a tree, of a regression with one leaf, the labels' mean; the box has "random".
    # ends: rows of W_g after each round
    s = federation.start(
        W_g=federation.initial_weights if objective == "classification" else lambda: average(federation),
        edges=lambda: agree(federation, max_bin),
        ends=lambda: [0 if objective == "classification" else 1],
        names=lambda: [*federation.features],
    )
    edges = bins.unpack(s.edges)
    payload = codec.encode(s.edges)
    nodes = federation.organizations
    ensemble = federation.model
    assert isinstance(ensemble, Trees)
    for r in federation.rounds(rounds):
        C_active = nodes[(r - 1) % len(nodes)]
        answers = federation.ask(
            "grow",
            [C_active],
            weights=s.W_g,
            returns={"trees": (None, 3)},
            edges=payload,
            trees=trees,
            lr=lr,
            max_leaves=max_leaves,
            min_rows_leaf=min_rows_leaf,
            max_depth=max_depth,
            lambda_l2=lambda_l2,
        )
        best = stopped(federation.history, early_stopping, federation.evaluate_every)
        if best is not None:  # early stopping: this round goes back to the best round's ensemble
            s.W_g = s.W_g[: s.ends[best]]
        else:  # the node sends its new trees only, central adds them
            s.W_g = np.concatenate([s.W_g, *(checked(a, ensemble, edges, trees, max_leaves) for a in answers.each())])
        s.ends.append(len(s.W_g))
        federation.record(answers, trees=len(ensemble.split(s.W_g)))
        if best is not None:
            break
    result = federation.result(s.W_g)
    return {**result, "bins": payload, "feature_importance": importance(ensemble, s.W_g, s.names)}


def average(federation: Federation) -> np.ndarray:
    """An ensemble (1, 3) of one leaf: the mean label of all nodes' rows."""
    answers = federation.ask("average", federation.organizations, returns={"mean": (1,)})
    federation.count_preparation(answers)
    return np.array([(LEAF, *answers.weighted_mean("mean"), 0.0)], np.float32)


def agree(federation: Federation, max_bin: int) -> dict[str, np.ndarray]:
    """Bin edges of each column, from moments and rounded counts of all nodes, as ``bins.pack`` has them."""
    answers = federation.statistic("moments", "float32")
    federation.count_preparation(answers)
    n, mean, squares = pca.pooled_moments(list(answers.each()))
    deviation = np.sqrt(squares / n)
    low, high = ((mean + s * bins.SPREAD * deviation).astype(np.float32) for s in (-1, 1))
    at = bins.boundaries(low, high, max_bin)
    answers = federation.ask(
        "count", federation.organizations, returns={"counts": at.shape}, low=low, high=high, max_bin=max_bin
    )
    federation.count_preparation(answers)
    total = answers.sum("counts")
    return bins.pack(bins.edges(total, at, answers.n, max_bin))


def checked(answer: Answer, ensemble: Trees, edges: Sequence[np.ndarray], trees: int, leaves: int) -> np.ndarray:
    """The trees of an answer. Raises CollectResultsError if they are not what was asked for."""
    who = f"organization {answer.organization_id} sends"
    try:
        grown = ensemble.split(answer["trees"])
    except (SafeError, KeyError) as error:
        raise CollectResultsError(f"{who} no trees: {error}") from None
    if len(grown) != trees * ensemble.columns or max(map(len, grown)) > 2 * leaves - 1:
        raise CollectResultsError(
            f"{who} other trees than asked for; expected {trees * ensemble.columns} of at most {leaves} leaves"
        )
    for row in answer["trees"]:
        if row[FEATURE] != LEAF and row[VALUE] not in edges[int(row[FEATURE])]:
            raise CollectResultsError(f"{who} a threshold that is no agreed bin edge; expected one of them")
    return answer["trees"]


def stopped(history: Sequence[Mapping[str, Any]], early_stopping: int | None, every: int) -> int | None:
    """The round of the least loss on held-out rows, if ``early_stopping`` rounds after it have brought none less.

    ``every``: rounds from one evaluation to the next; the last model of a job that is resumed was evaluated too, and
    one that had gone on would not know.
    """
    if early_stopping is None:
        return None
    evaluated = [row for row in history if row["loss"] is not None and row["round"] % every == 0]
    if not evaluated:
        if len(history) > early_stopping and all(row["loss"] is None for row in history):
            raise UserInputError(
                f"early_stopping={early_stopping}: no loss on held-out rows after {len(history)} rounds; no node "
                "has rows enough to hold some out"
            )
        return None
    best = min(evaluated, key=lambda row: row["loss"])
    return best["round"] if evaluated[-1]["round"] - best["round"] >= early_stopping else None


def importance(ensemble: Trees, W_g: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each feature that splits, the largest gain first."""
    splits, gain = ensemble.importance(W_g)
    used = sorted(np.flatnonzero(splits).tolist(), key=lambda i: (-gain[i], i))
    return [{"feature": names[i], "splits": int(splits[i]), "gain": float(f"{gain[i]:.4g}")} for i in used]
