"""Attacks on a person whom the researcher knows, on membership, and by differences of tables, splits and cohorts."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.attacks import transport
from benchmarks.attacks.isolation import Standard, components, standardize
from benchmarks.attacks.researcher import (
    DELTA,
    FLAG,
    LABEL,
    NAME,
    RARE,
    TARGET,
    Answer,
    Outcome,
    Refused,
    Researcher,
    Tables,
    matched,
    nobodys,
)
from benchmarks.attacks.transport import Participant
from v6_federated import models
from v6_federated.messages import codec
from v6_gbdt import bins
from v6_gbdt.trees import LEAF

FAR_AWAY = 30.0  # standard deviations: nobody is there

# ---- a known person


def known_label(researcher: Researcher) -> Outcome:
    """A person's measurements are known, the diagnosis is not.

    A network says 1 for the rows above a threshold, and then again, but for the person the opposite. The rows of class
    0 that it says 0 for are one more or less if the person is one of them. No cell is small, so no limit on small cells
    sees it. If counts are rounded, a threshold at which the count jumps makes the one row count.
    """
    if researcher.epsilon:
        return _guessed_labels(researcher)
    p, people = Standard.of(researcher), 4 if researcher.small else 10
    lines = ((researcher.truth - p.mean) / p.scale) @ p.direction
    hidden, narrow, steep = 5, 1e-4, 1e5

    def zeros(threshold: float, person: float | None = None) -> int:
        at = FAR_AWAY if person is None else person
        # units 1 and 2 make a step from -1 to 1 at the threshold; units 3 to 5 a tent of height 1 at the person
        W1 = np.outer(p.direction, [steep, steep, 1, 1, 1])
        b1 = -np.array([steep * threshold, steep * threshold + 1, at - narrow, at, at + narrow])
        turn = (-2 if at > threshold else 2) / narrow
        score = np.array([2, -2, turn, -2 * turn, turn])
        w = np.concatenate([W1.ravel(), b1, np.column_stack([0 * score, score]).ravel(), [0, -1]])
        answer = researcher.ask(
            "v6_fedavg",
            "evaluate",
            evaluate="all",
            data={"preprocess": p.steps},
            model={"name": "fnn", "hidden": hidden},
            arrays={"weights": w},
        )
        return int(answer.values["evaluation"]["confusion"][0][0])

    labels = researcher.tables[TARGET][LABEL].to_numpy()
    known = np.concatenate([np.flatnonzero(labels == label)[: people // 2] for label in (0, 1)])  # as many of each
    guesses = list[int]()
    # a jump of a sum of rounded counts may be another hospital's: look for one that a known person moves
    for share in (0.5,) if len(researcher.block) == 1 else np.linspace(0.05, 0.95, 25):
        low, high = -FAR_AWAY / 2, FAR_AWAY / 2
        at_low, at_high = zeros(low), zeros(high)
        middle = at_low + share * (at_high - at_low)
        while high - low > 2e-3:  # until no more than one row lies between
            between = zeros((low + high) / 2)
            if between > middle:
                high, at_high = (low + high) / 2, between
            else:
                low, at_low = (low + high) / 2, between
        guesses = []
        for i in known:
            # above the lower threshold a row of class 0 more makes the count jump, below the upper one a row less
            threshold, before = (low, at_low) if lines[i] > low else (high, at_high)
            guesses.append(0 if zeros(threshold, float(lines[i])) != before else 1)
        if len(set(guesses)) > 1:
            break
    right = int((labels[known] == guesses).sum()) if len(set(guesses)) > 1 else 0  # one guess for all is none
    return Outcome(right, people, "labels", researcher.tasks, people, None, researcher.last_words(right))


def allowed(epsilon: float, replaced: bool = False) -> float:
    """The share of right guesses between two worlds, as likely as each other before, that a budget allows.

    Somebody who guesses from an (epsilon, delta) private answer is right with the probability
    (e^epsilon + delta) / (1 + e^epsilon) at most (Kairouz, Oh and Viswanath 2015). Two worlds in which a row differs
    are each next to the one in which it contributes nothing: 2 epsilon, and (1 + e^epsilon) delta.
    """
    e, delta = (2 * epsilon, min((1 + math.exp(min(epsilon, 100))) * DELTA, 1)) if replaced else (epsilon, DELTA)
    return 1 - (1 - delta) * math.exp(-e) / (1 + math.exp(-e))


def _guessed_labels(researcher: Researcher) -> Outcome:
    """The label of a known person from one noisy gradient, with the whole budget of fresh hospitals for each person.

    Two hidden units begin just below and just above the person's value. A row above both moves both alike, and only the
    person moves the first alone: up or down, as the label says.
    """
    k, column = researcher.finest(), researcher.features[researcher.finest()]
    (centre,), (half,) = (each[[k]] for each in researcher.moments()[:2])
    table = researcher.tables[TARGET]
    x = np.asarray(((table[column] - centre) / half).to_numpy(), np.float32).astype(np.float64)
    everybody = np.sort((researcher.truth[:, k] - centre) / half)
    gaps = np.array([np.sort(np.abs(everybody - value))[1] for value in x])
    labels = table[LABEL].to_numpy()
    known = np.argsort(-gaps)[: 6 if researcher.small else 40]  # those who are furthest from others
    right = 0
    for i in known:
        below, above, big = x[i] - gaps[i] / 2, x[i] + gaps[i] / 2, 0.1 / gaps[i]  # nobody's score is far from 0
        w = np.array([1, 1, -below, -above, big, -big, -big, big, -big * (above - below), big * (above - below)])
        with Researcher(researcher.tables, researcher.column, researcher.small) as fresh:
            fresh.reserve(steps=1)
            answer = fresh.ask(
                "v6_fedavg",
                "client_update",
                data={"features": [column], "preprocess": [standardize(np.array([centre]), np.array([half]), "scale")]},
                model={"name": "fnn", "hidden": 2},
                arrays={"weights": w},
            )
            researcher.tasks = fresh.tasks
        g = answer["total"]
        signal = (
            (g[0] + g[1]) * x[i] + g[2] + g[3]
        )  # by the first unit: big (p_0 - y_0 - p_1 + y_1), below 0 for class 0
        right += int(labels[i] == (signal > 0))
    return _guesses(researcher, right, len(known))


def label_between_boxes(researcher: Researcher) -> Outcome:
    """The labels of people whose value in a column is known, from sums of boosted trees.

    Two boxes end just below and just above the person's value. Both hold many rows, and the sums of derivatives over
    them differ by the person's: 1/2 less the label. With noise every leaf may have one row: the whole budget of fresh
    hospitals goes into one box for each person.
    """
    k, people = researcher.finest(), 4 if researcher.small else 10
    column, table = researcher.features[k], researcher.tables[TARGET]
    x, labels, everybody = table[column].to_numpy(np.float64), table[LABEL].to_numpy(), np.sort(researcher.truth[:, k])
    inside = np.flatnonzero((x > np.quantile(everybody, 0.2)) & (x < np.quantile(everybody, 0.8)))
    gaps = np.array([np.sort(np.abs(everybody - value))[1] for value in x])
    inside = inside[np.argsort(-gaps[inside])]  # those who are furthest from others
    if researcher.epsilon:
        known = inside[: 6 if researcher.small else 40]
    else:
        known = np.concatenate([inside[labels[inside] == label][: people // 2] for label in (0, 1)])  # as many of each
    ends = np.array([[x[i] - gaps[i] / 2, x[i] + gaps[i] / 2] for i in known], np.float32)

    def summed(asked: Researcher, function: str, rows: list[list[float]], **edges: Any) -> np.ndarray:
        data, structure = {"features": [column]}, np.array(rows, np.float32)
        arrays = {"weights": np.empty((0, 3), np.float32), "structure": structure}
        answer = asked.ask("v6_gbdt", function, data=data, model={"name": "trees"}, arrays=arrays, **edges)
        return np.split(answer["sums"], 2)[0]

    if not researcher.epsilon:
        edges = codec.encode(bins.pack([np.unique(ends)]))
        leaf = [LEAF, 0.0, 0.0]
        boxes = [row for end in ends.ravel().tolist() for row in ([0.0, end, 0.0], leaf, leaf)]
        below, above = summed(researcher, "leaf_sums", boxes, edges=edges)[::2].reshape(-1, 2).T
        right = int(((above - below < 0) == labels[known]).sum())
        return Outcome(right, people, "labels", researcher.tasks, people, None, researcher.last_words(right))
    right = 0
    for i, (low, high) in zip(known, ends.tolist(), strict=True):
        with Researcher(researcher.tables, researcher.column, researcher.small) as fresh:
            fresh.reserve(statistics=1)
            box = [[0.0, high, 0.0], [0.0, low, 0.0], *[[LEAF, 0.0, 0.0]] * 3]
            right += int((summed(fresh, "noisy_leaf_sums", box)[1] < 0) == labels[i])
            researcher.tasks = fresh.tasks
    return _guesses(researcher, right, len(known))


def _guesses(researcher: Researcher, right: int, people: int) -> Outcome:
    """How many guesses of a label are right, beside the share that the budget allows."""
    most = allowed(researcher.epsilon, replaced=True)
    bound = f"at most {most:.1%} are allowed" if most < 0.999 else "nearly all are allowed"
    share = f"{right} of {people} guesses right ({bound})"
    return Outcome(0, people, "guesses", researcher.tasks, people, None, "", share)


def rare_word_statistics(researcher: Researcher) -> Outcome:
    """One patient is of a village. A column of 0 and 1 for the village, and its covariances with all others."""
    features = [*researcher.features, NAME]
    steps = [{"step": "onehot", "fitted": {"levels": {NAME: [RARE]}}}]
    d = len(features)
    answer = researcher.ask(
        "v6_fedavg",
        "fit_step",
        data={"features": features, "categories": [NAME], "preprocess": steps},
        statistic="covariance",
        arrays={"mean": np.zeros(d), "scale": np.ones(d)},
    )
    return _one_row(researcher, _square(answer, d)[-1, :-1])


def rare_word_evaluation(researcher: Researcher) -> Outcome:
    """The same patient's label: a model that says 1 for the village alone, and its confusion matrix."""
    answer = researcher.ask(
        "v6_fedavg",
        "evaluate",
        evaluate="all",
        data={
            "features": [NAME],
            "categories": [NAME],
            "preprocess": [{"step": "onehot", "fitted": {"levels": {NAME: [RARE]}}}],
        },
        model={"name": "logreg"},
        arrays={"weights": np.array([2.0, -1.0])},
    )
    said = np.array(answer.values["evaluation"]["confusion"])[:, 1]
    table = researcher.tables[TARGET]
    true = int(table[LABEL][table[NAME] == RARE].iloc[0])
    if researcher.epsilon:
        share = f"{int(said.argmax() == true)} of 1 guesses right"
        return Outcome(0, 1, "guesses", researcher.tasks, 1, None, "", share)
    right = int(said.sum() == 1 and int(said.argmax()) == true)
    return Outcome(right, 1, "labels", researcher.tasks, 1, None, researcher.last_words(right))


