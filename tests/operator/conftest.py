"""Calling operators' commands, as they are called in an image and on a laptop."""

import json

import pytest

from v6_federated.__main__ import main as in_image
from v6_workbench.cli.main import main as on_laptop


@pytest.fixture(params=[in_image, on_laptop], ids=["image", "laptop"])
def call(request, capsys):
    """Calls a command; returns its exit status, its lines, the JSON of the last one, and its errors."""

    def call(*arguments):
        try:
            status = request.param([str(a) for a in arguments])
        except SystemExit as error:
            status = error.code
        out, err = capsys.readouterr()
        lines = out.splitlines()
        answer = json.loads(lines.pop()) if lines and lines[-1].startswith("{") else None
        assert len(err.splitlines()) == (status == 2), err
        return status, lines, answer, err

    return call


@pytest.fixture
def folders(tmp_path):
    """The own folders of eight hospitals, without keys."""
    made = {name: tmp_path / f"hospital-{name.lower()}" for name in "ABCDEFGH"}
    for folder in made.values():
        folder.mkdir(mode=0o700)
    return made


@pytest.fixture
def hospitals(folders, call):
    """What ``study new`` is told of them: names and keys."""
    return {name: f"{name}={call('keys', 'new', folder)[2]['key']}" for name, folder in folders.items()}
