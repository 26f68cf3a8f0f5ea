"""What sums tell that are additive only in hospitals, and that a study that hides totals answers none of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import test_additive_sums as additive_sums
from additive_table import requests, table
from forged import Central
from honest import HONEST
from masked_jobs import nodes
from scipy import optimize

from v6_federated.base.errors import SafeError
from v6_federated.gate import call
from v6_federated.messages import codec
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import TRUSTING, MockNetwork, StudyPlan

CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}
ROWS, ILL = (103, 143, 187, 230), (31, 52, 90, 77)
SCHEMA = Schema((Column("ill", "number", 0, 1), Column("drug", "number", 0, 1)), "ill1", bounds=(0, 10))


def hospitals() -> dict[int, pd.DataFrame]:
    """Four hospitals with known numbers of rows; nobody else knows how many of them are ill."""
    tables = {}
    for k, (n, ill) in enumerate(zip(ROWS, ILL, strict=True), start=1):
        rng = np.random.default_rng(k)
        table = pd.DataFrame({"ill": (np.arange(n) < ill).astype(int), "drug": rng.integers(0, 2, n)})
        table["arm"] = np.where(np.arange(n) % 3 == rng.integers(0, 3), "a", "b")
        tables[k] = table.assign(ill1=table["ill"] + 1, sooner=2 - table["ill"], days=rng.exponential(50, n).round())
    return tables


def study(word: str, schema: Schema | None = None) -> StudyPlan:
    return StudyPlan(schema=schema, hospital_totals=word)


def splits(total: int) -> np.ndarray:
    """All ways to deal a number over four hospitals, in ascending order."""
    a, b, c = np.meshgrid(*[np.arange(total // k + 1) for k in (4, 3, 2)], indexing="ij", sparse=True)
    d = total - a - b - c
    found = np.nonzero((a <= b) & (b <= c) & (c <= d))
    return np.stack([*found, total - sum(found)])


# ---- the partial likelihood of each hospital

LABEL = {"label": "ill1", "event": "ill", "features": ["drug"]}


def test_one_honest_cox_job_tells_the_ill_patients_of_each_hospital(tmp_path):
    """With ill + 1 as the time, those at risk at time 2 are the ill: the sum is of a function of each one's number."""
    options = {"study": study("told", SCHEMA), "environment": CAREFUL, "hospital_folder": tmp_path}
    with MockNetwork("v6_cox", hospitals(), **options) as network:
        result = network.run(**LABEL, ties="breslow")
    assert result["privacy"]["aggregation"] == "pinned" and result["privacy"]["hospital_totals"] == "told"
    events = splits(result["events"])
    # of log E_h for each of E_h events, in whole numbers of hospitals whose sum is told
    told = -np.where(events > 0, events * np.log(np.maximum(events, 1)), 0).sum(axis=0)
    fits = events[:, np.abs(told - result["null_log_likelihood"]) < 1e-6]
    assert fits.T.tolist() == [sorted(ILL)]


# ---- log-rank tests of hospitals with known sizes


def opened(lying, function, seq, **arguments):
    answers = [lying.ask(k, function, seq, **arguments) for k in lying.network.nodes]
    refused = {answer for answer in answers if isinstance(answer, str)}
    return refused or lying.opened(answers)[2]


def of_times(lying, label, levels=()):
    """A job about times."""
    data = {"label": None, "features": [], "classes": None, "supervised": False, "time": label, "event": "ill"}
    data |= {"subgroup": "arm", "levels": [*levels]} if levels else {}
    lying.job |= {"method": "km", "model": None, "data": {**lying.job["data"], **data}}
    return lying.agree()


def arms(tables):
    return np.array([(t["arm"] == "a").sum() for t in tables.values()])


def test_a_log_rank_test_of_hospitals_of_known_sizes_tells_the_ill_patients_of_each(tmp_path):
    """All ill patients have the event at once: of each hospital the sum has its events times the share of an arm."""
    tables = hospitals()
    with MockNetwork("v6_km", tables, hospital_folder=tmp_path, study=study("told"), environment=CAREFUL) as network:
        found = opened(
            of_times(Central(network, "pinned"), "sooner", ("a", "b")), "leaving", 1, ends=[1.0], strata="hospital"
        )
    events = np.rint(found["one events"]).reshape(2, 2).sum(axis=1)
    expected = float(events[0] - found["one difference"][0])  # sum over h of E_h n_ah / n_h
    share, most = arms(tables) / np.array(ROWS), np.array(ROWS) + 1
    first, second, third = np.meshgrid(*map(np.arange, most[:3]), indexing="ij", sparse=True)
    last = int(events.sum()) - first - second - third
    apart = np.abs(first * share[0] + second * share[1] + third * share[2] + last * share[3] - expected)
    fits = np.argwhere((apart < 1e-9) & (last >= 0) & (last <= ROWS[3]))
    assert fits.tolist() == [[*ILL[:3]]]


