"""``--study`` and ``--schema`` of ``run`` and ``compare``, and what of it a resumed job needs."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import table

from v6_federated.masks import keys
from v6_federated.messages import codec
from v6_federated.rules.schema import Column, Schema
from v6_workbench.reporting.command import command_of
from v6_workbench.reporting.page import page
from v6_workbench.reporting.totals import of_totals

WINE = ["--data", "wine", "--preprocess", "standardize", "--rounds", 2]
CAREFUL = ["--node-env", "V6_FEDERATED_PROFILE=careful"]


@pytest.fixture
def rows(tmp_path):
    """A table with words, and the schema of it: a file each."""
    sex = np.where(np.arange(200) % 3, "f", "m")
    table(200).assign(sex=sex)[["sex", "x0", "x1", "label"]].to_csv(tmp_path / "rows.csv", index=False)
    numbers = (Column(name, "number", -10.0, 10.0) for name in ("x0", "x1"))
    schema = Schema((Column("sex", "words", levels=("f", "m", "x")), *numbers), "label", (0, 1), n=200)
    (tmp_path / "schema.json").write_text(schema.text())
    return tmp_path / "rows.csv", tmp_path / "schema.json"


@pytest.fixture
def result_of(call, tmp_path):
    """Runs a command that must succeed; returns the results that it wrote."""

    def result_of(*arguments):
        out = tmp_path / "out"
        status, _, err = call(*arguments, "--out", out)
        assert status == 0, err
        return [json.loads(file.read_text()) for file in sorted(out.rglob("result.json"))]

    return result_of


@pytest.mark.parametrize(
    ("nodes", "study", "blocks"),
    [
        (4, [], [[1, 2, 3, 4]]),
        (4, [2], [[1, 2], [3, 4]]),
        (5, [2], [[1, 2], [3, 4, 5]]),
        (10, [], [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]),
        (10, [10], [[*range(1, 11)]]),
    ],
)
def test_central_learns_sums_over_the_blocks(nodes, study, blocks, result_of):
    [result] = result_of("run", "fedavg", *WINE, "--nodes", nodes, "--holdout", 0, "--study", *study)
    assert result["settings"]["aggregation"] == result["privacy"]["aggregation"] == "pinned"
    assert result["privacy"]["blocks"] == blocks and not result["per_node"]
    [plain] = result_of("run", "fedavg", *WINE, "--nodes", nodes, "--holdout", 0)
    assert plain["privacy"]["aggregation"] == "plain"
    found, expected = (codec.decode(r["weights"])["weights"] for r in (result, plain))
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


def test_the_schema_takes_the_place_of_what_nodes_say_of_their_columns(rows, result_of, tmp_path):
    file, schema = rows
    run = ["run", "fedavg", "--data", file, "--nodes", 4, "--preprocess", "onehot", "--rounds", 1]
    [result] = result_of(*run, "--study", "--schema", schema, "--hospital-folder", tmp_path / "h")
    assert result["model"]["features"] == 5, "a column for the level x too, which is in no table"
    folders = sorted((tmp_path / "h").iterdir())
    assert [folder.name for folder in folders] == ["node-1", "node-2", "node-3", "node-4"]
    declared = Schema.of_file(schema)
    assert all(Schema.of_folder(folder).shared_digest == declared.shared_digest for folder in folders)
    link = tmp_path / "link.json"
    link.symlink_to(schema)
    assert result_of(*run, "--study", "--schema", link)[0]["model"]["features"] == 5


@pytest.mark.parametrize("word", ["told", "hidden"])
def test_a_study_says_whether_sums_may_tell_totals_of_single_hospitals(word, call, tmp_path):
    run = ["run", "glm", "--data", "diabetes", "--nodes", 4, "--set", "family=gaussian", "--study"]
    status, _, err = call(*run, "--hospital-totals", word, "--out", tmp_path)
    assert status == 0, err
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["privacy"]["hospital_totals"] == word and f"(hospital_totals={word})" in of_totals(result["privacy"])
    assert ("--hospital-totals hidden" in command_of(result)) == (word == "hidden")
    assert f"(hospital_totals={word})" in page({"": result})


def test_a_study_on_this_machine_tells_totals_unless_it_is_asked_not_to(result_of):
    [result] = result_of("run", "fedavg", *WINE, "--nodes", 4, "--study", "--set", "epochs=2")
    assert result["privacy"]["hospital_totals"] == "told"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fedavg", "--set", "epochs=2"], "a model is no sum over rows; use fedavg with one step a round on all rows"),
        (["fedavg", "--set", "batch_size=20", "--set", "local_steps=1"], "epochs=1, without local_steps, batch_size"),
        (["scaffold"], "each hospital counts the same, whatever its rows; use fedavg with one step a round"),
        (["fsvrg"], "after a pass over its rows a hospital's model is no sum over them; use fedavg with one step"),
        (["colearning"], "its rounds take more and more local steps; use fedavg with one step"),
    ],
    ids=str,
)
def test_what_tells_totals_is_refused_before_a_sum_and_the_refusal_names_what_serves(words, says, call):
    rows = ["--data", "wine", "--nodes", 4, "--rounds", 2, "--study", "--hospital-totals", "hidden"]
    status, _, err = call("run", *words, *rows)
    assert status == 2 and "a study that hides totals of single hospitals (hospital_totals=hidden)" in err
    assert says in err and "round" not in err.split("hidden)")[0]


def test_hospitals_keep_their_keys_from_run_to_run(result_of, refused, tmp_path):
    folder = tmp_path / "h"
    run = ["run", "fedavg", *WINE, "--nodes", 4, "--hospital-folder", folder]
    result_of(*run, "--study")
    before = {k: keys.public_of(keys.identity(folder / f"node-{k}")) for k in range(1, 5)}
    [result] = result_of(*run, "--study", 2)
    assert result["privacy"]["blocks"] == [[1, 2], [3, 4]]
    assert before == {k: keys.public_of(keys.identity(folder / f"node-{k}")) for k in range(1, 5)}
    [result] = result_of(*run, "--set", "aggregation=pinned")
    assert result["privacy"]["blocks"] == [[1, 2], [3, 4]], "the study that they have accepted last"
    [result] = result_of(*run)
    assert result["privacy"]["aggregation"] == "plain", "nodes of a developer require no study"
    more = ["--nodes", 5, "--hospital-folder", folder, "--study"]
    assert "the sums of this study would show" in _last_line(refused, "run", "fedavg", *WINE, *more)


def _last_line(refused, *arguments):
    return refused("5 alone, and a group must have at least 2 hospitals", *arguments)


def test_a_test_set_is_no_hospital(result_of, tmp_path):
    rows = table(240)
    X, y = rows.iloc[:, :-1].to_numpy(), rows["label"].to_numpy()
    np.savez(tmp_path / "d.npz", x_train=X[:200], y_train=y[:200], x_test=X[200:], y_test=y[200:])
    run = ["run", "fedavg", "--data", tmp_path / "d.npz", "--nodes", 4, "--rounds", 2]
    for policy in ([], CAREFUL, ["--node-env", "V6_FEDERATED_AGGREGATION=pinned"]):
        [result] = result_of(*run, "--study", *policy)
        assert result["privacy"]["blocks"] == [[1, 2, 3, 4]] and result["final"]["evaluated"] == 40
    [result] = result_of(*run, *CAREFUL)
    assert result["privacy"]["aggregation"] == "masked" and result["final"]["evaluated"] == 40


def test_a_resumed_job_needs_the_study_again(call, refused, tmp_path):
    run = ["run", "fedavg", "--data", "wine", "--nodes", 4, "--preprocess", "standardize", "--rounds"]
    assert call(*run, 2, "--study", "--out", tmp_path)[0] == 0
    refused("aggregation=pinned needs a study", *run, 3, "--resume", tmp_path)
    status, _, err = call(*run, 3, "--study", "--resume", tmp_path, "--out", tmp_path / "more")
    assert status == 0, err
    result = json.loads((tmp_path / "more" / "result.json").read_text())
    assert len(result["history"]) == 3 and result["privacy"]["aggregation"] == "pinned"
    assert call(*run, 3, "--set", "aggregation=plain", "--resume", tmp_path)[0] == 0


@pytest.mark.parametrize("study", [["--study"], ["--study", 4], []])
def test_baselines_are_plain_under_careful(study, result_of):
    """They have one node, which is in no study; the others are where each node requires it."""
    entries = ["fedavg", "centralized:fedavg", "alone:fedavg"]
    results = result_of("compare", *entries, *WINE, "--nodes", 4, *CAREFUL, *study)
    modes = [result["privacy"]["aggregation"] for result in results]
    assert modes == ["pinned" if study else "masked", *["plain"] * 5]


def test_a_baseline_has_no_schema(rows, result_of):
    file, schema = rows
    options = ["--data", file, "--nodes", 4, "--preprocess", "onehot", "--rounds", 1, *CAREFUL]
    federated, pooled = result_of("compare", "fedavg", "centralized:fedavg", *options, "--study", "--schema", schema)
    assert (federated["model"]["features"], pooled["model"]["features"]) == (5, 4)


def test_an_entry_may_be_plain_in_a_study(result_of, refused):
    rows = [*WINE, "--nodes", 4, "--study"]
    pinned, plain = result_of("compare", "fedavg", "coop:aggregation=plain", *rows)
    assert [r["privacy"]["aggregation"] for r in (pinned, plain)] == ["pinned", "plain"]
    refused("coop needs aggregation=plain: each answer moves the model when it comes", "compare", "coop", *rows)


def test_folds_are_compared_in_a_study(call, tmp_path):
    """The node that holds the fold is no hospital; scores without a study are other scores."""
    compare = ["compare", "fedavg", "centralized:fedavg", *WINE, "--nodes", 4, "--test", "--folds", 2, *CAREFUL]
    for study in ([], ["--study"], ["--study", 4]):
        status, _, err = call(*compare, *study, "--out", tmp_path)
        assert status == 0, err
        assert ("2 of the 4 scores are already in" in err) == bool(study), "those of the baseline"
    status, _, err = call(*compare, "--study", "--out", tmp_path)
    assert status == 0 and "4 of the 4 scores are already in" in err


SMALL = ["run", "fedavg", "--data", "wine", "--rounds", "1", "--nodes", "4"]
MISTAKES = [
    ([*SMALL, "--schema", "{schema}"], "--schema {schema} needs a study, which carries the schema; add --study"),
    ([*SMALL, "--study", "--schema", "no.json"], "--schema no.json: there is no such file; `v6-federated schema new"),
    ([*SMALL, "--study", "--schema", "{tmp}"], "--schema {tmp} is a folder; expected a file, such as schema.json"),
    ([*SMALL, "--study", "--schema", "{rows}"], "--schema: rows.csv: "),
    ([*SMALL, "--hospital-totals", "told"], "--hospital-totals told needs a study, which says so; add --study"),
    ([*SMALL, "--study", "--hospital-totals", "no"], "--hospital-totals no is not understood; expected told or hidden"),
    ([*SMALL, "--study", "1"], "'1' is not the size of a block; expected a whole number from 2"),
    ([*SMALL, "--study", "many"], "'many' is not the size of a block; expected a whole number from 2"),
    (["compare", "--study", *SMALL[1:]], "'fedavg' is not the size of a block; expected a whole number from 2, or"),
    ([*SMALL, "--study", "5"], "blocks of 5 hospitals do not fit; expected 2 to 4, since there are 4 nodes"),
    ([*SMALL[:-1], "1", "--study"], "1 node(s) are too few for a study, whose blocks need 2 hospitals"),
    ([*SMALL[:-1], "2", "--study", *CAREFUL], "2 node(s) are too few for a study, whose blocks need 3 (V6_FEDERATED_"),
    (
        [*SMALL, "--study", "--node-env", "2:V6_FEDERATED_MINIMUM_ORGANIZATIONS=4"],
        "whose blocks need 5 (V6_FEDERATED_MINIMUM_ORGANIZATIONS=4 and one that may work together with the server)",
    ),
    (["run", "coop", *SMALL[2:], "--study"], "coop needs aggregation=plain: each answer moves the model when it comes"),
    (
        [*SMALL, "--set", "aggregation=pinned"],
        "aggregation=pinned needs a study that the nodes have accepted; add --st",
    ),
    (["compare", "fedavg:aggregation=pinned", *SMALL[2:]], "fedavg:aggregation=pinned: aggregation=pinned needs a st"),
    (["compare", "centralized:fedavg:aggregation=masked", *SMALL[2:]], "a baseline has one node, whose answers are pl"),
]


@pytest.mark.parametrize(("arguments", "says"), MISTAKES, ids=lambda value: str(value)[-40:])
def test_a_mistake_is_one_line_before_anything_is_trained(arguments, says, rows, refused, trained, tmp_path):
    places = {"{schema}": str(rows[1]), "{rows}": str(rows[0]), "{tmp}": str(tmp_path)}
    for place, real in places.items():
        says, arguments = says.replace(place, real), [a.replace(place, real) for a in arguments]
    refused(says, *arguments)
    assert not trained


def test_a_schema_of_other_tables_is_a_refusal_of_the_nodes(rows, call):
    status, _, err = call(*SMALL, "--study", "--schema", rows[1], "--preprocess", "onehot")
    [line] = err.splitlines()
    assert status == 1 and "no column" in line and "sex" in line


def test_help_says_what_a_study_is_for(capsys):
    from v6_workbench.cli.main import main

    for command in (["run"], ["compare"], ["network", "up"]):
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        shown = " ".join(capsys.readouterr().out.split())
        assert "--study [SIZE]" in shown and "central learns sums over blocks of hospitals only" in shown
        assert "--schema FILE" in shown and "--node-env [K:]NAME=VALUE" in shown


def test_each_file_is_a_hospital_of_the_study(result_of, tmp_path):
    data = []
    for k, name in enumerate(("north", "south", "west")):
        table(40, seed=k).to_csv(tmp_path / f"{name}.csv", index=False)
        data += ["--data", tmp_path / f"{name}.csv"]
    assert pd.read_csv(data[1]).shape == (40, 5)
    [result] = result_of("run", "scaffold", *data, "--rounds", 2, "--study")
    assert result["experiment"]["nodes"] == ["north", "south", "west"] and result["privacy"]["blocks"] == [[1, 2, 3]]
