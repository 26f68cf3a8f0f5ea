"""``network up`` up to the start of containers, which needs Docker: limits, studies and files of the nodes."""

import json

import numpy as np
import pytest
from docker.errors import APIError
from helpers import table

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import FIVE
from v6_federated.masks import keys
from v6_federated.masks import study as pinned
from v6_federated.rules.hospital import SECRET
from v6_federated.rules.schema import Column, Schema
from v6_workbench.cli.main import main
from v6_workbench.errors import NetworkError
from v6_workbench.network import docker_engine, images, local
from v6_workbench.network.local import Network
from v6_workbench.simulation.studies import StudyPlan

PINNED = {"V6_FEDERATED_AGGREGATION": "pinned"}
CAREFUL = {"V6_FEDERATED_PROFILE": "careful"}
SCHEMA = Schema(tuple(Column(f"x{i}", "number", -10.0, 10.0) for i in range(4)), "label", (0, 1))
four = pytest.mark.skipif(FIVE, reason="no studies in vantage6 5, whose tasks have no folder of the hospital's own")


@pytest.fixture
def started(monkeypatch, tmp_path):
    """The hospitals of the networks that were started: no engine is asked, and no container runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    networks = []

    def start(engine, name, port, hospitals, encrypted, *images_and_log):
        networks.append(hospitals)
        organizations = {hospital.organization: k for k, hospital in enumerate(hospitals, start=1)}
        return Network(name, "http://x", 1, "/api", "u", "p", 1, organizations, encrypted, None, "default")

    monkeypatch.setattr(images, "engine", lambda: None)
    monkeypatch.setattr(images, "stale", lambda names: [])
    monkeypatch.setattr(docker_engine, "containers", lambda engine, name: [])
    monkeypatch.setattr(docker_engine, "infrastructure", lambda engine, official, log: ("server", "node"))
    monkeypatch.setattr(docker_engine, "empty", lambda engine, name, folder: None)
    monkeypatch.setattr(docker_engine, "remove", lambda engine, name: [])
    monkeypatch.setattr(local, "_start", start)
    return networks


@pytest.fixture
def rows(tmp_path):
    """A file of 200 rows."""
    table(200).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def up(rows, *options):
    """Calls ``network up``; returns its exit status."""
    return main(["network", "up", "--data", str(rows), *map(str, options)])


def limits(hospital):
    """The limits of a node, as its configuration has them, with the secret that a node of vantage6 5 has in no file."""
    said = json.loads((hospital.folder / "node.yaml").read_text())["algorithm_env"]
    assert (SECRET in said) == FIVE
    return {name: value for name, value in said.items() if name.startswith("V6_FEDERATED_") and name != SECRET}


def own(hospital):
    """The hospital's own folder."""
    return hospital.folder / docker_engine.HOSPITAL


def test_nodes_are_careful_and_in_no_study(rows, started):
    assert up(rows) == 0
    [hospitals] = started
    assert [limits(hospital) for hospital in hospitals] == [CAREFUL] * 3
    assert not any([*own(hospital).iterdir()] for hospital in hospitals)


@pytest.mark.parametrize(
    ("partition", "names"),
    [
        ("column:ward", ["Sint Jan", "a (3)", "a", "Übach"]),
        ("iid", ["hospital_1", "hospital_2", "hospital_3"]),
    ],
)
def test_organizations_are_called_as_the_column_says(tmp_path, started, capsys, partition, names):
    """In one line, and each once: vantage6 finds organizations by their names."""
    rows = table(200).assign(ward=np.array(["Sint  Jan", "a\t", "a", "Übach"])[np.arange(200) % 4])
    rows[["ward", *rows.columns[:-1]]].to_csv(tmp_path / "wards.csv", index=False)
    exclude = ["--exclude", "ward"] if partition == "iid" else []
    assert up(tmp_path / "wards.csv", "--partition", partition, *exclude) == 0
    assert {hospital.organization for hospital in started[0]} == {*names}
    assert set(json.loads(capsys.readouterr().out)["organizations"]) == {*names}


def test_a_limit_of_one_node(rows, started):
    one = {"V6_FEDERATED_MINIMUM_ROWS": "20"}
    given = ["--node-env", "2:V6_FEDERATED_MINIMUM_ROWS=20", "--node-env", "MINE=a=b"]  # any variable, at real nodes
    assert up(rows, "--profile", "trusting", *given) == 0
    [hospitals] = started
    trusting = {"V6_FEDERATED_PROFILE": "trusting"}
    assert [limits(hospital) for hospital in hospitals] == [trusting, trusting | one, trusting]
    assert all('"MINE": "a=b"' in (hospital.folder / "node.yaml").read_text() for hospital in hospitals)


@four
@pytest.mark.parametrize(
    ("nodes", "options", "blocks", "colluders"),
    [
        (3, [], [{1, 2, 3}], 0),
        (4, [], [{1, 2, 3, 4}], 1),
        (4, ["--profile", "trusting"], [{1, 2, 3, 4}], 1),
        (8, [4], [{1, 2, 3, 4}, {5, 6, 7, 8}], 1),
        (10, [], [{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}], 1),
    ],
)
def test_nodes_have_accepted_a_study_and_require_it(rows, started, nodes, options, blocks, colluders):
    assert up(rows, "--nodes", nodes, "--study", *options) == 0
    [hospitals] = started
    assert all(limits(hospital).items() >= PINNED.items() for hospital in hospitals)
    found = [pinned.accepted(own(hospital)) for hospital in hospitals]
    assert len({study.digest for study in found}) == 1 and found[0].colluders == colluders
    names = [{hospital.name for hospital in block} for block in found[0].blocks]
    assert names == [{f"hospital_{k}" for k in block} for block in blocks]
    for hospital in hospitals:
        block = found[0].block_of(keys.public_of(keys.identity(own(hospital))))
        assert hospital.organization in [it.name for it in block]
        assert own(hospital).stat().st_mode & 0o077 == 0


