"""What one node answers to one call, and the checks of it."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from v6_federated.base import json_text
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import MOST_TEXT
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.masks.summing import Sums
from v6_federated.messages import codec, serialization
from v6_federated.messages.codec import Shape, fits
from v6_federated.messages.result import MOST_ROWS
from v6_federated.models import metrics

MOST_NAME = 40  # letters of the name of an unknown value, in the error about it
REST = 16_000_000  # bytes of an answer, in addition to its arrays
ALWAYS = ("organization_id", "round", "n", "arrays", "train_loss")  # what every answer may hold


@dataclass(frozen=True)
class Answer:
    """One node's answer in one round.

    ``answer[name]`` is the array ``name``.

    Attributes:
        organization_id: the organization whose node answered.
        n: number of rows that it used.
        arrays: the arrays that it sent, by name.
        values: everything else that it sent, by name.
        bytes_up: size of the answer, as it was sent.
        bytes_down: size of the request, as it was sent.
        function: the partial function that was called.
        members: the organizations of the block whose sum it is; empty if it is one node's own answer. Its arrays are
            means over the block, under names that ``key`` returns.
    """

    organization_id: int
    n: int
    arrays: dict[str, Array]
    values: dict[str, Any]
    bytes_up: int
    bytes_down: int
    function: str
    members: tuple[int, ...] = ()

    @property
    def organizations(self) -> tuple[int, ...]:
        """The organizations that it is from."""
        return self.members or (self.organization_id,)

    @staticmethod
    def key(name: str, weight: str) -> str:
        """The name of an array among those of a block.

        Args:
            name: its name in a node's answer.
            weight: how the nodes of the block are weighted: "share", by rows, "equal" or "equal/NUMBER".

        Returns:
            The name; that of the node's answer for "share".
        """
        return name if weight == "share" else f"{name}, {weight}"

    def __getitem__(self, name: str) -> Array:
        """The array ``name``."""
        return self.arrays[name]


@dataclass(frozen=True)
class Expected:
    """What an answer must hold.

    Attributes:
        arrays: shapes of the arrays, by name.
        optional: names of arrays that may be missing.
        numbers: names of values that must be numbers from 0.
        values: names of further values that may be there: numbers, truth values or None.
        parts: names of further values that may be there, in any form, which ``validate`` checks.
        evaluation: whether the node was asked to evaluate a model.
        minimum_rows: rows that the answer must be about.
        classes: number of classes that an evaluation counts; None means that it is one of a regression.
        loss: the name of the model's outcome; empty if it has none.
        noisy: whether an evaluation's counts have noise.
        validate: says what else is wrong with an answer, or None.
        measures: what of an answer is compared with the other nodes' answers, see ``bounds.norms``.
        without_rows: whether the answer may lack its number of rows.
    """

    arrays: Mapping[str, Shape] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    numbers: tuple[str, ...] = ()
    values: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()
    evaluation: bool = False
    minimum_rows: int = 1
    classes: int | None = None
    loss: str = ""
    noisy: bool = False
    validate: Callable[[Answer], str | None] | None = None
    measures: Mapping[str, Callable[[Answer], Array] | None] = field(default_factory=dict)
    without_rows: bool = False

    @property
    def names(self) -> set[str]:
        """The names of everything that an answer may hold."""
        asked = {"evaluation"} if self.evaluation else set()
        return {*ALWAYS, *self.numbers, *self.values, *self.parts, *asked}

    @property
    def most_bytes(self) -> int:
        """Bytes that an answer may have: its arrays in the widest type, in base64, and some more for the rest."""
        return 8 * 4 * self.most_numbers // 3 + REST

    @property
    def most_numbers(self) -> int:
        """How many numbers its arrays may have in all."""
        return sum(map(codec.most_numbers, self.arrays.values()))

    def read(self, result: Mapping[str, Any], call: "Call", size: int) -> Answer:
        """Read what a node has sent, of which sender, names and size are known to be right."""
        n = result.get("n", 0 if self.without_rows else None)
        least = 0 if self.without_rows and "n" not in result else self.minimum_rows
        if type(n) is not int or not least <= n <= MOST_ROWS:
            raise Unusable(f"sent n={n!r}; expected its number of rows, at least {least}")
        try:
            arrays = codec.decode(result["arrays"], most=self.most_numbers) if "arrays" in result else {}
        except SafeError as error:
            raise Unusable(f"sent arrays that cannot be used: {error}", refused=True) from None
        _check_arrays(arrays, self.arrays, self.optional)
        values = {k: v for k, v in result.items() if k not in ("organization_id", "n", "arrays", "round")}
        self._check_values(values)
        answer = Answer(call.organization, n, arrays, values, size, call.size, call.function)
        if self.validate is not None and (problem := self.validate(answer)):
            raise Unusable(problem)
        return answer

    def _check_values(self, values: Mapping[str, Any]) -> None:
        for name in self.numbers:
            if not _is_number(values.get(name)):
                raise Unusable(f"sent no proper {name}; expected a number from 0")
        for name in self.values:
            if not is_plain(values.get(name)):
                raise Unusable(f"sent no proper {name}; expected a number, true, false or null")
        if values.get("train_loss") is not None and not metrics.is_loss(values["train_loss"]):
            raise Unusable("sent no proper train_loss; expected a number from 0, or null")
        is_evaluation = metrics.is_noisy_evaluation if self.noisy else metrics.is_evaluation
        if "evaluation" in values and not is_evaluation(values["evaluation"], self.classes, self.loss):
            raise Unusable("sent a malformed evaluation; expected n, loss and counts that add up to n")


@dataclass(frozen=True, kw_only=True)
class Share(Expected):
    """What a masked answer must hold: words, of which nothing can be checked except their form.

    Attributes:
        sums: the sum that it is a part of.
    """

    sums: Sums

    @property
    def names(self) -> set[str]:
        """See ``Expected``."""
        return {"organization_id", "round", "T", "y32", "y64"}

    @property
    def most_bytes(self) -> int:
        """See ``Expected``."""
        return 4 * (4 * self.sums.words(32) + 8 * self.sums.words(64)) // 3 + REST

    def read(self, result: Mapping[str, Any], call: "Call", size: int) -> Answer:
        """See ``Expected``."""
        T = result.get("T")
        if not isinstance(T, str) or not re.fullmatch("[0-9a-f]{64}", T):
            raise Unusable("sent no transcript; expected 64 hexadecimal digits")
        try:
            words = {f"y{b}": codec.decode_words(result.get(f"y{b}"), f"uint{b}", self.sums.words(b)) for b in (32, 64)}
        except SafeError as error:
            raise Unusable(f"sent {error}") from None
        return Answer(call.organization, 0, words, {"T": T}, size, call.size, call.function)


@dataclass(frozen=True)
class Call:
    """One call of a partial function at one organization.

    Attributes:
        function: the partial function.
        organization: whose node is called.
        round: the round.
        input_: what is sent; calls with the same content share it.
        size: its number of bytes, as sent.
        name: the task's name on the server.
        expected: what the answer must hold.
    """

    function: str
    organization: int
    round: int
    input_: dict[str, Any] = field(repr=False)
    size: int
    name: str
    expected: Expected


def refusal(text: str) -> CollectResultsError:
    """Say that answers are missing since nodes have refused the request, and would refuse it again."""
    error = CollectResultsError(text)
    error.refused = True
    return error


class Unusable(Exception):
    """An answer that did not come or cannot be used.

    Attributes:
        refused: whether the node refused the call, and would refuse it again.
    """

    def __init__(self, reason: str, refused: bool = False) -> None:
        """Say why."""
        super().__init__(reason[:MOST_TEXT])
        self.refused = refused


def by_organization(answer: Answer) -> int:
    """Return the key by which answers are sorted: the organization's id."""
    return answer.organization_id


