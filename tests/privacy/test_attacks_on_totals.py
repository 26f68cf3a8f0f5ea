"""The attacks on single hospitals' totals find them if one cure is left out, so that nothing found means something."""

import numpy as np
import pytest
from benchmarks.attacks import totals
from benchmarks.attacks.registry import ATTACKS
from benchmarks.attacks.researcher import Researcher, hospitals

from v6_federated.data import statistics
from v6_federated.gate import call, under_masks
from v6_federated.masks import exact, summing
from v6_federated.masks.exact import Exact
from v6_federated.node.node import Node
from v6_federated.node.state import State


def changes_are_what_is_left_of_the_model(patch):
    patch.setattr(Node, "_carries", property(lambda node: False))


def means_are_centred(patch):
    def about(X, center):
        count, off = len(X), X.mean(axis=0) - center
        return {
            "count": np.full(X.shape[1], count),
            "first": count * off,
            "second": ((X - X.mean(axis=0)) ** 2).sum(axis=0),
        }

    patch.setattr(statistics, "about", about)


def scales_have_no_bounds(patch):
    patch.setattr(statistics, "check_scale", lambda *numbers: None)


def states_are_of_the_last_request(patch):
    load = State.load

    def of_the_last_request(state, round_):
        found = load(state, round_)
        state.loaded_stamp = b"" if found is None else bytes([round_])
        return found

    patch.setattr(State, "load", of_the_last_request)


def rows_are_divided_by_all_rows(patch):
    real = summing._value

    def value(part, sums, found, n, nodes):
        if part.weight == "share":
            return np.asarray(found[part.name].array, np.float64) * (n / sums.rows)
        return real(part, sums, found, n, nodes)

    patch.setattr(summing, "_value", value)


def large_sums_fail(patch):
    real = call._summands

    def bounded(node, *more):
        found = real(node, *more)
        loss = found.get("train_loss")
        assert not isinstance(loss, Exact) or loss.floats()[0] < 2.0**260
        return found

    patch.setattr(call, "_summands", bounded)
    patch.setattr(exact, "MOST", 2.0**400)
    patch.setattr("v6_federated.models.outcomes.MOST", 1e150)


def shares_are_compared_to_six_digits(patch):
    real = under_masks._check_holdout
    patch.setattr(under_masks, "_check_holdout", lambda folder, holdout: real(folder, float(f"{holdout:g}")))


ROWS = 317  # with other rows, two hospitals may have the same number of patients
WITHOUT = {
    totals.large_model: changes_are_what_is_left_of_the_model,
    totals.resumed_scaffold: changes_are_what_is_left_of_the_model,
    totals.far_center: means_are_centred,
    totals.tiny_scale: scales_have_no_bounds,
    totals.kept_state: states_are_of_the_last_request,
    totals.shares_of_rows: rows_are_divided_by_all_rows,
    totals.losses_that_fail: large_sums_fail,
    totals.shares_held_out: shares_are_compared_to_six_digits,
}
OF_TOTALS = {attack.run: attack for attack in ATTACKS if attack.run.__module__ == totals.__name__}


def test_each_attack_on_totals_has_its_cure():
    assert {*OF_TOTALS} == {*WITHOUT}


@pytest.mark.parametrize("run", WITHOUT, ids=[run.__name__ for run in WITHOUT])
def test_without_its_cure_the_attack_finds_what_it_looks_for(run, monkeypatch):
    """With it, it finds nothing: see ``test_attacks.py``."""
    attack = OF_TOTALS[run]
    WITHOUT[run](monkeypatch)
    with Researcher(hospitals(attack.data, ROWS), attack.columns[0], True) as researcher:
        found = run(researcher)
    assert found.brought and found.recovered >= (3 if found.unit == totals.HOSPITALS else 1), found
