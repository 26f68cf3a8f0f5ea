"""Models by name: the documents' numbers of parameters, and names that are refused."""

import numpy as np
import pytest
import torch

from v6_federated import models
from v6_federated.base.errors import SafeError


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
    ],
)
def test_models_have_the_documents_numbers_of_parameters(name, size):
    model = models.build({"name": name, "features": 784, "classes": 10})
    assert model.size == size == sum(int(np.prod(shape)) for shape in model.shapes.values())
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
        ("resnet", "unknown model 'resnet'"),
        ("fnn:hidden", "expected NAME=NUMBER"),
        ("fnn:hidden=0", "expected a whole number from 1"),
        ("fnn:hidden=2.5", "expected a whole number from 1"),
        ("fnn:hidden=5,hidden=6", "given twice"),
        ("cnn_reddy:dropout=2", "expected a number from 0 to 0.5"),
        ("logreg:l2=-1", "expected a number from 0"),
        ("logreg:features=2", "comes from the data"),
        ({"name": ["fnn"]}, "unknown model ['fnn']"),
        ({"name": "fnn", "depth": 3, "features": 2, "classes": 2}, "does not take the option depth"),
        ({"name": "cnn_garst", "features": 30, "classes": 2}, "not a square image"),
    ],
)
def test_wrong_models_are_refused(model, says):
    with pytest.raises(SafeError) as error:
        models.build(models.parse(model))
    assert says in str(error.value)


def test_a_module_with_buffers_is_refused():
    from v6_federated.models.torch_base import Network

    with pytest.raises(SafeError, match="buffers"):
        Network(torch.nn.Sequential(torch.nn.BatchNorm2d(1)))
