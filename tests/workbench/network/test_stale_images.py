"""Images that were built from other code than this machine has."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from docker.errors import ImageNotFound

from v6_workbench import registry
from v6_workbench.errors import EngineError
from v6_workbench.network import images

ROOT = Path(__file__).parents[3]


@pytest.fixture
def built(monkeypatch):
    """The labels of the images of an engine, by their names."""
    found = {}

    def get(name):
        if name not in found:
            raise ImageNotFound(name)
        return SimpleNamespace(labels=found[name])

    monkeypatch.setattr(images, "engine", lambda: SimpleNamespace(images=SimpleNamespace(get=get)))
    return found


def test_an_image_of_other_code_is_found(built):
    built |= {
        "v6-fedavg": {images.CODE: registry.code("fedavg")},
        "v6-scaffold": {images.CODE: registry.code("fedavg")},
        "v6-coop:1.0": {},  # of a time before images said it
        "v6-other": {},
        "registry.example/v6-fedavg": {},
    }
    assert images.stale([*built, "v6-pca"]) == ["v6-scaffold", "v6-coop:1.0"]


def test_without_an_engine_nothing_is_said(monkeypatch):
    def engine():
        raise EngineError("no Docker engine answers")

    monkeypatch.setattr(images, "engine", engine)
    assert images.stale(["v6-fedavg"]) == []


def test_an_image_says_what_it_was_built_from(monkeypatch):
    made = []

    class Images:
        def build(self, **arguments):
            made.append(arguments)
            return SimpleNamespace(attrs={"Size": 1, "RepoDigests": []}), []

        def get(self, name):
            return SimpleNamespace(attrs={"Size": 1, "RepoDigests": []}, tag=lambda *name: None)

    monkeypatch.setattr(images, "engine", lambda: SimpleNamespace(images=Images()))
    monkeypatch.setattr(images, "ROOT", ROOT)  # the tests may be about an installed package
    monkeypatch.setattr(images, "RECIPES", ROOT / "docker")
    images.build_method(images.listed()["v6-pca"], log=lambda line: None)
    assert made[0]["labels"] == {images.CODE: registry.code("pca")}
