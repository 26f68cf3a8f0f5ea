"""The benchmark of FLamby: its preparation of rows, its losses and strategies, and what this package is given."""

from math import comb

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks import runs
from benchmarks.comparisons import Comparison
from benchmarks.flamby import best, best_survival, data, emulated, ours, theirs
from benchmarks.flamby.data import Site, Task
from torch.utils.data import DataLoader

from v6_federated.base.errors import SafeError
from v6_workbench import registry
from v6_workbench.simulation import datasets
from v6_workbench.simulation.mock import MockNetwork


@pytest.fixture(scope="module")
def table():
    """Heart disease of four hospitals, 40 rows each, some of them with a missing value."""
    rng = np.random.default_rng(1)
    n = 40
    parts = []
    for hospital in data.HOSPITALS:
        y = rng.permutation(np.arange(n) % 2)
        numbers = {name: rng.normal(50 + 10 * y, 10, n).round() for name in data.NUMBERS}
        codes = {"cp": rng.integers(1, 5, n), "restecg": rng.integers(0, 3, n)}
        binary = {name: rng.integers(0, 2, n) for name in ("sex", "fbs", "exang")}
        parts.append(pd.DataFrame({"hospital": hospital, **numbers, **codes, **binary, "target": y}))
    whole = pd.concat(parts, ignore_index=True)
    whole.loc[::20, "chol"] = np.nan
    return whole


@pytest.fixture(scope="module")
def task(table):
    return data.heart(table)


def test_rows_are_scaled_by_their_own_hospital(table, task):
    """2 of 40 rows are dropped; columns in FLamby's order; test rows by the training rows' mean and deviation."""
    site = task.sites[1]
    rows = table[table["hospital"] == "hungarian"].dropna().reset_index(drop=True)
    training, test = data.parted(rows["target"].to_numpy())
    assert site.X.shape == (25, 13) and site.X_test.shape == (13, 13) and sorted([*training, *test]) == [*range(38)]
    age = rows["age"].to_numpy()
    own = age[np.sort(training)]
    scaled = (age[np.sort(test)] - own.mean()) / own.std(ddof=1)
    np.testing.assert_allclose(site.X_test[:, 0], scaled, atol=1e-5)
    pain = (rows["cp"] == 2).to_numpy(float)[np.sort(training)]
    np.testing.assert_allclose(site.X[:, 8], (pain - pain.mean()) / pain.std(ddof=1), atol=1e-5)
    assert abs(task.pooled.X.mean(0)).max() < 1e-5 and abs(task.pooled.X[:25].mean(0)).max() > 0.05


def test_coxs_loss_and_the_concordance_index_by_their_definitions():
    """Times fall in the order of rows 2, 0, 3, 1; rows 0 and 3 tie and keep their order."""
    s, y = torch.tensor([0.5, -1.0, 2.0, 0.0]), torch.tensor([[1.0, 5], [1, 1], [0, 9], [1, 5]])
    at_risk = {0: [2, 0], 3: [2, 0, 3], 1: [2, 0, 3, 1]}
    loss = sum(np.log(sum(np.exp(float(s[j])) for j in rows)) - float(s[i]) for i, rows in at_risk.items()) / 4
    assert float(data.cox_loss(s, y)) == pytest.approx(loss, abs=1e-6)
    # pairs of an event and a later row: 0 with 2, 3 with 2, 1 with all others; of 0 and 3, both events, none
    assert data.concordance(s, y) == pytest.approx(0 / 5)
    assert data.concordance(-s, y) == 1
    assert data.concordance(torch.tensor([0.0, 0, 0, 1]), y) == pytest.approx((0.5 + 1 + 0.5 + 0.5 + 0) / 5)
    y[3, 0] = 0  # censored at the time of row 0's event, so it lived longer: a pair more, and one less
    assert data.concordance(torch.tensor([2.0, 3, 1, 0]), y) == 1


