"""The command line ``v6-federated``. Progress goes to standard error; standard output ends with one line of JSON.

Exit status: 0, 1 (the work failed or a node refused) or 2 (the request was wrong); never a traceback.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import v6_federated
from v6_federated import network_commands
from v6_federated.errors import SafeError

DEMO = {"rounds": 30, "model": "logreg", "lr": 0.1, "batch_size": 10, "preprocess": ["standardize"]}


# settings that have an option of their own
OWN_OPTION = {name: name for name in ("rounds", "model", "seed", "label", "features", "holdout", "preprocess")}
OWN_OPTION |= {"target": "target A --stop-at-target"}


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; `{self.prog} --help` shows what is right\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        return options.command(options)
    except SafeError as error:
        return _complain(2, error)
    except KeyboardInterrupt:
        return _complain(130, "interrupted; nothing was written")
    except OSError as error:
        return _complain(1, f"{error.strerror}: {error.filename}")
    except Exception as error:
        if os.environ.get("V6_FEDERATED_DEBUG") == "1":
            raise
        if type(error).__name__ in ("EngineError", "NetworkError"):
            return _complain(1, error)
        if type(error).__module__.startswith("vantage6."):
            return _complain(2 if type(error).__name__ == "UserInputError" else 1, error)
        return _complain(1, f"{type(error).__name__}: {error} (V6_FEDERATED_DEBUG=1 shows where)")


def _complain(status: int, problem: object) -> int:
    print(f"v6-federated: {' '.join(str(problem).split())}", file=sys.stderr)
    return status


def build_parser() -> Parser:
    """All commands with their options; each help ends with an example."""
    parser = Parser(
        prog="v6-federated",
        description="Federated learning methods for hospitals: run, compare and export.",
        epilog="example: v6-federated demo",
    )
    parser.add_argument("--version", action="version", version=v6_federated.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, function: Callable[[Any], int], text: str, example: str) -> Parser:
        sub = commands.add_parser(
            name, help=text, description=text, epilog=f"example: v6-federated {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        sub.set_defaults(command=function)
        return sub

    demo = command(
        "demo", _demo, "Train across five mock hospitals, against pooled rows and each hospital alone.", "demo"
    )
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="where files go (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="seed of every random choice (%(default)s)")

    run = command(
        "run", _run, "Run a method on mock nodes.",
        "run fedavg --data digits --nodes 5 --partition dirichlet:0.5 --model 2nn --rounds 20 --out DIR",
    )  # fmt: skip
    run.add_argument("method", metavar="METHOD", help="a folder's name without v6_, for example fedavg")
    _add_job_options(run)
    _add_data_options(run)
    run.add_argument("--out", type=Path, metavar="DIR", help="folder for result.json and curves.png")
    run.add_argument(
        "--resume", type=Path, metavar="RESULT", help="go on from an earlier result.json, up to --rounds in all"
    )
    run.add_argument(
        "--speeds",
        type=float,
        metavar="TIMES",
        help="simulated nodes, the slowest so many times slower than the fastest",
    )

    compare = command(
        "compare", _compare, "Run several methods or settings on the same partition and seeds: one table, one picture.",
        "compare fedavg fedavg:epochs=5,batch_size=10 centralized:fedavg --data digits --rounds 20 --out DIR",
    )  # fmt: skip
    compare.add_argument(
        "methods", nargs="+", metavar="METHOD[:key=value,...]",
        help="a method with settings of its own; centralized:METHOD[:...] trains it on the pooled rows",
    )  # fmt: skip
    _add_job_options(compare)
    _add_data_options(compare)
    compare.add_argument("--out", type=Path, metavar="DIR", help="folder for comparison.png and a result.json each")
    compare.add_argument(
        "--test", type=int, nargs="?", const=1, metavar="I",
        help="I (1) times cross-validation and a Bayesian test of which is better; --out: test.json, posteriors.png",
    )  # fmt: skip
    compare.add_argument("--folds", type=int, default=5, metavar="K", help="of the cross-validation (%(default)s)")
    compare.add_argument(
        "--rope", type=float, default=0.01, metavar="D",
        help="difference in accuracy up to which methods are practically equivalent (%(default)s)",
    )  # fmt: skip

    report = command(
        "report",
        _report,
        "Show results that have been written: a table and a picture.",
        "report DIR/result.json --out DIR",
    )
    report.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="a result.json, or the folder it is in")
    report.add_argument("--target", type=float, metavar="A", help="accuracy to count the rounds to")
    report.add_argument("--out", type=Path, metavar="DIR", help="folder for curves.png and comparison.png")

    export = command("export", _export, "Write a result's model to a file.", "export DIR/result.json --to model.npz")
    export.add_argument("result", type=Path, metavar="RESULT", help="a result.json, or the folder it is in")
    export.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="FILE",
        help="model.npz, .safetensors or .pt; of trees model.txt, LightGBM's",
    )

    predict = command(
        "predict", _predict, "Predict for new rows with a result or an exported model, preprocessing included.",
        "predict model.npz --data rows.csv --out predictions.csv",
    )  # fmt: skip
    predict.add_argument("model", type=Path, metavar="MODEL_OR_RESULT", help="a result.json, its folder, or a model")
    predict.add_argument(
        "--data", required=True, metavar="D", help="rows with the features' columns: .csv, .parquet, .npz"
    )
    predict.add_argument("--out", type=Path, required=True, metavar="FILE", help="the predictions, a .csv")

    submit = command(
        "submit", _submit, "Send a method as a task to a vantage6 server, the local network by default.",
        "submit fedavg --model logreg --rounds 5 --seed 1 --out DIR",
    )  # fmt: skip
    submit.add_argument("method", metavar="METHOD", help="a folder's name without v6_, for example fedavg")
    _add_job_options(submit)
    submit.add_argument("--out", type=Path, metavar="DIR", help="folder for result.json and curves.png")
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
    submit.add_argument("--key", type=Path, metavar="FILE", help="private key, where the collaboration is encrypted")

    net = commands.add_parser(
        "network", help="A real vantage6 server and nodes in Docker on this machine.",
        description="A real vantage6 server and nodes in Docker on this machine.",
        epilog="example: v6-federated network up --nodes 3 --data digits --split iid",
    )  # fmt: skip
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
                "--node-env", action="append", default=[], metavar="[K:]NAME=VALUE",
                help="environment of the algorithms at every node, or at node K",
            )  # fmt: skip
    return parser


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
        "--holdout", type=float, default=0.2, metavar="SHARE", help="share of rows kept for evaluation (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of every random choice (%(default)s)")


def _add_data_options(parser: argparse.ArgumentParser) -> None:
    _add_dealing_options(parser, "--partition")
    parser.add_argument(
        "--processes", type=int, metavar="P", help="worker processes (one a processor; 1 for small data)"
    )
    parser.add_argument(
        "--node-env", action="append", default=[], metavar="NAME=VALUE", help="environment of every node: its policy"
    )


def _add_dealing_options(parser: argparse.ArgumentParser, partition: str) -> None:
    parser.add_argument(
        "--data", required=True, metavar="D", help="breast-cancer, diabetes, digits, wine, or a .csv, .parquet or .npz"
    )
    parser.add_argument("--nodes", type=int, metavar="K", help="number of nodes (5; as many as column:NAME names)")
    parser.add_argument(
        partition, dest="partition", default="iid", metavar="P",
        help="iid, shards, dirichlet:0.5, column:hospital, ... (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--partition-seed", type=int, default=0, metavar="S", help="seed of the partition (%(default)s)"
    )


# ---- commands


def _demo(options: Any) -> int:
    from v6_federated import datasets, experiments, report

    experiment = experiments.Experiment(datasets.load("breast-cancer"), 5, "dirichlet:0.5", options.seed, options.seed)
    organizations = list(experiment.deal())
    results = {}
    with _Bar(DEMO["rounds"] * (2 + len(organizations)), "five mock hospitals") as bar:  # type: ignore[operator]
        results["federated"] = experiment.federated("fedavg", DEMO, bar.on_round)
        results["centralized"] = experiment.centralized("fedavg", DEMO, bar.on_round)
        for organization in organizations:
            results[f"hospital {organization} alone"] = experiment.alone("fedavg", DEMO, organization, bar.on_round)
    _write(options.out, results["federated"])
    report.curves(results, options.out / "comparison.png")
    _console().print(report.table(results))
    gap = results["federated"]["final"]["accuracy"] - results["centralized"]["final"]["accuracy"]
    print(
        f"\nFederated minus centralized accuracy: {100 * gap:+.1f} points. Pictures: {options.out / 'comparison.png'}"
    )
    lines = {name: experiments.summary(result) for name, result in results.items()}
    _last_line({**lines.pop("federated"), **lines})
    return 0


def _run(options: Any) -> int:
    experiment, values = _experiment(options)
    if options.speeds is not None:
        experiment = replace(experiment, slowest=options.speeds)
    if options.resume:
        values["resume"] = _read(options.resume)
    _check(options.method, values, experiment)
    _check_folder(options.out)
    with _Bar(options.rounds, options.method) as bar:
        result = experiment.federated(options.method, values, bar.on_round)
    return _finish(result, options)


def _finish(result: dict[str, Any], options: Any) -> int:
    """Write the files, show the rounds, end with the line of JSON."""
    from v6_federated import experiments, report

    if options.out:
        _write(options.out, result, options.target)
    _console().print(report.rounds_table(result))
    if (result["final"] or {}).get("evaluated") == 0:
        print(
            "nothing was evaluated: no rows were held out, or too few for the nodes' policy to count them",
            file=sys.stderr,
        )
    losses = [row["loss"] for row in result["history"] if row["loss"] is not None]
    if len(losses) > 1 and losses[-1] > losses[0]:
        print("the loss has grown: a smaller lr, or --preprocess standardize, may help", file=sys.stderr)
    if options.target is not None:
        reached = experiments.rounds_to_target(result, options.target)
        print(f"accuracy {options.target:g}: " + (f"reached after {reached:.1f} rounds" if reached else "not reached"))
    _last_line(experiments.summary(result, options.target))
    if "stopped" in result:
        finished = len(result["history"])
        kept = f"; --resume {options.out} goes on from there" if options.out else ""
        return _complain(1, f"{result['stopped']}; the model is that of round {finished}{kept}")
    return 0


def _submit(options: Any) -> int:
    from v6_federated import experiments, models, settings

    features = _features(options)
    common = {"seed": options.seed, "label": options.label, "features": features, "holdout": options.holdout}
    values = {**common, **job_values(options)}
    if options.resume is not None and not options.resume.isdigit():
        values["resume"] = _read(Path(options.resume))
    checked = settings.validate(experiments.settings_of(options.method), values)
    models.parse(checked.model)  # type: ignore[attr-defined]
    _check_folder(options.out)
    with _Bar(options.rounds, options.method) as bar:
        result = network_commands.submit(options, values, bar.on_round)
    return _finish(result, options)


def _compare(options: Any) -> int:
    from v6_federated import experiments, report

    experiment, values = _experiment(options)
    _check_folder(options.out)
    jobs: dict[str, tuple[bool, str, dict[str, Any]]] = {}
    for text in options.methods:
        central, method, own = _method_with_settings(text)
        name = text
        while name in jobs:
            name += " again"
        _check(method, {**values, **own}, experiment)
        jobs[name] = (central, method, {**values, **own})
    if options.test is not None:
        return _test(experiment, jobs, options)
    results = {}
    with _Bar(sum(v["rounds"] for _, _, v in jobs.values()), "compare") as bar:
        for name, (central, method, own) in jobs.items():
            train = experiment.centralized if central else experiment.federated
            results[name] = train(method, own, bar.on_round)
    if options.out:
        for i, (name, result) in enumerate(results.items(), start=1):
            _write(options.out / f"{i}-{name.replace(':', '-').replace('/', '-')}", result, options.target)
        report.comparison(results, options.out / "comparison.png", options.target)
    _console().print(report.table(results, options.target))
    _last_line({name: experiments.summary(result, options.target) for name, result in results.items()})
    for name, result in results.items():
        if "stopped" in result:
            return _complain(1, f"{name}: {result['stopped']}")
    return 0


def _test(experiment: Any, jobs: Mapping[str, tuple[bool, str, dict[str, Any]]], options: Any) -> int:
    """``compare --test``: every method on every fold; signs, posteriors, and the scores in a file."""
    from v6_federated import report, significance

    folds = significance.experiments_of(experiment, options.test, options.folds)
    if len(jobs) < 2 or not 0 <= options.rope < 1:
        significance.verdicts({name: [0.0, 0.0] for name in jobs}, 1, options.rope)  # says what is wrong with them
    scores: dict[str, list[float]] = {name: [] for name in jobs}
    results: dict[str, Any] = {}
    with _Bar(len(folds) * sum(v["rounds"] for _, _, v in jobs.values()), "compare --test") as bar:
        for one in folds:
            for name, (central, method, own) in jobs.items():
                results[name] = (one.centralized if central else one.federated)(method, own, bar.on_round)
                if "stopped" in results[name]:
                    return _complain(1, f"{name}: {results[name]['stopped']}")
                scores[name].append(significance.score(results[name]))
    found = significance.verdicts(scores, options.test, options.rope)
    what = report.NAMES[report.measure(results)]
    _console().print(report.signs(found, scores))
    tested = {
        "folds": options.folds, "iterations": options.test, "rope": options.rope, "seed": options.seed,
        "partition_seed": options.partition_seed, "measure": what, "scores": scores,
        "pairs": [
            {"first": a, "second": b, "difference": v.difference, "better": v.better, "equal": v.equal,
             "worse": v.worse, "sign": v.sign}
            for (a, b), v in found.items()
        ],
    }  # fmt: skip
    if options.out:
        (options.out / "test.json").write_text(json.dumps(tested, indent=1))
        report.posteriors(found, options.rope, options.out / "posteriors.png", what)
    _last_line({key: tested[key] for key in ("iterations", "folds", "rope", "pairs")})
    return 0


def _report(options: Any) -> int:
    from v6_federated import experiments, report

    _check_target(options.target)
    results = {str(path): _read(path) for path in dict.fromkeys(options.results)}
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        report.curves(results, options.out / "curves.png", options.target)
        report.comparison(results, options.out / "comparison.png", options.target)
        for i, result in enumerate(results.values(), start=1):
            report.distances(result, options.out / f"distances{'' if len(results) == 1 else f'-{i}'}.png")
    for name, result in results.items():
        if len(results) == 1:
            _console().print(report.rounds_table(result))
        print(f"{name}: {result['method']}, {json.dumps(result.get('experiment', {}))}")
    _console().print(report.table(results, options.target))
    _last_line({name: experiments.summary(result, options.target) for name, result in results.items()})
    return 0


def _export(options: Any) -> int:
    from v6_federated import export

    export.save(_read(options.result), options.to)
    _last_line({"model": str(options.to)})
    return 0


def _predict(options: Any) -> int:
    from v6_federated import data, datasets, export

    if options.out.suffix != ".csv" or not options.out.parent.is_dir():
        raise SafeError(f"--out {options.out} is refused; expected a .csv in a folder that is there")
    exported = options.model.suffix in (".npz", ".safetensors", ".pt")
    model = export.load(options.model) if exported else _read(options.model)
    rows = datasets.load(options.data).rows
    source = data.Source(X=rows[0], y=rows[1]) if isinstance(rows, tuple) else data.Source(table=rows)
    table, measured = export.predict(model, source)
    table.to_csv(options.out, index=False)
    _last_line({"predictions": str(options.out), "rows": len(table), **measured})
    return 0


# ---- requests


def _experiment(options: Any) -> tuple[Any, dict[str, Any]]:
    """The experiment and the method's settings that the options ask for."""
    from v6_federated import datasets, experiments, partitions

    values = job_values(options)
    partitions.check(options.partition)
    for name, least in (("nodes", 1), ("processes", 1)):
        if getattr(options, name) is not None and getattr(options, name) < least:
            raise SafeError(f"--{name} {getattr(options, name)} is refused; expected at least {least}")
    nodes = options.nodes if options.nodes or options.partition.startswith("column:") else 5
    environment = dict(_pair(text, "--node-env") for text in options.node_env)
    dataset = datasets.load(options.data)
    features = _features(options)
    experiment = experiments.Experiment(
        dataset, nodes, options.partition, options.seed, options.partition_seed, options.label, features,
        options.holdout, options.processes, environment,
    )  # fmt: skip
    return experiment, values


