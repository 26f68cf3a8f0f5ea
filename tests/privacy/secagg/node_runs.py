"""Complete runs of real nodes on mock tables, and vectors.json: python tests/privacy/secagg/node_runs.py

Keys, secrets and the job's key are set; what a node computes from its rows is recorded where it is encoded. All that
nodes and central send each other is recorded as it was sent. ``second`` recomputes it, and all values in between.
"""

import hashlib
import itertools
import json
import math
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import second
import single_values
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.central import preparation
from v6_federated.gate import questions, under_masks
from v6_federated.masks import transcript
from v6_federated.masks.exact import Exact
from v6_federated.masks.summing import Change, Sums
from v6_federated.messages import codec
from v6_federated.messages.job import Job
from v6_federated.models import layouts
from v6_federated.models.layouts import Asked
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import TRUSTING, MockNetwork, StudyPlan

VERSION = "1.0.0"  # of the code, as nodes say it in these runs
NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}  # which JSON has not
UNHEARD = ("keep_steps", "forget")  # not part of the protocol


def seed(*parts: Any) -> bytes:
    """32 bytes that look random."""
    return hashlib.sha256(repr(parts).encode()).digest()


@dataclass
class Recorder:
    """What nodes were given and have sent.

    Attributes:
        name: of the run, from which its keys and secrets follow.
        private: private keys by public ones.
        tables: digests of the nodes' tables, by organization.
        limits: what D has of their operators' limits, by organization.
        layouts: items of layouts by digest.
        given: what each request's values were, by organization and T.
        kept: T' of the request that saved what a node has loaded, by organization and T.
        calls: organization, message and answer, in order; the answer is None if the node has refused.
    """

    name: str
    private: dict[bytes, bytes] = field(default_factory=dict)
    tables: dict[int, bytes] = field(default_factory=dict)
    limits: dict[int, str] = field(default_factory=dict)
    layouts: dict[str, Any] = field(default_factory=dict)
    given: dict[tuple[int, str], Any] = field(default_factory=dict)
    kept: dict[tuple[int, str], str] = field(default_factory=dict)
    calls: list[list[Any]] = field(default_factory=list)

    def __call__(self, organization: int, message: dict[str, Any]) -> CallOutcome:
        call = [organization, json.loads(json.dumps(message)), None]
        self.calls.append(call)

        def alter(answer: dict[str, Any]) -> dict[str, Any]:
            call[2] = json.loads(json.dumps(answer))
            return answer

        return CallOutcome(alter=alter)

    def of(self, public: str) -> str:
        """The private half of a key, hexadecimal."""
        return self.private[bytes.fromhex(public)].hex()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Set what is random, and record what is not sent."""
        numbers = itertools.count()
        generate, table, layout = X25519PrivateKey.from_private_bytes, under_masks._table, layouts.layout
        answer = under_masks.answer

        def key() -> X25519PrivateKey:
            private = seed(self.name, "key", next(numbers))
            made = generate(private)
            self.private[made.public_key().public_bytes_raw()] = private
            return made

        def digest_of(node: Any, folder: Any) -> bytes:
            self.tables[node.organization_id] = node.source.digest
            self.limits[node.organization_id] = transcript.canonical(node.policy.deciding).decode()
            return table(node, folder)

        def items_of(declaration: Any, asked: Asked) -> Any:
            found = layout(declaration, asked)
            self.layouts[found.digest] = [item.to_json() for item in found.items]
            return found

        def answered(node: Any, request: Any, function: str, sums: Sums, *sent: Any) -> Any:
            *sent, compute = sent
            given = None

            def computes() -> Any:
                nonlocal given
                found = compute()
                names = {part.name for part in sums.parts} | {part.weight.partition("/")[2] for part in sums.parts}
                given = {"n": node.n, "values": {name: plain(found.get(name, 0)) for name in sorted(names - {""})}}
                return found

            said, rows = answer(node, request, function, sums, *sent, computes)
            at = node.organization_id, said["T"]
            self.given.setdefault(at, given)
            self.kept.setdefault(at, node.state.loaded_stamp.hex())
            return said, rows

        with ExitStack() as patches:
            for where, name, by in (
                (X25519PrivateKey, "generate", staticmethod(key)),
                (under_masks, "__version__", VERSION),
                (under_masks, "_table", digest_of),
                (layouts, "layout", items_of),
                (under_masks, "answer", answered),
                (preparation.uuid, "uuid4", lambda: uuid.UUID(bytes=seed(self.name, "job")[:16])),
            ):
                patches.enter_context(mock.patch.object(where, name, by))
            yield


def plain(value: Any) -> Any:
    """What a node adds up, as JSON: numbers in the order of an array's elements."""
    if isinstance(value, Exact):
        zeros = min(((number & -number).bit_length() - 1 for number in value.numbers if number), default=0)
        return {"numbers": [hex(number >> zeros) for number in value.numbers], "exponent": value.exponent + zeros}
    array = np.asarray(value.array if isinstance(value, Change) else value)
    numbers = (array.astype(np.int64) if array.dtype.kind == "b" else array).reshape(-1).tolist()
    return [number if math.isfinite(number) else NOT_FINITE[str(number)] for number in numbers]


