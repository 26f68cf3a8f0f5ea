"""What a result may hide: warnings for its user, as lines of text."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from v6_federated.base.text import shortened
from v6_federated.central import convergence
from v6_federated.messages import codec
from v6_federated.models.linear import LinearModel
from v6_workbench.reporting.hospitals import called, nodes_of
from v6_workbench.reporting.intervals import noisy, rounding_of_auc
from v6_workbench.reporting.leaks import too_good
from v6_workbench.reporting.levels import few_rows, known_levels
from v6_workbench.reporting.summary import Result, most_frequent
from v6_workbench.reporting.trained import model_of

NOISE = 1.05  # a loss on few rows may differ by this factor without a cause
WILD = 10  # a loss this many times that of guessing comes from steps that are too long
EXACT = 0.01  # an error of the accuracy that is not worth a warning
FALLING = 0.05  # the share by which a loss that still falls has fallen over the last rounds: see ``unconverged``
LEFT = 0.02  # the share of a linear model that may be left to change
LAST_ROUNDS = 5  # or the last quarter of the rounds, if that is more, or the last half, if that is fewer
SURE = 3  # standard errors that a fall must have: minibatches and samples of nodes make losses vary
RATES = ("lr", "stepsize")  # settings that make steps longer
USUAL = 0.1  # a rate that is rarely too large
SPREAD = 1.5  # of a deviance over its degrees of freedom, from which errors are too small by a fifth or more
SURELY_SAFE = 0.25  # a rate that four times as long steps hardly ever make too long, for standardized columns
GUESSED = 0.52  # a C-index up to this is hardly better than chance
FREQUENT = "look at the classes one by one"
CLOSE = 0.02  # a score this close to that of always predicting the same is not better


def warnings_about(result: Result) -> list[str]:
    """Return all warnings about a result.

    Args:
        result: the result.

    Returns:
        Lines of text; none if there is nothing to say.
    """
    found = []
    if (result.get("final") or {}).get("evaluated") == 0 and not result.get("coefficients"):
        found.append("the model was not evaluated: no rows were held out, or fewer than the nodes' policy requires")
    own = _of_the_model(result) if "converged" not in result else unfinished(result)
    if own is None:
        own = growing(result) or unconverged(result)
    return [
        *found,
        *without_event(result),
        *left_out_of_curves(result),
        *partly_fitted(result),
        *overdispersed(result),
        *perfect(result),
        *rounded(result),
        *poor(result),
        *too_good(result),
        *hidden_components(result),
        *hidden_effects(result),
        *own,
        *known_levels(result),
        *few_rows(result),
    ]


def _of_the_model(result: Result) -> list[str] | None:
    """What a model that a method brings has to say about itself; None if it says nothing, as the shared models do."""
    if result.get("model") is None or "weights" not in result["weights"].get("shapes", {}):
        return None
    own = getattr(model_of(result), "diagnostics", None)
    return None if own is None else own(codec.decode(result["weights"])["weights"], result["settings"])


def left_out_of_curves(result: Result) -> list[str]:
    """Say that survival curves lack rows of groups that are too small at some hospital, or are not shown.

    Args:
        result: the result.

    Returns:
        A line for each reason.
    """
    curves = result.get("curves_of_survival") or ()
    whose = [("" if c["group"] is None else f" of {c['group']}", c) for c in curves]
    few = [f"{n}{of}" for of, c in whose if (n := c["left_out"] - c.get("left_with", 0))]
    rest = [f"{c['left_with']}{of}" for of, c in whose if c.get("left_with")]
    hidden = [
        f"{c['group']}: {c['hidden']}" if c["group"] is not None else c["hidden"] for c in curves if "hidden" in c
    ]
    lines = [
        (
            few,
            "rows that are in no curve",
            "At their hospital, the group has fewer rows than its limits require (20 at careful hospitals, 10 of which "
            "are still at risk at the end of the first bin). A study of the hospitals counts them",
        ),
        (
            rest,
            "rows that are in no curve since another group is rare",
            "With them, subtraction would reveal the few rows of another group of their hospital. A study of the "
            "hospitals counts them",
        ),
        (hidden, "groups that are not shown", "Sums under masks are shown if several hospitals have rows in them"),
    ]
    return [f"{what}: {shortened(found, 5)}. {why}" for found, what, why in lines if found]


def stopped(result: Result) -> list[str]:
    """Say that a job ended before its last round, and why.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    if "stopped" not in result:
        return []
    return [f"the job stopped: {result['stopped']}; the model is that of round {len(result['history'])}"]


