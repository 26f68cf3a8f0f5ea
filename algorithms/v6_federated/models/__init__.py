"""The models, by name. A task names its model and its options, so an operator can read what will run.

``Model`` is what all of them offer. A model's parameters are one flat float32 vector ``w`` of shape (d,). Only
convolutions, recurrent networks and some options of ``mlp`` import torch.
"""

import functools
import importlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt
from typing import Any, Protocol, cast

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.messages.settings import LARGE
from v6_federated.models import outcomes
from v6_federated.models.linear import LinearModel, predicted
from v6_federated.models.perceptron import Perceptron
from v6_federated.models.traits import Traits

Vector = Any  # parameters or a gradient (d,): a flat float32 array of numpy or torch, whichever the model uses


__all__ = [
    "LinearModel",
    "Model",
    "Perceptron",
    "Registered",
    "Traits",
    "Vector",
    "build",
    "check_classes",
    "check_loss",
    "outcomes",
    "parameters",
    "parse",
    "predicted",
    "register",
    "registered",
]


class Model(Protocol):
    """What methods use of a model. Vectors and rows are arrays of numpy or torch, as ``asarray`` makes them.

    Attributes:
        size: d, the number of parameters.
        shapes: shape of each tensor of parameters by name, in the order in which ``w`` holds them.
        traits: what it may be used for.
    """

    size: int
    shapes: dict[str, tuple[int, ...]]
    traits: Traits

    def init(self, rng: np.random.Generator) -> Array:
        """Draw initial parameters.

        Args:
            rng: where the random numbers come from.

        Returns:
            Parameters (d,), float32.
        """

    def asarray(self, array: Array) -> Any:
        """Move an array to where the model computes.

        Args:
            array: parameters, rows or labels.

        Returns:
            The same numbers as an array of the model's library.
        """

    def seed(self, rng: np.random.Generator) -> None:
        """Seed the random numbers that the model draws itself, for dropout.

        Args:
            rng: where the seed comes from.
        """

    def loss_and_gradient(self, w: Any, X: Any, y: Any) -> tuple[float, Any]:
        """Compute the mean loss over rows, and its gradient.

        Args:
            w: parameters (d,).
            X: rows (n, features).
            y: their classes (n,), or numbers.

        Returns:
            The loss, on the scale on which it is reported, and the gradient (d,) of the loss that is trained, which the
            next call overwrites. They differ for numbers only, see ``outcomes``.
        """

    def scores(self, w: Any, X: Any) -> Array:
        """Compute decision values; a larger one means that a class is more likely.

        Args:
            w: parameters (d,).
            X: rows (n, features).

        Returns:
            Values (n, classes), or (n, 1) if a model of two classes has only one. Of numbers, the predictions (n, 1).
        """

    def loss(self, scores: Array, y: Array) -> float:
        """Compute the mean loss of decision values.

        Args:
            scores: what ``scores`` returned for n rows.
            y: their classes (n,).

        Returns:
            The mean over the rows.
        """

    def predict(self, w: Any, X: Any) -> Array:
        """Predict the class of rows, or a number.

        Args:
            w: parameters (d,).
            X: rows (n, features).

        Returns:
            Indices of classes (n,), or numbers.
        """


def _torch(name: str, module: str) -> Callable[..., Model]:
    def build(features: int, classes: int, **options: Any) -> Model:
        try:
            architectures = importlib.import_module(f"{__name__}.{module}").ARCHITECTURES
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise SafeError(
                f"the model {name} needs torch, which is not installed; run: pip install 'v6-federated[torch]'"
            ) from None
        model: Model = architectures[name](features, classes, **options)
        return model

    return build


def _mlp(
    features: int,
    classes: int,
    hidden: Sequence[int] = (100,),
    activation: str = "relu",
    dropout: float = 0,
    norm: str = "none",
) -> Model:
    widths = [features, *hidden, classes]
    if not dropout and norm == "none" and activation in ("relu", "sigmoid"):
        return Perceptron(widths, "relu" if activation == "relu" else "sigmoid")
    options = {"hidden": hidden, "activation": activation, "dropout": dropout, "norm": norm}
    return _torch("mlp", "fully_connected")(features, classes, **options)


