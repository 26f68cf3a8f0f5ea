"""McMahan et al. 2017, Figures 3, 6 and 8 with the 2NN: the loss of the global model on all training rows, by round.

The paper draws the CNN (Figures 6 and 8) and the LSTM (Figure 3), and says of Figure 6 that all three models behave
alike. A run has as many rounds as a core trains in minutes, so lines with much local computation are short.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import pictures, runs, tables
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "mcmahan2017_figures"
RATES_8 = {"iid": 0.215, "shards": 0.1}  # those of the paper's Figure 8
# E: rounds; B = 10
ROUNDS_8 = {1: 100, 5: 100, 25: 40, 50: 25, 100: 15, 200: 8, 400: 8}
HOURS_8 = (400,)  # not run unless it is kept
DECAYS: dict[str, dict[str, float]] = {
    "E = 25, falling": {"epochs_decay_round": 0.93},
    "E = 25, B growing": {"batch_size_growth_round": 1.075},
}
# B: E: rounds
ROUNDS_6: dict[int | None, dict[int, int]] = {
    10: {1: 200, 10: 60, 20: 30},
    50: {1: 400, 10: 100, 20: 60},
    None: {1: 1000, 10: 300, 20: 200},
}
LOSSES_8, MARKS_6 = (0.2, 0.1, 0.05, 0.02, 0.01), (10, 20, 60, 100, 200, 1000)
FEW = 3  # rounds of a run without --full


@dataclass(frozen=True)
class Curve:
    """A line of a figure.

    Attributes:
        name: what the picture calls it.
        partition: how rows are dealt.
        settings: E, B, the rate, the decay, and the rounds.
        every: rounds from one evaluation to the next.
        tried: whether it is run if it is not kept.
    """

    name: str
    partition: str
    settings: Mapping[str, Any]
    every: int = 1
    tried: bool = True

    def losses(self, dataset: Dataset, full: bool) -> tuple[Sequence[int], Sequence[float]]:
        """Rounds and the loss on all training rows after each.

        Raises:
            NotRun: it is not kept, and must not be run now.
        """
        rounds, every = (self.settings["rounds"], self.every) if full else (FEW, 1)
        values = {"model": "2nn", "fraction": 0.1, **self.settings, "rounds": rounds, "evaluate_every": every}
        experiment = Experiment(dataset, 100, self.partition, 1, 1)
        history = runs.kept(DOCUMENT, "fedavg", experiment, values, segment=every * 10, new=self.tried).history
        found = [(row["round"], row["loss"]) for row in history if row["loss"] is not None]
        return [t for t, _ in found], [loss for _, loss in found]


def figure_8() -> list[Curve]:
    """Many epochs between two means, and fewer from round to round."""
    curves = []
    for partition, lr in RATES_8.items():
        fixed = {"batch_size": 10, "lr": lr}
        for E, rounds in ROUNDS_8.items():
            values = {**fixed, "epochs": E, "rounds": rounds}
            curves.append(Curve(f"E = {E}", partition, values, tried=E not in HOURS_8))
        for name, decay in DECAYS.items():
            curves.append(Curve(name, partition, {**fixed, "epochs": 25, **decay, "rounds": ROUNDS_8[25]}))
    return curves


def figure_6() -> list[Curve]:
    """E and B as in the paper's Figure 7, each with the rate that was best for its rounds to 97%."""
    curves = []
    for partition in ("iid", "shards"):
        for B, rounds_of in ROUNDS_6.items():
            for E, rounds in rounds_of.items():
                lr = 0.464 if B is None and (partition == "iid" or E == 1) else 0.215
                values = {"batch_size": B, "lr": lr, "epochs": E, "rounds": rounds}
                if B is None:  # at the edge of stability a node's update may be 250 times as long as the others'
                    values["maximum_norm_ratio"] = 1e6
                every = 5 if rounds < 400 else 20
                curves.append(Curve(f"E = {E}, B = {B or 'all'}", partition, values, every))
    return curves


