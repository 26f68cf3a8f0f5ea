"""Blocks: organizations whose answers central opens together. There are always blocks.

Without masks, each organization is a block of one, which opens to its answer unchanged. Under masks a block opens whole
or not at all, to an answer in the form of one node's, with the rows and the members of the block. So what rounds and
methods do with answers does not depend on masks, see ``Answers``.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import DIVERGED
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.central.answer import Answer, Share, Unusable, refusal
from v6_federated.central.calls import Group, Question
from v6_federated.masks import summing
from v6_federated.masks.agreement import Entry
from v6_federated.masks.study import TOTALS
from v6_federated.masks.summands import FIRST, LEAST, MORE, MOST, Item, Layout, Part
from v6_federated.masks.summing import Sums
from v6_federated.models import metrics
from v6_federated.rules.policy import Policy
from v6_federated.rules.rounding import Rounding

ROOM = 3  # powers of two between the largest number of a sum and e of the next, which has 32 bits
SLOWLY = 1  # powers of two by which e falls at most from one sum to the next: opposite updates may have cancelled
LEAP = 2**20  # requests: more than a job can have made since its last checkpoint

OFTEN = "values are missing (add a step impute), or rows or events of a group are too few for a limit"
IN_TRAINING = f"{OFTEN}, or the model diverges (smaller learning rate)"
SUMS = "sums over the blocks; and from each organization: names of columns, classes and levels, and public keys"
NO_AUC = (
    "not computed: nodes count scores in different numbers of bands; ask their operators for the same "
    "V6_FEDERATED_SCORE_BANDS"
)


class TooLarge(Exception):
    """Numbers of a sum were too large for their unit; the same request in 64 bits brings them."""


class Blocks:
    """Blocks of one, without masks: central sees each organization's own answer.

    Attributes:
        mode: "plain", "masked" or "pinned".
        single: whether central sees single answers.
        in_a_study: whether operators have settled the blocks. Their nodes send exact counts, of which central rounds,
            or leaves out, what is small over a block, by the limits of the node where it runs.
        lost: why a block is not asked any more in this job, by its first member.
        hospital_totals: whether sums may tell totals of single hospitals, by the word of the study; empty without one.
        hospitals_a_person: at how many hospitals the study lets a person have rows; noise grows with it.
    """

    mode: ClassVar[str] = "plain"
    single: ClassVar[bool] = True
    in_a_study: ClassVar[bool] = False
    lost: Mapping[int, str] = MappingProxyType({})
    hospital_totals: str = ""
    hospitals_a_person: int = 1

    # ---- whom to ask

    def whole(self, organizations: Collection[int]) -> list[list[int]]:
        """The blocks all of whose members are among some organizations; of lost blocks, it does not matter."""
        return [[k] for k in organizations]

    def without(self, missing: Iterable[int]) -> list[list[int]]:
        """The blocks that do not open while some organizations are missing."""
        return [[k] for k in missing]

    def standing(self, organizations: Collection[int], missing: AbstractSet[int] = frozenset()) -> list[list[int]]:
        """The blocks of some organizations that open although others are missing."""
        whole = self.whole(organizations)
        return [block for block in whole if block[0] not in self.lost and missing.isdisjoint(block)]

    def broken(self, organizations: AbstractSet[int], missing: AbstractSet[int]) -> dict[int, Unusable]:
        """Those of some organizations that need not be asked, since another one of their block is missing, and why."""
        found: dict[int, Unusable] = {}
        for block in self.without(missing):
            gone = sorted(missing & {*block})
            why = self.lost.get(block[0]) or f"organization {gone[0]} of its block is missing"
            found |= {k: Unusable(why) for k in block if k not in gone}
        return {k: error for k, error in found.items() if k in organizations}

    def number(self, organizations: Collection[int], quorum_of: int | None) -> int:
        """How many blocks ``min_responses`` is a share of: those of the organizations, or of as many as are given."""
        return len(organizations) if quorum_of is None else quorum_of

    def uncounted(self, organizations: Collection[int]) -> list[int]:
        """The organizations of blocks of which the number of rows is needed and not known."""
        return []

    def lose(self, block: Sequence[int], error: CollectResultsError) -> None:
        """Ask a block no more in this job, or raise the error if no other is left."""
        raise error

    # ---- what to ask for

    def bands(self, group: Group) -> int:
        """In how many bands an evaluation counts scores of classes: as all nodes do, or in none."""
        return 0

    def questions(self, group: Group, layout: Callable[[Group], Layout]) -> Iterator[Question]:
        """What the blocks of a group are asked, whose answers are sums of the layout where they are masked."""
        yield Question(group, self.whole(group.organizations), group.expected)

    # ---- what comes out

    def open(self, question: Question, block: Sequence[int], answers: Sequence[Answer]) -> Answer:
        """Return the answer of a block."""
        (answer,) = answers
        return answer

    @property
    def rounding(self) -> Rounding | None:
        """How central rounds counts of evaluations over a block of a study; None if nodes have rounded their own."""
        return None

    def least(self, limit: int) -> int:
        """What a count over a block must reach to be written down, if nodes have a limit on their own."""
        return limit if self.in_a_study else 0

    def noises(self, nodes: int) -> float:
        """The variance of the noise of a block, over that of the noise that hides a row."""
        return float(nodes)

    def seen(self) -> dict[str, Any]:
        """What central has seen of the nodes' answers, as ``privacy`` in the result."""
        return {"aggregation": self.mode, "central_saw": "each organization's own answers"}

    def snapshot(self) -> dict[str, Any] | None:
        """What a checkpoint needs, as JSON."""
        return None