def test_strategies_by_hand(task, monkeypatch):
    """One round and then two of two steps; minibatches as torch draws them after the seed."""
    monkeypatch.setattr(theirs, "UPDATES", 2)
    two = replaced(task, rounds=2)
    w_0 = theirs.first_model(task, 7)
    torch.manual_seed(7)
    linear = torch.nn.Linear(13, 1)
    assert torch.equal(w_0, torch.cat([linear.weight[0], linear.bias]).detach())
    torch.manual_seed(7)
    orders = [
        torch.randperm(25, generator=torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_())))
        for _ in task.sites
    ]

    def local(w, k, steps, lr, more=0.0, mu=0.0, start=None):
        """Plain numpy: the mean gradient of the logistic loss of rows 4 i to 4 i + 3 of the order."""
        site, w = task.sites[k], w.copy()
        for i in steps:
            batch = orders[k][4 * i : 4 * i + 4]
            X, y = np.c_[site.X[batch], np.ones(4)], site.y[batch].numpy()
            g = X.T @ (1 / (1 + np.exp(-X @ w)) - y) / 4
            w -= lr * (g + more + (0 if start is None else mu * (w - start)))
        return w

    w = w_0.numpy().astype(float)

    def rounds(lr, mu=0.0):
        first = np.mean([local(w, k, (0, 1), lr, mu=mu, start=w) for k in range(4)], axis=0)
        return first, np.mean([local(first, k, (2, 3), lr, mu=mu, start=first) for k in range(4)], axis=0)

    def near(strategy, expected, of=two):
        np.testing.assert_allclose(theirs.trained(of, strategy, 7), expected, atol=2e-6, err_msg=strategy)

    near("FedAvg", rounds(0.001)[1])
    near("FedProx", rounds(0.001, 0.01)[1])
    delta = rounds(0.01)[0] - w
    near("FedAdam", w + 0.01 * 0.1 * delta / (np.sqrt(0.001 * delta**2) + 1e-8), replaced(task, rounds=1))
    delta = rounds(0.003162)[0] - w
    near("FedYogi", w + 0.01 * 0.1 * delta / (np.sqrt(0.001 * delta**2) + 1e-8), replaced(task, rounds=1))
    near("FedAdagrad", w + 0.316228 * 0.1 * delta / (abs(delta) + 1e-8), replaced(task, rounds=1))
    y_k = [local(w, k, (0, 1), 0.001) for k in range(4)]
    x = np.mean(y_k, axis=0)
    c_k = [(w - y) / (2 * 0.001) for y in y_k]
    corrected = [local(x, k, (2, 3), 0.001, more=np.mean(c_k, axis=0) - c_k[k]) for k in range(4)]
    near("SCAFFOLD, option II", np.mean(corrected, axis=0))
    theirs_ = [local(x, k, (2, 3), 0.001, more=-(x - y_k[k]) / (2 * 0.001)) for k in range(4)]
    near("SCAFFOLD", np.mean(theirs_, axis=0))


def test_a_cycle_that_passes_nothing_on_scores_the_first_hospitals_own_model(task, monkeypatch):
    """Five visits: the order is drawn again after four. Each visit here adds its hospital's power of ten."""
    visits = [lambda w, k=k: w + 10**k for k in range(4)]
    order = theirs.cycle(4, 5, seed=3)
    assert order == [*(rng := np.random.default_rng(3)).permutation(4), rng.permutation(4)[0]]
    zero = torch.zeros(1)
    assert theirs._cyclic(visits, zero, order, passed_on=False) == order.count(0)
    assert theirs._cyclic(visits, zero, order, passed_on=True) == sum(10**k for k in order)


@pytest.mark.parametrize("workers", [0, 1])
def test_minibatches_are_those_of_torch(workers):
    """Two passes of 10 rows by 4. Worker processes draw the first pass before the seed, others after it."""
    rows = Site(*[torch.arange(10.0)] * 4)
    torch.manual_seed(1)
    loader = DataLoader(rows.X, batch_size=4, shuffle=True, num_workers=workers)
    expected = iter(loader)
    torch.manual_seed(2)
    first = [*expected]
    expected = [*first, *loader]
    torch.manual_seed(1)
    found = theirs.Batches(rows, 4, ahead=workers > 0)
    torch.manual_seed(2)
    for batch, (X, y) in zip(expected, found, strict=False):
        assert torch.equal(batch, X) and torch.equal(batch, y)


def test_random_numbers_between_two_strategies(task):
    """FLamby makes FedAdagrad's loaders after Cyclic's run and FedAdam's after FedAdagrad's, each with its tests."""
    ahead = replaced(task, ahead=True, rounds=3)

    def drawn(run, strategy):
        """What is drawn next after a run with its loaders, and a number for each hospital and for all."""
        theirs.at_construction(ahead, strategy, 5)
        loaders = [theirs.Batches(site, 4, ahead=True) for site in ahead.sites]
        torch.manual_seed(5)
        run([iter(loader) for loader in loaders])
        return [theirs.draw() for _ in range(len(ahead.sites) + 2)][-1]

    def cyclic(loaders):
        for k in theirs.cycle(4, 3, 5):
            [next(loaders[k]) for _ in range(100)]

    def everyone(loaders):
        for _ in range(3):
            [next(loader) for loader in loaders for _ in range(100)]

    for run, before, after in ((cyclic, "Cyclic", "FedAdagrad"), (everyone, "FedAdagrad", "FedAdam")):
        expected = drawn(run, before)
        theirs.at_construction(ahead, after, 5)
        assert theirs.draw() == expected


