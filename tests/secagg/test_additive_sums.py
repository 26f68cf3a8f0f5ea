"""Sums over rows do not depend on how the rows are dealt over hospitals, whatever central sends."""

import importlib
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from forged import Central
from honest import HONEST

from v6_federated.gate import under_masks
from v6_federated.masks import encoding, exact, summing
from v6_federated.masks.exact import EXACTLY, Exact
from v6_federated.masks.summands import Item, Layout
from v6_federated.masks.summing import Sums
from v6_federated.messages import codec
from v6_federated.models import outcomes
from v6_federated.node import node as node_module
from v6_federated.node.node import Node
from v6_federated.rules.schema import Column, Schema
from v6_glm.families import FAMILIES, Glm, newton_sums
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
NOT_MASKED = "compressed_update"
PERSONAL = ("evaluate_own",)  # refused in a study
CASES = [
    (method, i)
    for method, requests in HONEST.items()
    for i, request in enumerate(requests)
    if request[0] not in (*NOISY, NOT_MASKED)
]
CLOSE = Fraction(1, 100)  # of a unit of the encoding
# what central may send in place of its arrays, times what it honestly sends, or anew
HOSTILE = {
    "weights": [2.0**-40, 2.0**12, 2.0**40],
    "c": [2.0**40],
    "full_gradient": [2.0**40],
    "center": [2.0**53, -(2.0**60), 2.0**-1000],
    "mean": [2.0**53, -(2.0**60), 2.0**-1000],
    "scale": [2.0**90, 2.0**-90, 3.0],
}
TRIED = {"functions": set(), "examples": 0, "refused": 0, "numbers": 0, "differences": 0}


def dealt(times: bool, hostile: bool, seed: int = 7) -> dict[int, pd.DataFrame]:
    """Rows at hospitals 1 to 4, and all of them at hospital 5."""
    rng = np.random.default_rng(seed)
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


def hostile_arrays(arrays):
    """The arrays of a request, and others that central may send in their place."""
    yield arrays
    for name, array in arrays.items():
        if array.ndim != 1:  # trees
            continue
        for by in HOSTILE.get(name, ()):
            changed = np.array(array) * by if name not in ("center", "mean", "scale") else np.full(len(array), by)
            if name in ("center", "scale") and "weights" in arrays:  # the intercept's
                changed[-1] = array[-1]
            yield {**arrays, name: changed}


def values_of(method, function, requests, job, monkeypatch, folder, hostile=False, precision="float64"):
    """For each request, what each node adds up, by part, before it is encoded, and the items that are sums of rows."""
    captured = {}

    def answer(node, request, name, sums, arguments, sent, compute):
        node.pinned = request.folder is not None and node.job.aggregation == "pinned"
        captured[node.organization_id] = sums, compute(), node.n
        return {"organization_id": node.organization_id, "round": node.round}, node.n

    monkeypatch.setattr(under_masks, "answer", answer)
    tables = dealt("event" in job.get("data", {}), hostile)
    mode = "masked" if function in PERSONAL else "pinned"
    plan = StudyPlan(5, hospital_totals=job.get("hospital_totals", "told")) if mode == "pinned" else None
    with MockNetwork(f"v6_{method}", tables, hospital_folder=folder, environment=TRUSTING, study=plan) as network:
        lying = Central(network, mode)
        lying.rows = 160
        data = {**lying.job["data"], "features": [f"x{i}" for i in range(4)], "label": "label", **job.get("data", {})}
        lying.job |= {"method": method, **job, "data": data}
        for arrays, settings in requests:
            captured.clear()
            sent = {"arrays": codec.encode(arrays, precision)} if arrays else {}
            refused = [isinstance(lying.ask(k, function, 1, unit=(64, 10), **sent, **settings), str) for k in tables]
            rows = {item.name for item in lying.layout.items if item.additive == "row"}
            yield dict(captured) if not any(refused) else None, rows


def exactly(part, value):
    """A value before it is rounded, in units of its part, without the dither."""
    unit = Fraction(2) ** (part.exponent - encoding.FRACTION[part.bits])
    if isinstance(value, Exact):
        of = Fraction(2) ** (value.exponent - (summing.halvings(160) if part.weight == "share" else 0))
        return [number * of / unit for number in value.numbers]
    return [Fraction(float(number)) / unit for number in np.ravel(value)]


def differing(captured, rows):
    """For each part that is additive in rows, by how much four hospitals and one differ, in units of the encoding."""
    sums = captured[5][0]
    for part in sums.parts:
        if part.name not in rows:
            continue
        value = {
            k: found[part.name] if isinstance(found.get(part.name), Exact) else summing._value(part, sums, found, n, 1)
            for k, (_, found, n) in captured.items()
        }
        if part.exponent is None:
            yield part, [int(d) for d in np.ravel(sum(value[k] for k in range(1, 5)) - value[5])]
            continue
        units = {k: exactly(part, given) for k, given in value.items()}
        yield part, [sum(units[k][i] for k in range(1, 5)) - one for i, one in enumerate(units[5])]


