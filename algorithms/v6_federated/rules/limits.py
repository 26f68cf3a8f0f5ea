"""Every limit of a node, with its value in each profile: the one table that the policy and the operators' page read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PREFIX = "V6_FEDERATED_"
PROFILES = ("trusting", "careful", "private")
DEFAULT = "careful"
EVERY = "*"  # in a list of names: all of them
MOST_BANDS = 10_000  # that an operator can choose, and that central accepts
MOST_MADE = 10_000  # columns that steps make, under a limit on parameters

# None: no limit. A text: names divided by commas, or the limit whose value is taken
Value = int | float | str | None
Kind = Literal["number", "share", "switch", "names", "mode"]
AS_CAREFUL = "as careful"
# of aggregation, from the loosest to the strictest; auto is pinned at a node that has a study, and masked at others
MODES = ("plain", "masked", "auto", "pinned")


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        name: its environment variable, without ``V6_FEDERATED_``; in lower case, the attribute of ``Policy``.
        kind: what its value is: a whole number, a number above 0 ("share"), a switch (0 or 1), names divided by commas,
            or one of ``MODES``.
        trusting: its value in the profile ``trusting``.
        careful: its value in the profile ``careful``.
        stricter: which values are stricter: "higher" or "lower" numbers; "listed" for names that exclude all others,
            "unlisted" for names that are exceptions.
        does: what it does, for operators.
        stops: the attack that it is against.
        private: its value in the profile ``private``, where noise takes the place of thresholds on rows: a threshold
            is an answer about rows that no noise covers.
    """

    name: str
    kind: Kind
    trusting: Value
    careful: Value
    stricter: Literal["higher", "lower", "listed", "unlisted", "none"]
    does: str = field(repr=False)
    stops: str = field(repr=False)
    private: Value = AS_CAREFUL

    def value(self, profile: str) -> Value:
        """Its value in a profile."""
        if profile == "private" and self.private != AS_CAREFUL:
            return self.private
        return self.trusting if profile == "trusting" else self.careful

    def looser(self, value: object, profile_value: object) -> bool:
        """Whether a value allows more than the profile's."""
        if value == profile_value or self.stricter == "none":
            return False
        if value is None or profile_value is None:  # None allows everything
            return value is None
        if isinstance(value, frozenset) and isinstance(profile_value, frozenset):
            return not value <= profile_value
        if self.kind == "mode":
            return MODES.index(str(value)) < MODES.index(str(profile_value))
        assert isinstance(value, int | float) and isinstance(profile_value, int | float)
        return value < profile_value if self.stricter == "higher" else value > profile_value


