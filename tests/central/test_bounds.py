"""Bounds of what one node may send: fixed rows, shares, norms of updates, bytes and names."""

import json

import numpy as np
import pytest
from four_nodes import NODES, at, edited, run
from helpers import OPEN, table
from vantage6.algorithm.client import AlgorithmClient
from vantage6.algorithm.tools.exceptions import CollectResultsError

from v6_federated.base import vantage6_api
from v6_federated.base.errors import SafeError
from v6_federated.central.answer import REST, Answer, Call, Expected, Unusable, usable
from v6_federated.central.answers import Answers
from v6_federated.central.bounds import Bounds, norms
from v6_federated.central.tolerance import ROUND_TIMEOUT, Tolerance
from v6_federated.data.source import split
from v6_federated.messages import codec
from v6_federated.messages.common import Common
from v6_federated.messages.local_sgd import BatchSize
from v6_workbench.conformance.interruptions import lost_and_started_again
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork


class Minibatches(Common):
    """Settings of a method with minibatches."""

    batch_size: BatchSize = None


def answer(k: int, n: int = 100, evaluated: int | None = None, **arrays) -> Answer:
    values = {} if evaluated is None else {"evaluation": {"n": evaluated}}
    return Answer(k, n, {name: np.asarray(a, np.float32) for name, a in arrays.items()}, values, 0, 0, "f")


def bounds(rows: dict[int, int], common: Common | None = None, evaluators=()) -> Bounds:
    """Bounds of a job whose nodes have described these rows."""
    found = Bounds(common or Common(), evaluators)
    for k, n in rows.items():
        assert found.what_is_wrong(answer(k, n)) is None
    return found


def measured(sizes: dict[int, float]) -> dict[int, dict[str, float]]:
    return {k: {"w": size} for k, size in sizes.items()}


# ---- rows


def test_the_first_number_of_rows_holds_for_the_whole_job():
    found = bounds({1: 100, 2: 40})
    assert found.what_is_wrong(answer(2, 41)) == (
        "sent n=41, but described 40 rows; expected the same rows in the whole job"
    )
    assert found.what_is_wrong(answer(2, 40)) is None and found.what_is_wrong(answer(2, 0)) is None


@pytest.mark.parametrize(
    ("holdout", "n", "most"),
    # a node with step rows at least holds max(step, step * round(holdout * all / step)) of all its rows out
    [(0.2, 100, 100), (0.5, 100, 200), (0.9, 100, 1400), (0.0, 100, 100)],
)
def test_an_evaluation_has_no_more_rows_than_can_be_held_out(holdout, n, most):
    found = bounds({1: n}, Common(holdout=holdout))
    assert "expected" in found.what_is_wrong(answer(1, n, most + 1))
    assert found.what_is_wrong(answer(1, n, most)) is None
    assert "but of" in found.what_is_wrong(answer(1, n, most - 1)), "the same rows are evaluated each time"


def test_the_limit_of_rows_held_out_is_never_below_what_an_honest_node_holds_out():
    for holdout in (0.05, 0.2, 0.5, 0.8, 0.9):
        for step in (1, 3, 10):
            for n in range(2 * step, 300, 7):
                kept, held = split(n, holdout, 1, step)
                if len(kept) >= step:  # fewer are refused by the node
                    found = bounds({1: len(kept)}, Common(holdout=holdout))
                    assert found.what_is_wrong(answer(1, len(kept), len(held))) is None, (holdout, step, n)


def test_one_node_may_have_all_rows_and_the_share_is_of_those_that_train():
    bounds({1: 1000}).check_shares("round 0, describe")
    bounds({1: 80, 2: 20}).check_shares("round 0, describe")
    bounds({1: 40, 2: 20, 9: 100_000}, evaluators=[9]).check_shares("round 0, describe")
    with pytest.raises(CollectResultsError) as error:
        bounds({1: 81, 2: 19}).check_shares("round 0, describe")
    assert str(error.value) == (
        "round 0, describe: organization 1: says that it has 81 of 100 rows, a share of 0.81; expected 0.8 at most. "
        "If it really is that large, and its rows may decide the result nearly alone, use --set maximum_share=0.81; "
        "otherwise, ask it to correct its table"
    )
    bounds({1: 81, 2: 19}, Common(maximum_share=0.81)).check_shares("round 0, describe")