def table(k: int, n: int, gap: bool = False) -> pd.DataFrame:
    """Rows of a mock hospital."""
    rng = np.random.default_rng(k)
    rows = pd.DataFrame(
        {"age": rng.integers(20, 90, n), "dose": rng.normal(5, 1, n).round(2), "ill": rng.integers(0, 2, n)}
    )
    if gap:
        rows.loc[3, "dose"] = np.nan
    return rows


@contextmanager
def network(
    recorder: Recorder, package: str, K: int, study: str, bands: int = 0, gap: int = 0
) -> Iterator[MockNetwork]:
    """A mock network whose nodes have known secrets; ``study`` is its hospital_totals, or empty."""
    with tempfile.TemporaryDirectory() as folder, recorder.at_work():
        for k in range(1, K + 1):
            own = Path(folder) / f"node-{k}"
            own.mkdir()
            (own / "secret").write_bytes(seed(recorder.name, "secret", k))
        tables = {k: table(k, 24 + 3 * k, gap=k == gap) for k in range(1, K + 1)}
        environment = {**TRUSTING, "V6_FEDERATED_SCORE_BANDS": str(bands)}
        plan = StudyPlan(K, hospital_totals=study) if study else None
        options = {"hospital_folder": folder, "study": plan, "environment": environment, "outcomes": recorder}
        with MockNetwork(package, tables, on_round=lambda row: None, **options) as made:
            recorder.folder = Path(folder)
            yield made


def of_a_job(
    name: str, package: str, K: int, study: str, bands: int = 0, fails: bool = False, **settings: Any
) -> dict[str, Any]:
    """A job that central runs."""
    recorder = Recorder(name)
    with network(recorder, package, K, study, bands) as nodes:
        try:
            nodes.run(aggregation="pinned" if study else "masked", **settings)
        except CollectResultsError:
            assert fails
        else:
            assert not fails
        return described(recorder, nodes, study, bands)


def of_requests() -> dict[str, Any]:
    """Requests that nodes repeat, refuse, or cannot answer: node 3 lacks a value."""
    recorder, K = Recorder("requests"), 4
    with network(recorder, "v6_pca", K, "hidden", gap=3) as nodes:
        for make in (_unconfirmed, _of_hospitals, _asked_again):
            make(recorder, nodes)
        return described(recorder, nodes, "hidden", bands=0)


