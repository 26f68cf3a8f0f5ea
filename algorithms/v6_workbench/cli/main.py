"""The command line ``v6-federated``. Progress goes to standard error; standard output ends with one line of JSON.

Exit status: 0, 1 (the work failed or a node refused) or 2 (the request was wrong); never a traceback.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from v6_federated.base.errors import SafeError
from v6_federated.base.version import __version__
from v6_workbench.cli.console import complain
from v6_workbench.errors import EngineError


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; `{self.prog} --help` shows what is right\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    folder, before = None, {}
    try:
        options = build_parser().parse_args(arguments)
        folder = getattr(options, "out", None)
        before = _results(folder)
        return options.command(options)
    except SafeError as error:
        return complain(2, error)
    except EngineError as error:
        return complain(1, error)
    except KeyboardInterrupt:
        written = _results(folder) != before  # by this command, not by one before it
        return complain(130, f"interrupted; what was finished is in {folder}" if written else "interrupted")
    except BrokenPipeError:  # whoever reads has seen enough, as `head`; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # requests' errors are of this kind and have no number
        what = error.strerror or f"{type(error).__name__}: {error}"
        what += f": {error.filename}" if error.strerror and error.filename else ""  # a full disk tells no name
        return complain(1, what)
    except Exception as error:
        if os.environ.get("V6_FEDERATED_DEBUG") == "1":
            raise
        if type(error).__module__.startswith("vantage6."):
            return complain(2 if type(error).__name__ == "UserInputError" else 1, error)
        return complain(1, f"{type(error).__name__}: {error} (V6_FEDERATED_DEBUG=1 shows where)")


def _results(folder: Path | None) -> dict[Path, int]:
    """The results in a command's folder, and when they were written."""
    files = (
        []
        if folder is None
        else [*folder.glob("result.json"), *folder.glob("*/result.json"), *folder.glob("folds.json")]
    )
    return {file: file.stat().st_mtime_ns for file in files}


