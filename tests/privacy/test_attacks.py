"""Small versions of the attacks of ``python -m benchmarks attacks``: what a layer claims to stop brings nothing.

What it does not stop has to work here, so that the page on privacy cannot claim more than is true.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import attacks
from benchmarks.attacks import masks
from benchmarks.attacks.people import allowed
from benchmarks.attacks.researcher import Refused, Researcher, hospitals, matched

import v6_fedavg
from v6_federated.masks import keys
from v6_federated.masks.summands import Mean, Sum
from v6_workbench.simulation import studies

ROOT = Path(__file__).parents[2]
NEVER = (  # bring nothing under any profile
    "tiny_scale",
    "rare_flag_weights",
    "rare_subgroup",
    "rare_word_statistics",
    "time_of_a_rare_word",
    "two_splits",
    "two_attempts",
)
LONG = ("gradient_inversion",)  # a small version finds nothing
BY_KEY = {attack.key: attack for attack in attacks.ATTACKS}
TRIED = [
    pytest.param(key, column, marks=[pytest.mark.long] * (key in LONG))
    for key, attack in BY_KEY.items()
    for column in attack.columns
    if column not in ("trusting", "private 1")  # what epsilon 8 stops, epsilon 1 does
]


@pytest.mark.parametrize(("key", "column"), TRIED)
def test_a_layer_stops_what_the_page_says_and_nothing_else(key, column):
    attack = BY_KEY[key]
    assert bool(attack.stops) != bool(attack.why) or (not attack.why and attack.pinned)  # the page says one of them
    found = attacks.outcome(attack, column, small=key not in LONG)
    assert found.brought != bool(attack.stopped(column)), found
    nodes = 1 if column in ("careful", "masked") else 4
    assert found.tasks / nodes <= 2000  # within what careful allows a node in a week


@pytest.mark.parametrize(
    "key", [key for key, attack in BY_KEY.items() if attack.stops and "trusting" in attack.columns]
)
def test_trusting_stops_little_of_it(key):
    found = attacks.outcome(BY_KEY[key], "trusting", small=True)
    assert found.brought != (key in NEVER), found


# ---- a budget


def test_a_known_label_is_found_if_there_is_hardly_any_noise():
    """The attack itself works: under a real budget it is only the noise that stops it."""
    assert attacks.outcome(BY_KEY["known_label"], "private 5000", small=True).note.startswith("6 of 6 guesses right")


@pytest.mark.parametrize(("epsilon", "share", "of_labels"), [(1, 0.731, 0.881), (3, 0.953, 0.998)])
def test_what_a_budget_allows(epsilon, share, of_labels):
    """e / (1 + e) = 2.718 / 3.718, and e^2 / (1 + e^2) = 7.389 / 8.389 for one row in place of another."""
    assert allowed(epsilon) == pytest.approx(share, abs=1e-3)
    assert allowed(epsilon, replaced=True) == pytest.approx(of_labels, abs=1e-3)


# ---- masks: why an attack failed


def refused(key: str, column: str) -> str:
    found = attacks.outcome(BY_KEY[key], column, small=True)
    assert not found.recovered
    return found.refused


def test_a_roster_with_invented_participants_is_not_the_block():
    assert "2 keys too many, 3 missing" in refused("invented_participants", "pinned")


def test_a_block_without_the_target_is_no_block():
    assert "0 keys too many, 1 missing" in refused("two_cohorts", "pinned")


def test_a_swapped_key_is_noticed_and_its_hospital_named():
    with Researcher(hospitals(rows=320), "pinned", True) as researcher:
        with pytest.raises(Refused, match="did not confirm the same keys") as error:
            masks.swapped_keys(researcher)
        others = [keys.short(keys.public_of(keys.identity(researcher.hospital(k)))) for k in (2, 3, 4)]
        assert any(name in str(error.value) for name in others)


def test_a_study_whose_sums_would_show_one_hospital_is_not_accepted():
    assert "would show" in refused("two_studies", "pinned")


@pytest.mark.parametrize("column", ["masked", "pinned"])
def test_a_round_is_not_answered_again_with_another_model(column):
    assert "numbers of a job's requests must rise" in refused("another_model", column)


@pytest.mark.parametrize("column", ["masked", "pinned"])
def test_the_same_request_gets_the_same_bytes(column):
    with Researcher(hospitals(rows=320), column, True) as researcher:
        agreed = masks.together(researcher)
        first, second = (masks.moments(researcher, agreed, agreed.members, seq=1)[1] for _ in range(2))
        assert first == second


def test_a_statistic_has_one_weight(monkeypatch):
    """Sums v_1 + v_2 + v_3 + v_4 and n_1 v_1 + ... + n_4 v_4 with n_2 = n_3 = n_4 told v_1 to the last digit."""
    with Researcher(hospitals(rows=320), "pinned", True) as researcher:
        agreed = masks.together(researcher)
        agreed.rows, width = 320, len(researcher.features)
        monkeypatch.setattr(v6_fedavg.fit_step, "sums", {"first": (Sum(width), Mean(width))})
        with pytest.raises(Refused, match="another sum than this node's code declares"):
            masks.moments(researcher, agreed, agreed.members)


def test_a_part_of_a_block_does_not_open():
    with Researcher(hospitals(rows=320), "pinned", True) as researcher:
        agreed = masks.together(researcher)
        sums, answers = masks.moments(researcher, agreed, agreed.members)
        assert agreed.opened(sums, answers)[0] == 4
        assert agreed.opened(sums, {k: answers[k] for k in (1, 2, 3)})[0] != 3


def test_no_refusal_names_a_hospital_whose_rows_cannot_be_computed_with():
    with Researcher(hospitals(rows=320), "pinned", True) as researcher:
        found = masks.largest_value(researcher)
        assert (found.recovered, found.refused, researcher.refusal) == (1, "", "")


def test_a_job_from_before_the_study_does_not_go_on_without_it():
    with Researcher(hospitals(rows=320), "masked", True) as researcher:
        before = researcher.agreed("v6_fedavg")
        researcher.moments()
        studies.make({f"node-{k}": researcher.hospital(k) for k in researcher.tables}, minimum=3)
        before.mode = "pinned"  # as the task says
        with pytest.raises(Refused, match="requires pinned by now"):
            masks.moments(researcher, before, [1])


def test_the_same_task_gets_the_same_answer_also_if_the_node_shuffles_by_itself():
    assert attacks.outcome(BY_KEY["two_attempts"], "careful", small=True).note == "0 of 10 pairs of answers differ"


def test_only_right_rows_count():
    truth = np.random.default_rng(0).normal(size=(20, 5))
    scale = truth.std(axis=0)
    claims = np.concatenate([truth[:3], truth[:3], truth[3:6] + 0.02 * scale, [truth.mean(axis=0)]])
    number, error = matched(claims, truth, scale)
    assert (number, error) == (3, 0.0)  # twice the same row is one row, and a hundredth of a deviation is the most
    assert matched(truth[:2] + 0.005 * scale, truth, scale) == (2, pytest.approx(0.005))


def test_what_chance_finds_is_nothing_that_an_attack_brings():
    """Of 569 values in four deviations, a third is right to a thousandth wherever a claim is: noise alone "found" 6."""
    with Researcher(hospitals(), "pinned", True) as researcher:
        k = researcher.finest()
        column, values = researcher.features[k], researcher.truth[:, k]
        guesses = np.random.default_rng(1).normal(values.mean(), values.std(), 100)
        by_chance = researcher.found_values({column: guesses.tolist()})
        exact = researcher.found_values({column: values[:20].tolist()})
    assert by_chance.recovered > 10 and by_chance.recovered == pytest.approx(by_chance.chance, abs=15)
    assert not by_chance.brought
    assert exact.recovered == 20 and exact.brought


def test_the_numbers_of_the_page_are_measured():
    measured = (ROOT / "benchmarks" / "results" / "attacks.md").read_text()
    page = " ".join((ROOT / "docs" / "privacy.md").read_text().split())
    said = re.findall(r"\d[\d,]* of \d[\d,]* [\w']+(?: \(\d+ of the target\))? in \d[\d,]* tasks?", page)
    assert len(said) >= 8
    assert [text for text in said if text not in measured] == []