# ---- the same sums where every hospital counts the same


def test_the_same_weight_for_each_hospital_tells_the_ill_patients_of_each(tmp_path):
    """A mean of hospitals' shares of ill patients has their sizes as denominators."""
    sizes, ill = (23, 29, 31, 37), (7, 12, 9, 20)
    tables = {
        k: pd.DataFrame({"x": np.zeros(n), "label": (np.arange(n) < few).astype(int)})
        for k, (n, few) in enumerate(zip(sizes, ill, strict=True), start=1)
    }
    environment = CAREFUL | {"V6_FEDERATED_MINIMUM_ROWS_A_SIDE": "1"}
    options = {"hospital_folder": tmp_path, "study": study("told"), "environment": environment}
    with MockNetwork("v6_scaffold", tables, **options) as network:
        lying = Central(network, "pinned")
        lying.job |= {"method": "scaffold", "model": {"name": "logreg", "features": 1, "classes": 2}}
        lying.job["data"] = {**lying.job["data"], "label": "label", "features": ["x"]}
        lying.agree()
        arrays = codec.encode({"weights": np.zeros(2), "c": np.zeros(2)})
        found = opened(lying, "client_update", 1, unit=(64, 10), arrays=arrays, known={}, local={"lr": 1.0})
    shares = 4 * float(found["equal dy 2^10"][1]) + 2  # the step is the share of the ill less a half
    first, second, third = np.meshgrid(*[np.arange(n + 1) for n in sizes[:3]], indexing="ij", sparse=True)
    rest = (shares - first / sizes[0] - second / sizes[1] - third / sizes[2]) * sizes[3]
    fits = np.argwhere((np.abs(rest - np.rint(rest)) < 4e-5) & (rest > -0.5) & (rest < sizes[3] + 0.5))
    assert [*ill[:3]] in fits.tolist() and len(fits) < 10, len(fits)  # of 24,000; a second rate leaves one


# ---- minibatches that a hospital with few rows does not fill


@pytest.mark.parametrize(
    ("method", "arguments"),
    [("fedavg", {"local": {"lr": 1.0, "local_steps": 1}}), ("fsvrg", {"stepsize": 1.0})],
    ids=["fedavg", "fsvrg"],
)
def test_the_size_of_a_minibatch_tells_the_rows_of_the_largest_hospital(method, arguments, tmp_path):
    """A hospital with fewer rows takes its step on all of them: from some size on, the sum is that over all rows."""
    schema = Schema((Column("drug", "number", 0, 1), Column("days", "number", 0, 1000)), "ill", (0, 1))
    options = {"hospital_folder": tmp_path, "study": study("told", schema), "environment": CAREFUL}
    with MockNetwork(f"v6_{method}", hospitals(), **options) as network:
        lying = Central(network, "pinned")
        lying.job |= {"method": method, "model": {"name": "logreg", "features": 2, "classes": 2}}
        lying.job["data"] = {**lying.job["data"], "label": "ill", "features": ["drug", "days"]}
        lying.agree()
        requests = 0

        def changed(B):
            """The change of the model, with minibatches of B rows."""
            nonlocal requests
            requests += 1
            sent, local = {"weights": np.zeros(3)}, arguments.get("local")
            sent |= {"full_gradient": np.array([0.0, 0.0, 64.0])} if method == "fsvrg" else {}
            asked = {"local": {**local, "batch_size": B}} if local else {**arguments, "batch_size": B}
            return opened(lying, "client_update", requests, unit=(64, 10), arrays=codec.encode(sent), **asked)[
                "share weights 2^10"
            ]

        of_all = changed(2000)
        below, above = 10, 1000
        while above - below > 1:
            B = (below + above) // 2
            below, above = (below, B) if np.abs(changed(B) - of_all).max() < 1e-6 else (B, above)
    least = 10  # careful's smallest minibatch, which the rows that are left must be
    assert below + least == max(ROWS) and requests < 15


