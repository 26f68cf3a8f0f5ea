"""The study: which hospitals form which blocks, agreed on by operators outside the server and pinned at each node.

Three files of the hospital's own folder: ``study.json``, which one operator writes and all receive; ``study.accepted``,
the digest of the version that this hospital accepted; ``cohorts.log``, every version that it has ever accepted.
"""

import base64
import errno
import functools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from v6_federated.base import json_text
from v6_federated.base.errors import SafeError
from v6_federated.base.files import SAFELY, check_regular, open_regular, write_whole
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks import keys
from v6_federated.masks.notation import MOST_HOSPITALS, PROTOCOL, H
from v6_federated.messages.job import HIDDEN, TOLD

NAME = "study.json"
ACCEPTED = "study.accepted"
LOG = "cohorts.log"
MOST_LETTERS = 100  # of a name
MOST_BYTES = 2**22  # of a study, whose hospitals have some 150 bytes each
CODE_BYTES = 30  # of the digest: 240 bits, 48 letters; two studies with one code would cost 2^120 tries
GROUP = 4
FIELDS = {"protocol", "name", "version", "blocks", "colluders", "hospitals_a_person", "schema", "hospital_totals"}
# what sums that are no sums over rows may do: tell numbers of single hospitals, or never be answered
TOTALS = {
    TOLD: "all methods of sums are answered; sums that are additive only in hospitals can tell each hospital's "
    "totals, such as its numbers of rows and of events",
    HIDDEN: "only sums over rows are answered, which tell nothing of how rows are dealt over hospitals",
}
UNSAID = {"hospital_totals": "", "hospitals_a_person": 1}  # in versions that were accepted before there was a choice
SCHEMA = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Hospital:
    """A hospital of a study.

    Attributes:
        name: its name, for people.
        key: public half of its identity key, 32 bytes; this is who it is.
    """

    name: str
    key: bytes