@four
def test_the_schema_of_the_study(rows, started, tmp_path):
    (tmp_path / "declared.json").write_text(SCHEMA.text())
    assert up(rows, "--study", "--schema", tmp_path / "declared.json") == 0
    for hospital in started[0]:
        assert Schema.of_folder(own(hospital)).shared_digest == SCHEMA.shared_digest
        assert pinned.accepted(own(hospital)).schema == SCHEMA.shared_digest


@four
def test_a_node_may_require_less_than_the_study_gives(rows, started):
    assert up(rows, "--study", "--node-env", "2:V6_FEDERATED_AGGREGATION=plain") == 0
    assert [limits(hospital)["V6_FEDERATED_AGGREGATION"] for hospital in started[0]] == ["pinned", "plain", "pinned"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--schema", "s.json"], "--schema s.json needs a study, which carries the schema; add --study"),
        (
            ["--study", "--schema", "no.json"],
            "--schema no.json: there is no such file; `v6-federated schema new TABLE`",
        ),
        (["--nodes", "2", "--study"], "2 node(s) are too few for a study, whose blocks need 3 (V6_FEDERATED_MINIMUM_"),
        (["--nodes", "1", "--study", "--profile", "trusting"], "1 node(s) are too few for a study"),
        (["--study", "4"], "blocks of 4 hospitals do not fit; expected 3, since there are 3 nodes"),
        (
            ["--nodes", "8", "--study", "3"],
            "blocks of 3 hospitals do not fit; expected 4 to 8, since there are 8 nodes",
        ),
        (["--study", "two"], "'two' is not the size of a block; expected a whole number from 2"),
        (
            ["--study", "--node-env", "3:V6_FEDERATED_MINIMUM_ORGANIZATIONS=4"],
            "blocks need 4 (V6_FEDERATED_MINIMUM_ORG",
        ),
        (["--node-env", "4:A=b"], "--node-env '4:A=b': there is no node 4; expected a node from 1 to 3"),
        (["--profile", "trust"], "--profile trust is not a profile; expected trusting, careful or private"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(options, says, rows, started, capsys, tmp_path):
    try:
        status = up(rows, *options)
    except SystemExit as error:
        status = error.code
    [line] = capsys.readouterr().err.splitlines()
    assert status == 2 and says in line
    assert not started and not (tmp_path / "state").exists()


@pytest.mark.skipif(not FIVE, reason="vantage6 4 has studies")
def test_a_study_on_vantage6_5_is_refused(rows, started, capsys):
    assert up(rows, "--study") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "a study needs a folder of the hospital's own, which vantage6 5 does not give to tasks" in line
    assert not started


def test_in_python_a_study_that_cannot_be_is_refused_before_docker_is_asked(rows, monkeypatch):
    monkeypatch.setattr(images, "engine", lambda: pytest.fail("Docker is asked"))
    with pytest.raises(SafeError, match=r"2 node\(s\) are too few for a study, whose blocks need 3"):
        local.up([rows] * 2, algorithm_env=CAREFUL, study=StudyPlan())


@four
def test_a_start_that_fails_leaves_no_key(rows, started, monkeypatch):
    def start(engine, name, port, hospitals, *others):
        assert (own(hospitals[0]) / keys.NAME).exists()
        raise OSError("no more")

    monkeypatch.setattr(local, "_start", start)
    with pytest.raises(NetworkError, match="network 'failing' did not start: no more"):
        local.up([rows] * 4, name="failing", algorithm_env=CAREFUL, study=StudyPlan())
    assert not local.folder("failing").exists()


class Stopped:
    """A container of a node that has stopped, and what it has logged."""

    name, status = "node-1-user", "exited"

    def __init__(self, log):
        self.log = log

    def reload(self):
        pass

    def logs(self, tail):
        return self.log.encode()


POOLS = [
    'docker.errors.APIError: 500 Server Error: Internal Server Error ("could not find an available, non-overlapping '
    'IPv4 address pool among the defaults to assign to the network")\n',
    'docker.errors.APIError: 500 Server Error ("all predefined address pools have been fully subnetted")\nstopped\n',
]


@pytest.mark.parametrize("log", POOLS)
def test_a_node_that_stops_because_docker_has_no_addresses_left(log, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(NetworkError, match="NAME`, or `docker network prune`, which removes all that no container"):
        local._wait("the nodes", [Stopped(log)], lambda: False)
    for name in ("one", "two"):
        local.folder(name).mkdir(parents=True)
        (local.folder(name) / "network.json").write_text("{}")
    with pytest.raises(NetworkError) as error:
        local._wait("the nodes", [Stopped(log)], lambda: False)
    said = str(error.value)
    assert said.startswith("Docker has no free address range for the networks of the nodes; remove networks that are")
    assert "`v6-federated network down --name NAME` (running: one, two), or" in said and "\n" not in said


def test_a_node_that_stops_for_another_reason_is_named():
    with pytest.raises(NetworkError, match="^node-1-user stopped while starting the nodes: the key is broken$"):
        local._wait("the nodes", [Stopped("reading\nthe key is broken\n")], lambda: False)


def test_the_servers_own_network_may_be_the_one_too_many(rows, started, monkeypatch, capsys):
    def start(*arguments):
        raise APIError(POOLS[0])

    monkeypatch.setattr(local, "_start", start)
    assert up(rows) == 1
    [*_, line] = capsys.readouterr().err.splitlines()
    assert line.startswith("v6-federated: Docker has no free address range for the networks of the nodes; remove")
    assert not local.folder("default").exists()
