"""FLamby (Ogier du Terrail et al. 2022): its two data sets of hospitals whose models are linear.

``theirs`` trains with FLamby's own strategies and random numbers, ``ours`` with this package's methods.
"""

from itertools import chain

import pandas as pd

from benchmarks import tables
from benchmarks.flamby import best, best_survival, emulated, ours
from benchmarks.flamby.data import TASKS
from v6_workbench.simulation.datasets import Dataset

DOCUMENT = "flamby"
TITLES = {
    "heart_disease": "FLamby: heart disease at four hospitals",
    "tcga_brca": "FLamby: survival with breast cancer in six regions",
}


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables."""
    assert isinstance(dataset.rows, pd.DataFrame)
    name, task = dataset.name, TASKS[dataset.name](dataset.rows)
    page = tables.Page(DOCUMENT, TITLES[name], full, emulated.about(task), name, file=f"{name}.csv")
    lines = chain(emulated.lines(dataset, task, full), ours.lines(dataset, task, full))
    most = emulated.most(task, full) + ours.most(full)
    if name == "heart_disease":
        lines, most = chain(lines, best.lines(dataset, full)), most + best.most(full)
    else:
        lines, most = chain(lines, best_survival.lines(dataset, task, full)), most + best_survival.most(full)
    tables.page(page, lines, most)
