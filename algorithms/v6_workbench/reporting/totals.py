"""What the sums of a job may have told of single hospitals."""

from collections.abc import Mapping
from typing import Any

from v6_federated.messages.job import HIDDEN, TOLD


def of_totals(privacy: Mapping[str, Any]) -> str:
    """Say what sums over hospitals may tell of each.

    Args:
        privacy: what a result says of what central saw; it has seen sums.

    Returns:
        For a person.
    """
    if privacy.get("hospital_totals") == HIDDEN:
        return (
            "all were sums over rows, which tell nothing of how rows are dealt over hospitals (hospital_totals=hidden)"
        )
    study = f" (hospital_totals={TOLD})" if privacy.get("hospital_totals") else ""
    return f"those that are no sums over rows can tell each hospital's totals, such as rows and events{study}"
