"""Rows in memory: DataFrames, arrays, and those of each hospital."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers import table

from v6_federated.base.errors import SafeError
from v6_workbench import Dataset, Experiment, MockNetwork, load

X, y = np.arange(24.0).reshape(12, 2), np.arange(12) % 2
LEVELS = pd.DataFrame(np.c_[X[:, 0], y], columns=pd.MultiIndex.from_product([["a"], ["x", "y"]]))


def test_a_table_stays_as_it_is():
    rows = table(40)
    rows.index = rows.index[::-1]
    before = rows.copy()
    dataset = load(rows, name="mine")
    assert dataset.name == "mine" and len(dataset) == 40 and list(dataset.rows) == list(rows)
    assert Experiment(dataset, nodes=2).federated("fedavg", rounds=1)["experiment"]["rows"] == [20, 20]
    pd.testing.assert_frame_equal(rows, before)


def test_columns_that_are_numbers_get_texts_as_names():
    dataset = load(pd.DataFrame(np.c_[X, y]))
    assert list(dataset.rows) == ["0", "1", "2"]


def test_labels_that_are_given_apart_are_the_last_column():
    features = pd.DataFrame(X, columns=["a", "b"])
    assert load(features, pd.Series(y, name="ill")).rows.to_dict("list") == {
        "a": [*X[:, 0]],
        "b": [*X[:, 1]],
        "ill": [*y],
    }
    assert list(load(features, y).rows) == ["a", "b", "label"] and list(features) == ["a", "b"]
    labelled = pd.Series(y, index=range(100, 112))  # another index than the features': rows are matched by position
    assert load(features, labelled).rows["label"].tolist() == [*y]


@pytest.mark.parametrize("data", [(X, y), ((X, y),), (X.tolist(), y.tolist())])
def test_arrays(data):
    dataset = load(*data)
    assert (dataset.rows[0] == X).all() and (dataset.rows[1] == y).all() and dataset.name == "rows"


def test_tables_of_other_libraries():
    assert load(pa.Table.from_pandas(table(30))).rows.equals(table(30))


def test_names_and_paths(tmp_path):
    table(30).to_csv(tmp_path / "ward.csv", index=False)
    assert load("wine").name == "wine" and load(tmp_path / "ward.csv").name == load(str(tmp_path / "ward.csv")).name
    assert load("wine", name="mine").name == "mine"


# ---- hospitals


def test_hospitals_are_nodes():
    parts = {"north": table(30, seed=1), "south": table(40, seed=2)[["label", "x3", "x2", "x1", "x0"]]}
    experiment = Experiment(load(parts), label="label", seed=1)
    named = experiment.named()
    assert {name: len(rows) for name, rows in named.items()} == {"north": 30, "south": 40}
    assert named["south"].equals(parts["south"][[*parts["north"]]]), "in the order of the first"
    result = experiment.federated("fedavg", rounds=1)
    assert result["experiment"]["nodes"] == ["north", "south"]
    assert result["experiment"]["partition"] == "rows of each node"
    assert experiment.alone("fedavg", organization="south", rounds=1)["experiment"]["trained"] == "alone: south"
    other = Experiment(load(parts), label="label", partition="iid", nodes=3)
    assert len(other.named()) == 3


def test_a_list_of_hospitals_is_numbered():
    assert list(Experiment(load([table(30), table(20)])).named()) == ["1", "2"]
    arrays = Experiment(load([(X, y), (X[:4], y[:4])])).deal()
    assert [len(rows[1]) for rows in arrays.values()] == [12, 4]


def test_hospitals_stay_hospitals_in_every_fold():
    parts = {"north": table(31, seed=1), "south": table(40, seed=2)}
    for f in range(3):
        experiment = Experiment(load(parts), fold=(f, 3))
        assert list(experiment.named()) == ["north", "south"]
        assert sum(len(rows) for rows in experiment.named().values()) + len(experiment.test) == 71 // 3 * 3


# ---- refused, in one line that quotes no value


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((X, y[:-1]), "rows: X has 12 rows, but y has 11; expected as many labels as rows"),
        (((X, y[:-1]),), "rows: X has 12 rows, but y has 11; expected as many labels as rows"),
        ((pd.DataFrame(X), y[:-1]), r"rows: X has 12 rows, but y has the shape \(11,\); expected as many labels"),
        ((X[:, 0], y), r"rows: X has the shape \(12,\) and y \(12,\); expected X \(n, ...\) and y \(n,\)"),
        ((X, np.c_[y, y]), r"y \(12, 2\); expected X"),
        ((X + 1j, y), "rows: X hold complex numbers; expected real numbers"),
        ((X, y + 0j), "rows: y hold complex numbers"),
        (
            (pd.DataFrame({"a": [1j, 2], "b": [1, 2]}),),
            r"the column\(s\) a hold complex numbers; expected numbers or words",
        ),
        (
            (pd.DataFrame(),),
            r"rows holds 0 rows of 0 column\(s\); expected rows of two columns or more, one of them the",
        ),
        ((pd.DataFrame({"a": [1, 2]}),), r"rows holds 2 rows of 1 column\(s\)"),
        ((pd.DataFrame({"a": [], "b": []}),), r"rows holds 0 rows of 2 column\(s\)"),
        ((X[:0], y[:0]), "rows holds 0 rows; expected rows$"),
        ((pd.DataFrame(X, columns=["a", "a"]),), r"rows has the column\(s\) a more than once"),
        (
            (pd.DataFrame(X, columns=["a", "y"]), pd.Series(y, name="y")),
            "X has a column y already, which y is called too",
        ),
        (
            (LEVELS,),
            r"rows: each column has 2 names \(a MultiIndex\); expected one each, for example by table.columns =",
        ),
        ((LEVELS, y), "rows: each column has 2 names"),
        (({"a": LEVELS, "b": LEVELS},), "the hospital a: each column has 2 names"),
        ((X,), r"the data are a ndarray without labels; expected load\(table\), load\(X, y\), or the path of a file"),
        ((None,), "the data are a NoneType without labels"),
        (({},), "there are no hospitals; expected the rows of at least one"),
        (({"a": table(20), "b": table(20).assign(z=1)},), r"the hospitals a and b do not both have the column\(s\) z"),
        (({"a": table(20), "b": (X, y)},), "the hospitals a and b are of different kinds"),
        (({"a": table(20), "b": (X, y[1:])},), "the hospital b: X has 12 rows, but y has 11"),
        (({"a": table(20), "b": pd.DataFrame()},), "the hospital b holds 0 rows"),
        (("wine", y), "y is given with the name of data that have a label"),
        (("nowhere.csv",), "no data 'nowhere.csv'"),
    ],
)
def test_what_is_refused(data, says):
    with pytest.raises(SafeError, match=says) as error:
        load(*data)
    assert "\n" not in str(error.value)


def test_the_cure_for_several_names_a_column_works():
    table = LEVELS.copy()
    table.columns = ["_".join(map(str, names)) for names in table.columns]
    assert list(load(table).rows.columns) == ["a_x", "a_y"]


@pytest.mark.parametrize("name", ["nodes", "processes", "seed", "partition_seed"])
@pytest.mark.parametrize("value", [2.5, "3", True, float("nan"), [3]])
def test_a_number_that_is_not_whole_is_refused(name, value):
    """It was cut off, or failed far from where it was given."""
    with pytest.raises(SafeError, match=rf"{name}=.* is no whole number; expected one, for example {name}=") as refusal:
        Experiment(load(table(40)), **{name: value})
    assert "\n" not in str(refusal.value)


def test_whole_numbers_of_any_type_are_python_integers():
    for value in (2, 2.0, np.int64(2), np.float32(2)):
        experiment = Experiment(load(table(40)), nodes=value, seed=value)
        assert type(experiment.nodes) is type(experiment.seed) is int and len(experiment.named()) == 2
    with pytest.raises(SafeError, match="fold=1.5 is no whole number"):
        Experiment(load(table(40)), fold=(1.5, 3))
    with pytest.raises(SafeError, match="processes=1.5 is no whole number"):
        MockNetwork("v6_fedavg", {1: table(40)}, processes=1.5)


@pytest.mark.parametrize("name", ["rounds", "batch_size", "epochs", "evaluate_every"])
def test_a_setting_that_is_not_whole_is_refused(name):
    with pytest.raises(SafeError, match=f"{name}=2.5 is refused: it should be a valid integer"):
        Experiment(load(table(40)), nodes=2).federated("fedavg", **{"rounds": 1, name: 2.5})


def test_networks_and_datasets_refuse_the_same():
    with pytest.raises(SafeError, match="the rows of organization 2: X has 12 rows, but y has 11; expected as many"):
        MockNetwork("v6_fedavg", {1: (X, y), 2: (X, y[1:])})
    with pytest.raises(SafeError, match="the rows: X has 12 rows, but y has 11"):
        Dataset("rows", (X, y[1:]))
    with pytest.raises(SafeError, match=r"the rows are a ndarray; expected a DataFrame, or arrays \(X, y\)"):
        Dataset("rows", X)
    with pytest.raises(SafeError, match=r"expected load\(table\), load\(X, y\) or load"):
        Experiment(table(20))


def test_what_a_notebook_shows_of_data_are_names_and_numbers():
    rows = pd.DataFrame({"age": np.arange(12) + 0.4321, "sex": "sextext", "ill": y})
    dataset = load({"north": rows[:8], "south": rows[8:]}, name="mine")
    shown = "<Dataset: mine; 12 rows; 3 columns: age, sex, ill; hospitals: north, south>"
    assert repr(dataset) == str(dataset) == shown
    assert repr(load(X, y)) == "<Dataset: rows; 12 rows; features of the shape 2>"
    experiment = Experiment(dataset, seed=3, label="ill", environment={"V6_FEDERATED_SECRET": "0123456789abcdef" * 4})
    assert repr(experiment) == "<Experiment: mine; 2 nodes: north (8 rows), south (4 rows); label ill; seed 3>"
    assert repr(Experiment(dataset, partition="column:nobody")) == (
        "<Experiment: mine; rows that cannot be dealt; seed 0>"
    )
    assert not hasattr(dataset, "_repr_html_") and not hasattr(experiment, "_repr_html_")


def test_rounds_are_those_of_the_command_line_unless_they_are_named():
    experiment = Experiment(load(table(40)), nodes=2)
    assert len(experiment.federated("fedavg", lr=0.5)["history"]) == 10
    assert len(experiment.centralized("fedavg")["history"]) == len(experiment.alone("fedavg")["history"]) == 10
    assert len(experiment.federated("fedavg", {"rounds": 2})["history"]) == 2
    assert experiment.federated("glm", family="gaussian")["settings"]["rounds"] == 25


def test_a_folder_is_a_path_or_a_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Experiment(load(table(40)), nodes=2, hospital_folder="x").federated("fedavg", rounds=1)
    assert (tmp_path / "x" / "node-2").is_dir()
    with MockNetwork(
        "v6_fedavg", {1: table(40)}, environment={"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "1"}, hospital_folder="y"
    ):
        assert (tmp_path / "y" / "node-1").is_dir()
