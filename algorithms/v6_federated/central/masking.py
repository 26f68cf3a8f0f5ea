"""Central's side of masked answers: blocks of nodes, what to ask them for, and the sums that come out.

The sum over a block has the form of one node's answer, with the rows and the members of the block. So what methods do
with answers does not depend on the mode, see ``Answers``.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import DIVERGED
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.central.answer import Answer, refusal
from v6_federated.masks import summing
from v6_federated.masks.agreement import Entry
from v6_federated.masks.summands import FIRST, LEAST, MORE, MOST, Item, Layout, Part
from v6_federated.masks.summing import Sums
from v6_federated.models import metrics
from v6_federated.rules.policy import Policy
from v6_federated.rules.rounding import Rounding

ROOM = 3  # powers of two between the largest number of a sum and e of the next, which has 32 bits
SLOWLY = 1  # powers of two by which e falls at most from one sum to the next: opposite updates may have cancelled

OFTEN = "values are missing (add a step impute), or rows or events of a group are too few for a limit"
IN_TRAINING = f"{OFTEN}, or the model diverges (smaller learning rate)"


class TooLarge(Exception):
    """Numbers of a sum were too large for their unit."""


@dataclass
class Masks:
    """The blocks of a job, and how its sums are asked for.

    Attributes:
        mode: "masked" or "pinned".
        blocks: ids of the organizations of each block.
        rows: N, the rows of each block, by its first member.
        seq: number of the last request.
        exponents: e of the parts of 32 bits, by block's first member, function and key.
        first: e of the parts of 64 bits, if it is not ``FIRST``.
        tags: what nodes have said to confirm their keys, by block's first member; until the block's first sum.
        lost: why a block cannot be summed any more in this job, by its first member.
        noise: z, the standard deviation of the noise of an evaluation's counts over what a row can change; 0 without
            noise. With noise, a sum that wraps cannot be asked for again, as its part of the budget is spent.
        bands: in how many bands the nodes count scores; None if their numbers differ, and no AUC is computed.
        colluders: hospitals of a block that its study assumes to work with the server; the others share the noise.
        hospitals_a_person: at how many hospitals the study lets a person have rows; noise grows with it.
        hospital_totals: whether sums may tell totals of single hospitals, by the word of the study; empty without one.
        absent: first members of blocks that were not whole when the job began. They are among the lost ones, and may
            take part later, see ``joined``.
    """

    mode: str
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
    bands: int | None = None
    hospital_totals: str = ""
    absent: list[int] = field(default_factory=list)

    @classmethod
    def of(
        cls, mode: str, hellos: Mapping[int, Mapping[str, Any]], least: int, silent: Sequence[int] = ()
    ) -> "tuple[Masks, dict[int, list[Any]]]":
        """Settle the blocks from what nodes said in ``describe``.

        Args:
            mode: "masked" or "pinned".
            hellos: ``entry``, ``block``, ``score_bands`` and, in a study, ``hospital_totals`` of each organization that
                answered.
            least: organizations that a block must have at the node where central runs.
            silent: ids of the job's organizations that did not answer. Their blocks are lost.

        Returns:
            The masks, and the roster of each whole block by its first member.

        Raises:
            CollectResultsError: a hospital of a block takes no part, no block is whole, or nodes have other studies.
        """
        entries = {k: Entry.from_json(said["entry"]) for k, said in hellos.items()}
        by_key = {entry.S.hex(): k for k, entry in entries.items()}
        if len(by_key) < len(entries):
            raise CollectResultsError("two organizations take part with one key; each must have its own")
        blocks: list[list[int]] = []
        parts: list[list[int]] = []  # of blocks that are not whole
        unknown = [*silent]  # nobody knows in which of these blocks they are, and it does not matter
        if mode == "masked":
            (parts if silent else blocks).append(sorted(hellos))
        else:
            for k, said in sorted(hellos.items()):
                absent = [S for S in said["block"] if S not in by_key]
                if len(absent) > len(silent):
                    raise CollectResultsError(
                        f"{len(absent)} hospital(s) of the block of organization {k} take no part; a block of a study "
                        "can only be summed as a whole: name all its organizations, or none"
                    )
                block = sorted(by_key[S] for S in said["block"] if S in by_key)
                if absent and not any(k in part for part in parts):
                    parts.append(block + [unknown.pop(0) for _ in absent[: len(unknown)]])
                elif not absent and block not in blocks:
                    blocks.append(block)
        if unknown:
            parts.append(unknown)
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
        rosters = {block[0]: [entries[k].to_json() for k in block] for block in blocks}
        why = f"organizations {[*silent]} did not answer when the job began, and this block is not whole without them"
        bands = {said["score_bands"] for said in hellos.values()}
        same = bands.pop() if len(bands) == 1 else None
        words = {said.get("hospital_totals") or "" for said in hellos.values()}
        if len(words) > 1 or ("" in words) != (mode == "masked"):
            raise CollectResultsError(
                "nodes have accepted studies with another hospital_totals; accept the same study everywhere"
            )
        lost = {part[0]: why for part in parts}
        found = cls(mode, blocks + parts, lost=lost, bands=same, hospital_totals=words.pop(), absent=[*lost])
        return found, rosters

    # ---- whom to ask

    def block_of(self, organization: int) -> list[int]:
        """The block of an organization that trains."""
        return next(block for block in self.blocks if organization in block)

    def whole(self, organizations: Collection[int]) -> list[list[int]]:
        """The blocks of some organizations.

        Args:
            organizations: ids.

        Returns:
            The blocks, all of whose organizations are among these. Of lost blocks, it does not matter.

        Raises:
            SafeError: a block is asked in part.
        """
        asked = {*organizations}
        found = [block for block in self.blocks if asked & {*block}]
        if not {k for block in found for k in block if block[0] not in self.lost} <= asked:
            raise SafeError("a block of organizations can only be asked as a whole; set fraction=1")
        return found

    def lose(self, organization: int, why: str) -> None:
        """Ask a block no more in this job.

        Args:
            organization: one of the block.
            why: for the history.
        """
        self.lost.setdefault(self.block_of(organization)[0], why)

    def wait_for(self, organization: int, why: str) -> None:
        """Leave a block out that has not agreed on keys, until it does.

        Args:
            organization: one of the block.
            why: for the history.
        """
        self.lose(organization, why)
        if (first := self.block_of(organization)[0]) not in self.absent:
            self.absent.append(first)

    @property
    def waiting(self) -> list[int]:
        """The organizations of blocks that were not whole when the job began."""
        return [k for block in self.blocks if block[0] in self.absent for k in block]

    def joined(self, found: "Masks", confirmed: Collection[int]) -> None:
        """Let blocks take part from now on.

        Args:
            found: the blocks of all organizations that have been waited for, as they are known by now.
            confirmed: first members of those whose nodes have agreed on keys.
        """
        self.blocks = [block for block in self.blocks if block[0] not in self.absent] + found.blocks
        self.lost = {first: why for first, why in self.lost.items() if first not in self.absent} | found.lost
        self.absent = [first for first in found.lost if first not in confirmed]
        self.tags |= {first: tags for first, tags in found.tags.items() if first in confirmed}
        if found.bands != self.bands:
            self.bands = None

    # ---- what to ask for

    def request(self, function: str, block: Sequence[int], layout: Layout, exponent: int | None = None) -> Sums:
        """Return what a call asks for.

        Args:
            function: the partial function.
            block: the block.
            layout: what the function declares.
            exponent: e of sums whose unit follows from other public values than the sums of earlier rounds.

        Returns:
            The sum, with the next number.
        """
        units = [self._unit(function, block, item, exponent) for item in layout.chosen]
        self.seq += 1
        return Sums.of(layout, self.seq, block[0], self.rows.get(block[0]), units, self.tags.get(block[0]))

    def _unit(self, function: str, block: Sequence[int], item: Item, exponent: int | None) -> tuple[int, int]:
        """Width and e of an item, from the last sum."""
        if isinstance(item.unit, range):
            assert exponent is not None
            return 64, exponent
        key = f"{block[0]} {function} {item.weight} {item.name}"
        small = key in self.exponents and not self.noise
        return (32, self.exponents[key]) if small else (64, self.first.get(key, FIRST))

    # ---- what comes out

    def opened(
        self,
        function: str,
        block: Sequence[int],
        sums: Sums,
        answers: Sequence[Answer],
        sent: Mapping[str, Array],
        often: str = "",
        event: str | None = None,
    ) -> Answer:
        """Add up the answers of a whole block.

        Args:
            function: the partial function.
            block: the block.
            sums: what was asked for.
            answers: the masked answers of all its nodes.
            sent: the arrays that were sent.
            often: why nodes often cannot compute their part, and what to do; empty: what is so of most requests.
            event: the job's column of events, if it names one.

        Returns:
            The answer of the block.

        Raises:
            CollectResultsError: the nodes have answered different requests, or the sum makes no sense.
                Or some could not compute their part, which ``refused`` then says.
            TooLarge: numbers of 32 bits were too large for their unit; the same request in 64 bits brings them.
        """
        said = Counter(a.values["T"] for a in answers)
        if len(said) > 1:
            most = said.most_common(1)[0][0]
            odd = [a.organization_id for a in answers if a.values["T"] != most]
            raise CollectResultsError(
                f"{function}: organizations {odd} have answered another request than the others of their block; their "
                "data volumes differ, or somebody between changed what was sent"
            )
        words = {bits: _added(answers, bits) for bits in (32, 64)}
        nodes, failed, found, wrapped = summing.decoded(sums, words, bytes.fromhex(answers[0].values["T"]))
        if nodes != len(block):
            raise CollectResultsError(
                f"{function}: the masks of organizations {[*block]} do not cancel: one of them has another key, "
                "or has lost what it kept for the job"
            )
        if failed:
            often = often or (IN_TRAINING if "weights" in sent else OFTEN)
            often += "" if event is None else f", or {event}, the column of events, holds other values than 0 and 1"
            raise refusal(
                f"{function}: some nodes of organizations {[*block]} could not compute their part; masks hide "
                f"how many, which and why, and the reason is in the audit log of each. Often, {often}"
            )
        self.tags.pop(block[0], None)
        if wrapped:
            if self.noise:
                raise CollectResultsError(f"{function}: numbers are beyond 2^{FIRST + 7}; {DIVERGED}")
            for part in wrapped:
                key = f"{block[0]} {function} {part.weight} {part.name}"
                assert part.exponent is not None
                if part.exponent >= FIRST + 4 * MORE:
                    raise CollectResultsError(f"{function}: numbers are beyond 2^{part.exponent}; {DIVERGED}")
                self.first[key] = FIRST if self.exponents.pop(key, None) is not None else part.exponent + MORE
            raise TooLarge
        n = int(found[Part("n", "one", 64).key])
        known = self.rows.setdefault(block[0], n)
        if n != known:
            raise CollectResultsError(
                f"{function}: the rows of organizations {[*block]} are {n} in all, but were {known}; expected the same "
                "rows in the whole job"
            )
        self._bound(function, block, sums, found)
        arrays: dict[str, Array] = {}
        values: dict[str, Any] = {}
        for part in sums.parts:
            value = part.of(found)
            if part.shape and part.weight != "one":
                name = Answer.key(part.name, part.weight)
                if part.weight in ("share", "equal") and part.name in sent and sent[part.name].shape == value.shape:
                    value = value + sent[part.name]
                arrays[name] = value
            elif part.shape and "." not in part.name:
                arrays[Answer.key(part.name, "count" if part.exponent is None else "sum")] = value
            elif part.name == "train_loss":
                if found[Part("has train_loss", "one", 64).key] == nodes:
                    values["train_loss"] = float(value) / n
            elif part.exponent is None and not part.shape and "." not in part.name:
                values[part.name] = int(value)
        evaluation = {
            part.name.removeprefix("evaluation."): part.of(found)
            for part in sums.parts
            if part.name.startswith("evaluation.")
        }
        if evaluation:
            if self.noise:
                parts_of_a_row = 1 + len(evaluation["bands"])
                sigma = self.noise * math.sqrt(parts_of_a_row * self.noises(nodes))
                values["evaluation"] = metrics.of_noisy_sums(evaluation, sigma)
            else:
                counts = "confusion" in evaluation
                values["evaluation"] = (
                    metrics.of_sums(evaluation, self.rounding) if counts else metrics.regression_of_sums(evaluation)
                )
        up, down = sum(a.bytes_up for a in answers), sum(a.bytes_down for a in answers)
        return Answer(block[0], n, arrays, {**values, "sums": found}, up, down, function, tuple(block))

    @property
    def rounding(self) -> Rounding | None:
        """How central rounds counts of evaluations over a block of a study, by the limits of the node where it runs.

        None if nodes have rounded their own, or need not. In contrast to these, the sum is rounded to the nearest
        multiple: no others are added to it.
        """
        policy = Policy.of_node()
        if self.mode != "pinned" or not policy.round_evaluations:
            return None
        return Rounding(policy.minimum_rows_a_class, policy.minimum_rows_a_class // 2)

    def noises(self, nodes: int) -> float:
        """Say how much noise a block's sum has, if its nodes share noise where they can.

        Args:
            nodes: of the block.

        Returns:
            The variance, over that of the noise that hides a row.
        """
        if self.mode != "pinned":
            return float(nodes)
        of_a_person = self.hospitals_a_person**2  # what they change in one sum adds up
        return of_a_person * nodes / max(nodes - self.colluders, 1)  # shares, as if the colluders added none

    def _bound(self, function: str, block: Sequence[int], sums: Sums, found: Mapping[str, Array]) -> None:
        """Choose the units of the next sum from this one."""
        for part in sums.parts:
            if part.weight == "one" or not part.shape:
                continue
            largest = float(np.abs(found[part.key]).max(initial=0.0))
            e = int(np.clip(np.ceil(np.log2(largest)) + ROOM if largest else LEAST, LEAST, MOST))
            key = f"{block[0]} {function} {part.weight} {part.name}"
            self.exponents[key] = max(e, self.exponents.get(key, e) - SLOWLY)

    # ---- going on after an interruption

    def snapshot(self) -> dict[str, Any]:
        """Return what a checkpoint needs, as JSON."""
        return {
            "mode": self.mode,
            "blocks": self.blocks,
            "rows": [*self.rows.items()],
            "seq": self.seq,
            "exponents": self.exponents,
            "tags": [*self.tags.items()],
            "first": self.first,
            "lost": [*self.lost.items()],
            "noise": self.noise,
            "colluders": self.colluders,
            "hospitals_a_person": self.hospitals_a_person,
            "bands": self.bands,
            "hospital_totals": self.hospital_totals,
            "absent": self.absent,
        }

    @classmethod
    def restored(cls, kept: Mapping[str, Any]) -> "Masks":
        """Go on from a snapshot.

        Args:
            kept: the snapshot.

        Returns:
            The masks.
        """
        return cls(
            kept["mode"],
            kept["blocks"],
            dict(kept["rows"]),
            kept["seq"],
            dict(kept["exponents"]),
            dict(kept["tags"]),
            dict(kept["first"]),
            dict(kept["lost"]),
            kept["noise"],
            kept["colluders"],
            kept["hospitals_a_person"],
            kept["bands"],
            kept["hospital_totals"],
            kept["absent"],
        )


def _added(answers: Sequence[Answer], bits: int) -> Array:
    total = answers[0].arrays[f"y{bits}"].copy()
    for answer in answers[1:]:
        total += answer.arrays[f"y{bits}"]  # modulo 2^bits
    return total
