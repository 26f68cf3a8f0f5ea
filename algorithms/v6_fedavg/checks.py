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
    """Reject settings that do not fit each other.

    Args:
        settings: the job's settings.

    Raises:
        SafeError: they do not.
    """
    if settings.schedule == "cyclic" and settings.aggregate != "mean":
        raise SafeError(f"aggregate={settings.aggregate} has no effect with schedule=cyclic; leave one out")
    if settings.aggregate != "trimmed" and changed(settings, ["trim"]):
        raise SafeError(f"trim={settings.trim} has no effect without aggregate=trimmed; leave it out, or set both")
    if settings.personalize != "none" and (not settings.holdout or settings.evaluators or settings.clip is not None):
        raise SafeError(
            "personalize needs rows that each node holds out to evaluate its own model; leave out holdout=0, "
            "evaluators and clip"
        )
    if settings.personalize == "ditto" and settings.schedule == "cyclic":
        raise SafeError("personalize=ditto cannot be used with schedule=cyclic; use personalize=finetune")
    for name, needed in (("personal_epochs", "finetune"), ("personal_mu", "ditto")):
        if settings.personalize != needed and changed(settings, [name]):
            raise SafeError(f"{name} has no effect without personalize={needed}; leave it out, or set both")
    if settings.server_optimizer in ("sgd", "adagrad") and changed(settings, ["server_beta2"]):
        raise SafeError(f"server_beta2 has no effect with server_optimizer={settings.server_optimizer}; leave it out")
    if settings.server_optimizer == "sgd" and changed(settings, ["server_tau"]):
        raise SafeError("server_tau has no effect with server_optimizer=sgd; leave it out")
    _check_compression(settings)
    _check_decay(settings)


def _check_compression(settings: Any) -> None:
    """Reject what needs the nodes' models in full."""
    if settings.compression != "topk" and changed(settings, ["topk_fraction"]):
        raise SafeError("topk_fraction has no effect without compression=topk; leave it out, or set both")
    if settings.compression != "none" and (
        settings.schedule == "cyclic" or settings.aggregate != "mean" or settings.personalize == "ditto"
    ):
        raise SafeError(
            f"compression={settings.compression} cannot be used with schedule=cyclic, another aggregate than mean or "
            "personalize=ditto; leave one out"
        )
    if settings.compression != "none" and settings.clip is not None:
        raise SafeError(f"compression={settings.compression} cannot be used with clip, whose sums are masked")


def _check_decay(settings: Any) -> None:
    """Reject a decay of local computation that changes nothing, or that other settings do not reckon with."""
    decays = changed(settings, ["epochs_decay_round", "batch_size_growth_round"])
    if "epochs_decay_round" in decays and settings.local_steps is not None:
        raise SafeError(
            "epochs_decay_round has no effect with local_steps, which takes the place of epochs; leave it out"
        )
    if "epochs_decay_round" in decays and settings.epochs == 1:
        raise SafeError("epochs_decay_round has no effect with epochs=1; leave it out, or set epochs higher")
    if "batch_size_growth_round" in decays and settings.batch_size is None:
        raise SafeError("batch_size_growth_round has no effect without batch_size; leave it out, or set both")
    if not decays:
        return
    if settings.clip is not None:
        raise SafeError(f"{decays[0]} cannot be used with clip, whose plan counts the same epochs in each round")
    if settings.lr_decay_step and settings.local_steps is None:  # nodes take earlier rounds to have had as many steps
        raise SafeError(
            f"lr_decay_step cannot be used with {decays[0]}, since it counts equal rounds; use lr_decay_round"
        )
    if settings.until_converged is not None:
        raise SafeError(
            f"until_converged cannot be used with {decays[0]}: rounds that train less look like a model that has "
            "converged; leave one of them out"
        )