class Caller:
    """A central that sends what it is told to."""

    def __init__(self, nodes: MockNetwork, key: str, totals: str = "hidden") -> None:
        data = {"label": "ill", "features": ["age", "dose"], "classes": None, "holdout": 0.0, "preprocess": []}
        data |= {"categories": [], "supervised": False, "regression": False}
        self.nodes, self.tags, self.rows = nodes, {}, None
        self.job = {"method": "pca", "key": key, "seed": 0, "participants": [*nodes.nodes], "evaluators": []}
        self.job |= {"rounds": None, "model": None, "data": data, "minimum_rows": None, "precision": "float32"}
        self.job |= {"aggregation": "pinned", "privacy": None, "hospital_totals": totals}
        self.entries = [self.call(k, "describe", raw=False)["entry"] for k in nodes.nodes]

    def call(self, k: int, function: str, round_: int = 0, job: Any = None, **arguments: Any) -> Any:
        """A node's answer; None if it refuses."""
        message = {"method": function, "kwargs": {"job": job or self.job, "round": round_, **arguments}}
        created = self.nodes.client().task.create(json.loads(json.dumps(message)), [k])
        found = self.nodes.client().wait_for_results(created["id"])
        return found[0] if found else None

    def confirm(self, k: int, roster: Any) -> Any:
        """Have a node confirm a roster, and note its tags."""
        said = self.call(k, "confirm", roster=roster)
        if said is not None:
            self.tags[self.entries[k - 1]["S"]] = said["tags"]
        return said

    def asked(self, seq: int, function: str, arrays: Any = None, units: Any = (), **settings: Any) -> dict[str, Any]:
        """The arguments of a request for a sum."""
        received = codec.decode(arrays) if arrays else {}
        layout = layouts.layout(getattr(questions, function).sums, Asked(Job.from_json(self.job), settings, received))
        sums = Sums.of(layout, seq, 1, self.rows, units, self.tags if seq == 1 else {}).to_json()
        return {**settings, "sums": sums, **({"arrays": arrays} if arrays else {})}


def _unconfirmed(recorder: Recorder, nodes: MockNetwork) -> None:
    """Rosters that are refused, and a first request without tags, after which node 1 has no keys any more."""
    central = Caller(nodes, seed("requests", "unconfirmed")[:16].hex())
    refused = [central.confirm(1, central.entries[:3])]
    refused.append(central.confirm(1, [*central.entries[:3], {**central.entries[3], "version": "1.0.1"}]))
    assert central.confirm(1, central.entries)
    refused.append(central.confirm(1, [*central.entries[:3], {**central.entries[3], "D": "00" * 32}]))
    central.tags = {}
    refused += [central.call(1, "count_rows", **central.asked(1, "count_rows")) for _ in range(2)]
    assert refused == [None] * 5


def _of_hospitals(recorder: Recorder, nodes: MockNetwork) -> None:
    """A sum of hospitals, which the study does not answer, whatever the job says of it."""
    central = Caller(nodes, seed("requests", "hospitals")[:16].hex(), "told")
    assert all([central.confirm(k, central.entries) for k in nodes.nodes])
    levels = central.asked(1, "fit_step", statistic="levels", counts=True, columns=["ill"], known={"ill": ["0", "1"]})
    assert central.call(1, "fit_step", **levels) is None
    assert all([central.call(k, "count_rows", **central.asked(1, "count_rows")) for k in nodes.nodes])