def rare_subgroup(researcher: Researcher) -> Outcome:
    """The same patient's label by the last evaluation's subgroups: of the village, and of all others.

    The model says 0 for all rows. What all rows have and the other villages lack would be the patient's.
    """
    table = researcher.tables[TARGET]
    levels = sorted(map(str, table[NAME].unique()))
    said = list[np.ndarray]()
    for asked in ([RARE], [level for level in levels if level != RARE]):
        answer = researcher.ask(
            "v6_fedavg",
            "evaluate",
            evaluate="all",
            last=True,
            data={"features": researcher.features[:1], "subgroup": NAME, "levels": asked},
            model={"name": "logreg"},
            arrays={"weights": np.array([0.0, -1.0])},
        )
        of_levels = np.sum(codec.decode(answer.values["details"])["subgroups"], axis=0)
        every = np.array(answer.values["evaluation"]["confusion"])
        said.append((of_levels if asked == [RARE] else every - of_levels)[:, 0])
    true = int(table[LABEL][table[NAME] == RARE].iloc[0])
    right = int(any(counts.sum() == 1 and int(counts.argmax()) == true for counts in said))
    return Outcome(right, 1, "labels", researcher.tasks, 1, None, researcher.last_words(right))


def rare_flag(researcher: Researcher) -> Outcome:
    """A column of the table is 1 for one patient and 0 for all others: its covariances are this patient's values."""
    d, at = len(researcher.features), researcher.features.index(FLAG)
    answer = researcher.ask(
        "v6_fedavg", "fit_step", statistic="covariance", arrays={"mean": np.zeros(d), "scale": np.ones(d)}
    )
    return _one_row(researcher, _square(answer, d)[at])


