"""Attacks on local training: steps on few rows, crafted networks, and the inversion of honest gradients."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from benchmarks.attacks.isolation import FAR, LONG, STEEP, Standard, Sum, components, isolate
from benchmarks.attacks.researcher import TARGET, Outcome, Refused, Researcher, matched
from v6_federated import models
from v6_federated.base.randomness import generator
from v6_federated.messages import codec

INVENTED = 7  # a class that no row has
GREYS = 16  # levels of a pixel of the digits
SEEN = 0.05  # mean error of a pixel from 0 to 1 up to which an image is recognised
RATE = 0.5  # of the honest job

# ---- steps on one row, or on rows that are known


def issue_command(researcher: Researcher) -> Outcome:
    """One ordinary-looking job: minibatches of one row, a class that nobody has, one node a round.

    The first row moves the invented class's parameters so far that no later row has an error there. The model that
    results holds that row.
    """
    result = researcher.central(
        "v6_fedavg", model="svm", rounds=1, holdout=0, fraction=0, batch_size=1, lr=1, classes=[0, 1, INVENTED]
    )
    w = codec.decode(result["weights"])["weights"]
    d = len(researcher.features)
    everybody = np.concatenate([t[researcher.features].to_numpy(np.float64) for t in researcher.tables.values()])
    number, error = matched(-w[2 * d : 3 * d][None], everybody, everybody.std(axis=0))
    return Outcome(number, 1, "rows", researcher.tasks, 1, error)


def batch_of_one(researcher: Researcher) -> Outcome:
    """The same at one node, by a task for each row: the seed says which row comes first."""
    return _first_batches(researcher, 1)


def least_squares(researcher: Researcher) -> Outcome:
    """Minibatches of 10 rows whose numbers follow from the seed: as many equations as rows, solved by least squares."""
    return _first_batches(researcher, 10)


def _first_batches(researcher: Researcher, batch_size: int) -> Outcome:
    """Means of the first minibatches of many seeds, each left alone in the parameters of an invented class."""
    n, d = researcher.moments()[2], len(researcher.features)
    many = n if batch_size == 1 else round(1.3 * n)
    seeds, first = list[int](), list[np.ndarray]()
    waiting, seed = set(range(n)), 0
    while len(seeds) < many:
        rows = generator(seed, "shuffle", TARGET, 1).permutation(n)[:batch_size]
        if batch_size > 1 or int(rows[0]) in waiting:
            waiting -= {int(rows[0])}
            seeds.append(seed)
            first.append(rows)
        seed += 1
    means, asked = list[np.ndarray](), list[np.ndarray]()
    for seed, rows in zip(seeds, first, strict=True):
        answer = researcher.ask(
            "v6_fedavg",
            "client_update",
            data={"classes": [0, 1, INVENTED]},
            job={"seed": seed},
            model={"name": "svm"},
            arrays={"weights": np.zeros(3 * (d + 1))},
            local={"lr": 1.0, "batch_size": batch_size},
        )
        means.append(-answer["weights"][2 * d : 3 * d].astype(np.float64))
        asked.append(np.isin(np.arange(n), rows) / batch_size)
    if batch_size == 1:
        return researcher.found(means)
    return researcher.found(np.linalg.lstsq(np.array(asked), np.array(means), rcond=None)[0])


def through_resume(researcher: Researcher) -> Outcome:
    """Whole jobs that go on from a forged result: 98 invented classes with a threshold each, over all nodes' rows."""
    invented = 98
    classes = [0, 1, *range(1000, 1000 + invented)]
    honest = researcher.central(
        "v6_fedavg", model="svm", rounds=1, holdout=0, lr=LONG, classes=classes, preprocess=["standardize"]
    )
    c, d = len(classes), len(researcher.features)
    n = honest["history"][0]["n"]
    direction = np.random.default_rng(7).normal(size=d)
    direction /= np.linalg.norm(direction)

    def ask(thresholds: Sequence[float]) -> list[Sum]:
        coef, intercept = np.zeros((c, d)), np.full(c, -STEEP)
        used = slice(2, 2 + len(thresholds))
        coef[used], intercept[used] = STEEP * direction, -STEEP * np.asarray(thresholds)
        forged = {**honest, "weights": codec.encode({"weights": np.append(coef, intercept)})}
        result = researcher.central(
            "v6_fedavg", model="svm", rounds=2, holdout=0, lr=LONG, classes=classes, resume=forged
        )
        g = -n * codec.decode(result["weights"])["weights"].astype(np.float64) / LONG
        sizes, rows = g[c * d :][used], g[: c * d].reshape(c, d)[used]
        return [Sum(float(sizes[i]), rows[i]) for i in range(len(thresholds))]

    rows = isolate(ask, [-FAR, *np.linspace(-3, 3, 96), FAR], lambda row: float(row @ direction), invented)
    fitted = codec.decode(honest["data"]["preprocess"][0]["fitted"])
    mean, scale = codec.whole(fitted, "mean"), fitted["scale"]
    truth = np.concatenate([t[researcher.features].to_numpy(np.float64) for t in researcher.tables.values()])
    claims = np.array([b.rows.total * scale + mean for b in rows]).reshape(-1, d)
    number, error = matched(claims, truth, truth.std(axis=0))
    return Outcome(number, len(truth), "rows", researcher.tasks, len(claims), error, researcher.last_words(number))