def _asked_again(recorder: Recorder, nodes: MockNetwork) -> None:
    central = Caller(nodes, seed("requests", "job")[:16].hex())
    assert all([central.confirm(k, central.entries) for k in nodes.nodes])
    first = central.asked(1, "count_rows")
    answers = [central.call(k, "count_rows", **first) for k in nodes.nodes]
    assert central.call(1, "count_rows", **first) == answers[0]
    same = {**central.job, "data": {**central.job["data"], "exclude": [], "subgroup": None}}
    assert central.call(1, "count_rows", job=same, **first) == answers[0]
    assert central.call(1, "count_rows", **first, round_=1) is None  # the same number, and other contents
    central.rows = sum(recorder.given[k, a["T"]]["n"] for k, a in enumerate(answers, 1))
    sent = codec.encode({"mean": np.array([50.0, 5.0]), "scale": np.array([20.0, 1.0])}, "float64")
    covariance = central.asked(3, "fit_step", sent, [(64, 12)], statistic="covariance")
    for changed in ({"units": [[64, 65]]}, {"units": [[32, 12]]}, {"layout": "00" * 32}, {"rows": 0}, {"more": 1}):
        assert central.call(1, "fit_step", **{**covariance, "sums": {**covariance["sums"], **changed}}) is None
    other = {**central.job, "data": {**central.job["data"], "holdout": 0.5}}
    assert central.call(1, "fit_step", job=other, **covariance) is None
    center = codec.encode({"center": np.array([3 * 2.0**-77, 0.5])}, "float64")  # sums of half a unit and a few units
    asked = [("fit_step", central.asked(2, "fit_step", center, statistic="moments")), ("fit_step", covariance)]
    for function, arguments in (*asked, ("count_rows", central.asked(4, "count_rows"))):
        assert all(central.call(k, function, **arguments) for k in nodes.nodes)


def described(recorder: Recorder, nodes: MockNetwork, study: str, bands: int) -> dict[str, Any]:
    """The run: what is given, and what was sent."""
    hello = {k: a for k, m, a in recorder.calls if m["method"] == "describe"}
    members = []
    for k in nodes.nodes:
        private = {"s": recorder.of(hello[k]["entry"]["S"])}
        secret = (recorder.folder / f"node-{k}" / "secret").read_bytes().hex()
        own = {"table": recorder.tables[k].hex(), "limits": recorder.limits[k]}
        members.append({"organization": k, "secret": secret, **private, **own})
    text = (recorder.folder / "node-1" / "study.json").read_text() if study else "null"
    requests: list[dict[str, Any]] = []
    layouts: dict[str, str] = {}  # by function, the latest that it has
    for k, message, answer in recorder.calls:
        if message["method"] in UNHEARD:
            continue
        if not requests or requests[-1]["message"] != message or str(k) in requests[-1]["answers"]:
            requests.append({"message": message, "answers": {}})
            if (sums := message["kwargs"].get("sums")) is not None:
                if sums["layout"] in recorder.layouts:
                    layouts[message["method"]] = sums["layout"]
                requests[-1]["layout"] = layouts[message["method"]]
        found: dict[str, Any] = {"answer": answer}
        if message["method"] == "describe":
            found |= {"e": recorder.of(answer["entry"]["E"])}
        elif answer is not None and "T" in answer:
            at = k, answer["T"]
            found |= {"given": recorder.given[at], "kept": recorder.kept[at]}
        requests[-1]["answers"][str(k)] = found
    given = {"name": recorder.name, "mode": "pinned" if study else "masked", "study.json": json.loads(text)}
    given |= {"minimum": 1, "version": VERSION, "bands": bands, "database": None, "nodes": members}
    asked = {request.get("layout") for request in requests}
    items = {digest: items for digest, items in recorder.layouts.items() if digest in asked}
    return given | {"layouts": items, "requests": requests}


def runs() -> list[dict[str, Any]]:
    """The runs: all kinds of sums; nodes that keep something, and numbers that wrap; numbers of any size; refusals."""
    settings = {"label": "ill", "classes": [0, 1], "rounds": 3}
    of_numbers = {"label": "dose", "model": "linear", "loss": "squared", "rounds": 2, "holdout": 0.25}
    of_numbers |= {"epochs": 2, "lr": 1e-4}
    steps = {"preprocess": ["standardize", "pca:1"], "holdout": 0.25, "lr": 1e6}
    return [
        of_a_job("fedavg", "v6_fedavg", 4, "told", bands=2, **settings, **steps),
        of_a_job("scaffold", "v6_scaffold", 3, "", **settings, holdout=0, lr=1e5, lr_decay_round=0.01),
        of_a_job("regression", "v6_fedavg", 3, "", **of_numbers),
        of_a_job("infinite", "v6_fedavg", 3, "", fails=True, **settings, holdout=0, epochs=2, lr=1e300),
        of_requests(),
    ]


