"""Training that starts from a file."""

import hashlib

import numpy as np
import pytest
from helpers import train

from v6_federated import SafeError, UserInputError, models
from v6_federated.central import start_file
from v6_federated.rules.policy import Policy
from v6_workbench.reporting import export

MODEL = models.build({"name": "fnn", "features": 4, "classes": 2, "hidden": 3})
DRAWN = np.arange(MODEL.size, dtype=np.float32)


def saved(folder, **arrays):
    file = folder / "start.npz"
    np.savez(file, **arrays)
    return file


def test_a_job_starts_from_the_weights_of_an_exported_model(hospitals, tmp_path):
    first = train("v6_fedavg", hospitals, rounds=2, lr=0.3, model="fnn:hidden=3")
    file = tmp_path / "first.npz"
    export.save(first, file)
    on = train("v6_fedavg", hospitals, rounds=1, lr=0.0, model="fnn:hidden=3", start_from=str(file))
    assert on["weights"] == first["weights"]  # a learning rate of zero changes nothing
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert on["started_from"] == {"file": "first.npz", "sha256": digest, "drawn": []}
    assert "started_from" not in first
    assert train("v6_fedavg", hospitals, rounds=2, lr=0.0, model="fnn:hidden=3", resume=on)["started_from"]


def test_layers_that_the_file_lacks_are_drawn(tmp_path):
    W = np.full((4, 3), 7.0)
    file = saved(tmp_path, **{"layer1.weight": W})
    w, said = start_file.read(str(file), Policy.of("trusting"), MODEL, DRAWN, False)
    np.testing.assert_array_equal(w[:12], 7)
    np.testing.assert_array_equal(w[12:], DRAWN[12:])
    assert said["drawn"] == ["layer1.bias", "layer2.weight", "layer2.bias"] and w.dtype == np.float32


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"weights": np.zeros(3)}, r"weights of shape \(3,\); this model has \(23,\)"),
        ({"weights": np.zeros(23, int)}, "weights of shape"),
        ({"layer1.weight": np.zeros((3, 4))}, r"layer1.weight has the shape \(3, 4\); this model has \(4, 3\). Leave"),
        ({"conv1.weight": np.zeros(3)}, "holds conv1.weight; expected weights, or layers of the model: layer1.weight"),
        ({}, "holds nothing"),
        ({"weights": np.full(23, np.nan)}, "not finite"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, arrays, says):
    with pytest.raises(SafeError, match=says):
        start_file.read(str(saved(tmp_path, **arrays)), Policy.of("trusting"), MODEL, DRAWN, False)


def test_a_file_that_is_not_there(hospitals, tmp_path):
    for method in ("v6_fedavg", "v6_scaffold", "v6_coop", "v6_dynavg"):
        with pytest.raises(SafeError, match="start_from=none.npz: the file cannot be read"):
            train(method, hospitals, rounds=1, start_from="none.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(SafeError, match="broken archive"):
        train("v6_fedavg", hospitals, rounds=1, start_from=str(tmp_path / "text.npz"))


@pytest.mark.parametrize("name", ["../secret.npz", "/etc/passwd", "a/b.npz", ".npz", "secret", "x.npz\n"])
def test_a_real_node_reads_no_file_outside_its_folder(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOSPITAL_DATABASE_URI", str(tmp_path))
    with pytest.raises(SafeError, match="expected the name of a file, for example start.npz"):
        start_file.read(name, Policy.of("careful"), MODEL, DRAWN, True)


def test_a_real_node_reads_the_folder_models_of_its_hospital_and_follows_no_link(tmp_path, monkeypatch):
    monkeypatch.setenv("HOSPITAL_DATABASE_URI", str(tmp_path))
    (tmp_path / "models").mkdir()
    file = saved(tmp_path / "models", weights=DRAWN + 1)
    w, said = start_file.read("start.npz", Policy.of("careful"), MODEL, DRAWN, True)
    np.testing.assert_array_equal(w, DRAWN + 1)
    assert said["file"] == "start.npz"
    (tmp_path / "models" / "link.npz").symlink_to(file)
    with pytest.raises(SafeError, match="is a link"):
        start_file.read("link.npz", Policy.of("careful"), MODEL, DRAWN, True)
    with pytest.raises(SafeError, match="puts it in the folder models of the hospital's own folder"):
        start_file.read("other.npz", Policy.of("careful"), MODEL, DRAWN, True)


def test_methods_without_such_a_model_refuse_it(hospitals):
    with pytest.raises(UserInputError, match=r"which starts from no tree \(resume goes on with an earlier job\)"):
        train("v6_gbdt", hospitals, rounds=1, model="trees", start_from="x.npz")
    with pytest.raises(UserInputError, match="start_from has no effect on pca"):
        train("v6_pca", hospitals, rounds=2, start_from="x.npz")
