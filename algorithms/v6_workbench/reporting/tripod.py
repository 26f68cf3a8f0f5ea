"""What a page answers of TRIPOD+AI (Collins et al. 2024, BMJ 385:e078378), on reporting prediction models.

The numbers are those of its checklist, the words are ours.
"""

from collections.abc import Collection
from dataclasses import dataclass

NOT_ANSWERED = "not answered here"


@dataclass(frozen=True)
class Item:
    """An item of the checklist.

    Attributes:
        number: its number.
        asks: what it asks for.
        sections: titles of the page's sections that answer it.
        lacks: what these do not say; empty if nothing is left.
    """

    number: str
    asks: str
    sections: tuple[str, ...] = ()
    lacks: str = ""


PERFORMANCE, BY_HOSPITAL, SETTINGS, ORIGIN = "Performance", "By hospital", "Settings", "To repeat this"
ITEMS = (
    Item("1", "title: what is predicted, for whom", (SETTINGS,), "the population"),
    Item("2", "abstract"),
    Item("3a-3c", "context, purpose and users of the model, inequalities in health"),
    Item("4", "objectives: development or evaluation"),
    Item("5a", "sources of the data", (ORIGIN,), "what kind of data they are, and why these"),
    Item("5b", "dates of the data"),
    Item("6a", "setting, number of centres", ("Hospitals",), "what kind of centres, and where"),
    Item("6b, 6c", "who was eligible, treatments"),
    Item("7", "preparation of the data", (SETTINGS,), "what hospitals did before"),
    Item("8a", "the outcome", (SETTINGS,), "how and when it was assessed"),
    Item("8b, 8c", "assessors of the outcome, blinding"),
    Item("9a, 9b", "predictors", (SETTINGS,), "why these, and how they were measured"),
    Item("9c", "assessors of predictors"),
    Item("10", "reasons for the sample size"),
    Item("11", "missing data", (SETTINGS,), "how much was missing, and why"),
    Item("12a", "how the data were used, and split", (SETTINGS, ORIGIN)),
    Item("12b", "how predictors were transformed", (SETTINGS,)),
    Item("12c", "kind of model, how built and tuned", (SETTINGS, "Training"), "why this one, what else was tried"),
    Item("12d", "differences between hospitals", (BY_HOSPITAL,)),
    Item("12e", "measures of performance", (PERFORMANCE,), "why these"),
    Item("12f, 12g", "updating; how predictions were made in an evaluation"),
    Item("13", "methods against class imbalance", (SETTINGS,), "why, if any were used"),
    Item("14", "fairness"),
    Item("15", "what the model gives, and thresholds"),
    Item("16", "differences between training and evaluation", (ORIGIN,), "any, other than that rows were held out"),
    Item("17", "ethics"),
    Item("18a-18e", "funding, interests, protocol, registration, data"),
    Item("18f", "code", (ORIGIN,)),
    Item("19", "involvement of patients and the public"),
    Item("20a-20c", "participants: their flow, characteristics and distributions"),
    Item("21", "participants and events of each analysis", (PERFORMANCE,), "events among training rows"),
    Item("22", "the whole model", ("Coefficients", "Components")),
    Item("23a", "performance with intervals, also of subgroups", (PERFORMANCE, "Subgroups")),
    Item("23b", "performance by hospital", (BY_HOSPITAL,)),
    Item("24", "results of updating"),
    Item("25-27c", "interpretation, limitations, use in practice"),
)  # fmt: skip


def answered(titles: Collection[str]) -> list[list[str]]:
    """Say where a page answers each item.

    Args:
        titles: titles of its sections.

    Returns:
        Number, what it asks for, and where it is answered, of each item.
    """
    return [[item.number, item.asks, _where(item, titles)] for item in ITEMS]


def _where(item: Item, titles: Collection[str]) -> str:
    there = [title for title in item.sections if title in titles]
    if not there:
        export = "; `v6-federated export` writes it" if item.number == "22" else ""
        return NOT_ANSWERED + export
    return " and ".join(there) + (f"; not here: {item.lacks}" if item.lacks else "")
