"""A request as the node counts and logs it: which function, for which job, and what left."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from v6_federated.base import database
from v6_federated.base.vantage6_api import NO_OWN_FOLDER
from v6_federated.masks import study
from v6_federated.masks.study import Study
from v6_federated.messages import serialization
from v6_federated.rules import audit, quota, stopped
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy

WITHOUT_FOLDER = (
    "this node has no database with the label hospital: its audit log and the counters of its limits lie in its data "
    "volume, and are lost with it"
)
ONE_SESSION = f"the audit log and the counters of this node's limits end with the session: {NO_OWN_FOLDER}"


@dataclass
class Request:
    """A call of a partial function, under the operator's limits.

    Attributes:
        policy: the operator's limits.
        folder: the hospital's folder; None if there is none and none is needed.
        entry: its line in the audit log, if nothing leaves.
        arguments: all arguments of the function, unchecked.
        digest: SHA-256 of everything that the answer follows from; ``count`` computes it.
        table: which database of the node the task is about, see ``database.named``; None on mock nodes.
    """

    policy: Policy
    folder: HospitalFolder | None
    entry: audit.Entry
    arguments: Mapping[str, Any] = field(repr=False)
    digest: bytes = b""
    table: str | None = None

    @classmethod
    def of(cls, organization: int, function: str, arguments: Mapping[str, Any]) -> "Request":
        """Read the limits of the node, and note the request."""
        policy = Policy.of_node()
        job = arguments["job"] if isinstance(arguments["job"], dict) else {}
        masked = policy.aggregation != "plain" or job.get("aggregation", "plain") in ("masked", "pinned")
        masked |= job.get("privacy") is not None  # noise is for sums
        folder = HospitalFolder.of_node(policy, organization, needed=masked)
        line = audit.entry(policy, organization, function, arguments["round"], job)
        if line.run is not None:  # a container of a node, with a log that its operator reads
            if line.looser:
                names = ", ".join(f"V6_FEDERATED_{name}" for name in line.looser)
                print(f"looser than the profile {policy.profile}: {names}", flush=True)
            if folder is not None and not folder.own:
                print(ONE_SESSION if NO_OWN_FOLDER else WITHOUT_FOLDER, flush=True)
        return cls(policy, folder, line, arguments)

    @functools.cached_property
    def study(self) -> Study | None:
        """The study that this hospital has accepted when it is first looked at; None if there is none."""
        return None if self.folder is None else study.accepted(self.folder.path)

    def check_stopped(self) -> None:
        """Refuse the request if the hospital's operator has stopped its job."""
        if self.folder is not None:
            stopped.check(self.folder.path, self.entry.job)

    def count(self, state: Sequence[int], transcript: bytes | None = None) -> None:
        """Count the request before anything is computed for it.

        It is the same as an earlier one only if its answer is: function, arguments, rows, and what the node keeps.
        """
        if self.folder is not None:
            entry = self.entry
            if transcript is not None:
                self.digest = transcript
                quota.count(self.policy, self.folder, entry.job, entry.function, transcript, quota.now())
                return
            asked = [entry.organization, entry.function, dict(self.arguments), database.chosen(), [*state]]
            self.digest = serialization.digest(asked)
            quota.count(self.policy, self.folder, entry.job, entry.function, self.digest, quota.now())

    def generator(self, purpose: str) -> np.random.Generator:
        """Return random numbers of the node's own: the same for the same request, and known to nobody else."""
        if self.folder is None:
            return np.random.default_rng()
        return np.random.default_rng(self.folder.derived(purpose, self.digest))

    def answered(self, answer: Mapping[str, Any], rows: int | None) -> None:
        """Note in the audit log what leaves."""
        self.check_stopped()
        if self.folder is not None:
            size, sha256 = audit.sent(answer)
            left = audit.contents(answer)
            evaluated = answer.get("evaluation", {}).get("n")
            line = replace(self.entry, time=audit.now(), rows=rows, evaluated=evaluated)
            audit.write(self.folder, replace(line, left=left, bytes=size, sha256=sha256))

    def refused(self, reason: str) -> None:
        """Note in the audit log that nothing leaves, and why."""
        if self.folder is not None:
            audit.write(self.folder, replace(self.entry, time=audit.now(), refused=reason))
