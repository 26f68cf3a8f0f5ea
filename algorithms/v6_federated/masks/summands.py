"""What a function's answer is a sum of. A partial function declares it once; nodes and central derive the same layout.

A request names the function and a digest of the layout, and nothing else of how numbers are encoded, except units that
follow from public sums of earlier rounds. So whoever sends it can ask for nothing that the function's code does not
declare: for no array of fractions as a count, which each hospital would round by itself, and for no other weight.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from v6_federated.base.errors import SafeError
from v6_federated.masks import encoding, notation, transcript
from v6_federated.masks.encoding import Term

Additive = Literal["row", "person", "stratum", "hospital", "nothing"]
Length = int | tuple[int, ...]
Unit = int | range | Literal["any", "mean"] | None

RUNGS = tuple(range(-20, 261, 20))  # of sums whose size nobody knows: the next is 2^20 coarser
FIRST = 10  # e of means whose size nobody knows yet; they have 64 bits, and hold numbers up to 2^17
MORE = 40  # powers of two by which it grows if they do not fit
LEAST, MOST = -40, 40  # e of means of 32 bits
OF_MEANS = {64: range(FIRST, FIRST + 4 * MORE + 1, MORE), 32: range(LEAST, MOST + 1)}
LOSSES = 44  # e of sums of losses of classes
# truth values that may be counted: none of them follows from what rows hold, or a sum would count the hospitals above a
# bound that the task chooses
TRUTHS = ("has train_loss", "state_lost", "kept")


def of_the_model(asked: Any) -> int:
    """The shape of an array that is as long as the model.

    Args:
        asked: what the task asks for, see ``layouts.Asked``.

    Returns:
        d.
    """
    size: int = asked.size
    return size


@dataclass(frozen=True)
class Summand:
    """A part of what a function returns, and how it is added up.

    Attributes:
        shape: of the value: a length, lengths, or a function of what the task asks for that returns them. It follows
            from public values alone.
        additive: what its sum is additive in. "row": one hospital with all rows of a block would add as much as all of
            its hospitals do, so that the sum tells nothing of how rows are dealt. "person", "stratum": the same if no
            person's rows, or no stratum's, are parted. "hospital": only hospitals are added up, each of which has
            computed what is no sum over its rows. "nothing": no row enters it. A function of what the task asks for if
            it depends on it.
    """

    shape: Length | Callable[[Any], Length] = ()
    additive: Additive | Callable[[Any], Additive] = "row"

    def items(self, name: str, asked: Any) -> "list[Item]":
        """What it adds to a layout."""
        length = self.shape(asked) if callable(self.shape) else self.shape
        shape = length if isinstance(length, tuple) else (length,)
        additive = self.additive(asked) if callable(self.additive) else self.additive
        return [Item(name, weight, shape, unit, additive) for weight, unit in self._encoded()]

    def _encoded(self) -> list[tuple[str, Unit]]:
        raise NotImplementedError


@dataclass(frozen=True)
class Count(Summand):
    """Whole numbers, which are added up exactly: int64 where they are made."""

    def _encoded(self) -> list[tuple[str, Unit]]:
        return [("one", None)]


@dataclass(frozen=True)
class Sum(Summand):
    """Numbers of float64.

    Attributes:
        unit: e of their unit 2^(e-56), which their sum must stay below 2^7 times; a range if central chooses it, from
            public values; "any" for sums of any size, which travel in fifteen units at once.
    """

    unit: int | range | Literal["any"] = "any"

    def _encoded(self) -> list[tuple[str, Unit]]:
        return [("one", self.unit)]


@dataclass(frozen=True)
class Mean(Summand):
    """Numbers of which central computes a mean. The array of the same name that the task sent is subtracted first.

    Attributes:
        weight: "share" if all rows of a block count the same, "equal" if its nodes do. Sums of one array by several
            weights are several equations about the nodes' arrays: from enough of them central could solve for one's.
        per: a number that the function returns, by which the array is divided.
    """

    shape: Length | Callable[[Any], Length] = of_the_model
    additive: Additive | Callable[[Any], Additive] = "hospital"
    weight: Literal["share", "equal"] = "share"
    per: str = ""

    def _encoded(self) -> list[tuple[str, Unit]]:
        return [(f"{self.weight}/{self.per}" if self.per else self.weight, "mean")]


@dataclass(frozen=True)
class Loss(Summand):
    """A mean loss over the node's rows. Central learns the sum over rows, and whether all nodes have one."""

    additive: Additive | Callable[[Any], Additive] = "hospital"

    def items(self, name: str, asked: Any) -> "list[Item]":
        """What it adds to a layout: nothing if nodes add noise, which covers no loss.

        Args:
            name: the name of the value.
            asked: what the task asks for.

        Returns:
            The items.
        """
        if asked.noisy:
            return []
        additive = self.additive(asked) if callable(self.additive) else self.additive
        # losses of a regression have the square of the label's unit, so that nobody knows their size
        unit: Unit = "any" if asked.regression else LOSSES
        return [Item(name, "rows", (), unit, additive), *Truth().items(f"has {name}", asked)]


@dataclass(frozen=True)
class Truth(Summand):
    """A truth value that does not follow from what rows hold: how many nodes say so."""

    additive: Additive | Callable[[Any], Additive] = "nothing"

    def _encoded(self) -> list[tuple[str, Unit]]:
        return [("one", None)]


