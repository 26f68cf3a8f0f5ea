"""Rows made to fit what the hospital has declared in its schema, so that nothing tells of what does not fit.

Under a privacy budget, a refusal, a folded level or a range that depends on rows would be an answer that no noise
covers. So values outside are moved inside, and nothing is refused.

Each value is read by itself. What pandas makes of a value depends on the whole column: one missing number turns all 1
into 1.0, and one word turns them into "1". If that decided which level or class a row has, one row would change all
others. So a node with a budget reads files as ``base.cells`` does, and gets here what each cell holds. What separates
the columns of a file says whether 1,5 is a number: it does in files with semicolons or tabs.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.tables import COMMAS, DECIMAL_COMMAS
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.data.reading import DECIMAL, FALSE, TRUE, shortest
from v6_federated.data.source import Source
from v6_federated.rules.schema import Schema

UNKNOWN = "(other)"  # in place of words that are not declared; ``onehot`` makes no column of it
HASHED = (str, bool, int, float)  # of these types, equal values are read as the same
NUMBER = re.compile(rf"{DECIMAL.pattern}|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)  # as pandas reads a csv


def conformed(source: Source, schema: Schema) -> Source:
    """Move a node's rows into what its schema declares.

    Numbers are moved to the nearest bound, missing ones to the middle of their bounds; words that are not declared
    become one unknown word. Rows whose label is not declared, and those of a person after the first m, take part in
    nothing; they keep their place, so that how the others are split does not depend on them. All rows of a person are
    trained on, or all are held out.

    Args:
        source: the node's rows.
        schema: what its operator has declared.

    Returns:
        The declared columns only, in the schema's order, with the label last.

    Raises:
        NodePermissionException: the table lacks a declared column, or persons are declared of arrays.
    """
    key = ("declared", schema)
    if key not in source._read:
        source._read[key] = _of_arrays(source, schema) if source.table is None else _of_table(source.table, schema)
    found: Source = source._read[key]
    return found


def _of_table(table: pd.DataFrame, schema: Schema) -> Source:
    commas = bool(table.attrs.get(DECIMAL_COMMAS))
    named = [*schema.features, *filter(None, [schema.label, schema.person])]
    if missing := [name for name in named if name not in table.columns]:
        raise NodePermissionException(
            f"the table lacks the declared column(s) {', '.join(missing)}; this hospital's operator must correct "
            f"schema.json. {NOTHING_COMPUTED}"
        )
    idle: Array = np.zeros(len(table), dtype=bool)
    persons = None
    if schema.person is not None:
        assert schema.m is not None
        first: dict[str | None, int] = {}
        persons = np.array([first.setdefault(who, i) for i, who in enumerate(_texts(table[schema.person]))], np.int64)
        idle = table.groupby(persons).cumcount().to_numpy() >= schema.m
    found: dict[str, Any] = {
        column.name: _declared(table[column.name], column.levels, UNKNOWN, commas)
        if column.kind == "words"
        else _numbers(table[column.name], column.lower, column.upper, commas)
        for column in schema.columns
    }
    if schema.label:
        found[schema.label], undeclared = _label(table[schema.label], schema, commas)
        idle |= undeclared
    return Source(table=pd.DataFrame(found).reset_index(drop=True), idle=idle, persons=persons)


def _of_arrays(source: Source, schema: Schema) -> Source:
    assert source.X is not None
    if schema.person is not None:  # nothing would bound what a person contributes
        raise NodePermissionException(
            f"schema.json declares person, and arrays do not say whose a row is; this hospital's operator must remove "
            f"person and m, or give a table. {NOTHING_COMPUTED}"
        )
    flat = source.X.reshape(len(source.X), -1)
    X = flat / 255 if flat.dtype == np.uint8 else flat.astype(np.float64)  # as ``as_features``, which refuses NaN
    if X.shape[1] != len(schema.columns):
        raise NodePermissionException(
            f"the arrays have {X.shape[1]} columns and schema.json {len(schema.columns)}; its operator must correct "
            f"schema.json. {NOTHING_COMPUTED}"
        )
    lower, upper = (np.array([getattr(column, end) for column in schema.columns]) for end in ("lower", "upper"))
    X = np.clip(np.where(np.isnan(X), (lower + upper) / 2, X), lower, upper)
    y, idle = _label(pd.Series(np.asarray(source.y)), schema)
    return Source(X=X.astype(np.float32), y=y.to_numpy(), idle=idle)


def _numbers(column: "pd.Series[Any]", lower: float | None, upper: float | None, commas: bool) -> Array:
    assert lower is not None and upper is not None
    numbers = _floats(column, commas)
    return np.clip(np.where(np.isnan(numbers), (lower + upper) / 2, numbers), lower, upper)


def _label(column: "pd.Series[Any]", schema: Schema, commas: bool = False) -> "tuple[pd.Series[Any], Array]":
    """The label, and where it is not declared; there it is any that is."""
    if schema.classes is None:
        assert schema.bounds is not None
        numbers = _floats(column, commas)
        undeclared = ~np.isfinite(numbers)
        return pd.Series(np.where(undeclared, schema.bounds[0], np.clip(numbers, *schema.bounds))), undeclared
    found = _declared(column, schema.classes, None, commas)
    undeclared = np.array([value is None for value in found], dtype=bool)
    found[undeclared] = schema.classes[0]
    return pd.Series(found, dtype=object).infer_objects(), undeclared


def _declared(column: "pd.Series[Any]", values: Any, otherwise: Any, commas: bool) -> Array:
    """The declared value that each row has (n,), and another where it has none."""
    declared = {_text(value): value for value in reversed(values)}
    found = np.empty(len(column), dtype=object)
    texts = [*_texts(column)]
    if commas:  # 1,5 may be declared as it is written, or as the number
        texts = [text if text is None or text in declared else _text(_pointed(text)) for text in texts]
    found[:] = [declared.get(text, otherwise) for text in texts]
    return found


def _floats(column: "pd.Series[Any]", commas: bool) -> Array:
    """Each row's number (n,), NaN where there is none; with ``commas``, text may have a decimal comma."""
    if column.dtype.kind in "biuf":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan)) + 0.0  # without -0, as below

    def number(value: Any) -> float:
        text = _pointed(_text(value)) if commas else _text(value)
        return float(text) if NUMBER.fullmatch(text) else np.nan

    return _each(column, number, np.nan).astype(np.float64) + 0.0


