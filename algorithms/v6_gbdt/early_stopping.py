"""Early stopping by the loss on held-out rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from v6_federated import SafeError, UserInputError


def check_early_stopping(early_stopping: int | None, evaluate_every: int) -> None:
    """Check that there will be losses enough to stop by.

    Args:
        early_stopping: rounds to wait for a smaller loss; None: training never stops early.
        evaluate_every: rounds from one evaluation to the next.

    Raises:
        SafeError: there will be too few.
    """
    if early_stopping is not None and evaluate_every > early_stopping + 1:
        raise SafeError(
            f"early_stopping={early_stopping} needs losses in time; set evaluate_every={early_stopping + 1} at most"
        )


def best_round(history: Sequence[Mapping[str, Any]], early_stopping: int | None, evaluate_every: int) -> int | None:
    """The round of the smallest loss on held-out rows, if training is to stop and go back to it; else None.

    Training stops once ``early_stopping`` rounds after the best one have brought no smaller loss.

    Args:
        history: a row for each round so far.
        early_stopping: rounds to wait for a smaller loss; None: training never stops early.
        evaluate_every: rounds from one evaluation to the next. Other losses do not count: a job that is resumed has
            the loss of its last round too, which it would not have if it had gone on without a break.

    Returns:
        The best round, counted from 1, or None.

    Raises:
        UserInputError: no node has enough rows to hold some out, so there is no loss at all.
    """
    if early_stopping is None:
        return None
    evaluated = [row for row in history if row["loss"] is not None and row["round"] % evaluate_every == 0]
    if not evaluated:
        if len(history) > early_stopping and all(row["loss"] is None for row in history):
            raise UserInputError(
                f"early_stopping={early_stopping}: no loss on held-out rows after {len(history)} rounds; no node "
                "has rows enough to hold some out"
            )
        return None
    best = min(evaluated, key=lambda row: row["loss"])
    return best["round"] if evaluated[-1]["round"] - best["round"] >= early_stopping else None
