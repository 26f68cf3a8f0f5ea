"""The study: one operator writes it, all compare its code on a call, and each accepts it in the hospital's folder."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from v6_federated.base.errors import SafeError
from v6_federated.base.files import open_regular, write_whole
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks import keys
from v6_federated.masks import study as pinned
from v6_federated.masks.study import Hospital, Study
from v6_federated.operator.command_line import FAILED, OK, Found, prints
from v6_federated.operator.make_keys import existing
from v6_federated.operator.options import AcceptStudyOptions, CheckStudyOptions, NewStudyOptions
from v6_federated.rules import schema
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Schema

GROUP = 4  # letters of a code between two hyphens
ALIKE = str.maketrans("01", "OI")  # a code has no 0 and no 1
TRUSTING = (
    "under the profile careful, the node answers in this study only; under trusting, jobs may still ask for plain "
    "answers unless you set V6_FEDERATED_AGGREGATION=auto"
)


@prints
def new(options: NewStudyOptions) -> Found:
    """Write a study."""
    hospitals: dict[str, Hospital] = {}
    for text in options.hospitals:
        hospital = _hospital(text)
        if hospital.name in hospitals:
            raise SafeError(f"--hospital {hospital.name} is given twice; name each hospital once")
        hospitals[hospital.name] = hospital
    if options.block_size is not None and options.blocks:
        raise SafeError("--block-size and --block exclude each other; leave one of them out")
    if options.hospital_totals not in pinned.TOTALS:
        raise SafeError(_choice(options.hospital_totals))
    blocks = _named(options.blocks, hospitals) if options.blocks else _dealt([*hospitals.values()], options.block_size)
    try:
        digest = None if options.schema is None else Schema.of_file(options.schema).shared_digest
    except FileNotFoundError:
        raise SafeError(f"there is no file {options.schema}; `v6-federated schema new TABLE` drafts one") from None
    study = Study(
        options.name,
        options.version,
        blocks,
        options.colluders,
        digest,
        hospital_totals=options.hospital_totals,
        hospitals_a_person=options.hospitals_a_person,
    )
    study.check(_minimum())
    if options.file.exists():
        raise SafeError(f"{options.file} exists already; choose another name, or remove it")
    write_whole(options.file, study.text(), durable=True)
    return Found(
        [
            f"wrote {options.file}: {_title(study)}",
            *_blocks(study),
            _totals(study),
            f"send it to all hospitals; each saves it as {pinned.NAME} in its own folder",
        ],
        {"file": str(options.file), **_numbers(study)},
    )


@prints
def check(options: CheckStudyOptions) -> Found:
    """Show the study in a hospital's folder, its code, and what keeps it from being accepted."""
    folder = existing(options.folder)
    study = _read(folder)
    own = _own_key(folder)
    accepted = _accepted(folder)
    problems = _problems(folder, study, accepted)
    lines = [f"{folder / pinned.NAME}: {_title(study)}", *_blocks(study, own)]
    if study.schema is not None:
        lines.append(f"the hospitals share a {schema.NAME} with the digest {study.schema[:16]}...")
    lines.append(_totals(study))
    lines += ["the code, which all hospitals read aloud on one call:", f"  {study.code}"]
    lines += [f"problem: {problem}" for problem in problems]
    if accepted and problems:
        lines.append("accepted, but the node refuses to take part until the problem is solved")
    elif accepted:
        lines.append("accepted: this hospital takes part in this version")
    elif not problems:
        other = (folder / pinned.ACCEPTED).exists()
        lines += [
            "not accepted yet" + ("; this hospital has accepted another version, and its node refuses both" * other),
            "if all hospitals read the same code, type it as you heard it:",
            f"  v6-federated study accept {folder} --code CODE",
        ]
    return Found(
        lines,
        {"folder": str(folder), **_numbers(study), "code": study.code, "accepted": accepted, "problems": problems},
        FAILED if problems else OK,
    )