def replaced(task: Task, **changes) -> Task:
    return Task(**{**vars(task), **changes})


def test_this_package_takes_flambys_steps(table, task, monkeypatch, tmp_path):
    """With batches of all rows nothing is drawn: FedAvg, FedProx and the server's optimisers have the same accuracies
    and losses as FLamby's, from the same start."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    monkeypatch.setattr(theirs, "UPDATES", 3)
    dataset, whole = datasets.load(table, name="heart_disease"), replaced(task, batch_size=25, rounds=3)
    hospitals = ours.as_flamby(whole)
    for name in ("FedAvg", "FedProx", "FedAdagrad", "FedAdam", "FedYogi"):
        method, values = ours.same_settings(whole, name)
        start = theirs.first_model(whole, 5).numpy()
        run, rows = (
            ours.trained(dataset, hospitals, method, values, 5, start=start, each=e, e=e) for e in (False, True)
        )
        w = theirs.trained(whole, name, 5)
        losses = [
            torch.nn.functional.binary_cross_entropy_with_logits(data.scores(w, s.X_test), s.y_test, reduction="none")
            for s in whole.sites
        ]
        np.testing.assert_allclose([row["loss"] for row in rows.history], torch.cat(losses), atol=3e-5, err_msg=name)
        np.testing.assert_allclose([row["accuracy"] for row in run.history], whole.metrics(w), atol=1e-5)


def test_the_published_numbers():
    """Seeds by hospitals, with the means that FLamby's files have."""
    assert theirs.published("heart", "FedAvg").shape == (5, 4) and theirs.published("tcga", "pooled").shape == (5, 6)
    means = {"pooled": 0.7353, "FedAvg": 0.6850, "SCAFFOLD": 0.6840, "Cyclic": 0.7180, "FedAdam": 0.7255}
    for strategy, mean in means.items():
        assert theirs.published("heart", strategy).mean() == pytest.approx(mean, abs=5e-5)
    means = {"pooled": 0.6759, "FedAvg": 0.7319, "FedAdagrad": 0.8129, "local 1": 0.7496}
    for strategy, mean in means.items():
        assert theirs.published("tcga", strategy).mean() == pytest.approx(mean, abs=5e-5)


def test_near_is_two_standard_errors_of_the_difference_of_two_means():
    site = Site(*[torch.zeros(2, 1)] * 4)
    task = Task("heart", ["a"], [site], site, None, None, "accuracy", 4, 15, 50, 0.001, False)
    theirs_ = np.array([[0.6], [0.7], [0.8], [0.7], [0.7]])  # SD 0.0707
    (found,), mean = emulated.compared(task, "FedAvg", theirs_, np.full((5, 1), 0.78))
    assert found.tolerance == pytest.approx(2 * 0.07071 * np.sqrt(2 / 5), abs=1e-4)
    assert found.verdict == "near" and found.counted and not mean.counted
    assert emulated.compared(task, "FedAvg", theirs_, np.full((5, 1), 0.79))[0][0].verdict == "higher"
    assert Comparison.from_json(found.to_json()) == found


def test_whether_methods_differ():
    """McNemar's exact test: of 12 rows that only one of two methods has right, 11 are the first one's."""
    base = np.ones(40)
    worse, other = base.copy(), base.copy()
    worse[:11], base[11] = 0, 0
    other[12:15] = 0  # a difference of 1 to 3
    p = 2 * sum(comb(12, k) for k in (0, 1)) / 2**12
    assert p < 0.05 / 3  # Holm's first bound
    found = best.significance({"a": base, "b": worse, "c": other})
    assert f"1 differ: a and b (p = {p:.4f})." in found and found.startswith("Of 3 pairs")
    same = best.significance({"a": base, "c": other})
    assert "no two methods differ; the smallest p of a single pair is 0.625 (a, c). No ranking" in same


