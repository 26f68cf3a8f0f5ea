"""``v6-federated demo``: five mock hospitals."""

from typing import Any

from v6_workbench.cli import console, results, show
from v6_workbench.cli.options import DemoOptions
from v6_workbench.reporting import summary
from v6_workbench.simulation import datasets
from v6_workbench.simulation.experiments import Experiment

METHOD = "fedavg"
SETTINGS: dict[str, Any] = {"rounds": 30, "model": "logreg", "lr": 0.1, "batch_size": 10, "preprocess": ["standardize"]}


def run(options: DemoOptions) -> int:
    """Train across five mock hospitals, on their pooled rows, and at each hospital alone."""
    from v6_workbench.reporting import pictures, tables

    results.check_folder(options.out)
    experiment = Experiment(datasets.load("breast-cancer"), 5, "dirichlet:0.5", options.seed, options.seed)
    organizations = list(experiment.deal())
    trained = {}
    with console.Bar(SETTINGS["rounds"] * (2 + len(organizations)), "five mock hospitals") as bar:
        trained["federated"] = experiment.federated(METHOD, SETTINGS, bar.on_round)
        trained["centralized"] = experiment.centralized(METHOD, SETTINGS, bar.on_round)
        for organization in organizations:
            trained[f"hospital {organization} alone"] = experiment.alone(METHOD, SETTINGS, organization, bar.on_round)
    results.write(options.out, trained["federated"])
    picture = options.out / "comparison.png"
    pictures.write(pictures.curves(trained), picture)
    console.console().print(tables.table(trained))
    show.show_intervals(trained)
    gap = trained["federated"]["final"]["accuracy"] - trained["centralized"]["final"]["accuracy"]
    print(f"\nFederated minus centralized accuracy: {100 * gap:+.1f} percentage points. Picture: {picture}")
    lines = {name: summary.summary(result) for name, result in trained.items()}
    console.last_line({**lines.pop("federated"), **lines})
    return console.OK
