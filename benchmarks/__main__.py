"""``python -m benchmarks NAME --data PATH [--full]``: one document's tables beside ours."""

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

import benchmarks
from v6_federated import datasets
from v6_federated.errors import SafeError

NO_BENCHMARKS = ("__main__", "echo", "plain_loop", "runs", "tables")
WITHOUT_DATA = ("network",)


def main() -> int:
    names = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name not in NO_BENCHMARKS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", 
        description="Reproduce a document's tables. A stopped benchmark goes on where it was.",
        epilog="example: python -m benchmarks mcmahan2017 --data mnist.npz",
    )  # fmt: skip
    parser.add_argument("name", choices=names, help="which document, or cost, or network")
    parser.add_argument("--data", type=Path, help="mnist.npz: x_train, y_train, x_test, y_test")
    parser.add_argument("--full", action="store_true", help="all rows and seeds, not only what runs in minutes")
    options = parser.parse_args()
    if options.data is None and options.name not in WITHOUT_DATA:
        parser.error(f"{options.name} needs --data, for example --data mnist.npz")
    try:
        dataset = None if options.data is None else datasets.load(str(options.data))
    except SafeError as error:
        parser.error(str(error))
    importlib.import_module(f"benchmarks.{options.name}").main(dataset, options.full)
    return 0


if __name__ == "__main__":
    sys.exit(main())
