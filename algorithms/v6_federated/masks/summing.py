"""What a node adds to a sum, as words to which masks can be added, and what central reads from the words of a block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.masks import encoding, keystreams, notation
from v6_federated.masks.encoding import HEADER
from v6_federated.masks.exact import Exact
from v6_federated.masks.summands import RUNGS, Layout, Part

MOST_SEQ = 2**31
FINEST = 2.0 ** (RUNGS[0] - encoding.FRACTION[64])  # the smallest value, except 0, that a sum of any size can have
BLUR = 36  # bits of the noise in the coarser words of a ladder


@dataclass(frozen=True)
class Sums:
    """The sum that a task asks for.

    Attributes:
        seq: number of the request in its job; it rises.
        block: a number for the node's block, the same for all of its nodes.
        rows: N, the rows of the node's block; None until they are known.
        parts: the parts, which follow from the function's declaration and the units.
        digest: of the layout, hexadecimal.
        units: width and e of each item of the layout whose unit central chooses.
        tags: confirmations of the agreed keys, by sender and receiver; they come with the first sums.
    """

    seq: int
    block: int
    rows: int | None
    parts: tuple[Part, ...]
    digest: str = ""
    units: tuple[tuple[int, int], ...] = ()
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        layout: Layout,
        seq: int,
        block: int,
        rows: int | None,
        units: Sequence[tuple[int, int]] = (),
        tags: Mapping[str, Mapping[str, str]] | None = None,
    ) -> "Sums":
        """Ask for the sum of a layout."""
        parts = layout.parts(units)
        return cls(seq, block, rows, parts, layout.digest, tuple((bits, e) for bits, e in units), tags or {})

    def to_json(self) -> dict[str, Any]:
        """The request as JSON: it says nothing of the parts but their units."""
        return {
            "seq": self.seq,
            "block": self.block,
            "rows": self.rows,
            "layout": self.digest,
            "units": [[*unit] for unit in self.units],
            "tags": self.tags,
        }

    @classmethod
    def from_json(cls, message: Any, layout: Layout) -> "Sums":
        """Read a request."""
        wrong = SafeError("the task asks for a malformed sum; it must be as central sends it")
        if not isinstance(message, dict) or set(message) != {"seq", "block", "rows", "layout", "units", "tags"}:
            raise wrong
        seq, block, rows, tags = message["seq"], message["block"], message["rows"], message["tags"]
        if type(block) is not int or not 0 <= block < 2**53:
            raise wrong
        if type(seq) is not int or not 0 < seq < MOST_SEQ or not isinstance(tags, dict):
            raise wrong
        if rows is not None and (type(rows) is not int or not 0 < rows < 2**40):
            raise wrong
        if message["layout"] != layout.digest:
            raise SafeError(
                "the task asks for another sum than this node's code declares; central must run the same version of "
                "the same image, and ask for nothing else"
            )
        if rows is None and any(item.weight == "share" for item in layout.items):
            raise SafeError("the task asks for a sum of means without the number of rows; expected those of the block")
        return cls.of(layout, seq, block, rows, message["units"], tags)

    @property
    def layout(self) -> list[Any]:
        """What the transcript holds of the request, besides its number."""
        return [self.block, self.rows, self.digest, [[*unit] for unit in self.units]]

    def words(self, bits: int) -> int:
        """How many words of 32 or of 64 bits an answer has."""
        numbers = sum(part.size for part in self.parts if part.bits == bits)
        return numbers + (HEADER + sum(len(part.checks) for part in self.parts) if bits == 64 else 0)


@dataclass(frozen=True)
class Change:
    """How far an array that the task has sent has moved: float64, which a mean adds up as it is."""

    array: Array


def encoded(
    sums: Sums,
    found: Mapping[str, Any],
    n: int,
    nodes: int,
    secret: bytes,
    T: bytes,
    dithered: bool = False,
) -> tuple[Array, Array]:
    """Encode what a node adds to a sum."""
    words: dict[int, list[Array]] = {32: [], 64: [np.array([1, 0], keystreams.WORDS[64])]}
    checks, blurs = [], _blurs(sums, secret, T)

    def encode(part: Part, term: encoding.Term, value: Array | Exact, key: str) -> Array:
        added = encoding.dither(secret, T, key, term.size) if dithered and term.exponent is not None else None
        if isinstance(value, Exact):
            return _of_rows(value, part, sums).encode(term, added)
        return encoding.encode(term, value, added)

    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
        for part in sums.parts:
            given = found.get(part.name)
            value = given if isinstance(given, Exact) else _value(part, sums, found, n, nodes)
            q = encode(part, part.term, value, part.key)
            words[part.bits].append(q + blurs[part.key] if part.key in blurs else q)  # modulo 2^64
            if terms := part.checks:
                check = _checked(value, T)
                checks += [encode(part, term, check, f"check {term.exponent} of {part.key}") for term in terms]
    return np.concatenate([np.empty(0, keystreams.WORDS[32]), *words[32]]), np.concatenate([*words[64], *checks])


def failed(sums: Sums, secret: bytes, T: bytes) -> tuple[Array, Array]:
    """Encode the part of a node that could not compute it: numbers that nobody can foresee.

    A refusal would be an answer that no mask covers, and zeros would open the sum of the other nodes. Central learns
    that some node of a block has failed, not which or how many, and nothing else.
    """
    y32, y64 = keystreams.mask(secret, T, 32, sums.words(32)), keystreams.mask(secret, T, 64, sums.words(64))
    y64[0] = 1
    return y32, y64


def halvings(rows: int | None) -> int:
    """L, how often a node halves what it adds to a mean by rows: the least with 2^L rows or more.

    A division by the rows of all would be rounded at each hospital's own last place, as n_k / N is, and central chooses
    N. Powers of two round nothing; central divides the sum.
    """
    assert rows is not None  # checked when the request was read
    return (rows - 1).bit_length()


def _of_rows(value: Exact, part: Part, sums: Sums) -> Exact:
    """What a sum over a node's rows, which nothing has rounded, adds to a part."""
    if part.exponent is None or part.weight not in ("one", "rows", "share"):
        raise SafeError(f"the function returns {part.name} as an exact sum over rows, and declares another weight")
    return Exact(value.numbers, value.exponent - (halvings(sums.rows) if part.weight == "share" else 0))


