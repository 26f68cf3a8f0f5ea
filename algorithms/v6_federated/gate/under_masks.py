"""Masked answers of a node: the keys of a job, and answers of which central learns only sums over a block of nodes.

docs/secure-aggregation.md is the specification; ``masks`` has its parts, this module what a node does with
them. A job begins with ``hello``, in the answer to ``describe``, and ``confirm``. From then on every answer is a
transcript and masked words, and nothing else.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from v6_federated.base import json_text
from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError, place_of
from v6_federated.base.files import SAFELY, create, locked, open_regular, replacing
from v6_federated.base.logs import one_line
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import (
    DataError,
    NodePermissionException,
    PrivacyThresholdViolation,
    UserInputError,
)
from v6_federated.base.version import __version__
from v6_federated.masks import agreement, keys, keystreams, notation, study, summing, transcript
from v6_federated.masks.agreement import Entry
from v6_federated.masks.answered import Answered
from v6_federated.masks.summands import Layout, not_in_rows
from v6_federated.masks.summing import Sums
from v6_federated.messages import codec
from v6_federated.messages.job import MODES, SPECIAL, TOLD, Job
from v6_federated.messages.organizations import named
from v6_federated.node.node import Node
from v6_federated.node.request import Request
from v6_federated.node.state import State
from v6_federated.rules.environment import debugging
from v6_federated.rules.hospital import HospitalFolder
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Schema

HOLDOUT = "holdout"  # file in the hospital's folder: the share of rows that the first pinned job has held out
TABLE = "table"  # the same for the database that the first pinned job was about
SEALS = "seals"  # folder in the hospital's folder: a key for each job, with which the job's keys are sealed
SEALED_DAYS = 30  # without a request after which a job has ended without a word
SEAL_BYTES, NONCE_BYTES = 32, 12
MOST_SAID = 1000  # bytes of either
SAFE_ERRORS = (SafeError, DataError, NodePermissionException, PrivacyThresholdViolation, UserInputError)
GONE = "this job's key is gone from the node's data volume; start a new job, for example from the last model (resume)"


@dataclass(frozen=True)
class Session:
    """What a node keeps of a job: its keys, who takes part, and whether the others have confirmed.

    Attributes:
        mode: "masked" or "pinned".
        study: digest of the study, hexadecimal; in the mode "masked" a digest of the job.
        own: the node's entry in the roster.
        e: the job's private key, hexadecimal.
        s: the private key in place of an identity, in the mode "masked"; empty in "pinned".
        block: public keys of the node's block in the study; empty in the mode "masked".
        roster: the entries of the node's block, once they are agreed.
        shared: the key that it shares with each of the others, by their public key.
        confirmed: whether the others have shown that they hold the same keys and roster.
        told: what may not change during the job, as canonical JSON.
        failed: whether the node could not compute its part of a sum. From then on it adds noise: whether some node
            fails would be compared with one question after another.
    """

    mode: str
    study: str
    own: dict[str, Any]
    e: str = field(repr=False)
    s: str = field(repr=False)
    block: Sequence[str]
    roster: Sequence[dict[str, Any]] = ()
    shared: Mapping[str, str] = field(default_factory=dict, repr=False)
    confirmed: bool = False
    told: str = ""
    failed: bool = False

    @property
    def entry(self) -> Entry:
        """The node's own entry."""
        return Entry.from_json(self.own)

    @property
    def entries(self) -> list[Entry]:
        """The entries of the roster."""
        return [Entry.from_json(entry) for entry in self.roster]

    def digest(self, job: str) -> bytes:
        """R, the digest of the roster."""
        return agreement.roster_digest(bytes.fromhex(self.study), job, self.entries)


def required(request: Request) -> str:
    """Say what the node's operator requires of a job."""
    mode = request.policy.aggregation
    return _strictest(request) if mode == "auto" else mode


def _strictest(request: Request) -> str:
    """The strictest mode that is possible at this node."""
    return "pinned" if request.study else "masked"


