"""``privacy plan``: what a budget buys, in numbers that follow from few others."""

import math

import pytest
from helpers import table

from v6_federated.central import noise_plan
from v6_federated.rules.schema import Column, Schema
from v6_workbench import registry

SMALL = ["privacy", "plan", "--epsilon", 3, "--rows", 400, "--hospitals", 4, "--rounds", 4]


def named(answer):
    return {it["name"]: it for it in answer["alternatives"]}


@pytest.fixture(scope="module")
def asked():
    """The plan of the job that ``SMALL`` asks for, as central makes it."""
    return noise_plan.plan_of(registry.validate("fedavg", {"rounds": 4, "clip": 1.0, "epsilon": 3.0}))


def test_the_first_is_the_plan_that_central_would_make(call, asked):
    status, answer, _ = call(*SMALL)
    first, *others = answer["alternatives"]
    assert status == 0 and first["plan"] == asked.to_json()
    assert first["name"] == "FedSGD in a study" and len(others) == 8
    for it in answer["alternatives"]:
        assert 2.9 < it["epsilon"] <= 3 and it["epsilon_by_privacy_loss_distribution"] <= it["epsilon"]


def test_noise_against_signal(call, asked):
    answer = call(*SMALL, "--parameters", 25, "--clip", 2)[1]
    found = named(answer)
    # each of 4 hospitals holds out 20 of 100 rows
    assert (answer["training_rows"], answer["held_out_rows"], answer["assumed_colluders"]) == (320, 80, 1)
    shared, alone = found["FedSGD in a study"], found["FedSGD without a study"]
    in_sum = asked.noise * 2  # z C hides a row
    assert shared["gradient_deviation"] == pytest.approx(in_sum * math.sqrt(4 / 3) / 320)
    assert alone["gradient_deviation"] == pytest.approx(in_sum * math.sqrt(4) / 320)
    for it in found.values():
        assert it["noise_to_signal_step"] == pytest.approx(it["gradient_deviation"] / (2 / math.sqrt(25)))
        steps = it["plan"]["steps"]
        assert it["noise_to_signal_job"] == pytest.approx(it["noise_to_signal_step"] / math.sqrt(steps))
    few = found["FedAvg, sampling=0.1"]
    assert few["plan"]["steps"] == 40 and few["rows_a_step"] == pytest.approx(32)
    # a node's mean over q n_k rows has z C / (q n_k), and the mean over 4 nodes half of it
    assert few["gradient_deviation"] == pytest.approx(few["plan"]["noise"] * 2 / (0.1 * 80) / math.sqrt(4))


def test_noise_grows_with_the_hospitals_at_which_a_person_may_be(call):
    one, two = (named(call(*SMALL, "--hospitals-a-person", N)[1]) for N in (1, 2))
    factor = {name: two[name]["gradient_deviation"] / it["gradient_deviation"] for name, it in one.items()}
    assert factor["FedSGD in a study"] == pytest.approx(2) and factor["FedSGD without a study"] == pytest.approx(1)
    assert factor["FedAvg, sampling=0.1"] == pytest.approx(2**0.5)
    drawn = "FedSGD in a study, sampling=0.1"  # shared by four, three of whom are honest; or each its own
    assert factor[drawn] == pytest.approx(2**0.5 / (1 / 3) ** 0.5)
    status, _, err = call(*SMALL, "--hospitals-a-person", 5)
    assert status == 2 and "--hospitals-a-person 5 must be from 1 to 4" in err