# networks in torch, and the module that defines each
ON_TORCH = {
    "cnn_garst": "convolution",
    "cnn_reddy": "convolution",
    "cnn_mcmahan": "convolution",
    "cnn_cifar": "images",
    "cnn": "images",
    "resnet18": "images",
    "lstm_char": "recurrent",
    "lstm_word": "recurrent",
}
MODELS: dict[str, Callable[..., Model]] = {
    "logreg": lambda features, classes, **options: LinearModel("logistic", features, classes, **options),
    "svm": lambda features, classes, **options: LinearModel("hinge", features, classes, **options),
    "fnn": lambda features, classes, hidden=100: Perceptron([features, hidden, classes], "relu"),
    "nn_reddy": lambda features, classes, hidden=128: Perceptron([features, hidden, classes], "sigmoid"),
    "2nn": lambda features, classes, hidden=200: Perceptron([features, hidden, hidden, classes], "relu"),
    "mlp": _mlp,
    "linear": lambda features, classes, **options: LinearModel("linear", features, classes, **options),
    **{name: _torch(name, module) for name, module in ON_TORCH.items()},
}
BUILT_IN = frozenset(MODELS)
CROP = 24  # pixels, of cnn_cifar


@dataclass(frozen=True)
class OfText:
    """What tells the networks on text apart.

    Attributes:
        codes: what a code stands for.
        embedding: dimensions of the embedding.
        layers: number of LSTM layers.
    """

    codes: str
    embedding: int
    layers: int


TEXTS = {"lstm_char": OfText("characters", 8, 2), "lstm_word": OfText("words", 192, 1)}


def _dense(*widths: int) -> int:
    return sum((a + 1) * b for a, b in pairwise(widths))


def _normed(*channels: int) -> int:
    return sum(2 * c for c in channels)


def _cnn(features: int, classes: int, **image: int) -> int:
    c = image_of(features, **image)[0]
    convolutions = sum((9 * a + 1) * b for a, b in pairwise((c, 32, 64, 128)))
    return convolutions + _normed(32, 64, 128) + _dense(128, classes)


