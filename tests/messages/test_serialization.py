"""Messages as they are sent: size and digest."""

import hashlib
import json

import numpy as np

from v6_federated.messages import codec, serialization


def test_the_size_of_a_message_is_that_of_its_json():
    message = {"method": "x", "kwargs": {"arrays": codec.encode({"w": np.ones(100)}), "list": [1, {"a": None}, "é"]}}
    assert serialization.size(message) == len(json.dumps(message).encode())


def test_no_message_has_the_digest_of_another():
    """Not even one that has what stands for a payload's data in its place."""
    payload = codec.encode({"w": np.zeros(3)})
    other = codec.encode({"w": np.ones(3)})
    sha256 = hashlib.sha256(payload["data"].encode()).hexdigest()
    messages = [
        payload, other, {**payload, "data": serialization.HOLE}, {**payload, "data": sha256}, {**payload, "data": None},
        {"dtype": "float32", "shapes": {"w": [3]}, "sha256": sha256}, {**payload, "data": "\ud800"},
        [payload, other], [other, payload], [payload, sha256], [payload], {"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"},
    ]  # fmt: skip
    assert len({serialization.digest(message) for message in messages}) == len(messages)
    assert serialization.digest(dict(payload)) == serialization.digest(payload)
