"""A job is described by the same options wherever it runs: on mock nodes, on a network of this machine, on a server."""

from dataclasses import fields

import pytest
from helpers import table

from v6_federated.base.errors import SafeError
from v6_workbench.cli.commands.compare import CompareOptions
from v6_workbench.cli.commands.network import UpOptions
from v6_workbench.cli.commands.run import RunOptions
from v6_workbench.cli.commands.submit import SubmitOptions
from v6_workbench.cli.options import ColumnOptions, DealOptions, JobOptions, ServerOptions


def options(record) -> dict[str, object]:
    """The options of a command and their forms."""
    return {field.name: field.type for field in fields(record)}


# options that not all of these commands have, and why
OWN = {
    "method": "which method",
    "methods": "which methods compare trains",
    "out": "where a command writes",
    "page": "what a command shows of one job while it runs; compare has several",
    "resume": "an earlier result, of which compare has several",
    "test": "compare alone tests",
    "folds": "compare alone tests",
    "rope": "compare alone tests",
    "repeats": "submit refuses it with a reason: hospitals hold out the same rows in every job",
}
SIMULATED = {
    "speeds": "a real network takes the time that it takes",
    "processes": "containers are processes of their own",
    "cluster": "the nodes are where they are",
    "hospital_folder": "each node of a network has its own",
}
SENT = {
    **dict.fromkeys(options(ServerOptions), "which server, and who asks"),
    "image": "simulated nodes run the installed method",
    "organization": "on this machine central runs here",
    "database": "simulated nodes have one database",
    "query": "simulated nodes have tables",
}
STARTED = {
    "name": "which network",
    "port": "where it listens",
    "profile": "run has it as --node-env V6_FEDERATED_PROFILE=careful",
    "encrypted": "nothing leaves this machine in run",
}


def test_submit_has_every_option_of_run_that_describes_data_or_training():
    run, sent = options(RunOptions), options(SubmitOptions)
    dealt = {*options(DealOptions)}  # the hospitals' own rows are there already: ``network up`` has these options
    assert {*run} - dealt - {*SIMULATED} - {*OWN} == {*sent} - {*SENT} - {*OWN} == {*options(JobOptions)}
    assert all(run[name] == sent[name] for name in options(JobOptions))


def test_no_exception_is_of_an_option_that_is_gone():
    there = set().union(*map(options, (RunOptions, SubmitOptions, CompareOptions, UpOptions)))
    assert {*OWN, *SIMULATED, *SENT, *STARTED} <= there


def test_compare_has_the_options_of_run():
    assert {*options(CompareOptions)} - {*OWN} == {*options(RunOptions)} - {*OWN}


def test_network_up_has_every_option_of_run_that_describes_data():
    up = options(UpOptions)
    assert {*up} - {*STARTED} == {*options(DealOptions), *options(ColumnOptions)}
    assert {*options(DealOptions), *options(ColumnOptions)} <= {*options(RunOptions)}


@pytest.mark.parametrize("command", [RunOptions, SubmitOptions, UpOptions])
def test_the_partition_has_one_name_everywhere(command, call):
    words = {RunOptions: ["run"], SubmitOptions: ["submit"], UpOptions: ["network", "up"]}[command]
    shown = call(*words, "--help")[1]
    assert "--split" not in shown and ("--partition P" in shown) == (command is not SubmitOptions)


def test_excluded_columns_do_not_reach_the_nodes_of_a_network(tmp_path, call, monkeypatch):
    from v6_workbench.network import local

    files = []

    def up_with(given, **_):
        files.extend(file.read_text() for file in given)
        raise SafeError("no Docker in this test")

    monkeypatch.setattr(local, "up", up_with)
    rows = "hospital,name,age,ill\n" + "a,x,1,0\nb,y,2,1\n" * 20
    (tmp_path / "rows.csv").write_text(rows)
    up = ["network", "up", "--data", tmp_path / "rows.csv", "--partition", "column:hospital"]
    assert "no Docker" in call(*up, "--exclude", "name")[2]
    assert [text.partition("\n")[0] for text in files] == ["age,ill", "age,ill"]
    status, _, err = call(*up, "--exclude", "nam")
    assert status == 2 and "--exclude nam: no such feature; expected some of 'name', 'age'" in err
    status, _, err = call(*up, "--features", "age", "--exclude", "name")
    assert status == 2 and "--exclude cannot be used with --features" in err


@pytest.mark.parametrize("option", ["--features", "--exclude"])
def test_a_name_with_a_comma_is_written_in_a_json_list(option, call, refused, tmp_path):
    rows = table(80).rename(columns={"x1": "size, cm"})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    run = ["run", "fedavg", "--data", tmp_path / "rows.csv", "--nodes", 2, "--rounds", 1, option]
    said = refused(f"{option} size, cm: no such ", *run, "size, cm")
    _, _, hint = said.partition("; name columns with a comma in a JSON list: ")
    assert hint == f"""{option} '["size, cm"]'"""
    assert call(*run, '["size, cm"]')[0] == 0
    assert "JSON list" not in refused(f"{option} height: no such ", *run, "height")
