"""Sums over rows do not depend on how the rows are dealt over hospitals, whatever central sends."""

import importlib

import numpy as np
import pandas as pd
import pytest
from forged import Central
from honest import HONEST

from v6_federated.messages import codec
from v6_federated.node import masking
from v6_federated.node.node import Node
from v6_federated.privacy import sums as summing
from v6_federated.privacy.exact import Exact
from v6_federated.privacy.schema import Column, Schema
from v6_workbench import registry
from v6_workbench.simulation.mock import TRUSTING, MockNetwork, StudyPlan

CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}
ROWS_AND_ILL = {(103, 31), (143, 52), (187, 90), (230, 77)}
PLACE = 2.0**-20  # the last place of float32 below 16
SCHEMA = Schema((Column("x", "number", 0, 1),), "label", (0, 1))


def told(folder):
    """What the sums of FedSGD with an intercept of 16 tell: rows and ill patients, where they jump.

    The gradient of a hospital's intercept is the share of those who are not ill. In w - lr g, float32 rounds at the
    last place of w: the sum jumps by the hospital's rows where lr g is half of it.
    """
    tables = {
        k: pd.DataFrame({"x": np.zeros(n), "label": (np.arange(n) < ill).astype(int)})
        for k, (n, ill) in enumerate(sorted(ROWS_AND_ILL), start=1)
    }
    rates = PLACE / 2 * np.linspace(1.3, 2.0, 71)
    options = {"hospital_folder": folder, "study": StudyPlan(4, schema=SCHEMA), "environment": CAREFUL}
    with MockNetwork("v6_fedavg", tables, **options) as network:
        lying = Central(network, "pinned")
        lying.job |= {
            "model": {"name": "logreg", "features": 1, "classes": 2},
            "data": {**lying.job["data"], "label": "label", "features": ["x"]},
        }
        lying.agree()
        sums = []
        for seq, lr in enumerate(rates.tolist(), start=1):
            sent = [lying.update(k, seq, weights=[0.0, 16.0], lr=lr, unit=(64, 10)) for k in tables]
            sums.append(lying.opened(sent)[2]["share weights 2^10"][1] * lying.rows / PLACE)
    jumps = zip(-np.diff(sums), rates[1:], strict=True)
    return {(round(float(j)), round(float(j * (1 - PLACE / 2 / rate)))) for j, rate in jumps if j > 50}


def test_a_large_model_does_not_round_the_changes_of_single_hospitals(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Node, "_carries", property(lambda node: False))  # the change is what is left of w - lr g
        found = sorted(told(tmp_path / "before"))
        assert [n for n, _ in found] == [n for n, _ in sorted(ROWS_AND_ILL)]
        assert all(abs(ill - true) <= 2 for (_, ill), (_, true) in zip(found, sorted(ROWS_AND_ILL), strict=True))
    assert told(tmp_path / "after") == set()


@pytest.mark.parametrize(
    ("package", "function", "arguments"),
    [
        ("v6_fedavg", "client_update", {"local": {"lr": 1e-7, "epochs": 3}}),
        ("v6_fedavg", "client_update", {"local": {"lr": 1e-7, "epochs": 3, "momentum": 0.5, "proximal_mu": 0.1}}),
        (
            "v6_fedavg",
            "client_update",
            {"local": {"lr": 1e-7, "local_steps": 3, "batch_size": 10, "optimizer": "adam"}},
        ),
        ("v6_colearning", "client_update", {"local": {"lr": 1e-7}, "epochs": 2, "epochs_before": 0, "lr_cycle": 0.5}),
        ("v6_scaffold", "client_update", {"local": {"lr": 1e-7, "epochs": 3}, "known": {}}),
        ("v6_fsvrg", "client_update", {"stepsize": 1e-6, "batch_size": 10}),
    ],
    ids=str,
)
def test_every_local_training_carries_its_change_apart(package, function, arguments, tmp_path):
    """From a large model, whose last place is larger than a step: without that, the change would be 0, or a place."""
    method = package.removeprefix("v6_")
    rng = np.random.default_rng(0)
    tables = {k: pd.DataFrame({"x": rng.normal(size=40), "label": np.arange(40) % 2}) for k in range(1, 5)}
    with MockNetwork(package, tables, hospital_folder=tmp_path, environment=TRUSTING) as network:
        lying = Central(network, "masked")
        lying.job |= {
            "method": method,
            "model": {"name": "logreg", "features": 1, "classes": 2},
            "data": {**lying.job["data"], "label": "label", "features": ["x"]},
        }
        lying.agree()
        sent = {"weights": np.array([0.0, 16.0])}
        sent |= {"c": np.zeros(2)} if method == "scaffold" else {}
        sent |= {"full_gradient": np.full(2, 0.1)} if method == "fsvrg" else {}
        asked = {"arrays": codec.encode(sent), "unit": (64, 10), **arguments}
        answers = [lying.ask(k, function, 1, **asked) for k in tables]
        nodes, failed, found, _ = lying.opened(answers)
        change = next(value for key, value in found.items() if key.startswith(("share", "equal")))
    assert (nodes, failed) == (4, 0)
    assert 0 < abs(change[1]) < PLACE / 2 and change[1] % PLACE != 0, change


# ---- every function that answers sums over rows: the same rows over four hospitals and at one

NOISY = ("noisy_gradient", "noisy_newton", "noisy_moments", "noisy_leaf_sums")  # rounded by row; see tests/privacy
CASES = [(method, i) for method, requests in HONEST.items() for i in range(len(requests))]


