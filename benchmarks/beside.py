"""A model's first rounds in a federation, beside the same model on the pooled rows: a table and a picture."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks import pictures, runs, tables


@dataclass(frozen=True)
class Way:
    """A way to train.

    Attributes:
        run: runs it, or reads the kept run.
        passes: over all training rows in a round, in the mean.
    """

    run: Callable[[], runs.Run]
    passes: float


def lines(document: str, title: str, ways: Mapping[str, Way], full: bool) -> Iterator[str]:
    """Loss and accuracy by round, and accuracy by passes over the rows."""
    yield ""
    yield from tables.head("training", "round", "passes over the rows", "training loss", "test loss", "accuracy", "s")
    drawn: dict[str, pictures.Line] = {}
    for name, way in ways.items():
        try:
            history = way.run().history
        except runs.NotRun:
            yield tables.row(name, tables.NOT_RUN_YET, *[None] * 5)
            continue
        for row in history:
            losses = (f"{row[key]:.3f}" for key in ("train_loss", "loss"))
            passes = f"{way.passes * row['round']:g}"
            yield tables.row(name, row["round"], passes, *losses, f"{row['accuracy']:.4f}", f"{row['seconds']:.0f}")
        drawn[name] = [way.passes * row["round"] for row in history], [[row["accuracy"] for row in history]]
    picture = runs.RESULTS / f"{document}{'' if full else '-reduced'}.png"
    if pictures.curves({title: drawn}, picture, xlabel="passes over the training rows", bottom=0):
        yield ""
        yield f"![test accuracy by passes over the training rows]({picture.name})"
