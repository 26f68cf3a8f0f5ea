"""The command line as a user calls it, and a table of three hospitals."""

import json

import numpy as np
import pandas as pd
import pytest

from v6_workbench.cli import console
from v6_workbench.cli.main import main


@pytest.fixture
def call(capsys):
    """Calls the command line; returns exit status, last line of standard output (JSON if all went well), and errors."""

    def call(*arguments):
        try:
            status = main([str(a) for a in arguments])
        except SystemExit as error:
            status = error.code
        out, err = capsys.readouterr()
        return (
            status,
            json.loads(out.strip().splitlines()[-1]) if status == 0 and out.strip().endswith("}") else out,
            err,
        )

    return call


@pytest.fixture
def refused(call):
    """Calls the command line with a wrong request, which must be refused in one line that holds ``says``."""

    def refused(says, *arguments):
        status, _, err = call(*arguments)
        lines = [line for line in err.splitlines() if not line.startswith("taken over from the earlier job: ")]
        assert status == 2 and len(lines) == 1 and says in lines[0], err
        return lines[0]

    return refused


@pytest.fixture
def trained(monkeypatch):
    """The rounds that were trained: every training shows them on a bar."""
    rounds = []
    show = console.Bar.on_round
    monkeypatch.setattr(console.Bar, "on_round", lambda bar, row: (rounds.append(row), show(bar, row)))
    return rounds


@pytest.fixture
def hospitals_csv(tmp_path):
    """A file of three hospitals with a rare class and an identifier, and its rows."""
    rng = np.random.default_rng(4)
    n = 300
    x = rng.normal(size=n)
    rows = pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(n)],
            "x": x,
            "z": rng.normal(size=n),
            "hospital": np.array(["Noord", "Zuid", "Oost"])[np.arange(n) % 3],
            "outcome": np.where(x > 1.6, "died", "home"),
        }
    )
    file = tmp_path / "rows.csv"
    rows.to_csv(file, index=False)
    return file, rows
