"""The server of Cox's proportional hazards."""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from scipy import special

from v6_cox import grid as grid_of
from v6_cox.likelihood import Cox
from v6_cox.measures import MEASURES, Strata, Ties
from v6_cox.partial import SHARED
from v6_cox.stepping import Stepping, Sums, scaled, solved
from v6_federated import (
    Answer,
    Answers,
    CollectResultsError,
    Common,
    Excludes,
    Federation,
    Grid,
    Needs,
    Number,
    Result,
    Rounds,
    SafeError,
    affine,
    bins_of_time,
    central,
    check_grid,
    codec,
    inference,
    newton,
    times,
)

ROUNDING = 1e-12  # deviation of a column, relative to its mean, that is rounding
WITHOUT = "nodes were missing in some rounds, and no later round brought the sums of the same rows for "

Confidence = Annotated[float, Field(gt=0, lt=1, description="coverage of the confidence intervals"), Number]
Tolerance = Annotated[
    float,
    Field(gt=0, le=0.1, description="step, in standard errors, at which the coefficients have converged"),
    Number,
]
Tied = Annotated[Ties, Field(description="how events at the same time are treated"), Needs(strata="hospital")]
Stratified = Annotated[
    Strata,
    Field(description="hospital: a baseline hazard each; none: one for all, in bins of time"),
]
Bins = Annotated[
    int,
    Field(ge=2, le=times.MOST, description="bins of time, at quantiles of the events"),
    Number,
    Needs(strata="none"),
    Excludes("grid", because="it names the ends of bins"),
]
InFull = Annotated[Literal["float64"], Field(description="number format of what is sent, here in full")]

Ask = Callable[[np.ndarray, Mapping[str, Any], Sequence[int]], tuple[Answers, Sums]]  # see ``of_strata``, ``on_grid``


class Settings(Common):
    """The settings that every method takes; the label is a time, and nothing is held out."""

    for_numbers: ClassVar[str] = "event=COLUMN"
    evaluates: ClassVar[bool] = False
    unused: ClassVar[Mapping[str, str]] = {
        "start_from": "whose coefficients follow from the rows alone",
        "until_converged": "whose coefficients follow from the rows alone (tolerance ends its rounds)",
        **dict.fromkeys(("classes", "class_weights"), "whose label is a time"),
        **dict.fromkeys(("target", "subgroup", "evaluators", "holdout", "evaluate_every"), "which evaluates no model"),
    }
    same_when_resumed: ClassVar[tuple[str, ...]] = ("strata", "ties", "bins", "grid")

    model: Annotated[Literal["cox"], Field(description="the proportional hazards model, which this method fits")] = (
        "cox"
    )
    event: Annotated[
        str | None,
        Field(description="column that is 1 if the label is the time of an event, 0 if of censoring (unset: all are)"),
    ] = None
    holdout: Annotated[float, Field(ge=0, le=0, description="no rows are held out"), Number] = 0.0
    precision: InFull = "float64"  # type: ignore[assignment]  # no other method accepts it

    @classmethod
    def predicts_numbers(cls, values: Mapping[str, Any]) -> bool:
        """Say that the label is a number, a time."""
        return True


def check_settings(settings: Any) -> None:
    """Reject settings that do not fit each other.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: they do not.
    """
    if settings.rounds < 2:
        raise SafeError(f"rounds={settings.rounds} are too few; expected at least 2, for a first step and its check")
    check_grid(settings)