def test_a_search_reads_training_rows_only(monkeypatch):
    """Each training row is left out in one fold; the value with the smallest log-loss is taken."""
    rows = [pd.DataFrame({"x": np.arange(30) + 100 * k, "target": np.arange(30) % 2}) for k in range(2)]
    of = ours.Hospitals("tables", rows, [part + 1000 for part in rows])
    left_out = []
    for f in range(best.FOLDS):
        part = best.fold(of, f)
        for known, unseen, whole in zip(part.training, part.test, of.training, strict=True):
            assert len(known) == 20 and sorted([*known["x"], *unseen["x"]]) == [*whole["x"]]
            left_out += [*unseen["x"]]
    assert sorted(left_out) == [*range(30), *range(100, 130)]
    seen = []

    def run(dataset, part, package, values, seed):
        seen.append((part.name, values["lr"]))
        return runs.Run({}, [{"loss": abs(values["lr"] - 0.03)}] * 2, "", "")

    monkeypatch.setattr(best, "trained", run)
    assert best.best(None, of, best.METHODS["FedAvg"]) == 0.03 and len(seen) == 9


def test_measures_of_test_rows():
    """Two hospitals with 2 and 3 rows; an AUC of 5 of 6 pairs."""
    of = ours.Hospitals("tables", [], [(None, np.array([0, 1])), (None, np.array([1, 0, 1]))])
    p = np.array([0.2, 0.9, 0.4, 0.3, 0.25])
    y = np.concatenate(of.labels)
    history = [
        {"accuracy": float((a > 0.5) == b), "loss": -np.log(a if b else 1 - a)} for a, b in zip(p, y, strict=True)
    ]
    found = best.measured(runs.Run({}, history, "", ""), of)
    mean, accuracy, auc, loss = found.cells
    assert [*found.right] == [1, 1, 0, 1, 0] and mean == ".6667"  # 2 of 2, 1 of 3
    assert accuracy.startswith(".600 [.231, .882]") and auc.startswith(".833 [")
    assert float(loss) == pytest.approx(np.mean([row["loss"] for row in history]), abs=5e-4)


@pytest.mark.parametrize("name", best.METHODS)
def test_what_careful_refuses(name):
    """Four hospitals with 19 columns; the third one has 30 rows, all of one class."""
    rng, method = np.random.default_rng(2), best.METHODS[name]
    databases = {}
    for k, n in enumerate((120, 100, 30, 80), start=1):
        y = rng.permutation(np.arange(n) % 2) if n > 30 else np.ones(n, int)
        databases[k] = pd.DataFrame(rng.normal(size=(n, 19)), columns=[f"x{i}" for i in range(19)]).assign(target=y)
    package = registry.package_of(method.package).__name__
    values = {**method.values(method.grid[0]), "preprocess": ["standardize"], "rounds": 2, "evaluate_every": 2}
    environment = {name: value for name, value in best.CAREFUL.items() if not name.endswith("AGGREGATION")}

    def run(environment):
        with MockNetwork(package, databases, environment=environment, on_round=lambda row: None) as network:
            network.run(**values, seed=1)

    if not method.refused:
        run(environment)
        return
    with pytest.raises(Exception, match=r"aggregation=masked|could not compute their part"):
        run(environment)
    if method.refused == "rows":
        with pytest.raises(Exception, match="V6_FEDERATED_MINIMUM_ROWS_A_COLUMN"):
            run(best.CAREFUL)
    else:
        run(best.CAREFUL)


# ---- survival, each method's best


@pytest.fixture(scope="module")
def times():
    """Six regions of 60 rows, of which a fifth have an event that comes sooner the larger the first column is."""
    rng = np.random.default_rng(2)
    parts = []
    for center in range(data.REGIONS):
        X = rng.normal(size=(60, 39)).round(2)
        time = rng.exponential(np.exp(5 - 2 * X[:, 0])).round(1) + 0.1
        event = (np.argsort(np.argsort(time)) < 12).astype(int)
        columns = {f"c{i}": X[:, i] for i in range(39)}
        fold = np.where(np.arange(60) % 3, "train", "test")
        parts.append(pd.DataFrame({"center": center, **columns, "fold": fold, "E": event, "T": time}))
    return datasets.Dataset("tcga_brca", pd.concat(parts, ignore_index=True))


def test_folds_of_survival_share_the_events_of_a_region(times):
    of = ours.survival(data.tcga(times.rows))
    parts = [best_survival.fold(of, f, 42) for f in range(best_survival.FOLDS)]
    for k in range(data.REGIONS):
        events = [int(part.test[k]["E"].sum()) for part in parts]
        assert max(events) - min(events) <= 1 and sum(events) == int(of.training[k]["E"].sum())
        seen = pd.concat([part.test[k] for part in parts]).sort_values(["T", "x0"]).reset_index(drop=True)
        assert seen.equals(of.training[k].sort_values(["T", "x0"]).reset_index(drop=True))
        assert all(len(part.test[k]) + len(part.training[k]) == len(of.training[k]) for part in parts)