def job_values(options: Any) -> dict[str, Any]:
    """The settings of a job that the options name. Raises SafeError."""
    _check_target(options.target)
    if options.stop_at_target and options.target is None:
        raise SafeError("--stop-at-target needs a target; expected for example --target 0.97")
    values: dict[str, Any] = {"rounds": options.rounds}
    if options.model is not None:
        values["model"] = options.model
    if options.stop_at_target:
        values["target"] = options.target
    if options.preprocess:
        values["preprocess"] = options.preprocess
    for text in options.set:
        key, value = _pair(text, "--set")
        if key in OWN_OPTION:
            raise SafeError(f"--set {key} is refused; expected --{OWN_OPTION[key]}, which says the same")
        if key in values:
            raise SafeError(f"--set {key} is given twice; expected once")
        values[key] = _value(value)
    return values


def _check(method: str, values: Mapping[str, Any], experiment: Any) -> None:
    """Refuse what can be seen to be wrong before anything starts."""
    from v6_federated import experiments, models, settings

    accepted = experiments.settings_of(method)
    checked = settings.validate(accepted, {**experiment.common(), "holdout": experiment.holdout, **values})
    models.parse(checked.model)  # type: ignore[attr-defined]
    steps = values.get("preprocess") or (values.get("resume") or {}).get("data", {}).get("preprocess")
    regression = getattr(checked, "objective", None) == "regression"
    experiment.check(steps=bool(steps), supervised=experiments.supervised(method), regression=regression)
    experiment.deal()


