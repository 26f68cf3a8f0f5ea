"""The schema: what an operator declares about the hospital's table, so that nothing has to be asked of its rows.

It lies in the hospital's own folder as ``schema.json``. Columns, kinds, levels, classes and bounds are the same at all
hospitals of a study, which carries their digest; ``own`` is what this hospital declares about its own rows alone.
"""

import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import rfc8785

from v6_federated.base import json_text
from v6_federated.base.errors import SafeError
from v6_federated.base.files import open_regular
from v6_federated.messages.job import DataSpec

NAME = "schema.json"
MOST_BYTES = 2**26  # of the file: a column has about 100 bytes
LARGEST_WHOLE = 2**53  # whole numbers below it are exact everywhere
KINDS = ("number", "words")
DRAFT_IT = "`v6-federated schema new TABLE` drafts one"

Kind = Literal["number", "words"]
Class = str | int | float | bool


@dataclass(frozen=True)
class Column:
    """A column of features.

    Attributes:
        name: its name in the table, or its index if the data are arrays.
        kind: "number", or "words" for a category.
        lower: the smallest value that the column is meant to hold, for numbers.
        upper: the largest one.
        levels: the words that are known, in the order of the columns that ``onehot`` makes; all others are unknown.

    Raises:
        SafeError: a part is missing, does not belong to the kind, or has a value that it cannot have.
    """

    name: str
    kind: Kind
    lower: float | None = None
    upper: float | None = None
    levels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check the column."""
        _check_text(self.name, "the name of a column")
        where = f"column {self.name!r}"
        if self.kind not in KINDS:
            raise SafeError(f"{where}: kind is {_shown(self.kind)}; expected number or words")
        if self.kind == "number":
            if self.levels is not None:
                raise SafeError(f"{where} holds numbers and has levels; give it lower and upper, or the kind words")
            _check_bounds(self.lower, self.upper, where)
            return
        if self.lower is not None or self.upper is not None:
            raise SafeError(f"{where} holds words and has lower or upper; give it levels, or the kind number")
        if self.levels is None or not self.levels:
            raise SafeError(f"{where} has no levels; list the words that it can hold")
        for level in self.levels:
            if not isinstance(level, str):
                raise SafeError(f"{where}: the level {_shown(level)} is no text; write it in quotes")
            _check_text(level, f"{where}: a level")
            if level != level.strip():
                raise SafeError(f"{where}: the level {level!r} begins or ends with a space; tables are read without")
        _check_once(self.levels, f"{where}: the level")

    def to_json(self) -> dict[str, Any]:
        """The column as JSON."""
        if self.kind == "words":
            return {"name": self.name, "kind": self.kind, "levels": list(self.levels or ())}
        return {"name": self.name, "kind": self.kind, "lower": _plain(self.lower), "upper": _plain(self.upper)}


@dataclass(frozen=True)
class Schema:
    """What an operator declares.

    Attributes:
        columns: the features, in the order of the table.
        label: the label's column; "" if the rows have no label.
        classes: the label's values, in the order of their indices; None if it is a number to predict (a regression), or
            if there is no label.
        bounds: the smallest and the largest label that is meant to occur, for a regression; None otherwise.
        n: about how many rows this hospital has; None if that is not declared.
        person: the column that says which rows are of the same person, which is no feature; None if each row is another
            person's, or if that is not declared.
        m: how many rows of a person are used at most; None if there is no such column.

    Raises:
        SafeError: a part has a value that it cannot have, or the parts do not fit.
    """

    columns: tuple[Column, ...]
    label: str
    classes: tuple[Class, ...] | None = None
    bounds: tuple[float, float] | None = None
    n: int | None = None
    person: str | None = None
    m: int | None = None

    def __post_init__(self) -> None:
        """Check the schema, and write whole numbers among the classes as such."""
        if not self.columns:
            raise SafeError("there is no column; declare each feature under columns")
        _check_once([column.name for column in self.columns], "the column")
        self._check_label()
        for name, value in (("n", self.n), ("m", self.m)):
            if value is not None and (type(value) is not int or not 1 <= value < LARGEST_WHOLE):
                raise SafeError(f"{name} is {_shown(value)}; expected a whole number from 1")
        if (self.person is None) != (self.m is None):
            raise SafeError("person and m belong together; declare both, or neither")
        if self.person is not None:
            _check_text(self.person, "the name in person")
            if self.person in (*self.features, self.label):
                raise SafeError(f"the column {self.person!r} of person is a feature or the label; remove it there")

    def _check_label(self) -> None:
        if not self.label:
            if self.classes is not None or self.bounds is not None:
                raise SafeError("there are classes or bounds of a label without a label; name its column")
            return
        _check_text(self.label, "the name of the label")
        if self.label in self.features:
            raise SafeError(f"the label {self.label!r} is among the columns; remove it from columns")
        where = f"label {self.label!r}"
        if (self.classes is None) == (self.bounds is None):
            raise SafeError(f"{where} needs either classes, or lower and upper if it is a number to predict")
        if self.bounds is not None:
            _check_bounds(*self.bounds, where)
            return
        assert self.classes is not None
        for value in self.classes:
            if isinstance(value, str):
                _check_text(value, f"{where}: a class")
            elif not (isinstance(value, int | float) and abs(value) < LARGEST_WHOLE):  # NaN is not below it either
                raise SafeError(f"{where}: the class {_shown(value)} is neither a text nor a number below 2^53")
        if len({isinstance(value, str) for value in self.classes}) > 1:
            raise SafeError(f"{where}: some classes are texts and others numbers; write all in quotes, or none")
        if len(self.classes) < 2:
            raise SafeError(f"{where} needs at least two classes")
        object.__setattr__(self, "classes", tuple(map(_plain, self.classes)))
        _check_once(self.classes, f"{where}: the class")

    @classmethod
    def parse(cls, text: str) -> "Schema":
        """Read a schema."""
        try:
            found = json.loads(text, object_pairs_hook=_once)
            json_text.check(found)
        except SafeError:
            raise
        except RecursionError:
            raise SafeError(json_text.TOO_DEEP) from None
        except json.JSONDecodeError as error:
            raise SafeError(
                f"line {error.lineno}, column {error.colno} is not JSON ({error.msg}); look for a comma, quote or "
                "bracket that is missing or too many"
            ) from None
        except ValueError as error:  # a number of thousands of digits
            raise SafeError(f"it is not JSON ({error})") from None
        whole = _object(found, "the file", ("label", "columns"), ("own",))
        label, classes, bounds = _label(whole["label"])
        if not isinstance(whole["columns"], list):
            raise SafeError("columns is no list; expected [...] with an object for each column")
        own = _object(whole.get("own", {}), "own", (), ("n", "person", "m"))
        return cls(tuple(_column(each, i) for i, each in enumerate(whole["columns"], 1)), label, classes, bounds, **own)

    @classmethod
    def of_file(cls, file: Path) -> "Schema":
        """Read a schema from a file."""
        try:
            with open_regular(file) as stream:
                data = stream.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise SafeError(f"it is larger than {MOST_BYTES:,} bytes")
            return cls.parse(data.decode("utf-8-sig"))  # editors of Windows write a mark at the beginning
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SafeError(f"{file.name} cannot be read ({error.strerror}); correct its permissions") from None
        except UnicodeDecodeError:
            raise SafeError(f"{file.name} is not UTF-8; save it as UTF-8") from None
        except SafeError as error:
            raise SafeError(f"{file.name}: {error}") from None

    @classmethod
    def of_folder(cls, folder: Path) -> "Schema | None":
        """Read the schema that a hospital's operator has declared."""
        try:
            return cls.of_file(folder / NAME)
        except FileNotFoundError:
            return None

    def text(self) -> str:
        """The schema as JSON that a person can edit: each column is a line."""
        own = self._own_json()
        lines = [f'  "own": {_line(own)},'] if own else []  # first: a person can remove the line, or add it
        lines += [f'  "label": {_line(self._label_json() if self.label else None)},', '  "columns": [']
        lines += [",\n".join(f"    {_line(column.to_json())}" for column in self.columns), "  ]"]
        return "\n".join(["{", *lines, "}", ""])

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON."""
        label = self._label_json() if self.label else None
        whole = {"label": label, "columns": [column.to_json() for column in self.columns]}
        return whole | ({"own": own} if (own := self._own_json()) else {})

    def _label_json(self) -> dict[str, Any]:
        if self.bounds is None:
            return {"name": self.label, "classes": list(self.classes or ())}
        return {"name": self.label, "lower": _plain(self.bounds[0]), "upper": _plain(self.bounds[1])}

    def _own_json(self) -> dict[str, Any]:
        own = {"n": self.n, "person": self.person, "m": self.m}
        return {name: value for name, value in own.items() if value is not None}

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON (RFC 8785), in hexadecimal: blanks and the order of keys do not matter."""
        return hashlib.sha256(rfc8785.dumps(self.to_json())).hexdigest()

    @property
    def shared(self) -> "Schema":
        """What all hospitals of a study share: the schema without what is this hospital's own."""
        return replace(self, n=None, person=None, m=None)

    @property
    def shared_digest(self) -> str:
        """The digest of ``shared``, which the study carries."""
        return self.shared.digest

    @property
    def features(self) -> list[str]:
        """The names of the columns, in their order."""
        return [column.name for column in self.columns]

    def check_named(self, spec: DataSpec) -> None:
        """Refuse a job that names other columns, whatever the table has: the words are the same at all hospitals."""
        if spec.label not in (None, self.label):
            raise SafeError(f"the label {spec.label} is not the schema's; expected {self.label}, or leave label out")
        known = {*self.features}
        named = [*(spec.features or ()), *(spec.categories or ()), *spec.special]
        if strange := [name for name in dict.fromkeys(named) if name not in known]:
            raise SafeError(f"the column(s) {', '.join(strange)} are not in the schema; name columns that are")
        if strange := [name for name in spec.exclude if name not in known]:
            raise SafeError(f"exclude={', '.join(strange)}: no such feature in the schema; name features that it has")
        if spec.subgroup is not None and spec.subgroup not in self.levels:
            raise SafeError(
                f"subgroup={spec.subgroup} is no column of words in the schema; name one that is, or leave it out"
            )
        if strange := [level for level in spec.levels if level not in self.levels[str(spec.subgroup)]]:
            raise SafeError(
                f"{len(strange)} level(s) of the job are not the schema's of {spec.subgroup}; name those that are"
            )

    def named(self, spec: DataSpec) -> DataSpec:
        """Name the columns that a job does not name. A table may have others; its last one need not be the label."""
        if spec.supervised and spec.label is None and not self.label:
            raise SafeError(
                "the schema of this study has no label, so no model can be trained; agree on a schema with a label, or "
                "use a method without labels, such as pca"
            )
        label = self.label if spec.supervised and spec.label is None else spec.label
        others = [c for c in self.features if c not in (label, *spec.exclude, *spec.special)]
        return replace(spec, label=label, features=others if spec.features is None else spec.features, exclude=[])

    def check(self, spec: DataSpec) -> None:
        """Refuse a job about other columns, or about another kind of label, than what is declared."""
        self.check_named(spec)
        if spec.regression != self.regression and spec.supervised:
            raise SafeError(f"the schema's label {self.label} is a " + ("number" if self.regression else "class"))
        if strange_classes := [named for named in spec.classes or () if named not in (self.classes or ())]:
            listed = ", ".join(map(str, strange_classes))
            raise SafeError(f"the class(es) {listed} are not in the schema; name classes that are")

    @property
    def regression(self) -> bool:
        """Whether the label is a number to predict."""
        return self.bounds is not None

    @property
    def kinds(self) -> dict[str, list[str]]:
        """The columns that are not all numbers, by kind, as ``describe`` answers them."""
        return {"words": [*self.levels], "mixed": [], "empty": []}

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of each column of words, by its name."""
        return {column.name: column.levels for column in self.columns if column.levels is not None}

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The bounds of each column of numbers, by its name."""
        numbers = [column for column in self.columns if column.lower is not None and column.upper is not None]
        return {column.name: (float(column.lower or 0), float(column.upper or 0)) for column in numbers}