def table_8(dataset: Dataset, full: bool) -> Iterator[str]:
    """Rounds to a loss, by E."""
    found = dict[tuple[str, str], tuple[Sequence[int], Sequence[float]]]()
    yield "**Figures 3 and 8.** B = 10, C = 0.1, and the rates of Figure 8. Rounds until the training loss is at most:"
    yield ""
    yield from tables.head("rows", "rate", "local training", *map(str, LOSSES_8), "rounds", "last loss", "lowest")
    for curve in figure_8():
        if not full and curve.settings["epochs"] > 5:
            continue
        known = curve.partition, curve.settings["lr"], curve.name
        try:
            rounds, losses = found[curve.name, curve.partition] = curve.losses(dataset, full)
        except runs.NotRun:
            absent = tables.NOT_RUN_YET if curve.tried else "not tried"
            yield tables.row(*known, absent, *[None] * (len(LOSSES_8) + 2))
            continue
        reached = [next((t for t, x in zip(rounds, losses, strict=True) if x <= most), None) for most in LOSSES_8]
        yield tables.row(*known, *reached, rounds[-1], f"{losses[-1]:.4f}", f"{min(losses):.4f}")
    yield from picture(found, "8", full)


def table_6(dataset: Dataset, full: bool) -> Iterator[str]:
    """The training loss by round, by E and B."""
    found = dict[tuple[str, str], tuple[Sequence[int], Sequence[float]]]()
    yield ""
    yield "**Figure 6.** C = 0.1, and for each line the rate that took the fewest rounds to 97%"
    yield "([results](mcmahan2017.md)). Training loss after round:"
    yield ""
    yield from tables.head("rows", "local training", "rate", *map(str, MARKS_6), "rounds", "last loss")
    for curve in figure_6():
        if not full and curve.settings["epochs"] > 1:
            continue
        known = curve.partition, curve.name, curve.settings["lr"]
        try:
            rounds, losses = found[curve.name, curve.partition] = curve.losses(dataset, full)
        except runs.NotRun:
            yield tables.row(*known, tables.NOT_RUN_YET, *[None] * (len(MARKS_6) + 1))
            continue
        after = dict(zip(rounds, losses, strict=True))
        shown = (f"{after[t]:.4f}" if t in after else None for t in MARKS_6)
        yield tables.row(*known, *shown, rounds[-1], f"{losses[-1]:.4f}")
    yield from picture(found, "6", full)


def picture(
    found: Mapping[tuple[str, str], tuple[Sequence[int], Sequence[float]]], figure: str, full: bool
) -> Iterator[str]:
    """Draw the lines, a panel for each partition."""
    panels = dict[str, dict[str, pictures.Line]]()
    for (name, partition), (rounds, losses) in found.items():
        panels.setdefault(f"2NN, {partition}", {})[name] = rounds, [losses]
    file = f"{DOCUMENT}-{figure}{'' if full else '-reduced'}.png"
    names = [*dict.fromkeys(name for name, _ in found)]
    label = "loss on all training rows"
    if pictures.curves(panels, runs.RESULTS / file, ylabel=label, log=figure == "6", losses=True, names=names):
        yield ""
        yield f"![training loss by round, Figure {figure}]({file})"


def on_training_rows(dataset: Dataset) -> Dataset:
    """The training rows, on which the global model is evaluated too."""
    assert isinstance(dataset.rows, tuple)
    return Dataset(f"{dataset.name}-training", dataset.rows, dataset.rows)


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables and pictures."""
    rows = on_training_rows(dataset if full else runs.first(dataset))
    about = (
        "The loss of the global model on all training rows, one run each, seed 1. The paper shows these figures for "
        "other models and prints no numbers for them, so nothing is counted."
    )
    about += "" if full else f" A few rounds and lines, {runs.FIRST}."

    def lines() -> Iterator[str]:
        yield from table_8(rows, full)
        yield from table_6(rows, full)

    most = len([curve for curve in (*figure_8(), *figure_6()) if curve.tried])
    title = "McMahan et al. 2017, Figures 3, 6 and 8 with the 2NN"
    tables.page(tables.Page(DOCUMENT, title, full, about), lines(), most)
