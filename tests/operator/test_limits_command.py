"""``limits``: what a node's configuration, a profile or the environment allows."""

from pathlib import Path

import pytest

from v6_federated.rules.limits import LIMITS, PROFILES
from v6_federated.rules.policy import Policy

CONFIGURATIONS = sorted((Path(__file__).parents[2] / "node_configs").glob("*.yaml"))


@pytest.fixture
def configured(tmp_path, call):
    def configured(text):
        file = tmp_path / "node.yaml"
        file.write_text(text)
        return call("limits", file)

    return configured


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_has_every_limit(call, profile):
    status, lines, numbers, _ = call("limits", "--profile", profile)
    assert status == 0 and lines[0] == f"profile {profile}" == f"profile {numbers['profile']}"
    assert [*numbers["limits"]] == [limit.name for limit in LIMITS] and not numbers["set"] and not numbers["looser"]
    for limit in LIMITS:
        assert f"      {limit.does}" in lines
    assert numbers["limits"]["MINIMUM_ROWS"] == str(Policy.of(profile).minimum_rows)
    assert bool(numbers["remarks"]) == (profile == "private")


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.name)
def test_the_configurations_of_this_repository(call, file):
    """They are sound, except for what a hospital must put in."""
    status, lines, numbers, _ = call("limits", file)
    assert status == 0 and numbers["remarks"] == lines[-1:]
    said = (
        "left from the example, to be replaced by yours before the node starts: api_key, server_url, the registry of "
        "allowed_algorithms, the digest of allowed_algorithms"
    )
    more = ", the uri of the database default, docker_services" if file.stem == "sql" else ""
    assert lines[-1] == said + more
    assert numbers["looser"] == (["ALLOW_QUERIES"] if file.stem == "sql" else [])


def test_what_has_been_replaced_is_not_named(call, tmp_path):
    text = (CONFIGURATIONS[0].parent / "small-hospital.yaml").read_text()
    own = [("00000000-0000-0000-0000-000000000000", "6d2a0c1e-0000-4000-8000-000000000000"), ("0" * 64, "0" * 63 + "1")]
    for old, new in [*own, ("server.hospitals.example", "fl.example.org")]:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "node.yaml").write_text(text)
    _, _, numbers, _ = call("limits", tmp_path / "node.yaml")
    [left] = numbers["remarks"]
    assert left.endswith("starts: the registry of allowed_algorithms")
    (tmp_path / "node.yaml").write_text(text.replace("registry.hospitals.example", "ghcr.io/example"))
    assert call("limits", tmp_path / "node.yaml")[2]["remarks"] == []


def test_what_is_set_and_what_is_looser(configured):
    _, lines, numbers, _ = configured(
        "api_key: x\ndatabases: [{label: hospital}]\npolicies: {allowed_algorithms: [x]}\n"
        "algorithm_env: {V6_FEDERATED_MINIMUM_ROWS: '50', V6_FEDERATED_MINIMUM_BATCH: 1}\n"
    )
    assert "  V6_FEDERATED_MINIMUM_ROWS: 50 (set here)" in lines
    assert "  V6_FEDERATED_MINIMUM_BATCH: 1 (set here; LOOSER than the profile)" in lines
    assert numbers["profile"] == "careful" and numbers["looser"] == ["MINIMUM_BATCH"] and numbers["remarks"] == []


def test_what_vantage6_ignores_without_a_word(configured):
    _, lines, numbers, _ = configured("api_key: x\npolicies: {allowed_algorithm: [x]}\n")
    assert lines[-3:] == numbers["remarks"]
    assert lines[-3].startswith("vantage6 does not know allowed_algorithm under policies")
    assert lines[-3].endswith("did you mean allowed_algorithms?")
    assert "this node runs every image that a task names" in lines[-2] and "label hospital" in lines[-1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "algorithm_environment: {}",
            "does not know algorithm_environment, and ignores it without a word; did you mean algorithm_env?",
        ),
        ("database: []", "know database, and ignores it without a word; did you mean databases?"),
        ("policy: {}", "know policy, and ignores it without a word; did you mean policies?"),
        ("colour: red", "know colour, and ignores it without a word; expected one of algorithm_device_requests, alg"),
        ("databases: [{label: a, type: cvs}]", "the database a has an unknown type, cvs; did you mean csv?"),
        ("databases: [{label: a, url: x}]", "know url of the database a, and ignores it without a word; did you mean"),
    ],
)
def test_a_misspelt_name_is_said_with_the_nearest_known_one(configured, text, says):
    status, _, numbers, _ = configured(f"api_key: x\n{text}\n")
    assert status == 0 and any(says in remark for remark in numbers["remarks"])


