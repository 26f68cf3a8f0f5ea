"""Studies of simulated hospitals: what operators agree on by e-mail and on a call, made in all folders at once.

Here one program holds the private keys of all hospitals. That is right for nodes of one developer, and for nobody else:
hospitals make their keys themselves, with ``v6-federated keys``, ``schema`` and ``study``.
"""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from v6_federated.base.errors import SafeError
from v6_federated.base.files import write_whole
from v6_federated.masks import keys
from v6_federated.masks import study as pinned
from v6_federated.masks.study import Hospital, Study
from v6_federated.messages.job import TOLD
from v6_federated.rules import schema as declared
from v6_federated.rules.schema import Schema

MANY = 10  # hospitals: from here on they are dealt to blocks
BLOCK = 5  # hospitals of a block, if there are many
WITH_COLLUDERS = 4  # hospitals: with fewer, a colluder would leave too few others


@dataclass(frozen=True)
class StudyPlan:
    """What a study of simulated hospitals is to be.

    Attributes:
        size: how many hospitals a block has at least; None: five where there are ten or more (or as many as nodes
            require), otherwise all.
        schema: what all hospitals declare about their tables; None: nothing.
        names: the hospitals' names by organization id, for ``MockNetwork``; None: all organizations, as ``node-ID``.
            Organizations without a name, such as one that holds a test set, are in no block.
        hospital_totals: "told" or "hidden", see ``secagg.study.TOTALS``: here one developer has the rows of all.
        hospitals_a_person: at how many hospitals a person may have rows.
    """

    size: int | None = None
    schema: Schema | None = None
    names: Mapping[int, str] | None = None
    hospital_totals: str = TOLD
    hospitals_a_person: int = 1


def make(folders: Mapping[str, Path], plan: StudyPlan | None = None, minimum: int = 1) -> Study:
    """Make keys, a study and its schema in the folders of hospitals, and accept the study in all of them.

    Keys that are there are used, and the study that is there stays if it is the same. A different one is a new version.

    Args:
        folders: the hospitals' own folders by their names, in the order in which they are dealt to blocks.
        plan: what the study is to be; None: the defaults of ``StudyPlan``.
        minimum: how many organizations a result must come from, by the strictest of the nodes' limits.

    Returns:
        The study. One hospital of a block is assumed to collude with the server if there are four hospitals or more.

    Raises:
        SafeError: there is no such study, a folder cannot accept it, or a file cannot be written.
    """
    plan = plan or StudyPlan()
    blocks = dealt([*folders], plan.size, minimum)  # before the first key is made
    identities = {name: Hospital(name, _key(folder)) for name, folder in folders.items()}
    study = Study(
        name="local",
        version=1,
        blocks=tuple(tuple(identities[name] for name in block) for block in blocks),
        colluders=assumed_colluders(folders),
        schema=None if plan.schema is None else plan.schema.shared_digest,
        hospital_totals=plan.hospital_totals,
        hospitals_a_person=plan.hospitals_a_person,
    )
    there = [_there(folder) for folder in folders.values()]
    if (newest := max((old.version for old in there if old is not None), default=0)) > 0:
        study = replace(study, version=newest)
        if any(old is None or old.digest != study.digest for old in there):
            study = replace(study, version=newest + 1)
    study.check(minimum)
    for folder in folders.values():
        pinned.accept(folder, study, minimum)
        try:
            write_whole(folder / pinned.NAME, study.text(), durable=True)
            if plan.schema is not None:  # how many rows there are is each hospital's own
                write_whole(folder / declared.NAME, replace(plan.schema, n=None).text(), durable=True)
        except OSError as error:
            raise SafeError(f"{folder} cannot be written ({error.strerror}); choose another folder") from None
    return study


def dealt(names: Sequence[str], size: int | None, minimum: int = 1) -> list[Sequence[str]]:
    """Deal hospitals to as many blocks of at least some size as there can be, about equally large.

    Args:
        names: the hospitals.
        size: the size; None is the default of ``StudyPlan``.
        minimum: how many organizations a result must come from, by the strictest of the nodes' limits.

    Returns:
        The hospitals of each block, in order.

    Raises:
        SafeError: there are too few hospitals, or the size does not fit.
    """
    colluders = assumed_colluders(names)
    least = max(minimum + colluders, 2)
    if len(names) < least:
        raise SafeError(f"{len(names)} node(s) are too few for a study, whose blocks need {_why(least, colluders)}")
    if size is None:
        size = max(BLOCK, least) if len(names) >= MANY else len(names)
    if not least <= size <= len(names):
        sizes = str(least) if least == len(names) else f"{least} to {len(names)}"
        raise SafeError(
            f"blocks of {size} hospitals do not fit; expected {sizes}, since there are {len(names)} nodes, and a block "
            f"needs {_why(least, colluders)}"
        )
    blocks = len(names) // size
    edges = [len(names) * i // blocks for i in range(blocks + 1)]
    return [names[a:b] for a, b in pairwise(edges)]


def assumed_colluders(hospitals: Sized) -> int:
    """Say how many hospitals are assumed to work together with the server.

    Args:
        hospitals: the hospitals.

    Returns:
        1 if there are four hospitals or more, otherwise 0.
    """
    return int(len(hospitals) >= WITH_COLLUDERS)


def _why(least: int, colluders: int) -> str:
    if least == 2:
        return "2 hospitals"
    one = " and one that may work together with the server" if colluders else ""
    return f"{least} (V6_FEDERATED_MINIMUM_ORGANIZATIONS={least - colluders}{one})"


def _key(folder: Path) -> bytes:
    if (folder / keys.NAME).exists():
        return keys.public_of(keys.identity(folder))
    return keys.new_identity(folder)


def _there(folder: Path) -> Study | None:
    """The study in a folder, whether it is accepted or not."""
    try:
        text = (folder / pinned.NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise SafeError(f"{folder / pinned.NAME} cannot be read; remove it") from None
    return Study.parse(text)
