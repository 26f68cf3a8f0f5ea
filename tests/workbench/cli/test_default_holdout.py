"""Each method's own share of held-out rows, where nobody names one; and what needs rows that are held out."""

import numpy as np
import pandas as pd
import pytest

from v6_federated.base.errors import SafeError
from v6_workbench import Experiment, load


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=240)
    time = rng.exponential(np.exp(-x)).round(1) + 0.1
    ill = (x + rng.logistic(size=240) > 0).astype(int)
    count = 1 + rng.poisson(np.exp(0.3 * x))
    return pd.DataFrame({"x": x, "dead": rng.integers(0, 2, 240), "count": count, "time": time, "ill": ill})


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    file = tmp_path_factory.mktemp("rows") / "rows.csv"
    rows.to_csv(file, index=False)
    return ["--data", file, "--nodes", 2, "--label", "ill"]


@pytest.mark.parametrize(("holdout", "trained"), [(None, 240), (0.25, 180)])
def test_regressions_use_all_rows_unless_someone_holds_some_out(rows, holdout, trained):
    experiment = Experiment(load(rows), nodes=2, holdout=holdout)
    assert experiment.federated("glm")["n"] == trained
    if holdout is None:
        assert Experiment(load(rows), nodes=2, label="time").federated("cox", event="dead")["n"] == 240


def test_other_methods_hold_out_a_fifth(rows):
    experiment = Experiment(load(rows), nodes=2)
    federated = experiment.federated("fedavg", rounds=1)
    assert federated["settings"]["holdout"] == 0.2
    assert federated["final"]["evaluated"] == len(experiment.train_and_test()[1])


def test_a_baseline_of_glm_asks_for_held_out_rows(rows):
    with pytest.raises(SafeError, match="no rows are held out to compare on; expected --holdout above 0, such as 0.2"):
        Experiment(load(rows), nodes=2).centralized("glm")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "glm", "glm:link=probit"], "by default glm holds out no rows; compare needs rows that all"),
        (
            ["compare", "glm", "fedavg"],
            "by default glm holds out no rows and fedavg holds out 0.2 of the rows; compare",
        ),
        (["tune", "glm", "--grid", "link=logit,probit"], "by default glm holds out no rows; tune needs"),
        (
            ["run", "glm", "--repeats", 3],
            "--repeats needs rows that all methods hold out: add for example --holdout 0.2",
        ),
        (["run", "glm", "--repeats", 3, "--holdout", 0], "--holdout 0 holds out no rows, and --repeats needs some"),
    ],
)
def test_comparisons_of_glm_ask_for_held_out_rows(refused, data, words, says):
    refused(says, *words, *data)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "cox"], "cox evaluates no model, so compare has nothing to compare; use `v6-federated run cox`"),
        (["compare", "cox", "--test"], "cox evaluates no model, so compare"),
        (["tune", "cox", "--grid", "ties=efron,breslow"], "cox evaluates no model, so tune"),
        (
            ["run", "cox", "--repeats", 3],
            "cox evaluates no model, so --repeats has nothing to compare; remove --repeats",
        ),
    ],
)
def test_cox_cannot_be_compared(refused, data, words, says):
    refused(says, *words, *data[:-1], "time", "--set", "event=dead")


def test_glm_is_compared_on_the_rows_that_are_held_out_and_on_folds(call, data):
    status, last, _ = call("compare", "glm", "glm:link=probit", *data, "--holdout", 0.25)
    assert status == 0 and last["glm"]["accuracy"] > 0.5
    assert call("compare", "glm", "glm:link=probit", *data, "--test", "--folds", 2)[0] == 0


@pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma"])
def test_glm_of_numbers_is_compared_and_tuned(call, data, family):
    words = [*data[:-1], "count", "--features", "x", "--holdout", 0.25]
    status, last, err = call("compare", f"glm:family={family}", "centralized:glm:family=gaussian", *words)
    assert status == 0 and len(last) == 2, err
    status, last, err = call("tune", "glm", "--set", f"family={family}", "--grid", "l2=0.01,1", *words)
    assert status == 0 and last["tries"] == 2, err


def test_tune_scores_on_training_rows_although_there_is_a_test_set(call, refused, trained, rows, tmp_path):
    """The test set judges the model that is chosen, so the tries need rows of their own that are held out."""
    X, y = rows[["x"]].to_numpy(np.float32), rows["ill"].to_numpy()
    np.savez(tmp_path / "rows.npz", x_train=X[:180], y_train=y[:180], x_test=X[180:], y_test=y[180:])
    words = ["tune", "glm", "--data", tmp_path / "rows.npz", "--nodes", 3, "--grid", "l2=0.01,1"]
    refused("by default glm holds out no rows; tune needs rows that all methods hold out: add for example", *words)
    refused("no rows are held out to compare on; expected --holdout above 0", *words, "--holdout", 0)
    fedavg = ["tune", "fedavg", *words[2:-1], "lr=0.1,1"]
    refused("no rows are held out to compare on; expected --holdout above 0", *fedavg, "--holdout", 0)
    assert not trained
    for more in (["--holdout", 0.2], ["--folds", 3]):
        status, last, err = call(*words, *more)
        assert status == 0 and last["tries"] == 2, err
    assert call(*fedavg)[0] == 0
