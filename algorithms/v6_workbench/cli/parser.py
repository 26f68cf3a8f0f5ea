"""The parser of the command line: the commands of researchers, and those that operators run from an image as well."""

from typing import Any

from v6_federated.base.version import __version__
from v6_federated.operator import commands as operator
from v6_workbench.cli import options, records
from v6_workbench.cli.records import Command, Group, Parser

COMMANDS: tuple[Command | Group, ...] = (
    Command(
        "demo",
        options.DemoOptions,
        "v6_workbench.cli.commands.demo:run",
        help="Train across five mock hospitals, and compare with pooled rows and with each hospital alone.",
        example="demo",
    ),
    Command(
        "run",
        options.RunOptions,
        "v6_workbench.cli.commands.run:run",
        help="Run a method on mock nodes.",
        example="run fedavg --data digits --nodes 5 --partition dirichlet:0.5 --model 2nn --rounds 20 --out DIR",
    ),
    Command(
        "compare",
        options.CompareOptions,
        "v6_workbench.cli.commands.compare:run",
        help="Run several methods or settings on the same partition and seeds: one table, one picture.",
        example=(
            "compare fedavg:epochs=5 scaffold:epochs=5 centralized:fedavg:epochs=5 --data digits --rounds 20 --out DIR"
        ),
    ),
    Command(
        "tune",
        options.TuneOptions,
        "v6_workbench.cli.commands.tune:run",
        help="Try settings on a part of the training rows, and judge the best on rows that no try has seen.",
        example="tune fedavg --data wine --preprocess standardize --grid lr=0.01,0.1,1 --grid epochs=1,5 --out DIR",
    ),
    Command(
        "settings",
        options.SettingsOptions,
        "v6_workbench.cli.commands.settings:run",
        help="Show the settings of a method with their defaults; --set changes them.",
        example="settings fedavg",
    ),
    Command(
        "report",
        options.ReportOptions,
        "v6_workbench.cli.commands.report:run",
        help="Show results that have been written: a table and pictures.",
        example="report DIR/result.json --out DIR",
    ),
    Command(
        "export",
        options.ExportOptions,
        "v6_workbench.cli.commands.export:run",
        help="Write a result's model to a file.",
        example="export DIR/result.json --to model.npz",
    ),
    Command(
        "predict",
        options.PredictOptions,
        "v6_workbench.cli.commands.predict:run",
        help="Predict for new rows with a result or an exported model, preprocessing included.",
        example="predict model.npz --data rows.csv --out predictions.csv",
    ),
    Group(
        "privacy",
        (
            Command(
                "plan",
                options.PlanOptions,
                "v6_workbench.cli.commands.privacy:run",
                help="Show how much noise a privacy budget means for a job, and other ways to spend it.",
                example="privacy plan --epsilon 3 --delta 1e-5 --rows 2000 --hospitals 4 --rounds 100 --out DIR",
            ),
        ),
        "Plan a job under a privacy budget.",
    ),
    Command(
        "submit",
        options.SubmitOptions,
        "v6_workbench.cli.commands.submit:run",
        help="Send a method as a task to a vantage6 server, by default to the local network.",
        example="submit fedavg --model logreg --rounds 5 --seed 1 --out DIR",
    ),
    Command(
        "tasks",
        options.TasksOptions,
        "v6_workbench.cli.commands.tasks:list_tasks",
        help="List the newest tasks at a server or local network.",
        example="tasks --last 5",
    ),
    Command(
        "status",
        options.TaskOptions,
        "v6_workbench.cli.commands.tasks:status",
        help="Show how far a task is.",
        example="status 12",
    ),
    Command(
        "watch",
        options.WatchOptions,
        "v6_workbench.cli.commands.tasks:watch",
        help="Show the rounds of a task until it ends, then its result.",
        example="watch 12 --out DIR",
    ),
    Command(
        "fetch",
        options.FetchOptions,
        "v6_workbench.cli.commands.tasks:fetch",
        help="Bring the result of a task that has ended, as submit would have.",
        example="fetch 12 --out DIR",
    ),
    Command(
        "cancel",
        options.TaskOptions,
        "v6_workbench.cli.commands.tasks:cancel",
        help="Stop a task at all nodes. What they have already sent is not taken back.",
        example="cancel 12 --server https://server.org:443/api --username me --collaboration 1",
    ),
    *operator.COMMANDS,
    Command(
        "check",
        options.CheckOptions,
        "v6_workbench.cli.commands.check:run",
        help="Check that a method keeps the rules of the project: laws, faults, limits, resumption, bytes.",
        example="check fedavg",
    ),
    Group(
        "network",
        (
            Command(
                "up",
                options.UpOptions,
                "v6_workbench.cli.commands.network:up",
                help="Start a network; each node holds its part of the data.",
                example="network up --nodes 3 --data digits --partition iid",
            ),
            Command(
                "status",
                options.NetworkOptions,
                "v6_workbench.cli.commands.network:status",
                help="Show the server and the nodes of a network.",
                example="network status",
            ),
            Command(
                "down",
                options.NetworkOptions,
                "v6_workbench.cli.commands.network:down",
                help="Remove a network and everything that belongs to it.",
                example="network down",
            ),
        ),
        "Start, show or remove a real vantage6 server and nodes in Docker on this machine.",
    ),
)


def parse(arguments: list[str] | None) -> tuple[Command, Any]:
    """Read the words of the command line.

    Args:
        arguments: the words after ``v6-federated``; None takes them from the process.

    Returns:
        The command and its options.

    Raises:
        SystemExit: after ``--help``, or if options are wrong.
    """
    return records.parse(build(), arguments)


def build() -> Parser:
    """Build the parser of all commands."""
    parser = records.build(
        "v6-federated", COMMANDS, "Federated learning methods for hospitals: run, compare and export."
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser
