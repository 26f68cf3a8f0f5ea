"""The attacks, and the page that shows what each brings under each profile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import tables
from benchmarks.attacks import people, single_numbers, thresholds, training
from benchmarks.attacks.researcher import Outcome, Refused, Researcher, hospitals

COLUMNS = ("trusting", "careful", "masked", "pinned")
SMALL = {"breast-cancer": 320, "rare": 320, "digits": 400}  # rows of all four hospitals in the tests
ABOUT = (
    "A dishonest researcher sends tasks to one of four mock hospitals. What the attack claims to have recovered is "
    "compared with the hospital's table. A row counts if all of its values are right to a hundredth of their column's "
    "standard deviation, an image if its pixels are right to 0.05 in the mean. The target has 143 of the 569 rows of "
    "`breast-cancer`, 450 of the 1,797 images of `digits`, or fewer where the table says so. A task is one request to "
    "one node. Every random choice of an attack has a fixed seed, and the hospitals are dealt with seed 1."
)
FEW = 96  # 24 rows at each of the four
CRAFTED = (
    "Whoever chooses the weights chooses which rows a gradient is about. Each answer alone is a sum over many rows."
)
DIFFERENCE = "Each answer alone is about many rows. Only their difference is about one."
HONEST = "It is an ordinary job. What it sends is what the method needs."


@dataclass(frozen=True)
class Attack:
    """An attack on a node.

    Attributes:
        name: what the table calls it.
        what: what it does, in plain words.
        run: runs it.
        stops: what stops it under ``careful``; empty if nothing does.
        why: why no limit short of noise can stop it; empty if a limit does.
        data: the hospitals' table.
        rows: rows of all hospitals together; None means all.
    """

    name: str
    what: str
    run: Callable[[Researcher], Outcome]
    stops: str = ""
    why: str = ""
    data: str = "breast-cancer"
    rows: int | None = None

    @property
    def key(self) -> str:
        """Its function's name, by which tests call it."""
        return self.run.__name__


ATTACKS = (
    Attack(
        "batch of one, invented class",
        "One job: `svm`, minibatches of one row, a class that nobody has, one node a round. The model is a row.",
        training.issue_command,
        stops="`MINIMUM_BATCH`, `CLASSES`, `MINIMUM_SAMPLE`",
    ),
    Attack(
        "the same for every row",
        "The seed says which row comes first: a task for each row.",
        training.batch_of_one,
        stops="`MINIMUM_BATCH`, `CLASSES`",
    ),
    Attack(
        "minibatches of 10, least squares",
        "An invented class keeps the mean of the first minibatch, whose rows follow from the seed. With as many means "
        "as rows, these are linear equations.",
        training.least_squares,
        stops="`CLASSES`, `OWN_SHUFFLE`",
    ),
    Attack(
        "98 invented classes",
        "Full batch. Each invented class has an error for the rows above a threshold of its own; neighbours differ by "
        "single rows.",
        thresholds.invented_classes,
        stops="`CLASSES`",
    ),
    Attack(
        "the same through `resume`",
        "Whole jobs that go on from a forged result, over the rows of all hospitals.",
        training.through_resume,
        stops="`CLASSES`",
    ),
    Attack(
        "`svm` of two real classes",
        "Full batch. The weights put a threshold between two rows; the next task puts it one row further.",
        thresholds.two_classes,
        why=CRAFTED,
    ),
    Attack("FSVRG's full gradient", "The same, without a step.", thresholds.fsvrg, why=CRAFTED),
    Attack(
        "crafted wide network",
        "Fowl et al. 2022: 5,000 hidden units that differ in their thresholds alone.",
        training.wide_network,
        why="The network has 165,000 parameters, as honest ones have. A limit of a tenth of the rows stops it, and all "
        "other networks too.",
    ),
    Attack(
        "closed form",
        "One honest round of FedSGD with a network of 1,000 units on images. A unit that one image alone activates "
        "holds this image. The job holds out as much as it may: all but 10 of 450 images under `trusting`, half of "
        "them under `careful`.",
        training.closed_form,
        why=HONEST,
        data="digits",
    ),
    Attack(
        "closed form, small hospital",
        "The same at a hospital of 24 images.",
        training.closed_form_few,
        why=HONEST,
        data="digits",
        rows=FEW,
    ),
    Attack(
        "gradient inversion, small hospital",
        "Geiping et al. 2020: one honest round of FedSGD, 2,000 units; search for images with this gradient.",
        training.gradient_inversion,
        why=HONEST,
        data="digits",
        rows=FEW,
    ),
    Attack(
        "known person, by evaluation",
        "Measurements are known, the label is not. What the model says changes for this person alone, and a count of "
        "the confusion matrix tells for which class.",
        people.known_label,
        why=DIFFERENCE,
    ),
    Attack(
        "rare word, by statistics",
        "One patient is of a village: covariances with a column of 0 and 1 for it.",
        people.rare_word_statistics,
        stops="rare words are folded into one, in every profile",
        data="rare",
    ),
    Attack(
        "rare word, by evaluation",
        "A model that says 1 for the village alone: its confusion matrix has the label.",
        people.rare_word_evaluation,
        stops="evaluations fold rare words, too",
        data="rare",
    ),
    Attack(
        "rare flag",
        "A column is 1 for one patient: its covariances are this patient's values.",
        people.rare_flag,
        stops="`MINIMUM_ROWS_A_SIDE`",
        data="rare",
    ),
    Attack(
        "rare flag, mixed",
        "The same after a forged step `pca` has added another column to the flag.",
        people.rare_flag_mixed,
        stops="`MINIMUM_ROWS_A_SIDE`",
        data="rare",
    ),
    Attack(
        "indicator covariance",
        "A forged step clips a column to two values; its covariances are sums over the rows above a threshold.",
        thresholds.indicator,
        why=DIFFERENCE,
    ),
    Attack(
        "two clips and covariance",
        "Two copies of a column, clipped at bounds that differ a little: neither has two values, their difference has.",
        thresholds.two_clips,
        why=DIFFERENCE,
    ),
    Attack(
        "clip and mean",
        "Means of a column clipped from above grow by the number of rows above the bound.",
        thresholds.clip_and_mean,
        why=DIFFERENCE,
    ),
    Attack(
        "edges of histograms",
        "Counts up to chosen edges are rounded, and jump at some values: narrow the edges.",
        single_numbers.histogram_edges,
        why="Rounded counts jump somewhere, and edges can be as narrow as one likes. It finds some of the values.",
    ),
    Attack(
        "dynamic averaging's distance",
        "Only a distance leaves. With one feature, it is a sum over the rows above a threshold.",
        single_numbers.distance,
        why=CRAFTED,
    ),
    Attack(
        "known person, by regression losses",
        "Any column can be the label of a regression. A tree has an output for one known person alone; its squared "
        "errors tell this person's value.",
        single_numbers.regression_loss,
        why=DIFFERENCE,
    ),
    Attack(
        "bands of scores",
        "The counts for the AUC, with bands moved until one holds a single value, or until a rounded count jumps.",
        single_numbers.score_bands,
        why="Rounded counts jump somewhere. It finds some of the values.",
    ),
    Attack(
        "fewer rows than columns",
        "Covariances of the 13 rows that the job does not hold out. Half of the columns are known, the others follow.",
        people.few_rows,
        stops="`MAXIMUM_HOLDOUT`, `MINIMUM_ROWS_A_COLUMN`",
    ),
    Attack(
        "the same, four columns a task",
        "At a hospital of 24 rows, of which 10 are held out. No task asks for too many columns; together they do.",
        people.few_rows_in_blocks,
        why="No task is about too many columns. Only all tasks together are.",
        rows=FEW,
    ),
    Attack(
        "membership",
        "Who has a small loss under the trained model was probably among its rows (hospitals of 100 images).",
        people.membership,
        why=HONEST,
        data="digits",
        rows=400,
    ),
    Attack(
        "before and after a new patient",
        "The same means on two days.",
        people.new_patient,
        why="Both answers are honest.",
    ),
    Attack(
        "two splits",
        "Means with every share held out: sums differ by the rows between.",
        people.two_splits,
        stops="the splits differ by 10 rows or more, in every profile",
    ),
    Attack(
        "two attempts",
        "The same task five times, for other minibatches of the same rows.",
        people.two_attempts,
        stops="the same task gets the same answer, in every profile",
    ),
    Attack(
        "two cohorts",
        "Pooled means of all hospitals and of all but one.",
        people.two_cohorts,
        why="It tells one hospital's means, not a row. Central sees them anyway until sums are masked.",
    ),
    Attack(
        "`fraction=0`",
        "One node trains in a round; the model is that hospital's.",
        people.one_node_rounds,
        stops="`MINIMUM_SAMPLE`",
    ),
    Attack(
        "invented participants",
        "A job of one hospital that names three.",
        people.invented_participants,
        why="A node cannot know who exists. Pinned keys will tell (secure aggregation).",
    ),
)


