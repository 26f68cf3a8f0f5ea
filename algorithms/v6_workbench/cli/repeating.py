"""``--repeats R`` of ``run`` and ``compare``: R deals and splits of the same rows, means and intervals."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_workbench import registry
from v6_workbench.cli import console, results
from v6_workbench.cli.entries import Entry, errors_name, trainings
from v6_workbench.cli.experiment import check_evaluated
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.repeats import repeated

MOST = 1000
LEAK = (
    "each repeat holds out other rows, so that {repeats} repeats tell more about each row than one; on a real network, "
    "hospitals hold out the same rows in every job, and each repeat would be a job that counts against their limits"
)
FIXED = "the dataset's own test set is evaluated in every repeat; only the deal and the seed vary"


def check(repeats: int, methods: Mapping[str, Entry], experiment: Experiment) -> None:
    """Check a number of repeats before anything is trained.

    Args:
        repeats: the number.
        methods: what is to be repeated, by name.
        experiment: the experiment.

    Raises:
        SafeError: it is out of range, or a method has nothing to take a mean of.
    """
    if not 2 <= repeats <= MOST:
        raise SafeError(f"--repeats {repeats} is out of range; expected 2 to {MOST}")
    for name, entry in methods.items():
        if not registry.supervised(entry.method):
            raise SafeError(f"{name} trains no model whose accuracy could be repeated; remove --repeats")
    check_evaluated([entry.method for entry in methods.values()], experiment, "--repeats")
    if experiment.holdout == 0 and experiment.test is None:
        raise SafeError("--holdout 0 holds out no rows, and --repeats needs some; set for example --holdout 0.2")


def run(
    experiment: Experiment, methods: Mapping[str, Entry], repeats: int, out: Path | None, target: float | None
) -> int:
    """Train every method in every repeat, and show means with their intervals.

    Args:
        experiment: the experiment.
        methods: the entries, by name.
        repeats: how often.
        out: the folder of ``--out``: gets a folder for each repeat, and ``repeats.json``.
        target: accuracy to draw a line at.

    Returns:
        The exit status.
    """
    from v6_workbench.reporting import repeats as reporting

    found: dict[str, list[dict[str, Any]]] = {}
    nodes = len(experiment.named())
    rounds = sum(e.settings["rounds"] * (nodes if e.kind == "alone" else 1) for e in methods.values())
    with console.Bar(rounds * repeats, f"{repeats} repeats") as bar:
        for r, one in enumerate(repeated(experiment, repeats), start=1):
            number = 0
            for entry_name, entry in methods.items():
                for name, train in trainings(entry, entry_name, one).items():
                    number += 1
                    with errors_name(f"repeat {r}, {name}"):
                        result = train(entry.method, {**entry.settings, "seed": one.seed}, on_round=bar.on_round)
                    if out:
                        results.write(_folder(out, r, repeats, number, name, len(methods)), result, target, name)
                    if "stopped" in result:
                        return console.complain(console.FAILED, f"repeat {r}, {name}: {result['stopped']}")
                    found.setdefault(name, []).append(result)
    summed = reporting.as_json(found)
    if out:
        write_whole(out / "repeats.json", json.dumps(summed, indent=1))
    console.console().print(reporting.table(found))
    print(reporting.ESTIMATES)
    console.say(FIXED if experiment.test is not None else LEAK.format(repeats=repeats))
    lines = {
        name: {
            key: value
            for measure, spread in of.items()
            for key, value in ((measure, spread["mean"]), (f"{measure}_interval", [spread["low"], spread["high"]]))
            if value != [None, None]  # of two repeats there is none
        }
        for name, of in summed["results"].items()
    }
    console.last_line({"repeats": repeats, **lines})
    return console.OK


def _folder(out: Path, r: int, repeats: int, number: int, name: str, methods: int) -> Path:
    repeat = out / f"repeat-{r:0{len(str(repeats))}d}"
    return repeat if methods == 1 and number == 1 else repeat / results.folder_of(number, name)
