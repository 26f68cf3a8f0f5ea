"""A result's model as a file that other software reads, .npz, .safetensors or .pt, and LightGBM's .txt of trees; its
predictions for new rows."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v6_federated import models
from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import DataError
from v6_federated.data import pca, preprocessing
from v6_federated.data.source import Source, encode_labels, load_npz
from v6_federated.messages import codec
from v6_federated.messages.job import DataSpec
from v6_federated.models.linear import LinearModel, predicted
from v6_federated.models.perceptron import Perceptron
from v6_workbench import registry

AFFINE = ("standardize", "pca")


def tensors(result: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The named parameters of a result's model.

    A linear model has ``coef`` (rows, features) and ``intercept`` (rows,) as in scikit-learn, for features as they are
    in the table: standardize and pca are folded in, as far as no other step follows them; ``about`` names the features
    that are left. A network has its layers' tensors in torch's layout, (out, in), and ``mean`` and ``scale`` (d,) where
    standardize is its only step. Trees have none. Components have their arrays as scikit-learn names them.
    """
    spec, model, arrays = _parts(result)
    if model is None:
        return arrays
    steps, w = list(spec.preprocess), arrays["weights"]
    if hasattr(model, "text"):
        return {}  # trees have no tensors; ``whole`` has the ensemble
    if isinstance(model, LinearModel):
        coef, intercept = (part.astype(np.float64) for part in model.split(w))
        while steps and steps[-1]["step"] in AFFINE:
            step = codec.decode(steps.pop()["fitted"])
            coef = (coef @ step["components"] if "components" in step else coef) / step["scale"]
            intercept = intercept - coef @ codec.whole(step, "mean")
        return {"coef": coef, "intercept": intercept}
    named, start = {}, 0
    for name, shape in model.shapes.items():
        part = w[start : start + int(np.prod(shape))].reshape(shape)
        named[name] = np.ascontiguousarray(part.T) if isinstance(model, Perceptron) and part.ndim == 2 else part
        start += part.size
    if [step["step"] for step in steps] == ["standardize"]:
        step = codec.decode(steps[0]["fitted"])
        named |= {"mean": codec.whole(step, "mean"), "scale": step["scale"]}
    return named


