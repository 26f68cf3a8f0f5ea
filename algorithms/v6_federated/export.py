"""A result's model as a file that other software reads: .npz, .safetensors or .pt, and LightGBM's .txt of trees."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from v6_federated import codec, experiments, models
from v6_federated.errors import SafeError
from v6_federated.models.linear import LinearModel
from v6_federated.models.perceptron import Perceptron


def tensors(result: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The named parameters of a result's model.

    A linear model has ``coef`` (rows, features) and ``intercept`` (rows,) as in scikit-learn, for features as they are
    in the table: a standardisation is folded in. A network has its layers' tensors in torch's layout, (out, in), and
    ``mean`` and ``scale`` (d,) where features are standardised before the first layer.
    """
    try:
        model = _model(result)
        w = codec.decode(result["weights"])["weights"]
        steps = [codec.decode(step["fitted"]) for step in result["data"]["preprocess"]]
    except (KeyError, TypeError) as error:
        raise SafeError(f"not a result of a training method ({type(error).__name__} {error})") from None
    if hasattr(model, "text"):
        raise SafeError(f"a model {result['model']['name']} is exported as text; expected an ending .txt")
    if isinstance(model, LinearModel):
        coef, intercept = (part.astype(np.float64) for part in model.split(w))
        for step in reversed(steps):
            coef = coef / step["scale"]
            intercept = intercept - coef @ codec.whole(step, "mean")
        return {"coef": coef, "intercept": intercept}
    named, start = {}, 0
    for name, shape in model.shapes.items():
        part = w[start : start + int(np.prod(shape))].reshape(shape)
        named[name] = np.ascontiguousarray(part.T) if isinstance(model, Perceptron) and part.ndim == 2 else part
        start += part.size
    for step in steps:
        named |= {"mean": codec.whole(step, "mean"), "scale": step["scale"]}
    return named


def about(result: Mapping[str, Any]) -> dict[str, str]:
    """What a file's reader must know of the model, as text."""
    data = result["data"]
    return {
        "format": "pt",
        "model": json.dumps(result["model"]),
        "method": result["method"],
        "classes": json.dumps(data["classes"]),
        "features": json.dumps(data["features"]),
        "label": json.dumps(data["label"]),
    }


def save(result: Mapping[str, Any], path: Path) -> None:
    """Write the model to ``path``; its ending says in which format. Raises SafeError."""
    writers: dict[str, Callable[[Mapping[str, Any], Path], None]] = {
        ".npz": _npz, ".safetensors": _safetensors, ".pt": _pt, ".txt": _txt
    }  # fmt: skip
    if path.suffix not in writers:
        raise SafeError(f"cannot export to {path.name}; expected an ending {', '.join(writers)}")
    if not path.parent.is_dir():
        raise SafeError(f"no folder for {path}; expected one that is there")
    writers[path.suffix](result, path)


def _model(result: Mapping[str, Any]) -> Any:
    if result["model"]["name"] not in models.MODELS:
        experiments.settings_of(result["method"])  # the method brings its model
    return models.build(result["model"])


def _txt(result: Mapping[str, Any], path: Path) -> None:
    model = _model(result)
    if not hasattr(model, "text"):
        raise SafeError(f"a model {result['model']['name']} has no form as text; expected .npz, .safetensors or .pt")
    if result["data"]["preprocess"]:
        raise SafeError(
            "LightGBM's text has no place for preprocessing; expected a result trained without, trees need no scaling"
        )
    w = codec.decode(result["weights"])["weights"]
    path.write_text(model.text(w, result["data"]["features"]), encoding="utf-8")


def _npz(result: Mapping[str, Any], path: Path) -> None:
    np.savez(path, **tensors(result), classes=np.asarray(result["data"]["classes"]))  # type: ignore[arg-type]


def _safetensors(result: Mapping[str, Any], path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({k: np.ascontiguousarray(v) for k, v in tensors(result).items()}, path, metadata=about(result))


def _pt(result: Mapping[str, Any], path: Path) -> None:
    try:
        import torch
    except ModuleNotFoundError:
        raise SafeError("writing .pt needs torch, which is not installed; install v6-federated[torch]") from None
    torch.save({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in tensors(result).items()}, path)
