"""What a masked answer is a sum of: the parts that a task asks for, and what a node adds to each.

A task names the parts; a node adds only these, and nothing else of what its function returns leaves. All parts are
numbers in fixed point or counts, so that masks can be added to them (``secagg.encoding``). The parts are part of the
request's transcript: two nodes that were asked for different parts have different masks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.privacy.secagg import encoding, masks, notation
from v6_federated.privacy.secagg.encoding import HEADER, Term

MOST_PARTS = 1000
MOST_SEQ = 2**31
RUNGS = tuple(range(-20, 261, 20))  # of sums whose size nobody knows: the next is 2^20 coarser
FINEST = 2.0 ** (RUNGS[0] - encoding.FRACTION[64])  # the smallest value, except 0, that such a sum can have
BLUR = 36  # bits of the noise in the coarser words of a ladder
WEIGHTS = ("one", "rows", "share", "equal")
# truth values that may be counted: none of them follows from what rows hold, or a sum would count the hospitals above a
# bound that the task chooses
TRUTHS = ("has train_loss", "state_lost", "kept")


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
        exponent: e of its unit, 2^(e-30) or 2^(e-56); None for counts.
    """

    name: str
    weight: str
    bits: int
    shape: tuple[int, ...] = ()
    exponent: int | None = None

    @property
    def key(self) -> str:
        """Its name among the parts of a sum."""
        rung = "" if self.exponent is None else f" 2^{self.exponent}"
        return f"{self.weight} {self.name}{rung}"

    @property
    def ladder(self) -> str:
        """The key of the sum that parts at several scales tell together."""
        return f"{self.weight} {self.name}"

    def of(self, found: Mapping[str, Array]) -> Array:
        """Its sum among decoded ones.

        Args:
            found: sums by the keys of their parts, and of ladders.

        Returns:
            The sum; that of its ladder if it is one of several scales.
        """
        return found[self.key if self.key in found else self.ladder]

    @property
    def term(self) -> Term:
        """How it is encoded."""
        return Term(self.key, 64 if self.bits == 64 else 32, self.shape, self.exponent)

    @property
    def checks(self) -> list[Term]:
        """The checks that show if its sum has wrapped: means of arrays have some, as nobody knows their size."""
        mean = bool(self.shape) and self.weight.partition("/")[0] in ("share", "equal")
        return encoding.checks(self.exponent) if mean and self.exponent is not None else []

    def to_json(self) -> list[Any]:
        """The part as JSON."""
        return [self.name, self.weight, self.bits, [*self.shape], self.exponent]

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
            name, weight, bits, shape, exponent = message
            whole = all(type(n) is int and 0 <= n < 2**31 for n in shape) and len(shape) <= 4
            rung = exponent is None or (type(exponent) is int and -64 <= exponent <= 280)
            known = type(weight) is str and (weight in WEIGHTS or weight.startswith("equal/"))
            fits = bits in (32, 64) and not (
                bits == 32 and (exponent is None or not shape or weight in ("one", "rows"))
            )
            if not (type(name) is str and whole and rung and known and fits):
                raise ValueError
        except (TypeError, ValueError):
            raise SafeError("the task asks for a malformed part of a sum; it must be as central sends it") from None
        return cls(name, weight, bits, tuple(shape), exponent)


