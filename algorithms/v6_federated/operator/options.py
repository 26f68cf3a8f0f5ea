"""The options of the commands of operators. This module imports nothing slow, see ``Command``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from v6_federated.operator.command_line import Option
from v6_federated.rules.limits import PROFILES

Folder = Annotated[Path, Option("the hospital's own folder", "FOLDER", positional=True)]


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of ``audit``."""

    file: Annotated[Path, Option("a hospital's folder, its audit.jsonl, or a task's output", "FILE", positional=True)]
    job: Annotated[str | None, Option("show every answer of the job whose key begins so", "KEY")] = None
    epsilon: Annotated[
        float | None, Option("the node's privacy budget (V6_FEDERATED_EPSILON of the environment)", "E")
    ] = None
    delta: Annotated[
        float | None, Option("delta of the budget (V6_FEDERATED_DELTA of the environment, or 1e-5)", "D")
    ] = None


@dataclass(frozen=True, kw_only=True)
class KeysOptions:
    """Options of ``keys new`` and ``keys show``."""

    folder: Folder


@dataclass(frozen=True, kw_only=True)
class ResultsOptions:
    """Options of ``results``."""

    folder: Folder


@dataclass(frozen=True, kw_only=True)
class StopOptions:
    """Options of ``stop``."""

    folder: Folder
    jobs: Annotated[
        tuple[str, ...],
        Option("keys of jobs, as `audit` shows them, or their beginnings", "JOB", positional=True),
    ] = ()
    all: Annotated[bool, Option("all jobs, those that have not begun too")] = False
    undo: Annotated[bool, Option("let these jobs (or with --all, all) go on")] = False
    list: Annotated[bool, Option("only show what is stopped")] = False


@dataclass(frozen=True, kw_only=True)
class LimitsOptions:
    """Options of ``limits``."""

    file: Annotated[
        Path | None, Option("the node's configuration; without it, the environment's limits", "FILE", positional=True)
    ] = None
    profile: Annotated[str | None, Option(f"show the limits of a profile: {', '.join(PROFILES)}", "PROFILE")] = None


@dataclass(frozen=True, kw_only=True)
class NewSchemaOptions:
    """Options of ``schema new``."""

    table: Annotated[
        Path, Option("the hospital's table: csv, Excel, Parquet, npz, a folder of images", "TABLE", positional=True)
    ]
    label: Annotated[str | None, Option("the label's column (the last)", "COLUMN")] = None
    regression: Annotated[bool, Option("the label is a number to predict, not a class")] = False
    person: Annotated[
        str | None, Option("the column that says which rows are of the same person; no feature", "COLUMN")
    ] = None
    out: Annotated[Path | None, Option("the file to write (without it, the draft is printed)", "FILE")] = None


@dataclass(frozen=True, kw_only=True)
class CheckSchemaOptions:
    """Options of ``schema check``."""

    folder: Annotated[Path, Option("the hospital's own folder, or a schema.json", "FOLDER", positional=True)]
    table: Annotated[Path | None, Option("compare it with this table of the hospital", "TABLE")] = None


@dataclass(frozen=True, kw_only=True)
class NewStudyOptions:
    """Options of ``study new``."""

    file: Annotated[Path, Option("the file to write, which all hospitals get", "FILE", positional=True)]
    name: Annotated[str, Option("name of the study")]
    hospitals: Annotated[
        tuple[str, ...], Option("a hospital and its public key; given once for each", "NAME=KEY", flag="--hospital")
    ]
    block_size: Annotated[
        int | None, Option("make blocks of at least this many hospitals, in the given order (one block of all)", "B")
    ] = None
    blocks: Annotated[
        tuple[str, ...], Option("the hospitals of a block; given once for each block", "A,B,C", flag="--block")
    ] = ()
    colluders: Annotated[
        int, Option("hospitals of a block that may work together with the server ({default})", "N")
    ] = 1
    hospitals_a_person: Annotated[
        int, Option("at how many hospitals a person may have rows ({default}); noise of a budget grows with it", "N")
    ] = 1
    schema: Annotated[Path | None, Option("the schema.json that all hospitals share", "FILE")] = None
    hospital_totals: Annotated[
        str | None,
        Option(
            "required: told, if sums may tell totals of single hospitals, or hidden, if only sums over rows are "
            "answered",
            "told|hidden",
        ),
    ] = None
    version: Annotated[int, Option("number of the version ({default}); each one is higher than the last", "N")] = 1


@dataclass(frozen=True, kw_only=True)
class CheckStudyOptions:
    """Options of ``study check``."""

    folder: Folder


@dataclass(frozen=True, kw_only=True)
class AcceptStudyOptions:
    """Options of ``study accept``."""

    folder: Folder
    code: Annotated[str, Option("the code, as it was read aloud on the call")]


@dataclass(frozen=True, kw_only=True)
class SizesOptions:
    """Options of ``study sizes``."""

    hospitals: Annotated[int, Option("number of hospitals", "K")]
    misses: Annotated[float, Option("share of rounds in which a hospital does not answer ({default})", "SHARE")] = 0.03
    rounds: Annotated[int, Option("rounds of a job ({default})", "N")] = 20
