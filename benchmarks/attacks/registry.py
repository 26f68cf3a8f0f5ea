"""The attacks, and the page that shows what each brings under each profile."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import tables
from benchmarks.attacks import analyses, masks, numbers, people, single_numbers, thresholds, totals, training
from benchmarks.attacks.researcher import NotASum, Outcome, Refused, Researcher, hospitals

PRIVATE = ("private 8", "private 1")  # the epsilon of the budget
COLUMNS = ("trusting", "careful", "masked", "pinned", *PRIVATE)
SMALL = {"breast-cancer": 320, "rare": 320, "digits": 400}  # rows of all four hospitals in the tests
ABOUT = (
    "A dishonest researcher sends tasks to one of four mock hospitals. What the attack claims to have recovered is "
    "compared with the hospitals' tables. A row counts if all of its values are right to a hundredth of their column's "
    "standard deviation, a single value if it is right to a thousandth, an image if its pixels are right to 0.05 in "
    "the mean. Many values lie close to each other, so a claim that knows nothing may be right: in brackets, how many "
    "the same claims find on average if they are moved aside by 5 to 50 thousandths. An attack has brought values if "
    "chance finds as many less than once in 1,000 times. The target has 143 of the 569 rows of "
    "`breast-cancer`, 450 of the 1,797 images of `digits`, or fewer where the table says so. A task is one request to "
    "one node. Every random choice of an attack has a fixed seed, and the hospitals are dealt with seed 1; only keys, "
    "masks and the order of minibatches under them come from the operating system.\n\n"
    "- `careful`, plain answers: the limits of `careful` alone, with `V6_FEDERATED_AGGREGATION=plain`.\n"
    "- `masked`: `careful` as it is where no study lies. The researcher leads the job, so it invents all participants "
    "but the target, and subtracts their masks from the answer.\n"
    "- `pinned`: `careful` as it is where all four hospitals have accepted a study with one block, of whom one may "
    "collude. The researcher gets sums over the block and looks for rows in them. A row counts whoever of the four has "
    "it; in brackets, how many are the target's. Each request goes to four nodes, so it is four tasks.\n\n"
    "- `private`: the same four hospitals with a schema, and a budget of epsilon 8 or 1, delta 1e-5, which the "
    "researcher spends on one attack: as many noisy sums as it asks for, with the least noise that the ledger "
    "lets through. The schema declares 0 and a round number above all values as the bounds of each column; it "
    "stands in for the statistics that are refused. Guesses about one person, of two answers that are equally "
    "likely before, are made at hospitals with a whole budget each. Of them, the budget allows the share "
    "(e^epsilon + delta) / (1 + e^epsilon) if the question is whether the person is in the table, which also "
    "bounds the AUC; and the same with 2 epsilon and (1 + e^epsilon) delta if it is which of two labels the "
    "person has: to replace a row is two steps, through the row that contributes nothing. Keys are random, and so "
    "is the noise.\n\n"
    "The last column is about the other profiles: under `private`, noise or a refusal stops all of it. "
    "Both masked columns have the limits of `careful`, too."
)
CLIP = 5.0  # about the norm of a row whose columns are between -1 and 1: few are clipped
FEW = 96  # 24 rows at each of the four
CRAFTED = (
    "Whoever chooses the weights chooses which rows a gradient is about. Each answer alone is a sum over many rows."
)
DIFFERENCE = "Each answer alone is about many rows. Only their difference is about one."
UNIT = (
    "A step sums over all rows. But the weights decide which rows count in a unit, and the attacker chooses the "
    "weights."
)
TREES = "under masks, nodes evaluate no trees that predict a number"
DISTANCE = (
    "the distance is not added up; how often it is above a bound is, but finding it so takes more requests than a week "
    "has"
)
HONEST = "It is an ordinary job. What it sends is what the method needs."


EXACT_CELLS = (
    "Its hospitals send exact counts, so that the sum over a block does not tell how rows are dealt; that central's "
    "code writes no small ones is no limit for a researcher who sends other tasks. Whose patient it is, the sum does "
    "not tell."
)


@dataclass(frozen=True)
class Attack:
    """An attack on a node.

    Attributes:
        name: what the table calls it.
        what: what it does, in plain words.
        run: runs it.
        stops: what stops it under ``careful``; empty if nothing does.
        why: why no limit short of noise can stop it; empty if a limit does.
        masked: what stops it if answers are masked, too; empty if nothing does.
        pinned: what stops it if there is a study, too; empty if nothing does.
        opened: why a study does not stop what ``careful`` stops otherwise; empty if it does.
        columns: where it can be tried.
        data: the hospitals' table.
        rows: rows of all hospitals together; None means all.
        asks: how many noisy gradients, and how many evaluations, share a budget.
    """

    name: str
    what: str
    run: Callable[[Researcher], Outcome]
    stops: str = ""
    why: str = ""
    data: str = "breast-cancer"
    rows: int | None = None
    asks: tuple[int, int] = (1, 0)
    masked: str = ""
    pinned: str = ""
    opened: str = ""
    columns: tuple[str, ...] = COLUMNS

    def stopped(self, column: str) -> str:
        """What stops it where nodes are set up like this; empty if nothing does."""
        if column in PRIVATE:
            return "noise, in an amount that the hospital counts"
        if column == "pinned" and self.opened:
            return ""
        return {"masked": self.masked, "pinned": self.pinned}.get(column, "") or self.stops

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
        asks=(60, 0),
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
        pinned="the search finds no image of the block; the closed form above does",
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
        "known person's label, by boosted trees",
        "Sums of derivatives over two boxes, of which one ends just below and one just above the person's value.",
        people.label_between_boxes,
        why=DIFFERENCE,
    ),
    Attack(
        "known people's numbers, by a step",
        "`loss=squared`. The attacker builds an `mlp` in which each unit reacts to one known person alone. The "
        "gradient of the unit's bias is minus this person's number. One step on all rows tells the numbers of ten "
        "people.",
        numbers.number,
        why=UNIT,
    ),
    Attack(
        "known people's counts, by a step",
        "The same with `loss=poisson`.",
        numbers.count,
        why=UNIT,
    ),
    Attack(
        "known people's events, by two steps",
        "The same with `loss=cox`. The gradient is the cumulative hazard at the person's time, minus 1 if the event "
        "happened. A second step, with the hazards of these people doubled, tells whether it did.",
        numbers.event,
        why=UNIT,
    ),
    Attack(
        "known person's number, by a linear model",
        "`loss=squared` with one column, clipped to 0 below a threshold and 1 above: the gradient is the sum of the "
        "numbers above. Two thresholds have the person between them.",
        numbers.between_steps,
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
        asks=(0, 1),
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
        "the largest value's row, by a Hessian",
        "Under chosen coefficients of a Poisson regression, the row with the largest value of a column outweighs all "
        "others in the Hessian of `glm`.",
        people.largest_values,
        stops="`MINIMUM_ROWS_A_SIDE`: few rows may not outweigh the others",
    ),
    Attack(
        "the largest value's row, while at risk",
        "Under chosen coefficients of Cox's model, the mean of the rows at risk in the gradient of `cox` is the row "
        "with the largest value of a column.",
        people.largest_at_risk,
        stops="`MINIMUM_ROWS_A_SIDE`: few rows may not outweigh the others",
    ),
    Attack(
        "rare flag, by a Hessian",
        "A column is 1 for one patient: its row of the Hessian of `glm` at coefficients 0 is this patient's values.",
        analyses.rare_flag_hessian,
        stops="`MINIMUM_ROWS_A_SIDE`",
        data="rare",
    ),
    Attack(
        "rare flag, as weights",
        "The same column is named as the weights of rows in `glm`: all sums are about this patient.",
        analyses.rare_flag_weights,
        stops="`MINIMUM_ROWS`: so many rows must have a weight above 0, in every profile",
        data="rare",
    ),
    Attack(
        "rare flag, as events",
        "The same column is named as the event of `km`: the end of a bin is bisected until it is this patient's time.",
        analyses.time_of_the_flagged,
        stops="`MINIMUM_ROWS_A_SIDE`: so many events there must be",
        opened=EXACT_CELLS,
        data="rare",
    ),
    Attack(
        "rare word, by a curve",
        "One patient is of a village: a curve of `km` for this village alone, and its bin bisected.",
        analyses.time_of_a_rare_word,
        stops="`MINIMUM_ROWS_A_CLASS`: the rows of such a level are in no group",
        opened=EXACT_CELLS,
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
        "two clips and a Hessian",
        "The same from the Hessians of `glm` at coefficients 0.",
        thresholds.two_clips_hessian,
        why=DIFFERENCE,
    ),
    Attack(
        "times, by other ends",
        "Any column can be the time of `km`. The end of a bin is bisected until the count rises: a single time.",
        analyses.times_by_other_ends,
        why=DIFFERENCE,
    ),
    Attack(
        "rows at risk, by other ends",
        "`cox` with `strata=none`, whose bin ends at one time, or a little later: sums over the rows at risk then, and "
        "their differences.",
        analyses.rows_by_other_ends,
        why=DIFFERENCE,
    ),
    Attack(
        "the last row at risk, by a grid",
        "Ordinary jobs of `cox` with `strata=none` over all hospitals, whose last bin is moved until one event is in "
        "it. The result has the means of the columns at risk in each bin.",
        analyses.last_row_by_a_grid,
        stops="`MINIMUM_ROWS_A_SIDE`: nodes join bins of few rows; in a study, central does, before round 1",
    ),
    Attack(
        "largest value's row, with noise",
        "The Hessian of `glm` with noise, under chosen coefficients, columns and bounds; the whole budget in one sum.",
        analyses.noisy_hessian,
        stops="noise",
        columns=PRIVATE,
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
        masked=DISTANCE,
        pinned=DISTANCE,
        why=CRAFTED,
    ),
    Attack(
        "known person, by regression losses",
        "Any column can be the label of a regression. A tree has an output for one known person alone; its squared "
        "errors tell this person's value.",
        single_numbers.regression_loss,
        masked=TREES,
        pinned=TREES,
        why=DIFFERENCE,
    ),
    Attack(
        "probabilities in bins",
        "The last evaluation adds up the probabilities in each of ten bins: a steep model is moved until bins hold one "
        "row.",
        single_numbers.probabilities,
        stops="`ROUND_EVALUATIONS`",
        opened=EXACT_CELLS,
        columns=("trusting", "careful", "pinned"),
    ),
    Attack(
        "subgroup of a rare word",
        "The last evaluation counts predictions by village: for the village of one patient, and for all others.",
        people.rare_subgroup,
        stops="`MINIMUM_ROWS`",
        opened=EXACT_CELLS,
        data="rare",
        columns=("trusting", "careful", "pinned"),
    ),
    Attack(
        "bands of scores",
        "The counts for the AUC, with bands moved until one holds a single value, or until a rounded count jumps.",
        single_numbers.score_bands,
        asks=(0, 60),
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
        pinned="the block has more rows than equations",
        why="No task is about too many columns. Only all tasks together are.",
        rows=FEW,
    ),
    Attack(
        "membership",
        "Who has a small loss under the trained model was probably among its rows (hospitals of 100 images).",
        people.membership,
        pinned="the mean over a block says little of one row",
        why=HONEST,
        data="digits",
        rows=400,
    ),
    Attack(
        "before and after a new patient",
        "The same means on two days.",
        people.new_patient,
        asks=(2, 0),
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
        pinned="a block opens whole or not at all",
        why="It tells one hospital's means, not a row.",
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
        pinned="keys are pinned",
        why="Without a study, a node cannot know who exists.",
    ),
    Attack(
        "the curious",
        "An honest job: whoever leads it, or the server, reads the target's answer.",
        masks.curious,
        why="The model of one hospital is what central receives.",
        masked="the sum over all is what central can read",
        pinned="the sum over the block is what central can read",
    ),
    Attack(
        "swapped keys",
        "The server puts its own keys in place of the other hospitals'.",
        masks.swapped_keys,
        why="Without a study, keys come through the server.",
        pinned="keys are pinned, and tags prove them; the node names the hospital whose key was swapped",
        columns=("masked", "pinned"),
    ),
    Attack(
        "two studies",
        "A second version of the study, in which a hospital of the attacker's has the target's place.",
        masks.two_studies,
        pinned="`cohorts.log`: every group of hospitals that sums can be subtracted to is large enough",
        columns=("pinned",),
    ),
    Attack(
        "replay with another model",
        "The same round again with another model: two answers under one mask.",
        masks.another_model,
        masked="the numbers of requests rise, and an answer is given once",
        pinned="the numbers of requests rise, and an answer is given once",
        columns=("masked", "pinned"),
    ),
    Attack(
        "different models in one round",
        "The target is sent another model than the other hospitals; none is invented.",
        masks.different_models,
        masked="masks depend on what was sent, so that the sum never opens",
        pinned="masks depend on what was sent, so that the sum never opens",
        columns=("masked", "pinned"),
    ),
    Attack(
        "largest value",
        "A step divides a column by so little that values above a bound overflow. Can the node compute? Halve the "
        "bound.",
        masks.largest_value,
        why="With plain answers a node says that it refuses. Under masks it adds noise, and that some node did shows, "
        "once a job. So the researcher begins a job for each question, and learns the largest value of the block, but "
        "not whose it is.",
    ),
    Attack(
        "a large model, by one step",
        "One step of FedSGD from an intercept of 16. In float32, the model moves by its last place or not at all, by "
        "each hospital's own gradient: 40 requests for numbers of rows and of patients of each of four.",
        totals.large_model,
        pinned="a change is carried apart from the model, and added up exactly",
        columns=("pinned",),
    ),
    Attack(
        "a large model, by ordinary jobs",
        "The same by SCAFFOLD and `resume`: central and server are honest, the result that jobs go on from is forged.",
        totals.resumed_scaffold,
        pinned="a change is carried apart from the model",
        columns=("pinned",),
    ),
    Attack(
        "a far center",
        "Sums of a column about 2^52, which rounds each hospital's mean. A step moves the column until it is rounded "
        "to the next number.",
        totals.far_center,
        pinned="sums about a center are exact",
        columns=("pinned",),
    ),
    Attack(
        "a tiny scale",
        "Covariances of a column that is divided by t 2^1022: processors take the rows below t as 0, behind all limits "
        "on columns. What is left is the row with the largest value.",
        totals.tiny_scale,
        stops="no column may be divided or multiplied by more than 2^100, in every profile",
        columns=("careful", "trusting", "masked", "pinned", *PRIVATE),
    ),
    Attack(
        "what one hospital has kept",
        "SCAFFOLD. The target alone is asked first, and keeps its gradient; then all are with a rate of 0, so that all "
        "keep something under one request; then for the sum that holds it.",
        totals.kept_state,
        pinned="masks follow from all requests that have led to what is kept",
        columns=("pinned",),
    ),
    Attack(
        "the rounding of n_k / N",
        "Means by rows of changes that are known and large, over a number of rows of central's choosing: which of all "
        "ways to deal the rows over four hospitals rounds like that?",
        totals.shares_of_rows,
        pinned="nodes multiply by their rows and powers of two, which rounds nothing",
        columns=("pinned",),
    ),
    Attack(
        "losses that are too large",
        "All rows have a loss of 2^260 over a number. Does a hospital with more rows fail? A job for each number.",
        totals.losses_that_fail,
        pinned="no node of a study fails by the size of its sum",
        columns=("pinned",),
    ),
    Attack(
        "shares of held-out rows",
        "Two jobs hold out shares that differ in the seventh digit: by ten rows of the one hospital of a certain size.",
        totals.shares_held_out,
        pinned="a hospital holds out the share of its first job in all jobs of a study, to the last digit",
        rows=317,  # the target has one row more than the others
        columns=("pinned",),
    ),
    Attack(
        "description of one hospital",
        "Any column can be the label: which values do five rows or more have? For 17 values.",
        masks.description,
        why="A node names the classes and levels that enough of its rows have before keys are agreed, unless the study "
        "has a schema that declares them; this one has none.",
        data="digits",
        columns=("careful", "masked", "pinned", *PRIVATE),
    ),
    Attack(
        "one hospital of the block colludes",
        "`svm` of two real classes, with the keys and answers of one other hospital.",
        masks.one_colludes,
        asks=(60, 0),
        why=CRAFTED,
        columns=("pinned", *PRIVATE),
    ),
    Attack(
        "all others of the block collude",
        "The same, with those of all but the target.",
        masks.all_collude,
        asks=(60, 0),
        why=CRAFTED,
        columns=("pinned", *PRIVATE),
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
        steps, evaluations = (min(asks, 10) if small else asks for asks in attack.asks)
        researcher.reserve(steps, evaluations, CLIP)
        try:
            return attack.run(researcher)
        except NotASum as error:
            return Outcome(0, 0, "", researcher.tasks, note=str(error))
        except Refused:
            return Outcome(0, 0, "", researcher.tasks, refused=researcher.last_words(0))


def cell(found: Outcome | None) -> str:
    """What an attack brought, in words."""
    if found is None:
        return "-"
    tasks = f"in {found.tasks:,} task{'s' if found.tasks != 1 else ''}"
    if found.unit in ("AUC", "guesses"):
        return f"{found.note} {tasks}"
    if found.recovered:
        own = f" ({found.own:,} of the target)" if found.own is not None else ""
        chance = f" ({found.chance:,.0f} by chance)" if found.chance >= 0.5 else ""
        return f"{found.recovered:,} of {found.of:,} {found.unit}{own} {tasks}{chance}"
    return f"0 {tasks}" if found.of and found.tasks else f"0, {found.note or 'refused'}"


def last_column(attack: Attack, found: Mapping[str, Outcome]) -> str:
    """What stopped an attack, or why no limit does; a surprise says so."""
    if any(f.brought == bool(attack.stopped(column)) for column, f in found.items() if column != "trusting"):
        return "**Not as expected.**"
    said = [f"Stopped: {attack.stops}." if attack.stops else ""]
    if attack.opened:
        said.append(f"Open in a study. {attack.opened}")
    if attack.why:
        said.append(f"Open. {attack.why}" if len(attack.columns) > 1 or not attack.pinned else "")
    if attack.masked and attack.masked == attack.pinned:
        said.append(f"Stopped by masks: {attack.masked}.")
    else:
        said += [f"`{c}` stops it: {how}." for c, how in (("masked", attack.masked), ("pinned", attack.pinned)) if how]
    return " ".join(filter(None, said))


def _lines(small: bool) -> Iterator[str]:
    titles = (
        "`trusting`",
        "`careful`, plain answers",
        "`masked`",
        "`pinned`, a block of four",
        "`private`, epsilon 8",
        "`private`, epsilon 1",
    )
    yield from tables.head("attack", "what it does", *titles, "largest error", "what stops it")
    for attack in ATTACKS:
        found = {column: outcome(attack, column, small) for column in attack.columns}
        errors = [f.error for f in found.values() if f.error is not None and f.recovered]
        error = f"{max(errors):.0e}" if errors else None
        cells = [cell(found.get(column)) for column in COLUMNS]
        yield tables.row(attack.name, attack.what, *cells, error, last_column(attack, found))


def main(dataset: Any, full: bool) -> None:
    """Print and keep the table; it needs no data from elsewhere."""
    about = ABOUT if full else f"{ABOUT} Reduced: the smaller tables of the tests."
    page = tables.Page("attacks", "Attacks, by profile", full, about, data="", timed=True)
    tables.page(page, _lines(not full))
