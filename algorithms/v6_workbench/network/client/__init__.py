"""The one part of the workbench that knows vantage6's client: the same names for vantage6 4.15 and 5.

Nothing else in the workbench imports vantage6, or needs to know which of the two is installed. ``four`` and ``five``
hold what differs, under the same names:

================================  ===================================  ===============================================
name                              vantage6 4.15                        vantage6 5
================================  ===================================  ===============================================
``authenticated``, ``NEEDED``     name and password at the server      at Keycloak: a browser, or the secret of a
                                                                       service account; name and password at a local
                                                                       network
``rows_for``                      the label of the nodes' database     a data frame in a session, which a task makes at
                                                                       each node, with a function of the method's image
``create_task``                   ``input_={"method", "kwargs"}``      ``method``, ``arguments`` and an ``action``
``arguments_of``                  ``run["input"]``                     ``run["arguments"]``, without the function
``status_of``                     the task's, which is that of runs    the run's: a task is completed, failed or open
``has_ended``, ``is_job``         one list of words, all tasks         tasks and runs have words of their own; a task
                                                                       that makes a data frame is no job
================================  ===================================  ===============================================
"""

from pathlib import Path

from vantage6.client import UserClient
from vantage6.common import Singleton, bytes_to_base64s
from vantage6.common.encryption import RSACryptor

from v6_federated.base.vantage6_api import FIVE
from v6_workbench.network.client.common import Rows

if FIVE:
    from v6_workbench.network.client import five as installed
else:
    from v6_workbench.network.client import four as installed  # type: ignore[no-redef]  # one of the two is imported

__all__ = [
    "API",
    "COMPLETED",
    "FIVE",
    "KILLED",
    "NEEDED",
    "PENDING",
    "Rows",
    "UserClient",
    "arguments_of",
    "authenticated",
    "create_task",
    "forget_other_keys",
    "has_ended",
    "is_job",
    "new_key",
    "official_images",
    "rows_for",
    "status_of",
]

API, NEEDED, official_images = installed.API, installed.NEEDED, installed.official_images
authenticated, rows_for, create_task = installed.authenticated, installed.rows_for, installed.create_task
arguments_of, status_of = installed.arguments_of, installed.status_of
has_ended, is_job = installed.has_ended, installed.is_job

# the words of both for the state of a run
COMPLETED, KILLED, PENDING = "completed", "killed by user", "pending"


def forget_other_keys() -> None:
    """Forget the private key of another network.

    vantage6 keeps one key in a process. It would use this key for every network, and upload its public half to each
    server in place of the right one.
    """
    Singleton._instances.pop(RSACryptor, None)


def new_key(path: Path) -> str:
    """Make a private key.

    Args:
        path: its file, which only this user can read.

    Returns:
        The public key as the server stores it.
    """
    path.touch(mode=0o600)
    return bytes_to_base64s(RSACryptor.create_public_key_bytes(RSACryptor.create_new_rsa_key(path)))
