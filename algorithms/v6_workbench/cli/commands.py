"""What the commands of ``v6-federated`` do; ``cli`` has their options."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from v6_federated.base.errors import Interrupted, SafeError
from v6_federated.base.files import write_whole
from v6_federated.messages.job import DataSpec
from v6_workbench.cli import console, network_commands
from v6_workbench.cli import options as request
from v6_workbench.cli.console import check_folder
from v6_workbench.cli.network_commands import resume
from v6_workbench.reporting import diagnostics, summary

INTERRUPTED = 130  # the exit status that a shell expects
DEMO: dict[str, Any] = {"rounds": 30, "model": "logreg", "lr": 0.1, "batch_size": 10, "preprocess": ["standardize"]}


def demo(options: Any) -> int:
    """``v6-federated demo``."""
    from v6_workbench.reporting import report
    from v6_workbench.simulation import datasets, experiments

    check_folder(options.out)
    experiment = experiments.Experiment(datasets.load("breast-cancer"), 5, "dirichlet:0.5", options.seed, options.seed)
    organizations = list(experiment.deal())
    results = {}
    with console.Bar(DEMO["rounds"] * (2 + len(organizations)), "five mock hospitals") as bar:
        results["federated"] = experiment.federated("fedavg", DEMO, bar.on_round)
        results["centralized"] = experiment.centralized("fedavg", DEMO, bar.on_round)
        for organization in organizations:
            results[f"hospital {organization} alone"] = experiment.alone("fedavg", DEMO, organization, bar.on_round)
    console.write(options.out, results["federated"])
    report.curves(results, options.out / "comparison.png")
    console.console().print(report.table(results))
    gap = results["federated"]["final"]["accuracy"] - results["centralized"]["final"]["accuracy"]
    print(
        f"\nFederated minus centralized accuracy: {100 * gap:+.1f} points. Pictures: {options.out / 'comparison.png'}"
    )
    lines = {name: summary.summary(result) for name, result in results.items()}
    console.last_line({**lines.pop("federated"), **lines})
    return 0


def run(options: Any) -> int:
    """``v6-federated run``."""
    earlier = console.read(options.resume) if options.resume else None
    if earlier and options.exclude:
        raise SafeError("--exclude beside --resume is refused: the features are those of the earlier job; leave it out")
    rows = request.take_over(options, earlier) if earlier else None
    experiment, values = request.experiment(options)
    if earlier:
        values = resume(earlier, options.method, {**values, **request.seed(options)}, rows)
    request.check(options.method, values, experiment, options)
    if earlier:
        request.check_same_experiment(values["resume"].get("experiment", {}), experiment)
    check_folder(options.out)
    if options.out and (options.out / "result.json").exists():
        print(f"the earlier result in {options.out} will be replaced", file=sys.stderr)
    diagnostics.rows(experiment, options.method, values)
    try:
        with console.Bar(options.rounds, options.method, one_job=True) as bar:
            result = experiment.federated(options.method, values, bar.on_round)
    except Interrupted as error:  # what has been trained is not lost
        result = error.result
    return _finish(result, options)


def _finish(result: dict[str, Any], options: Any) -> int:
    """Write the files, show the rounds, end with the line of JSON."""
    from v6_workbench.reporting import report

    if options.out:
        console.write(options.out, result, options.target)
    _show(result)
    if (result["final"] or {}).get("evaluated") == 0:
        print(
            "nothing was evaluated: no rows were held out, or too few for the nodes' policy to count them",
            file=sys.stderr,
        )
    trees = result.get("model") is not None and result["model"]["name"] == "trees"
    if trees:
        diagnostics.splits(result)
    else:
        diagnostics.growing(result)
    if options.target is not None:
        reached = summary.to_target(result, options.target)
        seconds = summary.to_target(result, options.target, "seconds")
        clock = f", {seconds:.1f} s of simulated time" if report.simulated({"": result}) else ""
        told = "not reached" if reached is None else f"reached after {reached:.1f} rounds{clock}"
        print(f"accuracy {options.target:g}: {told}")
    console.last_line(summary.summary(result, options.target))
    if "stopped" in result:
        finished = len(result["history"])
        kept = f"; --resume {options.out} goes on from there" if options.out else ", and without --out it is not kept"
        status = INTERRUPTED if result["stopped"] == "interrupted" else 1
        return console.complain(status, f"{result['stopped']}; the model is that of round {finished}{kept}")
    return 0


def _show(result: dict[str, Any]) -> None:
    """The rounds, the classes or components, and what the accuracy may hide."""
    from v6_workbench.reporting import report

    console.console().print(report.rounds_table(result))
    for table in (report.classes_table(result), report.components_table(result)):
        if table is not None:
            console.console().print(table)
    diagnostics.baseline(result)


def submit(options: Any) -> int:
    """``v6-federated submit``."""
    from v6_workbench import registry

    features = request.features(options)
    rows = {"label": options.label, "features": features, "holdout": options.holdout}
    values = {name: value for name, value in rows.items() if value is not None}
    values |= {**request.seed(options), **request.job_values(options)}
    if options.resume is not None and not options.resume.isdigit():
        values = resume(console.read(Path(options.resume)), options.method, values)
    checked = registry.validate(options.method, values)
    request.check_target_of(options.method, checked, options.target)
    if options.resume is None or not options.resume.isdigit():  # else with what the earlier task had
        registry.check(options.method, checked)
    check_folder(options.out)
    with console.Bar(options.rounds, options.method, one_job=True) as bar:
        result = network_commands.submit(options, values, bar.on_round)
    return _finish(result, options)


def compare(options: Any) -> int:
    """``v6-federated compare``."""
    from v6_workbench import registry
    from v6_workbench.reporting import report

    if options.test is None and (options.folds is not None or options.rope is not None):
        raise SafeError("--folds and --rope are of use with --test only; leave them out, or add --test")
    experiment, values = request.experiment(options)
    check_folder(options.out)
    if options.out and (any(options.out.glob("[0-9]*-*/result.json")) or (options.out / "comparison.png").exists()):
        print(f"earlier results in {options.out} are replaced where they have the same name", file=sys.stderr)
        (options.out / "comparison.png").unlink(missing_ok=True)
    jobs: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for text in options.methods:
        kind, method, own = request.method_with_settings(text)
        if kind and method in registry.names() and not registry.supervised(method):
            raise SafeError(f"{text} is refused: {method} trains no model; expected a method that does")
        if kind and (chosen := [name for name in ("organizations", "evaluators") if name in values]):
            raise SafeError(
                f"{text}: --set {chosen[0]} is of no use to a job that is not federated, and its rows would be others; "
                "leave it out"
            )
        name = text
        while name in jobs:
            name += " again"
        with _named(text):
            _check_entry(method, {**values, **own}, experiment, options)
            if kind and options.test is None and not any(other for other, *_ in jobs.values()):
                experiment.train_and_test()  # now, not when its turn comes
        jobs[name] = (kind, method, {**values, **own})
    diagnostics.rows(experiment, *next((method, own) for _, method, own in jobs.values()))
    if options.test is not None:
        return _test(experiment, jobs, options)
    results: dict[str, dict[str, Any]] = {}
    nodes = len(experiment.named())
    rounds = sum(v["rounds"] * (nodes if kind == "alone" else 1) for kind, _, v in jobs.values())
    with console.Bar(rounds, "compare") as bar:
        for name, (kind, method, own) in jobs.items():
            for entry, train in _trainings(experiment, kind, name).items():
                folder = f"{len(results) + 1}-{entry.replace(':', '-').replace('/', '-')[:60]}"
                try:
                    with _named(entry):
                        results[entry] = train(method, own, on_round=bar.on_round)
                except Interrupted as error:
                    if options.out:
                        console.write(options.out / folder, error.result, options.target, entry)
                    raise
                if options.out:  # at once: it outlives a failure of the next
                    console.write(options.out / folder, results[entry], options.target, entry)
    if options.out:
        report.comparison(results, options.out / "comparison.png", options.target)
    console.console().print(report.table(results, options.target))
    diagnostics.baselines(results)
    console.last_line({name: summary.summary(result, options.target) for name, result in results.items()})
    for name, result in results.items():
        if "stopped" in result:
            return console.complain(1, f"{name}: {result['stopped']}")
    return 0


@contextmanager
def _named(entry: str) -> Iterator[None]:
    """Errors name the entry of ``compare`` that they are of; their kind, and so the exit status, stays."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:  # its text is made of this, not of its arguments
            error.strerror = f"{entry}: {error.strerror}"
        else:
            error.args = (f"{entry}: {error}",)
        raise