@prints
def accept(options: AcceptStudyOptions) -> Found:
    """Accept the study in a hospital's folder, if its code is the one that was read aloud."""
    folder = existing(options.folder)
    study = _read(folder)
    _check_code(options.code, study.code)
    if problem := _schema_problem(folder, study):
        raise SafeError(problem)
    pinned.accept(folder, study, _minimum())
    return Found(
        [
            f"accepted: {_title(study)}",
            _totals(study),
            f"from now on the node of this hospital takes part in this version only; keep {pinned.NAME} unchanged",
            TRUSTING,
        ],
        {"folder": str(folder), **_numbers(study), "code": study.code, "accepted": True},
    )


def _choice(given: str | None) -> str:
    """What the words of ``--hospital-totals`` mean, for who has given none, or another one."""
    wrong = "--hospital-totals is missing" if given is None else f"--hospital-totals {given} is not understood"
    means = "; ".join(f"--hospital-totals {word}: {what}" for word, what in pinned.TOTALS.items())
    return f"{wrong}, and there is no default: type one of the two. {means}"


def _totals(study: Study) -> str:
    what = pinned.TOTALS.get(study.hospital_totals, "a word that is not understood")
    return f"totals of single hospitals: {study.hospital_totals} ({what})"


def _minimum() -> int:
    return Policy.of_node().minimum_organizations


def _hospital(text: str) -> Hospital:
    name, equals, key = text.rpartition("=")
    if not equals or not name.strip():
        raise SafeError(
            f"--hospital {text!r} is not understood; expected NAME=KEY, with the key that `v6-federated keys show` "
            "prints"
        )
    if "," in name:
        raise SafeError(f"--hospital {name!r} has a comma in its name, which divides names; leave it out")
    try:
        return Hospital(name.strip(), keys.parsed(key))
    except SafeError as error:
        raise SafeError(f"--hospital {name.strip()}: {error}") from None


def _named(blocks: Sequence[str], hospitals: Mapping[str, Hospital]) -> tuple[tuple[Hospital, ...], ...]:
    """The blocks that the options name; each hospital must be in one."""
    named = [[name.strip() for name in block.split(",")] for block in blocks]
    flat = [name for block in named for name in block]
    for name in flat:
        if name not in hospitals:
            raise SafeError(f"--block names {name!r}, which no --hospital does; expected {', '.join(hospitals)}")
        if flat.count(name) > 1:
            raise SafeError(f"--block names {name} twice; put each hospital into one block")
    if left := [name for name in hospitals if name not in flat]:
        raise SafeError(f"no --block names {', '.join(left)}; put each hospital into one block")
    return tuple(tuple(hospitals[name] for name in block) for block in named)


