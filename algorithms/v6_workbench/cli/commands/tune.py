"""``v6-federated tune``: settings are chosen on some rows, and the model is judged on others."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from v6_federated.base.errors import Interrupted, SafeError
from v6_federated.base.files import write_whole
from v6_federated.base.text import counted
from v6_federated.base.vantage6_api import CollectResultsError
from v6_workbench import registry
from v6_workbench.cli import console, cross_validation, entries, job, results, show, study, values
from v6_workbench.cli.entries import Entry
from v6_workbench.cli.experiment import check_evaluated, check_holdout, experiment_of
from v6_workbench.cli.options import TuneOptions
from v6_workbench.reporting.summary import MEASURES, Try
from v6_workbench.simulation import model_comparison, overview, search
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.search import Choice, Range

OWN_ROWS = {"classes", "event", "exclude", "features", "model", "preprocess"}  # settings that change what is read
LEAK = (
    "{tries} took {trainings} with {rounds} in all, and sent {megabytes:.1f} MB. On a real network each training is a "
    "task of its own, which counts against the hospitals' limits and budgets. All tries are scored on the same rows: "
    "the best score is too good, and many scores reveal more about these rows than one"
)


def run(options: TuneOptions) -> int:
    """Train every try on a part of the training rows, choose, and train the model that is kept on all of them."""
    options = job.with_rounds(options, options.method)
    if options.repeats is not None:
        raise SafeError("--repeats cannot be used with tune; run the settings that it chooses again with --repeats")
    shared = study.settings_with(options, job.settings_of(options))
    tried = search.combinations(grid_of(options.grid, shared), options.random, options.seed or 0)
    compared = {_name(one): Entry("", options.method, {**shared, **one}) for one in tried}
    check_holdout(options, registry.supervised(options.method))
    if not registry.supervised(options.method):
        raise SafeError(f"{options.method} trains no model that could be scored; expected a method that does")
    experiment = experiment_of(options, named=job.columns_named(shared))
    # tries are scored on training rows, of which folds need no share; a test set is kept for the model that is chosen
    folds = options.folds is not None and experiment.test is not None
    check_evaluated([options.method], experiment, "tune", folds=folds, test_set=False)
    for name, entry in compared.items():
        entries.check(name, entry, experiment, options.target)
    by = _measure(options.by, compared)
    inner = search.choosing(experiment, options.method)
    if options.folds is None:
        inner.train_and_test(options.method)  # refused now, and not after training, if no rows are left to score on
    parts = [inner] if options.folds is None else [*model_comparison.experiments_of(inner, 1, options.folds)]
    results.check_folder(options.out)
    first = next(iter(compared.values()))
    console.announce(overview.described(experiment, options.method, first.settings))
    for warning in overview.warnings_about(experiment, options.method, first.settings):
        console.say(warning)
    scores = model_comparison.Scores(
        options.out / "scores.json" if options.out else None,
        {
            name: {"by": by, **cross_validation.depends_on(inner, name, entry, options.folds)}
            for name, entry in compared.items()
        },
    )
    found, spent = _search(parts, dict(zip(compared, tried, strict=True)), compared, scores, by)
    return _finish(experiment, options, compared, found, spent, by)


def grid_of(written: Sequence[str], shared: Mapping[str, Any]) -> dict[str, Choice]:
    """Read the values of ``--grid``.

    Args:
        written: its values: KEY=A,B,C, KEY=LOW..HIGH, or KEY= with a JSON list, for values that have a comma.
        shared: the settings of all tries.

    Returns:
        What is tried of each setting.

    Raises:
        SafeError: a value cannot be read, or a setting is given twice.
    """
    if not written:
        raise SafeError("there is nothing to try; add for example --grid lr=0.01,0.1,1")
    found: dict[str, Choice] = {}
    for text in written:
        key, choice = values.pair(text, "--grid", "lr=0.01,0.1,1")
        if key in found:
            raise SafeError(f"--grid {key} is given twice; name all its values in one")
        if key in shared and key != "rounds":
            raise SafeError(f"{key} has one value already, from another option; remove that, or --grid {key}")
        if key in entries.SHARED or key == "seed":
            raise SafeError(f"--grid {key}: all tries have the same rows and seed; remove it")
        low, dots, high = choice.partition("..")
        if dots:
            ends = values.value(low), values.value(high)
            if not all(type(end) in (int, float) for end in ends):
                raise SafeError(f"--grid {text}: expected numbers on both sides of .., for example lr=0.001..1")
            found[key] = Range(*ends)
            continue
        listed = values.value(choice) if choice.startswith("[") else None
        several = listed if isinstance(listed, list) else [values.setting(key, part) for part in choice.split(",")]
        if len({json.dumps(one) for one in several}) < len(several) or "" in several:
            raise SafeError(f"--grid {text}: expected different values with a comma between two")
        found[key] = several
    return found


def _name(tried: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in tried.items())


def _measure(by: str | None, compared: Mapping[str, Entry]) -> str:
    measures = {entry.measure for entry in compared.values()}
    if len(measures) > 1:
        raise SafeError("tries that predict classes, numbers or times cannot be compared with each other; search apart")
    if len({entry.settings.get("event") for entry in compared.values()}) > 1:
        raise SafeError("tries with other columns in event predict other times and cannot be compared; search apart")
    natural = measures.pop()
    accepted = ("accuracy", "auc", "loss") if natural == "accuracy" else (natural, "loss")
    if by is not None and by not in accepted:
        raise SafeError(f"--by {by} is refused; expected {' or '.join(accepted)}")
    kinds: dict[str, str] = {}  # of losses, each with the first try that has it
    for name, entry in compared.items():
        kinds.setdefault(entry.loss, name)
    if by == "loss" and len(kinds) > 1:
        found = ", ".join(f"{name}: {loss}" for loss, name in kinds.items())
        others = " or ".join(f"--by {other}" for other in accepted if other != "loss")
        raise SafeError(f"--by loss cannot compare losses of different kinds ({found}); use {others}")
    for name, entry in compared.items():
        if entry.settings.get("target") is not None:
            raise SafeError(f"{name}: a target would choose the model by the rows that it is scored on; remove it")
    return by or natural


def _search(
    parts: Sequence[Experiment],
    tried: Mapping[str, Mapping[str, Any]],
    compared: Mapping[str, Entry],
    scores: model_comparison.Scores,
    by: str,
) -> tuple[list[Try], dict[str, int]]:
    """Score every try on every part; and what that took."""
    known = sum(min(len(scores[name]), len(parts)) for name in compared)
    if known:
        console.say(f"{known} of the {len(parts) * len(compared)} scores are known, and are not trained again")
    found: list[Try] = []
    spent = {"trained": 0, "rounds": 0, "bytes": 0}
    total = sum((len(parts) - min(len(scores[n]), len(parts))) * e.settings["rounds"] for n, e in compared.items())
    with console.Bar(total, "tune") as bar:
        for name, entry in compared.items():
            failed = ""
            for part in parts[len(scores[name]) :]:
                try:
                    result = part.federated(entry.method, entry.settings, bar.on_round)
                except (
                    SafeError,
                    CollectResultsError,
                ) as error:  # as after steps too long: others may be right
                    if not found and _of_table(str(error), tried[name]):
                        raise  # all tries would fail like the first
                    failed = str(error)
                else:
                    spent["trained"] += 1
                    spent["rounds"] += len(result["history"])
                    spent["bytes"] += sum(row["bytes_up"] + row["bytes_down"] for row in result["history"])
                    if not (failed := result.get("stopped", "")):
                        scores.add(name, model_comparison.score(result, by))
                if failed:
                    console.say(f"{name}: {failed}")
                    break
            found.append(Try(tried[name], scores[name][: len(parts)], failed))
    return found, spent


def _of_table(failed: str, tried: Mapping[str, Any]) -> bool:
    """Whether a try failed while nodes read and prepared their rows, which it does like all others."""
    return failed.startswith("round 0, ") and not OWN_ROWS & {*tried}


def _finish(
    experiment: Experiment,
    options: TuneOptions,
    compared: Mapping[str, Entry],
    found: Sequence[Try],
    spent: Mapping[str, int],
    by: str,
) -> int:
    from v6_workbench.reporting import pictures, tables

    best = max(found, key=lambda one: one.score)
    sign = -1 if by == "loss" else 1
    said = {
        "method": options.method,
        "by": by,
        "folds": options.folds,
        "chosen": best.settings,
        "score": sign * best.score,
        "tries": [
            {"settings": one.settings, "scores": [sign * x for x in one.scores], "failed": one.failed} for one in found
        ],
        "spent": spent,
    }
    if options.out and not best.failed:
        write_whole(options.out / "search.json", json.dumps(said, indent=1))
        pictures.write(pictures.search(found, by), options.out / "search.png")
    console.console().print(tables.search_table(found, by))
    if best.failed:
        return console.complain(console.FAILED, "no try was trained to the end; see the lines above")
    name = _name(best.settings)
    console.say(
        LEAK.format(
            tries=counted(len(found), "try", "tries"),
            trainings=counted(spent["trained"], "training"),
            rounds=counted(spent["rounds"], "round"),
            megabytes=spent["bytes"] / 1e6,
        )
    )
    console.announce(f"chosen: {name}; it is trained now on all training rows, and judged on rows that no try has seen")
    entry = compared[name]
    try:
        with console.Bar(entry.settings["rounds"], options.method, one_job=True) as bar:
            result = experiment.federated(entry.method, entry.settings, bar.on_round)
    except Interrupted as error:
        result = error.result
    print(f"{MEASURES.get(by, by)} by which it was chosen: {sign * best.score:.4f}; the rows below are others")
    return show.finish(result, options.out, options.target, {"chosen": best.settings, "tries": len(found)})
