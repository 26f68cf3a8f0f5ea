"""Random hostile tasks: tasks of honest jobs, changed at random places. Run as a program, which prints what it found.

Usage: ``python hostile_tasks.py PROFILE NUMBER SEED``.
"""

import json
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

sys.path.append(str(Path(__file__).parents[1]))  # it is run as a script
from peak_memory import peak

from v6_federated.base.errors import SafeError
from v6_federated.base.logs import WITHHELD
from v6_federated.messages import codec
from v6_workbench import registry
from v6_workbench.conformance import tables
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

TARGET = 1
STEPS = ["impute:median", "impute:most_frequent", "onehot", "clip:0.1", "standardize", "pca:3"]
ENVIRONMENT = {"V6_FEDERATED_MAXIMUM_SECONDS": "1"}  # a task may ask for a billion epochs
NUMBERS = [0, 1, -1, 2, 7, 10, 2**31 - 1, 2**53, 2**64 - 1, -(2**63), 0.5, 1e-300, -1e308, 1e308, 0.999999]
TEXTS = [
    "",
    " ",
    "nan",
    "inf",
    "x0",
    "x1",
    "sex",
    "label",
    "pc1",
    "*",
    "../../etc/passwd",
    "a" * 10_000,
    "\u0000",
    "é\u202e",
]
NETWORKS = ["fnn", "nn_reddy", "2nn", "cnn_garst", "cnn_mcmahan", "cnn_cifar", "lstm_char", "lstm_word"]
NAMES = ["logreg", "svm", *NETWORKS, "trees", "none"]


def rows() -> dict[int, Any]:
    """Hospitals whose numbers and words nobody would guess."""
    found = {k: tables.clinic(60 + 5 * k, k, ["f", "m"]) for k in (1, 2, 3)}
    found[TARGET].loc[3, "sex"] = "Rumpelstilz"
    return found


def honest() -> list[tuple[str, dict[str, Any]]]:
    """The tasks that honest jobs of all methods send to the target: package, and the task's input."""
    found = list[tuple[str, dict[str, Any]]]()
    jobs: list[tuple[str, dict[str, Any]]] = [
        *(
            (name, {"preprocess": STEPS[: 3 if name == "gbdt" else None]})
            for name in registry.names()
            if name not in ("km", "pca")
        ),
        ("km", {"label": "label", "bins": 2}),
        ("pca", {"components": 2, "features": ["x0", "x2", "x3"]}),
        ("fedavg", {"model": "2nn", "features": ["x0", "x2", "x3"], "batch_size": 10}),
        ("gbdt", {"mode": "cyclic", "objective": "regression", "label": "x0", "features": ["x2", "x3"]}),
    ]
    for name, settings in jobs:
        package = registry.package_of(name).__name__

        def note(organization: int, input_: dict[str, Any], package: str = package) -> CallOutcome:
            if organization == TARGET:
                found.append((package, orjson.loads(orjson.dumps(input_))))
            return CallOutcome()

        known = registry.settings_of(name).model_fields
        more = {"rounds": 2, "max_bin": 8, "evaluate_every": 1}
        with MockNetwork(package, rows(), outcomes=note, on_round=lambda row: None) as network:
            network.run(**settings, **{key: setting for key, setting in more.items() if key in known})
    return found


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in a tree of JSON."""
    if path:
        yield path
    if isinstance(tree, dict) and set(tree) == {"dtype", "shapes", "data"}:
        return  # a payload is one place
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:20]) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def payload(rng: random.Random) -> Any:
    """Arrays of odd shapes and sizes, some of them broken."""
    shape = [rng.choice([0, 1, 2, 3, 4, 5, 10, 65, 1000]) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
    fill = rng.choice([0.0, 1.0, -1.0, 1e-38, 1e30, 3e38])
    name = rng.choice(["weights", "mean", "scale", "lower", "c", "full_gradient", "Q", "edges", "high"])
    made = codec.encode({name: np.full(shape, fill)}, rng.choice(["float32", "float64"]))
    kind = rng.randrange(6)
    if kind == 0:
        made["shapes"] = rng.choice([{name: [2**40, 2**40, 0]}, {name: [-1]}, {name: "3"}, [], {name: [[1]]}, {"": []}])
    if kind == 1:
        made["data"] = rng.choice(["", "AAAA", "\u00e9", 7, None, "////fw==" * 3])
    if kind == 2:
        made["dtype"] = rng.choice(["object", "int64", "", None, ["float32"]])
    return made


def nested(depth: int) -> Any:
    """Lists in lists: fewer than the 80 with which the mock network's orjson 3.10 writes past its memory."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def value(rng: random.Random, others: list[Any]) -> Any:
    """A hostile value, or one from somewhere else in an honest task."""
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind == 3:
        return rng.choice(TEXTS)
    if kind == 4:
        return rng.choice([None, True, False, [], {}, [[]], {"": None}, nested(60), list(range(1000)), ["x0"] * 500])
    if kind == 5:
        return payload(rng)
    if kind == 6:
        return {"name": rng.choice(NAMES), "features": rng.choice([1, 4, 10**6]), "classes": rng.choice([1, 2, 100])}
    if kind == 7:
        step = rng.choice(["impute", "onehot", "clip", "standardize", "pca", "x"])
        part = {"impute": "values", "onehot": "levels", "clip": "bounds"}.get(step, "x")
        forged = rng.choice([payload(rng), {part: {rng.choice(["x0", "sex", "z"]): value(rng, others)}}])
        return [{"step": step, "fitted": forged}]
    return rng.choice(others)


