"""What a masked answer is a sum of: the parts that a task asks for, and what a node adds to each.

A task names the parts; a node adds only these, and nothing else of what its function returns leaves. All parts are
numbers in fixed point or counts, so that masks can be added to them (``secagg.encoding``). The parts are part of the
request's transcript: two nodes that were asked for different parts have different masks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.privacy.secagg import encoding, masks
from v6_federated.privacy.secagg.encoding import HEADER, Term

MOST_PARTS = 1000
MOST_SEQ = 2**31
FAILED = 2**40  # in place of the number of clamped values, at a node that could not compute its part
WEIGHTS = ("one", "rows", "share", "equal")


@dataclass(frozen=True)
class Part:
    """One part of a sum.

    Attributes:
        name: the value's name among what the function returns; those of an evaluation begin with ``evaluation.``.
        weight: what a node multiplies it by. "one": nothing. "rows": its rows n_k. "share": p_k = n_k / N, N the rows
            of its block. "equal": 1 / K, K the nodes of its block. "equal/NAME": 1 / (K x), x its number NAME. With
            "share" and "equal", the array of the same name that the task sent, if there is one, is subtracted first.
        bits: 32 or 64.
        shape: the value's shape.
        exponent: e, if the sum of the numbers is at most 2^e; None for counts.
        flags: whether it counts, for each of its numbers, the nodes where the number was too large.
    """

    name: str
    weight: str
    bits: int
    shape: tuple[int, ...] = ()
    exponent: int | None = None
    flags: bool = False

    @property
    def key(self) -> str:
        """Its name among the parts of a sum."""
        rung = "" if self.exponent is None else f" 2^{self.exponent}"
        return f"{self.weight} {self.name}{rung}{' flags' if self.flags else ''}"

    @property
    def term(self) -> Term:
        """How it is encoded."""
        return Term(self.key, 64 if self.bits == 64 else 32, self.shape, None if self.flags else self.exponent)

    def to_json(self) -> list[Any]:
        """The part as JSON."""
        return [self.name, self.weight, self.bits, [*self.shape], self.exponent, self.flags]

    @classmethod
    def from_json(cls, message: Any) -> "Part":
        """Read a part.

        Args:
            message: what ``to_json`` made, or what a task claims to be one.

        Returns:
            The part.

        Raises:
            SafeError: it is none.
        """
        try:
            name, weight, bits, shape, exponent, flags = message
            whole = all(type(n) is int and 0 <= n < 2**31 for n in shape) and len(shape) <= 4
            rung = exponent is None or (type(exponent) is int and -200 <= exponent <= 200)
            known = type(weight) is str and (weight in WEIGHTS or weight.startswith("equal/"))
            fits = bits in (32, 64) and type(flags) is bool and not (bits == 32 and exponent is None)
            if not (type(name) is str and whole and rung and known and fits):
                raise ValueError
        except (TypeError, ValueError):
            raise SafeError("the task asks for a malformed part of a sum; it must be as central sends it") from None
        return cls(name, weight, bits, tuple(shape), exponent, flags)


@dataclass(frozen=True)
class Sums:
    """The sum that a task asks for.

    Attributes:
        seq: number of the request in its job; it rises.
        rows: N, the rows of the node's block; None until they are known.
        parts: the parts.
        tags: confirmations of the agreed keys, by sender and receiver; they come with the first sums.
    """

    seq: int
    rows: int | None
    parts: tuple[Part, ...]
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The request as JSON."""
        return {"seq": self.seq, "rows": self.rows, "parts": [p.to_json() for p in self.parts], "tags": self.tags}

    @classmethod
    def from_json(cls, message: Any) -> "Sums":
        """Read a request.

        Args:
            message: what ``to_json`` made, or what a task claims to be one.

        Returns:
            The request.

        Raises:
            SafeError: it is none.
        """
        wrong = SafeError("the task asks for a malformed sum; it must be as central sends it")
        if not isinstance(message, dict) or set(message) != {"seq", "rows", "parts", "tags"}:
            raise wrong
        seq, rows, parts, tags = message["seq"], message["rows"], message["parts"], message["tags"]
        if type(seq) is not int or not 0 < seq < MOST_SEQ or not isinstance(tags, dict):
            raise wrong
        if rows is not None and (type(rows) is not int or not 0 < rows < 2**40):
            raise wrong
        if not isinstance(parts, list) or len(parts) > MOST_PARTS:
            raise wrong
        found = tuple(map(Part.from_json, parts))
        if len({part.key for part in found}) < len(found):
            raise SafeError("the task asks for the same part of a sum twice")
        return cls(seq, rows, found, tags)

    @property
    def layout(self) -> list[Any]:
        """What the transcript holds of the request, besides its number."""
        return [self.rows, [part.to_json() for part in self.parts]]

    def of(self, bits: int) -> list[Part]:
        """The parts of 32 or of 64 bits, in their order."""
        return [part for part in self.parts if part.bits == bits]

    def words(self, bits: int) -> int:
        """How many words of 32 or of 64 bits an answer has."""
        numbers = sum(int(np.prod(part.shape, dtype=np.int64)) for part in self.of(bits))
        return numbers + (HEADER if bits == 64 else 0)


