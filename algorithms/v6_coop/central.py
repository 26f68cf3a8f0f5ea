"""The server of CO-OP."""

from collections import Counter
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from v6_federated import (
    LARGE,
    Answer,
    CollectResultsError,
    Federation,
    LocalSGD,
    Number,
    Result,
    Rounds,
    UserInputError,
    central,
)

MOVES = "each answer moves the model when it comes"

AgeLower = Annotated[
    int | None,
    Field(
        ge=0, le=LARGE, description="b_l, age difference below which a node is overactive (unset: K // 6, at least 1)"
    ),
    Number,
]
AgeUpper = Annotated[
    int | None,
    Field(
        ge=1,
        le=LARGE,
        description="b_u, age difference above which a model is outdated (unset: K // 2 + 1, at least 10 and 2 b_l)",
    ),
    Number,
]


@central(single_answers=MOVES, private=True)
def central(
    federation: Federation,
    *,
    rounds: Rounds,
    age_lower: AgeLower = None,
    age_upper: AgeUpper = None,
    local: LocalSGD = LocalSGD(),
) -> Result:
    """CO-OP: Wang 2017; Nilsson et al. 2018, Algorithm 3. Asynchronous: each model is merged when it arrives.

    With noise a node is called ``rounds`` times at most, as its plan holds so many steps; then it is done. The job ends
    when no node is left that could be merged.

    Symbols: K nodes, w (d,) and a the global model and its age, a_k the age of node k's model, b_l = age_lower and
    b_u = age_upper the filter on a - a_k, E = epochs. A round is K merges. What leaves a node: its model after E
    epochs, n_k, its mean training loss, and counts of how w does on its held-out rows. Bytes: 16/3 d up for each
    answer, 16/3 d down for each that was merged or outdated.
    """
    K = federation.organizations
    b_l, b_u = age_filter(len(K), age_lower, age_upper)
    federation.keep_state()  # w_k, from which an overactive node trains on
    # calls: how often each node has been called
    s = federation.start(w=federation.initial_weights, a=b_l, a_k=dict.fromkeys(K, 0), calls=dict.fromkeys(K, 0))

    def train(k: int, **model: Any) -> None:
        """Have node k train, from the model that it is sent or, without one, from its own."""
        if federation.plan is not None and s.calls[k] == rounds:
            return
        s.calls[k] += 1
        federation.send("client_update", k, s.calls[k], **model, local=local, values=["state_lost"])

    for t in federation.rounds(rounds):
        federation.evaluate(s.w)
        begin = not federation.at_work()
        for k in federation.idle():  # all nodes at the beginning, later those that have failed
            s.a_k[k] = s.a - b_l if begin else s.a
            train(k, weights=s.w)
        arrived: list[Answer] = []
        merged = 0
        while merged < len(K):
            differences = {k: s.a - s.a_k[k] for k in federation.at_work()}
            if federation.plan is not None and max(differences.values(), default=-1) < b_l:
                break  # all others are done
            _check_deadlock(t, differences, b_l)
            answer = federation.next_answer()
            if answer is None:  # a node has failed
                continue
            k = answer.organization_id
            difference = s.a - s.a_k[k]
            if difference > b_u or "weights" not in answer.arrays:  # or the node has lost its model
                outcome = "outdated"
                s.a_k[k] = s.a
                train(k, weights=s.w)  # w_k <- w, a_k <- a
            elif difference < b_l:
                outcome = "overactive"
                train(k)  # continue
            else:
                outcome = "merged"
                alpha = (difference + 1) ** -0.5
                s.w = s.w + np.float32(alpha) * (answer["weights"] - s.w)  # (1 - alpha) w + alpha w_k
                s.a += 1
                merged += 1
                s.a_k[k] = s.a
                train(k, weights=s.w)  # return w, a
            answer.values.update(outcome=outcome, age_difference=difference, place=len(arrived))
            arrived.append(answer if outcome == "merged" else replace(answer, arrays={}))
        if not arrived:
            break
        outcomes = Counter(a.values["outcome"] for a in arrived)
        federation.record(
            arrived,
            s.w,
            participants=sorted({a.organization_id for a in arrived if a.values["outcome"] == "merged"}),
            age=s.a,
            age_lower=b_l,
            age_upper=b_u,
            uploads=merged,
            overactive=outcomes["overactive"],
            outdated=outcomes["outdated"],
        )
    return federation.result(s.w)


def age_filter(K: int, low: int | None, up: int | None) -> tuple[int, int]:
    """Settle b_l and b_u.

    If unset, they are in Nilsson's proportion (16 and 51 for 100 nodes). For few nodes b_l is 1, so that no node is
    merged twice in a row, and b_u is 10, so that slow nodes are merged too.

    Args:
        K: number of nodes.
        low: b_l, if it is set.
        up: b_u, if it is set.

    Returns:
        b_l and b_u.

    Raises:
        UserInputError: b_l and b_u that deadlock for certain (the first two reasons) or may deadlock (the third;
            Nilsson et al. 2018, Appendix A.4).
    """
    b_l = max(K // 6, min(1, K - 1)) if low is None else low
    b_u = max(K // 2 + 1, 2 * b_l, 10) if up is None else up
    if b_l >= b_u:
        raise UserInputError(
            f"age_lower={b_l} and age_upper={b_u} are refused: no age would be merged (deadlock); expected age_lower < "
            "age_upper"
        )
    if b_l >= K:
        raise UserInputError(
            f"age_lower={b_l} is refused: with {K} nodes every one would be overactive in the end, each waiting for "
            f"more merges than the others can make (deadlock); expected age_lower < {K}"
        )
    if b_u < 2 * b_l:
        raise UserInputError(
            f"age_lower={b_l} and age_upper={b_u} are refused: once nodes are outdated all may be overactive at once "
            f"(deadlock); expected age_upper of at least {2 * b_l}, twice age_lower"
        )
    return b_l, b_u


def _check_deadlock(t: int, differences: dict[int, int], b_l: int) -> None:
    """End the job if all nodes at work are overactive, which failed nodes can cause.

    The age grows with merges alone: if no difference has reached b_l by now, none ever will.
    """
    if differences and max(differences.values()) < b_l:
        raise CollectResultsError(
            f"round {t}: deadlock: all {len(differences)} nodes at work are overactive (age difference below age_lower "
            f"= {b_l}) and none can be merged; a smaller age_lower helps"
        )
