"""Tables that change a method to see what explains a difference: they still run, and change what they say."""

import json
import math
from unittest import mock

import numpy as np
from benchmarks import mcmahan2017, one_label, reddy2020_boxes, reddy2020_differences, runs, starts

from v6_federated import models
from v6_federated.node import local_training
from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment


def test_the_differences_of_reddy_still_run(digits, tmp_path, monkeypatch):
    """Their runs are kept, so nobody would notice if the readings, which patch the methods, no longer ran."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    for name, value in {
        "NODES": (7,),
        "PASSES": {"logreg": 2, "nn_reddy": 2},
        "STEPS": {"3": 3},
        "STEPS_A_PASS": 2,
        "ALIKE_STEPS": (("logreg", "sorted-balanced", (7,)),),
        "PARTITIONS": ("balanced", "sorted-balanced"),
        "protocols": lambda model, optimizer: [
            ("FedAvg rho = 1", "fedavg", {"epochs": 1, "rounds": 2}),
            ("DynAvg svd", "dynavg", {"protocol": "svd", "rounds": 2}),
        ],
    }.items():
        monkeypatch.setattr(reddy2020_differences, name, value)
    dataset = datasets.load(str(digits))
    for table in ("readings", "alike_steps", "readings_of_adam", "starts", "gaps", "gaps_of_rounds"):
        lines = [*getattr(reddy2020_differences, table)(dataset)]
        assert [line for line in lines if line.startswith("| ")][2:] and "nan" not in "".join(lines), table
    monkeypatch.setattr(reddy2020_boxes, "PASSES", {"logreg": 2})
    monkeypatch.setattr(reddy2020_boxes, "CHOSEN", (("sgd", "sorted-balanced", 7),))
    (row,) = [line for line in reddy2020_boxes.lines(dataset) if line.startswith("| sgd")]
    assert "nan" not in row


def test_networks_of_mcmahan_from_other_starts(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    cells, rates = [("2nn", "iid", 0.0, 1, 50), ("cnn_mcmahan", "iid", 0.0, 1, 50)], (0.2, 0.1)
    rows = [mcmahan2017.Row(cell, {"1": 50}, 1, seeds=(1,)) for cell in cells]
    monkeypatch.setattr(mcmahan2017, "ROWS", rows)
    monkeypatch.setattr(mcmahan2017, "OTHER_STARTS", {c: dict.fromkeys(mcmahan2017.STARTS, rates) for c in cells})
    monkeypatch.setattr(mcmahan2017, "TARGET", {"2nn": 1.0, "cnn_mcmahan": 1.0})
    few = datasets.load(str(digits))
    dataset = datasets.Dataset("digits", few.take(np.arange(6000) % 700), few.test)
    lines = [line for line in mcmahan2017.other_starts(dataset) if line.startswith("| ")][2:]
    assert len(lines) == 6 and all("| 0.1: (0." in line and "; 0.2: (0." in line for line in lines)
    losses = {json.loads(file.read_text())["history"][0][1] for file in tmp_path.glob("mcmahan2017/*.json")}
    assert len(losses) == 12  # two models, three starts, two rates
    model = models.build({"name": "cnn_mcmahan", "features": 784, "classes": 10})
    w = starts.weights("tutorial", model, np.random.default_rng(0))
    assert np.abs(w).max() <= np.float32(0.2) and (w == np.float32(0.1)).sum() >= 32 + 64 + 512 + 10
    np.testing.assert_allclose(w.std(), 0.088, atol=0.001)  # of a normal deviate of 0.1, cut at two


def test_figure_1_of_mcmahan(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    few = datasets.load(str(digits))
    dataset = datasets.Dataset("digits", few.take(np.arange(1200) % 700), few.test)
    lines = [*mcmahan2017.figure_1(dataset, tmp_path / "figure.png")][2:]
    found = {tuple(float(cell) for cell in line.split(" | ")[2:5]) for line in lines}
    assert len(lines) == len(found) == 6 and (tmp_path / "figure.png").exists()


def test_adams_moments_are_kept(digits):
    """Moments that are kept change Adam's second pass, not its first."""
    dataset = datasets.load(str(digits))
    for rounds, same in ((1, True), (2, False)):
        experiment = Experiment(dataset, 2, "balanced", 1, 1, processes=1)
        values = {"model": "logreg", "optimizer": "adam", "lr": 0.01, "batch_size": 32, "delta": 9.0, "rounds": rounds}
        ours = experiment.federated("dynavg", values, None)
        kept = reddy2020_differences.with_moments_kept(experiment, values, None)
        assert (ours["weights"] == kept["weights"]) is same


def test_every_node_takes_as_many_steps(digits):
    """Seven steps of 32 rows a pass at each of three nodes; the smallest has fewer rows and uses them again."""
    taken = []
    dataset = datasets.load(str(digits))
    step = local_training.optimizer

    def counted(local, rates, w_t):
        taken.append(0)
        own = step(local, rates, w_t)

        def one(w, g):
            taken[-1] += 1
            own(w, g)

        return one

    experiment = Experiment(dataset, 3, "size", 1, 1, processes=1)
    values = {"model": "logreg", "lr": 0.01, "batch_size": 32, "delta": 9.0, "rounds": 2}
    with mock.patch.object(local_training, "optimizer", counted):
        reddy2020_differences.in_a_circle(experiment, values, 7, None)
    assert taken == [7] * 6


def test_one_label_a_node(digits, tmp_path, monkeypatch):
    """The largest loss and its round, and the last round above guessing, are those of the run."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    few = datasets.load(str(digits))
    (line,) = [line for line in one_label.deep(few, False) if line.startswith("| SCAFFOLD")]
    (file,) = [f for f in tmp_path.glob("one_label/*.json") if '"scaffold"' in f.read_text()]
    losses = [row[1] for row in json.loads(file.read_text())["history"]]
    above = [t for t, loss in enumerate(losses, 1) if loss > math.log(10)]
    largest = max(losses)
    explosion = f"{largest:.2f} | {1 + losses.index(largest)} | {len(above)} | {above[-1] if above else '-'}"
    assert line.startswith(f"| SCAFFOLD | 1 | {explosion} | {losses[-1]:.2f} |")