def without_event(result: Result) -> list[str]:
    """Return a warning if times count as those of events since no column says which are.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    settings = result.get("settings") or {}
    of_times = "event" in settings and settings.get("loss", "cox") == "cox"  # other losses are of no times
    if not of_times or settings["event"] is not None:
        return []
    return ["no column says which times are of events, so that all of them count; set event=COLUMN if some are not"]


def partly_fitted(result: Result) -> list[str]:
    """Return warnings if coefficients are not those of all organizations' rows, or tests were left out.

    Args:
        result: the result.

    Returns:
        Lines of text, or none.
    """
    organizations = result.get("organizations", [])
    missing = sorted({*organizations} - {*result.get("fitted_on", organizations)})
    found = [f"{result['left_out']}; resume the job with more rounds"] if "left_out" in result else []
    if not missing:
        return found
    who = shortened(called(result, missing))
    return [f"the coefficients are not those of all rows: {who} took no part in the last rounds", *found]


def overdispersed(result: Result) -> list[str]:
    """Return a warning if counts vary more than a Poisson regression takes for granted.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    deviance, df = result.get("deviance"), result.get("df_residual")
    if (result.get("settings") or {}).get("family") != "poisson" or not deviance or not df or deviance / df < SPREAD:
        return []
    factor = math.sqrt(deviance / df)
    return [
        f"the label varies more than counts of a Poisson distribution do (deviance {deviance:.4g} on {df:.0f} degrees "
        f"of freedom): standard errors are about {factor:.1f} times too small, and p-values too; add columns that "
        f"explain the label, or multiply the standard errors by {factor:.2f} (the square root of deviance / degrees of "
        "freedom)"
    ]


def perfect(result: Result) -> list[str]:
    """Say that a regression leaves nothing of its label.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    if not result.get("fits_perfectly"):
        return []
    return [
        "the model fits perfectly: what it leaves of the label is rounding, so there are no standard errors, tests or "
        "AIC; if the label was computed from some of the columns, leave these out (--exclude)"
    ]


def unfinished(result: Result) -> list[str]:
    """Return a warning if Newton's method has not converged.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    if result["converged"] or "stopped" in result or "hidden_directions" in result:
        return []
    rounds = len(result["history"])
    cure = "set l2" if "l2" in result["settings"] else "leave out columns (--exclude)"
    return [
        f"not converged: do not read the coefficients; set more rounds (--rounds {2 * rounds}), or {cure} if they grow "
        "in each round"
    ]


def rounded(result: Result) -> list[str]:
    """Return a warning if nodes have rounded their counts, or added noise, so that the measures are not exact.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    final = result.get("final") or {}
    error, evaluated = final.get("accuracy_error", 0.0), final.get("evaluated")
    if noisy(result):
        rarely = "evaluate more rarely (evaluate_every), or " if result["privacy"]["plan"]["evaluations"] > 1 else ""
        return [] if error < EXACT else [
            f"nodes have added noise to what they counted on {evaluated} held-out rows: the accuracy is exact to about "
            f"{error:.2f}, and single classes to less; {rarely}hold out more rows"
        ]  # fmt: skip
    of_auc = rounding_of_auc(result)
    if max(error, of_auc) < EXACT:
        return []
    also = f", the AUC to about {of_auc:.2f}" if of_auc else ""
    exact = (result.get("privacy") or {}).get("aggregation") == "pinned"  # nodes of a study add up their losses
    losses = "" if exact else ", and losses to about their standard error"
    return [
        f"nodes have rounded what they counted on {evaluated} held-out rows{losses}: the accuracy is exact to about "
        f"{error:.2f}{also}, and single classes to less; differences of that size say nothing; hold out more rows"
    ]


def hidden_components(result: Result) -> list[str]:
    """Return a warning if components explain no more than noise alone would.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    noise = (result.get("final") or {}).get("variance_of_noise")
    if noise is None:
        return []
    variances = codec.decode(result["weights"])["explained_variance"]
    if not (hidden := int((variances <= noise).sum())):
        return []
    return [
        f"{hidden} of {len(variances)} components explain no more than noise alone would (a variance of about "
        f"{noise:.2g}); use a smaller clip, a larger epsilon, fewer columns, or more rows"
    ]


