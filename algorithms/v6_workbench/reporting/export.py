"""A result's model as a file that other software reads: .npz, .safetensors, .pt, and LightGBM's .txt of trees."""

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError
from v6_federated.data.opening import load_npz
from v6_federated.data.step_columns import names_after
from v6_federated.messages import codec
from v6_federated.models import BUILT_IN
from v6_federated.models.linear import LinearModel
from v6_federated.models.perceptron import Perceptron
from v6_workbench.reporting.trained import parts_of

AFFINE = ("standardize", "scale", "pca")


def tensors(result: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the named parameters of a result's model.

    A linear model has ``coef`` (rows, features) and ``intercept`` (rows,) as in scikit-learn, for features as they are
    in the table: standardize, scale and pca are folded in, unless another step follows them; ``about`` names the
    features that the coefficients are of. A network has its layers' tensors in torch's layout, (out, in), and ``mean``
    and ``scale`` (d,) if standardize or scale is its only step. The last layer of a model of numbers gives predictions
    on the label's own scale: the logarithm of a count's mean, the log hazard ratio of a time. Trees have no tensors.
    Components have the arrays that scikit-learn has.

    Args:
        result: the result.

    Returns:
        The arrays by name.

    Raises:
        SafeError: the result has no model.
    """
    spec, model, arrays = parts_of(result)
    if model is None:
        return arrays
    steps, w = list(spec.preprocess), arrays["weights"]
    if hasattr(model, "text"):
        return {}  # an ensemble has no tensors; ``whole`` has its array
    if isinstance(model, LinearModel):
        coef, intercept = (part.astype(np.float64) for part in model.split(w))
        while steps and steps[-1]["step"] in AFFINE:
            step = codec.decode(steps.pop()["fitted"])
            coef = (coef @ step["components"] if "components" in step else coef) / step["scale"]
            intercept = intercept - coef @ codec.whole(step, "mean")
        if model.outcome is not None:
            coef, intercept = model.outcome.folded(coef, intercept)
        return {"coef": coef, "intercept": intercept}
    named, start = {}, 0
    for name, shape in model.shapes.items():
        part = w[start : start + int(np.prod(shape))].reshape(shape)
        named[name] = np.ascontiguousarray(part.T) if isinstance(model, Perceptron) and part.ndim == 2 else part
        start += part.size
    if (outcome := getattr(model, "outcome", None)) is not None and result["model"]["name"] in BUILT_IN:
        weight, bias = [*named][-2:]  # of the last layer
        named |= dict(zip((weight, bias), outcome.folded(named[weight], named[bias]), strict=True))
    if [step["step"] for step in steps] in (["standardize"], ["scale"]):
        step = codec.decode(steps[0]["fitted"])
        named |= {"mean": codec.whole(step, "mean"), "scale": step["scale"]}
    return named


def whole(result: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return all that an exported model holds.

    Args:
        result: the result.

    Returns:
        ``tensors``; the parameters as they were trained; and ``about``, JSON as bytes: the specs of the model and of
        the data with the fitted preprocessing, from which ``prediction.predict`` computes what the nodes would.

    Raises:
        SafeError: the result has no model.
    """
    arrays = parts_of(result)[2]
    about = {"method": result["method"], "model": result["model"], "data": result["data"], "arrays": list(arrays)}
    text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    return {**tensors(result), **arrays, "about": text}


def load(path: Path) -> dict[str, Any]:
    """Read an exported model.

    Args:
        path: a ``.npz``, ``.safetensors`` or ``.pt`` file.

    Returns:
        What predictions need of a result: ``method``, ``model``, ``data`` and ``weights``.

    Raises:
        SafeError: the file does not exist, or is not an exported model.
    """
    readers: dict[str, Callable[[Path], Mapping[str, np.ndarray]]] = {
        ".npz": load_npz,
        ".safetensors": _load_safetensors,
        ".pt": _load_pt,
    }
    if not path.is_file():
        raise SafeError(f"no file {path}; expected a result.json, or a file that `v6-federated export` wrote")
    try:
        arrays = readers[path.suffix](path)
        about = json.loads(bytes(arrays["about"]))
        trained = {name: np.asarray(arrays[name]) for name in about.pop("arrays")}
        precision = "float64" if any(a.dtype == np.float64 for a in trained.values()) else "float32"
        return {**about, "weights": codec.encode(trained, precision)}
    except SafeError:
        raise
    except DataError as error:
        raise SafeError(str(error)) from None
    except Exception as error:  # each format's own
        raise SafeError(
            f"{path.name} is not an exported model ({type(error).__name__}); expected a file that `v6-federated "
            "export` wrote"
        ) from None


def about(result: Mapping[str, Any]) -> dict[str, str]:
    """Return what the reader of a file must know about the model.

    Args:
        result: the result.

    Returns:
        Names and texts; lists and the model's spec are JSON.

    Raises:
        SafeError: the result has no model.
    """
    data, model, _ = parts_of(result)
    steps = list(data.preprocess)
    while steps and steps[-1]["step"] in AFFINE and isinstance(model, LinearModel):
        steps.pop()  # folded into the coefficients
    return {
        "format": "pt",
        "model": json.dumps(result["model"]),
        "method": result["method"],
        "classes": json.dumps(data.classes),
        "features": json.dumps(data.features),
        "inputs": json.dumps(names_after(steps, data.features or [])),
        "label": json.dumps(data.label),
    }


def save(result: Mapping[str, Any], path: str | Path) -> None:
    """Write a result's model to a file, and make its folder if there is none.

    Args:
        result: the result.
        path: the file; its ending says in which format: ``.npz``, ``.safetensors``, ``.pt``, and for trees ``.txt``.

    Raises:
        SafeError: the format is unknown or does not fit the model.
        OSError: the file cannot be written.
    """
    writers: dict[str, Callable[[Mapping[str, Any], Path], None]] = {
        ".npz": _npz,
        ".safetensors": _safetensors,
        ".pt": _pt,
        ".txt": _txt,
    }
    path = Path(path)
    if path.suffix not in writers:
        raise SafeError(f"cannot export to {path.name}; expected a file that ends in {', '.join(writers)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    writers[path.suffix](result, path)


def _txt(result: Mapping[str, Any], path: Path) -> None:
    spec, model, arrays = parts_of(result)
    if not hasattr(model, "text"):
        raise SafeError(f"a {result['model']['name']} model cannot be a .txt; expected .npz, .safetensors or .pt")
    if spec.preprocess:
        raise SafeError(
            "LightGBM's .txt cannot hold preprocessing; expected .npz, .safetensors or .pt, which `v6-federated "
            "predict` reads"
        )
    path.write_text(model.text(arrays["weights"], spec.features), encoding="utf-8")


def _npz(result: Mapping[str, Any], path: Path) -> None:
    known = parts_of(result)[0].classes
    classes = {} if known is None else {"classes": np.asarray(known)}
    names = json.loads(about(result)["inputs"])
    inputs = {"inputs": np.asarray(names)} if names else {}
    np.savez(path, **whole(result), **classes, **inputs)  # type: ignore[arg-type]  # numpy's stubs take any ** for allow_pickle


def _safetensors(result: Mapping[str, Any], path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({k: np.ascontiguousarray(v) for k, v in whole(result).items()}, path, metadata=about(result))


def _pt(result: Mapping[str, Any], path: Path) -> None:
    try:
        import torch
    except ModuleNotFoundError:
        raise SafeError("writing .pt needs torch; install it with `pip install v6-federated[torch]`") from None
    torch.save({k: torch.from_numpy(np.array(v)) for k, v in whole(result).items()}, path)


def _load_safetensors(path: Path) -> Mapping[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(path)


def _load_pt(path: Path) -> Mapping[str, np.ndarray]:
    try:
        import torch
    except ModuleNotFoundError:
        raise SafeError("reading .pt needs torch; install it with `pip install v6-federated[torch]`") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pickles that it does not read
        return {k: v.numpy() for k, v in torch.load(path, weights_only=True).items()}