def rare_flag_mixed(researcher: Researcher) -> Outcome:
    """The same, with a step ``pca`` that adds another column to the flag: what is asked for has many values."""
    d, at = len(researcher.features), researcher.features.index(FLAG)
    mixed = np.eye(d)
    mixed[at, (at + 1) % d] = 1.0
    answer = researcher.ask(
        "v6_fedavg",
        "fit_step",
        data={"preprocess": [components(mixed)]},
        statistic="covariance",
        arrays={"mean": np.zeros(d), "scale": np.ones(d)},
    )
    A = np.linalg.inv(mixed) @ _square(answer, d) @ np.linalg.inv(mixed).T
    return _one_row(researcher, A[at])


def _square(answer: Answer, d: int) -> np.ndarray:
    A = np.zeros((d, d))
    A[np.triu_indices(d)] = answer["covariance"]
    return A + np.triu(A, 1).T


def _one_row(researcher: Researcher, claim: np.ndarray) -> Outcome:
    found = researcher.found(claim[None])
    return replace(found, of=1)


def largest_values(researcher: Researcher) -> Outcome:
    """The rows with the largest and the smallest value of each column, by the Hessian of a Poisson regression.

    A row weighs mu = exp(K (z - t)), z one column divided by its deviation. If K is large, the row with the largest
    value outweighs all others, and the Hessian is its x x^T.
    """
    d = len(researcher.features)
    mean, scale, _ = researcher.moments()
    claims = []
    for k in range(3 if researcher.small else d):
        for sign in (1, -1):
            z = np.zeros(d + 1)  # the coefficients of columns divided by their deviations
            z[k], z[-1] = sign * 100.0, -500.0
            weights = z / np.append(scale, 1.0)
            weights[-1] -= weights[:-1] @ mean
            answer = researcher.ask(
                "v6_glm",
                "newton",
                data={"regression": True, "classes": None},
                model={"name": "glm", "family": "poisson", "link": "log"},
                arrays={"weights": weights, "center": np.zeros(d + 1), "scale": np.ones(d + 1)},
                null=0.0,
            )
            last = answer["hessian"][-(d + 1) :]
            claims.append(last[:-1] / last[-1])
    return researcher.found(np.array(claims))


