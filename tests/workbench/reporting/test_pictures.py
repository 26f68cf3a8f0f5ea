"""What is drawn of results that are short, partial, diverged or equal."""

import itertools
import warnings

import numpy as np
import pytest
from helpers import table, train

from v6_workbench.cli import results
from v6_workbench.reporting import intervals, pictures


def files(folder):
    """The names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


def test_a_distance_that_overflowed_is_grey(result_of):
    cells = [(1, 1, 2.0), (2, 1, 1.0), (1, 2, None), (2, 2, 1e30)]
    heat, scale = pictures.distances(result_of(distances=cells)).axes
    grid = heat.images[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(grid), [[False, True], [False, False]])
    assert len(scale.get_yticks()) > 2, "even on a scale that wide"
    assert pictures.distances(result_of(distances=[(1, 1, None)])) is None


def test_a_node_that_was_never_asked_is_grey(result_of):
    named = {"organizations": [1, 2, 3], "experiment": {"nodes": ["Noord", "Oost", "Zuid"]}}
    heat, _ = pictures.distances(result_of(distances=[(1, 1, 2.0), (3, 2, 1.0)], **named)).axes
    assert [text.get_text() for text in heat.get_yticklabels()] == ["Noord", "Oost", "Zuid"]
    grid = heat.images[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(grid), [[False, True], [True, True], [True, False]])


def test_pictures_of_an_earlier_result_are_removed(result_of, tmp_path):
    results.write(tmp_path, result_of(distances=[(1, 1, 2.0)], organizations=[1, 2]))
    assert files(tmp_path) == {"result.json", "curves.png", "distances.png"}
    nothing = result_of(accuracy=(None, None), loss=(None, None))  # as of principal components
    results.write(tmp_path, nothing)
    assert files(tmp_path) == {"result.json"}
    assert pictures.write(pictures.comparison({"fedavg": result_of()}), tmp_path / "comparison.png")
    assert not pictures.write(pictures.comparison({"pca": nothing}), tmp_path / "comparison.png")
    assert files(tmp_path) == {"result.json"}


def test_components_as_bars_and_added_up(result_of, tmp_path):
    rng = np.random.default_rng(2)
    x = rng.normal(size=60)
    rows = table(60).assign(x0=3 * x, x1=rng.normal(size=60), x2=-x, x3=0.1 * rng.normal(size=60))
    run = train("v6_pca", {1: rows[:30], 2: rows[30:]}, rounds=2, components=3, features=["x0", "x1", "x2", "x3"])
    results.write(tmp_path, run)
    assert files(tmp_path) == {"result.json", "components.png"}
    (axis,) = pictures.components(run).axes
    shares = np.sort(np.linalg.eigvalsh(np.cov(rows.iloc[:, :4].to_numpy().T)))[::-1]
    shares = 100 * shares / shares.sum()
    np.testing.assert_allclose([bar.get_height() for bar in axis.patches], shares[:3], rtol=1e-5)
    np.testing.assert_allclose(axis.lines[0].get_ydata(), np.cumsum(shares)[:3], rtol=1e-5)
    assert pictures.components(result_of()) is None


@pytest.mark.parametrize("name", ["Noord", "A hospital with a very long name, as hospitals that have merged may have"])
def test_no_text_is_cut_off_or_runs_into_another(name, result_of):
    nodes = {"organizations": [1, 2], "experiment": {"nodes": [name, "Oost"]}}
    own = [{"organization": k, "evaluated": 60, "accuracy": 0.9, "auc": 0.9} for k in (1, 2)]
    final = {"accuracy": 0.9, "evaluated": 120}
    result = result_of((0.5, 0.9), distances=[(1, 1, 2.0), (2, 1, 1.0)], by_hospital=own, final=final, **nodes)
    hazards = {"ends": [1.0, 2.0, None], "hazard": [0.1, 0.2, 0.3]}
    named = {**result, "method": f"alone: {name}", "baseline": hazards, "data": {"label": "months"}}
    for draw in (pictures.distances, pictures.hospitals, pictures.baseline):
        _check_texts(draw(named))
    for draw in (pictures.curves, pictures.comparison):
        _check_texts(draw({name: result, "b": result}))


def _check_texts(figure):
    figure.set_dpi(120)
    figure.draw_without_rendering()
    labels = [label for axis in figure.axes for label in (axis.xaxis.label, axis.yaxis.label)]
    texts = [*labels, *(axis.title for axis in figure.axes), *figure.texts]
    for text in (text for text in texts if text.get_text()):
        box, whole = text.get_window_extent(), figure.bbox
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= whole.x1 + 1 and box.y1 <= whole.y1 + 1, text
    below = sorted((axis.xaxis.label.get_window_extent() for axis in figure.axes), key=lambda box: box.x0)
    assert all(left.x1 < right.x0 or not left.width for left, right in itertools.pairwise(below))


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.95, 1.3, ["1", "1.1", "1.2", "1.3"]),
        (0.43, 1.6, ["0.5", "0.7", "1", "1.5"]),
        (0.085, 1.2, ["0.1", "0.2", "0.5", "1"]),
        (0.004, 900, ["0.01", "0.1", "1", "10", "100", "1000"]),
    ],
)
def test_ticks_of_ratios_do_not_overlap(low, high, ticks):
    row = {"name": "age", "estimate": 0.0, "lower": -1.0, "upper": 1.0, "odds_ratio": 1.0}
    rows = [{**row, "odds_ratio_lower": low, "odds_ratio_upper": high}]
    figure = pictures.coefficients({"coefficients": rows, "confidence": 0.95})
    assert shown_ticks(figure, figure.axes[0]) == ticks


def test_the_times_of_survival_curves_are_round(result_of):
    ends = np.linspace(2, 74.8, 30)
    width = ends[1] - ends[0]  # one row leaves in each unit of time
    of_all = {"events": width, "censored": 0, "survival": 0.5, "lower": None, "upper": None}
    rows = [{"end": t, "at_risk": 80 - (t - width), **of_all} for t in ends]
    curves = [{"group": None, "rows": rows}]
    figure = pictures.survival(
        {"curves_of_survival": curves, "confidence": 0.95, "data": {"label": None, "time": "months"}}
    )
    below = figure.axes[1]
    assert below.get_xlabel() == "months; the numbers are rows at risk"
    times = shown_ticks(figure, below)
    assert times == ["0", "15", "30", "45", "60"]
    assert [text.get_text() for text in below.texts][1:] == ["65", "50", "35", "20"]


def shown_ticks(figure, axis):
    """The labels of the ticks within an axis, none of which overlaps with the next."""
    figure.draw_without_rendering()
    low, high = axis.get_xlim()
    shown = [text for text in axis.get_xticklabels(which="both") if low <= text.get_position()[0] <= high]
    boxes = [text.get_window_extent() for text in sorted(shown, key=lambda text: text.get_position()[0])]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    return [text.get_text() for text in shown if text.get_text()]


@pytest.mark.parametrize("rounds", [1, 2, 3, 10])
def test_rounds_are_whole_numbers(rounds, result_of):
    figure = pictures.curves({"fedavg": result_of([0.5] * rounds, [1.0] * rounds)})
    figure.draw_without_rendering()  # how wide the axes are decides on their ticks
    for axis in figure.axes:
        ticks = [float(text.get_text().replace("\N{MINUS SIGN}", "-")) for text in axis.get_xticklabels()]
        assert ticks and all(tick == int(tick) for tick in ticks)


def test_equal_curves_can_be_told_apart(result_of):
    lines = pictures.curves({name: result_of() for name in "abcdefgh"}).axes[0].lines
    assert len({line.get_linestyle() for line in lines[:4]}) == 4
    assert len({(line.get_linestyle(), line.get_color()) for line in lines}) == 8


def test_the_last_accuracy_has_its_interval_as_a_bar(result_of):
    results_ = {
        name: result_of((0.5, right / 100), final={"accuracy": right / 100, "evaluated": 100})
        for name, right in {"a": 90, "b": 100}.items()
    }
    left, right = pictures.curves(results_).axes
    bars = [segment for collection in left.collections for segment in collection.get_segments()]
    for bar, result in zip(bars, results_.values(), strict=True):
        np.testing.assert_allclose(bar[:, 1], intervals.accuracy_interval(result))
    assert bars[0][0, 0] < 2 < bars[1][0, 0], "side by side"
    assert "bar: 95% interval" in left.get_ylabel() and not right.collections
    assert pictures.curves({"a": result_of()}).axes[0].get_ylabel() == "accuracy on held-out rows"


def test_names_that_the_font_lacks_bring_no_warnings(result_of, tmp_path):
    chinese, hindi = "\u5317\u4eac", "\u0905\u0938\u094d\u092a\u0924\u093e\u0932"
    named = result_of(distances=[(1, 1, 2.0), (2, 1, 1.0)], experiment={"nodes": [chinese, hindi]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pictures.write(pictures.curves({chinese: named, hindi: named}), tmp_path / "c.png")
        pictures.write(pictures.distances(named), tmp_path / "d.png")


def test_a_comparison_draws_accuracy_and_auc_by_what_is_spent(result_of):
    """By time only if it was simulated; the AUC only if there is one."""
    rows = [{**row, "auc": 0.4 + row["round"] / 10, "seconds": 2.0} for row in result_of((0.5, 0.5))["history"]]
    real = {**result_of(), "history": rows}
    slow = {**real, "experiment": {"speeds": 10.0}}
    names = ["round", "uploads (answers of nodes)", "megabytes sent, both ways", "seconds of simulated time"]
    for compared, units in (({"a": slow, "b": slow}, 4), ({"a": slow, "b": real}, 3)):
        axes = np.array(pictures.comparison(compared, target=0.45).axes).reshape(2, units)
        assert [axis.get_xlabel() for axis in axes[1]] == names[:units] and not axes[0, 0].get_xlabel()
        assert [axes[i, 0].get_ylabel() for i in (0, 1)] == ["accuracy on held-out rows", "AUC on held-out rows"]
        assert axes[1, -1].lines[0].get_xdata() == pytest.approx([2, 4] if units == 4 else [2e-6, 4e-6])
        assert axes[1, 0].lines[0].get_ydata() == pytest.approx([0.5, 0.6])
    assert len(pictures.comparison({"a": result_of()}).axes) == 3
