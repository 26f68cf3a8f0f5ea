"""``v6-federated run``: one method on mock nodes."""

from v6_federated.base.errors import Interrupted, SafeError
from v6_workbench import registry
from v6_workbench.cli import console, job, live_page, repeating, results, show, study
from v6_workbench.cli.entries import Entry
from v6_workbench.cli.experiment import check_columns, check_holdout, check_job, check_same_rows, experiment_of
from v6_workbench.cli.live_page import LivePage
from v6_workbench.cli.options import RunOptions
from v6_workbench.simulation import overview


def run(options: RunOptions) -> int:
    """Run a method on mock nodes."""
    options = job.with_rounds(options, options.method)
    check_columns(options, options.method)
    labelled, settings = registry.supervised(options.method), study.settings_with(options, job.settings_of(options))
    once, times = Entry("", options.method, settings), registry.times_only(options.method)
    if options.repeats is not None and options.resume is not None:
        raise SafeError("--repeats cannot be used with --resume, which goes on with one job; remove one of the two")
    if options.resume is None:
        check_holdout(options, labelled)
        experiment = experiment_of(options, labelled, job.columns_named(settings), times)
        if options.repeats is not None:
            repeating.check(options.repeats, {options.method: once}, experiment)
        settings = job.with_ids(settings, {name: k for k, name in enumerate(experiment.named(), start=1)})
        check_job(options.method, settings, experiment, options.target)
    else:
        if options.exclude is not None:
            raise SafeError("--exclude cannot be used with --resume, which keeps the features of the job; remove it")
        earlier = results.read(options.resume)
        options, rows = job.with_rows_of(options, earlier)
        named = job.columns_named({**earlier["settings"], **settings})
        experiment = experiment_of(options, labelled, named, times)
        settings = job.with_ids(settings, {name: k for k, name in enumerate(experiment.named(), start=1)})
        settings = job.resumed(earlier, options.method, {**settings, **job.seed_of(options)}, rows)
        check_job(options.method, settings, experiment, options.target)
        check_same_rows(earlier.get("experiment", {}), experiment)
    results.check_folder(options.out)
    live_page.check(options.page)
    if options.page is not None and options.repeats is not None:
        raise SafeError("--page is of one job and cannot be used with --repeats; remove one of the two")
    if options.out and (options.out / "result.json").exists():
        console.say(f"replacing the earlier result in {options.out}")
    console.announce(overview.described(experiment, options.method, settings))
    for warning in overview.warnings_about(experiment, options.method, settings):
        console.say(warning)
    if options.repeats is not None:
        return repeating.run(experiment, {options.method: once}, options.repeats, options.out, options.target)
    page = LivePage(options.page, options.method, options.rounds, options.target)
    try:
        with console.Bar(options.rounds, options.method, one_job=True) as bar:
            result = experiment.federated(options.method, settings, page.on_round(bar.on_round))
    except Interrupted as error:  # what has been trained is not lost
        result = error.result
    page.end(result)
    return show.finish(result, options.out, options.target)