def largest_at_risk(researcher: Researcher) -> Outcome:
    """The rows with the largest and the smallest value of each column, by the gradient of a partial likelihood.

    The label, 0 or 1, is the time, and all rows have the event. Under steep coefficients of one column, the mean of the
    rows at risk is the row with its largest value, if that row's label is 1: it is then at risk until the end.
    """
    d = len(researcher.features)
    mean, scale, n = researcher.moments()
    claims = []
    for k in range(3 if researcher.small else d):
        for sign in (1, -1):
            weights = np.zeros(d + 1)
            weights[k] = sign * 1000.0 / scale[k]
            answer = researcher.ask(
                "v6_cox",
                "newton",
                data={"regression": True, "classes": None},
                model={"name": "cox"},
                arrays={"weights": weights},
                ties="breslow",
            )
            claims.append(mean - answer["gradient"] / n)
    return researcher.found(np.array(claims))


# ---- few rows


def few_rows(researcher: Researcher) -> Outcome:
    """Covariances of fewer rows than columns; half of these patients' columns are known from elsewhere.

    The products of known and unknown columns are equations for the unknown ones, as many as there are known columns.
    The job holds out as many rows as it may. Which rows are left is the same in all jobs.
    """
    return _from_products(researcher, len(researcher.features))


def few_rows_in_blocks(researcher: Researcher) -> Outcome:
    """The same, a few columns a task: no task asks for more than half as many columns as there are rows."""
    return _from_products(researcher, 4)