def usable(result: Any, call: Call) -> Answer:
    """Check what a node has sent."""
    try:
        return _checked(result, call)
    # a malformed answer of one node must not end the job
    except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
        raise Unusable(f"sent an answer that cannot be read: {type(error).__name__}") from None


def _checked(result: Any, call: Call) -> Answer:
    expected = call.expected
    if not isinstance(result, dict) or result.get("organization_id") != call.organization:
        sender = result.get("organization_id") if isinstance(result, dict) else None
        raise Unusable(f"answered as organization {sender!r}; expected its own id")
    if result.get("round") != call.round:
        raise Unusable(f"answered for round {result.get('round')!r}; expected round {call.round}")
    try:
        json_text.check(result)
    except SafeError as error:
        raise Unusable(f"sent {error}") from None
    if unknown := sorted({*result} - expected.names):
        named = ", ".join(name[:MOST_NAME] for name in unknown[:3]) + (", ..." if len(unknown) > 3 else "")
        raise Unusable(f"sent {len(unknown)} unknown value(s): {named}; expected {', '.join(sorted(expected.names))}")
    if (size := serialization.size(result)) > expected.most_bytes:
        raise Unusable(f"sent {size:,} bytes; expected {expected.most_bytes:,} at most")
    return expected.read(result, call, size)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < MOST_ROWS


def is_plain(value: Any) -> bool:
    """Say whether a value is a finite number that JSON has, a truth value, or None."""
    if type(value) is int:
        return abs(value) < MOST_ROWS  # larger ones are no numbers of JSON
    return value is None or type(value) is bool or (type(value) is float and math.isfinite(value))


def _check_arrays(arrays: Mapping[str, Array], shapes: Mapping[str, Shape], optional: frozenset[str]) -> None:
    names = sorted(arrays)
    if set(names) - set(shapes) or set(shapes) - set(names) - optional:
        raise Unusable(f"sent the arrays {names}; expected {sorted(shapes)}")
    for name, array in arrays.items():
        if not fits(array, shapes[name]):
            raise Unusable(f"sent {name} of shape {array.shape}; expected {codec.written(shapes[name])}")
