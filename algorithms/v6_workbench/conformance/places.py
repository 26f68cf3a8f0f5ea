"""The same method in different places: mock nodes, worker processes, vantage6's own mock client."""

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator, Mapping

from v6_federated.base.vantage6_api import mock_client
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import MethodCase
from v6_workbench.conformance.jobs import OPEN, Tape, difference, run, size
from v6_workbench.conformance.outcome import require


def same_bits_everywhere(case: MethodCase) -> None:
    """Mock nodes in one process, in two worker processes, and vantage6's mock client give the same result."""
    nodes = case.nodes(tables.three())
    for model in case.trained_models():
        values = case.with_minibatches(model=model, rounds=3, seed=5, preprocess=["standardize"])
        one, two = (run(case, nodes, processes=processes, **values) for processes in (1, 2))
        parts = difference(one, two)
        require(not parts, f"{model or 'it'}: worker processes give another {parts}")
        client = mock_client(case.package, nodes)
        with (
            tempfile.TemporaryDirectory() as folder,
            _environment({**OPEN, "TEMPORARY_FOLDER": folder}),
            contextlib.redirect_stdout(io.StringIO()),  # a line a round
        ):
            theirs = case.central(mock_client=client, **values)
        parts = difference(one, theirs)
        require(not parts, f"{model or 'it'}: vantage6's mock client gives another {parts}")


def traffic_equals_bytes_sent(case: MethodCase) -> None:
    """The bytes that a result tells of are those of all messages, as vantage6 sends them."""
    tape = Tape()
    result = run(case, case.nodes(tables.three()), outcomes=tape, **case.values(rounds=3, preprocess=["standardize"]))
    for name, message in (("bytes_down", "message"), ("bytes_up", "answer")):
        parts = [*result["history"], *result["traffic"].values()]
        told = sum(part[name] for part in parts)
        sent = sum(size(getattr(call, message)) for call in tape.calls if call.function != "forget")
        require(told == sent, f"the result tells of {told} {name}; {sent} were sent")


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
