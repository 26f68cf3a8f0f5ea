"""A statistic is one class: what asks for statistics, answers, declares or checks them reads one table."""

import ast
import inspect
import math
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from honest import HONEST

import v6_federated
from v6_federated import Answer, fit_step, statistics
from v6_federated.base.errors import SafeError
from v6_federated.data.columns import Features
from v6_federated.data.statistics import STATISTICS, Moments, Sent
from v6_federated.gate.questions import summands
from v6_federated.masks.exact import Exact
from v6_federated.masks.summands import Count, each
from v6_federated.messages.settings import settings_of_partial, validate
from v6_federated.models.layouts import Asked
from v6_federated.rules.policy import Policy, PrivacyThresholdViolation

ASKED = {
    settings["statistic"]: (arrays, settings) for name, arrays, settings, _ in HONEST["fedavg"] if name == "fit_step"
}


def rows(pinned: bool) -> SimpleNamespace:
    """Forty rows of four columns, as a node hands them to a statistic."""
    X = np.random.default_rng(0).integers(0, 2, (40, 4)).astype(float)
    features = Features(["x0", "x1", "x2", "x3"], X, {})
    return SimpleNamespace(
        layout=features,
        as_read=features,
        features=features,
        labels=X[:, 0].astype(int),
        numbers=X[:, 1],
        policy=Policy.of("careful"),
        pinned=pinned,
        job=SimpleNamespace(data=SimpleNamespace(classes=[0, 1]), counts_hospitals=not pinned),
        as_used=lambda X: X,
        check_time=lambda: None,
    )


def with_few(pinned: bool) -> SimpleNamespace:
    """The same, of which three have a value of x0, three the level 2 of x1, and three the class 1."""
    found = rows(pinned)
    found.features.X[:, 0], found.features.X[3:, 0], found.features.X[:, 1] = 0, np.nan, 1
    found.features.X[:3, 1], found.labels = 2, np.arange(40) < 3
    return found


def block(study: bool, **sums) -> statistics.Blocks:
    """A block whose sums are these, and whose policy is the one of ``careful``."""
    said = {f"one {name}": np.asarray(value) for name, value in sums.items()}
    answer = Answer(1, 40, {}, {"sums": said}, 0, 0, "fit_step", (1, 2))
    job = SimpleNamespace(data=SimpleNamespace(preprocess=[]), counts_hospitals=False)
    nothing = {"unasked": lambda values: [], "columns": lambda: ["x0"], "groups": lambda: None}
    policy, known = Policy.of("careful"), statistics.Known()
    return statistics.Blocks(job, 1, policy, study, {"x1": ["1", "2"]}, known, lambda asked, e: [answer], **nothing)


def asked(name: str, pinned: bool, **more) -> Asked:
    arrays, settings = ASKED[name]
    job = SimpleNamespace(
        data=SimpleNamespace(classes=[0, 1]),
        aggregation="pinned" if pinned else "masked",
        counts_hospitals=not pinned,
    )
    return Asked(job, settings, {**arrays, **more})


def test_there_is_an_honest_request_for_each():
    """So that the property test of sums, and the page on what sums tell, have a new one without being told."""
    assert {*ASKED} == {*STATISTICS} and all(kind.name == name for name, kind in STATISTICS.items())


@pytest.mark.parametrize("name", STATISTICS)
def test_a_node_answers_what_the_class_says_and_central_accepts_it(name):
    arrays, settings = ASKED[name]
    question = statistics.read(name, settings, arrays)
    own = question.of_rows(rows(pinned=False))
    shapes = question.shapes({"classes": 2, "label": 1}.get(name, 4))
    assert {*own} == {*shapes, *question.parts} and {*shapes} == {*question.limits(1)}
    assert {k: np.shape(own[k]) for k in shapes} == shapes
    answer = Answer(1, 40, {k: own[k] for k in shapes}, {k: own[k] for k in question.parts}, 0, 0, "fit_step")
    assert question.wrong(answer) is None
    for k in shapes:
        beyond = replace(answer, arrays={**answer.arrays, k: np.full(shapes[k], question.limits(40)[k][1] * 2)})
        assert f"sent {k} that 40 rows cannot have" in question.wrong(beyond)


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("name", STATISTICS)
def test_a_node_adds_up_what_the_class_declares(name, pinned):
    arrays, settings = ASKED[name]
    added = statistics.read(name, settings, arrays).as_sums(rows(pinned))
    for part, summand in each(summands(asked(name, pinned))):
        [item] = summand.items(part, None)
        value = added[part]
        size = len(value.numbers) if isinstance(value, Exact) else np.size(value)
        assert size == math.prod(item.shape)
        assert isinstance(summand, Count) == (np.asarray(value).dtype.kind == "i"), "counts are made as counts"


@pytest.mark.parametrize("name", STATISTICS)
def test_what_is_sent_is_read_again(name):
    arrays, settings = ASKED[name]
    sent = statistics.read(name, settings, arrays).sent
    assert sent["statistic"] == name
    assert all(value is {**arrays, **settings}[field] for field, value in sent.items() if field not in ("counts",))