def mode_of(job: Job, request: Request) -> str:
    """Settle the mode of a job at this node."""
    least = required(request)
    if job.aggregation == "auto":
        return max(least, _strictest(request) if job.privacy else "plain", key=MODES.index)
    if MODES.index(job.aggregation) < MODES.index(least):
        if request.entry.organization in job.evaluators:  # it is in no block, so aggregation cannot be the cure
            raise NodePermissionException(
                "an organization in evaluators is asked for its own evaluation, and this node's operator requires "
                f"aggregation={least} (V6_FEDERATED_AGGREGATION); leave evaluators out, so that every organization "
                "evaluates on the rows that it holds out, or ask the operator for V6_FEDERATED_AGGREGATION=plain. "
                f"{NOTHING_COMPUTED}"
            )
        raise NodePermissionException(
            f"this node's operator requires aggregation={least} (V6_FEDERATED_AGGREGATION), and the job asks for "
            f"aggregation={job.aggregation}; leave aggregation out, or ask the operator. {NOTHING_COMPUTED}"
        )
    return job.aggregation


def check_totals(job: Job, request: Request, function: str, layout: Layout, instead: str) -> None:
    """Refuse what is no sum over rows in a study that hides totals of single hospitals. No row is read for it."""
    if mode_of(job, request) != "pinned":
        return
    agreed = request.study
    hides = agreed is not None and agreed.hospital_totals != TOLD  # an unknown word hides too
    if hides and (reason := not_in_rows(function, layout, instead)):
        raise NodePermissionException(f"{reason}. {NOTHING_COMPUTED}")


def schema(request: Request) -> Schema | None:
    """Read the schema that the hospitals of a study share."""
    folder, agreed = _folder(request), request.study
    if agreed is None or agreed.schema is None:
        return None
    found = Schema.of_folder(folder.path)
    if found is None or found.shared_digest != agreed.schema:
        raise NodePermissionException(
            f"the schema.json of this hospital is {'missing' if found is None else 'not the one of its study'}; its "
            f"operator must put the study's schema there. {NOTHING_COMPUTED}"
        )
    return found


# ---- before the first sum


def hello(node: Node, request: Request, mode: str) -> dict[str, Any]:
    """Make the job's key, and say with which keys this node takes part. A job that is known gets the same answer."""
    folder = _folder(request)
    if mode == "pinned":
        _check_minimum(node.job)
    _remove_seals(folder)
    with _agreeing(node):
        session = _load(node)
        if session is None:
            if _answered(node, folder).known():
                raise NodePermissionException(f"{GONE}. {NOTHING_COMPUTED}")
            session = _new(node, folder, mode)
            _save(node, session)
    if session.mode != mode:
        raise NodePermissionException(f"the job has begun with aggregation={session.mode}. {NOTHING_COMPUTED}")
    bands, agreed = request.policy.score_bands, request.study if mode == "pinned" else None
    said = {} if agreed is None else {"hospital_totals": agreed.hospital_totals}
    return {"mode": mode, "entry": session.own, "block": list(session.block), "score_bands": bands, **said}


def _new(node: Node, folder: HospitalFolder, mode: str) -> Session:
    e = X25519PrivateKey.generate()
    if mode == "pinned":
        own_study = node.request.study
        if own_study is None:
            raise NodePermissionException(
                "no study lies in this hospital's folder, so aggregation=pinned is not possible; its operator runs "
                f"`v6-federated study accept`, or the job asks for aggregation=masked. {NOTHING_COMPUTED}"
            )
        S = keys.public_of(keys.identity(folder.path))
        block = [hospital.key.hex() for hospital in own_study.block_of(S)]
        agreed, s = own_study.digest, ""
    else:
        private = X25519PrivateKey.generate()
        S, block, agreed, s = keys.public_of(private), [], study.masked_study(node.job.key), _hex(private)
    entry = Entry(S, keys.public_of(e), _table(node, folder), __version__)
    return Session(mode, agreed.hex(), entry.to_json(), _hex(e), s, block)


def confirm(node: Node, request: Request, roster: Sequence[Any]) -> dict[str, Any]:
    """Agree on keys with the other nodes of the block, and show them that this node holds them.

    Nothing here depends on the node's rows: it would be an answer that no mask covers. A job with noise reserves its
    plan here, before the node keeps what the job has agreed on.
    """
    with _agreeing(node):
        return _confirm(node, request, roster)