def _dealt(hospitals: Sequence[Hospital], size: int | None) -> tuple[tuple[Hospital, ...], ...]:
    """As many blocks of at least ``size`` hospitals as there can be, about equally large."""
    if size is not None and not 1 <= size <= len(hospitals):
        raise SafeError(f"--block-size {size} does not fit; expected 1 to {len(hospitals)}, the number of hospitals")
    blocks = len(hospitals) // (size or len(hospitals))
    edges = [len(hospitals) * i // blocks for i in range(blocks + 1)]
    return tuple(tuple(hospitals[a:b]) for a, b in pairwise(edges))


def _read(folder: Path) -> Study:
    """The study in a folder, whether it is accepted or not."""
    file = folder / pinned.NAME
    try:
        with open_regular(file) as stream:
            return Study.parse(stream.read(pinned.MOST_BYTES).decode("utf-8-sig"))
    except FileNotFoundError:
        raise SafeError(
            f"there is no {file}; save the study that you were sent under this name, or write one with "
            "`v6-federated study new`"
        ) from None
    except UnicodeDecodeError:
        raise SafeError(f"{file} is not UTF-8 text; save it again as you were sent it") from None


def _problems(folder: Path, study: Study, accepted: bool) -> list[str]:
    """What keeps a folder from accepting a study, or its node from taking part in the accepted one."""
    tests: list[Callable[[], object]] = [
        lambda: study.check(_minimum()),
        lambda: study.block_of(keys.public_of(keys.identity(folder))),
    ]
    if not accepted:  # the versions before matter only until then
        tests.append(lambda: pinned.acceptable(folder, study, _minimum()))
    found: list[str] = []
    for test in tests:
        try:
            test()
        except (SafeError, NodePermissionException) as error:
            found.append(str(error).removesuffix(NOTHING_COMPUTED).strip())
    # ``acceptable`` repeats the first two tests, which are made on their own so that all problems are shown
    return [*dict.fromkeys(found + [problem for problem in [_schema_problem(folder, study)] if problem])]


def _schema_problem(folder: Path, study: Study) -> str | None:
    if study.schema is None:
        return None
    try:
        found = Schema.of_folder(folder)
    except SafeError as error:
        return str(error)
    if found is None:
        return f"the hospitals share a {schema.NAME}, and this folder has none; save the one that you were sent there"
    if found.shared_digest != study.schema:
        return (
            f"{schema.NAME} of this folder differs from the one of the study (its digest begins with "
            f"{found.shared_digest[:16]}, not {study.schema[:16]}); save the one that you were sent, and change in it "
            "nothing but own"
        )
    return None


def _own_key(folder: Path) -> bytes | None:
    try:
        return keys.public_of(keys.identity(folder))
    except (SafeError, NodePermissionException):
        return None


def _accepted(folder: Path) -> bool:
    try:
        return pinned.accepted(folder) is not None
    except NodePermissionException:  # another version, or none yet
        return False


def _check_code(typed: str, code: str) -> None:
    letters = "".join(c for c in typed.upper().translate(ALIKE) if c.isalnum())
    expected = code.replace("-", "")
    if len(letters) != len(expected):
        raise SafeError(
            f"a code has {len(expected)} letters and digits, and {len(letters)} were typed; type the whole code"
        )
    groups = range(0, len(expected), GROUP)
    differ = [i // GROUP + 1 for i in groups if letters[i : i + GROUP] != expected[i : i + GROUP]]
    if differ:
        where = "every group" if len(differ) == len(groups) else f"group {', '.join(map(str, differ))} of {len(groups)}"
        raise SafeError(
            f"the code that you typed differs from the code of {pinned.NAME} in this folder, in {where}. If "
            "you typed what was read aloud, this file is not the one that the other hospitals have: do not accept it, "
            "and ask for it again"
        )


def _title(study: Study) -> str:
    hospitals = sum(map(len, study.blocks))
    return (
        f"study {study.name!r}, version {study.version}: {hospitals} hospitals in {len(study.blocks)} block(s), "
        f"{study.colluders} assumed colluder(s), a person at {study.hospitals_a_person} hospital(s) at most"
    )


def _blocks(study: Study, own: bytes | None = None) -> list[str]:
    lines = []
    for number, block in enumerate(study.blocks, 1):
        yours = any(hospital.key == own for hospital in block)
        lines.append(f"block {number}, {len(block)} hospitals" + (", yours:" if yours else ":"))
        width = max(len(hospital.name) for hospital in block)
        for hospital in block:
            mark = "  (this hospital)" if hospital.key == own else ""
            lines.append(f"  {hospital.name:{width}}  {keys.short(hospital.key)}...{mark}")
    return lines


def _numbers(study: Study) -> dict[str, Any]:
    blocks = [[hospital.name for hospital in block] for block in study.blocks]
    return {
        "study": study.name,
        "version": study.version,
        "blocks": blocks,
        "hospital_totals": study.hospital_totals,
        "hospitals_a_person": study.hospitals_a_person,
    }
