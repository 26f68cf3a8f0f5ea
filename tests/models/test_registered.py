"""Models of one's own: any torch module without buffers, by a name of its own."""

import numpy as np
import pytest
import torch
from helpers import OPEN, table, train
from torch import nn

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import UserInputError
from v6_federated.messages import codec
from v6_workbench.simulation.mock import MockNetwork


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(models, "MODELS", dict(models.MODELS))


def two_layers(features, classes, width=8):
    return nn.Sequential(nn.Linear(features, int(width)), nn.Tanh(), nn.Linear(int(width), classes))


class Residual(nn.Module):
    """What is no Sequential: a skip connection, LayerNorm and dropout."""

    def __init__(self, features, classes):
        super().__init__()
        self.norm, self.inner, self.drop = nn.LayerNorm(features), nn.Linear(features, features), nn.Dropout(0.2)
        self.out = nn.Linear(features, classes)

    def forward(self, x):
        return self.out(x + self.drop(torch.relu(self.inner(self.norm(x)))))


def built(build, features=4, classes=3, **options):
    models.register("mine", build, tuple(options))
    return models.build({"name": "mine", "features": features, "classes": classes, **options})


class Forgetful(nn.Linear):
    """Dropout that no layer tells of."""

    def __init__(self, features, classes):
        super().__init__(features, classes)

    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.3, self.training))


@pytest.mark.parametrize(
    ("build", "draws"),
    [
        (two_layers, False),
        (Residual, True),
        (Forgetful, True),
        (lambda features, classes: nn.Sequential(nn.Dropout(0.0), nn.Linear(features, classes)), False),
        (lambda features, classes: nn.Sequential(nn.Linear(features, classes), nn.RReLU()), True),
    ],
)
def test_a_module_that_draws_random_numbers_is_known(build, draws):
    assert built(build).traits.random is draws


def test_fsvrg_refuses_a_module_that_draws_random_numbers():
    """The two gradients of a row would drop different units."""
    models.register("mine", Residual)
    nodes = {k: table(30, seed=k) for k in (1, 2)}
    with pytest.raises(SafeError, match="fsvrg cannot train a model with dropout or random distortions"):
        train("v6_fsvrg", nodes, rounds=1, model="mine")
    models.register("mine", two_layers)
    train("v6_fsvrg", nodes, rounds=1, model="mine")


def test_a_model_that_does_not_say_what_it_may_be_used_for_is_refused():
    class Line(models.LinearModel):
        traits = None

        def __init__(self, features, classes):
            super().__init__("logistic", features, classes)

    with pytest.raises(SafeError, match="the model mine does not say what it may be used for"):
        built(Line)
    with pytest.raises(TypeError, match="plain_onyl"):
        models.Traits(plain_onyl=True)


def test_a_module_starts_as_torch_starts_it_and_as_the_seed_says():
    model = built(two_layers)
    w = model.init(np.random.default_rng(3))
    assert w.shape == (model.size,) == (4 * 8 + 8 + 8 * 3 + 3,) and w.dtype == np.float32
    assert (w == model.init(np.random.default_rng(3))).all() and (w != model.init(np.random.default_rng(4))).any()
    norm = built(Residual)
    assert (norm.init(np.random.default_rng(0))[:4] == 1).all(), "the weights of LayerNorm"


def test_gradients_are_those_of_torch():
    model, rng = built(two_layers), np.random.default_rng(0)
    w, X, y = model.init(rng), rng.normal(size=(250, 4)).astype(np.float32), rng.integers(3, size=250)
    loss, gradient = model.loss_and_gradient(*(model.asarray(a) for a in (w, X, y)))
    module, start = two_layers(4, 3), 0
    for p in module.parameters():
        p.data = torch.tensor(w[start : start + p.numel()]).view(p.shape)
        start += p.numel()
    expected = nn.functional.cross_entropy(module(torch.tensor(X)), torch.tensor(y))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(
        gradient.numpy(), np.concatenate([p.grad.numpy().ravel() for p in module.parameters()]), atol=1e-6
    )
    assert model.scores(model.asarray(w), model.asarray(X[:0])).shape == (0, 3)


@pytest.mark.parametrize("method", ["v6_fedavg", "v6_scaffold", "v6_fsvrg", "v6_loadaboost"])
def test_methods_train_it_like_the_same_network_of_ours(method):
    """FedAvg and others on a two-layer network; 'fnn' is the same one, with ReLU."""
    models.register(
        "mine", lambda features, classes: nn.Sequential(nn.Linear(features, 6), nn.ReLU(), nn.Linear(6, classes))
    )
    rate = "stepsize" if method == "v6_fsvrg" else "lr"
    rows = {k: table(60, seed=k) for k in (1, 2, 3)}
    result = train(method, rows, rounds=15, model="mine", batch_size=20, seed=1, **{rate: 0.3})
    like = train(method, rows, rounds=15, model="fnn:hidden=6", batch_size=20, seed=1, **{rate: 0.3})
    assert result["model"] == {"name": "mine", "features": 4, "classes": 2}
    assert result["final"]["accuracy"] == pytest.approx(like["final"]["accuracy"], abs=0.1)
    assert len(codec.decode(result["weights"])["weights"]) == len(codec.decode(like["weights"])["weights"])


