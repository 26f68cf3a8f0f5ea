"""How a dishonest researcher asks nodes whose answers are masked: keys, requests for sums, and what comes out of them.

Without a study, whoever leads a job also says who takes part. So the researcher names the target and participants that
do not exist, makes their keys, and can subtract all masks: what is left is the target's own answer. With a study, the
target agrees with its own block and nobody else. The researcher gets the sum over the block, and asks for it in the
form that one hospital with all rows of the block would answer in.
"""

import importlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from v6_federated.base.errors import SafeError
from v6_federated.base.version import __version__
from v6_federated.gate import under_masks
from v6_federated.masks import agreement, keys, keystreams, notation, study
from v6_federated.masks.agreement import Entry
from v6_federated.masks.summing import Sums, decoded
from v6_federated.messages import codec
from v6_federated.messages.job import Job
from v6_federated.models import layouts, metrics
from v6_federated.models.layouts import Asked
from v6_federated.noise import units
from v6_workbench.simulation.mock_node import MockNode

if TYPE_CHECKING:
    from benchmarks.attacks.researcher import Researcher

INVENTED = (900, 901)  # organizations that do not exist
TARGET = 1  # the number of the block
A_JOB = 200  # requests; then the researcher begins another job
OF_TIMES = {
    "newton_on_grid": ("risk",),
    "leaving": ("events", "censored"),
}  # what is asked for of the methods for survival
MODEL = {"client_update": "weights", "gradient": "gradient"}  # arrays as long as the model, by function


class Refused(Exception):
    """A node refused a task; the text is its one line."""


class Failed(Refused):
    """Nodes could not compute their parts of a sum, and added noise."""


class NotASum(Refused):
    """The attack needs a number that nodes do not add up; the text says which in a few words."""


@dataclass
class Participant:
    """A participant that the researcher has invented, with its keys."""

    s: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    e: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    version: str = __version__

    @property
    def entry(self) -> Entry:
        """What it says of itself."""
        return Entry(keys.public_of(self.s), keys.public_of(self.e), bytes(32), self.version)


@dataclass
class Agreed:
    """A job whose nodes have agreed on keys.

    Attributes:
        key: the job's key.
        mode: "masked" or "pinned".
        members: organizations that exist.
        entries: what the members said of themselves, by organization.
        invented: participants of the researcher's own.
        ids: the organizations that they are said to be.
        tags: what has been said to confirm the keys, by sender and receiver.
        pairs: keys that the researcher knows: by member, and by the participant that shares it.
        seq: number of the last request.
        rows: how many rows the members have, once a sum has told.
        wrapped: whether numbers of the last sum were too large for their unit.
    """

    key: str
    mode: str
    members: Sequence[int]
    entries: dict[int, Entry] = field(default_factory=dict)
    invented: Sequence[Participant] = ()
    ids: Sequence[int] = INVENTED
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    pairs: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    seq: int = 0
    rows: int | None = None
    wrapped: bool = False

    @property
    def participants(self) -> list[int]:
        """All ids, of those that exist and of those that do not."""
        return [*self.members, *self.ids[: len(self.invented)]]

    @property
    def roster(self) -> list[dict[str, Any]]:
        """The entries of all participants."""
        return [entry.to_json() for entry in [*self.entries.values(), *(p.entry for p in self.invented)]]

    def opened(self, sums: Sums, answers: Mapping[int, Mapping[str, Any]]) -> tuple[int, bool, dict[str, np.ndarray]]:
        """Add up the members' answers and take away the masks whose keys are known.

        Args:
            sums: what was asked for.
            answers: masked answers by member.

        Returns:
            How many nodes the sum is over (nonsense if masks are left), whether some could not compute, and the sums.
        """
        nodes, failed, found, wrapped = decoded(sums, *self.added(sums, answers))
        self.wrapped = bool(wrapped)
        return nodes, failed, found

    def added(self, sums: Sums, answers: Mapping[int, Mapping[str, Any]]) -> tuple[dict[int, np.ndarray], bytes]:
        """The same before the words are read: the sums of words of 32 and of 64 bits, and the transcript."""
        T = b""
        words = dict[int, np.ndarray]()
        for bits in (32, 64):
            total: np.ndarray = np.zeros(sums.words(bits), keystreams.WORDS[bits])
            for k, answer in answers.items():
                total += codec.decode_words(answer[f"y{bits}"], f"uint{bits}", sums.words(bits))
                T = bytes.fromhex(answer["T"])
                drawn = notation.H("kept", T, b"")  # these functions keep nothing
                for S, K in self.pairs.get(k, {}).items():
                    m = keystreams.mask(K, drawn, 32 if bits == 32 else 64, total.size)
                    if self.entries[k].S < S:  # the member has added it
                        total -= m
                    else:
                        total += m
            words[bits] = total
        return words, T


