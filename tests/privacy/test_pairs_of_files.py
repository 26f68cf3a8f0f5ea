"""Two files that differ in one row: under a budget, all other rows are read as the same, bit by bit.

``make test`` reads 200 pairs, ``FILE_PAIRS=20000`` sets another number (``make test-long`` reads as many). What the
files are compared by is all that a node with a budget knows of rows: numbers, levels, classes, who takes part, and
whose rows are whose. The other rows are as people write them; in one row, any cell holds anything.

A file may be refused only because its quotes do not match, which no program that writes csv does.
"""

import csv
import datetime
import decimal
import gzip
import io
import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from v6_federated.base import tables
from v6_federated.base.errors import SafeError
from v6_federated.data.declared import conformed
from v6_federated.data.source import Source
from v6_federated.rules.schema import Column, Schema

PAIRS = int(os.environ.get("FILE_PAIRS", "200"))
REFUSED = "the quotes in the table do not match"
LEVELS = ("1", "2", "no", "NA", "None", "nan", "1,5", "2020-01-31", "5'")
WHOLE = Schema(
    (Column("x", "number", 0, 10), Column("z", "number", -1, 1e18), Column("w", "words", levels=LEVELS)),
    "y",
    (0, 1),
    person="who",
    m=2,
)
SINGLE = Schema((Column("x", "number", 0, 10),), "")
ORDINARY = {
    "x": ["1", "2.5", "-0", "0", "10", "3e0", "", "NA", "1,5", "0.1", "4503599627370497.5"],
    "z": ["1", "-0.0", "9007199254740993", "1e17", "", "nan", "12", "0.30000000000000004"],
    "w": ["1", "2", "no", "NA", "None", "nan", "01", "1.0", "True", "a,b", 'a "b"', "2020-01-31", "", ",b", "c\nd"],
    "y": ["0", "1", "1.0", "", "True", "0"],
    "who": ["p1", "p2", "p3", "p4", "p5", "7", "08"],
}
HOSTILE = [
    *("9223372036854775807", "9223372036854775808", "18446744073709551616", "-9223372036854775809", "1" * 400),
    *("1e400", "-1e400", "1e-400", "inf", "-Infinity", "nan", "NaN", "NA", "N/A", "None", "null", "<NA>", "#N/A"),
    *("-0", "-0.0", "+1", "01", "0x10", "1_000", "1,5", "1.234,5", "1 234", " 1", "1 ", "\t1", "\u00a01", "١", "1e"),
    *("true", "TRUE", "False", "yes", "2020-01-31", "31/12/2020", "2020-01-31 10:00", "99999-01-01", "1j", "£1", "5%"),
    *("", " ", '"', '""', '"a', 'a"', 'a"b', '"a"b', "'", "\\", '\\"', "#", ",", ";", "a,b", "a;b", "a\tb", ",,,,,,"),
    *("a\nb", "\n", "a\r\nb", "\r", "a\n\nb", "\ufeff1", "1\0", "\0", "a\u2028b", "a\x85b", "a\x0cb", "\x1a"),
    *("\udcff", "caf\udce9", "\udced\udca0\udc80", "x" * 200_000, "😀", "=1+1", "Unnamed: 0", "x", "who"),
]
DAYS = [0, 18_000, 2**31 - 1, -(2**31), None]
# how Parquet can hold a column: what ordinary rows hold, what the odd one does, and the type
TYPED = {
    "int64": ([0, 1, 2, None], [2**63 - 1, -(2**63), 2**53 + 1, None], pa.int64()),
    "uint64": ([0, 1, 2, None], [2**64 - 1, 2**63, None], pa.uint64()),
    "double": ([0.0, 1.0, 0.1, -0.0], [float("nan"), float("inf"), -float("inf"), 5e-324, 1e308, None], pa.float64()),
    "float": ([0.0, 1.0, 0.1, None], [float("nan"), 3e38, None], pa.float32()),
    "bool": ([True, False], [None, True], pa.bool_()),
    "date": (DAYS[:2], DAYS, pa.date32()),
    "time": ([0, 10**18], [2**63 - 1, -(2**62), None], pa.timestamp("us")),
    "decimal": ([decimal.Decimal(1), None], [decimal.Decimal(10) ** 37, decimal.Decimal(-1)], pa.decimal128(38, 0)),
    "list": ([[1], None], [[1, 2], [], None], pa.list_(pa.int64())),
}
CELLS = [2**70, 2**63, 1e300, -0.0, 0.1, 5, True, False, None, datetime.datetime(2020, 1, 31), datetime.time(1), "1"]


