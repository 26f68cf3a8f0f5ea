"""Deletes each rule of the code in turn: a refusal, or a threshold. Each must make a test fail.

A refusal is a clause of the condition of an ``if`` that ends in ``raise``: deleted, it is never true. A threshold is
any other comparison with a limit (``LIMITS``): it is deleted both ways, never true and always true. First the tests run
once on a copy of the code that records which test saw which rule true or false. Then each rule is deleted in a copy,
and the tests that saw it run, the quickest first, until one fails. A refusal that no test has seen true needs no run.

    python tests/rules.py                  # all: hours
    python tests/rules.py --part 1/20      # a twentieth of them
    python tests/rules.py algorithms/v6_federated/masks --workers 2
"""

import argparse
import ast
import contextlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    *(
        f"algorithms/v6_federated/{room}"
        for room in ("gate", "rules", "masks", "noise", "node", "data", "models", "messages")
    ),
    *sorted(
        str(path.relative_to(ROOT))
        for path in ROOT.glob("algorithms/v6_*/*.py")
        if path.parent.name not in ("v6_federated", "v6_workbench") and path.name not in ("__init__.py", "central.py")
    ),
)
LIMITS = re.compile(r"(^|_)(least|most|minimum|maximum|limit|limits|floor|budget|quiet|policy|few|enough)(_|$)", re.I)
COPIED = ("algorithms", "tests", "benchmarks", "docs", "docker", "pyproject.toml", "README.md", "CHANGELOG.md")
PRELOADED = [
    "pytest",
    "pandas",
    "sklearn.linear_model",
    "scipy.stats",
    "torch",
    "cryptography",
    "dp_accounting",
    "pyarrow",
]
RECORD = "V6_RULES_SEEN"  # variable: the folder of the records
SLOWEST = 300  # seconds that the tests of one rule may take, ten times what all but a few need


@dataclass(frozen=True)
class Rule:
    """A condition: where its text begins and ends, in bytes, and as what it is deleted."""

    path: str
    name: str  # tells it from others, also when other lines of the file change
    line: int
    begin: int
    end: int
    text: str
    as_: tuple[bool, ...]


def rules_of(path: str, source: bytes) -> Iterator[Rule]:
    """The rules of a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    tree, times = ast.parse(source), Counter[str]()
    holders = {
        id(part): holder.name
        for holder in ast.walk(tree)  # outer ones first
        if isinstance(holder, ast.FunctionDef | ast.ClassDef)
        for part in ast.walk(holder)
    }

    def rule(node: ast.expr, as_: tuple[bool, ...]) -> Rule:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        text = " ".join(source[begin:end].decode().split())
        name = f"{path} {holders.get(id(node), '')}: {text}"
        times[name] += 1
        return Rule(path, f"{name} #{times[name]}", node.lineno, begin, end, text, as_)

    within: set[int] = set()  # what is a rule's part is no rule of its own, nor is what an f-string says
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Assert):
            within |= {id(part) for part in ast.walk(node)}
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            clauses = (
                node.test.values
                if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or)
                else [node.test]
            )
            for clause in clauses:
                within |= {id(part) for part in ast.walk(clause)}
                yield rule(clause, (False,))
        elif isinstance(node, ast.Compare) and id(node) not in within:
            names = [getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(node)]
            if any(LIMITS.search(name) for name in names):
                within |= {id(part) for part in ast.walk(node)}
                yield rule(node, (False, True))


def changed(source: bytes, rules: list[Rule], call: str) -> bytes:
    """The source with ``call`` about each rule, on the same lines as before."""
    for rule in sorted(rules, key=lambda r: r.begin, reverse=True):
        condition = source[rule.begin : rule.end]
        called = call.replace("NAME", repr(rule.name)).encode()
        source = source[: rule.begin] + called + b"(" + condition + b"))" + source[rule.end :]
    lines = source.splitlines(keepends=True)
    head = 0  # docstring and what must be imported first, after which there may be another statement
    for node in ast.parse(source).body:
        if not (isinstance(node, ast.Expr) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")):
            break
        head = node.end_lineno or 0
    called = b"import rules as __rules__\n"
    lines[:head] = [*lines[: head - 1], lines[head - 1].rstrip() + b"; " + called] if head else [called]
    return b"".join(lines)


# ---- what the copies call

_seen: set[tuple[str, bool, str]] = set()


def seen(name: str, value: Any) -> Any:
    """Record that the test that runs has seen a rule true, or false."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    truths = {bool(value)} if not hasattr(value, "shape") else {bool(one) for one in value.ravel().tolist()}
    for truth in truths:
        if test and (name, truth, test) not in _seen:
            _seen.add((name, truth, test))
            with Path(os.environ[RECORD], str(os.getpid())).open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, truth, re.sub(r"@/.*", "", test)]) + "\n")
    return value


def always(truth: bool, value: Any) -> Any:
    """What stands in place of a rule's condition."""
    if hasattr(value, "shape"):
        return (value | True) if truth else (value & False)
    return truth


# ---- the two runs


