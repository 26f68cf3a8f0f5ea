"""What the commands of ``v6-federated`` do; ``cli`` has their options."""

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from v6_federated import network_commands, remarks
from v6_federated.errors import SafeError
from v6_federated.files import write_whole
from v6_federated.network_commands import resume

DEMO: dict[str, Any] = {"rounds": 30, "model": "logreg", "lr": 0.1, "batch_size": 10, "preprocess": ["standardize"]}

# settings that have an option of their own
OWN_OPTION = {name: name for name in ("rounds", "model", "seed", "label", "features", "holdout", "preprocess")}
OWN_OPTION |= {"target": "target A --stop-at-target"}
COLUMNS = ("round", "participants", "loss", "accuracy", "auc", "bytes_up", "bytes_down", "seconds")  # of a history
LISTS = ("classes", "organizations", "evaluators")  # settings that a,b,c may be given to


def demo(options: Any) -> int:
    """``v6-federated demo``."""
    from v6_federated import datasets, experiments, report

    experiment = experiments.Experiment(datasets.load("breast-cancer"), 5, "dirichlet:0.5", options.seed, options.seed)
    organizations = list(experiment.deal())
    results = {}
    with _Bar(DEMO["rounds"] * (2 + len(organizations)), "five mock hospitals") as bar:
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


def run(options: Any) -> int:
    """``v6-federated run``."""
    experiment, values = _experiment(options)
    if options.speeds is not None:
        experiment = replace(experiment, slowest=options.speeds)
    if options.resume:
        values = resume(_read(options.resume), options.method, {**values, **_seed(options)})
    _check(options.method, values, experiment, options)
    if options.resume:
        _check_same_experiment(values["resume"].get("experiment", {}), experiment)
    _check_folder(options.out)
    if options.out and (options.out / "result.json").exists():
        print(f"the earlier result in {options.out} will be replaced", file=sys.stderr)
    remarks.rows(experiment, options.method, values)
    with _Bar(options.rounds, options.method) as bar:
        result = experiment.federated(options.method, values, bar.on_round)
    return _finish(result, options)


def _finish(result: dict[str, Any], options: Any) -> int:
    """Write the files, show the rounds, end with the line of JSON."""
    from v6_federated import experiments

    if options.out:
        _write(options.out, result, options.target)
    _show(result)
    if (result["final"] or {}).get("evaluated") == 0:
        print(
            "nothing was evaluated: no rows were held out, or too few for the nodes' policy to count them",
            file=sys.stderr,
        )
    losses = [row["loss"] for row in result["history"] if row["loss"] is not None]
    trees = result.get("model") is not None and result["model"]["name"] == "trees"
    if trees:
        remarks.splits(result)
    elif len(losses) > 1 and losses[-1] > losses[0]:
        print("the loss has grown: a smaller lr, or --preprocess standardize, may help", file=sys.stderr)
    if options.target is not None:
        reached = experiments.rounds_to_target(result, options.target)
        print(f"accuracy {options.target:g}: " + (f"reached after {reached:.1f} rounds" if reached else "not reached"))
    _last_line(experiments.summary(result, options.target))
    if "stopped" in result:
        finished = len(result["history"])
        kept = f"; --resume {options.out} goes on from there" if options.out else ""
        return complain(1, f"{result['stopped']}; the model is that of round {finished}{kept}")
    return 0


def _show(result: dict[str, Any]) -> None:
    """The rounds, the classes, and what the accuracy may hide."""
    from v6_federated import report

    _console().print(report.rounds_table(result))
    if (classes := report.classes_table(result)) is not None:
        _console().print(classes)
    remarks.baseline(result)