def whole(result: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """``tensors``, and what predicts as the nodes did: the parameters as they were trained, and in ``about``, JSON as
    bytes, the model's spec and the data's, with its fitted preprocessing."""
    arrays = _parts(result)[2]
    about = {"method": result["method"], "model": result["model"], "data": result["data"], "arrays": list(arrays)}
    text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    return {**tensors(result), **arrays, "about": text}


def load(path: Path) -> dict[str, Any]:
    """Of an exported model what ``predict`` needs of a result: ``method``, ``model``, ``data`` and ``weights``.

    Raises SafeError.
    """
    readers: dict[str, Callable[[Path], Mapping[str, np.ndarray]]] = {
        ".npz": load_npz,
        ".safetensors": _load_safetensors,
        ".pt": _load_pt,
    }
    if not path.is_file():
        raise SafeError(f"no model {path}; expected a result, or a file that `v6-federated export` wrote")
    try:
        arrays = readers[path.suffix](path)
        about = json.loads(bytes(arrays["about"]))
        trained = {name: np.asarray(arrays[name]) for name in about.pop("arrays")}
    except SafeError:
        raise
    except Exception as error:  # each format's own
        raise SafeError(
            f"{path.name} cannot be used ({type(error).__name__}); expected a file that `v6-federated export` wrote"
        ) from None
    precision = "float64" if any(a.dtype == np.float64 for a in trained.values()) else "float32"
    return {**about, "weights": codec.encode(trained, precision)}


def about(result: Mapping[str, Any]) -> dict[str, str]:
    """What a file's reader must know of the model, as text."""
    data = _parts(result)[0]
    steps = list(data.preprocess)
    while steps and steps[-1]["step"] in AFFINE and result["model"]["name"] in ("logreg", "svm"):
        steps.pop()  # folded in
    return {
        "format": "pt",
        "model": json.dumps(result["model"]),
        "method": result["method"],
        "classes": json.dumps(data.classes),
        "features": json.dumps(data.features),
        "inputs": json.dumps(preprocessing.names_after(steps, data.features or [], data.categories or [])),
        "label": json.dumps(data.label),
    }


def save(result: Mapping[str, Any], path: Path) -> None:
    """Write the model to ``path``; its ending says in which format. Raises SafeError."""
    writers: dict[str, Callable[[Mapping[str, Any], Path], None]] = {
        ".npz": _npz,
        ".safetensors": _safetensors,
        ".pt": _pt,
        ".txt": _txt,
    }
    if path.suffix not in writers:
        raise SafeError(f"cannot export to {path.name}; expected an ending {', '.join(writers)}")
    if not path.parent.is_dir():
        raise SafeError(f"no folder for {path}; expected one that is there")
    writers[path.suffix](result, path)


def _parts(result: Mapping[str, Any]) -> tuple[DataSpec, Any, dict[str, np.ndarray]]:
    """The data's spec, the model, None of components, and the arrays of a result. Raises SafeError."""
    try:
        spec, arrays = DataSpec(**result["data"]), codec.decode(result["weights"])
        result["model"]["name"], result["method"]
        return spec, _model(result) if "weights" in arrays else None, arrays
    except (KeyError, TypeError) as error:
        raise SafeError(
            f"not a result with a model ({type(error).__name__} {error}); expected one that `v6-federated run --out "
            "DIR` wrote"
        ) from None


def _model(result: Mapping[str, Any]) -> Any:
    if result["model"]["name"] not in models.MODELS:
        registry.settings_of(result["method"])  # the method brings its model
    return models.build(result["model"])


def predict(result: Mapping[str, Any], source: Source) -> tuple[pd.DataFrame, dict[str, float]]:
    """What a model says about new rows, with the code that nodes use; and where the rows have the label its
    ``accuracy``, of a regression ``r2``.

    Returns a row of the table for each row: the class as ``prediction``, its scores, decision values as the model has
    them (one ``score`` when binary, above 0 for the second class; else one a class), and, but for ``svm``, the
    probability of each class; of a regression the ``prediction`` alone; of components ``pc1``, ...
    Raises SafeError, which names columns and no values.
    """
    spec, model, arrays = _parts(result)
    try:
        unlabelled = DataSpec(features=spec.features, categories=spec.categories, supervised=False)
        if model is None:
            X = _features(source, unlabelled, spec.preprocess, result["model"]["features"])
            Z = pca.project(X, arrays["mean"], arrays["scale"], arrays["components"])
            return pd.DataFrame(Z, columns=[f"pc{i + 1}" for i in range(Z.shape[1])]), {}
        X = _features(source, unlabelled, spec.preprocess, result["model"]["features"]).astype(np.float32)
        scores = model.scores(arrays["weights"], np.ascontiguousarray(X))
        labelled = _labelled(source, spec)
        if spec.regression:
            table = pd.DataFrame({"prediction": scores[:, 0]})
            return table, _r2(_labels(source, spec, labelled), scores[labelled, 0]) if labelled.any() else {}
        assert spec.classes is not None
        guess = predicted(scores)
        names = ["score"] if scores.shape[1] == 1 else [f"score={c}" for c in spec.classes]
        table = pd.DataFrame(scores, columns=names)
        table.insert(0, "prediction", np.asarray(spec.classes, dtype=object)[guess])
        if getattr(model, "kind", "") != "hinge":
            table[[f"probability={c}" for c in spec.classes]] = _probabilities(scores)
        if not labelled.any():
            return table, {}
        try:
            y = encode_labels(_labels(source, spec, labelled), spec.classes)
        except DataError:
            raise SafeError(
                f"labels that are not among the model's {len(spec.classes)} classes; correct them, or leave the column "
                f"{spec.label} out"
            ) from None
        return table, {"accuracy": float(np.mean(y == guess[labelled]))}
    except DataError as error:
        raise SafeError(str(error)) from None


def _probabilities(scores: np.ndarray) -> np.ndarray:
    """Of each class, (n, classes), from the decision values of a model that is trained by cross-entropy."""
    from scipy.special import softmax

    z = np.asarray(scores, dtype=np.float64)
    return softmax(np.hstack([np.zeros_like(z), z]) if z.shape[1] == 1 else z, axis=1)


def _labelled(source: Source, spec: DataSpec) -> np.ndarray:
    """Which rows have a label, (n,)."""
    if source.table is None:
        assert source.X is not None
        return np.full(len(source.X), source.y is not None)
    if spec.label not in source.table.columns:
        return np.zeros(len(source.table), dtype=bool)
    return source.table[spec.label].notna().to_numpy()


def _labels(source: Source, spec: DataSpec, labelled: np.ndarray) -> np.ndarray:
    if source.table is None:
        return source.labels(spec)
    return Source(table=source.table[labelled]).labels(spec)


def _r2(y: np.ndarray, prediction: np.ndarray) -> dict[str, float]:
    total = float(np.sum((y - y.mean()) ** 2))
    return {"r2": 1 - float(np.sum((y - prediction) ** 2)) / total} if total else {}


def _features(source: Source, spec: DataSpec, steps: Any, expected: int) -> np.ndarray:
    """The rows after the steps, complete, as precise as they are."""
    features = source.features(spec)
    features.check_finite()  # as at nodes, whatever step would bound them
    try:
        after = preprocessing.apply(features, steps)
        after.check_complete()
        X = after.X
    except ValueError as error:
        if isinstance(error, SafeError) and source.table is not None:
            raise
        X = None  # arrays have no names to miss
    if X is None or X.shape[1] != expected:
        raise SafeError(f"rows of {len(features.names)} columns do not fit the model; expected those it was trained on")
    return X


def _txt(result: Mapping[str, Any], path: Path) -> None:
    spec, model, arrays = _parts(result)
    if not hasattr(model, "text"):
        raise SafeError(f"a model {result['model']['name']} has no form as text; expected .npz, .safetensors or .pt")
    if spec.preprocess:
        raise SafeError(
            "LightGBM's text has no place for preprocessing; expected .npz, .safetensors or .pt, which "
            "`v6-federated predict` reads"
        )
    path.write_text(model.text(arrays["weights"], spec.features), encoding="utf-8")


def _npz(result: Mapping[str, Any], path: Path) -> None:
    known = _parts(result)[0].classes
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
        raise SafeError("writing .pt needs torch, which is not installed; install v6-federated[torch]") from None
    torch.save({k: torch.from_numpy(np.array(v)) for k, v in whole(result).items()}, path)


def _load_safetensors(path: Path) -> Mapping[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(path)


def _load_pt(path: Path) -> Mapping[str, np.ndarray]:
    try:
        import torch
    except ModuleNotFoundError:
        raise SafeError("reading .pt needs torch, which is not installed; install v6-federated[torch]") from None
    return {k: v.numpy() for k, v in torch.load(path, weights_only=True).items()}
