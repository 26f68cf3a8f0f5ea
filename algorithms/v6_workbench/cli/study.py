"""The options ``--study`` and ``--schema``: a study for nodes on this machine."""

from collections.abc import Mapping
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.masks.study import TOTALS
from v6_federated.messages.job import TOLD
from v6_federated.rules.schema import Schema
from v6_workbench.cli.options import DealOptions
from v6_workbench.cli.records import DEFAULT_BLOCKS
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.studies import StudyPlan


def plan_of(options: DealOptions) -> StudyPlan | None:
    """Return the study that the options ask for.

    Args:
        options: the options.

    Returns:
        What the study is to be; None if the options ask for none.

    Raises:
        SafeError: the schema cannot be read, or is given without a study.
    """
    if options.study is None:
        if options.schema is not None:
            raise SafeError(f"--schema {options.schema} needs a study, which carries the schema; add --study")
        if options.hospital_totals is not None:
            raise SafeError(f"--hospital-totals {options.hospital_totals} needs a study, which says so; add --study")
        return None
    totals = options.hospital_totals or TOLD  # all rows on this machine are the developer's
    if totals not in TOTALS:
        raise SafeError(f"--hospital-totals {totals} is not understood; expected {' or '.join(TOTALS)}")
    schema = None
    if options.schema is not None:
        if options.schema.is_dir():
            raise SafeError(f"--schema {options.schema} is a folder; expected a file, such as schema.json in it")
        try:
            schema = Schema.of_file(options.schema.resolve())
        except FileNotFoundError:
            raise SafeError(
                f"--schema {options.schema}: there is no such file; `v6-federated schema new TABLE` drafts one"
            ) from None
        except SafeError as error:
            raise SafeError(f"--schema: {error}") from None
    size = None if options.study == DEFAULT_BLOCKS else options.study
    return StudyPlan(size, schema, hospital_totals=totals)


def settings_with(options: DealOptions, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Let a job be in the study of its nodes, unless its settings say otherwise.

    Args:
        options: the options.
        settings: the job's settings.

    Returns:
        The settings.
    """
    return {**settings} if options.study is None else {"aggregation": "pinned", **settings}


def check_there(aggregation: str, experiment: Experiment) -> None:
    """Refuse a job in a study if its nodes have none.

    Args:
        aggregation: the setting of the job, which a resumed job takes over.
        experiment: the nodes; those with folders of their own may have accepted a study before.

    Raises:
        SafeError: they have none.
    """
    if aggregation == "pinned" and experiment.study is None and experiment.hospital_folder is None:
        raise SafeError("aggregation=pinned needs a study that the nodes have accepted; add --study")
