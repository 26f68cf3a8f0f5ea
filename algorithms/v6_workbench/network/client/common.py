"""What both parts of ``client`` use."""

import logging
from dataclasses import dataclass
from typing import Any

SILENT = logging.Logger("v6_federated.client", logging.CRITICAL + 1)


@dataclass(frozen=True)
class Rows:
    """The rows that a task computes on.

    Attributes:
        databases: how the request for the task names them.
        session: the session that holds them (vantage6 5); None: nodes read their databases themselves.
        task: the task in which nodes extract them (vantage6 5), which must be completed first; None: there is none.
    """

    databases: list[dict[str, Any]]
    session: int | None = None
    task: int | None = None