def submit(options: Any) -> int:
    """``v6-federated submit``."""
    from v6_federated import experiments, settings, training

    features = _features(options)
    values = {"label": options.label, "features": features, "holdout": options.holdout}
    values |= {**_seed(options), **job_values(options)}
    if options.resume is not None and not options.resume.isdigit():
        values = resume(_read(Path(options.resume)), options.method, values)
    checked = settings.validate(experiments.settings_of(options.method), values)
    training.check_settings(checked)
    _check_folder(options.out)
    with _Bar(options.rounds, options.method) as bar:
        result = network_commands.submit(options, values, bar.on_round)
    return _finish(result, options)


def compare(options: Any) -> int:
    """``v6-federated compare``."""
    from v6_federated import experiments, report

    if options.test is None and (options.folds is not None or options.rope is not None):
        raise SafeError("--folds and --rope are of use with --test only; leave them out, or add --test")
    experiment, values = _experiment(options)
    _check_folder(options.out)
    jobs: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for text in options.methods:
        kind, method, own = _method_with_settings(text)
        name = text
        while name in jobs:
            name += " again"
        _check(method, {**values, **own}, experiment, options)
        jobs[name] = (kind, method, {**values, **own})
    remarks.rows(experiment, *next((method, own) for _, method, own in jobs.values()))
    if options.test is not None:
        return _test(experiment, jobs, options)
    results = {}
    nodes = list(experiment.named())
    rounds = sum(v["rounds"] * (len(nodes) if kind == "alone" else 1) for kind, _, v in jobs.values())
    with _Bar(rounds, "compare") as bar:
        for name, (kind, method, own) in jobs.items():
            if kind == "alone":
                for k, node in enumerate(nodes, start=1):
                    results[f"{node} {name}"] = experiment.alone(method, own, k, bar.on_round)
            else:
                train = experiment.centralized if kind == "centralized" else experiment.federated
                results[name] = train(method, own, bar.on_round)
    if options.out:
        for i, (name, result) in enumerate(results.items(), start=1):
            _write(options.out / f"{i}-{name.replace(':', '-').replace('/', '-')}", result, options.target)
        report.comparison(results, options.out / "comparison.png", options.target)
    _console().print(report.table(results, options.target))
    _last_line({name: experiments.summary(result, options.target) for name, result in results.items()})
    for name, result in results.items():
        if "stopped" in result:
            return complain(1, f"{name}: {result['stopped']}")
    return 0


def _test(experiment: Any, jobs: Mapping[str, tuple[str, str, dict[str, Any]]], options: Any) -> int:
    """``compare --test``: every method on every fold; signs, posteriors, and the scores in a file."""
    from v6_federated import report, significance

    options.folds = significance.FOLDS if options.folds is None else options.folds
    options.rope = significance.ROPE if options.rope is None else options.rope
    if options.target is not None:
        raise SafeError(
            f"--target {options.target:g} is of no use with --test, which looks at last models; leave it out"
        )
    measure = _measure_of(jobs)
    folds = significance.experiments_of(experiment, options.test, options.folds)
    significance.check(len(jobs), options.rope)  # before the first is trained
    scores: dict[str, list[float]] = {name: [] for name in jobs}
    rounds = options.test * options.folds * sum(v["rounds"] for _, _, v in jobs.values())
    with _Bar(rounds, "compare --test") as bar:
        for one in folds:
            for name, (kind, method, own) in jobs.items():
                result = (one.federated if kind == "" else one.centralized)(method, own, bar.on_round)
                if "stopped" in result:
                    return complain(1, f"{name}: {result['stopped']}")
                scores[name].append(significance.score(result, measure))
    found = significance.verdicts(scores, options.test, options.rope)
    what = report.NAMES[measure]
    _console().print(report.signs(found, scores))
    tested = {
        "folds": options.folds, "iterations": options.test, "rope": options.rope, "seed": experiment.seed,
        "partition_seed": options.partition_seed, "measure": what, "scores": scores,
        "pairs": [
            {"first": a, "second": b, "difference": v.difference, "better": v.better, "equal": v.equal,
             "worse": v.worse, "sign": v.sign}
            for (a, b), v in found.items()
        ],
    }  # fmt: skip
    if options.out:
        write_whole(options.out / "test.json", json.dumps(tested, indent=1))
        report.posteriors(found, options.rope, options.out / "posteriors.png", what)
    _last_line({key: tested[key] for key in ("iterations", "folds", "rope", "pairs")})
    return 0


