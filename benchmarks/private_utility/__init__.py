"""What a privacy budget costs in accuracy: images at ten hospitals, and heart disease at four.

Models are evaluated here, on test rows and without noise. That is no part of the jobs: a private job evaluates on rows
of its nodes, with noise and at a price.
"""

from benchmarks import tables
from benchmarks.private_utility import heart, images
from benchmarks.private_utility.jobs import DOCUMENT
from v6_workbench.simulation.datasets import Dataset

TITLES = {
    "mnist": "What a privacy budget costs in accuracy",
    "fashion_mnist": "What a privacy budget costs in accuracy, on Fashion-MNIST",
    "heart_disease": "What a privacy budget costs in accuracy, heart disease at four hospitals",
}


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables."""
    name = dataset.name
    if name == "heart_disease":
        page = tables.Page(DOCUMENT, TITLES[name], full, heart.ABOUT, name, file="heart_disease.csv")
        tables.page(page, heart.lines(dataset, full), heart.most(full))
    else:
        page = tables.Page(DOCUMENT, TITLES[name], full, images.ABOUT, name)
        tables.page(page, images.lines(dataset, full), images.most(dataset, full))