def _checked(value: Array | Exact, T: bytes) -> Array | Exact:
    """The sum of the values times factors that nobody can foresee."""
    if isinstance(value, Exact):
        factors = encoding.factors(T, len(value.numbers)).tolist()
        total = sum(int(f) * number for f, number in zip(factors, value.numbers, strict=True))
        return Exact((total,), value.exponent)
    flat = value.reshape(-1)
    return np.asarray(flat @ encoding.factors(T, flat.size))


def _value(part: Part, sums: Sums, found: Mapping[str, Any], n: int, nodes: int) -> Array:
    if part.name not in found and part.exponent is None and not part.shape:
        return np.zeros((), np.int64)  # a truth value that is false
    if part.name not in found:
        raise SafeError(f"the function declares a sum of {part.name}, and does not return it")
    given = found[part.name]
    value = given.array if isinstance(given, Change) else np.asarray(given)
    if value.shape != part.shape:
        raise SafeError(f"the function returns {part.name} in another shape than it declares: {value.shape}")
    # of whole numbers with noise that the nodes of a block share, only the exact sum has all of it
    if (part.exponent is None) != (value.dtype.kind in "iub") and (part.exponent is None or value.shape):
        raise SafeError(f"the function returns {part.name} as {value.dtype}; Count is for whole numbers, and only it")
    if part.exponent is None:
        return value.astype(np.int64)
    value = value.astype(np.float64)
    weight, _, divisor = part.weight.partition("/")
    if weight == "rows":
        return value * n
    if weight == "share":
        return value * n * 2.0 ** -halvings(sums.rows)  # of float32 the product is exact
    if weight == "equal" and divisor:
        x = found.get(divisor)
        if type(x) not in (int, float):
            raise SafeError(f"the function divides {part.name} by {divisor}, and does not return it")
        return value / (nodes * x) if x else value * 0
    return value / nodes if weight == "equal" else value


def decoded(sums: Sums, words: Mapping[int, Array], T: bytes) -> tuple[int, bool, dict[str, Array], list[Part]]:
    """Decode the sum of a block's words."""
    found: dict[str, Array] = {}
    ladders = _rungs(sums)
    of_ladders = dict.fromkeys((part.key for parts in ladders.values() for part in parts), words[64])
    at = {32: 0, 64: HEADER}
    for part in sums.parts:
        start, size = at[part.bits], part.size
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
    for part in sums.parts:
        if part.weight == "share":
            found[part.key] = found[part.key] * 2.0 ** halvings(sums.rows) / (sums.rows or 1)
    nodes, lost = (int(word) for word in words[64][:HEADER])
    return nodes, lost != 0, found, wrapped


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
    sizes = [part.size for part in coarse]
    drawn = keystreams.mask(secret, notation.H("blur", T), 64, sum(sizes)) >> np.uint64(64 - BLUR)
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