def _label(value: Any) -> tuple[str, tuple[Class, ...] | None, tuple[float, float] | None]:
    if value is None:
        return "", None, None
    found = _object(value, "label", ("name",), ("classes", "lower", "upper"))
    _check_text(found["name"], "the name of the label")
    where = f"label {found['name']!r}"
    classes = found.get("classes")
    if "classes" in found and ("lower" in found or "upper" in found):
        raise SafeError(f"{where} has classes and bounds; remove one of them")
    if "classes" in found:
        if not isinstance(classes, list):
            raise SafeError(f"{where}: classes is no list; expected for example [0, 1]")
        return found["name"], tuple(classes), None
    if not ("lower" in found and "upper" in found):
        raise SafeError(f"{where} needs either classes, or lower and upper if it is a number to predict")
    return found["name"], None, (found["lower"], found["upper"])


def _column(value: Any, number: int) -> Column:
    name = value.get("name") if isinstance(value, dict) else None
    where = f"column {name!r}" if isinstance(name, str) else f"column {number} of the list"
    found = _object(value, where, ("name", "kind"), ("lower", "upper", "levels"))
    if isinstance(found.get("levels"), list):
        found["levels"] = tuple(found["levels"])
    elif "levels" in found:
        raise SafeError(f'{where}: levels is no list; expected for example ["no", "yes"]')
    return Column(**found)