def test_a_large_node_that_joins_later_is_compared_too():
    """Organization 4 describes nothing and claims its rows in round 1."""
    nodes = {**NODES, 4: table(2000, seed=4)}
    lost = CallOutcome(status="crashed")
    result = run(at([4], lost, "describe"), nodes=nodes, min_responses=3, retries=0, maximum_share=1)
    assert [row["participants"] for row in result["history"]] == [[1, 2, 3, 4]] * 2
    with pytest.raises(CollectResultsError, match="round 1, client_update: organization 4: says that it has 1600 of"):
        run(at([4], lost, "describe"), nodes=nodes, min_responses=3, retries=0)


def later_rows(call) -> CallOutcome:
    """Organization 2 sends one row more from its third round of training on."""
    lies = call.organization == 2 and call.function == "client_update" and call.round > 2
    return CallOutcome(1.0, alter=(lambda a: {**a, "n": a["n"] + 1}) if lies else None)


@pytest.mark.parametrize("method", ["fedavg", "coop"])
def test_rows_hold_after_an_interruption(method):
    """Central is lost in round 2 and started again; the nodes do not describe their data again."""
    restarted = lost_and_started_again(
        f"v6_{method}",
        NODES,
        lambda call: call.function == "client_update" and call.round == 2,
        later_rows,
        **{"rounds": 4, "classes": [0, 1]},
    )
    assert "describe" not in {call.function for call in restarted.after}
    assert "organization 2: sent n=17, but described 16 rows" in restarted.ended.problem


@pytest.mark.parametrize("method", ["fedavg", "coop"])
def test_rows_hold_in_a_resumed_job(method):
    result = json.loads(json.dumps(run(None, method, rounds=1)))
    assert {row["organization_id"]: row["n"] for row in result["per_node"]}[2] == 16
    again = run(at([2], edited(n=17)), method, rounds=4, resume=result)
    assert "organization 2: sent n=17, but described 16 rows" in again["stopped"]


def test_a_checkpoint_keeps_all_that_answers_are_compared_with():
    found = bounds({1: 100, 2: 40, 3: 40})
    found.what_is_wrong(answer(1, 100, 20))
    found.check_norms("round 1, f", "f", measured({1: 1.0, 2: 1.0, 3: 1.0}))
    again = Bounds(Common())
    again.restore(json.loads(json.dumps(found.snapshot())))
    assert again.snapshot() == found.snapshot()
    assert "but of 20 before" in again.what_is_wrong(answer(1, 100, 10))
    with pytest.raises(CollectResultsError, match="organization 3: sent w"):
        again.check_norms("round 2, f", "f", measured({3: 16.0}))


# ---- norms


def test_an_update_is_the_change_of_what_was_sent_under_the_same_name():
    a = answer(1, weights=[3.0, 4.0], dy=[0.0, 2.0])
    assert norms(a, {"weights": np.float32([3, 1])}, {}) == {"weights": 3.0, "dy": 2.0}
    assert norms(a, {}, {"dy": None, "twice": lambda a: 2 * a["dy"]}) == {"weights": 5.0, "twice": 4.0}


def test_a_norm_above_the_ratio_ends_the_job_and_says_what_to_change():
    rows = dict.fromkeys((1, 2, 3, 4), 100)
    bounds(rows).check_norms("round 1, f", "f", measured({1: 1, 2: 1, 3: 1, 4: 10.0}))
    with pytest.raises(CollectResultsError) as error:
        bounds(rows).check_norms("round 1, f", "f", measured({1: 1, 2: 1, 3: 1, 4: 10.1}))
    assert str(error.value) == (
        "round 1, f: organization 4: sent w with an update of norm 10.1, 10.1 times the median of 4 nodes; expected 10 "
        "times at most. Ask it whether its columns have the units and codes of the others'; if its rows do differ so "
        "much, use --set maximum_norm_ratio=30"
    )
    bounds(rows, Common(maximum_norm_ratio=11)).check_norms("r", "f", measured({1: 1, 2: 1, 3: 1, 4: 10.1}))
    bounds(rows).check_norms("r", "f", measured({1: 1, 2: 1, 3: 1, 4: 0.0}))  # small ones are no problem
    bounds(rows).check_norms("r", "f", measured({1: 0, 2: 0, 3: 0, 4: 1}))  # nothing to compare with


