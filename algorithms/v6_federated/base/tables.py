"""Reading a table from a file: one reader for nodes and laptops, so that a file means the same at both.

No error quotes a value of a row. A name of a column may be one, if the first line is a row: only an owner is shown it.
"""

import csv
import gzip
import io
import re
import warnings
from pathlib import Path
from typing import Any, BinaryIO, cast

import pandas as pd

from v6_federated.base import cells
from v6_federated.base.errors import SafeError

KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".csv.gz": "csv",
    ".tsv.gz": "csv",
    ".xlsx": "excel",
    ".parquet": "parquet",
}
READERS = {"excel": "openpyxl", "parquet": "pyarrow"}
GZIP = b"\x1f\x8b"  # how a packed file begins
PART = 2**20  # bytes that are read at a time
COMMAS = re.compile(r"[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?", re.ASCII)  # a number, with a decimal comma if it has one
DECIMAL_COMMAS = "decimal commas"  # attribute of a table: its file separates columns by something else than commas
# what people and other programs write where there is no value, besides what pandas reads as missing
MARKS = (
    *(".", "..", "...", "-", "--", "---", "–", "—", "?", "*", "/"),
    *("na", "n.a.", "nd", "n.d.", "k.a.", "missing"),
)
EMPTY = "holds empty lines only; expected the names of the columns, then rows"
NULS = "holds NUL bytes, as UTF-16 does; save it as CSV UTF-8"
NOT_UTF8 = (
    "is not in UTF-8; save it as CSV UTF-8, or, if it is from Windows, convert it: iconv -f cp1252 -t utf-8 OLD.csv > "
    "NEW.csv"
)
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+", re.ASCII)


def suffix(path: Path) -> str:
    """Return the ending of a file in small letters; ``.csv.gz`` is one ending."""
    ending = path.suffix.lower()
    return f"{path.with_suffix('').suffix.lower()}{ending}" if ending == ".gz" else ending


def stem(path: Path) -> str:
    """Return the name of a file without its ending."""
    ending = suffix(path)
    return path.name[: -len(ending)] if ending else path.name


def read(
    file: Path, kind: str, name: str, *, own: bool = False, sheet: str | None = None, by_value: bool = False
) -> pd.DataFrame:
    """Read a table."""
    if kind == "csv":
        return read_csv(file, name, own=own, by_value=by_value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they may quote a cell of the table
            if kind == "parquet":
                table: pd.DataFrame = cells.of_parquet(file) if by_value else pd.read_parquet(file)
                return table
            if by_value:
                table = cells.of_excel(file, sheet)
                _check_names([*table.columns], name, own)
                return table
            at: Any = 0 if sheet is None else sheet
            header = pd.read_excel(file, sheet_name=at, header=None, nrows=1, dtype=object)
            _check_names(header.iloc[0].dropna().map(str).tolist() if len(header) else [], name, own)
            table = pd.read_excel(file, sheet_name=at)
    except ImportError:
        raise SafeError(
            f"{kind} files cannot be read, since {READERS[kind]} is not installed here; install it, or save the table "
            "as csv"
        ) from None
    except (FileNotFoundError, PermissionError, SafeError):
        raise
    except Exception:  # the readers have many; their text may quote a row
        raise SafeError(f"{name} cannot be read as {kind}; save it again, or as csv") from None
    # cells that were once used, right of the table
    unused = [c for c in table.columns if str(c).startswith("Unnamed: ") and table[c].isna().all()]
    return table.drop(columns=unused)


def read_csv(file: Path, name: str, *, own: bool = False, by_value: bool = False, **options: Any) -> pd.DataFrame:
    """Read a text file, packed by gzip or not: columns are separated by commas, semicolons or tabs.

    Where semicolons or tabs separate columns, numbers may have a decimal comma. The table then has the attribute
    ``DECIMAL_COMMAS``, by which ``data.declared`` reads values that are left as text.
    """
    try:
        if suffix(file).endswith(".gz") and not _is_packed(file):
            raise SafeError(
                f"{name} ends in .gz and is not packed by gzip; pack it, or give it the ending of what it is"
            )
        if by_value:
            return _by_value(file, name, own)
        if _has_nul(file):  # pandas would end a value there
            raise SafeError(f"{name} {NULS}")
        form: dict[str, Any] = {"sep": separator(file), "compression": "gzip" if _is_packed(file) else None}
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # lines with more fields than the header
            header = pd.read_csv(file, header=None, nrows=1, dtype=str, keep_default_na=False, **form)
            form |= {"float_precision": "round_trip", "index_col": False, "low_memory": False}
            table: pd.DataFrame = pd.read_csv(file, **form, **options)
            _check_names(header.iloc[0].tolist(), name, own)
            if form["sep"] != "," and "dtype" not in options:
                table = _with_decimals(table, file, name, form, own)
                table.attrs[DECIMAL_COMMAS] = True
    except pd.errors.ParserWarning:
        lines = f"line {_first_long(file, form['sep'])}" if own else "some lines"
        verb = "has" if own else "have"
        raise SafeError(f"{lines} of {name} {verb} more fields than the first line; expected as many") from None
    except UnicodeDecodeError:
        raise SafeError(f"{name} {NOT_UTF8}") from None
    except pd.errors.EmptyDataError:
        raise SafeError(f"{name} {EMPTY}") from None
    except (EOFError, gzip.BadGzipFile):
        raise SafeError(f"{name} is a broken .gz file; pack it again") from None
    except SafeError:
        raise
    except ValueError as error:  # pandas' parser errors are ValueErrors; their text may quote a row
        raise SafeError(
            f"{name} cannot be read as csv{_place(str(error)) if own else ''}; expected two quotes around each quoted "
            "value, and as many values in each line as in the first"
        ) from None
    return table


def _by_value(file: Path, name: str, own: bool) -> pd.DataFrame:
    """Read a text file cell by cell; its first line alone must be right."""
    sep = separator(file)
    try:
        with _open(file) as stream, io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="") as text:
            ends = "\r" if text.readline().endswith("\r") else "\n"  # as the first line does: a cell may hold the other
        with _open(file) as stream, io.TextIOWrapper(stream, "utf-8-sig", "replace", newline=ends) as text:
            table = cells.of_lines(text, sep)
    except cells.Unmatched:
        raise SafeError(
            f"the quotes in {name} do not match; expected two around a value that holds one, and each one within it "
            "written twice: save it again"
        ) from None
    names = "".join(table.columns)
    if not names:
        raise SafeError(f"{name} {EMPTY}")
    if cells.REPLACED in names:
        raise SafeError(f"{name} {NOT_UTF8}")
    _check_names([*table.columns], name, own)
    if sep != ",":
        table.attrs[DECIMAL_COMMAS] = True
    return table