def written(kind: str, names: list[str], rows: list[list], odd: int, raw: bool, types: dict) -> bytes:
    """A file of these rows; with ``raw``, the odd one is written without quotes."""
    stream = io.BytesIO()
    if kind == "xlsx":
        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet()
        for row in [names, *rows]:
            sheet.append(row)
        book.save(stream)
    elif kind == "parquet":
        columns = {}
        for i, name in enumerate(names):
            cells = [row[i] for row in rows]
            if name in types:
                columns[name] = pa.array(cells, TYPED[types[name]][2])
                continue
            texts = [None if cell is None else cell.encode("utf-8", "surrogateescape") for cell in cells]
            held = pa.array(texts, pa.binary())  # nobody checks that it is UTF-8
            columns[name] = pa.Array.from_buffers(pa.string(), len(held), held.buffers())
        parquet.write_table(pa.table(columns), stream)
    else:
        separator = {"tsv": "\t", "semicolons": ";"}.get(kind, ",")
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=separator, lineterminator="\n")
        writer.writerow(names)
        for i, row in enumerate(rows):
            if raw and i == odd:
                text.write(separator.join(row) + "\n")
            else:
                writer.writerow(row)
        stream.write(text.getvalue().encode("utf-8", "surrogateescape"))
    return gzip.compress(stream.getvalue(), 1) if kind == "csv.gz" else stream.getvalue()


def pair(number: int) -> tuple[str, Schema, int, bytes, bytes]:
    """The kind of file, the schema, which row is odd, and two files that differ in this row."""
    rng = random.Random(number)
    kind = ("csv", "tsv", "xlsx", "parquet", "semicolons", "csv.gz")[number % 6]
    schema, names = (SINGLE, ["x"]) if rng.random() < 0.15 else (WHOLE, [*ORDINARY])
    rng.shuffle(names)
    raw = kind not in ("xlsx", "parquet") and rng.random() < 0.5
    types = {}
    if kind == "parquet":
        types = {name: rng.choice([*TYPED]) for name in names if name != "who" and rng.random() < 0.5}

    def hostile(name: str):
        if name in types:
            return rng.choice(TYPED[types[name]][1])
        if kind == "xlsx" and rng.random() < 0.4:
            return rng.choice(CELLS)
        text = rng.choice(HOSTILE) if rng.random() < 0.9 else "".join(rng.choices('",;\t\n 1aN', k=rng.randrange(8)))
        if kind == "xlsx":  # what Excel can hold
            return "".join(c for c in text if c.isprintable() or c in "\n\t")[:1000].replace("\udcff", "")
        return None if kind == "parquet" and rng.random() < 0.1 else text

    def ordinary(name: str):
        if name in types:
            return rng.choice(TYPED[types[name]][0])
        text = rng.choice(ORDINARY[name])
        if kind != "xlsx" or rng.random() < 0.3:
            return text
        return float(text) if text in ("1", "2.5", "0", "12", "1e17") else text or None

    rows = [[ordinary(name) for name in names] for _ in range(rng.randrange(2, 8))]
    odd = rng.randrange(len(rows))
    rows[odd] = [f"q{odd}" if name == "who" else cell for name, cell in zip(names, rows[odd], strict=True)]
    other = [hostile(name) if rng.random() < 0.5 else cell for name, cell in zip(names, rows[odd], strict=True)]
    others = [[*row] for row in rows]
    others[odd] = other
    if kind == "xlsx":  # an empty row at the end is none
        for found in (rows, others):
            found[-1][0] = "?" if all(cell in (None, "") for cell in found[-1]) else found[-1][0]
    if raw:  # without quotes it would be the end of the line
        for found in (rows, others):
            found[odd] = [cell.replace("\n", " ") for cell in found[odd]]
    return kind, schema, odd, *(written(kind, names, found, odd, raw, types) for found in (rows, others))


def known(file: Path, schema: Schema) -> list[tuple]:
    """All that a node with a budget knows of each row."""
    kind = tables.KINDS[tables.suffix(file)]
    source = conformed(Source(table=tables.read(file, kind, "the table", by_value=True)), schema)
    assert source.table is not None and source.idle is not None
    columns = [(source.table[column.name], column.kind == "number") for column in schema.columns]
    values = [[np.float64(cell).tobytes() for cell in cells] if numbers else [*cells] for cells, numbers in columns]
    label = [*map(float, source.table[schema.label])] if schema.label else [0.0] * len(source.table)
    persons = range(len(source.table)) if source.persons is None else source.persons
    return [*zip(*values, label, map(bool, source.idle), map(int, persons), strict=True)]


