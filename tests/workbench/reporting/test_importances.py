"""The columns that boosted trees split on: table, picture, CSV and page agree with LightGBM; items of TRIPOD+AI."""

import csv
from pathlib import Path

import lightgbm
import pytest
from helpers import table, train

from v6_workbench.reporting import export, page, pictures, spreadsheets, tables, tripod


@pytest.fixture(scope="module")
def trees():
    nodes = {k: table(60, seed=k).rename(columns={"x0": "[/a] $x$"}) for k in (1, 2, 3)}
    return train("v6_gbdt", nodes, rounds=6, mode="cyclic")


def cells(found):
    return [[page._plain(cell) for cell in column.cells] for column in found.columns]


def test_they_are_those_that_lightgbm_reads_from_the_exported_model(trees, tmp_path):
    export.save(trees, tmp_path / "model.txt")
    booster = lightgbm.Booster(model_file=str(tmp_path / "model.txt"))
    read = zip(booster.feature_importance("split"), booster.feature_importance("gain"), strict=True)
    expected = dict(zip(trees["data"]["features"], read, strict=True))
    columns, splits, gains, shares = cells(tables.importances_table(trees))
    assert {*columns} == {column for column, (n, _) in expected.items() if n}
    for column, n, gain in zip(columns, splits, gains, strict=True):
        assert expected[column][0] == int(n) and expected[column][1] == pytest.approx(float(gain), rel=1e-3)
    assert sum(map(float, shares)) == pytest.approx(1, abs=0.005)
    assert [float(g) for g in gains] == sorted(map(float, gains), reverse=True)


def test_columns_beyond_the_most_are_summed(trees):
    columns, splits, gains, shares = cells(tables.importances_table(trees, most=1))
    rows = trees["feature_importance"]
    assert columns == [rows[0]["feature"], f"{len(rows) - 1} others"]
    assert int(splits[1]) == sum(row["splits"] for row in rows[1:])
    assert float(shares[0]) + float(shares[1]) == pytest.approx(1, abs=0.002)
    assert float(gains[1]) == pytest.approx(sum(row["gain"] for row in rows[1:]), rel=1e-3)


def test_the_picture_has_a_bar_for_each(trees):
    (axis,) = pictures.importances(trees).axes
    assert [bar.get_width() for bar in axis.patches] == [row["gain"] for row in trees["feature_importance"]]
    plain = {row["feature"].replace("$", r"\$") for row in trees["feature_importance"]}
    assert {label.get_text() for label in axis.get_yticklabels()} == plain
    (first,) = pictures.importances(trees, most=1).axes
    assert first.get_xlabel() == f"total gain, 1 of {len(trees['feature_importance'])} columns"
    assert pictures.importances({**trees, "feature_importance": []}) is None


def test_page_and_csv_have_them(trees, tmp_path):
    text = page.page({"it": trees})
    assert 'id="importances-1"' in text and "Columns by the total gain of their splits" in text
    spreadsheets.write_all({"it": trees}, tmp_path)
    with (tmp_path / "importances.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [(row["feature"], int(row["splits"])) for row in rows] == [
        (row["feature"], row["splits"]) for row in trees["feature_importance"]
    ]


def test_a_result_without_them(result_of):
    assert tables.importances_table(result_of()) is None
    assert pictures.importances(result_of()) is None


def test_the_items_of_tripod_are_answered_by_sections_that_are_there(trees):
    """Every item of the checklist once, in its order; a section that the page lacks answers none."""
    text = page.page({"it": trees})
    where = {item: found for item, _, found in tripod.answered({"Settings", "Performance"})}
    assert where["12a"] == "Settings" and where["12d"] == where["17"] == "not answered here"
    assert where["12e"] == "Performance; not here: why these"
    assert all(f">{item}</th>" in text for item in where)
    numbers = [
        int(part.strip("abcdefg"))
        for item in tripod.ITEMS
        for part in item.number.replace(" ", "").replace("-", ",").split(",")
    ]
    assert numbers == sorted(numbers) and {*numbers} == {*range(1, 28)} - {26}
    assert "not answered here; `v6-federated export` writes it" in text
    source = Path(page.__file__).read_text()
    assert all(f'Section("{title}"' in source for item in tripod.ITEMS for title in item.sections)


def test_all_results_of_a_page_answer_an_item_or_it_is_not_answered(trees):
    linear = train("v6_fedavg", {k: table(60, seed=k) for k in (1, 2, 3)}, rounds=1)
    alone, both = page.page({"it": linear}), page.page({"it": linear, "trees": trees})
    row = ">22</th><td>the whole model</td><td>{}"
    assert row.format("Coefficients") in alone and row.format("not answered here") in both
