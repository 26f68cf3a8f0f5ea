"""Payloads and tasks with random changes: each is answered or clearly refused, with little memory and no row's value.

``make test`` tries 200 payloads, and 200 tasks under each profile; ``MUTATED_PAYLOADS=3000`` sets another number. They
run in a process of their own, whose largest memory is that of this test.
"""

import contextlib
import copy
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1]))  # as a script, it is not started by pytest
from peak_memory import STATUS, peak

from v6_federated.base.errors import SafeError
from v6_federated.messages import codec

TRIES = int(os.environ.get("MUTATED_PAYLOADS", "200"))
MEMORY = 2**30  # bytes
LINE = 1000  # letters of a refusal
HOSTILE = [
    *(None, True, False, 0, 1, -1, 2, 2**31, 2**40, 2**53, 2**64, -(2**63), 10**400),
    *(0.5, -0.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan")),
    *("", "x", "0" * 32, "\ud800", "\0", "../..", "x1", "weights", "float64", "AAAA", "é", "a\nb", "a" * 10**5),
    *([], {}, [None], [[]], [2**40, 2**40, 0], [-1], [True], [1.5], [0] * 10**4, [[0.0] * 60] * 4, {"": None}),
    *({"kept": "0" * 64}, {"step": "clip", "kept": "0" * 64}, {"step": []}, {"dtype": "float32"}),
    {str(i): [0] for i in range(2000)},
    {"dtype": "float64", "shapes": {"weights": [60]}, "data": "A" * 640},
    {"dtype": "float32", "shapes": {"weights": [2**40, 2**40, 0]}, "data": ""},
    json.loads("[" * 99 + "]" * 99),
    json.loads("[" * 900 + "]" * 900),
    json.loads('{"a":' * 900 + "1" + "}" * 900),
]


def paths(message, start=()):
    """Where something can be changed."""
    if isinstance(message, dict | list):
        for key, part in message.items() if isinstance(message, dict) else enumerate(message[:20]):
            yield (*start, key)
            yield from paths(part, (*start, key))


@st.composite
def changed(draw, messages):
    """One of the messages, with one to three changes."""
    message = copy.deepcopy(draw(st.sampled_from(messages)))
    for _ in range(draw(st.integers(1, 3))):
        *outer, key = draw(st.sampled_from([*paths(message)][::-1] or [("x",)]))  # the inner ones first
        place = message
        for part in outer:
            place = place[part]
        what = draw(st.sampled_from(["value", "value", "text", "number", "letter", "remove", "rename", "wrap"]))
        old = place[key] if isinstance(place, list) or key in place else None
        if what == "remove":
            del place[key]
        elif what == "rename" and isinstance(place, dict):
            place[draw(st.text(max_size=8))] = place.pop(key, None)
        elif what == "letter" and isinstance(old, str) and old:
            at = draw(st.integers(0, len(old) - 1))
            place[key] = old[:at] + draw(st.text(max_size=2)) + old[at + 1 :]
        elif what == "text":
            place[key] = draw(st.text(max_size=20))
        elif what == "number":
            place[key] = draw(st.one_of(st.integers(), st.floats()))
        elif what == "wrap":
            place[key] = draw(st.sampled_from([[old], {"a": old}, [old, old]]))
        else:
            place[key] = copy.deepcopy(draw(st.sampled_from(HOSTILE)))
        if not isinstance(message, dict):
            break
    return message


def tries(messages):
    """A decorator: run a function with changed messages. A failing one is shown as it is: to shrink it takes long."""
    options = settings(
        max_examples=TRIES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return lambda function: options(given(changed(messages))(function))


# ---- what runs in a process of its own


def decode_payloads() -> None:
    rng = np.random.default_rng(0)
    arrays = {"weights": rng.normal(size=5), "block": rng.normal(size=(4, 3)), "none": np.empty((0, 7))}
    payloads = [json.loads(json.dumps(codec.encode(arrays, precision))) for precision in codec.DTYPES]

    @tries(payloads)
    def decode(payload):
        for expected in (None, {"weights": (5,), "block": (None, 3)}):
            with contextlib.suppress(SafeError):
                found = codec.decode(payload, expected)
                assert all(np.isfinite(array).all() for array in found.values())

    decode()


def run_tasks(profile: str) -> None:
    from v6_federated.gate.call import SAFE_ERRORS
    from v6_workbench import registry
    from v6_workbench.conformance.tables import clinic
    from v6_workbench.simulation import mock_node
    from v6_workbench.simulation.mock import CallOutcome, MockNetwork

    nodes = {k: clinic(60, k, ["qzkward", "qzkhome"]) for k in (1, 2, 3)}
    steps = ["impute:median", "impute:most_frequent", "onehot", "clip:0.05", "standardize"]
    recorded: dict[tuple, dict] = {}

    def record(package):
        def outcomes(organization, input_):
            if organization == 1:
                which = (package, input_["method"], input_["kwargs"].get("statistic"), input_["kwargs"]["round"] > 1)
                recorded.setdefault(which, json.loads(json.dumps(input_["kwargs"])))
            return CallOutcome()

        return outcomes

    for method in registry.names():
        package = f"v6_{method}"
        own = {"label": "label"} if registry.times_only(method) else {"preprocess": steps}
        network = MockNetwork(package, nodes, on_round=lambda row: None, outcomes=record(package))
        with network, contextlib.suppress(SafeError):  # regressions refuse the constant column, once they have asked
            network.run(rounds=2, **own)
    assert len(recorded) > 40, recorded.keys()
    values = {str(v) for rows in nodes.values() for v in rows.select_dtypes("number").stack() if len(str(v)) > 6}
    words = {str(v) for rows in nodes.values() for v in rows.select_dtypes(object).stack()}
    rows = nodes[1]
    tasks = [{"function": list(which[:2]), "kwargs": kwargs} for which, kwargs in recorded.items()]
    said: dict[str, int] = {}

    with tempfile.TemporaryDirectory() as folder:
        (hospital := Path(folder) / "hospital").mkdir()
        limits = {"V6_FEDERATED_PROFILE": profile, "V6_FEDERATED_MAXIMUM_SECONDS": "1"}
        limits |= {"HOSPITAL_DATABASE_URI": str(hospital), "V6_FEDERATED_MAXIMUM_ROUNDS_A_WEEK": str(2 * TRIES)}
        limits["TEMPORARY_FOLDER"] = folder

        @tries([task["kwargs"] | {"function": task["function"]} for task in tasks])
        def run(task):
            function = task.pop("function", None)
            if function not in [known["function"] for known in tasks]:
                return
            printed = io.StringIO()
            partial = getattr(sys.modules[function[0]], function[1])
            with (
                mock_node.environment_of(limits),
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
            ):
                try:
                    partial(mock_client=mock_node._Identity(1), mock_data=[rows.copy()], **task)
                except SAFE_ERRORS as error:
                    text = str(error)
                    assert text.startswith("organization 1: "), text
                    assert "\n" not in text and len(text) <= LINE, text
                    said[text[:60]] = said.get(text[:60], 0) + 1
                else:
                    text = ""
            text += printed.getvalue()
            sent = json.dumps(task, default=str)
            assert not [value for value in values if value in text and value not in sent], text
            assert not [word for word in words if f" {word}" in text and word not in sent], text

        run()
        kept = "".join(file.read_text(errors="replace") for file in hospital.rglob("*") if file.is_file())
        assert len(kept) > 10_000 and not [value for value in values if value in kept], "the audit log holds a value"
    print(json.dumps({"refusals": sum(said.values()), "kinds": len(said)}), file=sys.stderr)
    assert len(said) > 10, said


# ---- the tests


@pytest.mark.parametrize("what", ["payloads", "trusting", "careful"])
def test_changed_messages_are_answered_or_refused(what):
    if not STATUS.exists():
        pytest.skip("the memory of a process is read from Linux")
    done = subprocess.run([sys.executable, __file__, what], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert json.loads(done.stdout.splitlines()[-1])["memory"] < MEMORY


if __name__ == "__main__":
    decode_payloads() if sys.argv[1] == "payloads" else run_tasks(sys.argv[1])
    print(json.dumps({"memory": peak()}))