# ---- means of models after several local steps

REQUESTS = 36


def means_of(shares, w, b, lr, steps):
    """The mean changes (36, 2) of coefficient and intercept over hospitals of known sizes, by their tables' shares.

    ``shares`` (..., 12): of each hospital's rows, those with the drug who are ill, those without who are, and those
    with the drug.
    """
    with_drug, without, drug = np.moveaxis(shares.reshape(*shares.shape[:-1], 1, 4, 3), -1, 0)
    w, b, change = w[:, None], b[:, None], np.zeros((2, *shares.shape[:-1], REQUESTS, 4), shares.dtype)
    for t in range(steps.max()):
        of_drug = drug / (1 + np.exp(-(w + b + change[0] + change[1]))) - with_drug
        of_others = (1 - drug) / (1 + np.exp(-(b + change[1]))) - without
        change = change - (lr * (t < steps))[:, None] * np.stack([of_drug, of_drug + of_others])
    return np.moveaxis(change @ np.array(ROWS), 0, -1) / sum(ROWS)


def least_squares(means, asked):
    """The shares that give these means to all digits of float32: from one random start after another."""

    def apart(shares):
        return (means_of(shares, *asked) - means).ravel()

    def derivative(shares):
        return (means_of(shares + 1e-30j * np.eye(12), *asked).imag / 1e-30).reshape(12, -1).T

    rng = np.random.default_rng(9)
    for _ in range(100):
        start = np.tile(rng.uniform(0.2, 0.6, 3), 4) + rng.normal(size=12) * 0.1
        found = optimize.least_squares(apart, start, derivative)
        if found.cost < 1e-9:
            return found.x.reshape(4, 3)
    return None


def after_several_steps(word, folder):
    """What a block says to 36 requests for 2 to 5 steps on all rows, at chosen models and rates."""
    rng = np.random.default_rng(0)
    at = [rng.uniform(-4, 4, REQUESTS).astype(np.float32).astype(float) for _ in "wb"]
    asked = (*at, rng.uniform(1, 8, REQUESTS), rng.integers(2, 6, REQUESTS))
    schema = Schema((Column("drug", "number", 0, 1),), "ill", (0, 1))
    options = {"hospital_folder": folder, "study": study(word, schema), "environment": CAREFUL}
    said = []
    with MockNetwork("v6_fedavg", hospitals(), **options) as network:
        lying = Central(network, "pinned")
        lying.job |= {"model": {"name": "logreg", "features": 1, "classes": 2}, "hospital_totals": word}
        lying.job["data"] = {**lying.job["data"], "label": "ill", "features": ["drug"]}
        lying.agree()
        for seq, (w, b, lr, steps) in enumerate(zip(*asked, strict=True), start=1):
            arrays = codec.encode({"weights": np.array([w, b])})
            local = {"lr": float(lr), "epochs": int(steps)}
            said.append(opened(lying, "client_update", seq, unit=(64, 10), arrays=arrays, local=local))
    return said, asked


def test_means_of_several_local_steps_tell_each_hospitals_two_by_two_table(tmp_path):
    """Of four hospitals of known sizes, the twelve numbers of their tables solve 72 equations."""
    said, asked = after_several_steps("told", tmp_path)
    found = least_squares(np.stack([each["share weights 2^10"] for each in said]), asked)
    tables = hospitals().values()
    true = [[int((t.ill * t.drug).sum()), int((t.ill * (1 - t.drug)).sum()), int(t.drug.sum())] for t in tables]
    counts = found * np.array(ROWS)[:, None]
    assert np.rint(counts).astype(int).tolist() == true and np.abs(counts - true).max() < 0.01
    print(
        f"{REQUESTS} requests: {np.rint(counts).astype(int).tolist()}, at most {np.abs(counts - true).max():.4f} apart"
    )


def test_where_totals_are_hidden_no_mean_of_several_local_steps_is_answered(tmp_path):
    said, _ = after_several_steps("hidden", tmp_path)
    assert len(said) == REQUESTS
    for refused in said:
        [text] = refused
        assert text.startswith("client_update adds up what each hospital computes from its own totals (")


# ---- what is declared is true


PAGE = Path(__file__).parents[2] / "docs" / "secure-aggregation.md"


def test_the_page_has_the_table_of_what_is_additive_in_what():
    """``python tests/secagg/additive_table.py`` prints it."""
    assert "\n".join(table()) in PAGE.read_text(encoding="utf-8")