def test_a_task_may_send_the_fields_of_all_classes_and_nothing_else():
    taken = {*inspect.signature(fit_step.__wrapped__).parameters} - {"node", "statistic"}
    assert taken == {field.name for kind in STATISTICS.values() for field in fields(kind)}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"statistic": "third"}, "it should be 'moments', 'present', 'below', "),
        ({"statistic": "levels", "columns": "sex"}, "columns='sex' is refused: it should be a valid list"),
        ({"statistic": "levels", "counts": None}, "counts=None is refused: it should be a valid boolean"),
        ({"statistic": "levels", "center": [1.0]}, "unknown setting 'center'"),
    ],
)
def test_a_node_says_which_argument_is_wrong(settings, says):
    with pytest.raises(SafeError, match=re.escape(says)):
        validate(settings_of_partial(fit_step.__wrapped__), settings)


def test_classes_agree_on_the_type_of_a_field_that_several_have(monkeypatch):
    @dataclass(frozen=True, eq=False)
    class Third(Moments):
        columns: Sent = None

    monkeypatch.setattr(statistics, "STATISTICS", {**STATISTICS, "third": Third})
    with pytest.raises(TypeError, match="columns has another type"):
        statistics.parameters()


@pytest.mark.parametrize("name", ["columns", "known", "draw", "block", "statistic"])
def test_an_array_with_the_name_of_a_setting_changes_nothing_of_what_is_added_up(name):
    """The function that answers does not see such an array, so that it must not decide the layout either."""
    for statistic in ("below", "levels", "product"):
        honest, forged = summands(asked(statistic, True)), summands(asked(statistic, True, **{name: np.ones(9)}))
        assert [*each(honest)] == [*each(forged)]


def test_no_other_file_asks_which_statistic_it_is():
    """39 such questions stood in four files, beside five tables by name."""
    package, found = Path(v6_federated.__file__).parent, []
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and getattr(node.left, "id", "") in ("name", "statistic"):
                said = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
                found += [f"{path.relative_to(package)}:{node.lineno}"] if said & {*STATISTICS} else []
    assert found == []


# ---- what is small, and what does not fit


def test_a_node_refuses_or_leaves_out_what_few_rows_have():
    few, ends = with_few(False), {"lower": np.zeros(1), "upper": np.ones(1)}
    for question in (statistics.Present(columns=["x0"]), statistics.Below(columns=["x0"], **ends)):
        with pytest.raises(PrivacyThresholdViolation, match=r"have a value in the column\(s\) x0"):
            question.of_rows(few)
    assert statistics.Classes().of_rows(few)["classes"].tolist() == [37, 0]
    assert statistics.Levels(columns=["x1"], counts=True).of_rows(few) == {"levels": {"x1": {"1": 37}}}


@pytest.mark.parametrize(("pinned", "counted"), [(False, 0), (True, 3)])
def test_in_a_sum_few_rows_count_as_none_and_exactly_in_a_study(pinned, counted):
    few, ends = with_few(pinned), {"lower": np.zeros(1), "upper": np.ones(1)}
    assert statistics.Present(columns=["x0"], center=np.zeros(1)).as_sums(few)["count"].tolist() == [counted]
    assert statistics.Below(columns=["x0"], **ends).as_sums(few)["below"][0, -1] == counted
    assert statistics.Classes().as_sums(few)["classes"].tolist() == [37, counted]
    levels = statistics.Levels(columns=["x1"], counts=True, known={"x1": ["1", "2"]})
    assert levels.as_sums(few)["counts"].tolist() == [37, counted]


@pytest.mark.parametrize(("study", "counted"), [(False, 3), (True, 0)])
def test_central_leaves_out_what_is_small_over_a_block_of_a_study(study, counted):
    [found] = statistics.Classes().from_sums(block(study, classes=[37, 3]))
    assert found["classes"].tolist() == [37, counted]


def test_a_sum_about_no_center_is_refused():
    for name in ("moments", "present", "label"):
        with pytest.raises(SafeError, match="without the center that it is about: a sum of the nodes' means"):
            statistics.read(name, {}, {}).summands(asked(name, True))
        for wrong in (np.zeros(9), np.full(4 if name == "moments" else 1, np.inf)):
            with pytest.raises(SafeError, match="without the center that it is about; expected center"):
                statistics.read(name, {"columns": ["x0"]}, {"center": wrong}).as_sums(rows(False))


def test_what_does_not_fit_the_job_or_comes_before_the_moments_is_refused():
    without = rows(False)
    without.job.data.classes = None
    with pytest.raises(SafeError, match="the job has none"):
        statistics.Classes().of_rows(without)
    with pytest.raises(SafeError, match=r"the column\(s\) x0 hold numbers"):
        statistics.Levels(columns=["x0"]).from_sums(block(True))
    of_one = {"mean": np.zeros(1), "scale": np.ones(1)}
    for question in (statistics.Covariance(**of_one), statistics.Product(**of_one, draw=1)):
        with pytest.raises(SafeError, match="ask for moments first"):
            question.from_sums(block(True))
    other = block(True, **{"covariance 2^1": [1.0]})  # of which another block has told its moments
    other.known.squares, other.groups = np.ones(1), lambda: (np.zeros(1), np.ones(1), ["x0"])
    with pytest.raises(SafeError, match="ask for moments first"):
        statistics.Covariance(**of_one).from_sums(other)


def test_the_unit_of_products_follows_from_their_largest():
    assert [statistics._unit(most) for most in (0.0, 1.0, 3.0, 2.0**90)] == [-64, 1, 3, 64]
