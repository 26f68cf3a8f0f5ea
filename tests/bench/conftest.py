"""Fixtures of the tests of ``benchmarks``."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # benchmarks is not installed


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A small mnist.npz, with the same number of rows of each class."""
    rng = np.random.default_rng(0)
    y, y_test = np.arange(700) % 10, np.arange(100) % 10
    images = rng.integers(0, 256, (10, 28, 28))
    path = tmp_path_factory.mktemp("data") / "mnist.npz"
    X, X_test = ((0.5 * images[c] + rng.integers(0, 128, (len(c), 28, 28))).astype(np.uint8) for c in (y, y_test))
    np.savez(path, x_train=X, y_train=y.astype(np.uint8), x_test=X_test, y_test=y_test.astype(np.uint8))
    return path


@pytest.fixture
def start():
    """Starts ``python -m benchmarks`` with some arguments."""

    def process(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks", *map(str, arguments)],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    return process