def agree(
    researcher: "Researcher",
    package: str,
    members: Sequence[int],
    *,
    key: str | None = None,
    job: Mapping[str, Any] | None = None,
    invented: Sequence[Participant] | None = None,
    ids: Sequence[int] = INVENTED,
    swapped: Mapping[int, Participant] | None = None,
) -> Agreed:
    """Begin a job: hello, and confirm the roster.

    Args:
        researcher: sends the requests.
        package: the method's import package.
        members: organizations that exist.
        key: the job's key; None: a new one.
        job: rows, columns and classes, which cannot change during the job; None: those of an ordinary one.
        invented: participants of the researcher's own; None: two without a study, none with one.
        ids: the organizations that they are said to be.
        swapped: members in whose place the researcher puts its own job key, and guesses the tags.

    Returns:
        The job.

    Raises:
        Refused: a node refuses.
    """
    mode = researcher.mode
    if invented is None:
        invented = [Participant() for _ in INVENTED] if mode == "masked" else []
    agreed = Agreed(key or uuid.uuid4().hex, mode, members, invented=invented, ids=ids)
    whole = {**(job or researcher.job(package)), "model": None}
    whole |= {"key": agreed.key, "aggregation": mode, "participants": agreed.participants}
    whole["data"] = {**whole["data"], "preprocess": []}
    hellos = researcher.send(package, "describe", members, job=whole, round=0, raw=True)
    agreed.entries = {k: Entry.from_json(hello["entry"]) for k, hello in hellos.items()}
    for k, participant in (swapped or {}).items():
        agreed.entries[k] = replace(agreed.entries[k], E=participant.entry.E)
    R = _digest(agreed)
    for participant in (swapped or {}).values():  # without the identity key behind it, a tag can only be guessed
        guess = {entry.S.hex(): bytes(32).hex() for entry in agreed.entries.values()}
        agreed.tags |= {e.S.hex(): guess for e in agreed.entries.values() if e.E == participant.entry.E}
    for participant in invented:
        said = agreed.tags[participant.entry.S.hex()] = {}
        for k, entry in agreed.entries.items():
            K = pair(participant, entry, agreed.key)
            agreed.pairs.setdefault(k, {})[participant.entry.S] = K
            said[entry.S.hex()] = agreement.tag(K, participant.entry.S, entry.S, R).hex()
    confirmed = researcher.send(
        package, "confirm", [k for k in members if k not in (swapped or {})], job=whole, round=0, roster=agreed.roster
    )
    for k, answer in confirmed.items():
        agreed.tags[agreed.entries[k].S.hex()] = answer["tags"]
    for k in researcher.colluding:
        for public, shared in _kept(researcher.network(package).nodes[k], agreed.key).items():
            for member, entry in agreed.entries.items():
                if entry.S.hex() == public:
                    agreed.pairs.setdefault(member, {})[agreed.entries[k].S] = bytes.fromhex(shared)
    return agreed


def _kept(node: MockNode, key: str) -> dict[str, str]:
    """The keys that a hospital which works with the researcher shares with the others, by their public keys."""
    [file] = node.folder.rglob(f"*{key}-*-keys.sealed")
    [seal] = (Path(node.environment["HOSPITAL_DATABASE_URI"]) / under_masks.SEALS).glob(f"{key}-*")
    nonce, sealed = file.read_bytes()[: under_masks.NONCE_BYTES], file.read_bytes()[under_masks.NONCE_BYTES :]
    session = json.loads(ChaCha20Poly1305(seal.read_bytes()).decrypt(nonce, sealed, key.encode()))
    found: dict[str, str] = session["shared"]
    return found


def pair(participant: Participant, entry: Entry, job: str) -> bytes:
    """The key that an invented participant shares with a node, in a job without a study."""
    return agreement.pair_key(participant.s, participant.e, participant.entry, entry, study.masked_study(job), job)