# ---- a crafted network


def wide_network(researcher: Researcher) -> Outcome:
    """Fowl et al. 2022: 5,000 hidden units that differ in their thresholds alone, one step on all rows.

    All units have the same weights to the output, so a row's slope is the same in all units that it reaches. Two units
    whose thresholds enclose one row differ by that row, times its slope, in the weights, and by its slope in the bias.
    """
    p, hidden = Standard.of(researcher), 5000
    d, tiny, lr = len(p.direction), 1e-5, 1e13
    if researcher.epsilon:  # no statistics: guess how the rows are spread, and let all of a gradient lie in the units
        normal, tiny, lr = NormalDist(0, 0.5), 1.0, 1.0
    else:
        steps = [*p.steps, components(p.direction[None])]
        spread = researcher.ask("v6_fedavg", "fit_step", data={"preprocess": steps}, statistic="moments")["squares"]
        normal = NormalDist(0, math.sqrt(float(spread[0]) / p.n))
    t = np.array([normal.inv_cdf((i + 0.5) / hidden) for i in range(hidden)])
    W1, b1 = np.repeat(p.direction[:, None], hidden, axis=1), -t
    W2 = np.tile([tiny, -tiny], (hidden, 1))
    model = {"name": "fnn", "hidden": hidden}
    answer = researcher.ask(
        "v6_fedavg",
        "client_update",
        data={"preprocess": p.steps},
        model=model,
        arrays={"weights": np.concatenate([W1.ravel(), b1, W2.ravel(), np.zeros(2)])},
        local={"lr": lr},
    )
    g = -answer["weights"].astype(np.float64) / lr
    dW, db = g[: d * hidden].reshape(d, hidden).T, g[d * hidden : (d + 1) * hidden]
    # a unit with threshold t holds all rows above: neighbours differ by the rows between
    rows, slopes = dW[:-1] - dW[1:], db[:-1] - db[1:]
    alone = np.abs(slopes) > 1e-3 * np.abs(slopes).max()
    claims = rows[alone] / slopes[alone, None]
    inside = [a <= p.project(r) <= b for a, b, r in zip(t[:-1][alone], t[1:][alone], claims, strict=True)]
    return researcher.found(p.raw(list(claims[inside])))


# ---- the inversion of an honest gradient