def build_parser() -> Parser:
    """All commands with their options; each help ends with an example."""
    # half a second, pandas' mostly, in which Ctrl-C is to reach ``main`` and not the console script's import of it
    from v6_workbench.cli import commands, network_commands

    parser = Parser(
        prog="v6-federated",
        description="Federated learning methods for hospitals: run, compare and export.",
        epilog="example: v6-federated demo",
    )
    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, function: Callable[[Any], int], text: str, example: str) -> Parser:
        sub = subparsers.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example: v6-federated {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=function)
        return sub

    demo = command(
        "demo", commands.demo, "Train across five mock hospitals, against pooled rows and each hospital alone.", "demo"
    )
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="where files go (%(default)s)")
    demo.add_argument("--seed", type=_seed, default=0, help="seed of every random choice (%(default)s)")

    run = command(
        "run",
        commands.run,
        "Run a method on mock nodes.",
        "run fedavg --data digits --nodes 5 --partition dirichlet:0.5 --model 2nn --rounds 20 --out DIR",
    )
    run.add_argument("method", metavar="METHOD", help="a folder's name without v6_, for example fedavg")
    _add_job_options(run)
    _add_data_options(run)
    run.add_argument("--out", type=Path, metavar="DIR", help="folder for result.json and its pictures")
    run.add_argument(
        "--resume", type=Path, metavar="RESULT", help="go on from an earlier result.json, up to --rounds in all"
    )
    compare = command(
        "compare",
        commands.compare,
        "Run several methods or settings on the same partition and seeds: one table, one picture.",
        "compare fedavg:epochs=5 scaffold:epochs=5 centralized:fedavg:epochs=5 --data digits --rounds 20 --out DIR",
    )
    compare.add_argument(
        "methods",
        nargs="+",
        metavar="METHOD[:key=value,...]",
        help="a method with settings of its own; centralized:METHOD[:...] trains it on the pooled rows, alone:METHOD "
        "at each node on its own rows only",
    )
    _add_job_options(compare)
    _add_data_options(compare)
    compare.add_argument("--out", type=Path, metavar="DIR", help="folder for comparison.png and a result.json each")
    compare.add_argument(
        "--test",
        type=_iterations,
        nargs="?",
        const=1,
        metavar="I",
        help="I (1) times cross-validation and a Bayesian test of which is better; --out: test.json, posteriors.png, "
        "folds.json to go on from",
    )
    compare.add_argument("--folds", type=int, metavar="K", help="of the cross-validation (5)")
    compare.add_argument(
        "--rope",
        type=float,
        metavar="D",
        help="difference in accuracy, or R squared, up to which methods are practically equivalent (0.01)",
    )

    settings = command(
        "settings",
        commands.settings,
        "Show the settings of a method, which --set gives, with their defaults.",
        "settings fedavg",
    )
    settings.add_argument("method", metavar="METHOD", help="a folder's name without v6_, for example fedavg")

    report = command(
        "report",
        commands.report,
        "Show results that have been written: a table and a picture.",
        "report DIR/result.json --out DIR",
    )
    report.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="a result.json, or the folder it is in")
    report.add_argument("--target", type=float, metavar="A", help="accuracy to count the rounds to")
    report.add_argument("--out", type=Path, metavar="DIR", help="folder for the pictures")

    export = command(
        "export", commands.export, "Write a result's model to a file.", "export DIR/result.json --to model.npz"
    )
    export.add_argument("result", type=Path, metavar="RESULT", help="a result.json, or the folder it is in")
    export.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="FILE",
        help="model.npz, .safetensors or .pt; of trees also model.txt, LightGBM's",
    )

    predict = command(
        "predict",
        commands.predict,
        "Predict for new rows with a result or an exported model, preprocessing included.",
        "predict model.npz --data rows.csv --out predictions.csv",
    )
    predict.add_argument("model", type=Path, metavar="MODEL_OR_RESULT", help="a result.json, its folder, or a model")
    predict.add_argument(
        "--data", required=True, metavar="D", help="rows with the features' columns: .csv, .parquet, .npz"
    )
    predict.add_argument("--out", type=Path, required=True, metavar="FILE", help="the predictions, a .csv")
    predict.add_argument("--keep", metavar="A,B", help="columns of the rows to write beside, for example an identifier")

    submit = command(
        "submit",
        commands.submit,
        "Send a method as a task to a vantage6 server, the local network by default.",
        "submit fedavg --model logreg --rounds 5 --seed 1 --out DIR",
    )
    submit.add_argument("method", metavar="METHOD", help="a folder's name without v6_, for example fedavg")
    _add_job_options(submit)
    submit.add_argument("--out", type=Path, metavar="DIR", help="folder for result.json and its pictures")
    submit.add_argument(
        "--resume",
        metavar="RESULT|TASK",
        help="go on from an earlier result.json or a task's id, up to --rounds in all",
    )
    submit.add_argument("--image", help="the method's image (v6-METHOD)")
    submit.add_argument("--network", default="default", metavar="NAME", help="a local network (%(default)s)")
    submit.add_argument("--server", metavar="URL", help="another server, for example https://server.org:443/api")
    submit.add_argument("--username", help="at that server; the password is read from V6_FEDERATED_PASSWORD or asked")
    submit.add_argument("--collaboration", type=int, metavar="ID", help="at that server")
    submit.add_argument("--organization", type=int, metavar="ID", help="where central runs (the first)")
    submit.add_argument("--database", metavar="LABEL", help="label of the nodes' database (default)")
    submit.add_argument("--query", metavar="SQL", help="what to ask of an SQL or SPARQL database, where nodes allow it")
    submit.add_argument("--key", type=Path, metavar="FILE", help="private key, where the collaboration is encrypted")

    net = subparsers.add_parser(
        "network",
        help="A real vantage6 server and nodes in Docker on this machine.",
        description="A real vantage6 server and nodes in Docker on this machine.",
        epilog="example: v6-federated network up --nodes 3 --data digits --split iid",
    )
    actions = net.add_subparsers(required=True, metavar="ACTION", parser_class=Parser)
    for name, function, text in (
        ("up", network_commands.up, "Start a network; each node holds its part of the data."),
        ("status", network_commands.status, "Show the server and the nodes of a network."),
        ("down", network_commands.down, "Remove a network; nothing is left behind."),
    ):
        example = "network up --nodes 3 --data digits --split iid" if name == "up" else f"network {name}"
        action = actions.add_parser(name, help=text, description=text, epilog=f"example: v6-federated {example}")
        action.set_defaults(command=function)
        action.add_argument("--name", default="default", help="of the network (%(default)s)")
        if name == "up":
            _add_dealing_options(action, "--split")
            action.add_argument("--label", metavar="COLUMN", help="the label's column (the last)")
            action.add_argument("--port", type=int, help="the server's port (a free one)")
            action.add_argument("--encrypted", action="store_true", help="an encrypted collaboration")
            action.add_argument(
                "--node-env",
                action="append",
                default=[],
                metavar="[K:]NAME=VALUE",
                help="environment of the algorithms at every node, or at node K",
            )
    return parser