def _confirm(node: Node, request: Request, roster: Sequence[Any]) -> dict[str, Any]:
    folder, session = _folder(request), _known(node)
    _check_mode(session, request)
    job = node.job.key
    entries = sorted((Entry.from_json(entry) for entry in roster), key=lambda entry: entry.S)
    block = {bytes.fromhex(S) for S in session.block} if session.mode == "pinned" else None
    names = _names(session, request)
    agreement.check_roster(entries, session.entry, block, request.policy.minimum_organizations, names)
    if session.mode == "masked" and len(entries) != len(node.job.participants):
        raise NodePermissionException(
            f"the roster has {len(entries)} entries, and {len(node.job.participants)} organizations take part; without "
            f"a study, all of them must be one block. {NOTHING_COMPUTED}"
        )
    plain, told = [entry.to_json() for entry in entries], _told(node.job)
    if session.roster and ([*session.roster], session.told) != (plain, told):
        raise NodePermissionException(f"this job has begun with another roster or other rows. {NOTHING_COMPUTED}")
    if node.noising is not None:
        node.noising.reserve()
    if not session.shared:
        if not session.e:
            raise NodePermissionException(f"{GONE}. {NOTHING_COMPUTED}")
        own, e = session.entry, X25519PrivateKey.from_private_bytes(bytes.fromhex(session.e))
        s = X25519PrivateKey.from_private_bytes(bytes.fromhex(session.s)) if session.s else keys.identity(folder.path)
        agreed = bytes.fromhex(session.study)
        shared = {p.S.hex(): agreement.pair_key(s, e, own, p, agreed, job).hex() for p in entries if p.S != own.S}
        session = replace(session, roster=plain, shared=shared, told=told)
        _save(node, session)
    R, S_i = session.digest(job), session.entry.S
    tags = {S: agreement.tag(bytes.fromhex(K), S_i, bytes.fromhex(S), R).hex() for S, K in session.shared.items()}
    return {"tags": tags, **(_assumed(request) if session.mode == "pinned" else {})}


# ---- every answer


def answer(
    node: Node,
    request: Request,
    function: str,
    sums: Sums,
    arguments: Mapping[str, Any],
    arrays: Mapping[str, Array],
    compute: Callable[[], Mapping[str, Any]],
) -> tuple[dict[str, Any], int | None]:
    """Answer with what the node adds to a sum, under masks."""
    folder, session = _folder(request), _known(node)
    _check_mode(session, request)
    if not session.roster:
        raise NodePermissionException(f"the nodes of this job have not agreed on keys. {NOTHING_COMPUTED}")
    job = node.job
    R = session.digest(job.key)
    if not session.confirmed:
        names = _names(session, request)
        try:
            _check_tags(session, sums.tags, R, names)
        except NodePermissionException:  # the job can never go on
            _save(node, replace(session, e="", s="", shared={}, roster=()))
            raise
        session = replace(session, confirmed=True, e="", s="")  # of no use any more
        _save(node, session)
    if _told(job) != session.told:
        raise NodePermissionException(
            f"the job asks for other rows, columns or classes than when it began; start a new job. {NOTHING_COMPUTED}"
        )
    pinned = None
    if session.mode == "pinned":
        _check_minimum(job)
        _check_holdout(folder, job.data.holdout)
        _check_table(folder, request.table)
        pinned = request.study
        if pinned is None or pinned.digest.hex() != session.study:
            raise NodePermissionException(
                f"the study of this hospital has changed since the job began; start a new job. {NOTHING_COMPUTED}"
            )
    if _table(node, folder) != session.entry.D:
        raise NodePermissionException(
            "the table of this node, or a limit that decides its answers, has changed since the job began; start a new "
            f"job. {NOTHING_COMPUTED}"
        )
    asked = {"job": job.to_json(), **arguments, "database": request.table}
    T = transcript.transcript(R, sums.seq, node.round, job.method, function, sums.layout, asked, arrays)
    answered = _answered(node, folder)
    request.count(node.state.version(), T)
    if (stored := answered.begin(T, sums.seq)) is not None:
        return _answer(node, sums, T, stored), _rows(node)
    node.key, node.pinned = f"block {sums.block}", session.mode == "pinned"
    node.state.bind(T, (node.known or {}).get(node.key))
    if node.noising is not None and pinned is not None:
        node.noising.shares = len(session.roster) - pinned.colluders
        node.noising.hospitals_of_a_person = pinned.hospitals_a_person
    words, rows = _part(node, session, sums, compute, T)
    if node.known is not None:
        node.state.settle()
    # what the node has kept decides about the answer too: nodes with other histories have masks that do not cancel
    mask = node.state.history
    shared = {bytes.fromhex(S): bytes.fromhex(K) for S, K in session.shared.items()}
    new = b"".join(keystreams.masked(q, session.entry.S, shared, mask).tobytes() for q in words)
    return _answer(node, sums, T, answered.finish(T, new)), rows  # another run of the request may have been faster


