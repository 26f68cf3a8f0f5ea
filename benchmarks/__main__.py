"""``python -m benchmarks NAME --data PATH [--full]``: a document's tables beside ours; ``all``: all of them."""

import argparse
import importlib
import signal
import sys
from pathlib import Path
from typing import Any

from benchmarks import auc, download, report, runs
from v6_federated.base.errors import SafeError
from v6_workbench.errors import EngineError
from v6_workbench.simulation import datasets

NAMES = (
    "attacks",
    "canaries",
    "careful",
    "cifar10",
    "clipping",
    "compression",
    "cost",
    "cox_bins",
    "dishonest_analyses",
    "flamby",
    "folding",
    "garst2021",
    "garst2021_gbdt",
    "garst2021_pca",
    "glm",
    "log_rank",
    "masked",
    "mcmahan2017",
    "mcmahan2017_cifar",
    "mcmahan2017_figures",
    "mcmahan2017_shakespeare",
    "mcmahan2017_words",
    "network",
    "network_jobs",
    "nilsson2018",
    "nilsson2018_cv",
    "one_label",
    "pfitzner_arnrich",
    "poisoning",
    "private_functions",
    "private_glm",
    "private_utility",
    "reddy2020",
    "scale",
    "secagg_cost",
    "speed",
    "trees",
)
# not part of ``all``, since nothing else may run at the same time
TIMED = ("clipping", "cost", "network", "network_jobs", "scale", "secagg_cost", "speed")
# not part of ``all``; small versions of the last four are tests
APART = (*TIMED, "attacks", "canaries", "dishonest_analyses", "private_functions")
WITHOUT_DATA = (
    "attacks",
    "canaries",
    "careful",
    "clipping",
    "cox_bins",
    "dishonest_analyses",
    "folding",
    "log_rank",
    "network",
    "poisoning",
    "private_functions",
    "scale",
    "secagg_cost",
)
MNIST, FASHION = "mnist.npz", "fashion_mnist.npz"
OTHER_DATA = {
    "cifar10": ("cifar10.npz",),
    "flamby": ("heart_disease.csv", "tcga_brca.csv"),
    "garst2021_gbdt": (MNIST, FASHION),
    "garst2021_pca": ("golub.npz",),
    "glm": ("heart_disease.csv",),
    "mcmahan2017_cifar": ("cifar10.npz",),
    "mcmahan2017_shakespeare": ("shakespeare.json.gz",),
    "mcmahan2017_words": ("shakespeare.json.gz",),
    "network_jobs": ("heart_disease.csv",),
    "private_glm": ("heart_disease.csv",),
    "trees": ("heart_disease.csv", FASHION),
}
OTHER_DATA_FULL = {
    "reddy2020": (MNIST, FASHION),
    "garst2021": (MNIST, FASHION),
    "private_utility": (MNIST, FASHION, "heart_disease.csv"),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Reproduce a document's tables. A stopped benchmark continues where it was.",
        epilog="example: python -m benchmarks mcmahan2017 --data mnist.npz",
    )
    parser.add_argument(
        "name",
        choices=["all", "auc", "download", "report", *NAMES],
        metavar="NAME",
        help=f"all, auc, download, report, {', '.join(NAMES)}",
    )
    parser.add_argument(
        "--data", type=Path, help="the data's file, for example mnist.npz; for all and download its folder"
    )
    parser.add_argument("--full", action="store_true", help="all rows and seeds, instead of what runs in minutes")
    parser.add_argument("--out", type=Path, help=f"folder of tables, pictures and finished runs ({runs.RESULTS.name})")
    parser.add_argument("--seeds", type=int, metavar="N", help="with --full, only the first N seeds of each row")
    parser.add_argument(
        "--kept", action="store_true", help="run nothing: make the tables from finished runs; missing ones are marked"
    )
    options = parser.parse_args()
    if options.data is None and options.name not in ("auc", "report", *WITHOUT_DATA):
        parser.error(f"{options.name} needs --data, for example --data mnist.npz")
    if options.seeds is not None and (options.seeds < 1 or not options.full):
        parser.error(f"--seeds {options.seeds}: expected 1 or more, together with --full")
    if options.kept and options.name in (*APART, "garst2021_pca"):
        parser.error(f"--kept: what {options.name} runs is not kept; run it without --kept")
    if options.data and options.name in WITHOUT_DATA:
        parser.error(f"--data {options.data}: {options.name} needs no data; leave it out")
    if options.name in NAMES and options.data and options.data.name not in (expected := _data_of(options.name, True)):
        # a page of other data would overwrite the right one
        parser.error(f"--data {options.data}: {options.name} needs {' or '.join(expected)}")
    runs.most_seeds, runs.only_kept = options.seeds, options.kept
    if options.out:
        if options.out.exists() and not options.out.is_dir():
            parser.error(f"--out {options.out} is a file; expected a folder")
        runs.RESULTS = options.out
    signal.signal(signal.SIGTERM, _stop)
    try:
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
        return _run(options)
    except (SafeError, EngineError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("stopped; the same command continues from here", file=sys.stderr)
        return 130


def _run(options: Any) -> int:
    if options.name == "download":
        for name in download.NAMES:
            print(download.download(name, options.data))
        return 0
    if options.name == "auc":
        print(auc.main())
        return 0
    if options.name == "report":
        print(report.write())
        return 0
    if options.name != "all":
        _benchmark(options.name, options.data, options.full)
        return 0
    missing = []
    for name in NAMES:
        if name in WITHOUT_DATA:
            if name not in APART:
                _benchmark(name, None, options.full)
            continue
        for data in _data_of(name, options.full) if name not in APART else ():
            file = options.data / data
            if file.exists():
                _benchmark(name, file, options.full)
            else:
                missing.append(f"{name}: no {file.name} in {options.data}")
    for line in missing:
        print(f"left out: {line}", file=sys.stderr)
    if any(runs.RESULTS.glob("*.md")):
        print(report.write())
    return 1 if missing else 0


def _data_of(name: str, full: bool) -> tuple[str, ...]:
    return OTHER_DATA.get(name) or (OTHER_DATA_FULL.get(name) if full else None) or (MNIST,)


def _benchmark(name: str, data: Path | None, full: bool) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    load = getattr(module, "load", lambda file: datasets.load(str(file)))  # its own, if the data are not a table
    module.main(None if data is None else load(data), full)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