Declared = Mapping[str, Summand | tuple[Summand, ...]]
Declaration = Declared | Callable[[Any], Declared]


def check_declared(declaration: Declaration) -> None:
    """Reject a declaration of what no sum may tell."""
    for name, summand in () if callable(declaration) else each(declaration):
        if not isinstance(summand, Summand):
            raise TypeError(f"sums[{name!r}] is a {type(summand).__name__}; expected Count, Sum, Mean, Loss or Truth")
        if isinstance(summand, Truth) and name not in TRUTHS:
            raise TypeError(f"{name} may follow from rows, and a sum would count hospitals by it; expected {TRUTHS}")


@dataclass(frozen=True)
class Item:
    """One entry of a layout.

    Attributes:
        name: the value's name among what the function returns; those of an evaluation begin with ``evaluation.``.
        weight: what a node multiplies it by. "one": nothing. "rows": its rows n_k. "share": p_k = n_k / N, N the rows
            of its block. "equal": 1 / K, K the nodes of its block. "equal/NAME": 1 / (K x), x its number NAME.
        shape: the value's shape.
        unit: None for whole numbers; e; a range of which the request has an e; "any" for ``RUNGS``; "mean" for a width
            and an e of the request, see ``OF_MEANS``.
        additive: see ``Summand``.
    """

    name: str
    weight: str
    shape: tuple[int, ...]
    unit: Unit
    additive: Additive

    def to_json(self) -> list[Any]:
        """The item as JSON, of which the digest is."""
        unit = [self.unit[0], self.unit[-1]] if isinstance(self.unit, range) else self.unit
        return [self.name, self.weight, [*self.shape], unit, self.additive]

    @property
    def accepted(self) -> Mapping[int, range]:
        """By width, each e that a request may choose; empty if it chooses none."""
        if isinstance(self.unit, range):
            return {64: self.unit}
        return OF_MEANS if self.unit == "mean" else {}

    def parts(self, bits: int = 64, e: int | None = None) -> "list[Part]":
        """Its parts, in the unit that a request has chosen."""
        if self.unit is None:
            return [Part(self.name, self.weight, 64, self.shape)]
        if self.unit == "any":
            return ladder(self.name, self.shape, self.weight)
        return [Part(self.name, self.weight, bits, self.shape, self.unit if isinstance(self.unit, int) else e)]


@dataclass(frozen=True)
class Layout:
    """All that an answer is a sum of.

    Attributes:
        items: its entries, in their order.
    """

    items: tuple[Item, ...]

    @functools.cached_property
    def digest(self) -> str:
        """H("layout", the items as canonical JSON), hexadecimal."""
        return notation.H("layout", transcript.canonical([item.to_json() for item in self.items])).hex()

    @property
    def of_hospitals(self) -> list[str]:
        """The names of the items whose sum depends on how rows are dealt over hospitals."""
        return [item.name for item in self.items if item.additive not in ("row", "nothing")]

    @property
    def chosen(self) -> list[Item]:
        """The items whose unit a request chooses."""
        return [item for item in self.items if item.accepted]

    def parts(self, units: Any) -> "tuple[Part, ...]":
        """The parts of an answer."""
        wanted = self.chosen
        if not isinstance(units, Sequence) or isinstance(units, str) or len(units) != len(wanted):
            raise SafeError(f"the task's sum needs {len(wanted)} units; send them as central does")
        for unit, item in zip(units, wanted, strict=True):
            pair = [*unit] if isinstance(unit, Sequence) else []
            if [type(number) for number in pair] != [int, int] or pair[1] not in item.accepted.get(pair[0], ()):
                raise SafeError(f"the task's sum has another unit of {item.name[:40]}; expected one as central chooses")
        at = iter(units)
        return tuple(part for item in self.items for part in item.parts(*(next(at) if item.accepted else ())))


def not_in_rows(function: str, layout: Layout, instead: str) -> str:
    """Say why a study that hides totals of single hospitals does not answer a request."""
    if not (names := layout.of_hospitals):
        return ""
    named = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return (
        f"{function} adds up what each hospital computes from its own totals ({named}), and this study hides these "
        f"(hospital_totals=hidden){'; ' * bool(instead)}{instead}"
    )


@dataclass(frozen=True)
class Part:
    """One part of an answer, encoded in one unit.

    Attributes:
        name: the value's name, see ``Item``.
        weight: what a node multiplies it by, see ``Item``.
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

    def of(self, found: Mapping[str, Any]) -> Any:
        """Its sum among decoded ones."""
        return found[self.key if self.key in found else self.ladder]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def term(self) -> Term:
        """How it is encoded."""
        return Term(self.key, 64 if self.bits == 64 else 32, self.shape, self.exponent)

    @property
    def checks(self) -> list[Term]:
        """The checks that show if its sum has wrapped: means of arrays have some, as nobody knows their size."""
        mean = bool(self.shape) and self.weight.partition("/")[0] in ("share", "equal")
        return encoding.checks(self.exponent) if mean and self.exponent is not None else []


def ladder(name: str, shape: tuple[int, ...] = (), weight: str = "one") -> list[Part]:
    """The parts of sums whose size nobody knows: at several scales at once."""
    return [Part(name, weight, 64, shape, e) for e in RUNGS]


def each(declared: Declared) -> Iterator[tuple[str, Summand]]:
    """Go through a declaration."""
    for name, summands in declared.items():
        for summand in summands if isinstance(summands, tuple) else (summands,):
            yield name, summand