def worst(method, i, monkeypatch, folder, hostile, tried=None):
    """The largest difference of a function's requests, and where; what was tried is counted."""
    tried = {**TRIED, "functions": set()} if tried is None else tried
    function, arrays, settings, job = HONEST[method][i]
    requests = [(changed, settings) for changed in hostile_arrays(arrays)]
    largest, where = Fraction(0), None
    for captured, rows in values_of(method, function, requests, job, monkeypatch, folder, hostile):
        tried["functions"].add((method, function))
        tried["examples"] += 1
        if captured is None:  # refused, or a node could not compute it
            tried["refused"] += 1
            continue
        for part, differences in differing(captured, rows):
            tried["numbers"] += len(differences)
            for difference in differences:
                within = 0 if part.exponent is None else CLOSE
                tried["differences"] += abs(difference) > within
                if abs(difference) > max(within, largest):
                    largest, where = abs(difference), part
    return largest, where


@pytest.mark.parametrize("hostile", [False, True], ids=["ordinary", "hostile"])
@pytest.mark.parametrize(("method", "i"), CASES, ids=[f"{m}-{HONEST[m][i][0]}-{i}" for m, i in CASES])
def test_sums_over_rows_do_not_depend_on_how_rows_are_dealt(method, i, hostile, tmp_path, monkeypatch):
    """Whole numbers to the last bit; others, before their dither, to a hundredth of a unit: whatever central sends."""
    largest, where = worst(method, i, monkeypatch, tmp_path, hostile, TRIED)
    assert where is None, (float(largest), where)


OF_FAMILIES = [(family, link) for family, of in FAMILIES.items() for link in of.links]


@pytest.mark.parametrize(("family", "link"), OF_FAMILIES, ids=str)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_sums_of_a_glm_do_not_depend_on_how_rows_are_dealt(family, link, first):
    """Where Newton's method begins, a mean of the hospital's own labels was in what it added."""
    rng = np.random.default_rng(3)
    model = Glm(2, 2 if family == "binomial" else 1, family, link)
    D = np.asfortranarray(
        np.column_stack([rng.normal(size=(300, 2)) * 2.0 ** rng.integers(-9, 9, (300, 2)), np.ones(300)])
    )
    y = rng.integers(0, 2, 300) + 0.0 if family == "binomial" else rng.integers(1, 9, 300) + 0.0
    w, offset = rng.random(300), rng.normal(size=300) * 0.01
    beta = None if first else np.array([2.0**-12, -(2.0**-13), 0.5])
    deals = [np.arange(300), *np.split(rng.permutation(300), [40, 100, 170])]
    one, *four = (newton_sums(model, D[at], y[at], w[at], offset[at], beta, EXACTLY) for at in deals)
    for name in ("gradient", "hessian", "deviance", "pearson"):
        total = sum((each[name] for each in four[1:]), four[0][name])
        if not isinstance(total, Exact):  # there is no dispersion
            assert total == one[name] == 0
            continue
        finest = min(total.exponent, one[name].exponent)
        assert total.at(finest) == one[name].at(finest), name


REVERTED = [("glm", "newton", 1), ("fedavg", "fit_step", 7), ("fedavg", "client_update", 0), ("fsvrg", "gradient", 0)]
REVERTED += [("fedavg", "evaluate", 5), ("cox", "newton_on_grid", 2)]


@pytest.mark.parametrize(("method", "function", "i"), REVERTED, ids=str)
def test_the_law_does_not_hold_for_sums_in_float64(method, function, i, tmp_path, monkeypatch):
    """Each of these is found by the test above if its sums are those of float64, as they were."""
    assert HONEST[method][i][0] == function
    in_float64(monkeypatch)
    largest, where = worst(method, i, monkeypatch, tmp_path, hostile=False)
    assert largest > 1 and where is not None


def in_float64(monkeypatch):
    """Add up in float64, as it was."""

    def sums(X, places=None, size=1):
        X = np.asarray(X, float)
        if places is None:
            return exact.total(np.atleast_1d(X.sum(axis=0))[None])
        found = np.zeros((size, X.shape[1]))
        np.add.at(found, places, X)
        return exact.total(found.reshape(1, -1))

    monkeypatch.setattr(exact, "sums", sums)
    monkeypatch.setattr(
        exact, "products", lambda X, Y=None: exact.total((X.T @ (X if Y is None else Y)).reshape(1, -1))
    )


@pytest.mark.parametrize("statistic", ["moments", "present", "label"])
def test_statistics_of_columns_are_additive_whatever_the_numbers_and_the_center_are(statistic, tmp_path, monkeypatch):
    columns, width = {"present": (["x1", "x2"], 2), "moments": ([], 4), "label": ([], 1)}[statistic]
    settings = {"statistic": statistic, "columns": columns}
    job = {"model": None, "data": {"classes": None, "regression": statistic == "label"}}
    job["data"] |= {} if statistic == "label" else {"classes": [0, 1], "regression": False}
    centers = [0.0, 1.0, 2.0**53, -(2.0**60), 2.0**-1000, 1e300]
    requests = [({"center": np.full(width, center)}, settings) for center in centers]
    tried = 0
    for captured, rows in values_of("fedavg", "fit_step", requests, job, monkeypatch, tmp_path, hostile=True):
        assert rows == {"n", "count", "first", "second"}
        for part, differences in differing(captured, rows):
            assert not any(differences), part
            tried += len(differences)
    assert tried > 6 * width


