"""A round on a real vantage6 network: FedAvg against an algorithm that does nothing, in turn on the same network."""

import json
import statistics
from datetime import date
from typing import Any

from benchmarks import runs
from v6_federated.base import vantage6_api
from v6_workbench.cli import main as command_line
from v6_workbench.network import images, local, submit
from v6_workbench.simulation.datasets import Dataset

NAME, ROUNDS = "benchmark", 5
UP = ["network", "up", "--name", NAME, "--nodes", "3", "--data", "digits", "--split", "iid"]
FEDAVG = {"rounds": ROUNDS, "model": "logreg", "lr": 0.1, "seed": 1}
NOTHING = {"rounds": ROUNDS}


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep seconds a round and the sizes of the images. The data are scikit-learn's digits."""
    toy = images.ROOT / "tests" / "network" / "algorithms" / "v6_toy"
    images.build_method(images.Image("v6-toy", "v6_toy", "numpy"), source=toy)
    for image in images.listed().values():
        images.build_method(image)
    if command_line.main(UP):  # another network of this name is not ours to remove
        raise SystemExit(1)
    try:
        ours, theirs = _seconds(local.load(NAME), blocks=8 if full else 3)
    finally:
        local.down(NAME)
    engine = images.engine()
    sizes = {name: engine.images.get(name).attrs["Size"] / 1e6 for name in [*images.listed(), "v6-toy"]}
    lines = [
        "# What a round costs on a real network",
        "",
        f"`python -m benchmarks network{' --full' if full else ''}`, {runs.machine()}, {date.today().isoformat()}.",
        "",
        "A vantage6 server and three nodes on this machine, digits dealt `iid`. A round: three nodes are asked, each",
        f"starts a container, and all answers are back. {len(ours)} rounds of each, {ROUNDS} at a time in turn.",
        "",
        "| | median seconds a round | mean | fastest | slowest | ratio of medians | ratio of means |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        _row("FedAvg, logistic regression", ours, theirs),
        _row("an algorithm that does nothing", theirs, theirs),
        "",
        "| image | MB |",
        "| --- | --- |",
        *(f"| {name} | {size:.0f} |" for name, size in sizes.items()),
        "",
        "Images of one kind share all layers but the last. `v6-toy`, which does nothing, is of the kind without torch.",
    ]
    print("\n".join(lines))
    runs.write_table("network", "", lines)


def _row(name: str, seconds: list[float], base: list[float]) -> str:
    median, mean = statistics.median(seconds), statistics.mean(seconds)
    ratios = f"{median / statistics.median(base):.2f} | {mean / statistics.mean(base):.2f}"
    return f"| {name} | {median:.2f} | {mean:.2f} | {min(seconds):.2f} | {max(seconds):.2f} | {ratios} |"


def _seconds(found: local.Network, blocks: int) -> tuple[list[float], list[float]]:
    """Seconds of each round of FedAvg and of nothing, a block of each in turn; the first block does not count."""
    ours: list[float] = []
    theirs: list[float] = []
    for block in range(blocks + 1):
        rounds = [row["seconds"] for row in _result(found, "v6-fedavg", FEDAVG)["history"]]
        nothing = _result(found, "v6-toy", NOTHING)["seconds"]
        print(f"block {block} of {blocks}:", *(f"{s:.1f}" for s in rounds), "|", *(f"{s:.1f}" for s in nothing))
        if block:
            ours, theirs = ours + rounds, theirs + nothing
    return ours, theirs


def _result(found: local.Network, image: str, values: dict[str, Any]) -> dict[str, Any]:
    client = local.client(found)
    where: dict[str, Any] = {"collaboration": found.collaboration, "organization": 1, "label": found.label}
    task = submit.send(client, image, values, image=image, **where)
    vantage6_api.wait(client, task)
    return json.loads(client.result.from_task(task)["data"][0]["result"])