@central(
    common=Settings,
    check=check_settings,
    of_hospitals=lambda settings: f"each hospital is a stratum; {SHARED}" if settings.strata == "hospital" else "",
    known_as={"survival": "--set event=COLUMN", "coxph": "--set event=COLUMN", "phreg": "--set event=COLUMN"},
)
def central(
    federation: Federation,
    *,
    rounds: Rounds = 25,
    strata: Stratified = "hospital",
    ties: Tied = "efron",
    bins: Bins = 50,
    grid: Annotated[Grid, Needs(strata="none")] = None,
    confidence: Confidence = 0.95,
    tolerance: Tolerance = 1e-8,
) -> Result:
    """Proportional hazards by Newton's method: Cox 1972 and 1975, stratified by hospital, or on agreed bins of time.

    Symbols: n_k rows of node k, X (n_k, d) its columns, beta (d,), B bins. With ``strata=hospital`` each node's rows
    have a baseline hazard of their own, so the log partial likelihood is the sum of the nodes' own ones. What leaves a
    node: in each round its gradient (d,) and Hessian (d, d), and ``measures``: rows, events, log-likelihood, pairs of
    rows and concordant ones. No time leaves it. With ``strata=none`` all rows have one baseline hazard, constant in a
    bin. What leaves a node: before round 1, its events and its rows that leave, counted by cell of time, in multiples
    of its minimum of rows, or in a study exactly; in each round, for each bin its events and the sums of exp(X beta)
    times time at risk (1, X), and over all bins a Hessian, sums of X over events, and ``measures``. In a study central
    makes bins so wide that each holds enough events of each block, and follows no row after the last one. Bytes up a
    node and round: 16/3 d (d + 3) in float64, with bins
    32/3 B (d + 2) more; 11 d down, and 11 B; 15 times as many up under masks, where sums of any size are exact.
    """
    model = federation.model
    assert isinstance(model, Cox)
    p, names = model.features, [*federation.features]
    # its numbers are kept as lists: an array would be kept in float32
    s = federation.start(
        w=federation.initial_weights,
        stepping=inference.listed(vars(Stepping(np.zeros(p)))),
        ends=lambda: agreed(federation, strata, bins, grid),
        shared={},
    )

    def ask(b: np.ndarray, shared: Mapping[str, Any], who: Sequence[int]) -> tuple[Answers, Sums]:
        often = why_refused(Stepping(**inference.arrays(s.stepping)), names, strata)
        if strata == "hospital":
            return of_strata(federation, b, ties, who, often)
        return on_grid(federation, b, np.array(s.ends), grid is None, shared, who, often)

    for _ in federation.rounds(rounds):
        stepping = Stepping(**inference.arrays(s.stepping))
        if stepping.converged and stepping.lacks_null:  # the job was interrupted in ``of_null``
            break
        answers, sums = ask(stepping.b, inference.arrays(s.shared), federation.organizations)
        record(federation, answers, sums)
        accepted = True
        if sums.H is not None:
            if not stepping.is_about(sums.about):
                missing = len(answers) < len(federation.organizations)
                check_identified(sums.H, sums.measures, names, strata, " that answered" if missing else "")
            elif sums.measures["log_likelihood"] > stepping.good["measures"]["log_likelihood"]:
                check_finite(stepping, sums.H, names)
            accepted = stepping.accept(sums, sums.H, tolerance)
        if accepted:
            s.shared = inference.listed(sums.shared)
        s.stepping = inference.listed(vars(stepping))
        s.w = np.append(stepping.b, 0.0).astype(np.float32)
        if stepping.converged:
            break
    if Stepping(**inference.arrays(s.stepping)).lacks_null:
        of_null(federation, rounds, s, ask)
    stepping = Stepping(**inference.arrays(s.stepping))
    result = federation.result(np.append(stepping.good["next"], 0.0))
    data = result["data"]
    names = names if data["features"] is None else data["features"]
    names, E = affine.original(data["preprocess"], names, data["categories"] or [])
    shown: dict[str, Any] = {"strata": strata}
    if strata == "hospital":
        shown["ties"] = ties
    else:
        shared = stepping.good["shared"]
        center = stepping.null.get("shared", shared)["center"]
        shown["baseline"] = baseline(np.array(s.ends), shared, center, stepping.good["next"])
    return {
        **result,
        **shown,
        **summary(stepping, names, E[:, 1:].T, confidence),
        "iterations": len(result["history"]),
    }


