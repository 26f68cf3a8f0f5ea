"""R as a referee: the numbers that a script in R computes, for tests with the marker ``r``.

Tests pass the R call itself, so that it stands next to the numbers it is compared with.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

WRITE = """
write <- function(name, values) cat(name, sprintf("%.17g", as.numeric(values)), "\\n", sep = "\\t")
"""


@functools.cache
def missing() -> str:
    """Why no script can run here; empty if one can."""
    there = shutil.which("Rscript") is not None
    if there and not subprocess.run(["Rscript", "-e", "library(survival)"], capture_output=True).returncode:
        return ""
    return "R or its package survival is not installed (Debian: apt-get install r-base-core r-cran-survival)"


def check() -> None:
    """Skip a test where no script can run; under REQUIRE_R=1 it fails."""
    if reason := missing():
        if os.environ.get("REQUIRE_R") == "1":
            pytest.fail(f"REQUIRE_R=1, but {reason}")
        pytest.skip(reason)


def numbers(script: str, **frames: pd.DataFrame) -> dict[str, np.ndarray]:
    """Run a script in R.

    Args:
        script: it finds ``frames`` as data frames, and hands over each result by ``write("name", values)``.
        frames: tables, by the name that the script knows them by.

    Returns:
        What it has written, by name: numbers, NaN for NA.
    """
    with tempfile.TemporaryDirectory() as folder:
        read = ""
        for name, frame in frames.items():
            frame.to_csv(Path(folder, f"{name}.csv"), index=False)
            read += f'{name} <- read.csv("{name}.csv")\n'
        lines = _run(f"{read}{WRITE}{script}", folder).splitlines()
    found = (line.strip().split("\t") for line in lines if "\t" in line)
    return {name: np.array([float("nan" if v == "NA" else v) for v in values]) for name, *values in found}


def table(expression: str) -> pd.DataFrame:
    """Read a data frame of R, such as ``survival::colon``.

    Args:
        expression: what it is in R.

    Returns:
        The table; factors are words.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(f'write.csv({expression}, "table.csv", row.names = FALSE)', folder)
        return pd.read_csv(Path(folder, "table.csv"))


def _run(script: str, folder: str) -> str:
    path = Path(folder, "script.R")
    path.write_text(script)
    done = subprocess.run(["Rscript", "--vanilla", path], cwd=folder, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr
    return done.stdout
