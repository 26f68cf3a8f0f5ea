"""What counts as near, and that the README pages say what was counted."""

import json
from pathlib import Path

import pytest
from benchmarks import garst2021, mcmahan2017, report, runs, tables
from benchmarks.comparisons import Comparison, count

from v6_federated import SafeError

ROOT = Path(__file__).parents[2]


def compare(theirs, ours, rule="rounds", **others):
    theirs = theirs if isinstance(theirs, tuple) else (theirs,)
    return Comparison("Table 1", "a row", theirs, ours, rule, **others)


@pytest.mark.parametrize(
    ("theirs", "ours", "rule", "verdict"),
    [
        (100, 80.0, "rounds", "near"),  # 0.8 times
        (100, 79.9, "rounds", "fewer"),
        (100, 125.0, "rounds", "near"),  # 1.25 times
        (100, 125.1, "rounds", "more"),
        (134, 15.2, "rounds", "fewer"),
        (100, "not reached in 150", "rounds", "not reached"),
        (100, None, "rounds", "not run"),
        ((18, 20), 22.0, "rounds", "near"),  # 22.5 and 25 at most
        ((18, 20), 23.0, "rounds", "more"),  # near 20, and not near 18
        ((339, 179), 180.0, "rounds", "fewer"),
        (0.97, 0.96, "accuracy", "near"),
        (0.97, 0.959, "accuracy", "lower"),
        (0.97, 0.981, "accuracy", "higher"),
        (0.619, 0.63, "area", "higher"),
        ("=", "=", "sign", "near"),
        ("=", "?", "sign", "other"),
    ],
)
def test_near_means_near_from_both_sides_and_to_all_that_is_printed(theirs, ours, rule, verdict):
    assert compare(theirs, ours, rule).verdict == verdict


def test_a_count():
    """Of six, one is not run and one is not counted; of the four others one is near."""
    (found,) = count(
        [
            compare(100, 100.0, seeds=3),
            compare(100, 50.0, chosen="a reading"),
            compare(100, 60.0),
            compare(100, "not in 150"),
            compare(100, None),
            compare(100, 100.0, not_counted="it was used to choose a setting"),
        ]
    )
    assert (found.near, found.of, found.not_run, found.one_seed) == (1, 4, 1, 3)
    assert found.others == {"fewer": 2, "not reached": 1}
    assert found.chosen == {"a reading": 1} and found.not_counted == {"it was used to choose a setting": 1}
    assert tables.sentence(found) == (
        "Rounds to the target accuracy: 1 of 4 are near, that is 0.8 to 1.25 times the document's. The others: 2 "
        "fewer, 1 not reached. 3 of them are from a single seed. 1 of them is with a setting chosen because it fits: "
        "a reading. Not run: 1. Not counted: 1, because it was used to choose a setting."
    )


def test_comparisons_survive_json():
    one = compare((18, 20), 23.0, seeds=2, chosen="a", not_counted="b")
    stored = json.loads(json.dumps(one.to_json()))
    assert Comparison.from_json(stored) == one and stored["verdict"] == "more"


def test_a_run_in_two_tables_is_one_row():
    """Each setting of the paper is one row, however many tables print it."""
    settings = [row.setting for row in mcmahan2017.ROWS]
    assert len(settings) == len(set(settings)) == 63
    assert sum(len(row.paper) for row in mcmahan2017.ROWS) == 71
    (row,) = [row for row in mcmahan2017.ROWS if row.setting == ("2nn", "iid", 0.1, 1, None)]
    assert row.paper == {"1": 1474, "4": 1468} and row.most == 3000


def test_rows_that_are_equal_by_construction_count_once():
    """The FNN takes one step on all rows a round: five rows of 2 classes are one run, and so are four of 4 classes."""
    rows = [row for row in garst2021.MNIST if row.model == "fnn"]
    for data, expected in (("2 classes", [(0.87, 0.867, 0.862, 0.863)]), ("4 classes", [(0.788, 0.787), (0.856,)])):
        seen = set()
        found = [
            comparison
            for row in rows
            if row.data == data
            for comparison in garst2021.compare(garst2021.MNIST, row, "area", 0.8, 4, seen)
        ]
        assert [comparison.theirs for comparison in found] == expected


def test_a_report(tmp_path, monkeypatch):
    """It counts from the pages' JSON, names what was not run in full, and holds the pictures."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    (tmp_path / "p.png").write_bytes(b"\x89PNG")
    lines = [compare(100, 110.0), compare(100, 20.0), *tables.head("a", "b"), tables.row(1, 2), "", "![p](p.png)"]
    tables.page(tables.Page("mcmahan2017", "McMahan", True, "About."), lines)
    tables.page(tables.Page("garst2021", "Garst", False, "About."), [compare(0.95, 0.945, "accuracy")])
    summary = report.write().read_text()
    assert "| [McMahan](mcmahan2017.md) | rounds to the target accuracy | 1 of 2 | 1 fewer |" in summary
    assert "| [Garst](garst2021-reduced.md) | accuracies | 1 of 1 |  |" in summary
    assert "- [Garst](garst2021-reduced.md): " in summary and summary.count("(not run in full)") == 1
    text, shown = (tmp_path / "REPORT.md").read_text(), (tmp_path / "REPORT.html").read_text()
    assert "\n## McMahan\n" in text and "| 1 | 2 |" in text and "1 of 2 are near" in text
    assert "<td>1</td>" in shown and 'src="data:image/png;base64,iVBORw=="' in shown
    monkeypatch.setattr(runs, "RESULTS", tmp_path / "nothing")
    with pytest.raises(SafeError, match="has no page of results. Give --out the folder"):
        report.write()


def test_the_counts_are_up_to_date():
    """``python -m benchmarks report`` after every benchmark; README repeats its table."""
    pages = report.stored(runs.RESULTS)
    assert (runs.RESULTS / "README.md").read_text() == report.summary(pages)
    assert report.headline(pages, "benchmarks/results/") in (ROOT / "README.md").read_text()


def test_pages_say_what_their_json_counts():
    for page in report.stored(runs.RESULTS):
        for found in page.counts:
            assert f"- {tables.sentence(found)}\n" in page.text, page.name
