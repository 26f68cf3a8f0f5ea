"""A round on a real vantage6 network: FedAvg and an algorithm that does nothing, in turn on the same network."""

import json
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import tables
from v6_federated.base import vantage6_api
from v6_workbench.cli import main as command_line
from v6_workbench.network import images, local, submit
from v6_workbench.simulation.datasets import Dataset

NAME, ROUNDS = "benchmark", 5
UP = ["network", "up", "--name", NAME, "--nodes", "3", "--data", "digits", "--partition", "iid"]
FEDAVG = {"rounds": ROUNDS, "model": "logreg", "lr": 0.1, "seed": 1}
NOTHING = {"rounds": ROUNDS}
ABOUT = (
    "A vantage6 server and three nodes on this machine, digits dealt `iid`. In a round three nodes are asked, each "
    "starts a container, and all answers come back. Images of one kind share all layers except the last; `v6-toy`, "
    "which does nothing, is of the kind without torch."
)


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep seconds a round and the sizes of the images. The data are scikit-learn's digits."""
    toy = images.ROOT / "tests" / "network" / "algorithms" / "v6_toy"
    images.build_method(images.Image("v6-toy", toy))
    for image in images.listed().values():
        images.build_method(image)
    if command_line.main(UP):  # a network of this name that runs already is not ours to remove
        raise SystemExit(1)
    try:
        ours, theirs = _seconds(local.load(NAME), blocks=8 if full else 3)
    finally:
        local.down(NAME)
    engine = images.engine()
    sizes = {name: engine.images.get(name).attrs["Size"] / 1e6 for name in [*images.listed(), "v6-toy"]}
    tables.page(
        tables.Page("network", "What a round costs on a real network", full, ABOUT, "", timed=True),
        _lines(ours, theirs, sizes),
    )


def _lines(ours: list[float], theirs: list[float], sizes: dict[str, float]) -> Iterator[str]:
    yield f"{len(ours)} rounds of each, {ROUNDS} at a time in turn."
    yield ""
    columns = "median seconds a round", "mean", "fastest", "slowest", "ratio of medians", "ratio of means"
    yield from tables.head("", *columns)
    yield _row("FedAvg, logistic regression", ours, theirs)
    yield _row("an algorithm that does nothing", theirs, theirs)
    yield ""
    yield from tables.head("image", "MB")
    for name, size in sizes.items():
        yield tables.row(name, f"{size:.0f}")


def _row(name: str, seconds: list[float], base: list[float]) -> str:
    median, mean = statistics.median(seconds), statistics.mean(seconds)
    ratios = median / statistics.median(base), mean / statistics.mean(base)
    return tables.row(name, *(f"{number:.2f}" for number in (median, mean, min(seconds), max(seconds), *ratios)))


def _seconds(found: local.Network, blocks: int) -> tuple[list[float], list[float]]:
    """Seconds of each round of FedAvg and of doing nothing, a block of each in turn; the first block does not count."""
    ours: list[float] = []
    theirs: list[float] = []
    for block in range(blocks + 1):
        rounds = [row["seconds"] for row in result_of(found, "v6-fedavg", FEDAVG)["history"]]
        nothing = result_of(found, "v6-toy", NOTHING)["seconds"]
        print(f"block {block} of {blocks}:", *(f"{s:.1f}" for s in rounds), "|", *(f"{s:.1f}" for s in nothing))
        if block:
            ours, theirs = ours + rounds, theirs + nothing
    return ours, theirs


def result_of(found: local.Network, image: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Send a job, and wait for its result."""
    client = local.client(found)
    where: dict[str, Any] = {"collaboration": found.collaboration, "organization": 1, "label": found.label}
    task = submit.send(client, image, dict(values), image=image, **where)
    vantage6_api.wait_for_any(client, [task])
    return json.loads(client.result.from_task(task)["data"][0]["result"])