def hidden_effects(result: Result) -> list[str]:
    """Return a warning if noise makes more of the errors of coefficients than rows do.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    if "hidden_directions" not in result:
        return []
    rows = result["coefficients"]
    errors = [(row["std_error_noise"], row["std_error"]) for row in rows]
    noisiest = [made for made, whole in errors if 2 * made**2 > whole**2]
    cure = "use fewer columns (--features), a larger epsilon, or more hospitals or rows"
    if result["hidden_directions"] or not result["converged"]:
        return [
            "noise hides what some combinations of columns do: intervals are wide, and may miss the truth more often "
            f"than they say; {cure}"
        ]
    if not noisiest:
        return []
    wider = float(np.median([whole / math.sqrt(whole**2 - made**2) for made, whole in errors if whole > made]))
    return [
        f"noise makes most of the standard error of {len(noisiest)} of {len(errors)} coefficients; intervals are about "
        f"{wider:.2g} times as wide as without it: {cure}"
    ]


def growing(result: Result) -> list[str]:
    """Return a warning if the loss on the held-out rows has grown.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    losses = [row["loss"] for row in result["history"] if row["loss"] is not None]
    classes = result["data"].get("classes")
    guessing = math.log(len(classes)) if classes and "r2" not in result["history"][-1] else math.inf
    noise = NOISE + _rounding_of_losses(result)
    if not losses or (losses[-1] <= noise * losses[0] and losses[-1] <= WILD * guessing):
        return []
    trained = [row["train_loss"] for row in result["history"] if row["train_loss"] is not None]
    steps = {step["step"] for step in result["data"]["preprocess"]}
    if trained and trained[-1] < trained[0]:
        clip = "" if "clip" in steps else "; if the columns have outliers, add --preprocess clip:0.01"
        return [f"the loss on held-out rows grew while the training loss fell: train for fewer rounds{clip}"]
    what = "grew" if losses[-1] > noise * losses[0] else "is far above that of guessing"
    standardize = "" if "standardize" in steps else ", or --preprocess standardize"
    rate = next((name for name in RATES if result["settings"].get(name)), None)
    smaller = "a smaller lr"
    if rate:
        smaller = f"a smaller {rate} (--set {rate}={min(result['settings'][rate] / 4, USUAL):.3g})"
    return [f"the loss on held-out rows {what}: try {smaller}{standardize}"]