def _object(value: Any, where: str, needed: Sequence[str], others: Sequence[str]) -> dict[str, Any]:
    """A JSON object that has all keys that are needed, and no unknown one."""
    if not isinstance(value, dict):
        raise SafeError(f"{where} is no object; expected {{...}}")
    for unknown in (key for key in value if key not in (*needed, *others)):
        near = difflib.get_close_matches(unknown, (*needed, *others), n=1)
        hint = f"did you mean {near[0]}?" if near else f"expected {', '.join((*needed, *others))}"
        raise SafeError(f"{where} has the unknown key {_shown(unknown)}; {hint}")
    if missing := [key for key in needed if key not in value]:
        raise SafeError(f"{where} has no {' and no '.join(missing)}; add it, or start from a draft: {DRAFT_IT}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys all differ: Python would take the last."""
    _check_once([key for key, _ in pairs], "the key")
    return dict(pairs)


def _check_once(values: Iterable[Any], what: str) -> None:
    """Refuse a value that occurs twice; 1 and "1" are the same, as names of columns and levels are texts."""
    seen = set[str]()
    for value in values:
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if text in seen:
            raise SafeError(f"{what} {_shown(value)} occurs twice; write it once")
        seen.add(text)


def _check_bounds(lower: Any, upper: Any, where: str) -> None:
    for name, value in (("lower", lower), ("upper", upper)):
        if value is None:
            raise SafeError(f"{where} has no {name}; add the {'small' if name == 'lower' else 'larg'}est value")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SafeError(f"{where}: {name} is {_shown(value)}; expected a number")
    if lower >= upper:
        raise SafeError(f"{where}: lower is {_plain(lower)} and upper {_plain(upper)}; lower must be below upper")


def _check_text(value: Any, what: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise SafeError(f"{what} is {_shown(value)}; expected a text in quotes")
    if any("\ud800" <= c <= "\udfff" for c in value):  # half a character, which no file can hold
        raise SafeError(f"{what} holds half a character; write it again")


def _plain(value: Any) -> Any:
    """A number as it is written: whole ones without a decimal point. Other values stay as they are."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_WHOLE
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= LARGEST_WHOLE:
        return float(value)
    return int(value) if whole else value


def _shown(value: Any) -> str:
    """A value as it is written in JSON, short enough for an error."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _line(value: Mapping[str, Any] | None) -> str:
    return json.dumps(value, ensure_ascii=False)