def _digest(agreed: Agreed) -> bytes:
    entries = [*agreed.entries.values(), *(p.entry for p in agreed.invented)]
    return agreement.roster_digest(study.masked_study(agreed.key), agreed.key, entries)


# ---- the answer of one hospital with all rows of the block


def question(
    package: str,
    function: str,
    agreed: Agreed,
    job: Mapping[str, Any],
    arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    seq: int,
    e: int,
    tags: Mapping[str, Any] | None = None,
) -> Sums:
    """The sum that the function declares: nodes add up nothing else.

    Args:
        package: the method's import package.
        function: the partial function.
        agreed: the job that nodes have agreed on.
        job: the job as it is sent.
        arguments: of the function.
        arrays: that are sent.
        seq: number of the request.
        e: of the unit of sums whose unit a request chooses.
        tags: confirmations of keys; None: those that nodes have sent.

    Returns:
        The request.

    Raises:
        Refused: the function adds up nothing for such arguments; nodes find the same, before they read a row.
    """
    declaration = getattr(importlib.import_module(package), function).sums or {}  # none: the node says why
    settings = {name: value for name, value in arguments.items() if name not in ("evaluate", "bands")}
    evaluates = bool(arguments.get("evaluate"))
    asked = Asked(Job.from_json(job), settings, arrays, evaluates, arguments.get("bands", 0))
    try:
        layout = layouts.layout(declaration, asked)
    except SafeError as error:
        raise Refused(f"organization {TARGET}: {error}") from None
    units = [(64, e) for _ in layout.chosen]
    said = agreed.tags if tags is None else tags
    return Sums.of(layout, seq, TARGET, agreed.rows, units, said)


def climbed(found: Mapping[int, Mapping[str, np.ndarray]], name: str) -> np.ndarray:
    """Read sums that were asked for in several units, one after the other: coarse ones tell how often fine ones wrap.

    Args:
        found: sums by e.
        name: of the value.
    """
    value: Any = None
    for e in sorted(found, reverse=True):
        now, wraps_at = found[e][f"one {name} 2^{e}"], 2.0 ** (e + 8)
        value = now if value is None else now + np.rint((value - now) / wraps_at) * wraps_at
    return np.asarray(value)


DETAILS = ("counts", "predicted", "subgroups")  # of the last evaluation


def answer_of(
    function: str,
    arguments: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Turn sums into the arrays and values that one hospital with all rows would answer."""
    n = int(found["one n"])
    statistic = arguments.get("statistic")
    if (name := MODEL.get(function)) is not None:
        change = next(value for key, value in found.items() if key.startswith(f"share {name} "))
        return {name: change + arrays[name] if name in arrays else change}, {"n": n}
    if function == "leaf_sums":
        return {"sums": found["one sums"]}, {"n": n}
    if statistic == "moments":
        return {"first": found["one first"], "second": found["one second"]}, {"n": n}
    if statistic == "covariance":
        return {"covariance": found["one covariance"]}, {"n": n}
    if function == "newton":
        return {name: found[f"one {name}"] for name in ("gradient", "hessian")}, {"n": n}
    if function in OF_TIMES:
        return {name: found[f"one {name}"] for name in OF_TIMES[function]}, {"n": n}
    if statistic == "below":
        return {"below": found["one below"]}, {"n": n}
    if function != "evaluate":
        raise NotASum("the number is not added up")
    sums = {name.removeprefix("one ").partition(" ")[0]: value for name, value in found.items()}
    values = {"n": n, "evaluation": _evaluation({k.removeprefix("evaluation."): v for k, v in sums.items()})}
    if details := {name: np.asarray(sums[name]) for name in DETAILS if name in sums}:
        values["details"] = codec.encode(details, "float64")
    return {}, values


def _evaluation(sums: Mapping[str, np.ndarray]) -> dict[str, Any]:
    if "second" in sums:
        return metrics.regression_of_sums(sums)
    bands = [[metrics.packed(side) for side in problem] for problem in sums["bands"].tolist()]
    return {**metrics.of_sums(sums), "bands": bands if sums["bands"].any() else []}


# ---- under a budget


def read_noisy(found: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The noisy counts of an evaluation in rows."""
    confusion, bands = (np.asarray(found[f"one evaluation.{name}"]) / units.COUNT for name in ("confusion", "bands"))
    return {"confusion": confusion.tolist(), "bands": bands.tolist()}
