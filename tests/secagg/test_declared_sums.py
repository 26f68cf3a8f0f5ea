"""A node adds up what its own code declares, and nothing that a request asks for."""

import copy
import importlib

import numpy as np
import pytest
from forged import Central, central
from honest import HONEST

from v6_federated import Count, Mean, Sum, Truth, partial
from v6_federated.base.errors import SafeError
from v6_federated.gate import call
from v6_federated.masks.summands import Item, Layout, Summand, each
from v6_federated.masks.summing import Sums, encoded
from v6_federated.messages import codec
from v6_federated.messages.job import Job
from v6_federated.models import layouts
from v6_federated.models.layouts import Asked
from v6_workbench import registry


class Unread:
    """In place of a node: whoever makes one would read rows."""

    def __init__(self, *arguments):
        raise SafeError("rows would be read")


def variations(rng, good, arguments, others):
    """A request with a change at a random place."""
    sums, arguments = copy.deepcopy(good), copy.deepcopy(arguments)
    numbers = [0, -1, 1, 2, 3.0, True, None, "1", 10**6, 2**53, [], {}]
    kind = rng.integers(0, 8)
    if kind == 0:
        sums["layout"] = rng.choice([*others, rng.bytes(32).hex(), sums["layout"].upper() + "0", ""])
    elif kind == 1:
        wrong = [[int(rng.integers(-99, 99)), int(rng.integers(-99, 399))] for _ in range(int(rng.integers(0, 4)))]
        sums["units"] = wrong if rng.random() < 0.8 else numbers[rng.integers(len(numbers))]
    elif kind == 2:
        sums[str(rng.choice(["parts", "weights", "bits", "kind", "exponent"]))] = [["weights", "one", 64, [5], None]]
    elif kind == 3:
        sums[str(rng.choice(["seq", "block", "rows", "tags"]))] = numbers[rng.integers(len(numbers))]
    elif kind == 4:
        sums.pop(str(rng.choice([*sums])))
    elif kind == 5:
        name = str(rng.choice(["weights", "center", "mean", "structure", "c", "low"]))
        shape = tuple(int(n) for n in rng.integers(0, 7, int(rng.integers(0, 4))))
        arguments.setdefault("arrays", {})[name] = np.zeros(shape)
    elif kind == 6:
        name = str(rng.choice(["statistic", "columns", "known", "ends", "bands", "evaluate", "last", "draw", "edges"]))
        arguments[name] = ["moments", "classes", "label", 7, [1.0], {"x0": ["1", "2"]}, "all"][rng.integers(7)]
    else:
        name, model = str(rng.choice(["classes", "levels", "regression"])), rng.random() < 0.5
        data = {"classes": [0, 1, 2], "levels": ["a"], "regression": True}[name]
        changed = (
            {"model": {"name": "fnn", "features": 4, "classes": 2, "hidden": 3}} if model else {"data": {name: data}}
        )
        arguments["job"] = {**arguments["job"], **changed}
    return sums, arguments


def sent(lying: Central, function: str, sums: dict, arguments: dict):
    """What a node says."""
    arrays = {"arrays": codec.encode(arguments["arrays"], "float64")} if arguments.get("arrays") else {}
    job = {**arguments["job"]}
    job |= {"data": {**lying.job["data"], **job["data"]}} if "data" in job else {}
    rest = {name: value for name, value in arguments.items() if name not in ("arrays", "job")}
    return lying.call(1, function, sums=sums, job=job, **arrays, **rest), arrays, job, rest


def derived(lying, function, arrays, job, rest):
    """The layout that the request's arguments have; None if there is none."""
    declaration = getattr(importlib.import_module(f"v6_{lying.job['method']}"), function).sums
    settings = {name: value for name, value in rest.items() if name not in ("evaluate", "bands")}
    try:
        asked = Asked(
            Job.from_json({**lying.job, **job}),
            settings,
            codec.decode(arrays["arrays"]) if arrays else {},
            bool(rest.get("evaluate")),
            rest.get("bands", 0),
        )
        return layouts.layout(declaration, asked)
    except Exception:
        return None


