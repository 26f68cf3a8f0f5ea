"""Models by name: the documents' numbers of parameters, and names that are refused."""

import sys

import numpy as np
import pytest
import torch

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.models.torch_base import Network


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("logreg", 7_850),  # Reddy Table 4.2
        ("svm", 7_850),
        ("fnn", 784 * 100 + 100 + 100 * 10 + 10),  # Garst Table B.1
        ("nn_reddy", 101_770),  # Reddy Table 4.3
        ("2nn", 199_210),  # McMahan section 3
        ("cnn_garst", 9 + 1 + 196 * 10 + 10),  # Garst Table B.2
        ("cnn_reddy", 693_962),  # Reddy Table 4.4
        ("cnn_mcmahan", 1_663_370),  # McMahan section 3
        ("mlp", 784 * 100 + 100 + 100 * 10 + 10),
        ("mlp:hidden=64,32,norm=layer", 784 * 64 + 64 + 64 * 32 + 32 + 2 * (64 + 32) + 32 * 10 + 10),
        ("mlp:hidden=64,32,activation=gelu,dropout=0.2", 784 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10),
        ("cnn", 320 + 18_496 + 73_856 + 2 * (32 + 64 + 128) + 1_290),
        ("resnet18", 11_172_810),  # torchvision's 11,689,512 with 10 classes, 1 channel and a stem of 3 x 3
    ],
)
def test_models_have_the_documents_numbers_of_parameters(name, size):
    spec = {**models.parse(name), "features": 784, "classes": 10}
    model = models.build(spec)
    assert models.parameters(spec) == model.size == size == sum(int(np.prod(shape)) for shape in model.shapes.values())
    w = model.init(np.random.default_rng(0))
    assert w.shape == (size,) and w.dtype == np.float32


def test_linear_models_start_at_zero_and_have_one_row_when_binary():
    for name in ("logreg", "svm"):
        model = models.build({"name": name, "features": 3, "classes": 2})
        assert model.shapes == {"coef": (1, 3), "intercept": (1,)}
        assert not model.init(np.random.default_rng(0)).any()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("resnet", "unknown model 'resnet'; expected one of logreg, svm, fnn, "),
        ({"name": ["fnn"]}, "unknown model ['fnn']; expected one of logreg, svm, fnn, "),
        ("fnn:hidden", "the model option 'hidden' is not NAME=NUMBER; write it as in fnn:hidden=50"),
        ("fnn:hidden=many", "hidden='many' of the model fnn is refused: it should be a whole number from 1 to 10000"),
        ("fnn:hidden=Many", "the model option 'hidden=Many' is not NAME=NUMBER"),
        ("fnn:hidden=5,5", "hidden=[5, 5] of the model fnn is refused: it should be a whole number from 1 to 10000"),
        ("mlp:hidden=5,0", "hidden=0 of the model fnn is refused: it should be a whole number from 1 to 10000"),
        ({"name": "mlp", "hidden": []}, "the model mlp has 0 hidden layers; expected 1 to 20, as in mlp:hidden=64,32"),
        ("mlp:activation=relo", "activation='relo' of the model mlp is refused: it should be relu or sigmoid or tanh"),
        ("mlp:norm=batch", "norm='batch' of the model mlp is refused: it should be none or layer"),
        ("mlp:dropout=0.9", "dropout=0.9 of the model mlp is refused: it should be a number from 0 to 0.5"),
        ({"name": "cnn", "features": 785, "classes": 2}, "785 features are not a square image of 1 or 3 channels"),
        ({"name": "cnn", "features": 2, "classes": 2}, "2 features are not a square image of 1 or 3 channels"),
        ({"name": "cnn", "features": 49, "classes": 2}, "49 features are not a square image of 1 or 3 channels"),
        (
            {"name": "resnet18", "features": 1000, "classes": 2, "width": 30, "channels": 3},
            "1000 features are not an image of 3 channels and 30 pixels a line",
        ),
        ("fnn:hidden=inf", "hidden=inf of the model fnn is refused: it should be a whole number"),
        ("fnn:hidden=0", "hidden=0 of the model fnn is refused: it should be a whole number from 1 to 10000"),
        ("fnn:hidden=2.5", "hidden=2.5 of the model fnn is refused: it should be a whole number from 1 to 10000"),
        ("fnn:hidden=5,hidden=6", "the model option hidden is given twice; give it once"),
        ("cnn_reddy:dropout=2", "dropout=2 of the model cnn_reddy is refused: it should be a number from 0 to 0.5"),
        ("logreg:l2=-1", "l2=-1 of the model logreg is refused: it should be a number from 0 to 1e+06"),
        ({"name": "logreg", "l2": True}, "l2=True of the model logreg is refused"),
        ("logreg:features=2", "the model option features follows from the data; leave it out"),
        ("logreg:hidden=5", "the model logreg does not take the option hidden; its options are l2"),
        (
            {"name": "cnn_garst", "depth": 3, "features": 16, "classes": 2},
            "the model cnn_garst does not take the option depth; its options are none",
        ),
        ({"name": "cnn_garst", "features": 30, "classes": 2}, "30 features are not a square image"),
        ({"name": "cnn_garst", "features": 9, "classes": 2}, "9 features are not a square image"),
        ("lstm_word:hidden=0", "hidden=0 of the model lstm_word is refused: it should be a whole number from 1 to"),
        ("lstm_word:embedding=8", "the model lstm_word does not take the option embedding; its options are hidden"),
        (
            {"name": "lstm_word", "features": 2, "classes": 1, "loss": {"name": "cox"}},
            "the model lstm_word tells classes apart and cannot be used with loss=cox; choose linear, mlp",
        ),
    ],
)
def test_a_wrong_model_is_refused_with_what_is_accepted(model, says):
    with pytest.raises(SafeError) as error:
        models.build(models.parse(model))
    assert str(error.value).startswith(says)