def outcome(folder: Path, number: int) -> str:
    """What a pair is: read alike, refused, or how it differs."""
    kind, schema, odd, *files = pair(number)
    found = []
    for i, content in enumerate(files):
        ending = "csv" if kind == "semicolons" else kind
        file = folder / f"{i}.{ending}"
        file.write_bytes(content)
        try:
            rows = known(file, schema)
            found.append(rows[:odd] + rows[odd + 1 :])
        except SafeError as error:
            if str(error).startswith(REFUSED):
                return "refused"
            return f"{kind}: {str(error)[:60]}"
    if found[0] == found[1]:
        return "alike"
    return f"{kind}: another {'row' if len(found[0]) == len(found[1]) else 'number of rows'}"


def test_a_row_changes_how_no_other_row_of_a_file_is_read(tmp_path):
    found = Counter(outcome(tmp_path, number) for number in range(PAIRS))
    alike, refused = found.pop("alike", 0), found.pop("refused", 0)
    print(f"{PAIRS:,} pairs: {alike:,} alike, {refused:,} refused for their quotes, {found.total():,} differences")
    assert not found, found
    assert alike > 0.8 * PAIRS and refused


@pytest.mark.parametrize(
    ("lines", "odd"),
    [
        pytest.param(["1,NA,0,a", "2,1,1,b"], "1,9223372036854775808,0,c", id="a number of 64 bits, and NA is a level"),
        pytest.param(["1,2,0,a", '2,"no",1,b'], '1,2,0,"c', id="a quote that swallows rows"),
        pytest.param(["1,2,0,a", '1,",",1,b', "2,no,1,d"], '1,2,0,"c', id="a quote that another one closes"),
        pytest.param(["1,2,0,a", "2,1,1,b"], "", id="an empty line"),
        pytest.param(["1,2,0,a", "2,1,1,b"], "1,2,0,c,d", id="more cells than names"),
        pytest.param(["1,2,0,a", "2,1,1,b"], "1,2\r,0,c", id="the end of a line of old Macs"),
        pytest.param(["1,2,0,a", "2,1,1,b"], "1,2,0,c\0", id="NUL"),
        pytest.param(["1,2,0,a", "2,1,1,b"], "1,2,0,caf\udce9", id="other bytes than UTF-8"),
        pytest.param(["1,2,0,a", "2,1,1,b"], f"1,{'x' * 200_000},0,c", id="a cell of 200,000 letters"),
    ],
)
def test_an_odd_line_is_a_row_of_its_own_or_the_file_is_refused(tmp_path, lines, odd):
    """What each was once: others read otherwise, lines that were no rows, or a refusal that told what a cell holds."""
    schema = Schema((WHOLE.columns[0], WHOLE.columns[2]), "y", (0, 1), person="who", m=2)
    found = []
    for i, last in enumerate(("1,2,0,c", odd)):
        rows = [lines[0], last, *lines[1:]]
        (tmp_path / f"{i}.csv").write_bytes("\n".join(["x,w,y,who", *rows, ""]).encode("utf-8", "surrogateescape"))
        try:
            read = known(tmp_path / f"{i}.csv", schema)
        except SafeError as error:
            assert i and odd.count('"') % 2 and str(error).startswith(REFUSED)
            return
        found.append(read[:1] + read[2:])
    assert found[0] == found[1] and len(found[0]) == len(lines)


def test_what_is_read_as_missing_is_what_pandas_reads_so():
    from v6_federated.base.cells import MISSING

    near = {change(word) for word in MISSING for change in (str, str.lower, str.upper, str.title)}
    words = sorted(near | {"-", ".", "?", "missing", "none", "na.", "0", "<NULL>", "1.#INF"})
    read = pd.read_csv(io.StringIO("\n".join(["word", *(f'"{word}"' for word in words)])), skip_blank_lines=False)[
        "word"
    ]
    assert [word for word, missing in zip(words, read.isna(), strict=True) if missing] == sorted(MISSING)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\n\n", "holds empty lines only"),
        ("x,y\n1,0\n".encode("utf-16"), "is not in UTF-8"),
        ("größe,y\n1,0\n".encode("cp1252"), "is not in UTF-8"),
        (b"x,x\n1,0\n", "has a name more than once"),
    ],
    ids=["empty", "utf-16", "cp1252", "twice"],
)
def test_a_first_line_that_names_no_columns_is_refused(tmp_path, content, reason):
    """It is no row, so it may be."""
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(SafeError, match=reason):
        tables.read(tmp_path / "rows.csv", "csv", "the table", by_value=True)


def test_a_file_whose_lines_end_as_on_old_macs_is_read_line_by_line(tmp_path):
    (tmp_path / "rows.csv").write_bytes(b'x;w\r1,5;"a\rb"\r2;c\nd\r')
    found = tables.read(tmp_path / "rows.csv", "csv", "the table", by_value=True)
    assert found.to_numpy().tolist() == [["1,5", "a\nb"], ["2", "c d"]]