def outcome(attack: Attack, column: str, small: bool = False) -> Outcome:
    """Run an attack; one that is refused at once brings nothing.

    Args:
        attack: the attack.
        column: what the nodes' operators have chosen, one of ``COLUMNS``.
        small: whether to run it on a few rows, as a test.
    """
    rows = min(SMALL[attack.data], attack.rows or SMALL[attack.data]) if small else attack.rows
    with Researcher(hospitals(attack.data, rows), column, small) as researcher:
        try:
            return attack.run(researcher)
        except Refused:
            return Outcome(0, 0, "", researcher.tasks, refused=researcher.last_words(0))


def cell(found: Outcome) -> str:
    """What an attack brought, in words."""
    tasks = f"in {found.tasks:,} task{'s' if found.tasks != 1 else ''}"
    if found.unit == "AUC":
        return f"{found.note} {tasks}"
    if found.recovered:
        return f"{found.recovered:,} of {found.of:,} {found.unit} {tasks}"
    return f"0 {tasks}" if found.of else "0, refused"


def last_column(attack: Attack, found: Outcome) -> str:
    """What stopped an attack under ``careful``, or why no limit does; a surprise says so."""
    if bool(found.recovered) == bool(attack.why):
        return f"Open. {attack.why}" if attack.why else f"Stopped: {attack.stops}."
    return "**Not as expected.**"


def _lines(small: bool) -> Iterator[str]:
    yield from tables.head("attack", "what it does", *(f"`{p}`" for p in COLUMNS), "largest error", "under `careful`")
    for attack in ATTACKS:
        found = [outcome(attack, column, small) for column in COLUMNS]
        errors = [f.error for f in found if f.error is not None and f.recovered]
        error = f"{max(errors):.0e}" if errors else None
        yield tables.row(attack.name, attack.what, *map(cell, found), error, last_column(attack, found[-1]))


def main(dataset: Any, full: bool) -> None:
    """Print and keep the table; it needs no data from elsewhere."""
    about = ABOUT if full else f"{ABOUT} Reduced: the smaller tables of the tests."
    page = tables.Page("attacks", "Attacks, by profile", full, about, data="", timed=True)
    tables.page(page, _lines(not full))