def replayed(run: Any, module: Any) -> tuple[list[dict[str, Any]], dict[int, Any]]:
    """What an implementation's nodes answer and its central asks and reads in a run, by request; and its nodes.

    The module has Node, Central and Refused, as ``second``.
    """
    nodes: dict[int, Any] = {}
    for given in run["nodes"]:
        own = (bytes.fromhex(given[name]) for name in ("secret", "s"))
        said = (run[name] for name in ("study.json", "minimum", "version", "bands", "database"))
        nodes[given["organization"]] = module.Node(given["organization"], *own, *said, given["limits"])
    tables = {given["organization"]: bytes.fromhex(given["table"]) for given in run["nodes"]}
    centrals: dict[str, Any] = {}
    requests = []
    for asked in run["requests"]:
        message, answers = asked["message"], {}
        function, job, sums = message["method"], message["kwargs"]["job"]["key"], message["kwargs"].get("sums")
        items = run["layouts"].get(asked.get("layout"))
        for k, found in ((int(k), found) for k, found in asked["answers"].items()):
            try:
                if function == "describe":
                    answers[k] = nodes[k].hello(message, bytes.fromhex(found["e"]), tables[k])
                elif function == "confirm":
                    answers[k] = nodes[k].confirm(message)
                else:
                    given = found.get("given") or {"values": None, "n": None}
                    answers[k] = nodes[k].answer(message, items, given["values"], given["n"])
            except module.Refused:
                answers[k] = None
        made: dict[str, Any] = {"answers": answers}
        whole = len(answers) == len(nodes) and None not in answers.values()
        if function == "describe":
            centrals[job] = module.Central(answers)
        elif function == "confirm":
            for k, said in answers.items():
                if said is not None:
                    centrals[job].confirmed(k, said)
        elif whole:
            [first] = centrals[job].rosters
            e = next((unit[1] for unit in sums["units"]), None)
            made["sums"] = centrals[job].request(function, first, items, e)
            said = [answers[k] for k in sorted(answers)]
            made["opened"] = centrals[job].opened(function, first, items, sums, said)
        requests.append(made)
    return requests, nodes


def computed(run: Any) -> dict[str, Any]:
    """The values of a run between what is given and what is sent."""
    requests, nodes = replayed(run, second)
    for asked, made in zip(run["requests"], requests, strict=True):
        answered = {k: said for k, said in made.pop("answers").items() if said is not None}
        if asked["message"]["method"] == "confirm":
            made["steps"] = {k: nodes[k].steps[asked["message"]["kwargs"]["job"]["key"]] for k in answered}
        elif "sums" in asked["message"]["kwargs"]:
            made["steps"] = {k: nodes[k].steps[said["T"]] for k, said in answered.items()}
    study = run["study.json"]
    of = {"digest": study and second.study_digest(study), "code": study and second.study_code(study)}
    found = single_values.plain({**of, "requests": requests})
    assert isinstance(found, dict)
    return found


def vectors() -> dict[str, Any]:
    """All of vectors.json."""
    return {**single_values.vectors(), "runs": [run | {"computed": computed(run)} for run in runs()]}


def written(value: Any, indent: str = "") -> str:
    """JSON with short things on one line."""
    short = json.dumps(value, ensure_ascii=False)
    if len(short) + len(indent) <= 120 or not isinstance(value, dict | list) or not value:
        return short
    if isinstance(value, list) and not any(isinstance(part, dict | list) for part in value):
        return short
    inner = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + written(part, inner) for part in value) + "\n" + indent + "]"
    lines = (f"{inner}{json.dumps(key, ensure_ascii=False)}: {written(part, inner)}" for key, part in value.items())
    return "{\n" + ",\n".join(lines) + "\n" + indent + "}"


if __name__ == "__main__":
    single_values.FILE.write_text(written(vectors()) + "\n", encoding="utf-8")