CASES = [(m, i) for m, i in additive_sums.CASES if HONEST[m][i][0] not in additive_sums.PERSONAL]


@pytest.mark.parametrize(("method", "i"), CASES, ids=[f"{m}-{HONEST[m][i][0]}-{i}" for m, i in CASES])
def test_sums_over_rows_in_a_study_do_not_depend_on_how_rows_are_dealt(method, i, tmp_path, monkeypatch):
    """With the limits of careful nodes, by which hospitals with few rows fold, join or leave out nothing in a study."""
    monkeypatch.setattr(additive_sums, "TRUSTING", CAREFUL | {"V6_FEDERATED_SCORE_BANDS": "255"})
    tried = {**additive_sums.TRIED, "functions": set(), "refused": 0, "numbers": 0}
    largest, where = additive_sums.worst(method, i, monkeypatch, tmp_path, False, tried)
    assert where is None, (float(largest), where)
    assert tried["numbers"] > 0 and tried["refused"] < len([*additive_sums.hostile_arrays(HONEST[method][i][1])])


# ---- where totals are hidden


class Unread:
    """In place of a node: whoever makes one would read rows."""

    def __init__(self, *arguments):
        raise SafeError("rows would be read")


IN_STUDIES = {name: [request for request in requests(name) if request[0] != "evaluate_own"] for name in HONEST}
SUMS = [(method, i) for method, requests in IN_STUDIES.items() for i in range(len(requests))]


@pytest.mark.parametrize(("method", "i"), SUMS, ids=[f"{m}-{IN_STUDIES[m][i][0]}-{i}" for m, i in SUMS])
def test_a_node_answers_sums_over_rows_and_nothing_else(method, i, tmp_path, monkeypatch):
    """By what it declares, before a row is read; whatever central says, in all functions of all methods."""
    function, arrays, settings, job = IN_STUDIES[method][i]
    monkeypatch.setattr(call, "Node", Unread)
    said = {}
    for word in ("told", "hidden"):
        options = {"hospital_folder": tmp_path / word, "study": study(word), "environment": TRUSTING}
        with MockNetwork(f"v6_{method}", nodes(4), **options) as network:
            lying = Central(network, "pinned")
            data = {**lying.job["data"], **job.get("data", {})}
            lying.job |= {"method": method, **job, "data": data, "hospital_totals": word}
            sent = {"arrays": codec.encode(arrays, "float64")} if arrays else {}
            said[word] = lying.ask(1, function, 1, unit=(64, 10), **sent, **settings)
            hospital = lying.layout.of_hospitals
    assert said["told"] == "rows would be read"
    if not hospital:
        assert said["hidden"] == "rows would be read"
    else:
        assert said["hidden"].startswith(f"{function} adds up what each hospital computes from its own totals (")
        assert "(hospital_totals=hidden); " in said["hidden"], "it names what serves instead"


@pytest.mark.parametrize(
    ("package", "settings", "serves"),
    [
        ("v6_cox", LABEL, "each hospital is a stratum; set strata=none"),
        (
            "v6_km",
            {"label": "sooner", "event": "ill", "subgroup": "arm"},
            "set strata=none: groups are compared over all",
        ),
        (
            "v6_fedavg",
            {"label": "ill", "features": ["drug"], "epochs": 2, "rounds": 2},
            "use fedavg with one step a round",
        ),
        (
            "v6_fedavg",
            {"label": "ill", "features": ["drug"], "model": "cnn", "rounds": 2},
            r"a network in torch by itself; .* and a model that is added up exactly \(logreg, svm, linear, fnn",
        ),
        (
            "v6_fedavg",
            {"label": "ill1", "event": "ill", "features": ["drug"], "loss": "cox", "rounds": 2},
            "use cox with strata=none",
        ),
    ],
    ids=["cox", "km", "fedavg", "network", "loss=cox"],
)
def test_the_job_ends_before_keys_are_agreed_and_says_what_serves(package, settings, serves, tmp_path):
    called = []

    def note(organization, message):
        called.append(message["method"])
        return CallOutcome()

    options = {"hospital_folder": tmp_path, "study": study("hidden"), "environment": CAREFUL, "outcomes": note}
    with MockNetwork(package, hospitals(), **options) as network, pytest.raises(Exception, match=serves):
        network.run(**settings)
    assert {*called} <= {"describe", "forget"}


