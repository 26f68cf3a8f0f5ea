"""The methods' entries, against the schema of the real algorithm store."""

import json
from pathlib import Path

from v6_workbench.network import images
from v6_workbench.network.project import VANTAGE6
from v6_workbench.network.store import path
from v6_workbench.registry import names

VALIDATE = """
import json, sys
from vantage6.algorithm.store.resource.schema.input_schema import AlgorithmInputSchema
print(json.dumps([AlgorithmInputSchema().validate(json.loads(entry)) for entry in sys.argv[1:]]))
"""


def test_the_store_accepts_them(engine):
    base, recipe = images.infrastructure(), Path(__file__).parent / "store.Dockerfile"
    arguments = {"BASE": base, "VANTAGE6": VANTAGE6}
    images.build("v6-federated-store", recipe, arguments=arguments)
    entries = [path(method).read_text() for method in names()]  # one argument each: Linux takes 128 kB in one
    broken = json.dumps(json.loads(entries[0]) | {"image": None})
    command = ["python", "-c", VALIDATE, *entries, broken]
    answer = engine.containers.run("v6-federated-store", command, remove=True, stderr=False)
    errors = json.loads(answer.decode().splitlines()[-1])
    assert dict(zip([*names(), "broken"], errors, strict=True)) == {method: {} for method in names()} | {
        "broken": {"image": ["Field may not be null."]}
    }