@pytest.mark.parametrize(
    ("model", "spec"),
    [
        ("fnn", {"name": "fnn"}),
        ("fnn:hidden=50", {"name": "fnn", "hidden": 50}),
        ("logreg:l2=0.1", {"name": "logreg", "l2": 0.1}),
        ("mlp:hidden=64", {"name": "mlp", "hidden": [64]}),
        (
            "mlp:hidden=64,32,activation=tanh,dropout=0.2,norm=layer",
            {"name": "mlp", "hidden": [64, 32], "activation": "tanh", "dropout": 0.2, "norm": "layer"},
        ),
        ("mlp:norm=layer,hidden=64,32", {"name": "mlp", "norm": "layer", "hidden": [64, 32]}),
        ({"name": "fnn", "hidden": 50}, {"name": "fnn", "hidden": 50}),
    ],
)
def test_a_model_may_be_named_in_text_or_as_an_object(model, spec):
    assert models.parse(model) == spec


@pytest.mark.parametrize("classes", [["a", "b"], [1, 2], [0, 2], [1, 0]])
def test_classes_of_text_must_be_all_codes(classes):
    for name, codes in (("lstm_char", "characters"), ("lstm_word", "words")):
        with pytest.raises(SafeError, match=f"the classes of {name} must be the {codes}' codes 0, 1, "):
            models.check_classes({"name": name}, classes)
        models.check_classes({"name": name}, [0, 1])
    models.check_classes({"name": "logreg"}, classes)


def test_a_model_of_torch_is_refused_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in ("convolution", "torch_base"):
        monkeypatch.delitem(sys.modules, f"v6_federated.models.{module}", raising=False)
    with pytest.raises(SafeError, match=r"cnn_garst needs torch, .*: pip install 'v6-federated\[torch\]'"):
        models.build({"name": "cnn_garst", "features": 784, "classes": 10})
    assert models.build({"name": "fnn", "features": 3, "classes": 2}).size > 0


def test_a_module_with_buffers_is_refused():
    with pytest.raises(SafeError, match=r"a module with buffers \(batch norm\?\) cannot be averaged"):
        Network(torch.nn.Sequential(torch.nn.BatchNorm2d(1)))
