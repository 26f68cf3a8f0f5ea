"""Limits on the length and the number of local steps, by the roles of their settings."""

from pydantic import BaseModel

from v6_federated.base.errors import SafeError
from v6_federated.messages.settings import Role, with_role

MOST_FORGOTTEN = 0.5


def check_pull(rate: float, pull: float) -> None:
    """Reject steps w <- w - rate (g + pull (w - w_0)) that undo more than half of the steps before them.

    The trained weights would be little more than the gradient of the last minibatch, which for a linear model is a
    multiple of its rows.
    """
    if abs(rate * pull) > MOST_FORGOTTEN * (1 + 1e-6):  # a model's penalty is in float32
        raise SafeError(
            f"a step of {rate:g} with a penalty of {pull:g} (proximal_mu and l2 together) is refused because it would "
            f"undo the steps before it; the product must be {MOST_FORGOTTEN:g} at most: lower lr, proximal_mu or l2"
        )


def check_steps(checked: BaseModel, penalty: float, share: float | None = None) -> None:
    """Reject steps that would undo those before them, whatever the settings are called: see ``Role``."""
    if "adam" in with_role(checked, Role.OPTIMIZER):
        return  # the length of its steps does not depend on the gradient's
    pull = sum(with_role(checked, Role.PULL)) + penalty
    longer = 1 / (1 - max(with_role(checked, Role.MOMENTUM), default=0.0))  # all steps that a gradient causes
    for rate in with_role(checked, Role.RATE):
        check_pull(rate * longer, pull)
    for rate in with_role(checked, Role.ROW_RATE) if share else ():
        check_pull(rate * share * longer, pull)


def on_minibatches(checked: BaseModel) -> bool:
    """Say whether the settings of a partial function ask for steps on minibatches."""
    return any(size is not None for size in with_role(checked, Role.BATCH))


def steps_asked(checked: BaseModel) -> int | None:
    """Count the local steps that the settings of a partial function ask for."""
    if not with_role(checked, Role.BATCH):
        return 0
    named: list[int] = [steps for steps in with_role(checked, Role.STEPS) if steps is not None]
    if named:
        return max(named)
    if on_minibatches(checked):
        return None
    passes: list[int] = with_role(checked, Role.EPOCHS)
    return max(passes, default=1)  # each is a step on all rows