@pytest.mark.parametrize("classes", [2, 3])
def test_noise_of_the_accuracy_is_that_of_a_job(classes, call, tmp_path):
    rows = table(400, seed=1)[["x0", "x1", "label"]]
    rows["label"] = [i % classes for i in range(400)]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    columns = tuple(Column(name, "number", -10.0, 10.0) for name in ("x0", "x1"))
    (tmp_path / "schema.json").write_text(Schema(columns, "label", tuple(range(classes))).text())
    data = ["--data", tmp_path / "rows.csv", "--nodes", 4, "--study", "--schema", tmp_path / "schema.json"]
    out = tmp_path / "out"
    job = ["--rounds", 4, "--set", "clip=1", "--set", "epsilon=3", "--preprocess", "scale", "--out", out]
    status, line, err = call("run", "fedavg", *data, *job)
    assert status == 0, err
    assert line["loss"] is None and 2.9 < line["epsilon"] <= 3 and line["delta"] == 1e-5
    from v6_workbench.cli import results

    found = results.read(out)
    planned = call(*SMALL, "--classes", classes)[1]["alternatives"][0]
    assert planned["accuracy_error"] == pytest.approx(found["final"]["accuracy_error"], rel=1e-3)
    assert planned["plan"] == found["privacy"]["plan"]


def test_what_is_asked_is_first(call):
    answer = call(*SMALL, "--sampling", 0.5, "--epochs", 2)[1]
    first, second, *_ = answer["alternatives"]
    assert first["name"] == "FedAvg, sampling=0.5, epochs=2" and first["plan"]["steps"] == 4 * 2 * 2
    assert second["name"] == "FedSGD in a study" and second["plan"]["steps"] == 4


def test_one_evaluation_is_an_alternative_unless_it_is_asked_for(call):
    found = named(call(*SMALL)[1])
    once = found["the first, evaluate_every=4"]
    assert once["plan"]["evaluations"] == 1 and once["accuracy_error"] < found["FedSGD in a study"]["accuracy_error"]
    assert not any("evaluate_every" in name for name in named(call(*SMALL, "--evaluate-every", 4)[1]))


def test_it_says_what_it_does_not_know_and_draws(call, capsys, tmp_path):
    status, answer, err = call(*SMALL, "--out", tmp_path / "new", "--delta", 0.1)
    assert status == 0 and answer["picture"] == str(tmp_path / "new" / "plan.png")
    assert (tmp_path / "new" / "plan.png").stat().st_size > 10_000
    assert "delta 0.1 is too large for 100 rows at a hospital" in err


def test_each_block_has_the_whole_noise(call):
    """Blocks of K_b hospitals, one of which may collude: the variance is that of K_b / (K_b - 1) nodes' noise each."""
    many = ["privacy", "plan", "--rows", 1200, "--hospitals", 12, "--rounds", 4, "--epsilon", 3]
    by_block = {size: named(call(*many, "--block", size)[1])["FedSGD in a study"] for size in (3, 6, 12)}
    variance = {size: found["gradient_deviation"] ** 2 for size, found in by_block.items()}
    assert variance[3] / variance[12] == pytest.approx(4 * (3 / 2) / (12 / 11))
    assert variance[6] / variance[12] == pytest.approx(2 * (6 / 5) / (12 / 11))
    status, _, err = call(*many, "--block", 13)
    assert status == 2 and "blocks of 13 hospitals do not fit" in err


def test_without_held_out_rows_there_is_no_accuracy(call):
    assert call(*SMALL, "--holdout", 0)[1]["alternatives"][0]["accuracy_error"] is None


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--rows", 39, "--rows 39 are too few for 4 hospitals"),
        ("--hospitals", 0, "--hospitals 0 must be 1 or more"),
        ("--parameters", 0, "--parameters 0 must be 1 or more"),
        ("--classes", 1, "--classes 1 must be 2 or more"),
        ("--holdout", 1, "--holdout 1 must be from 0 to below 1"),
        ("--epsilon", -1, "epsilon=-1.0 is refused"),
        ("--delta", 1, "delta=1.0 is refused"),
        ("--sampling", 2, "sampling=2.0 is refused"),
        ("--rounds", 0, "rounds=0 is refused"),
        ("--epochs", "x", "'x' is not a whole number"),
    ],
)
def test_wrong_numbers_are_one_line(option, value, says, refused):
    refused(says, *SMALL, option, value)


def test_an_epsilon_that_no_noise_reaches_is_refused(refused):
    refused("no noise up to 1,000,000", *SMALL, "--epsilon", 1e-7, "--delta", 1e-12)
