"""What local training may not do in a study, where the sum over a block must not tell its hospitals apart."""

from pydantic import BaseModel

from v6_federated.base.errors import SafeError
from v6_federated.messages.settings import Role, with_role


def check(checked: BaseModel) -> None:
    """Reject local training by which a first sum already has a number of single hospitals. No row is needed for it."""
    if "adam" in with_role(checked, Role.OPTIMIZER):
        raise SafeError(
            "optimizer=adam cannot be used in a study, as a step would show the sign of each hospital's gradient; use "
            "sgd, or Adam at the server (server_optimizer=adam)"
        )
    sizes = [size for size in with_role(checked, Role.BATCH) if size is not None]
    if sizes and not any(with_role(checked, Role.STEPS)) and not with_role(checked, Role.ROW_RATE):
        raise SafeError(
            f"batch_size={sizes[0]} alone cannot be used in a study, as the number of steps would follow from a "
            "hospital's rows; set local_steps too, which is the same for all, or leave batch_size out"
        )
