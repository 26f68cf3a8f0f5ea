"""Wrong requests: each is refused in one line that says what is wrong and what is accepted."""

import json

import numpy as np
import pytest
from helpers import table

from v6_federated.base.vantage6_api import FIVE

RUN = ["run", "fedavg", "--data", "breast-cancer", "--rounds", "2"]
WINE = ["run", "fedavg", "--data", "wine"]
SIGNED = [*(("--auth", "http://a") if FIVE else ("--username", "u")), "--collaboration", "1", "--organization", "1"]
NEEDS = f"--server also needs {SIGNED[0]}, --collaboration, --organization"


@pytest.fixture
def folder(tmp_path):
    """A folder of files that cannot be used."""
    (tmp_path / "empty.csv").touch()
    for name in ("noise.npz", "noise.parquet", "table.xlsx"):
        (tmp_path / name).write_bytes(b"noise")
    part = {"history": [{"round": 1}], "settings": {"seed": 1}, "method": "fedavg", "final": None, "per_node": []}
    (tmp_path / "part.json").write_text(json.dumps(part))
    hole = table(30)
    hole.loc[3, "x1"] = np.nan
    hole.to_csv(tmp_path / "hole.csv", index=False)
    hole.assign(x1=np.inf).to_csv(tmp_path / "infinite.csv", index=False)
    (tmp_path / "long.csv").write_text("a,b,y\n" + "1,2,0,1\n2,1,1,0\n" * 20)
    X, y = np.ones((30, 3)), np.arange(30) % 2
    np.savez(tmp_path / "wide.npz", x_train=X, y_train=y, x_test=X[:, :2], y_test=y)
    np.savez(tmp_path / "inf.npz", x=X, y=np.where(y, np.inf, 0.0))
    table(30).assign(x0="Mr Smith").to_csv(tmp_path / "words.csv", index=False)
    return tmp_path