def _cnn_cifar(features: int, classes: int, crop: int = CROP, **image: int) -> int:
    c = image_of(features, **image)[0]
    convolutions = sum((25 * a + 1) * b for a, b in pairwise((c, 64, 64)))
    return convolutions + _dense(64 * (crop // 4) ** 2, 384, 192, classes)


def _text(name: str) -> Callable[..., int]:
    def count(features: int, classes: int, hidden: int = 256) -> int:
        text = TEXTS[name]
        layers = pairwise((text.embedding, *[hidden] * text.layers))
        return text.embedding * classes + sum(4 * b * (a + b + 2) for a, b in layers) + _dense(hidden, classes)

    return count


def _resnet18(features: int, classes: int, **image: int) -> int:
    c, height, width = image_of(features, **image)
    stem = 64 * c * (49 if max(height, width) > LARGE_IMAGE else 9) + _normed(64)
    first = [9 * a * b + 9 * b * b + _normed(b, b) for a, b in pairwise((64, 64, 128, 256, 512))]
    second = [18 * b * b + _normed(b, b) for b in (64, 128, 256, 512)]
    shortcuts = [a * b + _normed(b) for a, b in pairwise((64, 128, 256, 512))]
    return stem + sum(first) + sum(second) + sum(shortcuts) + _dense(512, classes)


# d of each model, known before it takes memory
SIZES: dict[str, Callable[..., int]] = {
    "logreg": lambda features, classes, **_: _dense(features, 1 if classes == 2 else classes),
    "svm": lambda features, classes, **_: _dense(features, 1 if classes == 2 else classes),
    "linear": lambda features, classes, **_: _dense(features, classes),
    "fnn": lambda features, classes, hidden=100: _dense(features, hidden, classes),
    "nn_reddy": lambda features, classes, hidden=128: _dense(features, hidden, classes),
    "2nn": lambda features, classes, hidden=200: _dense(features, hidden, hidden, classes),
    "mlp": lambda features, classes, hidden=(100,), norm="none", **_: (
        _dense(features, *hidden, classes) + (_normed(*hidden) if norm == "layer" else 0)
    ),
    "cnn": _cnn,
    "cnn_cifar": _cnn_cifar,
    "resnet18": _resnet18,
    "cnn_garst": lambda features, classes: 10 + _dense((isqrt(features) // 2) ** 2, classes),
    "cnn_reddy": lambda features, classes, **_: 320 + _dense(32 * ((isqrt(features) - 2) // 2) ** 2, 128, classes),
    "cnn_mcmahan": lambda features, classes: 52_096 + _dense(64 * (isqrt(features) // 4) ** 2, 512, classes),
    **{name: _text(name) for name in TEXTS},
}


def parameters(spec: dict[str, Any]) -> int:
    """Count a model's parameters without building it.

    Args:
        spec: the model's name, options and sizes, see ``build``.

    Returns:
        d; 0 for a model that a method has registered, which builds on no more than the method allows.

    Raises:
        SafeError: the number of features is not a whole number from 1.
    """
    options = {key: value for key, value in parse(spec).items() if key not in NO_OPTIONS}
    if type(options.get("features")) is not int or options["features"] < 1:
        raise SafeError("the job's model has no number of features; it must be a whole number from 1")
    return SIZES[spec["name"]](**options) if spec["name"] in SIZES else 0


@dataclass(frozen=True)
class Registered:
    """A model that was added to the models by name.

    Attributes:
        name: its name.
        build: makes it.
        options: names of its options; a mapping has the words that each accepts, none if it is a number.
    """

    name: str
    build: Callable[..., Any]
    options: Collection[str] = ()

    def __call__(self, features: int, classes: int, **options: Any) -> Model:
        """Make the model; a torch module becomes one."""
        build = functools.partial(self.build, features=features, classes=classes, **options)
        made = build()
        if not hasattr(made, "named_buffers"):  # what torch modules have
            return cast(Model, made)
        from v6_federated.models.torch_module import Module  # torch is slow to import

        return Module(self.name, made, build, features, classes)


def register(name: str, build: Callable[..., Any], options: Collection[str] = ()) -> None:
    """Add a model to the models by name: that of a method, or one of your own.

    Where a job runs in other processes or on real nodes, the name must be registered there too. Mock networks take care
    of their worker processes; an image registers its models when its package is imported.

    Args:
        name: the model's name. A model that was registered under this name before is replaced.
        build: makes the model from the keyword arguments ``features``, ``classes`` and the model's options: a torch
            module without buffers, which maps rows (n, features) to decision values (n, classes), or a ``Model``. Of
            the latter, evaluation needs ``traits``, ``init``, ``scores`` and ``loss``; its ``size`` is None if it
            grows, and then the method checks it.
        options: names of the options, each a number, with which a job may name the model: ``"mine:width=32"``. A
            mapping says which words an option accepts in place of numbers.

    Raises:
        SafeError: the name is not a word, or that of a model which is always there.
    """
    if not re.fullmatch(r"\w+", name, re.ASCII):
        raise SafeError(f"a model cannot be called {name!r}; expected a word, for example my_network")
    if name in BUILT_IN:
        raise SafeError(f"there is a model {name} already; register yours under another name")
    MODELS[name] = Registered(name, build, dict(options) if isinstance(options, Mapping) else tuple(options))


def registered(model: Any) -> Registered | None:
    """Find a model that was registered.

    Args:
        model: its name and options, as ``parse`` reads them.

    Returns:
        What was registered; None if there is no such model, or if it is always there.
    """
    name = model.partition(":")[0] if isinstance(model, str) else model.get("name") if isinstance(model, dict) else None
    found = MODELS.get(name) if isinstance(name, str) else None
    return found if isinstance(found, Registered) else None


def parse(model: str | dict[str, Any]) -> dict[str, Any]:
    """Read a model's name and options.

    Args:
        model: for example ``"fnn"``, ``"fnn:hidden=50"`` or ``{"name": "fnn", "hidden": 50}``.

    Returns:
        ``{"name": ..., options...}``.

    Raises:
        SafeError: the model or an option is unknown, or a value is out of range.
    """
    if isinstance(model, str):
        name, _, options = model.partition(":")
        spec: dict[str, Any] = {"name": name}
        for option in filter(None, re.split(r",(?=[^,=]*=|[^,=\d]*$)", options)):  # not the comma of hidden=64,32
            key, _, value = option.partition("=")
            if key == "loss":
                raise SafeError(f"the model option loss is a setting of its own; use --set {option}")
            if key in OF_DATA:
                raise SafeError(f"the model option {key} follows from the data; leave it out")
            if key in spec:
                raise SafeError(f"the model option {key} is given twice; give it once")
            read = [_read(part) for part in value.split(",")]
            if None in read:
                raise SafeError(f"the model option {option!r} is not NAME=NUMBER; write it as in fnn:hidden=50")
            spec[key] = read[0] if len(read) == 1 else read
    else:
        spec = dict(model)
    if not isinstance(spec.get("name"), str) or spec["name"] not in MODELS:
        raise SafeError(f"unknown model {spec.get('name')!r}; expected one of {', '.join(MODELS)}")
    for key, value in spec.items():
        if key not in ("name", *OF_DATA):
            _check_option(spec["name"], key, value)
    if spec["name"] == "mlp" and isinstance(spec.get("hidden"), int):
        spec["hidden"] = [spec["hidden"]]
    return spec


def _read(value: str) -> int | float | str | None:
    """A number or a word; None if it is neither."""
    try:
        number = float(value)
        return int(number) if number.is_integer() else number
    except OverflowError:  # of infinity
        return None
    except ValueError:
        return value if re.fullmatch(r"[a-z]+", value) else None


def image_of(features: int, channels: int | None = None, width: int | None = None) -> tuple[int, int, int]:
    """Find the shape of the images that rows hold, channels last.

    Args:
        features: numbers in a row.
        channels: 1 or 3; None means whichever makes a square.
        width: pixels in a line of the image; None means that images are square.

    Returns:
        Channels, height and width.

    Raises:
        SafeError: these numbers are no such image, or it has fewer than 8 x 8 pixels.
    """
    for c in (1, 3) if channels is None else (channels,):
        side = max(isqrt(features // c), 1) if width is None else width
        height = features // (c * side)
        if c * height * side == features and (width is not None or height == side) and min(height, side) >= 8:
            return c, height, side
    of = "1 or 3 channels" if channels is None else f"{channels} channels"
    kind = f"a square image of {of}" if width is None else f"an image of {of} and {width} pixels a line"
    raise SafeError(
        f"{features} features are not {kind}; use at least 8 x 8 pixels, for example 784 = 28 x 28 or "
        "3072 = 32 x 32 x 3, or set the options channels and width"
    )


OF_DATA = ("features", "classes", "weights", "loss")  # what central adds to a model's name and options
NO_OPTIONS = ("name", "weights", "loss")  # what is not handed to what makes the model
CLASSES_ONLY = ("logreg", "svm", *TEXTS)
MOST_WEIGHT = 1e6  # of a class

# option: the models that take it, its type, its least and its largest value
OPTIONS: dict[str, tuple[tuple[str, ...], type, float, float]] = {
    "l2": (("logreg", "svm", "linear"), float, 0, 1e6),
    "hidden": (("fnn", "nn_reddy", "2nn", "mlp", *TEXTS), int, 1, 10_000),
    "dropout": (("cnn_reddy", "mlp"), float, 0, 0.5),  # the higher, the more units see a single row
    "activation": (("mlp",), str, 0, 0),
    "norm": (("mlp",), str, 0, 0),
    "channels": (("cnn", "cnn_cifar", "resnet18"), int, 1, 3),
    "width": (("cnn", "cnn_cifar", "resnet18"), int, 8, 10_000),
    "crop": (("cnn_cifar",), int, 8, 10_000),
}
WORDS = {"activation": ("relu", "sigmoid", "tanh", "gelu"), "norm": ("none", "layer")}
MOST_LAYERS = 20
LARGE_IMAGE = 64  # pixels; of larger ones resnet18 sees a quarter of the lines and columns


def _check_option(model: str, option: str, value: Any) -> None:
    takers, kind, least, most = OPTIONS.get(option, ((), float, 0, 0))
    own = registered(model)
    if own is not None and isinstance(own.options, Mapping) and (words := own.options.get(option)):
        if value not in words:
            raise SafeError(f"{option}={value!r} of the model {model} is refused: expected {', '.join(words)}")
        return
    if own is not None and option in own.options:
        takers, kind, least, most = (model,), float, -LARGE, LARGE
    if model not in takers:
        known = [name for name, (models, *_) in OPTIONS.items() if model in models] if own is None else own.options
        raise SafeError(
            f"the model {model} does not take the option {option}; its options are {', '.join(known) or 'none'}"
        )
    if kind is str:
        if value not in WORDS[option]:
            raise SafeError(
                f"{option}={value!r} of the model {model} is refused: it should be {' or '.join(WORDS[option])}"
            )
        return
    if (model, option) == ("mlp", "hidden"):
        if isinstance(value, list | tuple) and 1 <= len(value) <= MOST_LAYERS:
            for width in value:
                _check_option("fnn", option, width)
            return
        if isinstance(value, list | tuple):
            raise SafeError(
                f"the model mlp has {len(value)} hidden layers; expected 1 to {MOST_LAYERS}, as in mlp:hidden=64,32"
            )
    right = not isinstance(value, bool) and isinstance(value, int if kind is int else int | float)
    if not right or not least <= value <= most:
        noun = "whole number" if kind is int else "number"
        raise SafeError(
            f"{option}={value!r} of the model {model} is refused: it should be a {noun} from {least:g} to {most:g}"
        )


def _weight(model: Any, spec: dict[str, Any]) -> None:
    """Have a model multiply the losses of its training rows by the weights of their classes."""
    weights = spec["weights"]
    whole = isinstance(weights, list | tuple) and len(weights) == spec["classes"]
    if not (whole and all(type(v) in (int, float) and 0 < v <= MOST_WEIGHT for v in weights)):
        raise SafeError(f"the job's model needs a weight above 0 and up to {MOST_WEIGHT:g} for each class")
    if not hasattr(model, "class_weights"):
        raise SafeError(f"the model {spec['name']} takes no class_weights; leave them out")
    model.class_weights = np.array(weights, np.float32)


def check_loss(spec: dict[str, Any], loss: str) -> None:
    """Refuse a loss that does not fit a model.

    Args:
        spec: the model's name and options.
        loss: "cross_entropy" for classes, or the name of an outcome.

    Raises:
        SafeError: the model tells classes apart and the loss is one of numbers, or the other way round.
    """
    name = spec["name"]
    if loss == "cross_entropy" and name == "linear":
        raise SafeError(
            "the model linear predicts numbers, counts or times, and loss=cross_entropy is one of classes; set "
            "loss=squared, loss=poisson or loss=cox, or choose logreg for classes"
        )
    if loss != "cross_entropy" and name in CLASSES_ONLY:
        raise SafeError(f"the model {name} tells classes apart and cannot be used with loss={loss}; choose linear, mlp")


def _give_outcome(model: Any, spec: dict[str, Any]) -> None:
    """Have a model predict numbers, counts or times in place of classes."""
    outcome = outcomes.of_json(spec["loss"])
    check_loss(spec, outcome.name)
    if spec["classes"] != 1 or "weights" in spec:
        raise SafeError(f"the job's model has classes, and loss={outcome.name} is one of numbers")
    if not hasattr(model, "outcome"):
        raise SafeError(f"the model {spec['name']} cannot be used with loss={outcome.name}; choose linear or mlp")
    model.outcome, model.traits = outcome, replace(model.traits, regression=True)


def check_classes(spec: dict[str, Any], classes: Sequence[Any]) -> None:
    """Refuse classes that a model cannot have.

    Args:
        spec: the model's name and options.
        classes: values of the label.

    Raises:
        SafeError: a network on text reads its features as codes of classes, and these are not all codes.
    """
    text = TEXTS.get(spec["name"])
    if text is not None and [*classes] != [*range(len(classes))]:
        raise SafeError(
            f"the classes of {spec['name']} must be the {text.codes}' codes 0, 1, ... without a gap; name all of them "
            "with classes, even those that are not the label of any row"
        )


def build(spec: dict[str, Any]) -> Model:
    """Build a model.

    Args:
        spec: ``{"name": ..., "features": ..., "classes": ..., options...}``; ``features`` and ``classes`` are numbers.
            ``weights``, if it is there, holds a weight for each class, by which training multiplies its rows' losses;
            ``loss`` what the model predicts in place of classes, see ``outcomes.of_json``.

    Returns:
        The model.

    Raises:
        SafeError: the model or an option is unknown, does not fit the data, needs what is not installed, or more memory
            than there is.
    """
    options = {key: value for key, value in parse(spec).items() if key not in NO_OPTIONS}
    if not all(type(spec.get(name)) is int and 1 <= spec[name] <= LARGE for name in ("features", "classes")):
        raise SafeError(
            f"the model needs its numbers of features and classes; expected whole numbers from 1 to {LARGE}"
        )
    try:
        model = MODELS[spec["name"]](**options)
        if not isinstance(getattr(model, "traits", None), Traits):
            raise SafeError(f"the model {spec['name']} does not say what it may be used for; set traits = Traits(...)")
        if "loss" in spec:
            _give_outcome(model, spec)
        elif spec["name"] == "linear":
            check_loss(spec, "cross_entropy")
        if "weights" in spec:
            _weight(model, spec)
        return model
    except SafeError:
        raise
    except (MemoryError, OverflowError, ValueError):  # numpy raises the last for sizes that no array can have
        raise SafeError(
            f"the model {spec['name']} needs more memory than there is here; choose a smaller one, or fewer columns"
        ) from None
