"""The units of masked numbers follow from public sums, block by block; sums that are too large wrap, and come again."""

import itertools

import numpy as np
import pytest
from helpers import table
from masked_jobs import QUICK, Tape, apart, learned, nodes, run

from v6_federated.central import blocks
from v6_federated.masks import encoding
from v6_workbench.simulation.mock import MockNetwork


def asked(tape: Tape, first: int) -> list[tuple[int, int, int]]:
    """Round, bits and e of the update in each request, as a block's first member was asked."""
    found = []
    for k, message in tape.calls:
        if k == first and message["method"] == "client_update":
            [(bits, e)] = message["kwargs"]["sums"]["units"]
            found.append((message["kwargs"]["round"], bits, e))
    return found


def test_the_first_sum_has_64_bits_and_the_others_32():
    tape = Tape()
    run("v6_fedavg", nodes(4), "masked", outcomes=tape, **{**QUICK, "rounds": 6})
    requests = asked(tape, 1)
    assert [(round_, bits) for round_, bits, _ in requests] == [(1, 64)] + [(t, 32) for t in range(2, 7)]
    e = [e for _, _, e in requests[1:]]
    assert all(later >= before - 1 for before, later in itertools.pairwise(e)) and max(e) < 5


@pytest.mark.parametrize("mode", ["masked", "pinned"])
def test_numbers_that_wrap_come_again_in_64_bits(mode, tmp_path, monkeypatch):
    """The unit follows from the sum before. Here it is made much too fine, so that the sums of round 2 wrap."""
    monkeypatch.setattr(blocks, "ROOM", -9)
    tape, K = Tape(), 4 if mode == "masked" else 10
    settings = {**QUICK, "rounds": 3, "holdout": 0}
    size = 5 if mode == "pinned" else None
    result = run("v6_fedavg", nodes(K), mode, tmp_path, size=size, outcomes=tape, **settings)
    requests = asked(tape, 1)
    assert [(round_, bits) for round_, bits, _ in requests] == [(1, 64), (2, 32), (2, 64), (3, 32), (3, 64)]
    plain = run("v6_fedavg", nodes(K), "plain", **settings)
    assert apart(learned(result)["weights"], learned(plain)["weights"]) < 1e-5
    history = result["history"]
    assert history[1]["bytes_up"] > history[0]["bytes_up"]  # both requests are counted
    assert [row["participants"] for row in history] == [row["participants"] for row in plain["history"]]


@pytest.mark.parametrize("package", ["v6_scaffold", "v6_fsvrg", "v6_colearning"])
def test_every_method_asks_again(package, monkeypatch):
    """SCAFFOLD's nodes keep c_k twice in such a round."""
    monkeypatch.setattr(blocks, "ROOM", -9)
    settings = {"rounds": 4, "classes": [0, 1], **({} if package == "v6_fsvrg" else {"lr": 0.1})}
    tape = Tape()
    result = run(package, nodes(4), "masked", outcomes=tape, **settings)
    assert sum(message["method"] == "client_update" and k == 1 for k, message in tape.calls) > 4
    plain = run(package, nodes(4), "plain", **settings)
    assert apart(learned(result)["weights"], learned(plain)["weights"]) < 1e-5


def test_each_block_has_its_own_unit(tmp_path):
    """One block's numbers are large. The other's are not made coarse."""
    databases = nodes(10)
    for k in range(1, 6):
        databases[k] = databases[k].assign(x0=lambda rows: 3000 * rows["x0"])
    tape = Tape()
    settings = {**QUICK, "rounds": 4, "lr": 0.01, "holdout": 0}
    result = run("v6_fedavg", databases, "pinned", tmp_path, size=5, outcomes=tape, **settings)
    large, small = (([e for _, bits, e in asked(tape, k) if bits == 32]) for k in (1, 6))
    assert max(small) + 5 < min(large)
    plain = run("v6_fedavg", databases, "plain", **settings)
    assert apart(learned(result)["weights"], learned(plain)["weights"]) < 1e-5


@pytest.mark.parametrize("package", ["v6_fedavg", "v6_scaffold"])
def test_opposite_hospitals_do_not_end_a_job(package):
    """Their updates cancel, so that the sum is far below each: each may wrap, if the sum does not."""
    one, three = table(40, seed=1), table(40, seed=3)
    mirrored = one.assign(label=1 - one["label"])
    three = three.assign(label=np.random.default_rng(0).permutation(three["label"]))
    settings = {"rounds": 12, "lr": 0.5, "epochs": 10, "batch_size": 10, "classes": [0, 1], "holdout": 0}
    databases = {1: one, 2: mirrored, 3: three}
    result = run(package, databases, "masked", **settings)
    assert apart(learned(result)["weights"], learned(run(package, databases, "plain", **settings))["weights"]) < 1e-4


def test_updates_that_become_small_stay_exact():
    """The unit falls with them, by one power of two a round."""
    settings = {**QUICK, "rounds": 30, "lr": 1.0, "lr_decay_round": 0.5}
    result = run("v6_fedavg", nodes(3), "masked", **settings)
    plain = run("v6_fedavg", nodes(3), "plain", **settings)
    assert apart(learned(result)["weights"], learned(plain)["weights"]) < 1e-5


@pytest.mark.parametrize("lr", [1e4, 1e10, 1e20, 1e30])
def test_training_that_diverges_ends_as_the_plain_job_does(lr):
    """With a result or a reason; numbers beyond the units are asked for again in coarser ones, a few times at most."""
    ends = []
    for mode in ("plain", "masked"):
        settings = {**QUICK, "rounds": 3, "lr": lr, "model": "fnn:hidden=5"}
        try:
            with np.errstate(all="ignore"):
                result = run("v6_fedavg", nodes(3), mode, stops=None, **settings)
            ends.append(result.get("stopped", ""))
        except Exception as error:
            ends.append(str(error))
    plain, masked = ends
    assert bool(plain) == bool(masked), ends
    assert not masked or "diverge" in masked or "beyond" in masked, ends


def test_careful_nodes_dither_and_learn_the_same(monkeypatch):
    """Random numbers of their own before rounding: another last bit, and the same model within the rounding."""
    careful = {"V6_FEDERATED_PROFILE": "careful"}
    settings = {"rounds": 3, "lr": 0.3, "aggregation": "masked", "classes": [0, 1], "holdout": 0.0}
    found, drawn, real = [], [], encoding.dither
    for silent in (False, True):
        monkeypatch.setattr(
            encoding, "dither", lambda *a, silent=silent: drawn.append(1) or (0 * real(*a) if silent else real(*a))
        )
        with MockNetwork("v6_fedavg", nodes(4, n=80), environment=careful, on_round=lambda row: None) as network:
            found.append(learned(network.run(**settings))["weights"])
    assert len(drawn) > 20
    assert apart(found[0], found[1]) < 1e-6
