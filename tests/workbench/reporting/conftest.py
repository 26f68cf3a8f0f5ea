"""Results that are short."""

import pytest


@pytest.fixture
def result_of():
    """Makes a result with a round for each accuracy; ``distances``: (organization, round, distance)."""

    def result_of(accuracy=(0.5, 0.6), loss=(1.0, 0.9), distances=(), **more):
        history = [
            {"round": t, "participants": [1, 2], "accuracy": a, "loss": b, "bytes_up": 1, "bytes_down": 1}
            for t, (a, b) in enumerate(zip(accuracy, loss, strict=True), start=1)
        ]
        per_node = [{"organization_id": k, "round": t, "distance": d} for k, t, d in distances]
        return {"method": "fedavg", "history": history, "per_node": per_node, **more}

    return result_of
