"""``compare --test``: every method on every fold of repeated cross-validations, and which of them is better."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_workbench import registry, simulation
from v6_workbench.cli import console
from v6_workbench.cli.entries import Entry, errors_name
from v6_workbench.reporting.summary import MEASURES, Verdict
from v6_workbench.simulation.cluster import remote
from v6_workbench.simulation.experiments import Experiment, as_json
from v6_workbench.simulation.studies import StudyPlan

if TYPE_CHECKING:
    from v6_workbench.simulation.model_comparison import Scores


@dataclass(frozen=True)
class Test:
    """A test that has been checked and can be run.

    Attributes:
        experiment: the experiment on all rows.
        folds: the experiments of the folds, one at a time.
        compared: the entries by their names.
        scores: their scores so far.
        measure: what their models are measured by.
        settings: ``folds``, ``iterations`` and ``rope``, as in ``test.json``.
        out: the folder of ``--out``.
    """

    experiment: Experiment
    folds: Iterator[Experiment]
    compared: Mapping[str, Entry]
    scores: "Scores"
    measure: str
    settings: Mapping[str, Any]
    out: Path | None


def prepared(
    experiment: Experiment,
    compared: Mapping[str, Entry],
    iterations: int,
    folds: int | None,
    rope: float | None,
    out: Path | None,
) -> Test:
    """Check a test before anything is trained, printed, written or removed.

    Args:
        experiment: the experiment on all rows.
        compared: the entries by their names.
        iterations: how often the cross-validation is repeated.
        folds: folds of each; None is the default.
        rope: region of practical equivalence; None is the default.
        out: the folder of ``--out``.

    Returns:
        The test.

    Raises:
        SafeError: the methods cannot be tested.
    """
    from v6_workbench.simulation import model_comparison  # baycomp is slow to import

    folds = model_comparison.FOLDS if folds is None else folds
    rope = model_comparison.ROPE if rope is None else rope
    measure = _measure(compared)
    experiments = model_comparison.experiments_of(experiment, iterations, folds)
    model_comparison.check(len(compared), rope)
    scores = model_comparison.Scores(
        out / "folds.json" if out else None,
        {name: depends_on(experiment, name, entry, folds) for name, entry in compared.items()},
    )
    settings = {"folds": folds, "iterations": iterations, "rope": rope}
    return Test(experiment, experiments, compared, scores, measure, settings, out)


def run(test: Test) -> int:
    """Cross-validate, show signs, and write posteriors and scores.

    Args:
        test: the test.

    Returns:
        The exit status.
    """
    from v6_workbench.reporting import pictures, tables
    from v6_workbench.simulation import model_comparison

    compared, scores, out = test.compared, test.scores, test.out
    asked = test.settings["iterations"] * test.settings["folds"]
    missing = {name: max(asked - len(scores[name]), 0) for name in compared}
    if (known := asked * len(compared) - sum(missing.values())) > 0:
        console.say(f"{known} of the {asked * len(compared)} scores are already in {out}, and are not trained again")
    if out:  # files of an earlier test
        for name in ("test.json", "posteriors.png"):
            (out / name).unlink(missing_ok=True)
    with console.Bar(sum(n * compared[name].settings["rounds"] for name, n in missing.items()), "compare") as bar:
        for i, one in enumerate(test.folds):
            for name, entry in compared.items():
                if i < len(scores[name]):
                    continue
                train = one.centralized if entry.kind else one.federated
                with errors_name(name):
                    result = train(entry.method, entry.settings, bar.on_round)
                if "stopped" in result:
                    return console.complain(console.FAILED, f"{name}: {result['stopped']}")
                scores.add(name, model_comparison.score(result, test.measure))
    found = {name: scores[name][:asked] for name in compared}
    rope = test.settings["rope"]
    verdicts = model_comparison.verdicts(found, test.settings["iterations"], rope)
    tested = {
        **test.settings,
        "seed": test.experiment.seed,
        "partition_seed": test.experiment.partition_seed,
        "measure": MEASURES[test.measure],
        "scores": found,
        "pairs": [_pair(first, second, verdict) for (first, second), verdict in verdicts.items()],
    }
    if out:
        write_whole(out / "test.json", json.dumps(tested, indent=1))
        pictures.write(pictures.posteriors(verdicts, rope, MEASURES[test.measure]), out / "posteriors.png")
    console.console().print(tables.signs(verdicts, found))
    console.last_line({key: tested[key] for key in ("iterations", "folds", "rope", "pairs")})
    return console.OK


def _pair(first: str, second: str, verdict: Verdict) -> dict[str, Any]:
    numbers = {name: getattr(verdict, name) for name in ("difference", "better", "equal", "worse", "sign")}
    return {"first": first, "second": second, **numbers}


def depends_on(experiment: Experiment, name: str, entry: Entry, folds: int | None) -> dict[str, Any]:
    """List all that the scores of an entry depend on, the program and its libraries too.

    Args:
        experiment: the experiment on all rows.
        name: the entry's name.
        entry: the entry.
        folds: folds of the cross-validation; None: there is none.

    Returns:
        It, as JSON.
    """
    return {
        "name": name,
        "kind": entry.kind,
        "settings": entry.settings,
        "folds": folds,
        "policy": as_json(experiment.policy()),
        "policies": {k: as_json(experiment.policy(k)) for k in experiment.environments},
        "study": None if entry.kind or experiment.study is None else _study(experiment.study),  # a baseline has none
        "code": registry.code(entry.method, simulation),
        "versions": remote.versions(),
        "label": experiment.label,
        "features": experiment.features,
        "seed": experiment.seed,
        **experiment.description(),
    }


def _study(plan: StudyPlan) -> dict[str, Any]:
    schema = None if plan.schema is None else plan.schema.digest
    return {"size": plan.size, "schema": schema, "hospital_totals": plan.hospital_totals}


def _measure(compared: Mapping[str, Entry]) -> str:
    """What the methods of a test are measured by, the same of all. Raises SafeError."""
    for name, entry in compared.items():
        if entry.kind == "alone":
            raise SafeError(f"{name} cannot be used with --test, which compares methods; remove it, or --test")
        if not registry.supervised(entry.method):
            raise SafeError(f"{name} trains no model that could be tested; expected methods that do")
    measures = {entry.measure for entry in compared.values()}
    if len(measures) > 1:
        raise SafeError(
            "methods that predict classes, numbers or times cannot be compared with each other; use the same objective "
            "or loss for all"
        )
    for name, entry in compared.items():
        for setting in ("early_stopping", "target"):
            if entry.settings.get(setting) is not None:
                raise SafeError(
                    f"{name}: {setting} would choose the model by the rows that it is tested on; remove it, or --test"
                )
    return measures.pop()
