"""``submit`` takes organizations by the names that the server shows."""

from types import SimpleNamespace

import pytest

from v6_workbench.cli import job
from v6_workbench.cli.commands import submit
from v6_workbench.cli.place import Place
from v6_workbench.errors import NetworkError
from v6_workbench.network import server


@pytest.fixture
def sent(monkeypatch):
    """The settings of tasks that would have been sent to a server with the hospitals north and south."""
    found = []
    monkeypatch.setattr(server, "organizations", lambda client: {4: "north", 7: "south"})
    monkeypatch.setattr(submit, "connect", lambda options, **needed: Place(SimpleNamespace(), 1, "here", ()))

    def send(options, settings, page, place):
        found.append(settings)
        raise NetworkError("enough")

    monkeypatch.setattr(submit, "_send", send)
    return found


def test_names_become_ids(sent, call):
    call("submit", "fedavg", "--rounds", "2", "--set", "organizations=south,4", "--set", "evaluators=north")
    assert sent[0]["organizations"] == [7, 4] and sent[0]["evaluators"] == [4]


def test_an_unknown_name_is_refused_with_those_that_are_known(sent, refused):
    says = "organizations: there is no east; expected names or ids of north (4), south (7)"
    refused(says, "submit", "fedavg", "--rounds", "2", "--set", "organizations=east,south")
    assert not sent


def test_ids_need_no_names():
    assert not job.has_names({"organizations": [1, 2], "evaluators": None, "classes": ["a"]})