@pytest.mark.parametrize(
    ("package", "settings", "number"),
    [
        ("v6_cox", {**LABEL, "label": "days", "strata": "none"}, lambda result: result["coefficients"][0]["estimate"]),
        (
            "v6_km",
            {"label": "days", "event": "ill", "subgroup": "arm", "strata": "none"},
            lambda result: result["log_rank"]["statistic"],
        ),
        ("v6_glm", {"label": "days", "features": ["drug"], "family": "poisson"}, lambda result: result["deviance"]),
        (
            "v6_fedavg",
            {"label": "days", "features": ["drug"], "loss": "squared", "rounds": 2},
            lambda result: result["final"]["loss"],
        ),
        (
            "v6_fedavg",
            {
                **{"label": "ill", "features": ["drug", "days", "arm"], "rounds": 2, "subgroup": "arm"},
                **{"preprocess": ["impute", "clip:0.1", "onehot", "standardize"], "class_weights": "balanced"},
            },
            lambda result: [
                result["final"]["loss"],
                result["final"]["accuracy"],
                result["subgroups"]["rows"][0]["evaluated"],
            ],
        ),
        (
            "v6_gbdt",
            {"label": "ill", "features": ["drug", "days"], "rounds": 2, "mode": "histogram"},
            lambda result: result["final"]["loss"],
        ),
        ("v6_pca", {"features": ["days", "drug"], "components": 2}, lambda result: result["final"]),
    ],
    ids=["cox", "km", "glm", "fedavg", "classes", "gbdt", "pca"],
)
def test_what_serves_gives_the_same_numbers_as_where_totals_are_told(package, settings, number, tmp_path):
    """In whole jobs: all of their requests are sums over rows."""
    found = []
    for word in ("told", "hidden"):
        options = {"study": study(word), "environment": CAREFUL, "secret_of": lambda k: "hospital" * 5 + str(k)}
        with MockNetwork(package, hospitals(), **options) as network:
            result = network.run(**settings)
        assert result["privacy"]["hospital_totals"] == word and "stopped" not in result, result.get("stopped")
        found.append(number(result))
    assert found[0] == pytest.approx(found[1], rel=1e-4)  # but for the dither, of 2^-11 for a loss of classes


@pytest.mark.parametrize("link", ["log", "inverse"])
def test_a_careful_study_fits_costs_as_nodes_without_masks_do(link, tmp_path):
    """Newton's method begins at each row's own label there: residuals are 0 but for rounding, and judge no row."""
    rng = np.random.default_rng(0)
    tables = {k: pd.DataFrame({"x": rng.normal(size=n).round(2)}) for k, n in enumerate((60, 80, 120, 150), start=1)}
    tables = {k: t.assign(cost=rng.gamma(1.0, np.exp(1 + 0.3 * t["x"])) + 1e-3) for k, t in tables.items()}
    schema = Schema((Column("x", "number", -10, 10),), "cost", bounds=(0, 1000))
    settings = {"label": "cost", "features": ["x"], "family": "gamma", "link": link}
    options = {"hospital_folder": tmp_path, "study": study("hidden", schema), "environment": CAREFUL}
    with MockNetwork("v6_glm", tables, **options) as network:
        found = network.run(**settings)
    with MockNetwork("v6_glm", tables, environment=TRUSTING) as network:
        plain = network.run(**settings)
    for ours, theirs in zip(found["coefficients"], plain["coefficients"], strict=True):
        np.testing.assert_allclose(ours["estimate"], theirs["estimate"], rtol=1e-6)


def test_with_noise_a_network_is_answered_if_its_hospitals_send_one_sum_a_round():
    """Of whole numbers, with noise that hides how they are rounded."""
    tables = {k: table[["drug", "ill"]] for k, table in hospitals().items()}
    plan = study("hidden", Schema((Column("drug", "number", 0, 1),), "ill", (0, 1)))
    job = {"model": "fnn:hidden=2", "rounds": 1, "clip": 1, "epsilon": 3, "aggregation": "pinned"}
    with MockNetwork("v6_fedavg", tables, environment=TRUSTING, study=plan) as network:
        result = network.run(steps_per_epoch=1, **job)
        assert "stopped" not in result and result["privacy"]["hospital_totals"] == "hidden"
        with pytest.raises(Exception, match="own model; set epochs=1 and steps_per_epoch=1"):
            network.run(steps_per_epoch=1, epochs=2, **job)