def alike(rng: random.Random, old: Any, others: list[Any]) -> Any:
    """A hostile value of the same kind, which passes the first checks."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int | float):
        return rng.choice([n for n in NUMBERS if isinstance(n, type(old))] or NUMBERS)
    if isinstance(old, str):
        return rng.choice([*TEXTS, *(v for v in others if isinstance(v, str) and len(v) < 100)])
    if isinstance(old, list) and old:
        return rng.choice([old[::-1], old * 2, old[:-1], old[1:], [*old, rng.choice(others)], old[:1] * len(old), []])
    if isinstance(old, dict) and set(old) == {"dtype", "shapes", "data"}:
        try:
            arrays = {name: np.array(a, np.float64) for name, a in codec.decode(old).items()}
        except SafeError:  # an earlier change has broken it
            return payload(rng)
        chosen = rng.choice(sorted(arrays)) if arrays else None
        if chosen is not None and (a := arrays[chosen].reshape(-1)).size:
            kind = rng.randrange(5)
            if kind == 0:
                a[:] = rng.choice([0.0, 1.0, -1.0, 1e-38, 1e30, -3e38])
            elif kind == 1:
                a *= rng.choice([1e-30, 1e10, 1e25, -1.0])
            elif kind == 2:
                a[rng.randrange(a.size)] = rng.choice([0.0, -1.0, 1e38, 1e-45])
            elif kind == 3:
                a[:] = np.random.default_rng(rng.randrange(2**32)).permutation(a)
            else:
                del arrays[chosen]
        with np.errstate(over="ignore"):
            made = {name: np.clip(a, -3e38, 3e38) for name, a in arrays.items()}
        return codec.encode(made, rng.choice(["float32", "float64"]))
    return value(rng, others)


def mutated(rng: random.Random, task: dict[str, Any], others: list[Any]) -> dict[str, Any]:
    """A task with one to three changes."""
    task = orjson.loads(orjson.dumps(task))
    for _ in range(rng.choice([1, 1, 2, 3])):
        path = rng.choice(list(places(task["kwargs"])))
        inner = task["kwargs"]
        for key in path[:-1]:
            inner = inner[key]
        kind = rng.randrange(16)
        if kind == 0:
            del inner[path[-1]]
        elif kind == 1 and isinstance(inner, dict):
            inner[rng.choice(["x", "rows", *map(str, inner)])] = value(rng, others)
        elif kind == 2 and isinstance(inner, list):
            inner.append(inner[path[-1]])
        elif kind > 5:
            inner[path[-1]] = alike(rng, inner[path[-1]], others)
        else:
            inner[path[-1]] = value(rng, others)
        if not task["kwargs"]:
            break
    return task


def secrets() -> tuple[set[str], np.ndarray]:
    """The target's words that are no names of columns or levels, and its numbers."""
    table = rows()[TARGET]
    numbers = table[["x0", "x1", "x2", "x3"]].to_numpy(np.float64).ravel()
    return {"Rumpelstilz"}, np.sort(numbers[~np.isnan(numbers)])


def betrays(text: str, words: set[str], numbers: np.ndarray) -> bool:
    """Whether a text holds a word of a row, or a number of a row to four digits or more."""
    if any(word in text for word in words):
        return True
    for found in re.findall(r"-?\d+\.\d+(?:e[+-]?\d+)?", text):
        if len(found.lstrip("-0.").replace(".", "")) >= 4:
            size = 0.5 * 10.0 ** -len(found.partition(".")[2].partition("e")[0])
            if np.any(np.abs(numbers - float(found)) <= size):
                return True
    return False


def main(profile: str, number: int, seed: int) -> dict[str, Any]:
    """Send the tasks; what they did."""
    rng, faults, done = random.Random(seed), list[str](), dict[str, int]()
    tasks = honest()
    others = [
        v for _, t in tasks[:: max(len(tasks) // 40, 1)] for p in places(t["kwargs"]) if (v := _at(t, p)) is not None
    ]
    words, numbers = secrets()
    environment = {**ENVIRONMENT, "V6_FEDERATED_PROFILE": profile}
    networks: dict[str, MockNetwork] = {}
    by_function: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for package, task in tasks:
        by_function.setdefault((package, task["method"]), []).append(task)
    try:
        for i in range(number):
            package, function = rng.choice(sorted(by_function))
            task = mutated(rng, rng.choice(by_function[package, function]), others)
            if package not in networks:
                networks[package] = MockNetwork(package, rows(), environment=environment)
            client = networks[package].client()
            sent = client.task.create(task, [TARGET])
            answers = client.wait_for_results(sent["id"])
            run = client.run.from_task(sent["id"])[0]
            log = run["log"] or ""
            what = "answered" if answers else "refused"
            done[what] = done.get(what, 0) + 1
            clear = re.match(rf"Error encountered while calling {function}: organization {TARGET}: \S", log)
            if run["status"] != "completed" and (not clear or WITHHELD in log or "\n" in log or len(log) > 3000):
                faults.append(f"task {i}: {log[:400]}")
            if betrays(log, words, numbers):
                faults.append(f"task {i} betrays a row: {log[:400]}")
    finally:
        for network in networks.values():
            network.close()
    return {"done": done, "faults": faults, "peak_mb": round(peak() / 2**20)}


def _at(task: dict[str, Any], path: tuple[Any, ...]) -> Any:
    found = task["kwargs"]
    for key in path:
        found = found[key]
    return found


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
