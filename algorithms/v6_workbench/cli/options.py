"""Options that several commands share. Each command adds its own in its module."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from v6_workbench.cli.records import DEFAULT_BLOCKS, Option, read_block, read_id, read_seed

Method = Annotated[str, Option("name of a method, for example fedavg", "METHOD", positional=True)]
ResultFolder = Annotated[Path | None, Option("folder for result.json and its pictures", "DIR")]
TaskId = Annotated[int, Option("id of the task, as `tasks` lists it", "TASK", positional=True, read=read_id)]
Target = Annotated[float | None, Option("accuracy to count the rounds to", "A")]
PageFile = Annotated[
    Path | None, Option("page of the rounds, written anew after each while the job runs; open it in a browser", "FILE")
]


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Which columns are used."""

    label: Annotated[str | None, Option("the label's column (the last)", "COLUMN")] = None
    features: Annotated[
        str | None, Option("the features' columns (all others); a JSON list for names with commas", "A,B,C")
    ] = None
    exclude: Annotated[
        str | None,
        Option("columns that are not features, for example an identifier of patients; written as --features", "A,B"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class JobOptions(ColumnOptions):
    """The settings of a job."""

    model: Annotated[
        str | None, Option("logreg (unless the method brings its own model), svm, fnn, ... or M:option=number", "M")
    ] = None
    rounds: Annotated[int | None, Option("communication rounds at most (10; 25 of glm and cox)", "N")] = None
    target: Target = None
    stop_at_target: Annotated[bool, Option("end the training once the target is reached")] = False
    until_converged: Annotated[
        float | None, Option("end the training once so small a share of the model is left to change, as 0.005", "TOL")
    ] = None
    settings: Annotated[
        tuple[str, ...], Option("a setting of the method; can be given again", "KEY=VALUE", flag="--set")
    ] = ()
    preprocess: Annotated[
        tuple[str, ...],
        Option(
            "impute[:median], onehot[:cp,thal], clip:0.01, standardize, pca:K, ... fitted over all nodes; can be "
            "given again",
            "STEP",
        ),
    ] = ()
    holdout: Annotated[
        float | None, Option("share of rows kept for evaluation (0.2, or that of the resumed job)", "SHARE")
    ] = None
    seed: Annotated[
        int | None, Option("seed of every random choice (0, or that of the resumed job)", read=read_seed)
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Where tasks are: a local network, or another server."""

    network: Annotated[str, Option("a local network ({default})", "NAME")] = "default"
    server: Annotated[
        str | None, Option("another server in place of a local network, such as https://server.org:443/api", "URL")
    ] = None
    auth: Annotated[
        str | None,
        Option("vantage6 5: address of its Keycloak, where you sign in, such as https://auth.org", "URL"),
    ] = None
    username: Annotated[
        str | None,
        Option(
            "your name at that server; the password is V6_FEDERATED_PASSWORD, or asked for (vantage6 5: the name of a "
            "service account and its secret; without it, you sign in with a browser)"
        ),
    ] = None
    collaboration: Annotated[int | None, Option("a collaboration at that server", "ID")] = None
    key: Annotated[Path | None, Option("private key, if the collaboration is encrypted", "FILE")] = None
    server_timeout: Annotated[
        float, Option("how long the server may not answer, before the command ends ({default})", "SECONDS")
    ] = 300.0


@dataclass(frozen=True, kw_only=True)
class DealOptions:
    """Data, and how they are dealt to nodes."""

    data: Annotated[
        tuple[str, ...],
        Option(
            "breast-cancer, diabetes, digits, wine, or a file: .csv, .tsv, .csv.gz, .xlsx, .parquet, .npz; if given "
            "several times, each table is a node, named like its file",
            "D",
        ),
    ]
    nodes: Annotated[int | None, Option("number of nodes (5, or as many as column:NAME names)", "K")] = None
    partition: Annotated[str | None, Option("iid, shards, dirichlet:0.5, column:hospital, ... (iid)", "P")] = None
    partition_seed: Annotated[int, Option("seed of the partition ({default})", "S", read=read_seed)] = 0
    study: Annotated[
        int | None,
        Option(
            "give the nodes a study, so that central learns sums over blocks of hospitals only (aggregation=pinned); "
            "blocks of SIZE (5 where there are 10 nodes or more, otherwise one block)",
            "SIZE",
            read=read_block,
            bare=DEFAULT_BLOCKS,
        ),
    ] = None
    schema: Annotated[
        Path | None, Option("with --study: what all nodes declare about their tables, a schema.json", "FILE")
    ] = None
    hospital_totals: Annotated[
        str | None,
        Option(
            "with --study: told, if sums may tell totals of single hospitals, or hidden, if only sums over rows are "
            "answered (told, on this machine)",
            "told|hidden",
        ),
    ] = None
    node_env: Annotated[
        tuple[str, ...],
        Option(
            "environment of the algorithms at every node, or at node K: its policy; can be given again",
            "[K:]NAME=VALUE",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(DealOptions, JobOptions):
    """A job on mock nodes."""

    speeds: Annotated[
        float | None,
        Option("simulate nodes of different speeds; the slowest is TIMES slower than the fastest", "TIMES"),
    ] = None
    repeats: Annotated[
        int | None,
        Option("deal and hold out the rows R times in different ways, and show means with their intervals", "R"),
    ] = None
    processes: Annotated[int | None, Option("worker processes (one for each processor; 1 for small data)", "P")] = None
    cluster: Annotated[
        str | None,
        Option(
            "workers of a cluster in place of processes of this machine: dask:ADDRESS of its scheduler, ray, or "
            "ray:ADDRESS",
            "CLUSTER",
        ),
    ] = None
    hospital_folder: Annotated[
        Path | None, Option("folder in which each node keeps its audit log and counters, as node-K", "DIR")
    ] = None
