"""In a study no hospital rounds, joins or leaves out by its own counts: sums do not depend on how rows are dealt."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from forged import Central
from honest import FIT, HONEST, TIMES
from test_additive_sums import dealt

from v6_federated.gate import under_masks
from v6_federated.masks import summing
from v6_federated.masks.exact import Exact
from v6_federated.messages import codec
from v6_federated.models.layouts import Asked
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

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
    "cells of time": ("km", "count_events", {}, {}, {"model": None, "data": TIMES}),
    "groups": ("km", *HONEST["km"][0][:3], {"model": None, "data": TIMES}),
}


def answers(case, monkeypatch, folder, exact=True):
    """What careful nodes add up, and the items that are additive in rows in a study."""
    method, function, arrays, settings, job = CASES[case]
    captured = {}

    def answer(node, request, name, sums, arguments, sent, compute):
        node.pinned = exact
        captured[node.organization_id] = sums, compute(), node.n
        return {"organization_id": node.organization_id, "round": node.round}, node.n

    monkeypatch.setattr(under_masks, "answer", answer)
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
    found, sums = set(), captured[5][0]
    for part in sums.parts:
        if part.name not in rows:
            continue
        value = {k: numbers(part, sums, said, n) for k, (_, said, n) in captured.items()}
        each = [value[k] for k in range(1, 5)]
        within = 0 if part.exponent is None else 4e-6 * np.sum(np.abs(each), axis=0) + 1e-30
        if not (np.abs(np.sum(each, axis=0) - value[5]) <= within).all():
            found.add(part.name)
    return found


def numbers(part, sums, said, n):
    """What a node adds to a part, before it is encoded."""
    given = said.get(part.name)
    if isinstance(given, Exact):
        return np.array([float(number * Fraction(2) ** given.exponent) for number in given.numbers])
    return summing._value(part, sums, said, n, 1)


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


@pytest.mark.parametrize("mode", ["random", "histogram"])
def test_trees_of_a_study_are_the_same_however_rows_are_dealt(mode, tmp_path):
    """Nodes joined leaves and bins of few of their own rows, and chose edges by counts that each had rounded."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(240, 3)), columns=["a", "b", "c"])
    table["label"] = (table["a"] + table["b"] ** 2 + rng.normal(size=240) > 0.8).astype(int)
    found = []
    for deal, sizes in enumerate(([60, 120, 180], [30, 85, 150])):
        parts = np.split(rng.permutation(240), sizes)
        tables = {k: table.iloc[rows].reset_index(drop=True) for k, rows in enumerate(parts, 1)}
        study = {"hospital_folder": tmp_path / f"{deal}", "study": StudyPlan(4), "environment": CAREFUL}
        with MockNetwork("v6_gbdt", tables, on_round=lambda row: None, **study) as network:
            result = network.run(mode=mode, rounds=4, holdout=0.0, seed=1, aggregation="pinned")
        found.append(codec.decode(result["weights"])["weights"])
    assert len(found[0]) > 20
    np.testing.assert_array_equal(found[0], found[1])