def _check_entry(method: str, values: Mapping[str, Any], experiment: Any, options: Any) -> None:
    """Refuse what can be seen to be wrong with an entry of ``compare``, its own columns and model too, before the first
    is trained. Raises SafeError."""
    from v6_federated import models
    from v6_federated.data import preprocessing
    from v6_federated.data.source import Source
    from v6_workbench import registry

    if isinstance(values.get("features"), list):
        experiment = replace(experiment, features=values["features"])
    request.check(method, values, experiment, options)
    checked = registry.validate(method, {**values})
    steps = {preprocessing.parse(step).name for step in checked.preprocess}
    if not registry.supervised(method) or steps & {"onehot", "pca"}:  # after these there are other columns
        return
    rows = next(iter(experiment.named().values()))
    spec = DataSpec(label=experiment.label, features=experiment.features)
    features = rows[0][0].size if isinstance(rows, tuple) else len(Source(table=rows).columns(spec)[0])
    classes = 1 if values.get("objective") == "regression" else len(experiment.class_counts())
    models.build({**models.parse(checked.model), "features": features, "classes": classes})


def _trainings(experiment: Any, kind: str, name: str) -> dict[str, Callable[..., dict[str, Any]]]:
    """What an entry of ``compare`` trains, by the names of its results: one of each node that is trained alone."""
    if kind == "alone":
        nodes = enumerate(experiment.named(), start=1)
        return {f"{node} {name}": partial(experiment.alone, organization=k) for k, node in nodes}
    return {name: experiment.centralized if kind == "centralized" else experiment.federated}


