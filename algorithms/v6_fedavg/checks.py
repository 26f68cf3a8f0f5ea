"""Which settings of FedAvg fit each other."""

from typing import Any

from v6_federated import ONE_STEP, RISK_SETS, SafeError, changed, models, one_step, training_plan

# models whose gradients are exact sums over rows; of an mlp that needs torch, nodes say that it is none
EXACT = ("logreg", "svm", "linear", "fnn", "nn_reddy", "2nn", "mlp")


def why_single(settings: Any) -> str:
    """Say which settings need the nodes' own models.

    Args:
        settings: the job's settings.

    Returns:
        The reason; empty if their sum suffices.
    """
    if settings.schedule == "cyclic":
        return "with schedule=cyclic each node trains the model of the one before"
    if settings.compression != "none":
        return f"compression={settings.compression} sends fewer bytes than masks need"
    return "" if settings.aggregate == "mean" else f"aggregate={settings.aggregate} compares the nodes' models"


def not_in_a_study(settings: Any) -> str:
    """Say which settings cannot be used in a study.

    Args:
        settings: the job's settings.

    Returns:
        The reason; empty if all can.
    """
    if settings.personalize == "none":
        return ""
    return (
        f"personalize={settings.personalize} cannot be used in a study, as the evaluation of hospitals' own models "
        "would show numbers of single hospitals; leave personalize out"
    )


def of_hospitals(settings: Any) -> str:
    """Say which settings make nodes answer with what is no sum over rows.

    Args:
        settings: the job's settings.

    Returns:
        What serves instead; empty if all answers are sums over rows.
    """
    if settings.loss == "cox":
        return f"loss=cox compares the rows of each hospital; {RISK_SETS}"
    if settings.clip is not None:
        one = training_plan(settings).steps == settings.rounds
        return (
            "" if one else "each step adds noise to a hospital's own model; set epochs=1 and steps_per_epoch=1 (FedSGD)"
        )
    if not one_step(settings):
        return f"after several local steps a model is no sum over rows; {ONE_STEP}"
    spec = models.parse(settings.named_model)
    exact = spec["name"] in EXACT or models.registered(spec) is not None  # which nodes look at
    return "" if exact else f"each hospital rounds the gradient of a network in torch by itself; {ONE_STEP}"


def check_settings(settings: Any) -> None:
    """Reject a decay of the learning rate by steps where rounds have fewer and fewer of them.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: they do not.
    """
    decays = changed(settings, ["epochs_decay_round", "batch_size_growth_round"])
    if decays and settings.lr_decay_step and settings.local_steps is None:  # nodes take earlier rounds to be as long
        raise SafeError(
            f"lr_decay_step cannot be used with {decays[0]}, since it counts equal rounds; use lr_decay_round"
        )