def _pointed(text: str) -> str:
    """A number with a decimal comma, with a point."""
    return text.replace(",", ".") if COMMAS.fullmatch(text) else text


def _texts(column: "pd.Series[Any]") -> Array:
    """Each row's value as text (n,), None where it is missing."""
    return _each(column, _text, None)


def _each(column: "pd.Series[Any]", read: Callable[[Any], Any], missing: Any) -> Array:
    """What each row's value is read as (n,), and ``missing`` where there is none. Equal ones are read once.

    (``pandas.factorize`` takes texts for equal that differ behind a NUL.)
    """
    known = _Known(read)
    cells = zip(column.astype(object).tolist(), column.isna().tolist(), strict=True)
    found = np.empty(len(column), dtype=object)
    found[:] = [missing if gone else known[v] if type(v) in HASHED else read(v) for v, gone in cells]
    return found


class _Known(dict[Any, Any]):
    """What was read before, by what was read."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __missing__(self, value: Any) -> Any:
        self[value] = found = self._read(value)
        return found


def _text(value: Any) -> str:
    """A value as text: the same whether pandas holds it as a number, as a truth value or as text."""
    if isinstance(value, str):
        text = value.strip()
        if text in TRUE + FALSE:
            return "1" if text in TRUE else "0"
        return shortest(float(text)) if NUMBER.fullmatch(text) else text
    if isinstance(value, int | float | Decimal | np.number | np.bool_) and not isinstance(value, np.complexfloating):
        try:
            return shortest(float(value))
        except OverflowError:  # a whole number of hundreds of digits
            return "inf" if value > 0 else "-inf"
    return str(value)