def _measure_of(jobs: Mapping[str, tuple[str, str, dict[str, Any]]]) -> str:
    """What the methods of a test are measured by, the same of all. Raises SafeError."""
    from v6_federated import experiments

    for name, (kind, method, _) in jobs.items():
        if kind == "alone":
            raise SafeError(f"{name} is refused with --test, which compares methods; expected it without --test")
        if not experiments.supervised(method):
            raise SafeError(f"{name} trains no model that could be tested; expected methods that do")
    measures = {"r2" if own.get("objective") == "regression" else "accuracy" for _, _, own in jobs.values()}
    if len(measures) > 1:
        raise SafeError("classes and numbers to predict cannot be compared; expected one objective for all methods")
    for name, (_, _, own) in jobs.items():
        for setting in ("early_stopping", "target"):
            if own.get(setting) is not None:  # it would choose the model by the rows that it is tested on
                raise SafeError(
                    f"{name}: {setting} is refused with --test: it would look at the fold that is tested on"
                )
    return measures.pop()


def report(options: Any) -> int:
    """``v6-federated report``."""
    from v6_federated import experiments, report

    _check_target(options.target)
    results = {str(path): _read(path) for path in dict.fromkeys(options.results)}
    _check_folder(options.out)
    if options.out:
        report.curves(results, options.out / "curves.png", options.target)
        report.comparison(results, options.out / "comparison.png", options.target)
        for i, result in enumerate(results.values(), start=1):
            report.distances(result, options.out / f"distances{'' if len(results) == 1 else f'-{i}'}.png")
    for name, result in results.items():
        if len(results) == 1:
            _show(result)
        print(f"{name}: {result['method']}, {json.dumps(result.get('experiment', {}))}")
    _console().print(report.table(results, options.target))
    _last_line({name: experiments.summary(result, options.target) for name, result in results.items()})
    return 0


def export(options: Any) -> int:
    """``v6-federated export``."""
    from v6_federated import export

    export.save(_read(options.result), options.to)
    _last_line({"model": str(options.to)})
    return 0


def predict(options: Any) -> int:
    """``v6-federated predict``."""
    from v6_federated import datasets, export

    if options.out.suffix != ".csv" or not options.out.parent.is_dir():
        raise SafeError(f"--out {options.out} is refused; expected a .csv in a folder that is there")
    if options.out.exists() and Path(options.data).exists() and options.out.samefile(options.data):
        raise SafeError(f"--out {options.out} is the file of --data, which would be lost; expected another")
    exported = options.model.suffix in (".npz", ".safetensors", ".pt")
    if not exported and options.model.suffix not in ("", ".json"):
        raise SafeError(f"{options.model} is refused; expected a result.json, its folder, .npz, .safetensors or .pt")
    model = export.load(options.model) if exported else _read(options.model)
    rows = datasets.load_new(options.data)
    table, measured = export.predict(model, rows)
    for name in reversed(_names(options.keep, "--keep") if options.keep else []):
        if rows.table is None or name not in rows.table.columns or name in table.columns:
            there = "none, as a .npz has no columns" if rows.table is None else ", ".join(map(str, rows.table.columns))
            raise SafeError(f"--keep {name} is refused; expected columns of {options.data}: {there}")
        table.insert(0, name, rows.table[name].to_numpy())
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
        dataset, nodes, options.partition, options.seed or 0, options.partition_seed, options.label, features,
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
        if key in LISTS and not isinstance(values[key], list | None):
            parts = [part.strip() for part in value.split(",")]
            numbers = [_value(part) for part in parts]
            # none and 1 beside 3a are words: labels are of one kind
            values[key] = (
                numbers
                if all(isinstance(v, int | float) for v in numbers)
                else [v if isinstance(v, str) else part for v, part in zip(numbers, parts, strict=True)]
            )
    return values


