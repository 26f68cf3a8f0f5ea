"""``keys new`` and ``keys show``."""

import os
import subprocess
import sys

import pytest

from v6_federated.masks import keys


def test_a_key_is_made_once_and_shown_again(call, folders):
    folder = folders["A"]
    status, lines, made, _ = call("keys", "new", folder)
    assert status == 0 and lines[-1].strip() == made["key"]
    assert keys.parsed(made["key"]) == keys.public_of(keys.identity(folder))
    assert (folder / keys.NAME).stat().st_mode & 0o077 == 0
    private = (folder / keys.NAME).read_text()
    assert call("keys", "show", folder)[2] == made
    status, _, _, err = call("keys", "new", folder)
    assert status == 2 and "exists already" in err and (folder / keys.NAME).read_text() == private


def test_no_line_holds_the_private_half(call, folders):
    _, lines, _, _ = call("keys", "new", folders["A"])
    secret = keys.identity(folders["A"]).private_bytes_raw()
    printed = "\n".join(lines)
    assert keys.written(secret) not in printed and secret.hex() not in printed


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_an_open_folder_is_pointed_out(call, folders):
    folders["A"].chmod(0o755)
    assert f"chmod 700 {folders['A']}" in "\n".join(call("keys", "new", folders["A"])[1])
    assert "chmod" not in "\n".join(call("keys", "new", folders["B"])[1])


@pytest.mark.parametrize(
    ("action", "prepare", "says"),
    [
        ("new", lambda folder: folder.rmdir(), "there is no folder"),
        ("show", lambda folder: folder.rmdir(), "there is no folder"),
        ("show", lambda folder: None, "has no identity.key; make one with `v6-federated keys new FOLDER`"),
        ("show", lambda folder: (folder / keys.NAME).write_text("x"), "holds no X25519 key"),
    ],
)
def test_mistakes_are_one_line(call, folders, action, prepare, says):
    prepare(folders["A"])
    status, lines, _, err = call("keys", action, folders["A"])
    assert status == 2 and not lines and says in err and "Nothing was computed" not in err


def test_it_runs_as_in_an_image(folders):
    """With nothing but the package, as ``python -m``."""
    done = subprocess.run(
        [sys.executable, "-m", "v6_federated", "keys", "new", folders["A"]], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith('{"folder"') and not done.stderr
    helped = subprocess.run([sys.executable, "-m", "v6_federated", "keys", "--help"], capture_output=True, text=True)
    assert "example: python -m v6_federated keys new" in helped.stdout