NETWORK = {"name": "fnn", "features": 4, "classes": 2, "hidden": 3}
NETWORKS = {
    "relu": NETWORK,
    "sigmoid": {**NETWORK, "name": "nn_reddy"},
    "tiny weights of classes": {**NETWORK, "weights": [2e-38, 3e-38]},
    "a number": {**NETWORK, "classes": 1, "loss": outcomes.of_moments("squared", 0.5, 0.5).to_json()},
}


def of_networks(model, monkeypatch, folder, hostile=False):
    """For each request of one step on all rows, the differences of what is additive in rows."""
    weights = np.random.default_rng(5).normal(size=4 * 3 + 3 + (3 + 1) * model["classes"])
    large = 2.0 ** (100 if "weights" in model else 40)
    by_rate = [(weights * by, lr) for by in (1.0, 2.0**-40, 2.0**12, 2.0**40) for lr in (0.1, large)]
    requests = [({"weights": w}, {"local": {"lr": lr}}) for w, lr in by_rate]
    job = {
        "model": model,
        "hospital_totals": "hidden",
        **({"data": {"classes": None, "regression": True}} if model["classes"] == 1 else {}),
    }
    for captured, rows in values_of("fedavg", "client_update", requests, job, monkeypatch, folder, hostile):
        assert {"weights", "train_loss"} <= rows
        yield [] if captured is None else [abs(d) for _, found in differing(captured, rows) for d in found]


@pytest.mark.parametrize("hostile", [False, True], ids=["ordinary", "hostile"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_of_a_network_does_not_depend_on_how_rows_are_dealt(name, hostile, tmp_path, monkeypatch):
    """In float32, a mean of n_k slopes below 1e-38 is 0 at hospitals with more rows than central has chosen."""
    found = [*of_networks(NETWORKS[name], monkeypatch, tmp_path, hostile)]
    assert sum(map(bool, found)) >= (2 if hostile else 6) and max(map(max, filter(None, found))) <= CLOSE


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tiny weights of classes"])
def test_a_step_of_a_network_in_float32_depends_on_how_rows_are_dealt(name, tmp_path, monkeypatch):
    monkeypatch.setattr(node_module, "summing", lambda model: None)
    found = [*of_networks(NETWORKS[name], monkeypatch, tmp_path)]
    assert max(map(max, filter(None, found))) > 1


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


def test_what_was_tried_is_said():
    """``-s`` shows it."""
    functions = {f"{method}.{name}" for method, name in TRIED["functions"]}
    print(
        f"\n{len(functions)} functions, {TRIED['examples']} requests ({TRIED['refused']} refused), "
        f"{TRIED['numbers']:,} numbers, {TRIED['differences']} beyond a hundredth of a unit"
    )
    if functions:  # the tests above have run in this process
        assert TRIED["refused"] < TRIED["examples"] / 4


@pytest.mark.parametrize("rows", [663, 1007, 2**40 - 1])
@pytest.mark.parametrize("kind", ["float32", "exact"])
def test_the_weight_by_rows_rounds_nothing_whatever_the_rows_of_all_are_said_to_be(rows, kind):
    """Central chooses N: n_k / N in float64, of changes that are known and large, told the rows of each hospital."""
    layout = Layout((Item("w", "share", (1,), "mean", "row"),))
    asked = Sums.of(layout, 1, 1, rows, [(64, 10)])
    change = np.float32([1.37 * 2.0**43])
    deals = (103, 143, 187, 230), (100, 146, 190, 227)
    words = []
    for deal in deals:
        found = [{"w": exact.total(change[None].astype(float)).times([n]) if kind == "exact" else change} for n in deal]
        encoded = [
            summing.encoded(asked, each, n, 4, bytes(32), bytes(32)) for each, n in zip(found, deal, strict=True)
        ]
        words.append({bits: np.sum([each[i] for each in encoded], axis=0) for i, bits in enumerate((32, 64))})
    assert np.abs((words[0][64] - words[1][64]).view(np.int64)).max() <= 4  # roundings to the unit, which dither hides
    small = Sums.of(layout, 1, 1, rows, [(64, 50)])
    added = [summing.encoded(small, {"w": change}, n, 4, bytes(32), bytes(32)) for n in deals[0]]
    total = {32: np.empty(0, "uint32"), 64: np.sum([each[1] for each in added], axis=0)}
    mean = summing.decoded(small, total, bytes(32))[2]["share w 2^50"]
    np.testing.assert_allclose(mean, float(change[0]) * sum(deals[0]) / rows, rtol=1e-12, atol=4 * 2.0 ** (50 - 56))