def _assumed(request: Request) -> dict[str, int]:
    """What the study assumes, by which the noise of its sums is chosen."""
    agreed = request.study
    assert agreed is not None  # checked before
    return {"colluders": agreed.colluders, "hospitals_a_person": agreed.hospitals_a_person}


def _answer(node: Node, sums: Sums, T: bytes, masked: bytes) -> dict[str, Any]:
    """All that leaves the node: its words of 32 bits, followed by those of 64, are in ``masked``."""
    y32 = np.frombuffer(masked, keystreams.WORDS[32], sums.words(32))
    y64 = np.frombuffer(masked, keystreams.WORDS[64], sums.words(64), offset=y32.nbytes)
    return {
        "organization_id": node.organization_id,
        "round": node.round,
        "T": T.hex(),
        "y32": codec.encode_words(y32),
        "y64": codec.encode_words(y64),
    }


def _part(
    node: Node,
    session: Session,
    sums: Sums,
    compute: Callable[[], Mapping[str, Any]],
    T: bytes,
) -> tuple[tuple[Array, Array], int | None]:
    """What the node adds to a sum, and the rows that it is about; noise if it cannot compute its part.

    Whether a node refuses can depend on its rows. So from here on nothing is refused, and the reason is noted in the
    hospital's audit log only. A node that fails, or has failed before, computes on as far as it can, see ``later``.
    """
    folder, request = _folder(node.request), node.request
    secret = folder.derived("noise", T).to_bytes(32, "big")
    node.goes_on = True
    if session.failed:
        with contextlib.suppress(Exception):
            compute()
        request.refused("noise is added to the sum, since this node could not compute an earlier part of the job")
        return summing.failed(sums, secret, T), None
    try:
        own = node.policy.own_shuffle  # random numbers of the node's own; without them, all nodes give the same bits
        found = compute()
        node.check_failed()
        return summing.encoded(sums, found, node.n, len(session.roster), secret, T, dithered=own), node.n
    except Exception as raised:
        error = node.failure or raised  # the first one is the reason
        if debugging():
            raise error from None
        safe = isinstance(error, SAFE_ERRORS)
        reason = one_line(error) if safe else f"{type(error).__name__} in {place_of(error)}"
        request.refused(f"noise is added to the sum instead: {reason}")
        _save(node, replace(session, failed=True))
        return summing.failed(sums, secret, T), None


def _check_minimum(job: Job) -> None:
    """Refuse a minimum of rows: how many hospitals of a block have fewer would be seen, and so the rows of each."""
    if job.minimum_rows is not None:
        raise NodePermissionException(
            "minimum_rows cannot be used in a study, as a sum would show how many hospitals have fewer rows; leave it "
            f"out. {NOTHING_COMPUTED}"
        )


