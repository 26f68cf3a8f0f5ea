"""``v6-federated compare``: several methods or settings on the same rows."""

from pathlib import Path
from typing import Any

from v6_federated.base.errors import Interrupted, SafeError
from v6_workbench import registry
from v6_workbench.cli import console, cross_validation, entries, job, repeating, results, show, study
from v6_workbench.cli.entries import Entry
from v6_workbench.cli.experiment import check_evaluated, check_holdout, experiment_of
from v6_workbench.cli.options import CompareOptions
from v6_workbench.reporting import diagnostics, summary
from v6_workbench.simulation import overview
from v6_workbench.simulation.experiments import Experiment


def run(options: CompareOptions) -> int:
    """Train every entry on the same rows, and show one table and one picture."""
    experiment, compared = _prepared(options)
    test = None
    if options.test is not None:
        test = cross_validation.prepared(experiment, compared, options.test, options.folds, options.rope, options.out)
    results.check_folder(options.out)
    _announce(experiment, next(iter(compared.values())), options.out)
    if test is not None:
        return cross_validation.run(test)
    if options.repeats is not None:
        return repeating.run(experiment, compared, options.repeats, options.out, options.target)
    trained = _train(experiment, compared, options)
    _show(trained, options)
    for name, result in trained.items():
        if "stopped" in result:
            return console.complain(console.FAILED, f"{name}: {result['stopped']}")
    return console.OK


def _prepared(options: CompareOptions) -> tuple[Experiment, dict[str, Entry]]:
    """The experiment and the entries by their names, checked before the first is trained."""
    if options.test is None and (options.folds is not None or options.rope is not None):
        raise SafeError("--folds and --rope need --test; add --test, or remove them")
    if options.test is not None and options.repeats is not None:
        raise SafeError("--repeats cannot be used with --test, which repeats cross-validations: --test I; remove one")
    if options.test is not None and options.target is not None:
        raise SafeError("--target cannot be used with --test, which compares the last models; remove it")
    shared = study.settings_with(options, job.settings_of(options))
    compared: dict[str, Entry] = {}
    for text in options.methods:
        name = text
        while name in compared:
            name += " again"
        compared[name] = entries.read(text, shared)
    labelled = any(registry.supervised(entry.method) for entry in compared.values())
    check_holdout(options, labelled)
    named = [column for entry in compared.values() for column in job.columns_named(entry.settings)]
    experiment = experiment_of(options, labelled, named)
    methods = [entry.method for entry in compared.values()]
    check_evaluated(methods, experiment, "compare", folds=options.test is not None)
    if options.repeats is not None:
        repeating.check(options.repeats, compared, experiment)
    for name, entry in compared.items():
        entries.check(name, entry, experiment, options.target)
    pooled = next(((name, entry.method) for name, entry in compared.items() if entry.kind), None)
    if pooled is not None and options.test is None:
        with entries.errors_name(pooled[0]):
            experiment.train_and_test(pooled[1])  # now, and not when its turn comes
    return experiment, compared


def _announce(experiment: Experiment, first: Entry, out: Path | None) -> None:
    if out and (any(out.glob("[0-9]*-*/result.json")) or (out / "comparison.png").exists()):
        console.say(f"replacing earlier results of the same name in {out}")
        (out / "comparison.png").unlink(missing_ok=True)
    console.announce(overview.described(experiment, first.method, first.settings))
    for warning in overview.warnings_about(experiment, first.method, first.settings):
        console.say(warning)


def _train(experiment: Experiment, compared: dict[str, Entry], options: CompareOptions) -> dict[str, dict[str, Any]]:
    trained: dict[str, dict[str, Any]] = {}
    nodes = len(experiment.named())
    rounds = sum(entry.settings["rounds"] * (nodes if entry.kind == "alone" else 1) for entry in compared.values())
    with console.Bar(rounds, "compare") as bar:
        for entry_name, entry in compared.items():
            for name, train in entries.trainings(entry, entry_name, experiment).items():
                folder = results.folder_of(len(trained) + 1, name)
                try:
                    with entries.errors_name(name):
                        trained[name] = train(entry.method, entry.settings, on_round=bar.on_round)
                except Interrupted as error:
                    if options.out:
                        results.write(options.out / folder, error.result, options.target, name)
                    raise
                if options.out:  # at once, so that it outlives a failure of the next
                    results.write(options.out / folder, trained[name], options.target, name)
    return trained


def _show(trained: dict[str, dict[str, Any]], options: CompareOptions) -> None:
    from v6_workbench.reporting import pictures, tables

    if options.out:
        pictures.write(pictures.comparison(trained, options.target), options.out / "comparison.png")
    console.console().print(tables.table(trained, options.target))
    show.show_intervals(trained)
    for warning in [*diagnostics.poor_ones(trained), *diagnostics.unconverged_ones(trained)]:
        console.say(warning)
    console.last_line({name: summary.summary(result, options.target) for name, result in trained.items()})