def _test(experiment: Any, jobs: Mapping[str, tuple[str, str, dict[str, Any]]], options: Any) -> int:
    """``compare --test``: every method on every fold; signs, posteriors, and the scores in a file."""
    from v6_workbench.reporting import report
    from v6_workbench.simulation import model_comparison

    options.folds = model_comparison.FOLDS if options.folds is None else options.folds
    options.rope = model_comparison.ROPE if options.rope is None else options.rope
    if options.target is not None:
        raise SafeError(
            f"--target {options.target:g} is of no use with --test, which looks at last models; leave it out"
        )
    measure = _measure_of(jobs)
    folds = model_comparison.experiments_of(experiment, options.test, options.folds)
    model_comparison.check(len(jobs), options.rope)  # before the first is trained
    asked = options.test * options.folds
    scores = model_comparison.Scores(
        options.out / "folds.json" if options.out else None,
        {name: _depends(experiment, name, *job, options.folds) for name, job in jobs.items()},
    )
    missing = {name: max(asked - len(scores[name]), 0) for name in jobs}
    if (known := asked * len(jobs) - sum(missing.values())) > 0:
        print(f"{known} of the {asked * len(jobs)} scores are in {options.out} and not trained again", file=sys.stderr)
    if options.out:  # an earlier test's
        for name in ("test.json", "posteriors.png"):
            (options.out / name).unlink(missing_ok=True)
    with console.Bar(sum(n * jobs[name][2]["rounds"] for name, n in missing.items()), "compare --test") as bar:
        for i, one in enumerate(folds):
            for name, (kind, method, own) in jobs.items():
                if i < len(scores[name]):
                    continue
                with _named(name):
                    result = (one.federated if kind == "" else one.centralized)(method, own, bar.on_round)
                if "stopped" in result:
                    return console.complain(1, f"{name}: {result['stopped']}")
                scores.add(name, model_comparison.score(result, measure))
    asked_for = {name: scores[name][:asked] for name in jobs}
    found = model_comparison.verdicts(asked_for, options.test, options.rope)
    what = report.NAMES[measure]
    console.console().print(report.signs(found, asked_for))
    tested = {
        "folds": options.folds,
        "iterations": options.test,
        "rope": options.rope,
        "seed": experiment.seed,
        "partition_seed": options.partition_seed,
        "measure": what,
        "scores": asked_for,
        "pairs": [
            {
                "first": a,
                "second": b,
                "difference": v.difference,
                "better": v.better,
                "equal": v.equal,
                "worse": v.worse,
                "sign": v.sign,
            }
            for (a, b), v in found.items()
        ],
    }
    if options.out:
        write_whole(options.out / "test.json", json.dumps(tested, indent=1))
        report.posteriors(found, options.rope, options.out / "posteriors.png", what)
    console.last_line({key: tested[key] for key in ("iterations", "folds", "rope", "pairs")})
    return 0