def _features(options: Any) -> list[str] | None:
    return [name.strip() for name in options.features.split(",")] if options.features else None


def _method_with_settings(text: str) -> tuple[bool, str, dict[str, Any]]:
    central = text.startswith("centralized:")
    method, _, own = text.removeprefix("centralized:").partition(":")
    return (
        central,
        method,
        {k: _value(v) for k, v in (_pair(pair, text) for pair in re.split(r",(?=\w+=)", own) if own)},
    )


def _pair(text: str, where: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SafeError(f"{where} {text!r} is refused; expected KEY=VALUE, for example lr=0.1")
    return key.strip(), value.strip()


def _value(text: str) -> Any:
    if text.lower() in ("none", "null"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_target(target: float | None) -> None:
    if target is not None and not 0 < target <= 1:
        raise SafeError(f"--target {target:g} is refused; expected an accuracy above 0 and at most 1, for example 0.97")


def _check_folder(folder: Path | None) -> None:
    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise SafeError(f"--out {folder} is a file; expected a folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SafeError(
                f"--out {folder} cannot be made ({error.strerror}); expected a folder to write to"
            ) from None


# ---- files and screen


def _read(path: Path) -> dict[str, Any]:
    file = path / "result.json" if path.is_dir() else path
    try:
        result = json.loads(file.read_text())
        result["history"][-1]["round"], result["settings"]["seed"], result["method"]
    except FileNotFoundError:
        raise SafeError(f"no result {file}; expected a result.json that `v6-federated run --out DIR` wrote") from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise SafeError(
            f"{file} is not a result; expected a result.json that `v6-federated run --out DIR` wrote"
        ) from None
    return result


def _write(folder: Path, result: dict[str, Any], target: float | None = None) -> None:
    """``result.json`` and ``curves.png``; a file appears whole or not at all."""
    from v6_federated import report

    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "result.json.part"
    part.write_text(json.dumps(result, indent=1))
    part.replace(folder / "result.json")
    report.curves({result["method"]: result}, folder / "curves.png", target)
    report.distances(result, folder / "distances.png")


def _console() -> Console:
    """Standard output; wide where it is no terminal, so that a table in a file is whole."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def _last_line(values: Mapping[str, Any]) -> None:
    print(json.dumps(values), flush=True)


class _Bar:
    """A progress bar on standard error; where that is no terminal, a line now and then."""

    def __init__(self, rounds: int, text: str) -> None:
        self.rounds, self.text, self.done, self.said = rounds, text, 0, time.monotonic()
        console = Console(stderr=True)
        self.screen = console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[last]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not self.screen,
        )  # fmt: skip

    def __enter__(self) -> "_Bar":
        if self.screen:
            self.progress.start()
        self.bar = self.progress.add_task(self.text, total=self.rounds, last="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self.screen:  # it would print an empty line elsewhere
            self.progress.stop()

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Show a finished round."""
        self.done += 1
        measure = "r2" if "r2" in row else "accuracy"
        reached = "" if row[measure] is None else f"{measure} {row[measure]:.4f}"
        self.progress.update(self.bar, advance=1, last=reached)
        if not self.screen and (time.monotonic() - self.said > 10 or self.done == self.rounds):
            self.said = time.monotonic()
            print(f"{self.text}: round {self.done} of {self.rounds} {reached}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
