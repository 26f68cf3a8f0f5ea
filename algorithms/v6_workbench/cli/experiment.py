"""The experiment that the options of a command ask for, checked before anything starts."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.central import resume
from v6_federated.messages.common import Common
from v6_federated.messages.job import SPECIAL
from v6_workbench import registry
from v6_workbench.cli import job, node_environment, study
from v6_workbench.cli.options import DealOptions, ExperimentOptions
from v6_workbench.errors import no_such, some_of
from v6_workbench.simulation import cluster, datasets, dealing, partitions, studies
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.mock import TRUSTING

NODES = 5
PROCESSES_A_PROCESSOR = 16  # more make nothing faster, and each needs memory for itself


def experiment_of(
    options: ExperimentOptions, labelled: bool = True, named: Sequence[str] = (), times: bool = False
) -> Experiment:
    """Return the experiment that the options ask for.

    Args:
        options: the options.
        labelled: whether the method uses a label.
        named: columns that settings name, see ``job.columns_named``.
        times: whether the method looks at times only, so that files need no other columns in common.

    Returns:
        The experiment; its rows are read.

    Raises:
        SafeError: an option is wrong, or the data cannot be read.
    """
    partitions.check(options.partition or "iid")
    for name, count in (("nodes", options.nodes), ("processes", options.processes)):
        if count is not None and count < 1:
            raise SafeError(f"--{name} {count} is too few; expected at least 1")
    most = PROCESSES_A_PROCESSOR * (os.cpu_count() or 1)
    if options.processes is not None and options.processes > most:
        raise SafeError(f"--processes {options.processes} is too many for this machine; expected 1 to {most}")
    if options.cluster is not None:
        if options.processes is not None:
            raise SafeError(
                "--processes cannot be used with --cluster, which has its own workers; remove one of the two"
            )
        cluster.check(options.cluster)
    environment = node_environment.read(options.node_env)
    node_environment.check_mock(environment)
    environment.check(TRUSTING)
    plan = study.plan_of(options)
    features, excluded = job.features_of(options), job.excluded_of(options)
    used = [] if times else features
    dataset, partition = dataset_of(options, used, options.label, labelled, excluded, named)
    made = Experiment(
        dataset=dealing.with_names(dataset, partition),  # read once, not for every fold
        nodes=options.nodes if options.nodes or partition.startswith("column:") else NODES,
        partition=partition,
        seed=options.seed or 0,
        partition_seed=options.partition_seed,
        label=options.label,
        features=features,
        holdout=options.holdout,
        processes=options.processes,
        environment=environment.every,
        environments=environment.own,
        slowest=options.speeds,
        hospital_folder=options.hospital_folder,
        study=plan,
        cluster=options.cluster,
    )
    if environment.own:
        environment.check_nodes(len(made.named()))
    if plan is not None:
        numbers = [*range(1, len(made.named()) + 1)]
        least = max(made.policy(k).minimum_organizations for k in numbers)
        studies.dealt([*made.named()], plan.size, least)
    return made if excluded is None else replace(made, features=_without(made, options, excluded))


def check_holdout(options: ExperimentOptions, trains: bool) -> None:
    """Refuse a ``--holdout`` that would have no effect.

    Args:
        options: the options.
        trains: whether any of the methods trains a model.

    Raises:
        SafeError: none does, and the options name a holdout.
    """
    if options.holdout is not None and not trains:
        raise SafeError(
            f"--holdout {options.holdout:g} has no effect, since no model is trained that could be evaluated; remove it"
        )


def check_columns(options: ExperimentOptions, method: str) -> None:
    """Refuse ``--features`` and ``--exclude`` for a method that looks at times only.

    Args:
        options: the options.
        method: the method's name.

    Raises:
        SafeError: the options name columns that the method does not look at.
    """
    named = [f"--{name}" for name in ("features", "exclude") if getattr(options, name) is not None]
    if named and registry.times_only(method):
        raise SafeError(f"{named[0]} has no effect on {method}, which looks at times only; remove it")


def check_evaluated(
    methods: Sequence[str], experiment: Experiment, command: str, folds: bool = False, test_set: bool = True
) -> None:
    """Check that methods are evaluated, and by default on the same rows.

    Args:
        methods: the methods' names.
        experiment: the experiment.
        command: the command or option that compares what is evaluated.
        folds: whether the rows of folds are evaluated, and none are held out.
        test_set: whether the rows of a test set are evaluated, if the dataset has one.

    Raises:
        SafeError: a method evaluates nothing; or the options name no ``--holdout``, and the methods hold out no rows or
            different shares.
    """
    trained = [*dict.fromkeys(method for method in methods if registry.supervised(method))]
    if idle := next((method for method in trained if not registry.evaluates(method)), None):
        use = f"remove {command}" if command.startswith("-") else f"use `v6-federated run {idle}`"
        raise SafeError(f"{idle} evaluates no model, so {command} has nothing to compare; {use}")
    shares = {method: experiment.share(method) for method in trained}
    alike = len({*shares.values()}) == 1 and 0 not in shares.values()
    tested = folds or (test_set and experiment.test is not None)
    if trained and not alike and not tested and experiment.holdout is None:
        said = (f"{method} holds out {f'{share:g} of the' if share else 'no'} rows" for method, share in shares.items())
        raise SafeError(
            f"by default {' and '.join(said)}; {command} needs rows that all methods hold out: add for example "
            "--holdout 0.2"
        )


def dataset_of(
    options: DealOptions,
    features: list[str] | None,
    label: str | None,
    labelled: bool = True,
    excluded: list[str] | None = None,
    named: Sequence[str] = (),
) -> tuple[Dataset, str]:
    """Return the dataset that the options ask for, and how it is dealt.

    Args:
        options: the options.
        features: the columns that are used of several files; None is all.
        label: the label's column; None is the last.
        labelled: whether the method uses a label.
        excluded: columns that are left out of several files, which then need not all have them.
        named: columns that settings name, and that several files must all have.

    Returns:
        The dataset and the partition: by file if there are several, since each is a node; iid unless one is named.

    Raises:
        SafeError: the data cannot be read.
    """
    if len(options.data) == 1:
        return datasets.load(options.data[0]), options.partition or "iid"
    if options.nodes is not None or options.partition is not None:
        raise SafeError(
            f"--data is given {len(options.data)} times, and each file is a node; remove the number of nodes and the "
            "partition"
        )
    dataset = datasets.load_nodes(options.data, features, label, labelled, excluded or (), named)
    return dataset, f"column:{datasets.FILE}"


def with_columns(
    dataset: Dataset, partition: str, label: str | None, features: list[str] | None, excluded: list[str] | None
) -> Dataset:
    """Leave out of a table the columns that are not used.

    Args:
        dataset: the rows.
        partition: how they are dealt; a column that names the nodes stays.
        label: the label's column; None is the last.
        features: the columns that are used; None is all.
        excluded: columns that are not.

    Returns:
        The dataset, its label last.

    Raises:
        SafeError: there are no such columns.
    """
    if features is None and excluded is None:
        return dataset
    option = "--features" if excluded is None else "--exclude"
    there, label = Experiment(dataset, partition=partition, label=label).columns()
    named = features or excluded or []
    if not isinstance(dataset.rows, pd.DataFrame):
        raise SafeError(f"{option}: {dataset.name} has no column names; remove {option}")
    if wrong := [name for name in named if name not in there]:
        raise no_such(option, wrong, there, "feature")
    kept = [c for c in there if (c in named) == (excluded is None)]
    dealt = [c for c in dataset.rows.columns if f"column:{c}" == partition]
    return replace(dataset, rows=dataset.rows[[*dealt, *kept, label]])


def _without(made: Experiment, options: ExperimentOptions, excluded: list[str]) -> list[str]:
    """The features that are left without those excluded."""
    there, _ = made.columns()
    if not there:
        raise SafeError(f"--exclude {', '.join(excluded)}: {options.data[0]} has no column names; remove --exclude")
    if len(options.data) > 1:  # the others have been left out of the files
        return [c for c in there if c not in excluded]
    if wrong := [name for name in excluded if name not in there]:
        raise no_such("--exclude", wrong, there, "feature")
    return [c for c in there if c not in excluded]


def check_job(method: str, settings: Mapping[str, Any], experiment: Experiment, target: float | None) -> None:
    """Check a method and its settings on an experiment, as far as is possible before training.

    Args:
        method: the method's name.
        settings: its settings.
        experiment: the experiment.
        target: the accuracy to count the rounds to.

    Raises:
        SafeError: a setting is wrong, or the data do not fit.
        UserInputError: the earlier result that the settings resume does not fit.
    """
    supervised = registry.supervised(method)
    known = experiment.common(method)
    if supervised:
        known["holdout"] = experiment.share(method)
        if experiment.dataset.test is not None:
            known["evaluators"] = [0]  # an organization that has all held-out rows
    checked = registry.validate(method, {**known, **settings})
    if settings.get("resume"):
        resume.check_kind(settings["resume"], method, checked)
    steps = settings.get("preprocess") or (settings.get("resume") or {}).get("data", {}).get("preprocess")
    job.check_has_accuracy(method, checked, target)
    registry.check(method, checked)
    _check_special(checked, experiment)
    column = partitions.column_of(experiment.partition or "iid")
    if column and getattr(checked, "subgroup", None) == column:
        raise SafeError(
            f"subgroup={column}: --partition deals the rows by this column, and a hospital's own table does "
            "not have it; name another column. Each hospital's results are in by_hospital of a result with plain "
            "answers, and on the report's page"
        )
    study.check_there(checked.aggregation, experiment)
    noisy = getattr(checked, "clip", None) is not None
    experiment.check(
        steps=bool(steps),
        supervised=supervised,
        regression=checked.regression,
        noisy=noisy,
        missing=registry.takes_missing(method),
        named=checked.classes is not None,
        times=registry.times_only(method),
        method=method,
    )
    experiment.deal()


def _check_special(checked: Common, experiment: Experiment) -> None:
    """Check that the table has the columns that settings name and that are neither features nor the label."""
    named = {name: column for name in SPECIAL if (column := getattr(checked, name, None)) is not None}
    table = experiment.dataset.rows
    dealt = partitions.column_of(experiment.partition or "iid")
    there = [str(c) for c in table.columns if str(c) != dealt] if isinstance(table, pd.DataFrame) else []
    if there and (wrong := next((name for name in named if named[name] not in there), None)):
        raise SafeError(f"--set {wrong}={named[wrong]}: no such column; expected one of {some_of(there)}")


def check_same_rows(before: Mapping[str, Any], experiment: Experiment) -> None:
    """Check that an earlier result has the same rows at the same nodes: otherwise it may be trained on held-out rows.

    Args:
        before: the ``experiment`` of the earlier result.
        experiment: the experiment that resumes it.

    Raises:
        SafeError: they differ.
    """
    now = experiment.description()
    for name in now:
        if name not in before or before[name] == now[name]:
            continue
        if name == "trained":
            raise SafeError(f"--resume: the earlier result was trained {before[name]}; expected a federated result")
        option = f"--{name.replace('_', '-')}"
        was = f"no {option}" if before[name] is None else f"{option} {before[name]}"
        was = "other nodes, rows or held-out rows" if name in ("nodes", "rows", "digest") else was
        raise SafeError(f"--resume: the earlier job had {was}; use the same")