def unconverged(result: Result) -> list[str]:
    """Return a warning if the model still changes: more rounds would make it clearly better.

    Of a linear model whose steps are on all rows of all nodes, it is the model itself that must not change any more,
    see ``convergence.remaining``. Of all others it is their loss:
    minibatches and samples of nodes change a model for ever.

    A line is fitted to the loss over the last quarter of the rounds (see ``LAST_ROUNDS``). The loss still falls if
    that line falls by more than ``FALLING`` of the loss itself, or of all that the loss has fallen since the first
    round: with a very small learning rate, every quarter of the rounds brings a quarter of that. Of a linear model,
    whose coefficients are read, it is the training loss; of other models, whose training loss may fall for ever without
    use, the loss on held-out rows.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    falling = {kind: _losses(result, kind) for kind in ("train_loss", "loss")}
    if result.get("converged_in") is not None or not any(falling.values()):  # the latter as of principal components
        return []
    linear = result.get("model") is not None and isinstance(model_of(result), LinearModel)
    if linear and (left := _left(result)) is not None:
        if left <= LEFT:
            return []
        far = f"about {100 * left:.2g}% of the model is left to change" if left < 1 else "most of the model is to come"
        return [f"not converged: {far}; do not read the coefficients; {_cure(result)}"]
    kind = "train_loss" if falling["train_loss"] and (linear or not falling["loss"]) else "loss"
    (_, first), (end, now) = falling[kind][0], falling[kind][-1]
    last_rounds = max(math.ceil(end / 4), min(LAST_ROUNDS, math.ceil(end / 2)))
    fall, rate = _fall(falling[kind], end - last_rounds)
    if fall <= FALLING * min(now, abs(first - now)):
        return []
    what = "training loss" if kind == "train_loss" else "loss on held-out rows"
    reading = "do not read the coefficients; " if linear else ""
    longer = next((f" or a higher {name}" for name in RATES if name in result["settings"]), "")
    return [f"not converged: the {what} still falls by {100 * rate:.2g}% a round; {reading}use more --rounds{longer}"]


def _left(result: Result) -> float | None:
    """The share of the model that is left to change; None if it is not known, or changes for ever."""
    settings = result["settings"]
    if settings.get("batch_size", 1) is not None or settings.get("fraction", 1) < 1 or noisy(result):
        return None
    left = convergence.remaining(result["history"])
    return left if left is not None and math.isfinite(left) else None


def _cure(result: Result) -> str:
    """The options with which a linear model converges."""
    settings, spec = result["settings"], result["model"]
    rate = next((name for name in RATES if settings.get(name, SURELY_SAFE) < SURELY_SAFE), None)
    longer = "" if "server_momentum" in settings or rate is None else f"--set {rate}={4 * settings[rate]:g} "
    if not settings.get("server_momentum", True) and settings.get("server_optimizer", "sgd") == "sgd":
        longer = "--set server_momentum=0.9 "
    cure = f"use {longer}--rounds 1000 --until-converged 0.005"
    finite = spec.get("l2") or (spec.get("loss") or {}).get("name") == "squared"  # whatever the rows are
    apart = "events can be predicted with certainty" if spec.get("loss") else "classes can be separated"
    return cure if finite else f"{cure}, and --model {spec['name']}:l2=0.01 if {apart}"


def _losses(result: Result, kind: str) -> list[tuple[int, float]]:
    """The rounds that have a loss, with it; none if there are fewer than two."""
    found = [(row["round"], row[kind]) for row in result["history"] if row.get(kind) is not None]
    return found if len(found) > 1 else []


def _fall(losses: list[tuple[int, float]], since: int) -> tuple[float, float]:
    """By how much losses fall after a round, and by which share a round; 0 if they vary too much to tell."""
    recent = [pair for pair in losses if pair[0] > since]
    t, loss = np.array(recent if len(recent) > 1 else losses[-2:]).T
    centred = t - t.mean()
    slope = float(centred @ loss / (centred @ centred))
    around = loss - loss.mean() - slope * centred
    error = math.sqrt(around @ around / max(len(t) - 2, 1) / (centred @ centred))
    if slope >= 0 or (-slope <= SURE * error and (np.diff(loss) > 0).any()):
        return 0.0, 0.0
    return -slope * float(t[-1] - t[0]), -slope / float(loss.mean())


def _rounding_of_losses(result: Result) -> float:
    """The largest step, as a share of a loss, in which nodes have rounded it, see ``rounding.rounded_loss``."""
    final, nodes = result.get("final") or {}, len(result.get("organizations", ())) or 1
    return 2 / math.sqrt(final["evaluated"] / nodes) if "accuracy_error" in final else 0.0


def poor(result: Result) -> list[str]:
    """Return a warning if a model is hardly better than always predicting the same class, or the mean.

    Args:
        result: the result.

    Returns:
        One line, or none.
    """
    r2 = (result.get("final") or {}).get("r2")
    if r2 is not None and r2 < CLOSE:
        return [f"R squared is {r2:.4f}: hardly better than always predicting the mean of the labels, which has 0"]
    c_index = (result.get("final") or {}).get("c_index")
    if c_index is not None and c_index < GUESSED:
        return [f"the C-index is {c_index:.4f}: hardly better than ordering rows by chance, which has 0.5"]
    always = _as_good(result)
    if always is None:
        return []
    accuracy, is_rounded = result["final"]["accuracy"], "accuracy_error" in result["final"]
    look = "both are rounded; look at AUC and loss, which are rounded too" if is_rounded else FREQUENT
    if noisy(result):
        look = "both have noise, so compare the AUC, if there is one"
    return [f"the accuracy is {accuracy:.4f}, and always predicting {always[0]!r} has {always[1]:.4f}: {look}"]


def poor_ones(results: Mapping[str, Result]) -> list[str]:
    """Return a warning that names the results that are hardly better than always predicting the same class.

    Args:
        results: results by their names.

    Returns:
        One line, or none.
    """
    found = {name: always for name, result in results.items() if (always := _as_good(result)) is not None}
    if not found:
        return []
    shares = sorted({f"always predicting {name!r} has {share:.4f}" for name, share in found.values()})
    return [f"{shortened([*found])}: hardly more accurate than one class ({', '.join(shares)}); compare AUC and loss"]


def unconverged_ones(results: Mapping[str, Result]) -> list[str]:
    """Return the warnings of ``unconverged`` of several results.

    Args:
        results: results by their names.

    Returns:
        A line for each result whose model still changes.
    """
    return [f"{name}: {line}" for name, result in results.items() for line in unconverged(result)]


def _as_good(result: Result) -> tuple[str, float] | None:
    """The most frequent class and the accuracy of always predicting it, if a result is hardly better."""
    accuracy, always = (result.get("final") or {}).get("accuracy"), most_frequent(result)
    return always if accuracy is not None and always is not None and accuracy < always[1] + CLOSE else None


def described(result: Result) -> str:
    """Describe a result in one line: the method, and the experiment that it is from.

    Args:
        result: the result.

    Returns:
        The line.
    """
    experiment: dict[str, Any] = result.get("experiment", {})
    if "data" not in experiment:
        task = f", task {experiment['task']} at {experiment['network']}" if "task" in experiment else ""
        organizations = shortened(called(result, result.get("organizations", [])))
        return f"{result['method']} on the organizations {organizations}{task}"
    every = [(f"{name} ({n})", took) for name, n, took in nodes_of(result)]
    nodes = [name for name, took in every if took]
    absent = "" if len(nodes) == len(every) else f" of {len(every)}"
    speeds = f", speeds {experiment['speeds']:g}" if experiment.get("speeds") else ""
    trained = experiment.get("trained", "federated")
    how = "" if trained == "federated" else f", {trained}"
    return (
        f"{result['method']}{how} on {experiment['data']}, {experiment['partition']}, partition seed "
        f"{experiment['partition_seed']}, seed {result['settings']['seed']}{speeds}; {len(nodes)}{absent} nodes: "
        f"{shortened(nodes)}"
    )
