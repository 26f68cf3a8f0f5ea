"""The server of generalised linear models."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from v6_federated import (
    Answer,
    Excludes,
    Federation,
    Holdout,
    NoClasses,
    Number,
    Plan,
    Result,
    Rounds,
    SafeError,
    WithNoise,
    affine,
    central,
    codec,
    inference,
    newton,
)
from v6_glm import fit, noisy
from v6_glm.families import Glm, check_link
from v6_glm.measures import MEASURES
from v6_glm.scoring import Scoring

NOT_COVERED = Excludes("clip", because="no noise covers what it needs")
ALL_ROWS = Excludes(
    "holdout", "evaluators", "target", "subgroup", because="models with it are not evaluated on rows that are held out"
)
L2 = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="penalty l2/2 |W|^2 on the mean loss, not on the intercept"),
    Number,
    NOT_COVERED,
]
Confidence = Annotated[float, Field(gt=0, lt=1, description="coverage of the confidence intervals"), Number]
Tolerance = Annotated[
    float,
    Field(gt=0, le=0.1, description="step, in standard errors, at which the coefficients have converged"),
    Number,
]

InFull = Annotated[Literal["float64"], Field(description="number format of what is sent, here in full")]


class Settings(WithNoise):
    """The settings that every method takes; the model is always a generalised linear one, sent in float64."""

    for_numbers: ClassVar[str] = "family=gaussian (counts: family=poisson)"
    unused: ClassVar[Mapping[str, str]] = {
        "start_from": "whose coefficients follow from the rows alone",
        "until_converged": "whose coefficients follow from the rows alone (tolerance ends its rounds)",
        "class_weights": "whose coefficients they would move (weights names a column of weights)",
    }
    same_when_resumed: ClassVar[tuple[str, ...]] = ("l2",)

    model: Annotated[Literal["glm"], Field(description="a generalised linear model, which this method fits")] = "glm"
    family: Annotated[
        Literal["binomial", "gaussian", "poisson", "gamma"], Field(description="distribution of the label"), NoClasses
    ] = "binomial"
    link: Annotated[
        Literal["logit", "probit", "cloglog", "identity", "log", "inverse"] | None,
        Field(description="link (unset: the family's usual one)"),
    ] = None
    offset: Annotated[
        str | None,
        Field(description="column that is added to the linear predictor, such as log exposure"),
        ALL_ROWS,
        NOT_COVERED,
    ] = None
    weights: Annotated[
        str | None, Field(description="column of prior weights of the rows, from 0"), ALL_ROWS, NOT_COVERED
    ] = None
    holdout: Annotated[Holdout, NOT_COVERED] = 0.0
    precision: InFull = "float64"  # type: ignore[assignment]  # no other method accepts it

    @classmethod
    def predicts_numbers(cls, values: Mapping[str, Any]) -> bool:
        """Say whether the label is a number: for all families but binomial."""
        return values.get("family", "binomial") != "binomial"

    @property
    def named_model(self) -> dict[str, Any]:
        """The model with its family and link."""
        return {"name": "glm", "family": self.family, "link": check_link(self.family, self.link)}


def why_single(settings: Any) -> str:
    """Say which settings need single answers.

    Args:
        settings: the job's settings.

    Returns:
        The reason; empty if sums suffice.
    """
    if not settings.regression or not (settings.holdout or settings.evaluators):
        return ""
    return "squared errors of a number's predictions can tell single rows, also in a sum; leave out holdout"


def check_settings(settings: Any) -> None:
    """Reject settings that do not fit each other.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: they do not.
    """
    check_link(settings.family, settings.link)
    if settings.rounds < 2:
        raise SafeError(f"rounds={settings.rounds} are too few; expected at least 2, for a first step and its check")
    if settings.classes and len(settings.classes) != 2:
        raise SafeError(f"{len(settings.classes)} classes are named; family=binomial has two")
    if settings.clip is not None:
        noisy.check_settings(settings)


def few_sums(settings: Any) -> Plan:
    """With noise a node is asked for three or four sums, which take ``noisy.PARTS`` parts of the budget in all."""
    return Plan(statistics=noisy.PARTS)


@central(
    common=Settings,
    private=few_sums,
    check=check_settings,
    single_answers=why_single,
    known_as={
        "logistic": "--set family=binomial",
        "ols": "--set family=gaussian",
        "linear": "--set family=gaussian",
        "poisson": "--set family=poisson",
        "gamma": "--set family=gamma",
    },
)
def central(
    federation: Federation,
    *,
    rounds: Rounds = 25,
    l2: L2 = 0.0,
    confidence: Confidence = 0.95,
    tolerance: Tolerance = 1e-8,
) -> Result:
    """Generalised linear models by Fisher scoring: McCullagh and Nelder 1989, section 2.5, on sums over all nodes.

    Symbols: n_k rows of node k, D (n_k, p) its columns, centred and scaled after round 1, and 1, p = d + 1, beta (p,),
    W = w mu'^2 / V and s = w (y - mu) mu' / V (n_k,) for prior weights w. What leaves a node: in each round D^T s (p,),
    D^T W D (p, p), and ``measures``: sums over its rows of labels, weights, deviance and the like. In the first round
    beta is unset, and the means are near the labels. Bytes up a node and round: 16/3 p (p + 3) in float64, 32 p down;
    15 times as many up under masks, where sums of any size are exact.
    """
    model = federation.model
    assert isinstance(model, Glm)
    p, names = model.size, [*federation.features]
    if federation.plan is not None:
        return with_noise(federation, federation.plan, model, confidence)
    # its numbers are kept as lists: an array would be kept in float32
    s = federation.start(w=federation.initial_weights, scoring=Scoring(l2).to_json)
    federation.write_without(scoring=lambda kept: Scoring.from_json(kept).without_cells().to_json())
    for t in federation.rounds(rounds):
        scoring = Scoring.from_json(s.scoring)
        sent = {"weights": scoring.coefficients, "center": scoring.center, "scale": scoring.scale} if t > 1 else {}
        answers = federation.ask(
            "newton",
            federation.organizations,
            null=scoring.null,
            measures=compared(model, first=t == 1),
            validate=wrong_sums,
            often=fit.why_refused(model, scoring, names),
            **sent,
        )
        g, H = answers.exact_sum("gradient"), inference.symmetric(answers.exact_sum("hessian"), p)
        sums = dict(zip(MEASURES, answers.exact_sum("measures").tolist(), strict=True))
        federation.record(answers, deviance=None if t == 1 or sums["impossible"] else sums["deviance"])
        fit.check_labels(model, sums)
        if t == 1:
            scoring.begin(g, H, sums)
        elif scoring.accept(sums, [answers.n, *answers.organizations]):
            if scoring.first is None and not l2:
                which = " of the hospitals that answered" if len(answers) < len(federation.organizations) else ""
                inference.check_identified(H, names, f"in all rows{which}, as the intercept has")
            elif scoring.first is not None and not l2 and not model.family.dispersed:
                fit.check_not_separated(scoring, model, H, sums, names)
            phi = fit.dispersion(model.family, sums, p)
            if phi is None:  # a penalty determines the coefficients of more columns than rows
                phi = sums["pearson"] / sums["rows"]
            scoring.advance(g, H, phi, tolerance, model.canonical)
        s.scoring = scoring.to_json()
        s.w = scoring.coefficients.astype(np.float32)
        if scoring.converged:
            break
    scoring = Scoring.from_json(s.scoring)
    scoring.end()
    result = federation.result(scoring.coefficients)
    names, E = affine.original(result["data"]["preprocess"], original_names(result), result["data"]["categories"] or [])
    found = with_class(result, fit.summary(model, scoring, names, E, confidence))
    return {**result, **found, "iterations": len(result["history"])}


def with_noise(federation: Federation, plan: Plan, model: Glm, confidence: float) -> Result:
    """The same from a few sums with noise, see ``noisy``. All that follows is computed from them."""
    data = federation.job()["data"]
    s = federation.start(
        w=federation.initial_weights,
        fit=lambda: noisy.Fit(*noisy.declared(model, federation.features, data, federation.bounds)).to_json(),
    )
    if federation.resumed and noisy.Fit.from_json(s.fit).used == noisy.PARTS:
        raise SafeError(
            "resume: the earlier job has finished, and its coefficients are its result: with clip no further step "
            "improves them; leave out resume, for a job with a budget of its own"
        )
    for t in federation.rounds(noisy.MOST):
        found = noisy.Fit.from_json(s.fit)
        parts = found.parts
        sent = {} if found.b is None else {"coefficients": found.b, "longest": [*found.longest(plan.clip)]}
        answers = federation.ask(
            "noisy_newton",
            federation.organizations,
            transform=codec.encode({"T": found.T}, "float64"),
            of_budget=parts,
            measures={"sums": None, "variance": None},
            **sent,
        )
        total = federation.bounded_sum(answers, "sums")
        sigma = plan.statistics_noise * (federation.noises(answers, "variance") / parts) ** 0.5
        found.n = int(answers.n)
        federation.record(answers)
        if t == 1:
            found.begin(model, total, sigma)
        else:
            found.advance(model, total, sigma, plan.clip)
        assert found.b is not None
        found.used += parts
        s.fit, s.w = found.to_json(), found.b.astype(np.float32)
        if found.used == noisy.PARTS:
            break
    found = noisy.Fit.from_json(s.fit)
    assert found.b is not None
    result = federation.result(found.b)
    names, E = affine.original(result["data"]["preprocess"], original_names(result), result["data"]["categories"] or [])
    said = noisy.summary(model, found, names, E, confidence, {**fit.RATIOS, "poisson": "rate_ratio"})
    return {**result, **with_class(result, said), "iterations": len(result["history"])}


def with_class(result: Result, found: dict[str, Any]) -> dict[str, Any]:
    """Say in each row of the coefficients which class they are about: the second of two.

    Args:
        result: of the job.
        found: what a summary says.

    Returns:
        The same; if the label has classes, each row also has ``label`` and ``class``.
    """
    data = result["data"]
    if not data["classes"]:
        return found
    about = {"label": data["label"], "class": data["classes"][-1]}
    return {**found, "coefficients": [{"name": row["name"], **about, **row} for row in found["coefficients"]]}


def original_names(result: Result) -> list[str]:
    """Name the columns before the first step.

    Args:
        result: of the job.

    Returns:
        Their names; their indices if the data are arrays.
    """
    data = result["data"]
    if data["features"] is not None:
        return [*data["features"]]
    widths = [step["fitted"]["shapes"]["mean"][0] for step in data["preprocess"] if step["step"] == "pca"]
    return [str(i) for i in range(next(iter(widths), result["model"]["features"]))]


def pull(answer: Answer) -> np.ndarray:
    """Select what is compared of the nodes' gradients, see ``inference.pull``.

    Args:
        answer: a node's answer.

    Returns:
        A number (1,).
    """
    sums = dict(zip(MEASURES, answer["measures"].tolist(), strict=True))
    # no step can explain more than Pearson's X^2, which is 0 of families without a dispersion
    return newton.pull(answer, sums["pearson"] or sums["deviance"])


def first_pull(answer: Answer) -> np.ndarray:
    """Select what is compared of the nodes' first gradients: how much of their weights' sum they would explain.

    Args:
        answer: a node's answer.

    Returns:
        A number (1,).
    """
    return newton.pull(answer, float(answer["hessian"][-1]))


def compared(model: Glm, first: bool) -> newton.Measures:
    """Select what is compared of the nodes' answers.

    The first Hessian is of columns in their own units. The first gradient is that of working labels, which can be
    compared if the label has two classes: they are then all about as large.

    Args:
        model: family and link.
        first: whether it is the first round.

    Returns:
        Functions of an answer, by name.
    """
    if not first:
        return {"gradient": pull, "hessian": newton.deviations, "measures": None}
    found: newton.Measures = {"gradient": None, "hessian": None, "measures": None, "first hessian": newton.deviations}
    return found if model.regression else {**found, "first gradient": first_pull}


def wrong_sums(answer: Answer) -> str | None:
    """Check the sums in a node's answer.

    Args:
        answer: the node's answer.

    Returns:
        What is wrong with them; None if nothing is.
    """
    sums = dict(zip(MEASURES, answer["measures"].tolist(), strict=True))
    i = np.arange(len(answer["gradient"]))
    positive = [sums[name] for name in ("weight", "pearson", "null_hessian")]
    fits = 0 <= sums["rows"] <= answer.n and min(*positive, *answer["hessian"][i * (i + 3) // 2]) >= 0
    other = [*answer["gradient"], *answer["hessian"], sums["deviance"], sums["null_deviance"]]
    if not fits or sums["impossible"] not in (0, 1) or (sums["impossible"] and any(other)):
        return f"sent sums that {answer.n} rows cannot have; expected those of weights from 0"
    return None
