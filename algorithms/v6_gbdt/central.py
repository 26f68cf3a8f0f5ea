"""The server of boosted trees."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from v6_federated import (
    LARGE,
    Answer,
    EvaluatedWithNoise,
    Excludes,
    Federation,
    HeldOut,
    Needs,
    NoClasses,
    Number,
    Plan,
    Result,
    Rounds,
    SafeError,
    central,
    codec,
    statistics,
)
from v6_gbdt import bins
from v6_gbdt.early_stopping import best_round, check_early_stopping
from v6_gbdt.growth import Growth, Mode
from v6_gbdt.modes import Booster
from v6_gbdt.trees import LEAF, Trees
from v6_gbdt.votes import weighted

MOST_DEPTH = 12  # of a tree whose sums all nodes send, for each leaf

MaxBin = Annotated[int, Field(ge=4, le=255, description="bins of a column at most, agreed before training"), Number]
Objective = Annotated[
    Literal["classification", "regression"],
    Field(description="what the label is: a class, or a number to predict"),
    NoClasses,
    Excludes("clip", because="no noise covers the errors of numbers"),
]
ModeName = Annotated[
    Mode,
    Field(description="cyclic, bagging: trees of nodes' own; random, histogram: from sums"),
    Excludes("clip", because="its trees follow from rows in ways that no noise covers", instead="set mode=random"),
]
Prediction = Annotated[
    Literal["sum", "vote"],
    Field(description="of trees' outputs: their sum; vote: of each round's trees, by its accuracy"),
    Needs(mode="cyclic", when="vote", because="its document has it"),
    Needs(objective="classification", when="vote", because="trees are weighted by accuracy"),
    Needs(evaluate_every=1, when="vote", because="trees are weighted by the accuracy of each round"),
    HeldOut,
]
EarlyStopping = Annotated[
    int | None,
    Field(ge=1, le=LARGE, description="rounds without a smaller loss on held-out rows that end it"),
    Number,
    HeldOut,
    Excludes("clip", because="no noise covers losses"),
]


class Pinned(EvaluatedWithNoise):
    """The settings that every method takes; here the model is always trees, and they are sent in full."""

    for_numbers: ClassVar[str] = "objective=regression"
    same_when_resumed: ClassVar[tuple[str, ...]] = ("max_bin", "prediction")
    unused: ClassVar[Mapping[str, str]] = {
        "start_from": "which starts from no tree (resume goes on with an earlier job)",
        "until_converged": "which adds trees in every round (early_stopping ends it)",
    }

    @classmethod
    def predicts_numbers(cls, values: Mapping[str, Any]) -> bool:
        """Say whether the objective is a regression."""
        return values.get("objective") == "regression"

    model: Annotated[Literal["trees"], Field(description="boosted trees, which this method makes")] = "trees"
    precision: Annotated[Literal["float32"], Field(description="number format of what is sent, here in full")] = (
        "float32"
    )


def why_single(settings: Any) -> str:
    """Say which settings need single answers.

    Args:
        settings: the job's settings.

    Returns:
        The reason; empty if sums suffice.
    """
    if settings.clip is not None:
        return ""  # sums with noise, or nothing: ``check_with_noise``
    if settings.mode in ("random", "histogram"):
        number = settings.objective == "regression"
        return "the squared errors of trees that predict a number tell single rows, also in a sum" if number else ""
    return f"with mode={settings.mode} each tree is one node's own; mode=random and mode=histogram use sums"


def check_settings(settings: Any) -> None:
    """Reject settings that do not fit each other.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: they do not.
    """
    if settings.clip is not None and "scale" not in [step.partition(":")[0] for step in settings.preprocess]:
        raise SafeError(
            "with clip, splits are drawn between the bounds that hospitals declare: add the step scale (preprocess="
            "scale; before onehot)"
        )
    check_early_stopping(settings.early_stopping, settings.evaluate_every)
    if settings.mode == "histogram" and settings.trees not in (None, 1):
        raise SafeError(f"trees={settings.trees} cannot be used with mode=histogram, whose trees would be equal; set 1")
    if settings.mode in ("random", "histogram") and (settings.max_depth or 0) > MOST_DEPTH:
        raise SafeError(
            f"max_depth={settings.max_depth} is too deep for mode={settings.mode}; expected at most {MOST_DEPTH}"
        )


def noisy_sums(settings: Any) -> Plan:
    """With noise a node is asked for one sum of its rows' clipped derivatives a round, and for evaluations."""
    evaluations = (settings.rounds - 1) // settings.evaluate_every + 1
    return Plan(statistics=settings.rounds, evaluations=evaluations, holdout=settings.holdout)


