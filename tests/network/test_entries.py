"""The methods' entries, against the schemas of the real algorithm stores."""

import json
from pathlib import Path

import pytest
from leftovers import once

from v6_workbench.network import images
from v6_workbench.network.project import INSTALLED, RELEASES
from v6_workbench.network.store import path
from v6_workbench.registry import names

VALIDATE = """
import json, sys
from vantage6.algorithm.store.resource.schema.input_schema import AlgorithmInputSchema
print(json.dumps([AlgorithmInputSchema().validate(json.loads(entry)) for entry in sys.argv[1:]]))
"""


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_the_store_accepts_them(release, engine):
    tag, recipe = f"v6-federated-store:{release.version}", Path(__file__).parent / "store.Dockerfile"
    # with the server's packages, since one that both need has no wheel for the server's Python of vantage6 4
    base = images.infrastructure() if release is INSTALLED else release.server_python
    images.build(tag, recipe, arguments={"BASE": base, "VANTAGE6": release.version})
    entries = [path(method, release).read_text() for method in names()]  # one argument each: Linux takes 128 kB in one
    broken = json.dumps(json.loads(entries[0]) | {"image": None})
    command = ["python", "-c", VALIDATE, *entries, broken]
    answer = engine.containers.run(tag, command, remove=True, labels=once(), stderr=False)
    errors = json.loads(answer.decode().splitlines()[-1])
    assert dict(zip([*names(), "broken"], errors, strict=True)) == {method: {} for method in names()} | {
        "broken": {"image": ["Field may not be null."]}
    }