def _honest_gradient(researcher: Researcher, hidden: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The first weights of an honest FedSGD job on images, and the gradient of the node's rows that its answer tells.

    The job holds out as many rows as it may: few are left to train on.
    """
    n = len(researcher.truth)
    shape = {"name": "fnn", "hidden": hidden}
    w = models.build({**shape, "features": len(researcher.features), "classes": 2}).init(np.random.default_rng(0))
    for holdout in ((n - 10) // 10 * 10 / n, 0.5, 0.0):  # as much as the node allows
        try:
            answer = researcher.ask(
                "v6_fedavg",
                "client_update",
                data={"holdout": holdout},
                model=shape,
                arrays={"weights": w},
                local={"lr": RATE},
            )
            return w, (w - answer["weights"].astype(np.float64)) / RATE, answer.values["n"]
        except Refused as error:
            refused = error
    raise refused


def closed_form(researcher: Researcher) -> Outcome:
    """A hidden unit that one row alone activates holds that row: its gradient by the weights over that by the bias.

    Geiping et al. 2020, Proposition 3.1; Boenisch et al. 2023 count such units in honest networks. The other units hold
    means of several rows, whose pixels are no grey levels.
    """
    hidden, d = 1000, len(researcher.features)
    _, g, n = _honest_gradient(researcher, hidden)
    dW, db = g[: d * hidden].reshape(d, hidden), g[d * hidden : (d + 1) * hidden]
    used = np.abs(db) > 1e-3 * np.abs(db).max()
    images = (dW[:, used] / db[used]).T
    grey = np.round(images * GREYS) / GREYS
    alone = np.abs(images - grey).max(axis=1) < 0.2 / GREYS
    return _seen(researcher, np.unique(grey[alone], axis=0), n)


def closed_form_few(researcher: Researcher) -> Outcome:
    """The same at a hospital of few images."""
    return closed_form(researcher)


def _seen(researcher: Researcher, images: np.ndarray, n: int) -> Outcome:
    """Count the true images that are recognised: one's pixels are as theirs but for ``SEEN`` in the mean."""
    truth = researcher.truth
    distances = np.array([np.abs(truth - image).mean(axis=1) for image in images]).reshape(-1, len(truth))
    found = len({int(d.argmin()) for d in distances if d.min() < SEEN})
    errors = distances.min(axis=1)
    note = f"mean error of a pixel {np.median(errors):.3f} in the median" if len(errors) else ""
    return Outcome(found, n, "images", researcher.tasks, len(images), None, researcher.last_words(found), note)


def gradient_inversion(researcher: Researcher) -> Outcome:
    """Geiping et al. 2020: look for images whose gradient points where the one that was sent does, by Adam."""
    import torch  # takes seconds to import, and only this attack needs it

    torch.set_num_threads(1)  # several wait for each other where other programs run, too
    torch.manual_seed(0)
    hidden, d, steps = 2000, len(researcher.features), 3000
    w, g, n = _honest_gradient(researcher, hidden)
    W1, b1, W2, b2 = _layers(torch.tensor(w, dtype=torch.float64), d, hidden)
    target = torch.tensor(g)
    X = torch.rand(n, d, dtype=torch.float64, requires_grad=True)
    labels = torch.zeros(n, 2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([X, labels], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        z = X @ W1 + b1
        h = torch.relu(z)
        signal = (torch.softmax(h @ W2 + b2, 1) - torch.softmax(labels, 1)) / n
        back = (signal @ W2.T) * (z > 0)
        mine = torch.cat([(X.T @ back).ravel(), back.sum(0), (h.T @ signal).ravel(), signal.sum(0)])
        optimizer.zero_grad()
        (1 - torch.cosine_similarity(mine, target, dim=0)).backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            X.clamp_(0, 1)
    return _seen(researcher, X.detach().numpy(), n)


def _layers(w: Any, d: int, hidden: int) -> tuple[Any, Any, Any, Any]:
    a, b, c = d * hidden, (d + 1) * hidden, (d + 3) * hidden
    return w[:a].reshape(d, hidden), w[a:b], w[b:c].reshape(hidden, 2), w[c:]
