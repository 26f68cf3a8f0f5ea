"""What a result says about its hospitals: their names in every table and picture, and their limits."""

import csv
from datetime import datetime

import pytest
from helpers import table

from v6_workbench.reporting import diagnostics, page, pictures, spreadsheets, tables
from v6_workbench.reporting.hospitals import called
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

NAMES = ["Noord", "Oost [b]", "Zuid"]
STRICT = {"V6_FEDERATED_MINIMUM_ROWS": "15", "V6_FEDERATED_DISALLOWED_COLUMNS": "name,address"}


@pytest.fixture(scope="module")
def experiment():
    rows = table(120, seed=1)
    rows.insert(0, "hospital", [NAMES[i % 3] for i in range(120)])
    return Experiment(Dataset("rows", rows), None, "column:hospital", environments={2: STRICT})


@pytest.fixture(scope="module")
def trained(experiment):
    return experiment.federated("fedavg", rounds=2)


def of_network(result):
    """The same result as a task of organizations 3, 7 and 9 would bring it."""
    to = {1: 3, 2: 7, 3: 9}
    origin = {"network": "here", "task": 1, "organizations": {"3": "Noord", "7": "Oost [b]", "9": "Zuid"}}
    per_node = [{**row, "organization_id": to[row["organization_id"]]} for row in result["per_node"]]
    return {**result, "organizations": [3, 7, 9], "per_node": per_node, "experiment": origin}


def test_names_of_nodes_of_a_network_and_of_baselines(experiment, trained):
    assert called(trained, [3, 1, 8]) == ["Zuid", "Noord", "8"]
    assert called(of_network(trained), [9, 3, 1]) == ["Zuid", "Noord", "1"]
    assert called({"experiment": {"network": "here", "task": 1}}, [9]) == ["9"]
    assert called(experiment.alone("fedavg", rounds=1, organization=3), [1]) == ["Zuid"]
    assert called(experiment.centralized("fedavg", rounds=1), [1]) == ["centralized"]


@pytest.mark.parametrize("of", [lambda result: result, of_network], ids=["mock nodes", "network"])
def test_every_table_and_picture_has_the_names(trained, of, tmp_path):
    result = of(trained)
    second = result["organizations"][1]
    result = {**result, "history": [{**row, "missing": [{"organization_id": second, "reason": "[x] is late"}]}
                                    for row in result["history"]]}  # fmt: skip
    [missing] = [c for c in tables.rounds_table(result).columns if c.header == "missing"]
    assert [page._plain(cell) for cell in missing.cells] == ["Oost [b]: [x] is late"] * 2
    assert all(name in diagnostics.described(result) for name in NAMES)
    heat, _ = pictures.distances(result).axes
    assert [label.get_text() for label in heat.get_yticklabels()] == NAMES
    spreadsheets.write_all({"it": result}, tmp_path)
    with (tmp_path / "nodes.csv").open(newline="") as file:
        assert [row["hospital"] for row in csv.DictReader(file)] == NAMES * 2
    whole = page.page({"it": {**result, "undescribed": [{"organization_id": second, "reason": "too few rows"}]}})
    assert "Hospitals that took no part" in whole and whole.count("Oost [b]") >= 3


def test_a_hospital_that_was_not_asked_is_not_among_those_that_trained(experiment):
    result = experiment.federated("fedavg", rounds=1, organizations=[1, 2])
    assert "; 2 of 3 nodes: Noord (40), Oost [b] (40)" in diagnostics.described(result)
    text = page.page({"it": result})
    assert "Not asked to take part: Zuid." in text and '<th scope="row">Zuid</th><td>40</td>' not in text
    alone = experiment.alone("fedavg", rounds=1, organization=3)
    assert "; 3 nodes: " in diagnostics.described(alone) and "Not asked" not in page.page({"it": alone})
    evaluated = {**result, "settings": {**result["settings"], "evaluators": [3]}}
    assert "Not asked" not in page.page({"it": evaluated}), "it has evaluated"


def test_limits_of_each_node_are_those_that_it_enforced(trained):
    first, second = trained["experiment"]["limits"]
    assert (first["organizations"], second["organizations"]) == ([1, 3], [2])
    assert (first["limits"]["minimum_rows"], second["limits"]["minimum_rows"]) == (10, 15)
    assert second["limits"]["disallowed_columns"] == ["address", "name"]
    assert first["limits"]["profile"] == second["limits"]["profile"] == "trusting"
    text = page.page({"it": trained})
    assert "Limits in force at Noord, Zuid" in text and "Limits in force at Oost [b]" in text
    assert "<td>address,name</td>" in text and '<th scope="row">MINIMUM_ROWS</th><td>15</td>' in text


def test_limits_of_hospitals_are_not_known(trained):
    text = page.page({"it": of_network(trained)})
    assert "The limits in force are each hospital&#39;s own, and no hospital tells them." in text


def test_a_run_says_when_it_began_and_ended(trained):
    began, end = (datetime.fromisoformat(trained[name]) for name in ("started", "ended"))
    assert began.utcoffset().total_seconds() == 0 and 0 <= (end - began).total_seconds() < 600
    assert trained["started"] in page.page({"it": trained})