def _depends(experiment: Any, name: str, kind: str, method: str, own: dict[str, Any], folds: int) -> dict[str, Any]:
    """All that the scores of an entry of ``compare --test`` depend on, the program too."""
    from v6_workbench import registry

    policy = {limit: sorted(v) if isinstance(v, frozenset) else v for limit, v in asdict(experiment.policy).items()}
    return {
        "name": name,
        "kind": kind,
        "settings": own,
        "folds": folds,
        "policy": policy,
        "code": registry.code(method),
        "label": experiment.label,
        "features": experiment.features,
        "seed": experiment.seed,
        **experiment.description(),
    }


def _measure_of(jobs: Mapping[str, tuple[str, str, dict[str, Any]]]) -> str:
    """What the methods of a test are measured by, the same of all. Raises SafeError."""
    from v6_workbench import registry

    for name, (kind, method, _) in jobs.items():
        if kind == "alone":
            raise SafeError(f"{name} is refused with --test, which compares methods; expected it without --test")
        if not registry.supervised(method):
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


def settings(options: Any) -> int:
    """``v6-federated settings``."""
    from v6_workbench import registry
    from v6_workbench.network import store
    from v6_workbench.reporting import report

    (central,) = store.entry(options.method)["functions"]
    console.console().print(report.settings_table(central["arguments"]))
    fields = registry.settings_of(options.method).model_fields
    defaults = {name: field.default for name, field in fields.items() if not field.is_required()}
    console.last_line({"method": options.method, "defaults": defaults})
    return 0


def report(options: Any) -> int:
    """``v6-federated report``."""
    from v6_workbench.reporting import report

    request.check_target(options.target)
    results = {str(path): console.read(path) for path in console.results_of(options.results)}
    check_folder(options.out)
    if options.out:
        for name in ("distances", "components"):  # those of an earlier report, of more results
            for file in options.out.glob(f"{name}-*.png"):
                if file.stem.removeprefix(f"{name}-").isdecimal():
                    file.unlink()
        report.curves(results, options.out / "curves.png", options.target)
        report.comparison(results, options.out / "comparison.png", options.target)
        for i, (name, result) in enumerate(results.items(), start=1):
            number = "" if len(results) == 1 else f"-{i}"
            report.distances(result, options.out / f"distances{number}.png", _folder(name) if number else "")
            report.components(result, options.out / f"components{number}.png")
    for name, result in results.items():
        if len(results) == 1:
            _show(result)
        print(f"{name}: {diagnostics.described(result)}")
    console.console().print(report.table(results, options.target))
    console.last_line({name: summary.summary(result, options.target) for name, result in results.items()})
    return 0


def _folder(result: str) -> str:
    """The name of the folder that a result is in."""
    path = Path(result)
    return path.parent.name if path.suffix == ".json" else path.name


def export(options: Any) -> int:
    """``v6-federated export``."""
    from v6_workbench.reporting import export

    export.save(console.read(options.result), options.to)
    console.last_line({"model": str(options.to)})
    return 0


def predict(options: Any) -> int:
    """``v6-federated predict``."""
    from v6_workbench.reporting import export
    from v6_workbench.simulation import datasets

    if options.out.suffix != ".csv" or not options.out.parent.is_dir():
        raise SafeError(f"--out {options.out} is refused; expected a .csv in a folder that is there")
    if options.out.exists() and Path(options.data).exists() and options.out.samefile(options.data):
        raise SafeError(f"--out {options.out} is the file of --data, which would be lost; expected another")
    exported = options.model.suffix in (".npz", ".safetensors", ".pt")
    if not exported and options.model.suffix not in ("", ".json"):
        raise SafeError(f"{options.model} is refused; expected a result.json, its folder, .npz, .safetensors or .pt")
    model = export.load(options.model) if exported else console.read(options.model)
    rows = datasets.load_new(options.data)
    if rows.table is not None and rows.table.empty:
        raise SafeError(f"{options.data} holds no rows; expected some to predict for")
    table, measured = export.predict(model, rows)
    kept = request.names(options.keep, "--keep") if options.keep else []
    for name in reversed(kept):
        if rows.table is None or name not in rows.table.columns or name in table.columns:
            there = "none, as a .npz has no columns" if rows.table is None else ", ".join(map(str, rows.table.columns))
            raise SafeError(f"--keep {name} is refused; expected columns of {options.data}: {there}")
        table.insert(0, name, rows.table[name].to_numpy())
    if kept:
        table[kept] = datasets.as_written(options.data, table[kept])
    table.to_csv(options.out, index=False)
    diagnostics.unlike(model, rows)
    console.last_line({"predictions": str(options.out), "rows": len(table), **measured})
    return 0
