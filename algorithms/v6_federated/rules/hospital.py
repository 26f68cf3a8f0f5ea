"""The hospital's own folder on its disk: what must outlive a job and be read by the operator lies there.

On a real node it is a database of type ``folder`` with the reserved label ``hospital``, which vantage6 4.15 mounts into
every container that it starts. vantage6 5 mounts none: there, a folder of the session takes its place. It holds the
audit log (``audit.jsonl``), the counters of the limits (``requests.sqlite``) and the node's secret (``secret``), from
which its own random numbers are derived.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from v6_federated.base import vantage6_api
from v6_federated.base.database import RESERVED
from v6_federated.base.files import create, open_regular
from v6_federated.base.text import NOTHING_COMPUTED
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.rules.limits import PREFIX
from v6_federated.rules.policy import Policy

FALLBACK = "v6-federated-hospital"  # in the folder that all runs share
SECRET_BYTES = 32
SECRET = f"{PREFIX}SECRET"  # variable in place of the file
SECRET_LETTERS, DIFFERENT = 32, 8  # so many, and so many different ones: 32 random hexadecimal digits have 14


@dataclass(frozen=True)
class HospitalFolder:
    """The folder.

    Attributes:
        path: where it is.
        own: whether it is a folder on the hospital's disk, and not the fallback in the node's data volume.
    """

    path: Path
    own: bool

    @classmethod
    def of_node(cls, policy: Policy, organization: int = 0, needed: bool = False) -> "HospitalFolder | None":
        """Find the folder of this node, and make the fallback if there is none."""
        uri = os.environ.get(f"{RESERVED}_DATABASE_URI")
        volume = vantage6_api.lasting_folder()
        if volume is not None and vantage6_api.NO_OWN_FOLDER:
            _check_one_session(policy, uri)
        if uri:
            found = cls(Path(uri), own=True)
            if not found.path.is_dir():
                raise NodePermissionException(
                    "the database 'hospital' of this node is not a folder; give it the type folder in the node's "
                    f"configuration. {NOTHING_COMPUTED}"
                )
        elif volume is not None:
            found = cls(volume / FALLBACK, own=False)
            with contextlib.suppress(OSError):  # refused below
                found.path.mkdir(mode=0o700, exist_ok=True)
        elif not policy.counts and not needed:
            return None
        elif not policy.counts:  # a node on a laptop, whose rows are the developer's own
            found = cls(vantage6_api.job_folder() / f"{FALLBACK}-{organization}", own=False)
            with contextlib.suppress(OSError):
                found.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            raise NodePermissionException(
                "the limits of this node count requests in the hospital's own folder, and this node has none; "
                "add a database of type folder with the label hospital to the node's configuration, or set "
                f"{RESERVED}_DATABASE_URI to a folder. {NOTHING_COMPUTED}"
            )
        linked = not found.own and found.path.is_symlink()  # another program could have led it elsewhere
        if linked or not os.access(found.path, os.W_OK | os.X_OK):
            raise NodePermissionException(
                ("the folder of the database 'hospital'" if uri else f"the folder {FALLBACK} of the node")
                + " cannot be written by this program; correct its permissions or its mount_mode, or remove a link in "
                f"its place. {NOTHING_COMPUTED}"
            )
        return found

    def derived(self, purpose: str, message: bytes) -> int:
        """Derive a number from the node's secret, for random numbers that nobody else can repeat."""
        return int.from_bytes(hmac.digest(self._secret(), purpose.encode() + b"\0" + message, hashlib.sha256), "big")

    def _secret(self) -> bytes:
        """The node's secret: what its operator has set, or else a file, which is made if there is none."""
        if text := os.environ.get(SECRET, "").strip():
            if len(text) < SECRET_LETTERS or len(set(text)) < DIFFERENT:
                raise NodePermissionException(
                    f"{SECRET} of this node must have {SECRET_LETTERS} random letters or more, for example what "
                    f"`openssl rand -hex 32` prints. {NOTHING_COMPUTED}"
                )
            return text.encode()
        if vantage6_api.NO_OWN_FOLDER and vantage6_api.in_container():
            # a secret of one session would give others other held-out rows and roundings: their differences are rows
            raise NodePermissionException(
                f"this node needs a secret that all its sessions share, and {vantage6_api.NO_OWN_FOLDER}; set {SECRET} "
                f"in its algorithm_env, for example to what `openssl rand -hex 32` prints. {NOTHING_COMPUTED}"
            )
        file = self.path / "secret"
        try:
            try:
                stream = open_regular(file)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):  # another task was faster
                    create(file, secrets.token_bytes(SECRET_BYTES))
                stream = open_regular(file)
            with stream:
                found = stream.read(SECRET_BYTES + 1)
        except OSError as error:
            raise NodePermissionException(
                f"the file secret in the hospital's folder cannot be read or written ({error.strerror}); its operator "
                f"must look at it. {NOTHING_COMPUTED}"
            ) from None
        if len(found) != SECRET_BYTES:
            raise NodePermissionException(
                f"the file secret in the folder of the database 'hospital' does not hold {SECRET_BYTES} bytes; remove "
                f"it, and the next task makes a new one. {NOTHING_COMPUTED}"
            )
        return found


def _check_one_session(policy: Policy, uri: str | None) -> None:
    """Refuse what would have to outlive a session, on a node where nothing does."""
    if uri:
        raise NodePermissionException(
            f"{RESERVED}_DATABASE_URI of this node names no folder of the hospital's own, since "
            f"{vantage6_api.NO_OWN_FOLDER}; remove it. {NOTHING_COMPUTED}"
        )
    if policy.private or policy.aggregation == "pinned":
        needs = "PROFILE=private needs a ledger" if policy.private else "AGGREGATION=pinned needs keys"
        raise NodePermissionException(
            f"{PREFIX}{needs} that outlive a session, and {vantage6_api.NO_OWN_FOLDER}; set another, or run this node "
            f"on vantage6 4. {NOTHING_COMPUTED}"
        )