def test_masks_change_nothing():
    models.register("mine", Residual)
    rows = {k: table(30, seed=k) for k in (1, 2, 3)}
    plain, masked = (
        codec.decode(train("v6_fedavg", rows, rounds=2, model="mine", aggregation=how)["weights"])["weights"]
        for how in ("plain", "masked")
    )
    assert np.linalg.norm(plain - masked) < 1e-5 * np.linalg.norm(plain)


def test_worker_processes_know_it():
    """Also a function that no module has, such as one of a notebook."""
    rows = {k: table(30, seed=k) for k in (1, 2, 3)}
    models.register("mine", lambda features, classes, width=3: two_layers(features, classes, width), ("width",))
    here, there = (
        train("v6_fedavg", rows, processes, rounds=2, model="mine:width=5", seed=2)["weights"] for processes in (1, 2)
    )
    assert here == there, "the same bits"
    models.register("mine", Residual)  # the same name, in workers that know the other one
    assert train("v6_fedavg", rows, 2, rounds=1, model="mine")["weights"]["shapes"]["weights"] == [
        4 + 4 + 4 * 4 + 4 + 4 * 2 + 2
    ]


def test_what_cannot_travel_to_worker_processes_is_refused():
    lock = __import__("threading").Lock()
    models.register("mine", lambda features, classes: (lock, two_layers(features, classes))[1])
    rows = {k: table(30, seed=k) for k in (1, 2)}
    with pytest.raises(SafeError, match="the model mine cannot be sent to worker processes .*; use processes=1"):
        train("v6_fedavg", rows, 2, rounds=1, model="mine")
    assert train("v6_fedavg", rows, 1, rounds=1, model="mine")["history"]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda features, classes: nn.Sequential(nn.BatchNorm1d(features), nn.Linear(features, classes)), "batch norm"),
        (
            lambda features, classes: nn.Sequential(
                nn.BatchNorm1d(features, track_running_stats=False), nn.Linear(features, classes)
            ),
            "the model mine has batch norm, with which rows change each other's scores; use LayerNorm or GroupNorm",
        ),
        (
            lambda features, classes: nn.Sequential(nn.Linear(features, classes), nn.Linear(classes, 1)),
            r"tried on 2 rows of 4 features and gave values of shape \(2, 1\); expected values of shape \(2, 3\)",
        ),
        (lambda features, classes: nn.Linear(99, classes), "gave RuntimeError: (addmm: )?mat1 and mat2 shapes"),
        (lambda features, classes: nn.LSTM(features, classes), "gave a tuple; expected values of shape"),
        (
            lambda features, classes: nn.Linear(features, classes).double(),
            "parameters of the type float64; expected",
        ),
        (lambda features, classes: nn.Linear(features, classes, dtype=torch.complex64), "of the type complex64"),
        (lambda features, classes: nn.Flatten(), "the model mine has no parameters"),
    ],
)
def test_modules_that_cannot_be_averaged_are_refused_in_one_line(build, says):
    with pytest.raises(SafeError, match=says) as error:
        built(build)
    assert "\n" not in str(error.value)


def test_buffers_are_refused():
    class WithBuffer(nn.Linear):
        def __init__(self, features, classes):
            super().__init__(features, classes)
            self.register_buffer("seen", torch.zeros(1))

    with pytest.raises(SafeError, match=r"a module with buffers .* cannot be averaged; use layers without buffers"):
        built(WithBuffer)


def test_a_job_that_names_such_a_module_is_refused_before_nodes_train():
    models.register("mine", lambda features, classes: nn.BatchNorm1d(classes))
    with (
        MockNetwork("v6_fedavg", {1: table(), 2: table()}, environment=OPEN) as network,
        pytest.raises((UserInputError, SafeError), match="the model mine has batch norm"),
    ):
        network.run(rounds=1, model="mine")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("mine:depth=3", "the model mine does not take the option depth; its options are width"),
        ({"name": "mine", "width": "8"}, "width='8' of the model mine is refused: it should be a number"),
        ({"name": "mine", "width": True}, "width=True of the model mine is refused"),
        ("yours", "unknown model 'yours'"),
    ],
)
def test_options_are_those_that_were_named(model, says):
    models.register("mine", two_layers, options=("width",))
    with pytest.raises(SafeError) as error:
        models.parse(model)
    assert str(error.value).startswith(says)
    assert models.parse("mine:width=32") == {"name": "mine", "width": 32}


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a-b", "é"])
def test_a_name_is_a_word(name):
    with pytest.raises(SafeError, match="expected a word, for example my_network"):
        models.register(name, two_layers)


def test_the_models_that_are_there_stay():
    with pytest.raises(SafeError, match="there is a model logreg already; register yours under another name"):
        models.register("logreg", two_layers)
