"""What a node of vantage6 4 does for one run of a partial function: files, an environment in base32, the command."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = "from vantage6.algorithm.tools.wrap import wrap_algorithm; wrap_algorithm(log_traceback=False)"


class Run(NamedTuple):
    """How a run has ended."""

    status: int
    output: bytes
    log: str


def run(
    folder: Path,
    package: str,
    input_: Mapping[str, Any],
    databases: Mapping[str, Mapping[str, str]],
    environment: Mapping[str, str],
) -> Run:
    """Run a function on databases, each with what the node and the task say of it (``DATABASE_URI``, ``QUERY``)."""
    import jwt

    place = folder / "task-000000007"
    place.mkdir(parents=True, exist_ok=True)
    (place / "input").write_text(json.dumps(input_))
    (place / "output").touch()
    identity = {"organization_id": 3, "node_id": 3, "collaboration_id": 1, "image": package}
    (place / "token").write_text(jwt.encode({"sub": identity}, "k" * 32))
    variables = {
        "INPUT_FILE": place / "input",
        "OUTPUT_FILE": place / "output",
        "TOKEN_FILE": place / "token",
        "TEMPORARY_FOLDER": folder / "tmp",
        "HOST": "http://127.0.0.1",
        "PORT": 7654,
        "API_PATH": "",
        "USER_REQUESTED_DATABASE_LABELS": ",".join(databases),
        **{f"{label.upper()}_{name}": value for label, said in databases.items() for name, value in said.items()},
        **environment,
    }
    (folder / "tmp").mkdir(exist_ok=True)
    encoded = {k: base64.b32encode(str(v).encode()).decode().replace("=", "!") for k, v in variables.items()}
    plain = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    ended = subprocess.run(
        [sys.executable, "-c", COMMAND],
        env={**plain, "PKG_NAME": package, **encoded},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Run(ended.returncode, (place / "output").read_bytes(), ended.stdout)
