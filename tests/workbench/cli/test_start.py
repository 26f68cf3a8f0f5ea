"""What a command imports before it answers: help, refusals of wrong words, settings and reports wait for no library."""

import pkgutil
import re
import subprocess
import sys
from typing import get_type_hints

import pytest

from v6_federated.operator.command_line import Group
from v6_workbench import registry
from v6_workbench.cli import parser
from v6_workbench.cli.main import main

LIBRARIES = {"matplotlib", "numpy", "pandas", "pydantic", "rich", "scipy", "torch", "vantage6"}
COMMANDS = [one for each in parser.COMMANDS for one in (each.commands if isinstance(each, Group) else (each,))]
PLACES = [
    [group.name, *([] if group is one else [one.name])]
    for group in parser.COMMANDS
    for one in (group.commands if isinstance(group, Group) else (group,))
]


def libraries(*words, module="v6_workbench.cli.main", status=0):
    """The slow libraries that a command of these words imports, of which Python itself says what it imports."""
    command = [sys.executable, "-X", "importtime", "-m", module, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr[-1000:]
    imported = {name.partition(".")[0] for name in re.findall(r"^import time: .*\| +(\S+)$", done.stderr, re.MULTILINE)}
    assert "argparse" in imported and "v6_federated" in imported
    return LIBRARIES & imported


@pytest.mark.parametrize("module", ["v6_workbench.cli.main", "v6_federated"])
def test_help_imports_no_library(module):
    assert libraries("--help", module=module) == set()


def test_a_wrong_option_imports_no_library():
    assert libraries("tune", "fedavg", "--grdi", "lr=1", status=2) == set()


def test_help_of_all_commands_imports_no_library():
    code = (
        "import contextlib, io, sys\n"
        "from v6_workbench.cli.main import main\n"
        f"for place in {PLACES}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):\n"
        "        main([*place, '--help'])\n"
        "    assert 'example: ' in shown.getvalue()\n"
        f"sys.exit(bool({LIBRARIES} & {{*sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.example.replace(" ", "-")[:20])
def test_the_work_of_a_command_is_where_the_list_says_and_takes_its_options(command):
    work = pkgutil.resolve_name(command.home)
    assert get_type_hints(work)["options"] is command.options


@pytest.mark.parametrize("method", registry.names())
def test_settings_import_no_library_but_that_of_tables(method):
    assert libraries("settings", method) == {"rich"}


@pytest.mark.parametrize("method", registry.names())
def test_settings_of_a_method_from_elsewhere_are_asked_of_its_code(method, capsys, monkeypatch):
    """Files of this project's methods say the same as their code."""
    assert main(["settings", method]) == 0
    read = capsys.readouterr().out
    monkeypatch.setattr(registry, "is_here", lambda method: False)
    assert main(["settings", method]) == 0
    assert capsys.readouterr().out == read


def test_a_report_without_pictures_imports_what_it_needs(tmp_path, capsys):
    out = tmp_path / "out"
    run = ["run", "fedavg", "--data", "breast-cancer", "--rounds", "1", "--preprocess", "standardize", "--out", out]
    assert main([str(word) for word in run]) == 0
    capsys.readouterr()
    assert libraries("report", out) == {"numpy", "pydantic", "rich"}
    assert libraries("report", out, "--out", tmp_path / "pictures") == {"matplotlib", "numpy", "pydantic", "rich"}