SINGLE = Blocks()  # of organizations that answer alone, in any job


@dataclass
class Masked(Blocks):
    """Blocks of a job whose answers are masked: here all of its organizations are one.

    Attributes:
        blocks: ids of the organizations of each block.
        rows: N, the rows of each block, by its first member.
        seq: number of the last request.
        exponents: e of the parts of 32 bits, by block's first member, function and key.
        tags: what nodes have said to confirm their keys, by block's first member; until the block's first sum.
        first: e of the parts of 64 bits, if it is not ``FIRST``.
        noise: z, the standard deviation of the noise of an evaluation's counts over what a row can change; 0 without
            noise. With noise, a sum that wraps cannot be asked for again, as its part of the budget is spent.
        colluders: hospitals of a block that its study assumes to work with the server; the others share the noise.
        score_bands: in how many bands the nodes count scores; None if their numbers differ, and no AUC is computed.
        absent: first members of blocks that were not whole when the job began. They are among the lost ones, and may
            take part later, see ``joined``.
    """

    mode: ClassVar[str] = "masked"
    single: ClassVar[bool] = False
    words: ClassVar[Collection[str]] = ("",)  # that nodes say of ``hospital_totals``

    blocks: list[list[int]]
    rows: dict[int, int] = field(default_factory=dict)
    seq: int = 0
    exponents: dict[str, int] = field(default_factory=dict)
    tags: dict[int, dict[str, Any]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    noise: float = 0.0
    colluders: int = 0
    hospitals_a_person: int = 1
    score_bands: int | None = None
    hospital_totals: str = ""
    absent: list[int] = field(default_factory=list)

    @classmethod
    def of(
        cls, hellos: Mapping[int, Mapping[str, Any]], least: int, silent: Sequence[int] = ()
    ) -> "tuple[Masked, dict[int, list[Any]]]":
        """Settle the blocks, of ``least`` organizations or more, from what nodes said in ``describe``.

        Blocks of ``silent`` organizations, which did not answer, are lost. It returns the rosters of the others too, by
        their first members.
        """
        entries = {k: Entry.from_json(said["entry"]) for k, said in hellos.items()}
        by_key = {entry.S.hex(): k for k, entry in entries.items()}
        if len(by_key) < len(entries):
            raise CollectResultsError("two organizations take part with one key; each must have its own")
        blocks, parts = cls._dealt({k: said["block"] for k, said in sorted(hellos.items())}, by_key, silent)
        if not blocks:
            raise CollectResultsError(
                f"round 0, describe: organizations {[*silent]} did not answer, and without them no block is whole; "
                "send the job again when their nodes are online"
            )
        if len({k for block in blocks for k in block}) != sum(map(len, blocks)):
            raise CollectResultsError("nodes have accepted studies with other blocks; accept the same study everywhere")
        if small := [block for block in blocks if len(block) < max(least, 2)]:
            raise CollectResultsError(
                f"organizations {small[0]} are fewer than {max(least, 2)}, as a sum must be over; let more take part"
            )
        bands = {said["score_bands"] for said in hellos.values()}
        word = cls._word(hellos)
        why = f"organizations {[*silent]} did not answer when the job began, and this block is not whole without them"
        found = cls(
            blocks + parts,
            lost={part[0]: why for part in parts},
            score_bands=bands.pop() if len(bands) == 1 else None,
            hospital_totals=word,
            absent=[part[0] for part in parts],
        )
        return found, {block[0]: [entries[k].to_json() for k in block] for block in blocks}

    @classmethod
    def _word(cls, hellos: Mapping[int, Mapping[str, Any]]) -> str:
        """What all nodes say of ``hospital_totals``."""
        words = {said.get("hospital_totals") or "" for said in hellos.values()}
        if len(words) > 1 or not words <= {*cls.words}:
            raise CollectResultsError(
                "nodes have accepted studies with another hospital_totals; accept the same study everywhere"
            )
        return words.pop()

    @classmethod
    def _dealt(
        cls, said: Mapping[int, Sequence[str]], by_key: Mapping[str, int], silent: Sequence[int]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The blocks that are whole, and those that are not."""
        return ([], [[*said], [*silent]]) if silent else ([[*said]], [])

    # ---- whom to ask

    def whole(self, organizations: Collection[int]) -> list[list[int]]:
        """See ``Blocks``."""
        asked = {*organizations}
        found = [block for block in self.blocks if not asked.isdisjoint(block)]
        if not {k for block in found for k in block if block[0] not in self.lost} <= asked:
            raise SafeError("a block of organizations can only be asked as a whole; set fraction=1")
        return found

    def without(self, missing: Iterable[int]) -> list[list[int]]:
        """See ``Blocks``."""
        gone = {*missing}
        return [block for block in self.blocks if block[0] in self.lost or not gone.isdisjoint(block)]

    def number(self, organizations: Collection[int], quorum_of: int | None) -> int:
        """See ``Blocks``."""
        everyone = {k for block in self.blocks for k in block}
        found = self.blocks if quorum_of == len(everyone) else self.whole(organizations)
        return 0 if quorum_of == 0 else len(found)

    def uncounted(self, organizations: Collection[int]) -> list[int]:
        """See ``Blocks``."""
        return [k for block in self.standing(organizations) if block[0] not in self.rows for k in block]

    def block_of(self, organization: int) -> list[int]:
        """The block of an organization that trains."""
        return next(block for block in self.blocks if organization in block)

    def lose(self, block: Sequence[int], error: CollectResultsError) -> None:
        """See ``Blocks``."""
        if len(self.lost) + 1 == len(self.blocks):
            raise error
        self.lost.setdefault(block[0], str(error))

    def wait_for(self, organization: int, why: str) -> None:
        """Leave the block of an organization out that has not agreed on keys, until it does."""
        first = self.block_of(organization)[0]
        self.lost.setdefault(first, why)
        if first not in self.absent:
            self.absent.append(first)

    @property
    def waiting(self) -> list[int]:
        """The organizations of blocks that were not whole when the job began."""
        return [k for block in self.blocks if block[0] in self.absent for k in block]

    def joined(self, found: "Masked", confirmed: Collection[int]) -> None:
        """Let blocks that were absent take part from now on, as far as their nodes have confirmed keys."""
        self.blocks = [block for block in self.blocks if block[0] not in self.absent] + found.blocks
        self.lost = {first: why for first, why in self.lost.items() if first not in self.absent} | found.lost
        self.absent = [first for first in found.lost if first not in confirmed]
        self.tags |= {first: tags for first, tags in found.tags.items() if first in confirmed}
        if found.score_bands != self.score_bands:
            self.score_bands = None

    # ---- what to ask for

    def bands(self, group: Group) -> int:
        """See ``Blocks``."""
        return (self.score_bands or 0) if group.evaluate and not group.job.data.regression else 0

    def questions(self, group: Group, layout: Callable[[Group], Layout]) -> Iterator[Question]:
        """See ``Blocks``."""
        asked, bands = layout(group), self.bands(group)
        for block in self.whole(group.organizations):
            sums = self.request(group.function, block, asked, group.exponent)
            more = {"bands": bands, "sums": sums.to_json()}
            yield Question(group, [block], Share(sums=sums), sums, more)

    def request(self, function: str, block: Sequence[int], layout: Layout, exponent: int | None = None) -> Sums:
        """Return what a call asks for, with the next number; ``exponent`` is e of sums whose unit the caller knows."""
        units = [self._unit(function, block, item, exponent) for item in layout.chosen]
        self.seq += 1
        return Sums.of(layout, self.seq, block[0], self.rows.get(block[0]), units, self.tags.get(block[0]))

    def _unit(self, function: str, block: Sequence[int], item: Item, exponent: int | None) -> tuple[int, int]:
        """Width and e of an item, from the last sum."""
        if isinstance(item.unit, range):
            assert exponent is not None
            return 64, exponent
        key = _key(function, block, item)
        small = key in self.exponents and not self.noise
        return (32, self.exponents[key]) if small else (64, self.first.get(key, FIRST))

    # ---- what comes out

    def open(self, question: Question, block: Sequence[int], answers: Sequence[Answer]) -> Answer:
        """See ``Blocks``: add up the answers of a whole block."""
        group, sums = question.group, question.sums
        assert sums is not None
        words = {bits: _added(answers, bits) for bits in (32, 64)}
        nodes, failed, found, wrapped = summing.decoded(sums, words, _transcript(group.function, answers))
        if nodes != len(block):
            raise CollectResultsError(
                f"{group.function}: the masks of organizations {[*block]} do not cancel: one of them has another key, "
                "or has lost what it kept for the job"
            )
        if failed:
            raise refusal(
                f"{group.function}: some nodes of organizations {[*block]} could not compute their part; masks hide "
                f"how many, which and why, and the reason is in the audit log of each. Often, {_often(group)}"
            )
        self.tags.pop(block[0], None)
        if wrapped:
            self._coarser(group.function, block, wrapped)
            raise TooLarge
        n = self._counted(group.function, block, found)
        self._finer(group.function, block, sums, found)
        arrays = _arrays(sums, found, group.arrays)
        values = {**_values(sums, found, n, nodes), **self._evaluation(sums, found, nodes), "sums": found}
        up, down = sum(a.bytes_up for a in answers), sum(a.bytes_down for a in answers)
        return Answer(block[0], n, arrays, values, up, down, group.function, tuple(block))

    def _coarser(self, function: str, block: Sequence[int], wrapped: Sequence[Part]) -> None:
        """Choose units of 64 bits for parts whose numbers were too large."""
        if self.noise:
            raise CollectResultsError(f"{function}: numbers are beyond 2^{FIRST + 7}; {DIVERGED}")
        for part in wrapped:
            assert part.exponent is not None
            if part.exponent >= FIRST + 4 * MORE:
                raise CollectResultsError(f"{function}: numbers are beyond 2^{part.exponent}; {DIVERGED}")
            key = _key(function, block, part)
            self.first[key] = FIRST if self.exponents.pop(key, None) is not None else part.exponent + MORE

    def _finer(self, function: str, block: Sequence[int], sums: Sums, found: Mapping[str, Array]) -> None:
        """Choose the units of the next sum from this one."""
        for part in sums.parts:
            if part.weight == "one" or not part.shape:
                continue
            largest = float(np.abs(found[part.key]).max(initial=0.0))
            e = int(np.clip(np.ceil(np.log2(largest)) + ROOM if largest else LEAST, LEAST, MOST))
            key = _key(function, block, part)
            self.exponents[key] = max(e, self.exponents.get(key, e) - SLOWLY)

    def _counted(self, function: str, block: Sequence[int], found: Mapping[str, Array]) -> int:
        """The rows of a block, which stay the same in the whole job."""
        n = int(found[Part("n", "one", 64).key])
        known = self.rows.setdefault(block[0], n)
        if n != known:
            raise CollectResultsError(
                f"{function}: the rows of organizations {[*block]} are {n} in all, but were {known}; expected the same "
                "rows in the whole job"
            )
        return n

    def _evaluation(self, sums: Sums, found: Mapping[str, Array], nodes: int) -> dict[str, Any]:
        """The evaluation, if one was asked for."""
        measured = {
            part.name.removeprefix("evaluation."): part.of(found)
            for part in sums.parts
            if part.name.startswith("evaluation.")
        }
        if not measured:
            return {}
        if self.noise:
            sigma = self.noise * math.sqrt((1 + len(measured["bands"])) * self.noises(nodes))  # parts of a row
            return {"evaluation": metrics.of_noisy_sums(measured, sigma)}
        if "confusion" in measured:
            return {"evaluation": metrics.of_sums(measured, self.rounding)}
        return {"evaluation": metrics.regression_of_sums(measured)}

    def seen(self) -> dict[str, Any]:
        """See ``Blocks``."""
        said = {"hospital_totals": self.hospital_totals, "auc": NO_AUC if self.score_bands is None else ""}
        return {
            "aggregation": self.mode,
            "blocks": self.blocks,
            "central_saw": SUMS,
            **{name: words for name, words in said.items() if words},
        }

    # ---- going on after an interruption

    def snapshot(self) -> dict[str, Any]:
        """See ``Blocks``."""
        kept = {name: [*value.items()] if isinstance(value, dict) else value for name, value in vars(self).items()}
        return {"mode": self.mode, **kept}


class Pinned(Masked):
    """Blocks of a study, which operators have settled outside the server."""

    mode = "pinned"
    in_a_study = True
    words = TOTALS

    @classmethod
    def _dealt(
        cls, said: Mapping[int, Sequence[str]], by_key: Mapping[str, int], silent: Sequence[int]
    ) -> tuple[list[list[int]], list[list[int]]]:
        blocks: list[list[int]] = []
        parts: list[list[int]] = []
        unknown = [*silent]  # nobody knows in which of these blocks they are, and it does not matter
        for k, keys in said.items():
            absent = [S for S in keys if S not in by_key]
            if len(absent) > len(silent):
                raise CollectResultsError(
                    f"{len(absent)} hospital(s) of the block of organization {k} take no part; a block of a study "
                    "can only be summed as a whole: name all its organizations, or none"
                )
            block = sorted(by_key[S] for S in keys if S in by_key)
            if absent and not any(k in part for part in parts):
                parts.append(block + [unknown.pop(0) for _ in absent[: len(unknown)]])
            elif not absent and block not in blocks:
                blocks.append(block)
        return blocks, [*parts, unknown] if unknown else parts

    @property
    def rounding(self) -> Rounding | None:
        """See ``Blocks``: to the nearest multiple, in contrast to nodes, since no others are added to the sum."""
        policy = Policy.of_node()
        if not policy.round_evaluations:
            return None
        return Rounding(policy.minimum_rows_a_class, policy.minimum_rows_a_class // 2)

    def noises(self, nodes: int) -> float:
        """See ``Blocks``: the nodes of a block share noise where they can, as if the colluders added none."""
        of_a_person = self.hospitals_a_person**2  # what they change in one sum adds up
        return of_a_person * nodes / max(nodes - self.colluders, 1)


KINDS: Mapping[str, type[Masked]] = {kind.mode: kind for kind in (Masked, Pinned)}


def restored(kept: Mapping[str, Any] | None, again: bool) -> Blocks:
    """The blocks that a snapshot is of; if rounds begin again, after a leap, as nodes keep their last answers only."""
    if kept is None:
        return SINGLE
    values: dict[str, Any] = {f.name: kept[f.name] for f in fields(Masked)}
    values |= {f.name: dict(kept[f.name]) for f in fields(Masked) if f.default_factory is dict}
    return KINDS[kept["mode"]](**{**values, "seq": kept["seq"] + LEAP * again})


def _key(function: str, block: Sequence[int], of: Item | Part) -> str:
    return f"{block[0]} {function} {of.weight} {of.name}"


def _transcript(function: str, answers: Sequence[Answer]) -> bytes:
    """T, of which all nodes of a block must have the same."""
    said = Counter(a.values["T"] for a in answers)
    most = said.most_common(1)[0][0]
    if odd := [a.organization_id for a in answers if a.values["T"] != most]:
        raise CollectResultsError(
            f"{function}: organizations {odd} have answered another request than the others of their block; their "
            "data volumes differ, or somebody between changed what was sent"
        )
    return bytes.fromhex(most)


def _added(answers: Sequence[Answer], bits: int) -> Array:
    total = answers[0].arrays[f"y{bits}"].copy()
    for answer in answers[1:]:
        total += answer.arrays[f"y{bits}"]  # modulo 2^bits
    return total


def _often(group: Group) -> str:
    """Why nodes often cannot compute their part of a request."""
    event = group.job.data.event
    often = group.often or (IN_TRAINING if "weights" in group.arrays else OFTEN)
    return often + ("" if event is None else f", or {event}, the column of events, holds other values than 0 and 1")


def _arrays(sums: Sums, found: Mapping[str, Array], sent: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a block's answer: means are of the change of what was sent, and hold it again."""
    arrays: dict[str, Array] = {}
    for part in sums.parts:
        if not part.shape or "." in part.name:
            continue
        value = part.of(found)
        if part.weight in ("share", "equal") and part.name in sent and sent[part.name].shape == value.shape:
            value = value + sent[part.name]
        whole = "count" if part.exponent is None else "sum"
        arrays[Answer.key(part.name, whole if part.weight == "one" else part.weight)] = value
    return arrays


def _values(sums: Sums, found: Mapping[str, Array], n: int, nodes: int) -> dict[str, Any]:
    """The numbers of a block's answer: the mean loss if all nodes have one, and counts."""
    values: dict[str, Any] = {}
    for part in sums.parts:
        if part.shape or "." in part.name:
            continue
        if part.exponent is None:
            values[part.name] = int(part.of(found))
        elif part.name == "train_loss" and found[Part("has train_loss", "one", 64).key] == nodes:
            values["train_loss"] = float(part.of(found)) / n
    return values