def test_three_ways_to_count_pairs():
    """Regions a (rows 0 to 2) and b (rows 3 and 4), with times 1, 2, 3 and 1.5, 4; events in rows 0, 1 and 3.

    Pairs within a: 0 before 1 and 2, 1 before 2; within b: 3 before 4; across: 0 before 3 and 4, 1 before 4, 3 before
    1 and 2. By falling scores the order is 0, 2, 1, 4, 3: right are 0-1, 0-2 within a, 0-3, 0-4 and 1-4 across.
    """
    rows = [
        pd.DataFrame({"x": [0.0, 0, 0], "E": [1, 1, 0], "T": [1.0, 2, 3]}),
        pd.DataFrame({"x": [0.0, 0], "E": [1, 0], "T": [1.5, 4]}),
    ]
    pairs = best_survival.pairs_of(ours.Hospitals("", [], rows))
    s = np.array([5.0, 3, 4, 1, 2])
    assert pairs.shares(s) == pytest.approx(((2 / 3 + 0) / 2, 2 / 4, 5 / 9))
    assert pairs.shares(-s)[1] == pytest.approx(1 - 2 / 4) and pairs.shares(0 * s)[1] == 0.5
    # what a row moves the share by, times the number of pairs: row 0 is in two right ones, 1/2 above the share each
    assert pairs.influence(s) * 4 == pytest.approx([1, 0, 0, -0.5, -0.5])


def test_partial_likelihood_of_left_out_rows_is_within_regions():
    """Row 0 of region a among two, row 1 of region b among one: log(1 + e^-1) and 0, for two events."""
    test = [pd.DataFrame({"E": [1, 0], "T": [1.0, 2]}), pd.DataFrame({"E": [0, 1], "T": [1.0, 2]})]
    found = best_survival.unlikely([np.array([1.0, 0]), np.array([9.0, 0])], test)
    assert found == pytest.approx(np.log(1 + np.exp(-1)) / 2)


def test_a_search_and_what_careful_nodes_refuse(times, tmp_path, monkeypatch):
    """The seed of the search draws its folds; FLamby's minibatches, and regions of few events, are refused."""
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    of, method = ours.survival(data.tcga(times.rows)), best_survival.METHODS["FedSGD with momentum"]
    value = best_survival.searched(times, of, method, 42, False, None)
    assert value in method.grid and len([*tmp_path.rglob("*.json")]) == 1
    s = best_survival.finished(times, of, method, value, 42, False)
    assert best_survival.pairs_of(of).shares(s)[1] > 0.75
    fedavg = best_survival.METHODS["FedAvg"]
    with pytest.raises(Exception, match="fewer than 5 rows of a minibatch have the event"):
        ours.fitted(of, "fedavg", {**fedavg.values(0.1, whole=False), "batch_size": 10}, 42, best_survival.CAREFUL)
    assert ours.fitted(of, "fedavg", fedavg.values(0.1, whole=True), 42, best_survival.CAREFUL)["weights"]
    few = ours.Hospitals("few", [*of.training[:5], of.training[5].assign(E=[1, 1, *[0] * 38])], of.test)
    with pytest.raises(Exception, match="organization 6: fewer than 5 rows of this node have the event"):
        ours.fitted(few, "fedavg", fedavg.values(0.1, whole=True), 42, best_survival.CAREFUL)


@pytest.mark.parametrize(
    "name", [name for name, method in best_survival.METHODS.items() if method.refused == "aggregation"]
)
def test_careful_itself_refuses_what_the_page_says(times, name):
    """Without AGGREGATION=plain."""
    of, method = ours.survival(data.tcga(times.rows)), best_survival.METHODS[name]
    with pytest.raises(SafeError, match="V6_FEDERATED_AGGREGATION=plain"):
        ours.fitted(of, method.package, method.values(0.1, whole=True), 42, {"V6_FEDERATED_PROFILE": "careful"})


def test_a_job_that_ends_early_is_no_result(times):
    """As when a node refuses a later round: the weights of the round before would be taken for the method's."""
    of, method = ours.survival(data.tcga(times.rows)), best_survival.METHODS["FedSGD with momentum"]
    with pytest.raises(SafeError, match="fedavg ended early"):
        ours.fitted(of, "fedavg", method.values(1e6, whole=True), 42, best_survival.CAREFUL)
