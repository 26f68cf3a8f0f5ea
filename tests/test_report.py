"""The pictures of results: what is drawn of results that are short, partial, diverged or equal."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import train
from rich.console import Console

from v6_workbench.cli import console
from v6_workbench.reporting import report


def result(accuracy=(0.5, 0.6), loss=(1.0, 0.9), distances=(), **more):
    """A result of a round an accuracy; ``distances``: (organization, round, distance)."""
    history = [
        {"round": t, "participants": [1, 2], "accuracy": a, "loss": b, "bytes_up": 1, "bytes_down": 1}
        for t, (a, b) in enumerate(zip(accuracy, loss, strict=True), start=1)
    ]
    per_node = [{"organization_id": k, "round": t, "distance": d} for k, t, d in distances]
    return {"method": "fedavg", "history": history, "per_node": per_node, **more}


def printed(table):
    """A table's text."""
    console = Console(width=140)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, which else are closed."""
    kept = []
    monkeypatch.setattr(report.plt, "close", kept.append)
    yield kept
    monkeypatch.undo()
    report.plt.close("all")


def test_a_distance_that_overflowed_is_grey(figures, tmp_path):
    cells = [(1, 1, 2.0), (2, 1, 1.0), (1, 2, None), (2, 2, 1e30)]
    assert report.distances(result(distances=cells), tmp_path / "d.png")
    grid = figures[0].axes[0].images[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(grid), [[False, True], [False, False]])
    assert len(figures[0].axes[1].get_yticks()) > 2  # also of a scale that wide
    assert report.distances(result(distances=[(1, 1, None)]), tmp_path / "d.png") is False


def test_a_node_that_was_never_asked_is_grey(figures, tmp_path):
    named = {"organizations": [1, 2, 3], "experiment": {"nodes": ["Noord", "Oost", "Zuid"]}}
    report.distances(result(distances=[(1, 1, 2.0), (3, 2, 1.0)], **named), tmp_path / "d.png")
    (heat, _) = figures[0].axes
    assert [text.get_text() for text in heat.get_yticklabels()] == ["Noord", "Oost", "Zuid"]
    grid = heat.images[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(grid), [[False, True], [True, True], [True, False]])


def test_no_picture_of_an_earlier_result_stays(tmp_path):
    console.write(tmp_path, result(distances=[(1, 1, 2.0)], organizations=[1, 2]))
    assert {path.name for path in tmp_path.iterdir()} == {"result.json", "curves.png", "distances.png"}
    nothing = result(accuracy=(None, None), loss=(None, None))  # as of principal components
    console.write(tmp_path, nothing)
    assert {path.name for path in tmp_path.iterdir()} == {"result.json"}
    assert report.comparison({"fedavg": result()}, tmp_path / "comparison.png")
    assert not report.comparison({"pca": nothing}, tmp_path / "comparison.png")
    assert {path.name for path in tmp_path.iterdir()} == {"result.json"}


def test_components(figures, tmp_path):
    """Their shares as bars and added up, and the columns with the largest loadings, named as after the steps."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=60)
    kind = np.where(x > 0, "one", "other")
    rows = pd.DataFrame({"a": 3 * x, "b": rng.normal(size=60), "c": -x, "kind": kind, "label": 0})
    run = train("v6_pca", {1: rows[:30], 2: rows[30:]}, rounds=2, components=3, preprocess=["onehot"], label="label")
    console.write(tmp_path, run)
    assert {path.name for path in tmp_path.iterdir()} == {"result.json", "components.png"}
    (axis,) = figures[0].axes
    X = np.column_stack([3 * x, rows["b"], -x, kind == "one", kind == "other"])
    shares = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1]
    shares = 100 * shares / shares.sum()
    np.testing.assert_allclose([bar.get_height() for bar in axis.patches], shares[:3], rtol=1e-5)
    np.testing.assert_allclose(axis.lines[0].get_ydata(), np.cumsum(shares)[:3], rtol=1e-5)
    text = printed(report.components_table(run))
    first, second = text.splitlines()[1:3]
    assert "1 of 3" in first and re.search(r"a \+0\.9\d, c -0\.3\d, kind=\w+ [+-]0\.1", first)
    assert f"{shares[:2].sum() / 100:.3f}" in second and "b +1.00" in second
    named = {**run, "data": {"features": ["[/a]", "b\\", "c", "d", "e"]}}
    assert "[/a] +0.9" in printed(report.components_table(named)) and "b\\ +1" in printed(
        report.components_table(named)
    )
    old = {**run, "data": {}}  # names of columns are not all that a result once had
    assert "column 1 +0.9" in printed(report.components_table(old))
    assert report.components_table(result()) is None and not report.components(result(), tmp_path / "components.png")
    assert {path.name for path in tmp_path.iterdir()} == {"result.json"}


@pytest.mark.parametrize("rounds", [1, 2, 3, 10])
def test_rounds_are_whole_numbers(rounds, figures, tmp_path):
    report.curves({"fedavg": result([0.5] * rounds, [1.0] * rounds)}, tmp_path / "c.png")
    for axis in figures[0].axes:
        ticks = [float(text.get_text().replace("\N{MINUS SIGN}", "-")) for text in axis.get_xticklabels()]
        assert ticks and all(tick == int(tick) for tick in ticks)


def test_equal_curves_are_told_apart(figures, tmp_path):
    report.curves({name: result() for name in "abcdefgh"}, tmp_path / "c.png")
    lines = figures[0].axes[0].lines
    assert len({line.get_linestyle() for line in lines[:4]}) == 4
    assert len({(line.get_linestyle(), line.get_color()) for line in lines}) == 8


def test_names_that_the_font_lacks_bring_no_warnings(tmp_path):
    named = result(distances=[(1, 1, 2.0), (2, 1, 1.0)], experiment={"nodes": ["北京", "अस्पताल"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report.curves({"北京": named, "अस्पताल": named}, tmp_path / "c.png")
        report.distances(named, tmp_path / "d.png")


def test_a_comparison_draws_accuracy_and_auc_by_what_is_spent(figures, tmp_path):
    """By time only where it was simulated; the AUC only where there is one."""
    rows = [
        {
            "round": t,
            "participants": [1, 2],
            "accuracy": 0.5,
            "auc": 0.4 + t / 10,
            "loss": 1.0,
            "bytes_up": 1,
            "bytes_down": 1,
            "seconds": 2.0,
        }
        for t in (1, 2)
    ]
    told = {**result(), "history": rows}
    slow = {**told, "experiment": {"speeds": 10.0}}
    names = ["round", "uploads (answers of nodes)", "megabytes sent, both ways", "seconds of simulated time"]
    for results, units in (({"a": slow, "b": slow}, 4), ({"a": slow, "b": told}, 3)):
        figures.clear()
        assert report.comparison(results, tmp_path / "c.png", target=0.45)
        axes = np.array(figures[0].axes).reshape(2, units)
        assert [axis.get_xlabel() for axis in axes[1]] == names[:units] and not axes[0, 0].get_xlabel()
        assert [axes[i, 0].get_ylabel() for i in (0, 1)] == ["accuracy on held-out rows", "AUC on held-out rows"]
        assert axes[1, -1].lines[0].get_xdata() == pytest.approx([2, 4] if units == 4 else [2e-6, 4e-6])
        assert axes[1, 0].lines[0].get_ydata() == pytest.approx([0.5, 0.6])
    figures.clear()
    assert report.comparison({"a": result()}, tmp_path / "c.png") and len(figures[0].axes) == 3
