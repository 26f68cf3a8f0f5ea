"""The published vectors are those that the second implementation makes, and real nodes answer as it does."""

import json
import re
from pathlib import Path

import node_runs
import pytest
import second
import single_values

RUNS = ("fedavg", "scaffold", "regression", "infinite", "requests")


@pytest.fixture(scope="module")
def runs():
    """What real nodes send now, by name."""
    return {run["name"]: run for run in node_runs.runs()}


def compared(run, module):
    """A run's answers and sums as nodes and central sent them, and as an implementation computes them."""
    requests, nodes = node_runs.replayed(run, module)
    pairs = []
    for asked, made in zip(run["requests"], requests, strict=True):
        for k, given in asked["answers"].items():
            answer, mine = given["answer"], made["answers"][int(k)]
            if None not in (answer, mine) and "T" not in answer:  # besides, a node describes its columns
                answer = {name: answer.get(name) for name in mine}
            pairs.append((asked["message"]["method"], k, answer, mine))
            if "kept" in given:
                loaded = nodes[int(k)].loaded[answer["T"]].hex()
                pairs.append((asked["message"]["method"], k, given["kept"], loaded))
        if "sums" in made:
            pairs.append((asked["message"]["method"], "central", asked["message"]["kwargs"]["sums"], made["sums"]))
    return pairs, requests


def test_the_file_is_up_to_date(vectors):
    """Otherwise run python tests/privacy/secagg/node_runs.py."""
    made = json.loads(json.dumps(single_values.vectors()))
    assert made == {name: value for name, value in vectors.items() if name != "runs"}
    assert [run["name"] for run in vectors["runs"]] == [*RUNS]


@pytest.mark.parametrize("name", RUNS)
def test_the_second_implementation_answers_and_asks_as_in_the_file(vectors, name):
    [run] = [run for run in vectors["runs"] if run["name"] == name]
    pairs, requests = compared(run, second)
    for function, k, sent, mine in pairs:
        assert sent == mine, (function, k)
    assert json.loads(json.dumps(node_runs.computed(run))) == run["computed"]
    found = [made.get("opened") for made in requests]
    assert found == [made.get("opened") for made in run["computed"]["requests"]] and any(found)


@pytest.mark.parametrize("name", RUNS)
def test_nodes_and_central_send_what_the_second_implementation_does(runs, name):
    pairs, _ = compared(runs[name], second)
    assert len(pairs) > 10
    for function, k, sent, mine in pairs:
        assert sent == mine, (function, k)


@pytest.mark.parametrize("name", RUNS)
def test_the_runs_in_the_file_are_what_nodes_send_now(vectors, runs, name):
    """Except for numbers: the last digits of what nodes compute from rows differ from machine to machine."""
    [run] = [
        {key: value for key, value in run.items() if key != "computed"}
        for run in vectors["runs"]
        if run["name"] == name
    ]
    assert form(json.loads(json.dumps(runs[name]))) == form(run)
    assert runs[name]["requests"][0] == run["requests"][0]


def form(value):
    """JSON without its numbers, digests, and words."""
    if isinstance(value, dict):
        return {name: form(part) for name, part in value.items() if name not in ("T", "kept", "data", "tags", "units")}
    if isinstance(value, list):
        return [form(part) for part in value]
    if isinstance(value, str) and re.fullmatch("-?0x[0-9a-f]+", value):  # a part of an exact sum
        return "number"
    return type(value).__name__ if isinstance(value, int | float) else value


def test_runs_have_every_kind_of_part_and_every_kind_of_answer(vectors):
    """Counts, fixed and chosen units, ladders, exact sums, means of both widths, checks, wraps, noise, and refusals."""
    kinds, answers = set(), set()
    for run in vectors["runs"]:
        for asked, made in zip(run["requests"], run["computed"]["requests"], strict=True):
            for _, weight, _, unit, _ in run["layouts"].get(asked.get("layout"), ()):
                kinds |= {(weight, unit if isinstance(unit, str) else type(unit).__name__)}
            for found in asked["answers"].values():
                values = (found.get("given") or {}).get("values") or {}
                kinds |= {"exact" for value in values.values() if isinstance(value, dict)}
                kinds |= {number for value in values.values() for number in value if isinstance(number, str)}
                answers |= {"refused" if found["answer"] is None else "kept" if found.get("kept") else "answered"}
            kinds |= {f"{bits} bits" for bits, _ in asked["message"]["kwargs"].get("sums", {}).get("units", ())}
            opened = made.get("opened", {})
            answers |= {what for what in ("failed", "wrapped") if opened.get(what)}
    assert answers == {"refused", "answered", "kept", "failed", "wrapped"}
    assert kinds >= {
        ("one", "NoneType"), ("one", "int"), ("one", "list"), ("one", "any"), ("rows", "int"), ("rows", "any"),
        ("share", "mean"), ("equal", "mean"), ("equal/travelled", "mean"), "exact", "32 bits", "64 bits",
        "Infinity", "NaN",
    }  # fmt: skip


def test_the_second_implementation_shares_no_code():
    imported = re.findall(r"^\s*(?:from|import) (\S+)", Path(second.__file__).read_text(encoding="utf-8"), re.MULTILINE)
    allowed = {"base64", "contextlib", "fractions", "hashlib", "hmac", "json", "math", "re", "struct"}
    assert {name for name in imported if not name.startswith("cryptography.hazmat")} == allowed


def test_the_sums_of_the_vectors_are_those_of_the_values(vectors):
    for block in vectors["blocks"]:
        for name, decoded in ((name, found) for name, found in block["decoded"].items() if name != "checks"):
            columns = zip(*(answer["values"][name] for answer in block["answers"]), strict=True)
            for found, column in zip(decoded, columns, strict=True):
                assert abs(found - sum(column)) <= len(block["answers"]) * 2.0 ** (3 - 31)