@dataclass(frozen=True)
class Sums:
    """The sum that a task asks for.

    Attributes:
        seq: number of the request in its job; it rises.
        block: a number for the node's block, the same for all of its nodes.
        rows: N, the rows of the node's block; None until they are known.
        parts: the parts.
        tags: confirmations of the agreed keys, by sender and receiver; they come with the first sums.
    """

    seq: int
    block: int
    rows: int | None
    parts: tuple[Part, ...]
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The request as JSON."""
        return {
            "seq": self.seq,
            "block": self.block,
            "rows": self.rows,
            "parts": [p.to_json() for p in self.parts],
            "tags": self.tags,
        }

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
        if not isinstance(message, dict) or set(message) != {"seq", "block", "rows", "parts", "tags"}:
            raise wrong
        seq, rows, parts, tags = message["seq"], message["rows"], message["parts"], message["tags"]
        block = message["block"]
        if type(block) is not int or not 0 <= block < 2**53:
            raise wrong
        if type(seq) is not int or not 0 < seq < MOST_SEQ or not isinstance(tags, dict):
            raise wrong
        if rows is not None and (type(rows) is not int or not 0 < rows < 2**40):
            raise wrong
        if not isinstance(parts, list) or len(parts) > MOST_PARTS:
            raise wrong
        found = tuple(map(Part.from_json, parts))
        if len({part.key for part in found}) < len(found):
            raise SafeError("the task asks for the same part of a sum twice")
        return cls(seq, block, rows, found, tags)

    def check_weights(self, weights: str | Mapping[str, Sequence[str]]) -> None:
        """Refuse sums of arrays by other weights than the function's.

        Args:
            weights: the weight of all arrays, or the weights of each by name.

        Raises:
            SafeError: a part has another one.
        """
        for part in self.parts:
            expected = [weights] if isinstance(weights, str) else [*weights.get(part.name, ())]
            if part.shape and not part.name.startswith("evaluation.") and part.weight not in expected:
                raise SafeError(
                    f"the task asks for a sum of {part.name[:40]} with the weight {part.weight[:40]}; expected "
                    f"{' or '.join(expected) or 'no such sum'}: from sums with several weights, central could solve "
                    "for a single node's numbers"
                )

    @property
    def layout(self) -> list[Any]:
        """What the transcript holds of the request, besides its number."""
        return [self.block, self.rows, [part.to_json() for part in self.parts]]

    def of(self, bits: int) -> list[Part]:
        """The parts of 32 or of 64 bits, in their order."""
        return [part for part in self.parts if part.bits == bits]

    def words(self, bits: int) -> int:
        """How many words of 32 or of 64 bits an answer has."""
        numbers = sum(int(np.prod(part.shape, dtype=np.int64)) for part in self.of(bits))
        return numbers + (HEADER + sum(len(part.checks) for part in self.parts) if bits == 64 else 0)


def encoded(
    sums: Sums,
    found: Mapping[str, Any],
    sent: Mapping[str, Array],
    n: int,
    nodes: int,
    secret: bytes,
    T: bytes,
    dithered: bool = False,
    whole: bool = False,
) -> tuple[Array, Array]:
    """Encode what a node adds to a sum.

    Args:
        sums: the sum that the task asks for.
        found: what the function returned, by name: arrays and numbers.
        sent: the arrays that the task sent.
        n: n_k, the node's rows.
        nodes: K, the nodes of its block.
        secret: 32 bytes that only this node knows.
        T: the request's transcript.
        dithered: whether the node adds random numbers of its own before it rounds, see ``encoding.dither``.
        whole: whether arrays of whole numbers may have noise that the nodes of the block share. Then only their exact
            sum has all of it: a weighted sum, or one of numbers that each node rounds, would be about single nodes.

    Returns:
        Its words of 32 and of 64 bits, before masks.

    Raises:
        SafeError: the function returns no such value, one of another shape, or one that is not finite.
    """
    words: dict[int, list[Array]] = {32: [], 64: [np.array([1, 0], masks.WORDS[64])]}
    checks, blurs = [], _blurs(sums, secret, T)

    def encode(term: encoding.Term, value: Array, key: str) -> Array:
        added = encoding.dither(secret, T, key, term.size) if dithered and term.exponent is not None else None
        return encoding.encode(term, value, added)

    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
        for part in sums.parts:
            given = found.get(part.name)
            if (
                whole
                and isinstance(given, np.ndarray)
                and given.dtype.kind in "iu"
                and (part.weight != "one" or part.exponent is not None)
            ):
                raise SafeError(f"the task asks for {part.name[:40]} with weights or rounded; expected the exact sum")
            value = _value(part, sums, found, sent, n, nodes)
            q = encode(part.term, value, part.key)
            words[part.bits].append(q + blurs[part.key] if part.key in blurs else q)  # modulo 2^64
            if terms := part.checks:
                flat = value.reshape(-1)
                check = np.asarray(flat @ encoding.factors(T, flat.size))
                checks += [encode(term, check, f"check {term.exponent} of {part.key}") for term in terms]
    return np.concatenate([np.empty(0, masks.WORDS[32]), *words[32]]), np.concatenate([*words[64], *checks])


def failed(sums: Sums, secret: bytes, T: bytes) -> tuple[Array, Array]:
    """Encode the part of a node that could not compute it: numbers that nobody can foresee.

    A refusal would be an answer that no mask covers, and zeros would open the sum of the other nodes. Central learns
    how many nodes of a block have failed, not which, and nothing else.

    Args:
        sums: the sum that the task asks for.
        secret: 32 bytes that only this node knows.
        T: the request's transcript.

    Returns:
        Its words of 32 and of 64 bits, before masks.
    """
    y32, y64 = masks.mask(secret, T, 32, sums.words(32)), masks.mask(secret, T, 64, sums.words(64))
    y64[:HEADER] = [1, 1]
    return y32, y64


def _value(part: Part, sums: Sums, found: Mapping[str, Any], sent: Mapping[str, Array], n: int, nodes: int) -> Array:
    if part.name not in found and part.exponent is None and not part.shape:
        return np.zeros(())  # a truth value that is false
    if part.name not in found:
        raise SafeError(f"the task asks for a sum of {part.name[:40]}, which this function does not return")
    given = found[part.name]
    value = np.asarray(given, dtype=np.float64)
    if value.shape != part.shape:
        raise SafeError(f"the task asks for a sum of {part.name[:40]} in another shape; expected {value.shape}")
    weight, _, divisor = part.weight.partition("/")
    if not _may_be_weighted(part.name, weight, given):
        raise SafeError(f"the task asks for a sum of {part.name[:40]} with the weight {weight}, which is not allowed")
    if weight in ("share", "equal") and part.name in sent and sent[part.name].shape == value.shape:
        value = value - sent[part.name]
    if weight == "rows":
        return value * n
    if weight == "share":
        if sums.rows is None:
            raise SafeError("the task asks for a mean over rows without their number; expected the rows of the block")
        return value * (n / sums.rows)
    if weight == "equal":
        if not divisor:
            return value / nodes
        x = found.get(divisor)
        if type(x) not in (int, float) or divisor == "n" or divisor.endswith("loss"):
            raise SafeError(f"the task divides by {divisor[:40]}, which this function does not return")
        return value / (nodes * x) if x else value * 0
    return value


def _may_be_weighted(name: str, weight: str, given: Any) -> bool:
    """Whether a value may be a part with this weight: sums of squared numbers of rows would show more than a sum."""
    if isinstance(given, np.ndarray) and not name.startswith("evaluation."):
        return weight in ("one", "share", "equal")
    if name == "train_loss":
        return weight == "rows"
    return weight == "one" and (name in (*TRUTHS, "n", "step") or name.startswith("evaluation."))


def decoded(sums: Sums, words: Mapping[int, Array], T: bytes) -> tuple[int, int, dict[str, Array], list[Part]]:
    """Decode the sum of a block's words.

    Args:
        sums: the sum that the tasks asked for.
        words: the sums of words of 32 and of 64 bits, modulo 2^32 and 2^64.
        T: the transcript of the requests.

    Returns:
        The number of nodes; how many of them could not compute their part; the sums by the keys of their parts, for a
        value at several scales by the key of its ladder; and the parts in which numbers were too large for their
        unit.
    """
    found: dict[str, Array] = {}
    ladders = _rungs(sums)
    of_ladders = dict.fromkeys((part.key for parts in ladders.values() for part in parts), words[64])
    at = {32: 0, 64: HEADER}
    for part in sums.parts:
        start, size = at[part.bits], int(np.prod(part.shape, dtype=np.int64))
        of_part = words[part.bits][start : start + size]
        at[part.bits] = start + size
        if part.key in of_ladders:
            of_ladders[part.key] = of_part
        else:
            found[part.key] = encoding.decode(part.term, of_part)
    found |= {key: _climbed(parts, of_ladders) for key, parts in ladders.items()}
    wrapped, i = [], at[64]
    for part in sums.parts:
        if not (terms := part.checks):
            continue
        told = [float(encoding.decode(term, words[64][i + j : i + j + 1].reshape(()))) for j, term in enumerate(terms)]
        i += len(terms)
        flat = found[part.key].reshape(-1)
        assert part.exponent is not None
        if encoding.has_wrapped(part.exponent, float(flat @ encoding.factors(T, flat.size)), told):
            wrapped.append(part)
    nodes, lost = (int(word) for word in words[64][:HEADER])
    return nodes, lost, found, wrapped


def ladder(name: str, shape: tuple[int, ...] = (), weight: str = "one") -> list[Part]:
    """Ask for sums whose size nobody knows: at several scales at once.

    Args:
        name: the value's name.
        shape: its shape.
        weight: its weight.

    Returns:
        The parts.
    """
    return [Part(name, weight, 64, shape, e) for e in RUNGS]


def _rungs(sums: Sums) -> dict[str, list[Part]]:
    """The parts that ask for one value at several scales, the finest first, by the key of their sum."""
    found: dict[str, list[Part]] = {}
    for part in sums.parts:
        if part.exponent is not None and part.bits == 64 and not part.checks:
            found.setdefault(part.ladder, []).append(part)
    return {key: sorted(parts, key=lambda part: part.exponent or 0) for key, parts in found.items() if len(parts) > 1}


def _blurs(sums: Sums, secret: bytes, T: bytes) -> dict[str, Array]:
    """Random whole numbers of units, by the keys of the parts that they are added to: the coarser ones of a ladder.

    Beside the exact sum, coarse words show how the hospitals' values have been rounded, one by one. For example, they
    count the values above half a unit. Central needs coarse words only to see how often the finer ones have wrapped,
    every 2^44 coarse units, so that noise of up to 2^35 units at each of a hundred hospitals costs no digit.
    """
    coarse = [part for parts in _rungs(sums).values() for part in parts[1:]]
    if not coarse:
        return {}
    sizes = [int(np.prod(part.shape, dtype=np.int64)) for part in coarse]
    drawn = masks.mask(secret, notation.H("blur", T), 64, sum(sizes)) >> np.uint64(64 - BLUR)
    cut = np.split(drawn - np.uint64(2 ** (BLUR - 1)), np.cumsum(sizes)[:-1])
    return {part.key: numbers for part, numbers in zip(coarse, cut, strict=True)}


def _climbed(parts: Sequence[Part], words: Mapping[str, Array]) -> Array:
    """Read sums from a ladder.

    A sum is known at each scale modulo 2^64 units. So the coarsest scale says how often the next finer one has wrapped,
    and so on, down to the finest. Whole numbers of its units have no rounding. Sums must be below 2^63 coarsest units.
    """
    exponents = [part.exponent or 0 for part in parts]
    value: Any = None
    for part, e in reversed([*zip(parts, exponents, strict=True)]):
        finest, wraps_at = 2 ** (e - exponents[0]), 2 ** (64 + e - exponents[0])
        now = words[part.key].view("<i8").astype(object) * finest
        value = now if value is None else now + (value - now + wraps_at // 2) // wraps_at * wraps_at
    unit = exponents[0] - encoding.FRACTION[64]
    return np.ldexp(np.asarray(value, dtype=np.float64).reshape(parts[0].shape), unit)