WORDS = [
    (["fly"], "invalid choice: 'fly'"),
    ([], "required: COMMAND"),
    (["run", "fedprox", "--data", "wine"], "unknown method 'fedprox'; expected one of "),
    ([*RUN, "--rounds", "many"], "'many' is not a whole number"),
    ([*RUN, "--seed", "-1"], "--seed: -1 is not a seed; expected a whole number from 0 to"),
    ([*RUN, "--seed", "99999999999999999999"], "--seed: 99999999999999999999 is not a seed"),
    ([*RUN, "--partition-seed", "-1"], "--partition-seed: -1 is not a seed"),
    ([*RUN, "--target", "1.2"], "--target 1.2 is out of range; expected an accuracy above 0 and up to 1"),
    ([*RUN, "--stop-at-target"], "--stop-at-target needs an accuracy to stop at; add for example --target 0.97"),
    (["run", "pca", "--data", "wine", "--target", "0.9"], "--target 0.9 is an accuracy, which pca does not have"),
    (["run", "pca", "--data", "wine", "--holdout", "0.7"], "--holdout 0.7 has no effect, since no model is trained"),
    (["compare", "pca", "pca:scale=true", "--data", "wine", "--holdout", "0"], "--holdout 0 has no effect, since no"),
    (["run", "pca", "--data", "wine", "--set", "evaluators=3"], "evaluators has no effect on pca, which trains no"),
    (["submit", "pca", "--rounds", "9", "--holdout", "0.7"], "holdout has no effect on pca, which trains no model"),
    (["submit", "pca", "--rounds", "9", "--target", "0.9"], "--target 0.9 is an accuracy, which pca does not have"),
    (
        ["submit", "gbdt", "--rounds", "9", "--target", "0.9", "--set", "objective=regression"],
        "--target 0.9 is an accuracy, which a number to predict does not have; remove it",
    ),
    ([*RUN, "--nodes", "0"], "--nodes 0 is too few; expected at least 1"),
    ([*RUN, "--cluster", "spark:x"], "--cluster 'spark:x' is not understood; expected dask:ADDRESS, for example dask:"),
    ([*RUN, "--cluster", "ray", "--processes", "2"], "--processes cannot be used with --cluster, which has its own"),
    ([*RUN, "--processes", "0"], "--processes 0 is too few; expected at least 1"),
    ([*RUN, "--processes", "1000000"], "--processes 1000000 is too many for this machine; expected 1 to "),
    (["network", "up", "--data", "wine", "--nodes", "0"], "--nodes 0 is too few; expected at least 1"),
    (["run", "coop", *RUN[2:], "--speeds", "inf"], "--speeds: 'inf' is not a number"),
    (["run", "coop", *RUN[2:], "--speeds", "0.5"], "--speeds 0.5 is too small; expected 1 or more"),
    ([*RUN, "--features", "[1]"], "--features [1] is not a list of names; expected a,b,c or a JSON list"),
    ([*RUN, "--features", ""], "--features '' is not a list of names; expected a,b,c or a JSON list"),
    (
        [*RUN, "--node-env", "FOO"],
        "--node-env 'FOO' is not understood; expected NAME=VALUE, or K:NAME=VALUE for node K",
    ),
    ([*RUN, "--node-env", "V6_FEDERATED_MINIMUM_ROW=1"], "--node-env: V6_FEDERATED_MINIMUM_ROW is not"),
    (
        [*RUN, "--node-env", "V6_FEDERATED_MINIMUM_ROWS=\N{SUPERSCRIPT TWO}"],
        "V6_FEDERATED_MINIMUM_ROWS must be a whole number",
    ),
    ([*RUN, "--node-env", "V6_FEDERATE_MINIMUM_ROWS=9"], "read no such variable; did you mean V6_FEDERATED_MINIMUM"),
    (["compare", *RUN[1:], "--node-env", "MINIMUM_ROWS=9"], "--node-env MINIMUM_ROWS: mock nodes read no such"),
    (
        ["network", "up", "--data", "wine", "--node-env", "2:V6_FEDERATED_MINIMUM_ROW=5"],
        "--node-env, node 2: V6_FEDERATED_MINIMUM_ROW is",
    ),
    (["network", "up", "--data", "wine", "--node-env", "9:A=5"], "there is no node 9; expected a node from 1 to 3"),
    (["network", "up", "--data", "wine", "--node-env", "2:A"], "'2:A' is not understood; expected NAME=VALUE, or K:"),
    (["network", "status", "--name", "Bad Name"], "network name 'Bad Name' is not accepted; expected up to 31"),
    (["submit", "fedavg", "--server", "http://x:99999", *SIGNED], "--server http://x:99999 is not an address"),
    (["submit", "fedavg", "--server", "http://x"], NEEDS),
]
SETTINGS = [
    ([*RUN, "--set", "lr"], "--set 'lr' is not of the form KEY=VALUE; expected for example lr=0.1"),
    ([*RUN, "--set", "seed=3"], "--set seed has an option of its own; use --seed"),
    ([*RUN, "--set", "target=0.3"], "--set target has an option of its own; use --target A --stop-at-target"),
    ([*RUN, "--set", "lr=0.1", "--set", "lr=0.2"], "--set lr is given twice; remove one"),
    ([*RUN, "--set", "nesterov=true"], "unknown setting 'nesterov'"),
    ([*RUN, "--set", "epochs=0"], "epochs=0"),
    ([*RUN, "--set", "epochs=1.5"], "epochs=1.5"),
    ([*RUN, "--set", "lr=-1"], "lr=-1"),
    ([*RUN, "--rounds", "0"], "rounds=0"),
    ([*RUN, "--holdout", "1"], "holdout=1.0"),
    ([*RUN, "--set", "fraction=1.5"], "fraction=1.5"),
    ([*RUN, "--set", "fraction=half"], "fraction='half'"),
    ([*RUN, "--set", "fraction=nan"], "fraction='nan'"),
    ([*RUN, "--set", "fraction=false"], "not true or false"),
    ([*RUN, "--set", "organizations=[]"], "organizations=[]"),
    ([*RUN, "--set", "classes=[0,0,1]"], "each once"),
    ([*RUN, "--set", "evaluate_every=99999999999999999999"], "evaluate_every=99999999999999999999"),
    ([*RUN, "--set", "proximal_mu=10", "--set", "batch_size=5"], "a penalty of 10 (proximal_mu and l2 together)"),
    ([*RUN, "--preprocess", "whiten"], "there is no step 'whiten'; the steps are missing_indicator, impute"),
    ([*RUN, "--preprocess", "impute:constant,value=1e400"], "from -1e+100 to 1e+100"),
    ([*RUN, "--preprocess", "clip:lower=1e101"], "from -1e+100 to 1e+100"),
    ([*RUN, "--model", "resnet"], "unknown model 'resnet'; expected one of logreg"),
    ([*RUN, "--model", "fnn:hidden=0"], "hidden=0 of the model fnn"),
    ([*RUN, "--model", "svm:l2=10", "--set", "batch_size=5"], "a penalty of 10 (proximal_mu and l2 together)"),
    ([*RUN, "--model", "cnn_garst"], "not a square image"),
    (["run", "fsvrg", "--data", "digits", "--rounds", "2", "--model", "cnn_reddy"], "cnn_reddy:dropout=0"),
    (["run", "fsvrg", "--data", "digits", "--rounds", "2", "--model", "cnn_cifar:crop=8"], "random distortions"),
    ([*RUN, "--set", "local_steps=3", "--set", "epochs=5"], "epochs=5 cannot be used with local_steps"),
]
DATA = [
    (["run", "fedavg", "--data", "nowhere.csv"], "no data 'nowhere.csv'; expected breast-cancer"),
    (["run", "fedavg", "--data", "{tmp}/empty.csv"], "empty.csv is empty; expected a file with rows"),
    (["run", "fedavg", "--data", "{tmp}"], "is a folder; expected a file: .csv"),
    (["run", "fedavg", "--data", "{tmp}/noise.npz"], "noise.npz cannot be read as .npz"),
    (["run", "fedavg", "--data", "{tmp}/noise.parquet"], "noise.parquet cannot be read as parquet"),
    (["run", "fedavg", "--data", "{tmp}/table.xlsx"], "table.xlsx cannot be read as excel"),
    (["run", "fedavg", "--data", "{tmp}/hole.csv"], "missing values in the column(s) x1; training needs complete"),
    (["run", "fedavg", "--data", "{tmp}/hole.csv"], "which fills them (--preprocess impute), or leave these columns"),
    (
        ["run", "fedavg", "--data", "{tmp}/infinite.csv"],
        "in the column(s) x1; correct them in the data, or leave these",
    ),
    (["run", "fedavg", "--data", "{tmp}/words.csv"], "the column(s) x0 hold values that are not numbers; add a step"),
    (["run", "fedavg", "--data", "{tmp}/words.csv"], "(--preprocess onehot), or leave these columns out (--exclude"),
    (["run", "fedavg", "--data", "{tmp}/long.csv"], "line 2 of long.csv has more fields than the first line"),
    (["run", "fedavg", "--data", "{tmp}/wide.npz"], "x_test and x_train differ in shape or type"),
    (["run", "fedavg", "--data", "{tmp}/inf.npz"], "y holds labels that are missing, infinite or of another type"),
    ([*RUN, "--label", "diagnosis"], "no label column 'diagnosis'; expected one of 'mean radius'"),
    ([*RUN, "--features", "mean radius,height"], "--features height: no such column; expected some of 'mean radius', "),
    ([*RUN, "--features", "height"], "'mean fractal dimension' and 21 more"),
    (
        [*WINE, "--partition", "column:magnesium", "--features", "alcohol,magnesium"],
        "--features magnesium: this column names the nodes (--partition); name another column",
    ),
    ([*WINE, "--partition", "column:ash", "--label", "ash"], "--label ash: this column names the nodes"),
    ([*RUN, "--features", "mean radius,mean radius"], "each once"),
    ([*RUN, "--label", "mean radius"], "expected a column with 2 to 20 classes"),
    (["run", "fedavg", "--data", "diabetes"], "objective=regression or glm with --set family=gaussian"),
    ([*RUN, "--nodes", "1000"], "569 rows are too few for 1000 nodes; use --nodes 569 or fewer"),
    ([*RUN, "--partition", "random"], "unknown partition 'random'; expected one of iid"),
    ([*WINE, "--partition", "alcohol"], "or column:alcohol if it is a column"),
    (
        [*WINE, "--partition", "classes:9"],
        "classes:9 is too many: the label has 3 classes; expected classes:1 to classes:3",
    ),
    ([*WINE, "--partition", "column:town"], "no column 'town' to tell the nodes apart; expected one of 'alcohol',"),
    ([*RUN, "--partition", "shards:1e9"], "the partition 'shards:1e9' is not understood; expected shards:NUMBER"),
    ([*RUN, "--partition", "shards:1000"], "569 rows are too few for 5 nodes with 1000 shards each"),
    ([*RUN, "--partition", "dirichlet:inf"], "the partition 'dirichlet:inf' is not understood"),
    ([*WINE, "--nodes", "100", "--partition", "sorted-unbalanced"], "cannot be cut into 200 pieces; use fewer nodes"),
]
FILES = [
    ([*RUN, "--out", "{tmp}/noise.npz"], "noise.npz is a file; expected a folder"),
    (["report", "{tmp}"], "result.json; expected a result.json that `v6-federated run --out DIR` wrote"),
    (["report", "{tmp}/part.json"], "part.json is not a result (organizations: it is missing); expected"),
    (["report", "{tmp}/noise.npz"], "noise.npz is not a result; expected a result.json"),
    (["export", "{tmp}", "--to", "m.npz"], "result.json; expected a result.json that"),
    (["predict", "{tmp}/table.xlsx", "--data", "wine", "--out", "{tmp}/p.csv"], "table.xlsx is not a model; expected"),
    (["predict", "{tmp}/no.npz", "--data", "wine", "--out", "{tmp}/p.csv"], "no file"),
    (["predict", "{tmp}/noise.npz", "--data", "wine", "--out", "{tmp}/p.csv"], "noise.npz"),
    (["predict", "{tmp}", "--data", "wine", "--out", "{tmp}/p.txt"], "p.txt is not a .csv; expected for example"),
    (["predict", "{tmp}", "--data", "wine", "--out", "/dev/fd/p.csv"], "cannot write to --out /dev/fd ("),
    ([*RUN, "--page", "/dev/fd/p.html"], "cannot write to --page /dev/fd ("),
    (["audit", "{tmp}/no"], "there is no file {tmp}/no"),
    (["limits", "{tmp}/no.yaml"], "{tmp}/no.yaml does not exist; check its name"),
    (["limits", "{tmp}"], "{tmp} is a folder; expected a file"),
    (["schema", "new", "{tmp}/hole.csv", "--out", "/dev/fd/s.json"], "/dev/fd/s.json does not exist"),
]