def copy(folder: Path) -> None:
    """Copy what the tests need."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy(source, folder / name)


def environment(folder: Path) -> dict[str, str]:
    """Variables with which Python finds the copy, not the installed package."""
    return {"PYTHONPATH": f"{folder}/algorithms:{folder}/tests", "PYTHONDONTWRITEBYTECODE": "1"}


def recorded(rules: dict[str, list[Rule]], workers: int, tests: list[str], log: Path) -> dict[str, dict[str, float]]:
    """The tests that saw each rule true or false, and the seconds that each takes; what pytest says goes to ``log``."""
    with tempfile.TemporaryDirectory() as place:
        folder, records = Path(place, "copy"), Path(place, "records")
        folder.mkdir(), records.mkdir()
        copy(folder)
        for path, those in rules.items():
            file = folder / path
            file.write_bytes(changed(file.read_bytes(), those, "__rules__.seen(NAME, "))
        command = [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "loadgroup", "-p", "no:cacheprovider"]
        command += ["--ignore=tests/network", "--durations=0", "--durations-min=0.05", *tests]
        with log.open("w") as file:
            own = os.environ | environment(folder) | {RECORD: str(records)}
            subprocess.run(command, cwd=folder, env=own, stdout=file, stderr=subprocess.STDOUT, check=False)
        said = log.read_text()
        print("\n".join(said.splitlines()[-15:]), file=sys.stderr)
        failed = {*re.findall(r"^(?:FAILED|ERROR) (tests/.*?)(?:@/.*)?(?: - .*)?$", said, re.M)}
        seconds: dict[str, float] = defaultdict(float)
        for took, test in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +(tests/.*?)(?:@/.*)?$", said, re.M):
            seconds[test] += float(took)
        found: dict[str, dict[str, float]] = defaultdict(dict)
        for file in records.iterdir():
            for name, truth, test in map(json.loads, file.read_text().splitlines()):
                if test not in failed:  # it would kill each rule
                    found[f"{name} {truth}"][test] = seconds.get(test, 0.02)
    return found


def _child(folder: str, tests: list[str]) -> None:
    os.chdir(folder)
    os.environ.update(environment(Path(folder)))
    sys.path[:0] = [f"{folder}/algorithms", f"{folder}/tests", folder]
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        import pytest

        code = pytest.main(["-x", "-n", "0", "-p", "no:cacheprovider", "--no-header", *tests])
    os._exit(int(code))


def deleted(rule: Rule, truth: bool, tests: dict[str, float], folder: Path) -> str:
    """What the tests say of the code in ``folder`` without a rule: "dies", or why it does not."""
    if not tests:
        return "no test sees it"
    file = folder / rule.path
    before = file.read_bytes()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    try:
        file.write_bytes(changed(before, [rule], f"__rules__.always({truth}, "))
        child = context.Process(target=_child, args=(str(folder), sorted(tests, key=tests.__getitem__)))
        child.start()
        child.join(SLOWEST)
        hung = child.is_alive()
        if hung:
            child.kill()
            child.join()
        return "dies" if hung or child.exitcode in (1, 2) else f"lives ({len(tests)} tests, status {child.exitcode})"
    finally:
        file.write_bytes(before)


def worker(rules: list[tuple[Rule, bool, dict[str, float]]], out: Path) -> None:
    """Delete rules one after another, and write down what came of each."""
    with tempfile.TemporaryDirectory() as place:
        copy(Path(place))
        for rule, truth, tests in rules:
            said = deleted(rule, truth, tests, Path(place))
            with out.open("a") as file:
                file.write(json.dumps([rule.name, truth, said]) + "\n")


def main() -> int:
    """Delete the rules of the files given, and say which live."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=ROOMS, help="files or folders whose rules are deleted")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--part", default="1/1", help="K/N: the K-th of N parts")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="tests that may see the rules")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "rules", help="folder; what it has is not done again"
    )
    parser.add_argument("--list", action="store_true", help="print the rules only")
    asked = parser.parse_args()
    files = [
        file
        for path in asked.paths
        for file in ([ROOT / path] if (ROOT / path).is_file() else sorted((ROOT / path).rglob("*.py")))
    ]
    names = [str(file.relative_to(ROOT)) for file in files]
    rules = {name: found for name in names if (found := list(rules_of(name, (ROOT / name).read_bytes())))}
    if asked.list:
        for rule in (rule for those in rules.values() for rule in those):
            print(f"{rule.path}:{rule.line}: {rule.text}")
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "seen.json"
    if not kept.exists():
        kept.write_text(json.dumps(recorded(rules, asked.workers, asked.tests, asked.out / "tests.txt")))
    tests = json.loads(kept.read_text())
    done = asked.out / "deleted.jsonl"
    already = {tuple(json.loads(line)[:2]) for line in done.read_text().splitlines()} if done.exists() else set()
    k, parts = map(int, asked.part.split("/"))
    todo = [
        (rule, as_, tests.get(f"{rule.name} {not as_}", {}))
        for those in rules.values()
        for rule in those
        for as_ in rule.as_
    ]
    todo = [it for it in todo[k - 1 :: parts] if (it[0].name, it[1]) not in already]
    processes = [
        multiprocessing.get_context("spawn").Process(target=worker, args=(todo[i :: asked.workers], done))
        for i in range(asked.workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    known = {(rule.name, as_) for those in rules.values() for rule in those for as_ in rule.as_}
    found = [json.loads(line) for line in done.read_text().splitlines()]
    found = [it for it in found if (it[0], it[1]) in known]
    alive = [it for it in found if it[2] != "dies"]
    for name, truth, said in alive:
        print(f"{name}: always {truth}: {said}")
    print(f"{len({it[0] for it in found})} rules, deleted in {len(found)} ways, {len(alive)} alive")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