def _place(problem: str) -> str:
    """The line that pandas names. A hospital's node does not tell it: it says where in its table a row is."""
    if found := re.search(r"in line (\d+)", problem):
        return f" at line {found[1]}"
    found = re.search(r"starting at row (\d+)", problem)  # counted from 0
    return f" at line {int(found[1]) + 1}" if found else ""


def _first_long(file: Path, separator: str) -> int:
    """The number of the first line that has more fields than the first line of all."""
    with _open(file) as stream, io.TextIOWrapper(stream, "utf-8-sig", newline="") as text:
        lines = csv.reader(text, delimiter=separator)
        fields = len(next(filter(None, lines), []))  # empty lines before the first do not count
        return next((lines.line_num for line in lines if len(line) > fields), 1)


def separator(file: Path) -> str:
    """Find what separates the columns of a text file: the comma, semicolon or tab that its first line has most of."""
    with _open(file) as stream, io.TextIOWrapper(stream, "utf-8", "replace") as lines:
        first = next((line for line in lines if line.strip()), "")
    plain = re.sub(r'"[^"]*"', "", first)
    return max(",;\t", key=plain.count)


def _with_decimals(table: pd.DataFrame, file: Path, name: str, form: dict[str, Any], own: bool) -> pd.DataFrame:
    """Read the columns whose numbers have decimal commas. Next to marks for missing values, they get points."""
    found, mixed = {}, list[str]()
    for column in [c for c in table.columns if table[c].dtype.kind == "O"]:
        written = table[column].dropna().astype(str).str.strip()
        said = written[~written.str.casefold().isin(MARKS)]
        commas = said[said.str.contains(",", regex=False)]
        ambiguous = form["sep"] == "\t" and commas.map(lambda text: THOUSANDS.fullmatch(text) is not None).all()
        if len(commas) and not ambiguous and said.map(lambda text: COMMAS.fullmatch(text) is not None).all():
            points = said.str.replace(",", ".", regex=False)
            numbers = points.astype(float) if len(said) == len(written) else points.combine_first(written)
            found[column] = numbers.reindex(table.index)
        elif len(commas) and said.map(lambda text: COMMAS.fullmatch(text.replace(".", ",", 1)) is not None).all():
            mixed.append(str(column))
    if mixed and form["sep"] == ";":
        where = f"column(s) {', '.join(mixed)}" if own else "some columns"
        raise SafeError(f"{name} has numbers with decimal commas and others with points in {where}; write all alike")
    if not found:
        return table
    pointed = [c for c in table.columns if table[c].dtype.kind == "f"]
    if pointed:  # in such a file, 1.234 may be more than a thousand
        text = pd.read_csv(file, **form, usecols=pointed, dtype=str)
        pointed = [c for c in pointed if text[c].str.contains(".", regex=False).any()]
    if pointed:
        where = f"column(s) {', '.join(map(str, pointed))}" if own else "some columns"
        raise SafeError(f"{name} has numbers with decimal commas, and with points in {where}; write all of them alike")
    return table.assign(**{str(c): numbers for c, numbers in found.items()})


def _check_names(names: list[str], name: str, own: bool) -> None:
    # pandas renames the second of two equal columns to NAME.1, which may also be the real name of a column
    twice = [text for text in dict.fromkeys(names) if text and names.count(text) > 1]
    if not twice:
        return
    shown = own and not any(map(_is_number, twice))  # it may be a patient's
    if own and not shown:
        raise SafeError(
            f"the first line of {name} seems to be a row, as a number is in it more than once; write the names of the "
            "columns above it"
        )
    found = ", ".join(twice) if shown else "a name"
    raise SafeError(f"the first line of {name} has {found} more than once; expected each column's name once")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_packed(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(GZIP)) == GZIP


def _open(file: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file)) if _is_packed(file) else file.open("rb")


def _has_nul(file: Path) -> bool:
    with _open(file) as stream:
        return any(b"\0" in part for part in iter(lambda: stream.read(PART), b""))
