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
print(json.dumps({name: AlgorithmInputSchema().validate(entry) for name, entry in json.loads(sys.argv[1]).items()}))
"""


def test_the_store_accepts_them(engine):
    base, recipe = images.infrastructure(), Path(__file__).parent / "store.Dockerfile"
    arguments = {"BASE": base, "VANTAGE6": VANTAGE6}
    images.build("v6-federated-store", recipe, arguments=arguments)
    entries = {method: json.loads(path(method).read_text()) for method in names()}
    entries["broken"] = entries["fedavg"] | {"image": None}
    answer = engine.containers.run(
        "v6-federated-store", ["python", "-c", VALIDATE, json.dumps(entries)], remove=True, stderr=False
    )
    errors = json.loads(answer.decode().splitlines()[-1])
    assert errors.pop("broken") == {"image": ["Field may not be null."]}
    assert errors == {method: {} for method in names()}