SOUND = "api_key: x\npolicies: {allowed_algorithms: [x]}\n"
OWN = "{label: hospital, uri: /srv/hospital, type: folder}"
ADDRESS = "postgresql://reader:s3cr3t@warehouse:5432/registry"
PRINTED = "logs are shared, and images other than this project's can print the address of the database a"
WITH_PASSWORD = f"{PRINTED}, with its password, into"


@pytest.mark.parametrize(
    ("database", "logs", "says"),
    [
        (
            "{label: a, type: omop, uri: 'postgresql://omop:5432/cdm'}",
            "share_algorithm_logs: false",
            ["the database a has the type omop, which no image of this project reads; give the view that a project"],
        ),
        (
            "{label: a, type: parquet, uri: /srv/rows.parquet}",
            "",
            ["the database a has the type parquet, which no image of this project reads; write its rows as a csv file"],
        ),
        ("{label: a, type: other, uri: /srv/rows.parquet}", "", ["the database a is a Parquet file, which no image"]),
        (
            f"{{label: a, type: sql, uri: '{ADDRESS}'}}",
            "share_algorithm_logs: true",
            [WITH_PASSWORD],
        ),
        (f"{{label: a, type: sql, uri: '{ADDRESS}'}}", "", [WITH_PASSWORD]),
        ("{label: a, type: sparql, uri: 'https://rows.org/sparql'}", "", [f"{PRINTED} into the logs"]),
        (f"{{label: a, type: sql, uri: '{ADDRESS}'}}", "share_algorithm_logs: false", []),
        ("{label: a, type: csv, uri: /srv/rows.csv, mount_mode: ro, env: {unit: mm}}", "", []),
        (
            "{label: a, type: other, uri: /srv/rows.npz, mount_mode: ro}",
            "",
            ["mount_mode: ro of the database a"],
        ),
        (
            "{label: a, type: csv, uri: /srv/rows.csv, mount_mode: rw}",
            "",
            ["mount_mode of the database a"],
        ),
        ("{label: my rows, type: csv, uri: /srv/rows.csv}", "", ["the label my rows of a database must be letters"]),
    ],
)
def test_what_images_cannot_read_and_what_logs_would_show(configured, database, logs, says):
    _, lines, numbers, _ = configured(f"{SOUND}{logs}\ndatabases: [{database}, {OWN}]\n")
    assert len(numbers["remarks"]) == len(says)
    assert all(remark.startswith(said) for remark, said in zip(numbers["remarks"], says, strict=True))
    assert "s3cr3t" not in " ".join(lines)


def test_the_environment(call, monkeypatch):
    monkeypatch.setenv("V6_FEDERATED_PROFILE", "trusting")
    monkeypatch.setenv("V6_FEDERATED_MINIMUM_ROWS", "20")
    _, lines, numbers, _ = call("limits")
    assert lines[0] == "profile trusting" and numbers["set"] == ["MINIMUM_ROWS"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "node.yaml is not YAML; expected a node's configuration"),
        ("- a\n", "node.yaml has no api_key; expected a node's configuration"),
        ("api_key: x\nalgorithm_env: [1]\n", "algorithm_env of node.yaml is no list of names and values"),
        (
            "api_key: x\nalgorithm_env: {V6_FEDERATED_MINIMUM_ROW: '5'}\n",
            "V6_FEDERATED_MINIMUM_ROW is not a setting of a node; did you mean V6_FEDERATED_MINIMUM_ROWS?",
        ),
        ("api_key: x\nalgorithm_env: {V6_FEDERATED_PROFILE: open}\n", "V6_FEDERATED_PROFILE=open of this node must be"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_line(configured, text, says):
    status, _, _, err = configured(text)
    assert status == 2 and says in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--profile", "open"], "unknown profile 'open'; expected one of trusting, careful, private"),
        (["node.yaml", "--profile", "careful"], "a configuration has a profile of its own"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(call, arguments, says):
    status, _, _, err = call("limits", *arguments)
    assert status == 2 and says in err
