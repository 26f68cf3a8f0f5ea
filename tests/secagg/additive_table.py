"""The tables of docs/secure-aggregation.md of what is additive in what, made from what functions declare in a study.

``PYTHONPATH=algorithms:tests:tests/secagg python tests/secagg/additive_table.py`` prints them.
"""

import importlib
from typing import Any

import numpy as np
from helpers import JOB
from honest import COX, FIT, HONEST, TIMES

import v6_federated
from v6_federated.masks.summands import Layout
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec, Job
from v6_federated.models import layouts
from v6_federated.models.layouts import Asked

LOSS_COX = {**COX, "name": "linear", "loss": {"name": "cox"}}
SEVERAL = ("client_update", FIT, {"local": {"lr": 0.1, "epochs": 2}}, {})
LEAVING = ("leaving", {}, {"ends": [1.0, 2.0], "strata": "none"}, {"model": None, "data": TIMES})
OF_TIMES = ("client_update", FIT, {"local": {}}, {"model": LOSS_COX, "data": TIMES})
NETWORK = (*HONEST["fedavg"][1][:3], {"model": {"name": "mlp", "features": 4, "classes": 2, "norm": "layer"}})
MORE = {"fedavg": [SEVERAL, OF_TIMES, NETWORK], "km": [LEAVING]}
SAID = {  # what is asked for, if a function is asked for several things: by its place in HONEST, and then in MORE
    ("fedavg", 0): "one step on all rows, of a linear model; with `hidden`, of a network in numpy too",
    ("fedavg", 1): "the same, with an evaluation",
    ("fedavg", 18): "one step on all rows, of a network in torch, with an evaluation",
    ("fedavg", 3): "one step on all rows, beside a model of its own",
    ("fedavg", 5): "the last model, of classes",
    ("fedavg", 12): "`below`",
    ("fedavg", 13): "`levels`",
    ("fedavg", 16): "several steps, or on minibatches",
    ("fedavg", 17): "`loss=cox`",
    ("glm", 0): "the first step",
    ("glm", 1): "later steps",
    ("km", 0): "`strata=hospital`, with groups",
    ("km", 1): "`strata=none`",
}
COMPARED = "adds up the same"
OWN_STEPS = "none: each hospital's next step begins where its own rows have led, so that a column is not enough"
# what is additive only in hospitals: compared with one node that has all rows and a column of hospitals (see
# test_sums_of_hospitals.py), or why there is none
OF_HOSPITALS = {
    ("fedavg", 2): "none: each hospital leaves out or rounds what is small in its own change",
    ("fedavg", 3): COMPARED,
    ("fedavg", 13): COMPARED,
    ("fedavg", 16): OWN_STEPS,
    ("fedavg", 17): COMPARED,
    ("fedavg", 18): f"{COMPARED}, but for the rounding of float32",
    ("scaffold", 0): COMPARED,
    ("fsvrg", 1): OWN_STEPS,
    ("colearning", 0): OWN_STEPS,
    ("km", 0): COMPARED,
    ("km", 1): COMPARED,
    ("cox", 1): COMPARED,
}


def requests(method: str) -> list[Any]:
    return [*HONEST[method], *MORE.get(method, [])]


def layout(method: str, request: Any, word: str) -> Layout:
    """What a function adds up in a study."""
    function, arrays, settings, changes = request
    said = {**JOB, **changes, "method": method, "aggregation": "pinned", "hospital_totals": word}
    given = {**JOB["data"], **changes.get("data", {})}
    job = Job(**{**said, "data": DataSpec(**given)})
    own = {name: value for name, value in settings.items() if name not in ("evaluate", "bands")}
    sent = codec.decode(codec.encode(arrays, "float64")) if arrays else {}
    asked = Asked(job, own, sent, bool(settings.get("evaluate")), settings.get("bands", 0))
    declared = getattr(importlib.import_module(f"v6_{method}"), function).sums
    return layouts.layout(declared, asked)


def names(found: Layout, additive: tuple[str, ...]) -> str:
    """The items of a kind; those of an evaluation are one, and the number of rows is in all."""
    of = [item.name.partition(".")[0] for item in found.items if item.additive in additive and item.name != "n"]
    return ", ".join(f"`{name}`" for name in dict.fromkeys(of)) or "-"


def only_in_hospitals(method: str, request: Any) -> set[str]:
    """The items of a request in a study that are no sums over rows."""
    return {item.name for item in layout(method, request, "told").items if item.additive not in ("row", "nothing")}


def title(method: str, i: int) -> str:
    """The first cells of a request's row."""
    function, _, settings, _ = requests(method)[i]
    shared = getattr(v6_federated, function, None) is getattr(importlib.import_module(f"v6_{method}"), function)
    said = SAID.get((method, i), f"`{settings['statistic']}`" if function == "fit_step" else "")
    return f"| `{function}`{'' if shared else ' of ' + method} | {said} |"


def table_of_hospitals() -> list[str]:
    """The lines of the table of what is additive only in hospitals."""
    rows = ["| function | asked for | one node that has all rows and a column of hospitals |", "| --- | --- | --- |"]
    for (method, i), said in OF_HOSPITALS.items():
        rows.append(f"{title(method, i)} {said} |")
    return rows


def table() -> list[str]:
    """The lines of the table."""
    rows = [
        "| function | asked for | additive in rows | only in hospitals | `hidden` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for method in HONEST:
        for i, request in enumerate(requests(method)):
            name = request[0]
            if name == "evaluate_own":  # of a model of the hospital's own: it is answered in no study
                continue
            told, hidden = (layout(method, request, word) for word in ("told", "hidden"))
            answered = "refused" if hidden.of_hospitals else "answered"
            of = [names(told, (word,)) for word in ("row", "hospital")]
            rows.append(f"{title(method, i)} {' | '.join(of)} | {answered} |")
    return rows


if __name__ == "__main__":
    np.seterr(all="raise")
    print("\n".join([*table(), "", *table_of_hospitals()]))