def _check_holdout(folder: HospitalFolder, holdout: float) -> None:
    """Refuse another share of held-out rows than in the first job: the difference would be rows of one hospital.

    The last digit of a share decides how many rows are held out where the share of them lies halfway between two.
    """
    if not holdout:
        return
    said = transcript.canonical(holdout).decode()
    if (kept := _of_first_job(folder, HOLDOUT, said)) != said:
        raise NodePermissionException(
            f"this hospital holds out the share {kept} of its rows in all jobs of its study, so that jobs cannot be "
            f"subtracted; set holdout={kept}. {NOTHING_COMPUTED}"
        )


def _check_table(folder: HospitalFolder, table: str | None) -> None:
    """Refuse another database than in the first job: the difference would be this hospital's rows and those of it."""
    if table is None:  # a mock node's
        return
    if not table:
        raise NodePermissionException(
            "the data frame does not say which database of this node it was made of; make it again with the function "
            f"extract. {NOTHING_COMPUTED}"
        )
    if (kept := _of_first_job(folder, TABLE, table)) != table:
        raise NodePermissionException(
            f"all jobs of its study are about the database {kept!r} of this hospital, and this one names {table!r}: "
            "from two tables at one hospital, sums over the block tell its own; name the same one, or ask its operator "
            f"(file {TABLE} in the hospital's folder). {NOTHING_COMPUTED}"
        )


def _of_first_job(folder: HospitalFolder, name: str, said: str) -> str:
    """What the first pinned job has said, as the hospital's folder keeps it: ``said`` if this is the first."""
    file = folder.path / name
    try:
        if not file.exists():
            with contextlib.suppress(FileExistsError):  # another task was faster
                create(file, said.encode())
        with open_regular(file) as stream:
            return stream.read(MOST_SAID).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise NodePermissionException(
            f"the file {name} in the hospital's folder cannot be used ({why}). {NOTHING_COMPUTED}"
        ) from None


def _told(job: Job) -> str:
    """What may not change during a job, besides the keys: which rows, columns and classes it is about."""
    spec = job.data
    told = {
        "method": job.method,
        "seed": job.seed,
        "participants": named(job.participants),
        "minimum_rows": job.minimum_rows,
        "label": spec.label,
        "features": None if spec.features is None else [*spec.features],
        "classes": None if spec.classes is None else [*spec.classes],
        "categories": None if spec.categories is None else [*spec.categories],
        "holdout": spec.holdout,
        "supervised": spec.supervised,
        "regression": spec.regression,
        "subgroup": [spec.subgroup, *spec.levels],
        **{name: getattr(spec, name) for name in SPECIAL},
        "privacy": job.privacy,
        "hospital_totals": job.hospital_totals,
    }
    return transcript.canonical(told).decode()


def _rows(node: Node) -> int | None:
    """The rows that a stored answer is about; None if the node cannot say."""
    try:
        return node.n
    except SAFE_ERRORS:
        return None


def _check_mode(session: Session, request: Request) -> None:
    """A job that began before the hospital accepted its study must not go on without it."""
    least = required(request)
    if MODES.index(session.mode) < MODES.index(least):
        raise NodePermissionException(
            f"the job has begun with aggregation={session.mode}, and this node's operator requires {least} by now; "
            f"start a new job. {NOTHING_COMPUTED}"
        )


def _names(session: Session, request: Request) -> dict[bytes, str]:
    """The names of all hospitals of the node's study, by which errors name a hospital as well as by its key."""
    found = request.study if session.mode == "pinned" else None
    return {} if found is None else {hospital.key: hospital.name for block in found.blocks for hospital in block}


def _check_tags(session: Session, tags: Mapping[str, Any], R: bytes, names: agreement.Names) -> None:
    """Check that all others of the block have confirmed the same roster and keys."""
    own = session.entry.S
    for S, K in session.shared.items():
        said = tags.get(S, {})
        shown = said.get(own.hex(), "") if isinstance(said, Mapping) else ""
        try:
            given = bytes.fromhex(shown)
        except (TypeError, ValueError):
            given = b""
        agreement.check_tag(bytes.fromhex(K), bytes.fromhex(S), own, R, given, names)


# ---- what a node keeps