def _iterations(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        problem = f"{text!r} is no number of cross-validations; expected --test I, after the methods"
        raise argparse.ArgumentTypeError(problem) from None


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", metavar="M", help="logreg (where a method has none of its own), svm, fnn, ... or M:option=number"
    )
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="communication rounds (%(default)s)")
    parser.add_argument("--target", type=float, metavar="A", help="accuracy to count the rounds to")
    parser.add_argument("--stop-at-target", action="store_true", help="end the training once the target is reached")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the method")
    parser.add_argument(
        "--preprocess",
        action="append",
        metavar="STEP",
        help="impute[:median], onehot, clip:0.01, standardize or pca:K, fitted over all nodes; may be given again",
    )
    parser.add_argument("--label", metavar="COLUMN", help="the label's column (the last)")
    parser.add_argument("--features", metavar="A,B,C", help="the features' columns (all others)")
    parser.add_argument(
        "--holdout",
        type=float,
        metavar="SHARE",
        help="share of rows kept for evaluation (0.2; of a resumed job as before)",
    )
    parser.add_argument("--seed", type=_seed, help="seed of every random choice (0; of a resumed job as before)")


def _seed(text: str) -> int:
    from v6_federated.messages.settings import LARGE

    if not text.isdecimal() or int(text) > LARGE:
        raise argparse.ArgumentTypeError(f"{text} is refused; expected a whole number from 0 to {LARGE}")
    return int(text)


def _add_data_options(parser: argparse.ArgumentParser) -> None:
    _add_dealing_options(parser, "--partition")
    parser.add_argument(
        "--speeds",
        type=float,
        metavar="TIMES",
        help="simulated nodes, the slowest so many times slower than the fastest",
    )
    parser.add_argument(
        "--exclude", metavar="A,B", help="columns that are no features, for example an identifier of patients"
    )
    parser.add_argument(
        "--processes", type=int, metavar="P", help="worker processes (one a processor; 1 for small data)"
    )
    parser.add_argument(
        "--node-env", action="append", default=[], metavar="NAME=VALUE", help="environment of every node: its policy"
    )


def _add_dealing_options(parser: argparse.ArgumentParser, partition: str) -> None:
    parser.add_argument(
        "--data",
        required=True,
        action="append",
        metavar="D",
        help="breast-cancer, diabetes, digits, wine, or a .csv, .parquet or .npz; tables given one by one are a node's "
        "each, named as their files",
    )
    parser.add_argument("--nodes", type=int, metavar="K", help="number of nodes (5; as many as column:NAME names)")
    parser.add_argument(
        partition, dest="partition", metavar="P", help="iid, shards, dirichlet:0.5, column:hospital, ... (iid)"
    )
    parser.add_argument(
        "--partition-seed", type=_seed, default=0, metavar="S", help="seed of the partition (%(default)s)"
    )


if __name__ == "__main__":
    sys.exit(main())