def of_null(federation: Federation, rounds: int, s: SimpleNamespace, ask: Ask) -> None:
    """Ask for the sums at coefficients 0 over the rows of the fit, which nodes were missing from or have joined.

    Tests compare the two. If a node is missing now, they are left out.

    Args:
        federation: the nodes.
        rounds: number of rounds in all.
        s: what the job carries from round to round.
        ask: asks for the sums.
    """
    for _ in federation.rounds(rounds):
        stepping = Stepping(**inference.arrays(s.stepping))
        who = stepping.good["about"][1:]
        try:
            answers, sums = ask(np.zeros_like(stepping.b), stepping.null.get("shared", {}), who)
        except CollectResultsError:  # the coefficients must not be lost
            return
        record(federation, answers, sums)
        if not stepping.is_about(sums.about):
            return
        stepping.first = sums.kept
        s.stepping = inference.listed(vars(stepping))
        if not stepping.lacks_null:
            return


def why_refused(stepping: Stepping, names: list[str], strata: Strata) -> str:
    """Say why nodes often refuse the sums of a step, and what to do: under masks nobody sees the reason.

    Args:
        stepping: where Newton's method stands.
        names: of the columns.
        strata: whose rows are compared.
    """
    bins = "" if strata == "hospital" else ", or bins of time hold too few rows (fewer with --set bins)"
    if not stepping.b.any():
        return (
            "values are missing (add a step impute), or rows or events are too few for a limit or for so many columns "
            f"(leave some out with --exclude){bins}"
        )
    first, now, certain = stepping.start, stepping.good.get("H"), ""
    if first is not None and now is not None:
        certain = inference.suspects(names, scaled(first, first), scaled(now, first))
    if certain:
        return (
            f"columns{certain} predict nearly with certainty who has the event first: leave them out (--exclude), or "
            f"merge levels{bins}"
        )
    strata_of = " or set strata=hospital," if strata == "none" else ""
    return (
        "few rows with extreme values outweigh all others after a step: limit columns with a long tail (such as "
        "--preprocess clip:0.05),"
        f"{strata_of} or leave them out (--exclude); or columns predict nearly with certainty who has the event "
        f"first{bins}"
    )


def record(federation: Federation, answers: Answers, sums: Sums) -> None:
    """Record a round."""
    measures = sums.measures
    federation.record(answers, log_likelihood=measures["log_likelihood"], concordance=share(measures))


def of_the_fit(answers: Answers, organizations: Sequence[int]) -> Answers:
    """Select the answers of some organizations; if one of these has not answered, all of them."""
    found = Answers([a for a in answers.parts() if {*a.organizations} <= {*organizations}])
    return found if found.organizations == [*organizations] else answers


def of_strata(
    federation: Federation, b: np.ndarray, ties: Ties, who: Sequence[int], often: str
) -> tuple[Answers, Sums]:
    """Ask for the derivatives of the nodes' own partial likelihoods, and add them up.

    Args:
        federation: the nodes.
        b: the coefficients (p,).
        ties: how ties are treated.
        who: the organizations whose rows are added up, see ``of_the_fit``.
        often: why nodes often refuse.

    Returns:
        All answers, and the sums.
    """
    p = len(b)
    answers = federation.ask(
        "newton",
        federation.organizations,
        measures=COMPARED,
        validate=wrong_sums,
        often=often,
        weights=np.append(b, 0.0),
        ties=ties,
    )
    used = of_the_fit(answers, who)
    g, H = used.exact_sum("gradient"), inference.symmetric(used.exact_sum("hessian"), p)
    return answers, Sums([used.n, *used.organizations], g, H, named(used), {})


def agreed(federation: Federation, strata: Strata, bins: int, ends: list[float] | None) -> list[float]:
    """Agree on the ends of bins of time.

    Args:
        federation: the nodes.
        strata: whether there are any.
        bins: their number; the last one is open.
        ends: the ends that the researcher has named.

    Returns:
        The ends of all bins but the last (B - 1,).
    """
    if strata == "hospital":
        return []
    return bins_of_time(federation, np.arange(1, bins) / bins, ends)