@pytest.mark.parametrize(("arguments", "says"), [*WORDS, *SETTINGS, *DATA, *FILES], ids=lambda value: str(value)[-40:])
def test_nonsense_is_refused_in_one_line(refused, folder, arguments, says):
    err = refused(says.replace("{tmp}", str(folder)), *[a.replace("{tmp}", str(folder)) for a in arguments])
    assert "Smith" not in err, "no value of a row"


def test_a_file_that_a_european_excel_wrote(tmp_path, refused):
    file = tmp_path / "rows.csv"
    file.write_text("a;b;y\n1,5;2.5;0\n2,5;3.5;1\n")
    refused("has numbers with decimal commas, and with points in column(s) b", "run", "fedavg", "--data", file)
    file.write_bytes("\N{LATIN SMALL LETTER A WITH DIAERESIS},y\n1,0\n2,1\n".encode("latin-1"))
    refused("is not in UTF-8; save it as CSV UTF-8", "run", "fedavg", "--data", file)


def test_a_refusal_of_a_node_is_status_1(call):
    status, _, err = call(*WINE, "--nodes", 30)
    assert status == 1 and len(err.strip().splitlines()) == 1
    assert "organizations 1, 2, 3" in err and "fewer than 10 rows" in err
    status, _, err = call(*RUN, "--node-env", "V6_FEDERATED_MAXIMUM_ROUNDS=1")
    assert status == 1 and "2 rounds are more than the 1" in err


EARLY = "early_stopping=3 needs holdout or evaluators"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "gbdt", "--data", "wine", "--holdout", "0", "--set", "early_stopping=3"],
        ["compare", "gbdt:early_stopping=3", "--data", "wine", "--holdout", "0"],
        ["submit", "gbdt", "--rounds", "9", "--holdout", "0", "--set", "early_stopping=3"],
    ],
)
def test_settings_that_do_not_fit_each_other(arguments, refused):
    refused(EARLY, *arguments)


def test_settings_of_a_resumed_task_are_checked_with_those_of_the_task(call, tmp_path, monkeypatch):
    """The earlier task may have had evaluators, so the server is asked first: here there is none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    submit = ["submit", "gbdt", "--rounds", "9", "--holdout", "0", "--set", "early_stopping=3", "--resume", "1"]
    status, _, err = call(*submit)
    assert status == 1 and "no network 'default' is running; start one with `v6-federated network up`" in err