def _check_same_experiment(before: Mapping[str, Any], experiment: Any) -> None:
    """Raise SafeError where an earlier result is of other rows, or of rows dealt otherwise: rows that it was trained on
    would be among those held out."""
    now = experiment.description()
    for name in now:
        if name in before and before[name] != now[name]:
            was = "other nodes or rows" if name in ("nodes", "rows") else f"--{name.replace('_', '-')} {before[name]}"
            raise SafeError(f"--resume: the earlier job had {was}; expected the same")


def _check(method: str, values: Mapping[str, Any], experiment: Any, options: Any) -> None:
    """Refuse what can be seen to be wrong before anything starts."""
    from v6_federated import experiments, resuming, settings, training

    accepted = experiments.settings_of(method)
    checked = settings.validate(accepted, {**experiment.common(), "holdout": experiment.holdout, **values})
    if values.get("resume"):
        resuming.check_kind(values["resume"], method, checked)
    training.check_settings(checked)
    steps = values.get("preprocess") or (values.get("resume") or {}).get("data", {}).get("preprocess")
    regression = getattr(checked, "objective", None) == "regression"
    if regression and options.target is not None:
        raise SafeError(f"--target {options.target:g} is an accuracy, of no use to objective=regression; leave it out")
    experiment.check(steps=bool(steps), supervised=experiments.supervised(method), regression=regression)
    experiment.deal()


def _seed(options: Any) -> dict[str, int]:
    """The seed that the options name: none is that of the job resumed, else 0."""
    return {} if options.seed is None else {"seed": options.seed}


def _features(options: Any) -> list[str] | None:
    return _names(options.features, "--features") if options.features else None


def _names(text: str, option: str) -> list[str]:
    """Names of columns: a,b,c, or a JSON list where one holds a comma or begins with a space."""
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(",")]
    names = _value(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SafeError(f"{option} {text} is refused; expected a,b,c or a JSON list of names")
    return names


def _method_with_settings(text: str) -> tuple[str, str, dict[str, Any]]:
    """Where it is trained ("" at all nodes, "centralized", "alone"), the method and its own settings."""
    kind, _, rest = text.partition(":")
    if kind not in ("centralized", "alone"):
        kind, rest = "", text
    method, _, own = rest.partition(":")
    if not method:
        raise SafeError(f"{text!r} names no method; expected for example {text.rstrip(':')}:fedavg")
    return (
        kind,
        method,
        {k: _value(v) for k, v in (_pair(pair, text) for pair in re.split(r",(?=\w+=)", own) if own)},
    )


def _pair(text: str, where: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        example = "V6_FEDERATED_MINIMUM_ROWS=20" if where == "--node-env" else "lr=0.1"
        raise SafeError(f"{where} {text!r} is refused; expected KEY=VALUE, for example {example}")
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
        result["settings"]["seed"], result["method"], result["final"], result["per_node"], result["history"][-1]
        if not all(name in row for row in result["history"] for name in COLUMNS):
            raise KeyError
    except FileNotFoundError:
        raise SafeError(f"no result {file}; expected a result.json that `v6-federated run --out DIR` wrote") from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise SafeError(
            f"{file} is not a result; expected a result.json that `v6-federated run --out DIR` wrote"
        ) from None
    return result


def _write(folder: Path, result: dict[str, Any], target: float | None = None) -> None:
    """``result.json``, ``curves.png`` and ``distances.png``."""
    from v6_federated import report

    write_whole(folder / "result.json", json.dumps(result, indent=1))
    report.curves({result["method"]: result}, folder / "curves.png", target)
    report.distances(result, folder / "distances.png")


def complain(status: int, problem: object) -> int:
    """One line on standard error; returns the exit status."""
    print(f"v6-federated: {' '.join(str(problem).split())}", file=sys.stderr)
    return status


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
