"""In a study no hospital rounds, joins or leaves out by its own counts: sums do not depend on how rows are dealt."""

import numpy as np
import pytest
from forged import Central
from honest import FIT, HONEST
from test_additive_sums import compared, dealt

from v6_federated.messages import codec
from v6_federated.models.questions import Asked
from v6_federated.node import masking
from v6_workbench.simulation.mock import MockNetwork

CAREFUL = {"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_CLASSES": "*"}
EVALUATED = {"evaluate": "all", "bands": 127}
SUBGROUP = {"data": {"subgroup": "x3", "levels": ["0", "1", "2"]}}
CASES = {  # what hospitals folded by their own counts: method, function, arrays, settings, job
    "classes": ("fedavg", "fit_step", {}, {"statistic": "classes"}, {"model": None}),
    "present": next(("fedavg", *r) for r in HONEST["fedavg"] if r[2].get("statistic") == "present"),
    "below": next(("fedavg", *r) for r in HONEST["fedavg"] if r[2].get("statistic") == "below"),
    "evaluation": ("fedavg", "client_update", FIT, {"local": {"lr": 0.1}, **EVALUATED}, {}),
    "curves": ("fedavg", "evaluate", FIT, {"last": True, **EVALUATED}, {}),
    "subgroups": ("fedavg", "evaluate", FIT, {"last": True, **EVALUATED}, SUBGROUP),
    "cells of trees": next(("gbdt", *r) for r in HONEST["gbdt"] if r[0] == "count"),
    "leaves": next(("gbdt", *r) for r in HONEST["gbdt"] if r[0] == "leaf_sums"),
    "bins": next(("gbdt", *r) for r in HONEST["gbdt"] if r[0] == "bin_sums"),
    "cells of time": ("km", "count_events", {}, {}, HONEST["km"][0][3]),
    "groups": ("km", *HONEST["km"][0]),
}


def answers(case, monkeypatch, folder, exact=True):
    """What careful nodes add up, and the items that are additive in rows in a study."""
    method, function, arrays, settings, job = CASES[case]
    captured = {}

    def answer(node, request, name, sums, arguments, sent, compute):
        node.pinned = exact
        captured[node.organization_id] = sums, compute(), node.n
        return {"organization_id": node.organization_id, "round": node.round}, node.n

    monkeypatch.setattr(masking, "answer", answer)
    aggregation = Asked.only_in_a_study  # layouts as in a study, whose nodes these are not
    monkeypatch.setattr(Asked, "only_in_a_study", property(lambda asked: "row" if exact else aggregation.fget(asked)))
    tables = dealt("event" in job.get("data", {}), False)
    if case == "classes":  # few of the rows of most hospitals are ill
        tables = {k: table.assign(label=(table["x0"] > 1.4).astype(int)) for k, table in tables.items()}
    with MockNetwork(f"v6_{method}", tables, hospital_folder=folder, environment=CAREFUL) as network:
        lying = Central(network, "masked")
        lying.rows = 160
        data = {**lying.job["data"], "features": [f"x{i}" for i in range(4)], "label": "label", **job.get("data", {})}
        lying.job |= {"method": method, **job, "data": data}
        sent = {"arrays": codec.encode(arrays, "float64")} if arrays else {}
        for k in network.nodes:
            said = lying.ask(k, function, 1, unit=(64, 10), **sent, **settings)
            assert not isinstance(said, str), said
        rows = {item.name for item in lying.layout.items if item.additive == "row"}
    return captured, rows


def differences(captured, rows):
    """Of some parts, those whose sum over four hospitals is not that of one hospital with all rows."""
    found = set()
    for part, total, one, size in compared(captured, rows):
        if size is None or part.exponent is None:
            same = (total == one).all()
        else:
            same = (np.abs(total - one) <= 4e-6 * size + 1e-30).all()
        if not same:
            found.add(part.name)
    return found


@pytest.mark.parametrize("case", CASES)
def test_cells_of_a_study_do_not_depend_on_how_rows_are_dealt(case, tmp_path, monkeypatch):
    captured, rows = answers(case, monkeypatch, tmp_path)
    assert len(rows) > 1, "nothing but the number of rows is compared"
    assert differences(captured, rows) == set()


@pytest.mark.parametrize("case", [case for case in CASES if case != "present"])
def test_outside_a_study_they_do(case, tmp_path, monkeypatch):
    """There each node keeps its own minimum, as all did in a study too: the comparison finds it.

    A column in which few rows have a value is refused, or emptied, before "present" looks at it.
    """
    with monkeypatch.context() as patch:
        _, rows = answers(case, patch, tmp_path / "study")
    captured, _ = answers(case, monkeypatch, tmp_path / "elsewhere", exact=False)
    assert differences(captured, rows)