def on_grid(
    federation: Federation,
    b: np.ndarray,
    ends: np.ndarray,
    even: bool,
    shared: Mapping[str, Any],
    who: Sequence[int],
    often: str,
) -> tuple[Answers, Sums]:
    """Ask for the sums of the piecewise exponential model, and compute its derivatives.

    Args:
        federation: the nodes.
        b: the coefficients (p,).
        ends: of all bins but the last (B - 1,).
        even: whether bins hold about equally many events.
        shared: of the last round whose step was taken; empty in the first one.
        who: the organizations whose rows are added up, see ``of_the_fit``.
        often: why nodes often refuse.

    Returns:
        All answers, and the sums; without a Hessian in the first round, as the hazards are not known yet.
    """
    p, B = len(b), len(ends) + 1
    known = {name: shared[name] for name in ("b", "events", "hazard", "means") if name in shared}
    center = shared["center"] if known else np.zeros(p)
    hazard = grid_of.Baseline(**known).at(b) if known else np.zeros(B)
    answers = federation.ask(
        "newton_on_grid",
        federation.organizations,
        measures=compared_on_grid(hazard),
        validate=functools.partial(wrong_sums_on_grid, hazard),
        often=often,
        weights=np.append(b, 0.0),
        center=np.append(center, 0.0),
        bins=codec.encode({"ends": ends, "hazard": hazard}, "float64"),
        even=even,
        **({"closed": True} if federation.least else {}),
    )
    check_bins(answers, federation.least)
    used = of_the_fit(answers, who)
    about = [used.n, *used.organizations]
    sums = {name: used.exact_sum(name) for name in ("events", "risk", "happened", "hessian")}
    risk = sums["risk"].reshape(B, 1 + p)
    if not risk[:, 0].any():
        raise SafeError("the label is 0 in all rows; expected the time from entry to the event or to censoring")
    found = grid_of.of_sums(sums["events"], risk, sums["happened"], inference.symmetric(sums["hessian"], p), b, hazard)
    measures = {**named(used), "log_likelihood": found["log_likelihood"]}
    told = {**vars(found["baseline"]), "center": center, "about": about}
    exact = [*shared.get("about", ())] == about  # otherwise the hazards are unknown, or those of other rows
    if not exact and not b.any():  # hazards at coefficients 0 do not depend on the center
        mean = risk[:, 1:].sum(axis=0) / risk[:, 0].sum()
        told |= {"means": told["means"] - mean, "center": center + mean}
    if not known:
        return answers, Sums(about, found["gradient"], None, measures, told, exact)
    H = found["hessian"]
    constant = np.sqrt(np.diag(H).clip(0) / max(measures["events"], 1)) <= ROUNDING * np.abs(center)
    H[constant], H[:, constant] = 0.0, 0.0
    return answers, Sums(about, found["gradient"], H, measures, told, exact)


def check_bins(answers: Answers, least: int) -> None:
    """Reject sums with few events in a bin, of blocks that have not counted theirs. Nothing of them is kept.

    Args:
        answers: to ``newton_on_grid``.
        least: events that each answer must have in each bin but the open one, which is empty; 0 means any number.

    Raises:
        SafeError: some answer has fewer.
    """
    if least and any(Answers([a]).exact_sum("events")[:-1].min() < least - 0.5 for a in answers.parts()):
        raise SafeError(
            f"bins of time hold fewer than {least} events of a block that was missing when they were chosen; start the "
            "job again, or set fewer bins"
        )


def named(answers: Answers) -> dict[str, float]:
    """Add up what ``MEASURES`` names."""
    return dict(zip(MEASURES, answers.exact_sum("measures").tolist(), strict=True))