def test_a_thousand_forged_requests_are_refused_before_a_row_is_read(tmp_path, monkeypatch):
    """Other digests, units, keys, shapes, statistics, classes: whatever is not what the node's own code declares."""
    rng, refused, others, each_of = np.random.default_rng(42), 0, set(), 1000 // sum(map(len, HONEST.values())) + 1
    monkeypatch.setattr(call, "Node", Unread)
    for method, asked in HONEST.items():
        with central("masked", tmp_path / method, K=4, package=f"v6_{method}") as lying:
            lying.job["method"] = method
            for function, arrays, settings, job in asked:
                arguments = {"arrays": {**arrays}, "job": job, **settings}
                job = {**job, **({"data": {**lying.job["data"], **job["data"]}} if "data" in job else {})}
                encoded_arrays = {"arrays": codec.encode(arrays, "float64")} if arrays else {}
                unit = (64, 10)
                good = lying.sums(1, function, unit=unit, job=job, **encoded_arrays, **settings).to_json()
                said = sent(lying, function, good, arguments)[0]
                assert said == "rows would be read", said  # it would be answered: a node was made
                others.add(good["layout"])
                made = 0
                while made < each_of:
                    sums, changed = variations(rng, good, arguments, sorted(others - {good["layout"]}))
                    said, *request = sent(lying, function, sums, changed)
                    assert isinstance(said, str)
                    if said == "rows would be read":  # what was changed says nothing of the sum
                        layout = derived(lying, function, *request)
                        assert layout is not None and layout.digest == sums["layout"], (function, sums, changed)
                        assert Sums.from_json(sums, layout).to_json() == sums
                        continue
                    made += 1
                refused += made
    assert refused >= 1000


def test_functions_that_declare_nothing_are_asked_for_no_sum(tmp_path):
    with central("pinned", tmp_path) as lying:
        sums = lying.sums(1, "count_rows").to_json()
        for function, arguments in (("describe", {"raw": False}), ("confirm", {"roster": []}), ("keep_steps", {})):
            assert f"{function} needs aggregation=plain: its answer is no sum" in lying.call(
                1, function, sums=sums, **arguments
            )


# ---- what the attack was


@pytest.mark.parametrize("declared", [Count(3), Count(3, "hospital")])
def test_fractions_are_no_counts(declared):
    """A mean gradient that was asked for as a count was rounded hospital by hospital, without dither."""
    layout = Layout(tuple(declared.items("gradient", None)))
    with pytest.raises(SafeError, match="Count is for whole numbers"):
        encoded(Sums.of(layout, 1, 0, 9), {"gradient": np.zeros(3)}, 9, 3, bytes(32), bytes(32))
    whole = encoded(Sums.of(layout, 1, 0, 9), {"gradient": np.arange(3) + 2**60}, 9, 3, bytes(32), bytes(32))
    assert whole[1][2:].tolist() == [2**60, 2**60 + 1, 2**60 + 2]  # not through float64


def test_a_gradient_is_not_counted(tmp_path):
    """At models that predict p, 155 such sums jumped where a hospital's rows times p is a half: they told its rows."""
    with central("pinned", tmp_path, K=4, size=4, package="v6_fsvrg") as lying:
        lying.job["method"] = "fsvrg"
        lying.agree()
        arrays = codec.encode({"weights": np.zeros(5)})
        good = lying.sums(1, "gradient", unit=(64, 10), arrays=arrays).to_json()
        counted = Layout((Item("gradient", "share", (5,), None, "row"),))
        for change in ({"parts": [["gradient", "share", 64, [5], None]]}, {"layout": counted.digest}):
            assert "sum" in lying.call(1, "gradient", sums={**good, **change}, arrays=arrays)
        assert lying.call(1, "gradient", sums=good, arrays=arrays)["T"]


# ---- declarations


def test_every_function_of_every_method_declares_its_sums_or_says_why_not():
    for method in registry.names():
        module = importlib.import_module(f"v6_{method}")
        for name in {*module.__all__} - {"central", "extract", "forget"}:
            function = getattr(module, name)
            if function.sums is None:
                assert function.single_answers or name in call.ALONE, name
            elif not callable(function.sums):
                assert all(isinstance(summand, Summand) for _, summand in each(function.sums)), name


def test_declarations_that_are_none_are_refused_when_they_are_written():
    for wrong in ({"x": "share"}, {"x": (Mean(), 7)}, {"x": Truth()}):
        with pytest.raises(TypeError, match="x"):
            partial(sums=wrong)(lambda node: {})


def test_digests_of_declarations_differ():
    asked = type("Asked", (), {"size": 3, "noisy": False, "regression": False})()
    of = [
        Count(3),
        Sum(3),
        Sum(3, unit=10),
        Sum(3, unit=range(3)),
        Mean(),
        Mean(weight="equal"),
        Count(4),
        Count(3, "hospital"),
    ]
    digests = {Layout(tuple(summand.items("x", asked))).digest for summand in of}
    assert len(digests) == len(of)