def test_two_nodes_are_not_compared_but_three_calls_of_one_node_each_are():
    found = bounds({1: 100, 2: 100, 3: 100})
    found.check_norms("r", "f", measured({1: 1.0, 2: 1000.0}))
    found = bounds({1: 100, 2: 100, 3: 100})
    for k, size in ((1, 1.0), (2, 1000.0)):  # as asynchronous answers come, or with fraction=0
        found.check_norms("r", "f", measured({k: size}))
    with pytest.raises(CollectResultsError, match="organization 2: sent w"):
        found.check_norms("r", "f", measured({3: 1.0}))


def test_updates_that_had_nothing_to_be_compared_with_are_compared_later():
    found = bounds({1: 100, 2: 100, 3: 100, 4: 100})
    found.check_norms("r", "f", measured({1: 0.0, 2: 0.0, 3: 0.0, 4: 1000.0}))
    with pytest.raises(CollectResultsError, match="organization 4: sent w"):
        found.check_norms("r", "f", measured({1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}))


def test_nodes_are_not_blamed_when_the_others_have_converged():
    """Node 3 has rows that are hard to fit; 4 was offline, and the model has been trained without it."""
    found = bounds({1: 100, 2: 100, 3: 100, 4: 100})
    for t in range(8):
        found.check_norms("r", "f", measured({1: 0.1**t, 2: 0.1**t, 3: 2.0}))
    found.check_norms("r", "f", measured({1: 0.1**8, 2: 0.1**8, 3: 2.0, 4: 9.0}))
    with pytest.raises(CollectResultsError, match="organization 3: sent w"):
        found.check_norms("r", "f", measured({1: 0.1**9, 2: 0.1**9, 3: 60.0, 4: 1.0}))


def test_a_liar_cannot_raise_the_median_little_by_little():
    found = bounds({1: 100, 2: 100, 3: 100, 4: 100})
    found.check_norms("r", "f", measured({1: 1, 2: 1, 3: 1, 4: 9}))
    with pytest.raises(CollectResultsError, match="organization 4: sent w"):
        found.check_norms("r", "f", measured({1: 1, 2: 1, 3: 1, 4: 81}))


@pytest.mark.parametrize(
    ("batch_size", "rows", "sizes", "allowed"),
    [
        # on minibatches, 30 times as many rows are 30 times as many steps
        (10, {1: 100, 2: 100, 3: 100, 4: 3000}, {1: 1, 2: 1, 3: 1, 4: 30}, True),
        (10, {1: 100, 2: 100, 3: 100, 4: 3000}, {1: 1, 2: 1, 3: 1, 4: 301}, False),
        (None, {1: 100, 2: 100, 3: 100, 4: 3000}, {1: 1, 2: 1, 3: 1, 4: 30}, False),
        # the gradient of few rows is noisier: with 1 / 400 of the rows 20 times as much
        (None, {1: 4000, 2: 4000, 3: 4000, 4: 10}, {1: 1, 2: 1, 3: 1, 4: 20}, True),
        (None, {1: 4000, 2: 4000, 3: 4000, 4: 10}, {1: 1, 2: 1, 3: 1, 4: 201}, False),
    ],
)
def test_nodes_with_other_numbers_of_rows_may_have_other_updates(batch_size, rows, sizes, allowed):
    found = bounds(rows, Minibatches(batch_size=batch_size))
    if allowed:
        found.check_norms("r", "f", measured(sizes))
    else:
        with pytest.raises(CollectResultsError, match="organization 4: sent w"):
            found.check_norms("r", "f", measured(sizes))


