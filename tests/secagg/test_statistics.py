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
from v6_federated.rules.policy import Policy

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