def _from_products(researcher: Researcher, columns: int) -> Outcome:
    n, d = researcher.size, len(researcher.features)
    data = {"holdout": (n - 10) // 10 * 10 / n, "supervised": False, "classes": None}
    mean, scale, _ = researcher.moments()
    known, rest = list(range(0, d, 2)), list(range(1, d, 2))
    X = ((researcher.truth - mean) / scale)[:, known]
    products = np.empty((len(known), len(rest)))
    blocks = [range(i, min(i + columns // 2, d // 2)) for i in range(0, d // 2, columns // 2)]
    # which rows are held out may be the node's secret: sums of known columns tell
    equations, sums = [np.ones(len(X))], list[float]()
    kept = researcher.ask("v6_fedavg", "fit_step", data={**data, "features": researcher.features}, statistic="moments")
    sums.append(kept.values["n"])
    equations += [*X.T]
    sums += [*(kept.values["n"] * (codec.whole(kept.arrays, "mean") - mean) / scale)[known]]
    for a, b in itertools.product(blocks, blocks):
        used = [known[i] for i in a] + [rest[i] for i in b]
        answer = researcher.ask(
            "v6_fedavg",
            "fit_step",
            data={**data, "features": [researcher.features[i] for i in used]},
            statistic="covariance",
            arrays={"mean": mean[used], "scale": scale[used]},
        )
        A = _square(answer, len(used))
        products[np.ix_(a, b)] = A[: len(a), len(a) :]
        if a == b:
            pairs = [*itertools.combinations_with_replacement(range(len(a)), 2)]
            equations += [X[:, a[i]] * X[:, a[j]] for i, j in pairs]
            sums += [A[i, j] for i, j in pairs]
    share = np.linalg.lstsq(np.array(equations), np.array(sums), rcond=None)[0]
    trained = np.sort(np.argsort(-share)[: int(kept.values["n"])])
    claims = researcher.truth[trained]
    claims[:, rest] = np.linalg.lstsq(X[trained].T, products, rcond=None)[0] * scale[rest] + mean[rest]
    return replace(researcher.found(claims), of=len(claims))


# ---- membership


def membership(researcher: Researcher) -> Outcome:
    """Who has a small loss under the model that one honest task has trained was probably among its rows.

    The others are rows that no hospital has.
    """
    if researcher.epsilon:
        return _membership_by_gradient(researcher)
    p, shape = Standard.of(researcher), {"name": "fnn", "hidden": 200}
    model = models.build({**shape, "features": len(p.direction), "classes": 2})
    w = model.init(np.random.default_rng(0))
    strangers = nobodys("digits", sum(map(len, researcher.tables.values())))
    found = list[str]()
    largest = 0.0
    for epochs in (1, 10, 50):
        steps = epochs * (len(researcher.tables[TARGET]) // 10)  # a study wants equally many at all hospitals
        length = {"local_steps": steps} if researcher.pinned else {"epochs": epochs}
        answer = researcher.ask(
            "v6_fedavg",
            "client_update",
            data={"preprocess": p.steps},
            model=shape,
            arrays={"weights": w},
            local={"lr": 0.1, "batch_size": 10, **length},
        )
        trained = answer["weights"].astype(np.float32)
        inside, outside = (
            _losses(
                model, trained, (t[researcher.features].to_numpy(np.float64) - p.mean) / p.scale, t[LABEL].to_numpy()
            )
            for t in (researcher.tables[TARGET], strangers)
        )
        pairs = (inside[:, None] < outside).mean() + 0.5 * (inside[:, None] == outside).mean()
        found.append(f"{pairs:.2f}")
        largest = max(largest, float(pairs))
    note = f"AUC {', '.join(found)} after 1, 10, 50 epochs (0.5: no better than a guess)"
    return Outcome(int(largest > 0.55), 1, "AUC", researcher.tasks, 1, None, "", note)


def _membership_by_gradient(researcher: Researcher) -> Outcome:
    """The whole budget for one noisy gradient: a row that is in it is more alike to it than one that is not."""
    p = Standard.of(researcher)
    model: Any = models.build({"name": "logreg", "features": len(p.direction), "classes": 2})
    w = np.zeros(model.size)
    answer = researcher.ask(
        "v6_fedavg", "client_update", data={"preprocess": p.steps}, model={"name": "logreg"}, arrays={"weights": w}
    )
    total = answer["total"]
    strangers = nobodys("digits", sum(map(len, researcher.tables.values())))
    inside, outside = (
        _alike(researcher, (t[researcher.features].to_numpy(np.float64) - p.mean) / p.scale, t[LABEL].to_numpy(), total)
        for t in (pd.concat([researcher.tables[k] for k in researcher.block]), strangers)
    )
    auc = float((inside[:, None] > outside).mean() + 0.5 * (inside[:, None] == outside).mean())
    note = f"AUC {auc:.2f} (at most {allowed(researcher.epsilon):.4f} is allowed)"
    return Outcome(0, 1, "AUC", researcher.tasks, 1, None, "", note)


def _alike(researcher: Researcher, X: np.ndarray, y: np.ndarray, total: np.ndarray) -> np.ndarray:
    """How alike each row's clipped gradient is to a sum of them. At weights of zero, the gradient is (x, 1) / 2."""
    assert researcher.plan is not None
    rows = np.column_stack([X, np.ones(len(X))]) * np.where(y == 1, -0.5, 0.5)[:, None]
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray((rows * np.minimum(1, researcher.plan.clip / norms)) @ total)


def _losses(model: Any, w: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    scores = model.scores(w, X.astype(np.float32))
    return np.array([model.loss(scores[[i]], y[[i]]) for i in range(len(y))])


# ---- differences


def new_patient(researcher: Researcher) -> Outcome:
    """The same means before and after a patient was added to the table: the sums differ by the patient."""
    before = {**researcher.tables, TARGET: researcher.tables[TARGET].iloc[:-1]}
    if researcher.epsilon:
        return _new_patient_by_gradients(researcher, before)
    mean, _, n = researcher.moments()
    with Researcher(before, researcher.column, researcher.small) as earlier:
        first, _, m = earlier.moments()
        researcher.tasks += earlier.tasks
    return _one_row(researcher, n * mean - m * first)


def _new_patient_by_gradients(researcher: Researcher, before: Tables) -> Outcome:
    """The difference of two noisy gradients of an svm, before and after; each takes half of the budget."""
    p, sums = Standard.of(researcher), list[np.ndarray]()
    plan, tasks = researcher.plan, 0
    for tables in (before, researcher.tables):
        with Researcher(tables, researcher.column, researcher.small) as day:
            day.plan = plan
            w = np.zeros(len(p.direction) + 1)
            request: dict[str, Any] = {"model": {"name": "svm"}, "arrays": {"weights": w}}
            sums.append(day.ask("v6_fedavg", "client_update", data={"preprocess": p.steps}, **request)["total"])
            tasks += day.tasks
    researcher.tasks = tasks
    row = sums[1] - sums[0]  # plus or minus (x, 1)
    return _one_row(researcher, p.raw([row[:-1] / row[-1]])[0])


def two_splits(researcher: Researcher) -> Outcome:
    """Means of the rows that are not held out, for every share to hold out: the sums differ by the rows between."""
    n, sums = len(researcher.truth), dict[int, np.ndarray]()
    for holdout in np.linspace(0.01, 0.92, 20 if researcher.small else 60):
        try:
            answer = researcher.ask("v6_fedavg", "fit_step", data={"holdout": float(holdout)}, statistic="moments")
        except Refused:
            continue
        sums[answer.values["n"]] = answer.values["n"] * codec.whole(answer.arrays, "mean")
    known = sorted(sums)
    claims = [(sums[b] - sums[a]) / (b - a) for a, b in itertools.pairwise(known)]
    fewest = min((b - a for a, b in itertools.pairwise(known)), default=n)
    found = researcher.found(claims)
    return replace(found, note=f"means of {fewest} rows at least")


def two_attempts(researcher: Researcher) -> Outcome:
    """The same task again and again, in the hope of other minibatches of the same rows: their differences."""
    d = len(researcher.features)
    job = {"key": "0123456789abcdef" * 2}
    request: dict[str, Any] = {
        "model": {"name": "svm"},
        "arrays": {"weights": np.zeros(d + 1)},
        "local": {"lr": 1e-3, "batch_size": 10, "local_steps": len(researcher.truth) // 10},
    }
    answers = [researcher.ask("v6_fedavg", "client_update", job=job, **request)["weights"][:d] for _ in range(5)]
    claims = [a - b for a, b in itertools.combinations(answers, 2)]
    different = sum(bool(np.any(claim)) for claim in claims)
    return replace(researcher.found(claims), note=f"{different} of {len(claims)} pairs of answers differ")


def two_cohorts(researcher: Researcher) -> Outcome:
    """The pooled means of all hospitals, and of all but one: their difference is that hospital's means."""
    everyone = sorted(researcher.tables)
    common: dict[str, Any] = {"model": "logreg", "rounds": 1, "holdout": 0, "preprocess": ["standardize"]}
    sums = list[np.ndarray]()
    if researcher.pinned:  # central knows that it cannot work; one that lies tries it all the same
        transport.agree(researcher, "v6_fedavg", [o for o in everyone if o != TARGET])
    for organizations in (everyone, [o for o in everyone if o != TARGET]):
        result = researcher.central("v6_fedavg", organizations=organizations, **common)
        fitted = codec.decode(result["data"]["preprocess"][0]["fitted"])
        sums.append(result["history"][0]["n"] * codec.whole(fitted, "mean"))
    truth = researcher.truth
    number, error = matched((sums[0] - sums[1])[None] / len(truth), truth.mean(axis=0)[None], truth.std(axis=0))
    return Outcome(number, 1, "hospitals' means", researcher.tasks, 1, error, researcher.last_words(number))


def one_node_rounds(researcher: Researcher) -> Outcome:
    """``fraction=0``: one node trains in the round, and the result's model is that hospital's."""
    result = researcher.central("v6_fedavg", model="logreg", rounds=1, holdout=0, fraction=0)
    alone = int(len(result["history"][0]["participants"]) == 1)
    return Outcome(alone, 1, "hospitals' models", researcher.tasks, 1, None, researcher.last_words(alone))


def invented_participants(researcher: Researcher) -> Outcome:
    """A job of one hospital that names three: a node cannot know whether the others exist."""
    d = len(researcher.features)
    request: dict[str, Any] = {"model": {"name": "logreg"}, "arrays": {"weights": np.zeros(d + 1)}, "local": {}}
    if researcher.pinned:
        transport.agree(researcher, "v6_fedavg", [TARGET], invented=[Participant() for _ in transport.INVENTED])
        alone = 1
    else:
        answer = researcher.ask("v6_fedavg", "client_update", job={"participants": [TARGET, 900, 901]}, **request)
        alone = int(bool(np.any(answer["weights"])))
    return Outcome(alone, 1, "hospitals' models", researcher.tasks, 1, None, researcher.last_words(alone))
