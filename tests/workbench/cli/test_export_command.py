"""``export``: a result's model as a file."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from v6_federated.messages import codec

RUN = ["run", "fedavg", "--data", "wine", "--rounds", "1"]


def test_formats_agree(call, tmp_path):
    call("run", "fedavg", "--data", "digits", "--model", "fnn:hidden=7", "--rounds", 1, "--out", tmp_path)
    for name in ("m.npz", "m.safetensors", "m.pt"):
        assert call("export", tmp_path / "result.json", "--to", tmp_path / name)[:2] == (
            0,
            {"model": str(tmp_path / name)},
        )
    state = torch.load(tmp_path / "m.pt", weights_only=True)
    safe, arrays = load_file(tmp_path / "m.safetensors"), np.load(tmp_path / "m.npz")
    assert state["layer1.weight"].shape == (7, 64)  # as torch.nn.Linear has it
    for name, tensor in state.items():
        np.testing.assert_array_equal(tensor.numpy(), safe[name])
        np.testing.assert_array_equal(safe[name], arrays[name])
    result = json.loads((tmp_path / "result.json").read_text())
    w = codec.decode(result["weights"])["weights"]
    np.testing.assert_array_equal(safe["layer1.weight"].T.ravel(), w[: 64 * 7])


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("m.onnx", "cannot export to m.onnx; expected a file that ends in .npz, .safetensors, .pt, .txt"),
        ("m.txt", "a logreg model cannot be a .txt; expected .npz, .safetensors or .pt"),
        ("new/m.txt", "a logreg model cannot be a .txt; expected .npz, .safetensors or .pt"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(to, says, call, refused, tmp_path):
    call(*RUN, "--out", tmp_path)
    refused(says, "export", tmp_path, "--to", tmp_path / to)
    assert not (tmp_path / "new").exists()


def test_a_result_without_a_model_is_not_exported(call, refused, tmp_path):
    assert call(*RUN, "--out", tmp_path)[0] == 0
    file = tmp_path / "result.json"
    result = json.loads(file.read_text())
    for part in ("data", "model", "weights"):
        says = f"is not a result ({part}: it is missing); expected a result.json"
        file.write_text(json.dumps({name: value for name, value in result.items() if name != part}))
        for ending in (".npz", ".safetensors", ".pt", ".txt"):
            model = tmp_path / f"m{ending}"
            refused(says, "export", file, "--to", model)
            assert not model.exists()
        refused(says, "predict", file, "--data", "wine", "--out", tmp_path / "p.csv")