LIMITS = (
    Limit(
        "AGGREGATION", "mode", "plain", "auto", "higher",
        "`plain` lets central see this node's own answers. `masked` answers only with masked numbers, of which central "
        "learns the sum over the job's organizations; methods that need single answers are refused. `pinned` answers "
        "only in the study that lies accepted in the hospital's folder, with keys that the hospitals have exchanged. "
        "`auto` is `pinned` where such a study lies, and `masked` otherwise",
        "the curious, who would see this hospital's model; with `pinned`, also a server that lies",
    ),
    Limit(
        "MINIMUM_ROWS", "number", 10, 10, "higher",
        "Refuses training or statistics on fewer rows than this. Refuses a column in which some rows, but fewer than "
        "this, have a value. Refuses trees whose leaves may have fewer rows; in a study, leaves have so many rows of "
        "all hospitals. The number of held-out rows is 0 or a "
        "multiple of this number. Where rows are evaluated but not trained on, a column in which fewer of them have a "
        "value counts as empty",
        "an answer about a few patients",
    ),
    Limit(
        "MINIMUM_ROWS_A_CLASS", "number", 3, 5, "higher",
        "Refuses a label that has, on average, fewer rows per value. The node does not send the name of a label value, "
        "or of a level of a category, that fewer rows have; in training and statistics, such a level counts as "
        "unknown. Counts in histograms, and of events in cells of time, are multiples of this number. In a study they "
        "are exact, and central's code rounds, joins or leaves out what is small over a block",
        "finding a person by a rare diagnosis or word",
        private=1,
    ),
    Limit(
        "CLASSES", "names", EVERY, "", "unlisted",
        "Refuses a task that names a class which none of the node's rows has, or fewer than "
        "`V6_FEDERATED_MINIMUM_ROWS_A_CLASS`, unless this comma-separated list holds the class. `*` allows all classes",
        "an invented class, whose parameters single out rows",
        private=EVERY,
    ),
    Limit(
        "MAXIMUM_CLASSES", "number", 100, 100, "lower",
        "Refuses to send the values of a label that has more values than this. Refuses to train on a category that has "
        "more levels, counted before any preprocessing. Refuses a task that lists more classes than this number or "
        "100, whichever is larger. At the node where central runs, the larger of the two also limits how many classes "
        "and levels central accepts from one node",
        "a column of names or dates as the label",
    ),
    Limit(
        "MINIMUM_ROWS_A_SIDE", "number", 0, 5, "higher",
        "If all rows of a column of numbers have the same value except a few (fewer than this number), these few get "
        "that value too, in the data and after each preprocessing step: in training, in statistics and in evaluations",
        "a column that marks one patient: its covariances with other columns are that patient's values",
        private=0,
    ),
    Limit(
        "MINIMUM_ROWS_A_COLUMN", "number", 0, 2, "higher",
        "Refuses covariances, and products with them, unless the node has this many rows for each column",
        "solving for the rows of a table with more columns than rows",
        private=0,
    ),
    Limit(
        "MINIMUM_BATCH", "number", 1, "MINIMUM_ROWS", "higher",
        "Refuses requests for minibatches of fewer rows. If fewer rows are left at the end of an epoch, they are added "
        "to the previous minibatch",
        "a training step on one row, which is that row",
        private=1,
    ),
    Limit(
        "OWN_SHUFFLE", "switch", 0, 1, "higher",
        "With `1`, the order of the rows in an epoch depends on a secret of the node and on the whole request, and not "
        "on the job's seed, which the researcher knows. The same request gets the same answer; a changed request gets "
        "other minibatches",
        "solving for single rows from minibatches whose rows are known",
    ),
    Limit(
        "MAXIMUM_HOLDOUT", "number", None, 50, "lower",
        "Refuses to hold out more than this percentage of the rows",
        "a training set of few rows at a hospital of many",
    ),
    Limit(
        "MINIMUM_ORGANIZATIONS", "number", 3, 3, "higher",
        "Refuses jobs with fewer participants",
        "a model of one hospital",
    ),
    Limit(
        "MINIMUM_SAMPLE", "number", 1, "MINIMUM_ORGANIZATIONS", "higher",
        "At the node where central runs: refuses a `fraction` with which fewer organizations are asked in a round",
        "a round's model that is one hospital's",
    ),
    Limit(
        "MAXIMUM_LOCAL_STEPS", "number", None, None, "lower",
        "Refuses requests for more local steps on minibatches or on all rows. With `1`, only methods that take one "
        "step a round on all rows are answered, such as FedSGD: their sums are sums over rows. If the number of steps "
        "would follow from the node's number of rows, as with a `batch_size` without `local_steps`, the request is "
        "refused too. It does not limit steps that noise of a privacy budget covers",
        "models of several local steps, whose mean over hospitals can tell the numbers of single hospitals",
    ),
    Limit(
        "MAXIMUM_PARAMETERS", "number", None, 2_000_000, "lower",
        "Refuses models and covariances with more parameters, and preprocessing that makes more than "
        f"{MOST_MADE:,} columns of levels. All models at their default sizes have fewer. A tenth of the number of your "
        "rows, a common rule, allows only small linear models",
        "a crafted wide network, which reveals as many rows as it has units",
    ),
    Limit(
        "ROUND_EVALUATIONS", "switch", 0, 1, "higher",
        "With `1`, evaluations and training losses are rounded to what the number n of rows can justify: mean losses "
        "to about their standard error (one part in the square root of n); counts of predictions and of scores so that "
        "each is 0 or at least `V6_FEDERATED_MINIMUM_ROWS_A_CLASS`, and all add up to n. Levels that few rows have are "
        "replaced in evaluations, as in training. In a study no node rounds: central's code rounds the counts of a "
        "block, by the limits of the node where it runs",
        "a loss or a count that tells one patient's label or value",
        private=0,
    ),
    Limit(
        "SCORE_BANDS", "number", 255, 127, "lower",
        f"The number of bands in which scores of held-out rows are counted, {MOST_BANDS:,} at most. With `0`, or if "
        "the nodes have different numbers, the job has no AUC",
        "the score of one patient",
        private=15,
    ),
    Limit(
        "OWN_RESULTS", "switch", 1, 0, "lower",
        "With `1`, a result shows how the last model does on this hospital's own held-out rows: rows, loss, accuracy, "
        "AUC, Brier score. Under masks and with noise it never does. With `0`, it shows them pooled with those of the "
        "other hospitals only. In any case the hospital finds its own in its folder",
        "a comparison of hospitals that nobody has agreed to",
    ),
    Limit(
        "MAXIMUM_ROUNDS", "number", None, 1000, "lower",
        "Refuses jobs with more rounds. The node itself counts how often a job calls each function, whatever round its "
        "tasks say, and allows one call more than rounds. Preprocessing counts too, as calls of `fit_step`: six steps "
        "need about ten",
        "many slightly different requests, whose answers are compared",
    ),
    Limit(
        "MAXIMUM_ROUNDS_A_WEEK", "number", None, 2000, "lower",
        "Refuses every request that reads rows once this many, of all jobs together, were counted in the last seven "
        "days. Descriptions of the columns are not counted. A request that is repeated exactly, on the same rows, "
        "counts once",
        "many slightly different requests, each as a job of its own",
    ),
    Limit(
        "MAXIMUM_SECONDS", "number", None, 3600, "lower",
        "Ends a task that computes for longer than this. The time is checked before each minibatch, each tree, each "
        "block of a statistic and each step on a single row (in FSVRG, every 64 rows), so a task may take a little "
        "longer; nothing is refused in advance",
        "a task that keeps the node busy",
    ),
    Limit(
        "EPSILON", "share", None, None, "lower",
        "The privacy budget of the profile `private`, for all jobs together and for ever: the hospital's ledger "
        "refuses a job that does not fit",
        "many jobs of one researcher or of several, whose answers are combined",
    ),
    Limit(
        "DELTA", "share", None, None, "lower",
        "The delta of the privacy budget; below one part in the number of rows",
        "the rare outcomes that epsilon does not cover",
    ),
    Limit(
        "EPSILON_PER_JOB", "share", None, None, "lower",
        "The part of the budget that one job may take: a third of it, if you do not set this",
        "a first job that leaves nothing for the others",
    ),
    Limit(
        "ALLOWED_COLUMNS", "names", None, None, "listed",
        "Refuses columns that are not in this comma-separated list",
        "columns that the project does not need",
    ),
    Limit(
        "DISALLOWED_COLUMNS", "names", "", "", "none",
        "Refuses columns in this comma-separated list. Case and invisible characters are ignored. A column whose own "
        "name contains a comma is refused if all parts of its name are listed. If two columns have the same listed "
        "name, the second is refused too",
        "identifiers of patients",
    ),
    Limit(
        "ALLOW_QUERIES", "switch", 0, 0, "lower",
        "Refuses SQL and SPARQL databases, because the query comes with the task. Also refuses a task that chooses a "
        "sheet of an Excel file (without a choice, the first sheet is read). `1` allows both",
        "a query that repeats or leaves out a patient",
    ),
    Limit(
        "ALLOW_NUMERIC_NAMES", "switch", 0, 0, "lower",
        "Refuses a table whose column names look like a row of values: most likely its first row is a patient's. `1` "
        "allows it",
        "a table without a header, whose first row would leave as names of columns",
    ),
)  # fmt: skip
BY_NAME: Mapping[str, Limit] = {limit.name: limit for limit in LIMITS}
