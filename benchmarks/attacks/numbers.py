"""Attacks on the training of numbers, counts and times: the labels of known people, from steps of a model.

All three losses have one derivative for each row, by the row's output. A unit that is active for one person alone gets
that person's derivative alone, and the label follows from it.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.attacks.isolation import LONG, clip, standardize
from benchmarks.attacks.researcher import LABEL, TARGET, TOLERANCE, Outcome, Researcher

NARROW = 1e-4  # standard deviations by which a unit is wide
SMALL = 1e-3  # how far a unit moves an output: all outputs are about 0
TIME = "T"


def number(researcher: Researcher) -> Outcome:
    """The number of a person whose other columns are known, with ``loss=squared``: the derivative is minus the label.

    The label is the column with the most values, and its mean and deviation come with the task: 0, and about the
    column's own.
    """
    mean, scale, _ = researcher.moments()
    k = researcher.finest()
    column, size = researcher.features[k], float(np.hypot(mean[k], scale[k]))
    loss = {"name": "squared", "mean": 0.0, "scale": size}
    people, slopes = _slopes(researcher, {"label": column, "event": None}, loss, column)
    return _values(researcher, np.abs(-slopes * size - researcher.tables[TARGET][column].to_numpy()[people]) / scale[k])


def count(researcher: Researcher) -> Outcome:
    """The same with ``loss=poisson``: if all outputs are 0, the derivative is 1 minus the count over its mean."""
    loss = {"name": "poisson", "mean": 1.0}
    people, slopes = _slopes(researcher, {"label": LABEL, "event": None}, loss)
    return _labels(researcher, people, np.round(1 - slopes))


def event(researcher: Researcher) -> Outcome:
    """Whether a person had the event, with ``loss=cox``; any column can be the time.

    The derivative is H - 1 for an event and H for a censored time, H the cumulative hazard of that time. In a second
    step these people's hazards are doubled, and so is their H, nearly.
    """
    column = researcher.features[researcher.finest()]
    data = {"label": column, "event": LABEL}
    people, once = _slopes(researcher, data, {"name": "cox"}, column)
    _, twice = _slopes(researcher, data, {"name": "cox"}, column, height=math.log(2))
    return _labels(researcher, people, np.round(twice - 2 * once).clip(0, 1))


def between_steps(researcher: Researcher) -> Outcome:
    """The number of a known person from two steps of a linear model, whose sums differ by the person.

    A forged step clips a column to 0 below a threshold and 1 above. Where all outputs are 0, the derivative of its
    coefficient is minus the sum of the labels above. Two thresholds have the person alone between them.
    """
    mean, scale, _ = researcher.moments()
    k = researcher.finest()
    by = max((i for i in range(len(mean)) if i != k), key=lambda i: len(np.unique(researcher.truth[:, i])))
    column, size, sharp = researcher.features[k], float(np.hypot(mean[k], scale[k])), 1e-5 * scale[by]
    values, counts = np.unique(researcher.truth[:, by], return_counts=True)
    own = researcher.tables[TARGET][researcher.features[by]].to_numpy()
    inside = (values > np.quantile(own, 0.1)) & (values < np.quantile(own, 0.9)) & np.isin(values, own) & (counts == 1)
    known = np.random.default_rng(0).permutation(values[inside])[: 2 if researcher.small else 10]

    def above(t: float) -> float:
        answer = researcher.ask(
            "v6_fedavg",
            "client_update",
            data={
                "label": column,
                "event": None,
                "features": [researcher.features[by]],
                "preprocess": [
                    clip({researcher.features[by]: [t, t + sharp]}),
                    standardize(np.array([t]), np.array([sharp])),
                ],
                "classes": None,
                "regression": True,
            },
            model={"name": "linear", "loss": {"name": "squared", "mean": 0.0, "scale": size}},
            arrays={"weights": np.zeros(2)},
            local={"lr": LONG},
        )
        return float(answer["weights"][0]) / LONG * answer.values["n"] * size

    found = np.array([above(x - 2 * sharp) - above(x + sharp) for x in known])
    truth = np.array([float(researcher.truth[researcher.truth[:, by] == x, k][0]) for x in known])
    return _values(researcher, np.abs(found - truth) / scale[k])


def _values(researcher: Researcher, errors: np.ndarray) -> Outcome:
    right, k = errors[errors < TOLERANCE], len(errors)
    worst = float(right.max()) if len(right) else None
    return Outcome(len(right), k, "values", researcher.tasks, k, worst, researcher.last_words(len(right)))


def _labels(researcher: Researcher, people: np.ndarray, guesses: np.ndarray) -> Outcome:
    right = int((researcher.tables[TARGET][LABEL].to_numpy()[people] == guesses).sum())
    return Outcome(right, len(people), "labels", researcher.tasks, len(people), None, researcher.last_words(right))


def _slopes(
    researcher: Researcher,
    data: Mapping[str, Any],
    loss: Mapping[str, Any],
    left_out: str = "",
    height: float = SMALL,
) -> tuple[np.ndarray, np.ndarray]:
    """The derivatives (k,) of the loss of k people of the target, and who they are, by one step on all rows.

    The first layer has three units for each person, the second one. That one is active if the first three make a tent
    over the person, along a direction in which everybody lies somewhere else, and then lifts the output by ``height``.
    Its bias has the person's derivative, times the weight to the output.
    """
    mean, scale, _ = researcher.moments()
    columns = [i for i, name in enumerate(researcher.features) if name != left_out]
    d = len(columns)
    direction = np.random.default_rng(7).normal(size=d)
    direction /= np.linalg.norm(direction)
    table = researcher.tables[TARGET]
    X = table[[researcher.features[i] for i in columns]].to_numpy(np.float64)
    lines = ((X - mean[columns]) / scale[columns]) @ direction
    labels = table[LABEL].to_numpy()
    many = 4 if researcher.small else 10
    people = np.concatenate([np.flatnonzero(labels == label)[: many // 2] for label in (0, 1)])  # as many of each
    units = len(people)
    tops = lines[people]
    W1 = np.repeat(direction[:, None] / NARROW, 3 * units, axis=1)
    b1 = -np.concatenate([(tops + side * NARROW) / NARROW for side in (-1, 0, 1)])
    W2 = np.concatenate([np.eye(units), -2 * np.eye(units), np.eye(units)])
    b2 = np.full(units, -0.5)  # what rounding leaves of other rows is below
    w = np.concatenate([W1.ravel(), b1, W2.ravel(), b2, np.full(units, 2 * height), [0.0]])  # a tent is 1 high
    answer = researcher.ask(
        "v6_fedavg",
        "client_update",
        data={
            "features": [researcher.features[i] for i in columns],
            "preprocess": [standardize(mean[columns], scale[columns])],
            "classes": None,
            "regression": True,
            **data,
        },
        model={"name": "mlp", "hidden": [3 * units, units], "loss": dict(loss)},
        arrays={"weights": w},
        local={"lr": LONG},
    )
    first = d * 3 * units + 3 * units + 3 * units * units
    g = (w[first : first + units] - answer["weights"].astype(np.float64)[first : first + units]) / LONG
    return people, g * answer.values["n"] / (2 * height)
