"""The server of Cox's proportional hazards."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from scipy import special

from v6_cox.likelihood import Cox
from v6_cox.measures import MEASURES, Ties
from v6_cox.stepping import Stepping, scaled, solved
from v6_federated import Answer, Common, Federation, Number, Result, Rounds, SafeError, affine, central, inference

Confidence = Annotated[float, Field(gt=0, lt=1, description="coverage of the confidence intervals"), Number]
Tolerance = Annotated[
    float,
    Field(gt=0, le=0.1, description="step, in standard errors, at which the coefficients have converged"),
    Number,
]
Tied = Annotated[Ties, Field(description="how events at the same time are treated")]
InFull = Annotated[Literal["float64"], Field(description="number format of what is sent, here in full")]


class Settings(Common):
    """The settings that every method takes; the label is a time, and nothing is held out."""

    for_numbers: ClassVar[str] = "event=COLUMN"

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
    for name, use in (("start_from", "leave it out"), ("until_converged", "set tolerance in its place")):
        if getattr(settings, name) is not None:
            raise SafeError(f"{name} has no effect on cox, whose coefficients follow from the rows alone; {use}")
    for name in ("evaluators", "classes", "class_weights", "target"):
        if getattr(settings, name):
            raise SafeError(f"{name} has no effect on cox, whose label is a time; leave it out")


@central(
    common=Settings,
    check=check_settings,
    known_as={"survival": "--set event=COLUMN", "coxph": "--set event=COLUMN", "phreg": "--set event=COLUMN"},
)
def central(
    federation: Federation,
    *,
    rounds: Rounds = 25,
    ties: Tied = "efron",
    confidence: Confidence = 0.95,
    tolerance: Tolerance = 1e-8,
) -> Result:
    """Proportional hazards by Newton's method: Cox 1972 and 1975, stratified by hospital.

    Symbols: n_k rows of node k, X (n_k, d) its columns, beta (d,). Each node's rows are a stratum with a baseline
    hazard of its own, so the log partial likelihood is the sum of the nodes' own ones. What leaves a node: in each
    round its gradient (d,) and Hessian (d, d), and ``measures``: rows, events, log-likelihood, pairs of rows and
    concordant ones. No time leaves it. Bytes up a node and round: 16/3 d (d + 3) in float64, 11 d down; 15 times as
    many up under masks, where sums of any size are exact.
    """
    model = federation.model
    assert isinstance(model, Cox)
    p, names = model.features, [*federation.features]
    shapes = {"gradient": (p,), "hessian": (p * (p + 1) // 2,), "measures": (len(MEASURES),)}
    # its numbers are kept as lists: an array would be kept in float32
    s = federation.start(w=federation.initial_weights, stepping=inference.listed(vars(Stepping(np.zeros(p)))))
    for _ in federation.rounds(rounds):
        stepping = Stepping(**inference.arrays(s.stepping))
        answers = federation.ask(
            "newton",
            federation.organizations,
            returns=shapes,
            means={name: ["sum"] for name in shapes},
            measures={"gradient": of_a_row("gradient"), "hessian": of_a_row("hessian"), "measures": None},
            validate=wrong_sums,
            weights=np.append(stepping.b, 0.0),
            ties=ties,
        )
        g, H = answers.exact_sum("gradient"), inference.symmetric(answers.exact_sum("hessian"), p)
        measures = dict(zip(MEASURES, answers.exact_sum("measures").tolist(), strict=True))
        federation.record(answers, log_likelihood=measures["log_likelihood"], concordance=share(measures))
        if not stepping.good:
            check_identified(H, measures, names)
        elif measures["log_likelihood"] > stepping.good["measures"]["log_likelihood"]:
            check_finite(stepping, H, names)
        stepping.accept(g, H, measures, tolerance)
        s.stepping = inference.listed(vars(stepping))
        s.w = np.append(stepping.b, 0.0).astype(np.float32)
        if stepping.converged:
            break
    stepping = Stepping(**inference.arrays(s.stepping))
    result = federation.result(np.append(stepping.good["next"], 0.0))
    data = result["data"]
    names = names if data["features"] is None else data["features"]
    names, E = affine.original(data["preprocess"], names, data["categories"] or [])
    found = summary(stepping, names, E[:, 1:].T, confidence)
    return {**result, "ties": ties, "strata": "hospital", **found, "iterations": len(result["history"])}


def summary(stepping: Stepping, names: list[str], M: np.ndarray, confidence: float) -> dict[str, Any]:
    """Say what was found, as statistics packages do.

    Args:
        stepping: where Newton's method has ended.
        names: original columns (k,), see ``affine.original``.
        M: coefficients of these by those of the columns after the steps (k, p).
        confidence: of the intervals.

    Returns:
        ``coefficients``, see ``inference.table``; log-likelihoods, tests that all coefficients are 0, and the rest.
    """
    good, first = stepping.good, stepping.first
    p, here, null = len(good["H"]), good["measures"], first["measures"]
    likelihood, without = here["log_likelihood"], null["log_likelihood"]
    covariance = M @ solved(good["H"], np.eye(p)) @ M.T
    b = good["next"]
    return {
        "coefficients": inference.table(names, M @ b, covariance, "hazard_ratio", confidence, None),
        "confidence": confidence,
        "converged": stepping.converged,
        "log_likelihood": likelihood,
        "null_log_likelihood": without,
        "likelihood_ratio_test": tested(2 * (likelihood - without), p),
        "score_test": tested(float(first["g"] @ solved(first["H"], first["g"])), p),
        "wald_test": tested(float(b @ good["H"] @ b), p),
        "aic": 2 * (p - likelihood),
        "concordance": share(here),
        "events": int(here["events"]),
        "n": int(here["rows"]),
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


def check_identified(H: np.ndarray, measures: Mapping[str, float], names: list[str]) -> None:
    """Reject rows without events, and columns whose coefficients are not determined.

    Args:
        H: the Hessian at coefficients 0 (p, p).
        measures: sums over all rows.
        names: of the columns.

    Raises:
        SafeError: there are such columns; it names them.
    """
    if not measures["events"]:
        raise SafeError("no row has the event; name another column in event, whose value is 1 for an event")
    p = len(H)
    with_one = np.eye(p + 1)
    with_one[:p, :p] = scaled(H, H)
    inference.check_identified(with_one, names, "at each hospital, among the rows that are at risk when events happen")


def check_finite(stepping: Stepping, H: np.ndarray, names: list[str]) -> None:
    """Reject columns that predict with certainty who has the event first: their coefficients grow for ever.

    Args:
        stepping: where Newton's method stands.
        H: the Hessian at the newest coefficients (p, p).
        names: of the columns.

    Raises:
        SafeError: there are such columns; it names them.
    """
    first = stepping.first["H"]
    lost = inference.lost_direction(scaled(first, first), scaled(H, first))
    if lost is not None:
        raise SafeError(
            f"the column(s) {inference.that_matter(names, lost)} predict with certainty who has the event first, so "
            "that no finite coefficients fit best: a level may have no events, or all; leave them out (--exclude), or "
            "merge levels"
        )


def of_a_row(name: str) -> Callable[[Answer], np.ndarray]:
    """Select what is compared of the nodes' sums: their means.

    Args:
        name: the sum.

    Returns:
        A function of an answer.
    """
    return lambda answer: np.asarray(answer[name] / answer.n)


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
