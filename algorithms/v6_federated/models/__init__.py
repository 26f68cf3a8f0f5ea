"""The models, by name. A model is named with its options in the task's input, so an operator can read what will run.

All have four names: ``size``, ``init(rng) -> (d,)``, ``loss_and_gradient(w, X, y)`` and ``predict(w, X)``; their
parameters are one flat float32 vector ``w``. Only convolutions and recurrent networks import torch.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from v6_federated.base.errors import SafeError
from v6_federated.models.linear import LinearModel, predicted
from v6_federated.models.perceptron import Perceptron

Vector = Any  # parameters, gradients (d,): one flat float32 array of the model's own library, numpy's or torch's


__all__ = ["LinearModel", "Model", "Perceptron", "Vector", "build", "check_classes", "parse", "predicted", "register"]


class Model(Protocol):
    """What the methods know of a model. Vectors and rows are arrays of the model's own library (``asarray``)."""

    size: int
    shapes: dict[str, tuple[int, ...]]

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial parameters (size,), float32."""

    def asarray(self, array: np.ndarray) -> Any:
        """The array where the model computes."""

    def seed(self, rng: np.random.Generator) -> None:
        """Fix the randomness inside the model (dropout), where it has any."""

    def loss_and_gradient(self, w: Any, X: Any, y: Any) -> tuple[float, Any]:
        """Mean loss over the rows and its gradient (size,). The gradient is overwritten by the next call."""

    def scores(self, w: Any, X: Any) -> np.ndarray:
        """Decision values (n, c), (n, 1) when a binary model has one row; larger is more likely."""

    def loss(self, scores: np.ndarray, y: np.ndarray) -> float:
        """Mean loss of decision values."""

    def predict(self, w: Any, X: Any) -> np.ndarray:
        """Class indices (n,)."""


def _torch(name: str, module: str) -> Callable[..., Model]:
    def build(features: int, classes: int, **options: Any) -> Model:
        try:
            architectures = importlib.import_module(f"{__name__}.{module}").ARCHITECTURES
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise SafeError(
                f"the model {name} needs torch, which is not installed; install v6-federated[torch]"
            ) from None
        return architectures[name](features, classes, **options)

    return build


# networks of torch, and the module that has them
ON_TORCH = {
    "cnn_garst": "convolution",
    "cnn_reddy": "convolution",
    "cnn_mcmahan": "convolution",
    "lstm_char": "recurrent",
}
MODELS: dict[str, Callable[..., Model]] = {
    "logreg": lambda features, classes, **options: LinearModel("logistic", features, classes, **options),
    "svm": lambda features, classes, **options: LinearModel("hinge", features, classes, **options),
    "fnn": lambda features, classes, hidden=100: Perceptron([features, hidden, classes], "relu"),
    "nn_reddy": lambda features, classes, hidden=128: Perceptron([features, hidden, classes], "sigmoid"),
    "2nn": lambda features, classes, hidden=200: Perceptron([features, hidden, hidden, classes], "relu"),
    **{name: _torch(name, module) for name, module in ON_TORCH.items()},
}


def register(name: str, build: Callable[..., Any]) -> None:
    """Make a model known that a method brings: it has what evaluation needs, ``init``, ``scores`` and ``loss``.

    Its ``size`` is None if it grows; its method then checks it.
    """
    MODELS[name] = build


def parse(model: str | dict[str, Any]) -> dict[str, Any]:
    """A model's name and options from ``"fnn"``, ``"fnn:hidden=50"`` or ``{"name": "fnn", "hidden": 50}``."""
    if isinstance(model, str):
        name, _, options = model.partition(":")
        spec: dict[str, Any] = {"name": name}
        for option in filter(None, options.split(",")):
            key, equals, value = option.partition("=")
            if key in ("features", "classes"):
                raise SafeError(f"the model option {key} comes from the data; leave it out")
            try:
                number = float(value)
                twice = key in spec
                spec[key] = int(number) if number.is_integer() else number
            except (ValueError, OverflowError):
                equals = ""
            if equals and twice:
                raise SafeError(f"the model option {key} is given twice")
            if not equals:
                raise SafeError(f"model option {option!r}; expected NAME=NUMBER, for example fnn:hidden=50")
    else:
        spec = dict(model)
    if not isinstance(spec.get("name"), str) or spec["name"] not in MODELS:
        raise SafeError(f"unknown model {spec.get('name')!r}; expected one of {', '.join(MODELS)}")
    for key, value in spec.items():
        if key not in ("name", "features", "classes"):
            _check_option(spec["name"], key, value)
    return spec


# option: models that take it, kind, least, most
OPTIONS: dict[str, tuple[tuple[str, ...], type, float, float]] = {
    "l2": (("logreg", "svm"), float, 0, 1e6),
    "hidden": (("fnn", "nn_reddy", "2nn", "lstm_char"), int, 1, 10_000),
    "dropout": (("cnn_reddy",), float, 0, 0.5),  # the higher, the more units have the gradient of a single row
}


def _check_option(model: str, option: str, value: Any) -> None:
    takers, kind, least, most = OPTIONS.get(option, ((), float, 0, 0))
    if model not in takers:
        known = [name for name, (models, *_) in OPTIONS.items() if model in models]
        raise SafeError(f"the model {model} does not take the option {option}; expected {', '.join(known) or 'none'}")
    right = not isinstance(value, bool) and isinstance(value, int if kind is int else int | float)
    if not right or not least <= value <= most:
        noun = "whole number" if kind is int else "number"
        raise SafeError(
            f"{option}={value!r} of the model {model} is refused: expected a {noun} from {least:g} to {most:g}"
        )


def check_classes(spec: dict[str, Any], classes: Sequence[Any]) -> None:
    """Raise SafeError where a model reads its features as codes of the classes and these are no codes."""
    if spec["name"] == "lstm_char" and [*classes] != [*range(len(classes))]:
        raise SafeError(
            "the classes of lstm_char are the characters' codes, the whole numbers 0, 1, ... without a gap; name them "
            "all in `classes`, also those that are no row's label"
        )


def build(spec: dict[str, Any]) -> Model:
    """The model of a full spec: ``{"name", "features": d, "classes": c, options...}``. Raises SafeError."""
    options = {key: value for key, value in parse(spec).items() if key != "name"}
    return MODELS[spec["name"]](**options)