@dataclass(frozen=True)
class Study:
    """A version of a study.

    Attributes:
        name: its name, for people.
        version: its number; each version that a node accepts has a higher one.
        blocks: the hospitals in disjoint blocks; central learns the sum over a block, or nothing.
        colluders: how many hospitals of a block may work together with the server.
        hospitals_a_person: at how many hospitals a person may have rows. Noise hides a person at so many.
        schema: SHA-256 of the shared schema.json, in hexadecimal; None if there is none.
        hospital_totals: a word of ``TOTALS``: whether sums may tell totals of single hospitals.
    """

    name: str
    version: int
    blocks: tuple[tuple[Hospital, ...], ...]
    colluders: int = 1
    schema: str | None = None
    hospital_totals: str = field(kw_only=True)
    hospitals_a_person: int = field(default=1, kw_only=True)

    @classmethod
    def parse(cls, text: str) -> "Study":
        """Read a study.json."""
        try:
            found = json_text.parse(text)
        except SafeError:
            raise
        except ValueError:
            raise _malformed("it is not JSON") from None
        if isinstance(found, dict) and {"hospital_totals"} <= FIELDS - set(found) <= {*UNSAID}:
            raise SafeError(_unsaid(found))
        if not isinstance(found, dict) or set(found) != FIELDS:
            raise _malformed(f"it must have {', '.join(sorted(FIELDS))}, and nothing else")
        if found["protocol"] != PROTOCOL:
            raise _malformed(f"its protocol must be {PROTOCOL}; use the version of this package that wrote it")
        if not isinstance(found["blocks"], list) or not all(isinstance(block, list) for block in found["blocks"]):
            raise _malformed("blocks must be a list of lists of hospitals")
        if any(type(found[name]) is not int for name in ("version", "colluders", "hospitals_a_person")):
            raise _malformed("version, colluders and hospitals_a_person must be whole numbers")
        if not isinstance(found["name"], str) or not isinstance(found["schema"], str | None):
            raise _malformed("name must be a text, and schema a text or null")
        if not isinstance(found["hospital_totals"], str):
            raise _malformed(f"hospital_totals must be {_words()}")
        return cls(
            name=found["name"],
            version=found["version"],
            blocks=tuple(tuple(map(_hospital, block)) for block in found["blocks"]),
            colluders=found["colluders"],
            hospitals_a_person=found["hospitals_a_person"],
            schema=found["schema"],
            hospital_totals=found["hospital_totals"],
        )

    def text(self) -> str:
        """Write the study.json."""
        blocks = [[{"name": h.name, "key": keys.written(h.key)} for h in block] for block in self.blocks]
        value = {
            "protocol": PROTOCOL,
            "name": self.name,
            "version": self.version,
            "colluders": self.colluders,
            "hospitals_a_person": self.hospitals_a_person,
            "schema": self.schema,
            "hospital_totals": self.hospital_totals,
            "blocks": blocks,
        }
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"

    @functools.cached_property
    def digest(self) -> bytes:
        """H("study", name, version, colluders, hospitals_a_person, schema or "", hospital_totals, blocks' digests).

        The digest of a block is H("block", name and key of each hospital).

        Hospitals are sorted by key, and blocks by their first key, so that the order in the file does not matter.
        """
        blocks = sorted((self._sorted(block) for block in self.blocks), key=lambda block: [h.key for h in block])
        digests = [H("block", *(part for h in block for part in (h.name, h.key))) for block in blocks]
        said = self.colluders, self.hospitals_a_person, self.schema or "", self.hospital_totals
        return H("study", self.name, self.version, *said, *digests)

    @property
    def code(self) -> str:
        """The first 240 bits of the digest, as 48 letters and digits in groups of four, to be read aloud."""
        letters = base64.b32encode(self.digest[:CODE_BYTES]).decode()
        return "-".join(letters[i : i + GROUP] for i in range(0, len(letters), GROUP))

    def block_of(self, key: bytes) -> tuple[Hospital, ...]:
        """The block of a hospital."""
        for block in self.blocks:
            if any(hospital.key == key for hospital in block):
                return self._sorted(block)
        raise NodePermissionException(
            f"the key {keys.short(key)} of this hospital is in no block of the study {self.name!r}; ask for a new "
            f"version of {NAME} that has it. {NOTHING_COMPUTED}"
        )

    def check(self, minimum: int) -> None:
        """Check that the study can be accepted."""
        least = minimum + self.colluders
        hospitals = [hospital for block in self.blocks for hospital in block]
        if not 1 <= self.version < 2**53:
            raise SafeError(f"the study's version is {self.version}; versions are whole numbers from 1")
        if not 0 <= self.colluders < MOST_HOSPITALS:
            raise SafeError(f"colluders is {self.colluders}; it must be 0 to {MOST_HOSPITALS - 1}")
        if not 1 <= self.hospitals_a_person <= max(len(hospitals), 1):
            raise SafeError(
                f"hospitals_a_person is {self.hospitals_a_person}; a person may be at 1 to {len(hospitals)} hospitals"
            )
        if not self.blocks:
            raise SafeError("the study has no block; put each hospital into one")
        for name in (self.name, *(hospital.name for hospital in hospitals)):
            if not (name.strip() and len(name) <= MOST_LETTERS and name.isprintable() and name == name.strip()):
                raise SafeError(
                    f"a name in the study is empty, begins or ends with a space, has more than {MOST_LETTERS} letters, "
                    "or holds a control character; correct it"
                )
        if self.schema is not None and not SCHEMA.fullmatch(self.schema):
            raise SafeError("schema must be the SHA-256 of schema.json: 64 hexadecimal digits, or null")
        if self.hospital_totals not in TOTALS:
            raise SafeError(f"hospital_totals is {self.hospital_totals[:20]!r}; it must be {_words()}")
        for hospital in hospitals:
            keys.check_public(hospital.key)
        _once("the hospital", [hospital.name for hospital in hospitals])
        _once("the key", [keys.short(hospital.key) for hospital in hospitals])
        for number, block in enumerate(self.blocks, 1):
            if not least <= len(block) <= MOST_HOSPITALS:
                raise SafeError(
                    f"block {number} has {len(block)} hospitals; it needs at least {least} (the minimum of "
                    f"{minimum} and {self.colluders} assumed colluders) and at most {MOST_HOSPITALS}; move hospitals "
                    "between blocks"
                )

    @staticmethod
    def _sorted(block: Sequence[Hospital]) -> tuple[Hospital, ...]:
        return tuple(sorted(block, key=lambda hospital: hospital.key))


def masked_study(job: str) -> bytes:
    """What takes the study's digest's place in the mode ``masked``, which has no study."""
    return H("masked", job)


def acceptable(folder: Path, study: Study, minimum: int) -> None:
    """Check that a study can be accepted, and write nothing."""
    study.check(minimum)
    study.block_of(keys.public_of(keys.identity(folder)))
    history = _history(folder)
    if _is_latest(study, history):
        return
    if history and study.version <= max(old.version for old in history):
        raise SafeError(
            f"this folder has accepted version {max(old.version for old in history)}, and this study is version "
            f"{study.version}; raise its version"
        )
    _check_cohorts([*history, study], minimum + study.colluders)


def accept(folder: Path, study: Study, minimum: int) -> None:
    """Pin a study: from now on this node takes part in its blocks only.

    Accepting the same study again changes nothing.
    """
    acceptable(folder, study, minimum)
    if not _is_latest(study, _history(folder)):
        _log(folder, study)
    try:
        if not (folder / NAME).exists():
            write_whole(folder / NAME, study.text(), durable=True)
        write_whole(folder / ACCEPTED, study.digest.hex() + "\n", durable=True)
    except OSError as error:
        raise SafeError(f"{ACCEPTED} cannot be written ({error.strerror}); correct the folder's permissions") from None