# ---- bytes and names


def call(**expected) -> Call:
    return Call("f", 1, 1, {}, 0, "", Expected(**expected))


def sent(**values) -> dict:
    return {"organization_id": 1, "round": 1, "n": 100, **values}


def test_an_answer_has_no_more_bytes_than_its_arrays_need():
    shapes = {"w": (1000, None), "trees": (range(1, 11), 3), "d": (5,)}
    expected = Expected(arrays=shapes)
    assert expected.most_bytes == (30 + 5) * 8 * 4 // 3 + REST, "a length without a limit gets none of its own"
    payload = codec.encode({"d": np.ones(5)})
    assert usable(sent(arrays=payload), call(arrays={"d": (5,)}))["d"].tolist() == [1] * 5
    with pytest.raises(Unusable, match=r"sent 20,000,\d+ bytes; expected 16,000,053 at most"):
        usable(sent(arrays={**payload, "data": payload["data"] + "A" * 20_000_000}), call(arrays={"d": (5,)}))
    with pytest.raises(Unusable, match=r"expected 16,000,000 at most"):
        usable(sent(label="x" * 20_000_000), call(parts=frozenset(["label"])))


def test_a_length_must_lie_in_its_range():
    arrays = {"t": (range(1, 4), 3)}
    for m in (1, 3):
        assert len(usable(sent(arrays=codec.encode({"t": np.ones((m, 3))})), call(arrays=arrays))["t"]) == m
    for m in (0, 4):
        with pytest.raises(Unusable, match=r"sent t of shape \(\d, 3\); expected \(1 to 3, 3\)"):
            usable(sent(arrays=codec.encode({"t": np.ones((m, 3))})), call(arrays=arrays))


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"x": 1.0}, "sent 1 unknown value(s): x; expected arrays, n, organization_id, q, round, train_loss"),
        ({"evaluation": {"n": 0}}, "sent 1 unknown value(s): evaluation; expected"),
        ({"k" * 10**6: 1, "l": 1, "m": 1, "o": 1}, f"sent 4 unknown value(s): {'k' * 40}, l, m, ...; expected"),
        ({"q": [1]}, "sent no proper q; expected a number, true, false or null"),
        ({"q": 10**30}, "sent JSON with a whole number of more than 64 bits; expected smaller numbers"),
        ({"arrays": codec.encode({"x": np.ones(1)})}, "sent the arrays ['x']; expected []"),
    ],
)
def test_names_that_nobody_asked_for_are_refused(extra, says):
    assert usable(sent(q=1.5), call(values=frozenset(["q"]))).values == {"q": 1.5}
    with pytest.raises(Unusable) as error:
        usable(sent(**extra), call(values=frozenset(["q"])))
    assert str(error.value).startswith(says)


# ---- time, and sums


def test_a_round_on_real_nodes_ends_after_an_hour():
    assert ROUND_TIMEOUT == 3600
    assert Tolerance.of(Common(), 1, on_a_node=True).round_timeout == ROUND_TIMEOUT
    assert Tolerance.of(Common(round_timeout=9999), 1, on_a_node=True).round_timeout == 9999
    assert Tolerance.of(Common(), 1, on_a_node=False).round_timeout is None
    with MockNetwork("v6_fedavg", NODES, environment=OPEN) as network:
        assert not vantage6_api.on_a_node(network.client())
    assert vantage6_api.on_a_node(object.__new__(AlgorithmClient))


def test_a_sum_that_is_not_finite_blames_nobody():
    """Each answer is finite in float32; the sum of two is not."""
    most = np.finfo(np.float32).max
    answers = Answers([answer(1, w=[most]), answer(2, w=[most])])
    assert answers.mean("w").tolist() == [most]
    with pytest.raises(SafeError) as error:
        answers.sum("w")
    assert str(error.value) == (
        "f: the weighted sum of w over 2 nodes is not finite in float32, although each answer is; training "
        "has diverged; try a smaller lr, or put columns on one scale (--preprocess standardize)"
    )