def dealt(times: bool, hostile: bool) -> dict[int, pd.DataFrame]:
    """Rows at hospitals 1 to 4, and all of them at hospital 5."""
    rng = np.random.default_rng(7)
    table = pd.DataFrame(rng.normal(size=(160, 4)), columns=[f"x{i}" for i in range(4)])
    table["x3"] = rng.integers(0, 3, 160)
    if hostile:
        table["x1"] = rng.choice([2.0**60, -(2.0**60), 1.0, 2.0**-1000], 160)
        table["x2"] *= 2.0 ** rng.integers(-60, 60, 160)
    ill = rng.integers(0, 2, 160)
    table["label"] = rng.exponential(2, 160) + 0.01 if times else ill
    if times:
        table["ill"] = ill
    parts = np.split(rng.permutation(160), [25, 60, 111])
    return {**{k: table.iloc[rows].reset_index(drop=True) for k, rows in enumerate(parts, 1)}, 5: table}


def values_of(method, function, arrays, settings, job, monkeypatch, folder, hostile=False):
    """What each node adds up, by part, before it is encoded; and the layout's items that are additive in rows."""
    captured = {}

    def answer(node, request, name, sums, arguments, sent, compute):
        node.pinned = True  # as in a study
        captured[node.organization_id] = sums, compute(), node.n
        return {"organization_id": node.organization_id, "round": node.round}, node.n

    monkeypatch.setattr(masking, "answer", answer)
    tables = dealt("event" in job.get("data", {}), hostile)
    with MockNetwork(f"v6_{method}", tables, hospital_folder=folder, environment=TRUSTING) as network:
        lying = Central(network, "masked")
        lying.rows = 160
        data = {**lying.job["data"], "features": [f"x{i}" for i in range(4)], "label": "label", **job.get("data", {})}
        lying.job |= {"method": method, **job, "data": data}
        sent = {"arrays": codec.encode(arrays, "float64")} if arrays else {}
        for k in tables:
            said = lying.ask(k, function, 1, unit=(64, 10), **sent, **settings)
            assert not isinstance(said, str), said
        rows = {item.name for item in lying.layout.items if item.additive == "row"}
    return captured, rows


def compared(captured, rows):
    """For each part that is additive in rows: the four hospitals' sum, that of one, and the sum of absolute values."""
    sums = captured[5][0]
    for part in sums.parts:
        if part.name not in rows:
            continue
        given = {k: found.get(part.name) for k, (_, found, _) in captured.items()}
        if isinstance(given[5], Exact):
            total = [sum(numbers) for numbers in zip(*(given[k].numbers for k in range(1, 5)), strict=True)]
            yield part, np.array(total, object), np.array(given[5].numbers, object), None
            continue
        value = {k: summing._value(part, sums, found, n, 1) for k, (_, found, n) in captured.items()}
        each = [value[k] for k in range(1, 5)]
        yield part, np.sum(each, axis=0), value[5], np.sum(np.abs(each), axis=0)


@pytest.mark.parametrize(("method", "i"), CASES, ids=[f"{m}-{HONEST[m][i][0]}-{i}" for m, i in CASES])
def test_sums_over_rows_do_not_depend_on_how_rows_are_dealt(method, i, tmp_path, monkeypatch):
    """Whole numbers, and exact sums, to the last bit; others to the rounding of float64, or of float32 in a model."""
    function, arrays, settings, job = HONEST[method][i]
    if function in NOISY or function == "compressed_update":
        pytest.skip("needs a privacy plan, or answers without masks")
    captured, rows = values_of(method, function, arrays, settings, job, monkeypatch, tmp_path)
    for part, total, one, size in compared(captured, rows):
        if size is None or part.exponent is None:
            assert (total == one).all(), part
            continue
        within = 1e-12 if part.weight == "one" and not part.name.startswith("evaluation.") else 4e-6
        assert (np.abs(total - one) <= within * size + 1e-30).all(), (part, total, one)


@pytest.mark.parametrize("statistic", ["moments", "present", "label"])
@pytest.mark.parametrize("center", [0.0, 1.0, 2.0**53, -(2.0**60), 2.0**-1000, 1e300])
def test_statistics_of_columns_are_additive_whatever_the_numbers_and_the_center_are(
    statistic, center, tmp_path, monkeypatch
):
    columns, width = {"present": (["x1", "x2"], 2), "moments": ([], 4), "label": ([], 1)}[statistic]
    settings = {"statistic": statistic, "columns": columns}
    job = {"model": None, "data": {"classes": None, "regression": statistic == "label"}}
    job["data"] |= {} if statistic == "label" else {"classes": [0, 1], "regression": False}
    captured, rows = values_of(
        "fedavg", "fit_step", {"center": np.full(width, center)}, settings, job, monkeypatch, tmp_path, hostile=True
    )
    assert rows == {"n", "count", "first", "second"}
    for part, total, one, _ in compared(captured, rows):
        assert (total == one).all(), part


def test_every_function_that_answers_sums_is_tried():
    """A new one needs an honest request here: it is found by what it declares."""
    for method in registry.names():
        module = importlib.import_module(f"v6_{method}")
        shared = importlib.import_module("v6_federated")
        for name in {*module.__all__} - {"central", "extract", "forget"}:
            if getattr(module, name).sums is None or getattr(shared, name, None) is getattr(module, name):
                continue
            assert name in {request[0] for request in HONEST.get(method, [])}, f"{method}.{name}"
    assert {"fit_step", "evaluate", "count_rows"} <= {request[0] for request in HONEST["fedavg"]}
