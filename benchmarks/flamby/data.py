"""The two data sets as FLamby prepares them: training and test rows of each hospital, losses and metrics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from benchmarks.private_utility.heart import parted

HOSPITALS = {"cleveland": "Cleveland", "hungarian": "Budapest", "switzerland": "Switzerland", "va": "Long Beach"}
NUMBERS = ["age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak"]
CODES = {"cp": (2, 3, 4), "restecg": (1, 2)}  # without their first levels
REGIONS = 6
Tensor = torch.Tensor


@dataclass(frozen=True)
class Site:
    """A hospital's rows, or the pooled ones.

    Attributes:
        X, X_test: features (n, d).
        y, y_test: classes (n,), or for survival (n, 2) whether the event was seen, and the time.
    """

    X: Tensor
    y: Tensor
    X_test: Tensor
    y_test: Tensor

    def scaled(self, like: "Site") -> "Site":
        """Columns minus the mean, divided by the standard deviation, of another's training rows."""
        mean, deviation = like.X.mean(0), like.X.std(0) + 1e-9
        return Site((self.X - mean) / deviation, self.y, (self.X_test - mean) / deviation, self.y_test)


@dataclass(frozen=True)
class Task:
    """A data set and how FLamby trains on it.

    Attributes:
        key: the data set in ``published.csv``.
        names: of the hospitals, in order.
        sites: their rows.
        pooled: all rows, prepared as for FLamby's pooled training.
        loss: of scores (n,) and labels.
        metric: of scores (n,) and labels; higher is better.
        measure: its name.
        batch_size: rows of a minibatch.
        rounds: of a strategy.
        epochs: of pooled and local training, with Adam.
        adam: its rate.
        ahead: whether FLamby's results were made with worker processes, which draw the first pass before the seed.
    """

    key: str
    names: Sequence[str]
    sites: Sequence[Site]
    pooled: Site
    loss: Callable[[Tensor, Tensor], Tensor]
    metric: Callable[[Tensor, Tensor], float]
    measure: str
    batch_size: int
    rounds: int
    epochs: int
    adam: float
    ahead: bool

    def metrics(self, w: Tensor) -> list[float]:
        """Compute the metric of the linear model w (d + 1,), the intercept last, on each hospital's test rows."""
        return [self.metric(scores(w, site.X_test), site.y_test) for site in self.sites]


def scores(w: Tensor, X: Tensor) -> Tensor:
    """Compute the scores (n,) of a linear model w (d + 1,), whose last number is the intercept, as torch's Linear."""
    return torch.nn.functional.linear(X, w[None, :-1], w[-1:])[:, 0]


def pooled(sites: Sequence[Site]) -> Site:
    """Put the rows of all hospitals together."""
    return Site(*(torch.cat([getattr(site, name) for site in sites]) for name in ("X", "y", "X_test", "y_test")))


def heart(table: pd.DataFrame) -> Task:
    """Prepare Fed-Heart-Disease: rows without a missing value, and columns scaled by each hospital's own rows.

    Args:
        table: UCI's heart disease data of four hospitals, with the columns ``hospital`` and ``target``.

    Returns:
        The task.
    """
    table = table[["hospital", *NUMBERS, *CODES, "target"]].dropna()
    levels = [table[name] == level for name, known in CODES.items() for level in known]
    X, y = np.column_stack([table[NUMBERS], *levels]).astype(np.float32), table["target"].to_numpy(np.float32)
    sites = []
    for hospital in HOSPITALS:
        here = np.flatnonzero(table["hospital"] == hospital)
        training, test = (here[np.sort(part)] for part in parted(y[here]))
        sites.append(Site(*map(torch.from_numpy, (X[training], y[training], X[test], y[test]))))
    return Task(
        key="heart",
        names=[*HOSPITALS.values()],
        sites=[site.scaled(like=site) for site in sites],
        pooled=pooled(sites).scaled(like=pooled(sites)),
        loss=lambda s, y: torch.nn.functional.binary_cross_entropy(torch.sigmoid(s), y),
        metric=lambda s, y: float(((s > 0) == y.bool()).float().mean()),
        measure="accuracy",
        batch_size=4,
        rounds=15,
        epochs=50,
        adam=0.001,
        ahead=False,
    )


def tcga(table: pd.DataFrame) -> Task:
    """Prepare Fed-TCGA-BRCA: survival of patients with breast cancer, columns as they are.

    Args:
        table: 39 features, the columns ``center`` (0 to 5), ``fold``, ``E`` (event seen) and ``T`` (days).

    Returns:
        The task.
    """
    features = table.columns.drop(["center", "fold", "E", "T"])

    def site(rows: "pd.Series[bool] | bool") -> Site:
        parts = (table[rows & (table["fold"] == fold)] for fold in ("train", "test"))
        tensors = ((part[features].to_numpy(np.float32), part[["E", "T"]].to_numpy(np.float32)) for part in parts)
        return Site(*(torch.from_numpy(array) for pair in tensors for array in pair))

    return Task(
        key="tcga",
        names=[f"region {center}" for center in range(REGIONS)],
        sites=[site(table["center"] == center) for center in range(REGIONS)],
        pooled=site(True),  # in the order of the file
        loss=cox_loss,
        metric=concordance,
        measure="C-index",
        batch_size=8,
        rounds=5,
        epochs=30,
        adam=0.1,
        ahead=True,
    )


TASKS: Mapping[str, Callable[[pd.DataFrame], Task]] = {"heart_disease": heart, "tcga_brca": tcga}


def cox_loss(s: Tensor, y: Tensor) -> Tensor:
    """Compute Cox's partial likelihood of a minibatch: minus its logarithm, over the rows, not the events.

    The rows at risk are those before a row in the order of falling times; ties stay in their order. It is rounded as in
    FLamby's code of the time of its results. Its later code avoids overflows, which these runs do not have.

    Args:
        s: scores (n,).
        y: events and times (n, 2).

    Returns:
        The loss.
    """
    order = torch.argsort(-y[:, 1], stable=True)
    s, events = s[order] - s.max(), y[order, 0]
    return ((torch.exp(s).cumsum(0).log() - s) * events).mean()


def concordance(s: Tensor, y: Tensor) -> float:
    """Compute Harrell's concordance index: the share of comparable pairs whose earlier event has the higher score.

    A pair is comparable if the event of one was seen, and the other is seen without event at that time or later.

    Args:
        s: scores (n,), higher for an earlier event.
        y: events and times (n, 2).

    Returns:
        The share; a pair of equal scores counts half.
    """
    event, time = y[:, 0].bool(), y[:, 1]
    comparable = event[:, None] & ((time[:, None] < time) | ((time[:, None] == time) & ~event))
    concordant = (s[:, None] > s).double() + 0.5 * (s[:, None] == s).double()
    return float(concordant[comparable].mean())