def accepted(folder: Path) -> Study | None:
    """The study that this hospital has accepted."""
    try:
        text, pinned = _read(folder / NAME), _read(folder / ACCEPTED)
        study = None if text is None else _parsed(text)
    except (OSError, SafeError) as error:
        raise NodePermissionException(
            f"{error.strerror if isinstance(error, OSError) else error}: {NAME} or {ACCEPTED} of the hospital's folder "
            f"cannot be used; its operator must look at them. {NOTHING_COMPUTED}"
        ) from None
    if study is None and pinned is None:
        return None
    if study is None:
        raise NodePermissionException(
            f"{NAME} was removed from the hospital's folder although it was accepted; put it back, or remove "
            f"{ACCEPTED} as well to leave the study. {NOTHING_COMPUTED}"
        )
    if pinned is None or pinned.strip() != study.digest.hex():
        raise NodePermissionException(
            f"version {study.version} of {NAME} in the hospital's folder "
            + ("was not accepted" if pinned is None else "differs from the one that was accepted")
            + "; compare its code with the other hospitals, then run `v6-federated study accept FOLDER`. "
            + NOTHING_COMPUTED
        )
    return study


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> Study:
    """Every request reads the study; its keys are checked once."""
    return Study.parse(text)


def _hospital(value: Any) -> Hospital:
    if not isinstance(value, Mapping) or set(value) != {"name", "key"}:
        raise _malformed("a hospital must have name and key, and nothing else")
    if not isinstance(value["name"], str) or not isinstance(value["key"], str):
        raise _malformed("name and key of a hospital must be texts")
    try:
        return Hospital(value["name"], keys.parsed(value["key"]))
    except SafeError as error:
        raise SafeError(f"{NAME}, key of the hospital {value['name'][:MOST_LETTERS]!r}: {error}") from None


def _malformed(what: str) -> SafeError:
    return SafeError(f"malformed {NAME}: {what}; `v6-federated study` writes one")


def _words() -> str:
    return " or ".join(TOTALS)


def _unsaid(found: Mapping[str, Any]) -> str:
    """What to do with a study.json of before operators had to choose."""
    version = found["version"] if type(found["version"]) is int else 0
    return (
        f"{NAME} does not say hospital_totals, which operators now choose: write version {version + 1} with "
        f"`v6-federated study new ... --version {version + 1} --hospital-totals {'|'.join(TOTALS)}`, and let all "
        "hospitals accept it"
    )


def _once(what: str, found: Iterable[str]) -> None:
    for name, times in Counter(found).items():
        if times > 1:
            raise SafeError(f"{what} {name} is in the study {times} times; each hospital must be in one block, once")


def _check_cohorts(versions: Sequence[Study], least: int) -> None:
    """Refuse versions whose sums, subtracted from each other, would show a group of hospitals that is too small."""
    memberships: dict[bytes, list[int]] = {}
    names: dict[bytes, str] = {}
    for number, study in enumerate(versions):
        for block_number, block in enumerate(study.blocks, 1):
            for hospital in block:
                memberships.setdefault(hospital.key, [0] * len(versions))[number] = block_number
                names[hospital.key] = hospital.name
    groups: dict[tuple[int, ...], list[str]] = {}
    for key, membership in memberships.items():
        groups.setdefault(tuple(membership), []).append(names[key])
    smallest = min(groups.values(), key=len)
    if len(smallest) < least:
        raise SafeError(
            f"with the versions accepted before, the sums of this study would show {', '.join(sorted(smallest))} "
            f"alone, and a group must have at least {least} hospitals; let {least} or more join, leave or move together"
        )


def _is_latest(study: Study, history: Sequence[Study]) -> bool:
    return bool(history) and history[-1].digest == study.digest


def _history(folder: Path) -> list[Study]:
    """The studies that the folder has accepted, in the order in which it did."""
    try:
        text = _read(folder / LOG) or ""
    except OSError as error:
        raise SafeError(f"{LOG} cannot be read ({error.strerror}); correct the folder's permissions") from None
    history = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found = json_text.parse(line)
            history.append(Study.parse(json.dumps({**UNSAID, **found["study"]})))
        except (ValueError, KeyError, TypeError):
            raise SafeError(
                f"line {number} of {LOG} is damaged, so this study cannot be compared with those accepted before; "
                "restore the file from the operator's copy"
            ) from None
    return history


def _log(folder: Path, study: Study) -> None:
    """Append a version to the log, on the disk when this returns."""
    line = {"time": datetime.now(timezone.utc).isoformat(timespec="seconds"), "study": json.loads(study.text())}
    try:
        check_regular(folder / LOG)
        descriptor = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | SAFELY, 0o600)
        try:
            _append(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SafeError(f"{LOG} cannot be written ({error.strerror}); correct the folder's permissions") from None


def _append(descriptor: int, data: bytes) -> None:
    """Write a line whole or not at all."""
    end = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end)
        raise


def _read(file: Path) -> str | None:
    try:
        with open_regular(file) as stream:
            return stream.read(MOST_BYTES).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SafeError(f"{file.name} is not UTF-8 text") from None