@central(
    private=noisy_sums,
    single_answers=why_single,
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
    mode: ModeName = "random",
    growth: Growth,
    max_bin: MaxBin = 64,
    prediction: Prediction = "sum",
    early_stopping: EarlyStopping = None,
) -> Result:
    """Gradient boosted trees: InPrivate (Zhao et al. 2018; Garst 2021, Algorithm 2), and trees of random splits.

    Symbols: r the round, W^g (m, 3) the ensemble, a row for each split and leaf. What leaves a node: before round 1,
    for each column the number, mean and sum of squares of its values, and its rows counted by cell in multiples of its
    minimum of rows; then, cyclic, in its rounds one tree for each class; random, in every round the sums of first and
    second derivatives of its rows' loss in each leaf, of no row or of its minimum at least; n_k and its mean loss; and
    counts of how W^g does on its held-out rows. In a study all counts and sums are exact, with ``rows``, the rows of
    each leaf, and central joins what is small over all hospitals. Bytes a round: 16 m down to each node that evaluates;
    cyclic, 16 for each new split or leaf up; random, 16 for each new split or leaf down, and 32/3 for each leaf up,
    64/3 under masks, 32 in a study. With ``clip`` these sums are of clipped derivatives and have noise, and nothing is
    asked for before round 1.
    """
    regression, plan = objective == "regression", federation.plan
    s = federation.start(
        # the box starts from a random W^g; here from no tree, and for a regression from one leaf, the labels' mean
        W_g=(lambda: mean_label(federation)) if regression else federation.initial_weights,
        edges=lambda: agree_on_edges(federation, max_bin)
        if plan is None
        else bins.pack(bins.even(federation.indicators, max_bin)),
        ends=[int(regression)],  # rows of W^g after each round, from round 0
        names=lambda: [*federation.features],
    )
    ensemble, edges = federation.model, codec.encode(s.edges)
    assert isinstance(ensemble, Trees)
    grown = Booster(federation, ensemble, edges, growth.of(mode, plan is not None)).round_of(mode)
    for r in federation.rounds(rounds):
        answers, trees = grown(r, s.W_g)
        # the nodes have evaluated the last W^g with this request
        best = best_round(federation.history, early_stopping, federation.evaluate_every)
        if best is None:
            s.W_g = np.concatenate([s.W_g, trees])  # nodes send new trees or sums alone, not all of W^g
        else:
            s.W_g = s.W_g[: s.ends[best]]
        s.ends.append(len(s.W_g))
        if prediction == "vote":
            s.W_g = weighted(s.W_g, s.ends, federation.history)
        federation.record(answers, trees=len(ensemble.split(s.W_g)))
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
    answers = federation.ask("average", federation.organizations)
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
    n, mean, deviation = statistics.Present.pool(answers.parts(), columns)
    low, high = ((mean + s * bins.SPREAD * deviation).astype(np.float32) for s in (-1, 1))
    at = bins.boundaries(low, high, max_bin)
    answers = federation.ask(
        "count",
        federation.organizations,
        validate=wrong_counts,
        low=low,
        high=high,
        max_bin=max_bin,
    )
    federation.count_preparation(answers)
    counts = answers.whole_sum("counts").reshape(at.shape)
    if least := federation.least_rows:
        counts = counts // least * least
    return bins.pack(bins.edges(counts, at, n, max_bin))


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
