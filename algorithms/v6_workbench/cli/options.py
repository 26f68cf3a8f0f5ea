"""The options of all commands. This module imports nothing slow, see ``Command``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from v6_federated.rules.limits import DEFAULT
from v6_workbench.cli.records import DEFAULT_BLOCKS, Option, read_block, read_id, read_iterations, read_seed

BY = ("accuracy", "auc", "loss", "r2", "c_index")
PICTURE = "plan.png"

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


# ---- what each command takes

NetworkName = Annotated[str, Option("name of the network ({default})")]


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Options of ``demo``."""

    out: Annotated[Path, Option("folder for the files ({default})", "DIR")] = Path("runs/demo")
    seed: Annotated[int, Option("seed of every random choice ({default})", read=read_seed)] = 0


@dataclass(frozen=True, kw_only=True)
class RunOptions(ExperimentOptions):
    """Options of ``run``."""

    method: Method
    out: ResultFolder = None
    page: PageFile = None
    resume: Annotated[Path | None, Option("resume an earlier result.json, up to --rounds in total", "RESULT")] = None


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ExperimentOptions):
    """Options of ``compare``."""

    methods: Annotated[
        tuple[str, ...],
        Option(
            "a method with settings of its own; centralized:METHOD[:...] trains it on the pooled rows, "
            "alone:METHOD[:...] at each node on its own rows only",
            "METHOD[:key=value,...]",
            positional=True,
        ),
    ]
    out: Annotated[Path | None, Option("folder for comparison.png and a folder for each result", "DIR")] = None
    test: Annotated[
        int | None,
        Option(
            "cross-validate I times (1), and test which method is better; with --out: test.json, posteriors.png, and "
            "folds.json, from which the same command goes on",
            "I",
            read=read_iterations,
            bare=1,
        ),
    ] = None
    folds: Annotated[int | None, Option("folds of the cross-validation (5)", "K")] = None
    rope: Annotated[
        float | None,
        Option("difference in accuracy, or R squared, up to which methods are practically equivalent (0.01)", "D"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TuneOptions(ExperimentOptions):
    """Options of ``tune``."""

    method: Method
    grid: Annotated[
        tuple[str, ...],
        Option("values to try: lr=0.01,0.1,1, or with --random a range: lr=0.001..1; can be given again", "KEY=VALUES"),
    ] = ()
    random: Annotated[int | None, Option("try N combinations, drawn at random, in place of all", "N")] = None
    folds: Annotated[
        int | None, Option("choose by a cross-validation of the training rows (one share of them, as --holdout)", "K")
    ] = None
    by: Annotated[
        str | None, Option(f"choose by {', '.join(BY)} (accuracy; r2 of numbers, c_index of times)", "MEASURE")
    ] = None
    out: ResultFolder = None


@dataclass(frozen=True, kw_only=True)
class SettingsOptions:
    """Options of ``settings``."""

    method: Method


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of ``report``."""

    results: Annotated[
        tuple[Path, ...], Option("a result.json, or the folder that it is in", "RESULT", positional=True)
    ]
    target: Target = None
    out: Annotated[Path | None, Option("folder for the pictures", "DIR")] = None
    format: Annotated[str, Option("format of the pictures: png, svg or pdf ({default})", "FORMAT")] = "png"
    html: Annotated[Path | None, Option("file for a page with everything in it", "FILE")] = None
    csv: Annotated[Path | None, Option("folder for the tables as CSV", "DIR")] = None


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of ``export``."""

    result: Annotated[Path, Option("a result.json, or the folder that it is in", "RESULT", positional=True)]
    to: Annotated[Path, Option("model.npz, .safetensors or .pt; for trees also model.txt, LightGBM's format", "FILE")]


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Options of ``predict``."""

    model: Annotated[
        Path, Option("a result.json, its folder, or an exported model", "MODEL_OR_RESULT", positional=True)
    ]
    data: Annotated[str, Option("rows with the features' columns: .csv, .xlsx, ... or .npz", "D")]
    out: Annotated[Path, Option("file for the predictions, a .csv", "FILE")]
    keep: Annotated[
        str | None, Option("columns of the rows to copy to the predictions, for example an identifier", "A,B")
    ] = None


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of ``privacy plan``."""

    epsilon: Annotated[float, Option("what the job may cost each hospital", "E")]
    rows: Annotated[int, Option("rows of all hospitals together", "N")]
    hospitals: Annotated[int, Option("number of hospitals", "K")]
    rounds: Annotated[int, Option("rounds of the job", "R")]
    delta: Annotated[float, Option("delta of the budget, below 1 / rows of a hospital ({default})", "D")] = 1e-5
    sampling: Annotated[float, Option("probability of a row to take part in a step ({default}: all rows)", "Q")] = 1.0
    epochs: Annotated[int, Option("passes over the rows in a round ({default})", "E")] = 1
    steps_per_epoch: Annotated[
        int | None, Option("steps of an epoch (1 / sampling; 1: one step a round, whose noise a study shares)", "N")
    ] = None
    evaluate_every: Annotated[int, Option("rounds from one evaluation to the next ({default})", "N")] = 1
    clip: Annotated[float, Option("largest norm of a row's gradient ({default})", "C")] = 1.0
    parameters: Annotated[
        int, Option("parameters of the model ({default}: a logistic regression on 30 columns)", "P")
    ] = 31
    classes: Annotated[int, Option("classes of the label ({default})", "C")] = 2
    holdout: Annotated[float, Option("share of rows that are held out ({default})", "SHARE")] = 0.2
    block: Annotated[int | None, Option("hospitals of a block of the study (as run --study deals them)", "N")] = None
    hospitals_a_person: Annotated[
        int, Option("at how many hospitals the study lets a person have rows ({default})", "N")
    ] = 1
    out: Annotated[Path | None, Option(f"folder for a picture, {PICTURE}", "DIR")] = None


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(ServerOptions, JobOptions):
    """Options of ``submit``."""

    method: Method
    out: ResultFolder = None
    page: PageFile = None
    resume: Annotated[
        str | None,
        Option("resume an earlier result.json, or a task by its id, up to --rounds in total", "RESULT|TASK"),
    ] = None
    repeats: Annotated[int | None, Option("refused, as hospitals hold out the same rows in every job", "R")] = None
    image: Annotated[str | None, Option("the method's image (v6-METHOD)")] = None
    organization: Annotated[int | None, Option("where central runs (the first organization)", "ID")] = None
    database: Annotated[str | None, Option("label of the nodes' database (default)", "LABEL")] = None
    query: Annotated[str | None, Option("query for an SQL or SPARQL database, if the nodes allow queries", "SQL")] = (
        None
    )

    @property
    def resumed_task(self) -> int | None:
        """The task to resume, if ``resume`` is the id of one."""
        return int(self.resume) if self.resume is not None and self.resume.isdecimal() else None


@dataclass(frozen=True, kw_only=True)
class TasksOptions(ServerOptions):
    """Options of ``tasks``."""

    last: Annotated[int, Option("how many tasks to list ({default})", "N")] = 20


@dataclass(frozen=True, kw_only=True)
class TaskOptions(ServerOptions):
    """Options of ``status`` and ``cancel``."""

    task: TaskId


@dataclass(frozen=True, kw_only=True)
class WatchOptions(TaskOptions):
    """Options of ``watch``."""

    out: ResultFolder = None
    target: Target = None
    page: PageFile = None


@dataclass(frozen=True, kw_only=True)
class FetchOptions(TaskOptions):
    """Options of ``fetch``."""

    out: Annotated[Path, Option("folder for result.json and its pictures", "DIR")]
    target: Target = None


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of ``check``."""

    method: Annotated[str, Option("a method's name, its import package, or its test file", "METHOD", positional=True)]


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """Options of ``network status`` and ``network down``."""

    name: NetworkName = "default"


@dataclass(frozen=True, kw_only=True)
class UpOptions(DealOptions, ColumnOptions):
    """Options of ``network up``."""

    name: NetworkName = "default"
    nodes: Annotated[int | None, Option("number of nodes (3, or as many as column:NAME names)", "K")] = None
    port: Annotated[int | None, Option("the server's port (a free one)")] = None
    profile: Annotated[
        str, Option("limits of the nodes: trusting, as on mock nodes, or careful ({default})", "PROFILE")
    ] = DEFAULT
    encrypted: Annotated[bool, Option("make the collaboration encrypted")] = False
