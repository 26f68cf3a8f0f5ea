"""The ready node configurations, against vantage6's own validators and the names that it and the guards know."""

import re
from pathlib import Path

import pytest
import yaml
from leftovers import once
from vantage6.common.globals import NodePolicy

from v6_federated.rules import policy
from v6_workbench.network import images

FOLDER = Path(__file__).parents[2] / "node_configs"
CONFIGS = sorted(FOLDER.glob("*.yaml"))
VALIDATE = """
import glob, yaml
from vantage6.cli.configuration_manager import NodeConfiguration
for path in sorted(glob.glob("/configs/*.yaml")):
    with open(path) as file:
        print(path.split("/")[-1], NodeConfiguration(yaml.safe_load(file)).is_valid)
"""


def test_vantage6_accepts_them(engine):
    image = images.infrastructure()
    volumes = {str(FOLDER): {"bind": "/configs", "mode": "ro"}}
    output = engine.containers.run(
        image, ["python", "-c", VALIDATE], volumes=volumes, remove=True, labels=once()
    ).decode()
    assert output.split("\n")[:-1] == [f"{path.name} True" for path in CONFIGS]
    assert len(CONFIGS) == 5


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_names_that_vantage6_would_ignore_silently(path: Path):
    config = yaml.safe_load(path.read_text())
    assert set(config["policies"]) <= {policy.value for policy in NodePolicy}
    policy.Policy.of_node(config["algorithm_env"])  # which refuses what it does not know
    assert config["algorithm_env"]["V6_FEDERATED_PROFILE"] == "careful"
    assert {"label": "hospital", "uri": "/srv/vantage6/hospital", "type": "folder"} in config["databases"]
    assert all(isinstance(value, str) for value in config["algorithm_env"].values())
    [allowed] = config["policies"]["allowed_algorithms"]
    assert re.search(r"/v6-[a-z]+@sha256:[0-9a-f]{64}\$?$", allowed)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_setting_is_explained(path: Path):
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"[a-z_]+:", line):
            block = lines[max(0, number - 3) : number + 1]
            assert any(before.startswith("#") for before in block), f"{path.name}:{number + 1}: {line}"
