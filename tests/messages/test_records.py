"""Records: settings that belong together are one argument inside and flat names outside."""

import json

import pytest
from helpers import OPEN, crafted
from pydantic import ValidationError

from v6_federated import LocalSGD, PlainSGD, Rounds, SafeError
from v6_federated.messages import settings
from v6_federated.messages.common import Common
from v6_federated.messages.settings import Role
from v6_workbench.simulation.mock import CallOutcome, MockNetwork


def server(federation, *, rounds: Rounds, local: LocalSGD = LocalSGD(lr=0.5)):
    """A central function with a record, whose rate is another than the record's own."""


def test_the_fields_of_a_record_are_flat_settings_of_a_method():
    accepted = settings.settings_of(server, Common)
    assert set(accepted.model_fields) == {*Common.model_fields, "rounds", *LocalSGD.model_fields}
    checked = accepted(rounds=1, epochs=3)
    assert (checked.epochs, checked.lr, checked.batch_size) == (3, 0.5, None)


def test_central_is_given_the_record_whole():
    checked = settings.settings_of(server, Common)(rounds=2, epochs=3, momentum=0.9)
    assert settings.arguments(server, checked) == {"rounds": 2, "local": LocalSGD(epochs=3, lr=0.5, momentum=0.9)}


def test_a_record_is_flat_in_the_result_and_whole_in_the_task(hospitals):
    sent = []

    def outcomes(organization, input_):
        sent.append(input_)
        return CallOutcome()

    with MockNetwork("v6_fedavg", hospitals, environment=OPEN, outcomes=outcomes, on_round=lambda row: None) as network:
        result = network.run(rounds=1, epochs=2, batch_size=5, lr=0.3)
    assert result["settings"]["epochs"] == 2 and "local" not in result["settings"]
    updates = [input_["kwargs"] for input_ in sent if input_["method"] == "client_update"]
    assert len(updates) == 3
    assert all(u["local"] == dict(LocalSGD(epochs=2, batch_size=5, lr=0.3)) and "epochs" not in u for u in updates)


def test_a_record_survives_json():
    local = LocalSGD(epochs=3, batch_size=None, lr=0.1, momentum=0.9, optimizer="sgd")
    text = json.dumps(local.model_dump())
    assert LocalSGD(**json.loads(text)) == local
    assert json.loads(text) == {
        "epochs": 3,
        "local_steps": None,
        "batch_size": None,
        "lr": 0.1,
        "lr_decay_round": 1.0,
        "lr_decay_step": 0.0,
        "optimizer": "sgd",
        "momentum": 0.9,
        "proximal_mu": 0.0,
    }


@pytest.mark.parametrize(
    ("local", "says"),
    [
        ({"epoch": 3}, "unknown setting 'epoch'; expected one of batch_size, epochs, local_steps, lr"),
        ({"epochs": 0}, "epochs=0 is refused: it should be greater than or equal to 1"),
        ({"epochs": True}, "epochs=True is refused"),
        ({"momentum": 1.0}, "momentum=1.0 is refused: it should be less than 1"),
        ({"lr": "inf"}, "lr='inf' is refused: it should be a finite number"),
        ({"optimizer": "lbfgs"}, "optimizer='lbfgs' is refused: it should be 'sgd' or 'adam'"),
        ("sgd", "local='sgd' is refused"),
    ],
)
def test_a_node_refuses_a_wrong_field_of_a_record_by_its_name(hospitals, local, says):
    status, log = crafted(hospitals, local=local)
    assert status == "crashed" and f"organization 3: {says}" in log, log


def test_a_researcher_is_told_the_flat_names():
    accepted = settings.settings_of(server, Common)
    with pytest.raises(SafeError, match="^unknown setting 'epoch'; expected one of .*epochs.*momentum.*rounds"):
        settings.validate(accepted, {"rounds": 1, "epoch": 3})
    with pytest.raises(SafeError, match="^unknown setting 'local'"):
        settings.validate(accepted, {"rounds": 1, "local": {"epochs": 3}})


def test_the_roles_of_a_records_fields_are_those_of_the_partial():
    def client_update(node, weights, *, local: LocalSGD): ...

    checked = settings.settings_of_partial(client_update)(local={"batch_size": 7, "lr": 0.2, "momentum": 0.5})
    found = {role: settings.with_role(checked, role) for role in Role}
    assert found[Role.BATCH] == [7] and found[Role.RATE] == [0.2] and found[Role.MOMENTUM] == [0.5]
    assert found[Role.PULL] == [0.0] and found[Role.OPTIMIZER] == ["sgd"] and found[Role.ROW_RATE] == []
    assert found[Role.STEPS] == [None] and found[Role.EPOCHS] == [1] and found[Role.OTHER] == [1.0, 0.0]  # the decays


def test_a_record_cannot_be_changed_only_replaced():
    local = PlainSGD(epochs=2, lr=0.3)
    with pytest.raises(ValidationError, match="frozen"):
        local.epochs = 5
    assert local.replace(epochs=5) == PlainSGD(epochs=5, lr=0.3) and local.epochs == 2
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        local.replace(epochs=0)


def test_a_misspelt_setting_is_named_before_one_that_is_missing():
    with pytest.raises(SafeError, match="unknown setting 'learning_rate'"):
        settings.validate(settings.settings_of(server, Common), {"learning_rate": 1})
