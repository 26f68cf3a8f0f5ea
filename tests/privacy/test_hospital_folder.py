"""The hospital's own folder: where it is, what happens without it, and the node's secret in it."""

import os
import stat

import pytest
from helpers import four, table

from v6_federated.base.database import read_database
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import NodePermissionException, UserInputError
from v6_federated.rules.hospital import FALLBACK, HospitalFolder
from v6_federated.rules.policy import Policy
from v6_workbench.cli.main import main

CAREFUL = Policy.of("careful")


@pytest.fixture(autouse=True)
def no_node(monkeypatch):
    for name in ("HOSPITAL_DATABASE_URI", "INPUT_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_it_is_the_database_with_the_reserved_label(monkeypatch, tmp_path):
    monkeypatch.setenv("HOSPITAL_DATABASE_URI", str(tmp_path))
    assert HospitalFolder.of_node(CAREFUL) == HospitalFolder(tmp_path, own=True)


@four
def test_without_it_a_real_node_uses_its_data_volume(monkeypatch, tmp_path):
    monkeypatch.setenv("INPUT_FILE", str(tmp_path / "task-000000012" / "input"))
    found = HospitalFolder.of_node(CAREFUL)
    assert found == HospitalFolder(tmp_path / FALLBACK, own=False) and found.path.is_dir()
    assert HospitalFolder.of_node(Policy.of("trusting")) == found


def test_elsewhere_careful_needs_it_and_trusting_does_not():
    with pytest.raises(NodePermissionException, match="count requests in the hospital's own folder, and this node has"):
        HospitalFolder.of_node(CAREFUL)
    assert HospitalFolder.of_node(Policy.of("trusting")) is None


@pytest.mark.parametrize("limit", [{"own_shuffle": True}, {"maximum_rounds": 5}, {"maximum_rounds_a_week": 5}])
def test_a_limit_that_counts_needs_it_under_trusting_too(limit):
    with pytest.raises(NodePermissionException, match="the limits of this node count requests"):
        HospitalFolder.of_node(Policy.of("trusting", **limit))


@four
def test_a_file_in_place_of_the_fallback_is_refused(monkeypatch, tmp_path):
    (tmp_path / FALLBACK).touch()
    monkeypatch.setenv("INPUT_FILE", str(tmp_path / "task-000000012" / "input"))
    with pytest.raises(NodePermissionException, match=f"the folder {FALLBACK} of the node cannot be"):
        HospitalFolder.of_node(CAREFUL)


def test_a_file_in_its_place_is_refused(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOSPITAL_DATABASE_URI", str(tmp_path / "file"))
    with pytest.raises(NodePermissionException, match="is not a folder; give it the type folder"):
        HospitalFolder.of_node(CAREFUL)


def test_a_folder_that_cannot_be_written_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HOSPITAL_DATABASE_URI", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(NodePermissionException, match="cannot be written by this program; correct its permissions"):
        HospitalFolder.of_node(CAREFUL)


@four
@pytest.mark.parametrize("label", ["hospital", "Hospital"])
def test_no_task_can_read_it_as_data(monkeypatch, tmp_path, label):
    monkeypatch.setenv("USER_REQUESTED_DATABASE_LABELS", label)
    monkeypatch.setenv("HOSPITAL_DATABASE_URI", str(tmp_path))
    monkeypatch.setenv("HOSPITAL_DATABASE_TYPE", "folder")
    with pytest.raises(UserInputError, match="is the hospital's own folder and holds no rows; name another"):
        read_database(False)


def test_the_secret_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    folder = HospitalFolder(tmp_path, own=True)
    first = folder.derived("shuffle", b"request")
    assert first == HospitalFolder(tmp_path, own=True).derived("shuffle", b"request")
    assert first not in (folder.derived("shuffle", b"another"), folder.derived("other", b"request"))
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]


def test_another_hospital_has_another_secret(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = (HospitalFolder(tmp_path / name, own=True).derived("shuffle", b"") for name in "ab")
    assert one != two


def test_a_secret_that_is_a_link_or_too_short_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"short")
    with pytest.raises(NodePermissionException, match="does not hold 32 bytes; remove it"):
        HospitalFolder(tmp_path, own=True).derived("shuffle", b"")
    (tmp_path / "secret").rename(tmp_path / "elsewhere")
    (tmp_path / "secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SafeError, match="secret in a folder of the node is a link"):
        HospitalFolder(tmp_path, own=True).derived("shuffle", b"")


@pytest.mark.parametrize("text", ["a" * 32, "0" * 64, "01" * 32, "too short, but random"])
def test_a_secret_that_can_be_guessed_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setenv("V6_FEDERATED_SECRET", text)
    with pytest.raises(NodePermissionException, match="must have 32 random letters or more"):
        HospitalFolder(tmp_path, own=True).derived("shuffle", b"")
    monkeypatch.setenv("V6_FEDERATED_SECRET", "3f9a0c7e51d2b864" * 2)
    HospitalFolder(tmp_path, own=True).derived("shuffle", b"")


def test_a_folder_that_disappears_is_named(tmp_path):
    with pytest.raises(NodePermissionException, match="the file secret .* cannot be read or written .No such file"):
        HospitalFolder(tmp_path / "gone", own=True).derived("shuffle", b"")


def test_run_keeps_a_folder_for_each_node(tmp_path, capsys):
    rows = table(120)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    command = ["run", "fedavg", "--data", str(tmp_path / "rows.csv"), "--nodes", "3", "--rounds", "1"]
    assert main([*command, "--hospital-folder", str(tmp_path / "kept")]) == 0
    assert {file.name for file in (tmp_path / "kept").iterdir()} == {"node-1", "node-2", "node-3"}
    assert (tmp_path / "kept" / "node-2" / "audit.jsonl").exists()