def encoded(sums: Sums, found: Mapping[str, Any], sent: Mapping[str, Array], n: int, nodes: int) -> tuple[Array, Array]:
    """Encode what a node adds to a sum.

    Args:
        sums: the sum that the task asks for.
        found: what the function returned, by name: arrays and numbers.
        sent: the arrays that the task sent.
        n: n_k, the node's rows.
        nodes: K, the nodes of its block.

    Returns:
        Its words of 32 and of 64 bits, before masks. Values that are too large are clamped, values that are not finite
        count as 0; the second word of 64 bits counts both, except in parts with flags.

    Raises:
        SafeError: the function returns no such value, or one of another shape.
    """
    words: dict[int, list[Array]] = {32: [], 64: []}
    clamped, rungs = 0, {(p.name, p.weight) for p in sums.parts if p.flags}
    for part in sums.parts:
        value = _value(part, sums, found, sent, n, nodes)
        if part.flags:
            words[64].append(_too_large(value, part).astype(np.uint64).reshape(-1))
            continue
        encoded_words, lost = encoding.encode(part.term, value, _bound(part, sums, n, nodes))
        words[part.bits].append(encoded_words)
        if (part.name, part.weight) not in rungs:
            clamped += lost
    first = encoding.header(clamped)
    return np.concatenate([np.empty(0, np.uint32), *words[32]]), np.concatenate([first, *words[64]])


def failed(sums: Sums) -> tuple[Array, Array]:
    """Encode the part of a node that could not compute it: zeros.

    A refusal would be an answer that no mask covers. Central learns how many nodes of a block have failed, not which.

    Args:
        sums: the sum that the task asks for.

    Returns:
        Its words of 32 and of 64 bits, before masks.
    """
    words = [np.zeros(sums.words(bits), masks.WORDS[bits]) for bits in (32, 64)]
    words[1][:HEADER] = encoding.header(FAILED)
    return words[0], words[1]


def _value(part: Part, sums: Sums, found: Mapping[str, Any], sent: Mapping[str, Array], n: int, nodes: int) -> Array:
    if part.name not in found and part.exponent is None and not part.shape:
        return np.zeros(())  # a truth value that is false
    if part.name not in found:
        raise SafeError(f"the task asks for a sum of {part.name[:40]}, which this function does not return")
    value = np.asarray(found[part.name], dtype=np.float64)
    if value.shape != part.shape:
        raise SafeError(f"the task asks for a sum of {part.name[:40]} in another shape; expected {value.shape}")
    weight, _, divisor = part.weight.partition("/")
    if weight in ("share", "equal") and part.name in sent and sent[part.name].shape == value.shape:
        value = value - sent[part.name]
    if weight == "rows":
        return value * n
    if weight == "share":
        if sums.rows is None:
            raise SafeError("the task asks for a mean over rows without their number; expected the rows of the block")
        return value * (n / sums.rows)  # above 1 it is clamped: a refusal would tell n
    if weight == "equal":
        if not divisor:
            return value / nodes
        x = found.get(divisor)
        if type(x) not in (int, float):
            raise SafeError(f"the task divides by {divisor[:40]}, which this function does not return")
        return value / (nodes * x) if x else value * 0
    return value


def _bound(part: Part, sums: Sums, n: int, nodes: int) -> float | None:
    """The node's share of the bound 2^e, so that the sum of a block cannot wrap."""
    if part.bits == 64:
        return None
    if part.weight == "share" and sums.rows:
        return min(n / sums.rows, 1.0)
    return 1 / nodes


def _too_large(value: Array, part: Part) -> Array:
    assert part.exponent is not None
    return ~(np.abs(value) <= 2.0**part.exponent)


def decoded(sums: Sums, words: Mapping[int, Array]) -> tuple[int, int, dict[str, Array]]:
    """Decode the sum of a block's words.

    Args:
        sums: the sum that the tasks asked for.
        words: the sums of words of 32 and of 64 bits, modulo 2^32 and 2^64.

    Returns:
        The number of nodes, how many values were clamped (``FAILED`` more for each node that could not compute its
        part), and the sums by the keys of their parts.
    """
    found: dict[str, Array] = {}
    for bits in (32, 64):
        at = HEADER if bits == 64 else 0
        for part in sums.of(bits):
            size = int(np.prod(part.shape, dtype=np.int64))
            found[part.key] = encoding.decode(part.term, words[bits][at : at + size])
            at += size
    nodes, clamped = (int(word) for word in words[64][:HEADER])
    return nodes, clamped, found


def ladder(name: str, weight: str, shape: tuple[int, ...], rungs: Iterable[int]) -> list[Part]:
    """Ask for numbers whose size nobody knows: at several scales at once, with flags where they were too large.

    Args:
        name: the value's name.
        weight: what it is multiplied by.
        shape: its shape.
        rungs: the exponents, ascending.

    Returns:
        The parts.
    """
    return [Part(name, weight, 64, shape, e, flags) for e in rungs for flags in (False, True)]


def climbed(found: Mapping[str, Array], name: str, weight: str, rungs: Sequence[int]) -> tuple[Array, Array]:
    """Read numbers from a ladder: each at the finest scale at which no node's was too large.

    Args:
        found: the sums by key.
        name: the value's name.
        weight: what it was multiplied by.
        rungs: the exponents, ascending.

    Returns:
        The sums; and which of them were too large even for the last rung.
    """
    shape = found[Part(name, weight, 64, (), rungs[0]).key].shape
    value, left = np.zeros(shape), np.ones(shape, dtype=bool)
    for e in rungs:
        fits = left & (found[Part(name, weight, 64, (), e, True).key] == 0)
        value[fits] = found[Part(name, weight, 64, (), e).key][fits]
        left &= ~fits
    return value, left
