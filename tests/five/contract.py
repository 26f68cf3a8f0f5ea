"""What a node of vantage6 5 does for one run: files, an environment in base32, and the image's command."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = "from vantage6.algorithm.tools.wrap import wrap_algorithm; wrap_algorithm(log_traceback=False)"


def encoded(text: object) -> str:
    """A value as a node writes it."""
    return base64.b32encode(str(text).encode()).decode().replace("=", "!")


class Run(NamedTuple):
    """How a run has ended."""

    status: int
    output: bytes
    log: str

    @property
    def said(self) -> str:
        """The last line of its log."""
        return self.log.strip().splitlines()[-1]


@dataclass
class Node:
    """A node: its folder, and the image that it starts; without an image, this interpreter takes its place."""

    folder: Path
    package: str
    image: str = ""
    organization: int = 3
    environment: Mapping[str, str] = field(default_factory=dict)
    runs: int = 0

    def __post_init__(self) -> None:
        self.session = self.folder / "sessions" / "session000000001"
        self.session.mkdir(parents=True)

    def run(
        self,
        method: str,
        arguments: Mapping[str, Any],
        *,
        action: str = "federated_compute",
        frames: Sequence[str] = ("rows",),
        database: tuple[Path | str, str] | None = None,
        task: int = 7,
    ) -> Run:
        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        (folder / "input").write_bytes(json.dumps(arguments).encode())
        (folder / "output").touch()
        variables = {
            "INPUT_FILE": folder / "input",
            "OUTPUT_FILE": folder / "output",
            "SESSION_FOLDER": self.session,
            "SESSION_FILE": self.session / "session_state.parquet",
            "HOST": "http://127.0.0.1",
            "PORT": 7654,
            "API_PATH": "",
            "ALGORITHM_METHOD": method,
            "FUNCTION_ACTION": action,
            "TASK_ID": task,
            "NODE_ID": self.organization,
            "ORGANIZATION_ID": self.organization,
            "COLLABORATION_ID": 1,
            **self.environment,
        }
        if database is not None:
            variables |= {"DATABASE_URI": database[0], "DATABASE_TYPE": database[1]}
        else:
            variables["USER_REQUESTED_DATAFRAMES"] = ";".join(frames)
        environment = {name: encoded(value) for name, value in variables.items()}
        ended = self._process(environment) if not self.image else self._container(environment)
        return Run(ended.returncode, (folder / "output").read_bytes(), ended.stdout)

    def extract(self, database: Path | str, kind: str, name: str = "rows", **arguments: Any) -> Run:
        """Make a data frame, as a node does with what an extraction puts out. It mounts files as LABEL.TYPE."""
        if isinstance(database, Path):
            mounted = self.folder / "databases" / f"default.{kind}"
            mounted.parent.mkdir(exist_ok=True)
            (shutil.copytree if database.is_dir() else shutil.copy)(database, mounted)
            database = mounted
        run = self.run("extract", arguments, action="data_extraction", database=(database, kind))
        if run.status == 0:
            (self.session / f"{name}.parquet").write_bytes(run.output)
        return run

    def _process(self, environment: Mapping[str, str]) -> Any:
        plain = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
        return subprocess.run(
            [sys.executable, "-c", COMMAND],
            env={**plain, "PKG_NAME": self.package, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _container(self, environment: Mapping[str, str]) -> Any:
        variables = [part for name, value in environment.items() for part in ("--env", f"{name}={value}")]
        mount = f"{self.folder}:{self.folder}"
        return subprocess.run(
            ["docker", "run", "--rm", "--network", "none", "--volume", mount, *variables, self.image],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