def baseline(ends: np.ndarray, shared: Mapping[str, Any], center: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Say what the baseline hazard is.

    Args:
        ends: of all bins but the last (B - 1,).
        shared: of the last round whose step was taken.
        center: means of the columns, weighted by time at risk (p,).
        b: the coefficients (p,).

    Returns:
        ``ends`` of the bins (B,), None for the last one; ``events`` in them (B,); ``hazard`` (B,), of a row whose
        columns are at their means, weighted by time at risk; ``survival`` of such a row at each end (B - 1,);
        ``prediction`` of such a row, as by ``v6-federated predict``.
    """
    hazard = grid_of.Baseline(**{n: shared[n] for n in ("b", "events", "hazard", "means")}).at(b)
    hazard = hazard * np.exp((center - shared["center"]) @ b)  # 1 unless nodes were missing
    widths = np.diff(np.concatenate([[0.0], ends]))
    return {
        "ends": [*ends.tolist(), None],
        "events": shared["events"].tolist(),
        "hazard": hazard.tolist(),
        "survival": np.exp(-np.cumsum(hazard[:-1] * widths)).tolist(),
        "prediction": float(center @ b),
    }


def summary(stepping: Stepping, names: list[str], M: np.ndarray, confidence: float) -> dict[str, Any]:
    """Say what was found, as statistics packages do.

    Args:
        stepping: where Newton's method has ended.
        names: original columns (k,), see ``affine.original``.
        M: coefficients of these by those of the columns after the steps (k, p).
        confidence: of the intervals.

    Returns:
        ``coefficients``, see ``inference.table``; log-likelihoods, tests that all coefficients are 0, and the rest, all
        over the rows of the organizations in ``fitted_on``. What is not known of these rows is None, and ``left_out``
        says why.
    """
    good, null = stepping.good, stepping.null
    p, here = len(good["H"]), good["measures"]
    likelihood = here["log_likelihood"]
    without = null["measures"]["log_likelihood"] if null else None
    covariance = M @ solved(good["H"], np.eye(p)) @ M.T if good["exact"] else None
    lacks = [*([] if good["exact"] else ["standard errors"]), *(["tests"] if stepping.lacks_null else [])]
    b = good["next"]
    return {
        "coefficients": inference.table(names, M @ b, covariance, "hazard_ratio", confidence, None),
        "confidence": confidence,
        "converged": stepping.converged,
        "log_likelihood": likelihood,
        "null_log_likelihood": without,
        "likelihood_ratio_test": None if without is None else tested(2 * (likelihood - without), p),
        "score_test": None if stepping.lacks_null else tested(float(null["g"] @ solved(null["H"], null["g"])), p),
        "wald_test": tested(float(b @ good["H"] @ b), p) if good["exact"] else None,
        "aic": 2 * (p - likelihood),
        "concordance": share(here),
        "events": int(here["events"]),
        "n": int(here["rows"]),
        "fitted_on": [*map(int, good["about"][1:])],
        **({"left_out": WITHOUT + " and ".join(lacks)} if lacks else {}),
    }


def tested(statistic: float, df: int) -> dict[str, float]:
    """Compare a statistic with the chi-squared distribution.

    Args:
        statistic: its value.
        df: degrees of freedom.

    Returns:
        ``statistic``, ``df`` and ``p``.
    """
    return {"statistic": statistic, "df": df, "p": float(special.chdtrc(df, max(statistic, 0.0)))}


def share(measures: Mapping[str, float]) -> float | None:
    """Compute the concordance: the share of comparable pairs that the model has in the right order."""
    return measures["concordant"] / measures["pairs"] if measures["pairs"] else None


def check_identified(
    H: np.ndarray, measures: Mapping[str, float], names: list[str], strata: Strata, which: str
) -> None:
    """Reject rows without events, and columns whose coefficients are not determined.

    Args:
        H: the Hessian at the first coefficients of these rows (p, p).
        measures: sums over them.
        names: of the columns.
        strata: whose rows are compared.
        which: the hospitals, if they are not all, for the error.

    Raises:
        SafeError: there are such columns; it names them.
    """
    if not measures["events"]:
        raise SafeError("no row has the event; name another column in event, whose value is 1 for an event")
    p = len(H)
    with_one = np.eye(p + 1)
    with_one[:p, :p] = scaled(H, H)
    where = f"at each hospital{which}" if strata == "hospital" else f"at all hospitals{which}"
    inference.check_identified(
        with_one, names, f"{where}, among the rows that are at risk when events happen", penalty=False
    )


def check_finite(stepping: Stepping, H: np.ndarray, names: list[str]) -> None:
    """Reject columns that predict with certainty who has the event first: their coefficients grow for ever.

    Args:
        stepping: where Newton's method stands.
        H: the Hessian at the newest coefficients (p, p).
        names: of the columns.

    Raises:
        SafeError: there are such columns; it names them.
    """
    first = stepping.start
    assert first is not None
    lost = inference.lost_direction(scaled(first, first), scaled(H, first))
    if lost is not None:
        raise SafeError(
            f"the column(s) {inference.that_matter(names, lost)} predict with certainty who has the event first, so "
            "that no finite coefficients fit best: a level may have no events, or all; leave them out (--exclude), or "
            "merge levels"
        )


def pull(answer: Answer) -> np.ndarray:
    """Select what is compared of the nodes' gradients, see ``inference.pull``.

    Args:
        answer: a node's answer.

    Returns:
        A number (1,).
    """
    return newton.pull(answer, float(answer["measures"][MEASURES.index("events")]))


COMPARED: newton.Measures = {"gradient": pull, "hessian": newton.deviations, "measures": None}


def compared_on_grid(hazard: np.ndarray) -> newton.Measures:
    """Select what is compared of the nodes' sums by bin: their time at risk, Hessian and gradient.

    Args:
        hazard: of each bin (B,), as the nodes were told; zeros in the first round, whose Hessian is 0.

    Returns:
        Functions of an answer, by name.
    """

    def time(answer: Answer) -> np.ndarray:
        p = len(answer["happened"])
        return np.sqrt([answer["risk"].reshape(-1, 1 + p)[:, 0].sum() / answer.n])

    def pull_on_grid(answer: Answer) -> np.ndarray:
        p = len(answer["happened"])
        expected = hazard @ answer["risk"].reshape(-1, 1 + p)
        g, H = answer["happened"] - expected[1:], inference.symmetric(answer["hessian"], p)
        return inference.pull(g, H, float(answer["events"].sum() + expected[0]))

    return {
        **dict.fromkeys(("events", "happened", "measures"), None),
        "risk": time,
        **({"hessian": newton.deviations, "gradient": pull_on_grid} if hazard.any() else {"hessian": None}),
    }


def wrong_sums(answer: Answer) -> str | None:
    """Check the sums in a node's answer.

    Args:
        answer: the node's answer.

    Returns:
        What is wrong with them; None if nothing is.
    """
    sums = dict(zip(MEASURES, answer["measures"].tolist(), strict=True))
    i = np.arange(len(answer["gradient"]))
    diagonal = answer["hessian"][i * (i + 3) // 2]
    ordered = 0 <= sums["events"] <= sums["rows"] == answer.n and 0 <= sums["concordant"] <= sums["pairs"]
    if (
        not ordered
        or sums["pairs"] > answer.n**2
        or (diagonal < -1e-9 * np.abs(answer["hessian"]).max(initial=1)).any()
    ):
        return f"sent sums that {answer.n} rows cannot have; expected those of a partial likelihood"
    return None


def wrong_sums_on_grid(hazard: np.ndarray, answer: Answer) -> str | None:
    """Check the sums by bin in a node's answer.

    Args:
        hazard: of each bin (B,), as the node was told.
        answer: the node's answer.

    Returns:
        What is wrong with them; None if nothing is.
    """
    sums = dict(zip(MEASURES, answer["measures"].tolist(), strict=True))
    p, events = len(answer["happened"]), answer["events"]
    i, risk = np.arange(p), answer["risk"].reshape(-1, p + 1)
    ordered = 0 <= sums["events"] <= sums["rows"] == answer.n and 0 <= sums["concordant"] <= sums["pairs"]
    if not ordered or min(events.min(), risk[:, 0].min()) < 0 or abs(events.sum() - sums["events"]) > 1e-6 * answer.n:
        return f"sent sums that {answer.n} rows cannot have; expected those of events and time at risk"
    squares = np.square(risk[:, 1:]) / np.where(risk[:, :1] > 0, risk[:, :1], 1.0)
    if (answer["hessian"][i * (i + 3) // 2] < (1 - 1e-6) * (hazard @ squares)).any():
        return "sent sums of squares that are too small for its sums; expected those of the same rows"
    return None