def forget(organization: int, state: State, job: Job) -> None:
    """Remove the stored answers of a job; its keys go with the rest of the node's state."""
    if job.aggregation in ("masked", "pinned"):
        folder = HospitalFolder.of_node(Policy.of_node(), organization, needed=True)
        assert folder is not None
        Answered(folder.path, state.folder, f"{job.key}-{organization}").forget()
        _seal_of(folder.path, organization, job.key).unlink(missing_ok=True)


def _answered(node: Node, folder: HospitalFolder) -> Answered:
    return Answered(folder.path, node.state.folder, f"{node.job.key}-{node.organization_id}")


def _file(node: Node) -> Path:
    return node.state.folder / f"{node.state.name}-keys.sealed"


def _seal_of(folder: Path, organization: int, key: str) -> Path:
    return folder / SEALS / f"{key}-{organization}"


def _seal(node: Node, make: bool = False) -> ChaCha20Poly1305:
    """What the job's keys are sealed with: a job that ends without a word leaves its volume, which no later job sees.

    Without the seal, which lies in the hospital's folder and goes after ``SEALED_DAYS`` in which the job has not used
    it, nobody can read the keys in that volume, nor take a mask off an answer.
    """
    file = _seal_of(_folder(node.request).path, node.organization_id, node.job.key)
    if make and not file.exists():
        file.parent.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another run was faster
            create(file, os.urandom(SEAL_BYTES))
    with open_regular(file) as stream:
        os.utime(file)
        return ChaCha20Poly1305(stream.read())


def _remove_seals(folder: HospitalFolder) -> None:
    """Remove the seals of jobs that have ended without a word."""
    for file in (folder.path / SEALS).glob("*"):
        with contextlib.suppress(OSError):
            if file.lstat().st_mtime < time.time() - SEALED_DAYS * 86400:
                file.unlink()


@contextlib.contextmanager
def _agreeing(node: Node) -> Iterator[None]:
    """Let no other run of this node agree on the keys of the same job meanwhile.

    Otherwise a run that has read the job's session before could write over what another has agreed on since.
    """
    file = node.state.folder / f"{node.state.name}-keys.lock"
    with contextlib.ExitStack() as held:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            stream = os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | SAFELY, 0o600), "wb")
            held.enter_context(stream)
            held.enter_context(locked(stream.fileno()))
        except OSError as error:
            raise _unwritable(error) from None
        yield


def _load(node: Node) -> Session | None:
    try:
        with open_regular(_file(node)) as stream:
            sealed = stream.read()
    except FileNotFoundError:
        return None
    except OSError:
        raise NodePermissionException(f"{GONE}. {NOTHING_COMPUTED}") from None
    try:
        opened = _seal(node).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], node.job.key.encode())
        return Session(**json_text.parse(opened))
    except (OSError, TypeError, ValueError, InvalidTag):
        raise NodePermissionException(f"{GONE}. {NOTHING_COMPUTED}") from None


def _known(node: Node) -> Session:
    session = _load(node)
    if session is None:
        raise NodePermissionException(f"{GONE}. {NOTHING_COMPUTED}")
    return session


def _save(node: Node, session: Session) -> None:
    nonce = os.urandom(NONCE_BYTES)
    try:
        sealed = _seal(node, make=True).encrypt(nonce, json.dumps(vars(session)).encode(), node.job.key.encode())
        with replacing(_file(node), durable=True, mode=0o600) as stream:
            stream.write(nonce + sealed)
    except OSError as error:
        raise _unwritable(error) from None


def _unwritable(error: OSError) -> SafeError:
    return SafeError(
        f"the job's folder at this node cannot be written: {error.strerror}; ask its operator to make room"
    )


def _folder(request: Request) -> HospitalFolder:
    assert request.folder is not None  # ``Request.of`` makes one for jobs with masks
    return request.folder


def _table(node: Node, folder: HospitalFolder) -> bytes:
    """D, which tells whether table and limits are those that the job began with, and nothing else of them.

    Under other limits the same request would have another answer, which must never leave under the same masks.
    """
    message = notation.enc(node.job.key, node.source.digest, transcript.canonical(node.policy.deciding))
    return folder.derived("db", message).to_bytes(32, "big")


def _hex(private: X25519PrivateKey) -> str:
    return private.private_bytes_raw().hex()
