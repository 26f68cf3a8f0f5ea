"""An honest request for each sum that functions declare: arrays, settings, and parts of the job."""

import numpy as np

from v6_federated.messages import codec

FIT = {"weights": np.array([0.3, -0.2, 0.1, 0.4, 0.2])}
GLM = {"name": "glm", "features": 4, "classes": 1, "family": "poisson"}
TREES = np.array([[0, 0.5, 1.0], [-1, 1.0, 0.0], [-1, 1.0, 0.0]], np.float32)
EDGES = codec.encode({"edges": np.zeros(8), "lengths": np.full(4, 2)})
A_NUMBER = {"classes": None, "regression": True}
TRANSFORM = codec.encode({"T": np.eye(5)})
CENTER = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
TIMES = {**A_NUMBER, "event": "ill"}
GROUPS = {**TIMES, "subgroup": "x3", "levels": ["0", "1", "2"]}
COX = {"name": "cox", "features": 4, "classes": 1}
ENSEMBLE = {"name": "trees", "features": 4, "classes": 2}
BINS = codec.encode({"ends": np.array([1.0, 2.0]), "hazard": np.array([0.1, 0.2, 0.3])}, "float64")
PROJECTION = {"mean": np.zeros(4), "scale": np.ones(4), "components": np.eye(4)}
ENDS = {"lower": np.zeros(1), "upper": np.ones(1)}
HONEST = {
    "fedavg": [
        ("client_update", FIT, {"local": {"lr": 0.1}}, {}),
        ("client_update", FIT, {"local": {"lr": 0.1}, "evaluate": "all", "bands": 255}, {}),
        ("compressed_update", FIT, {"local": {}, "compression": {}, "known": {}}, {}),
        ("ditto_update", FIT, {"local": {}, "personal": {}, "known": {}}, {}),
        ("evaluate_own", FIT, {"evaluate": "all", "local": {}, "personal": {}, "known": {}}, {}),
        ("evaluate", FIT, {"evaluate": "all", "last": True}, {}),
        ("fit_step", {"center": np.zeros(4)}, {"statistic": "moments"}, {"model": None}),
        ("fit_step", {"mean": np.zeros(4), "scale": np.ones(4)}, {"statistic": "covariance"}, {"model": None}),
        ("fit_step", {"mean": np.zeros(4), "scale": np.ones(4)}, {"statistic": "product", "draw": 2}, {"model": None}),
        ("fit_step", {"center": np.zeros(2)}, {"statistic": "present", "columns": ["x0", "x1"]}, {"model": None}),
        ("fit_step", {"center": np.zeros(1)}, {"statistic": "label"}, {"model": None, "data": A_NUMBER}),
        ("fit_step", {}, {"statistic": "classes"}, {"model": None}),
        (
            "fit_step",
            {"lower": np.zeros(1), "upper": np.ones(1)},
            {"statistic": "below", "columns": ["x0"]},
            {"model": None},
        ),
        ("fit_step", {}, {"statistic": "levels", "columns": ["x3"], "known": {"x3": ["1"]}, "counts": True}, {}),
        ("count_rows", {}, {}, {}),
        ("noisy_gradient", FIT, {}, {}),
    ],
    "scaffold": [("client_update", {**FIT, "c": np.zeros(5)}, {"known": {}, "local": {}}, {})],
    "fsvrg": [
        ("gradient", FIT, {}, {}),
        ("client_update", {**FIT, "full_gradient": np.ones(5)}, {"stepsize": 0.1, "batch_size": 20}, {}),
    ],
    "colearning": [("client_update", FIT, {"local": {}, "epochs": 1, "epochs_before": 0, "lr_cycle": 0.5}, {})],
    "glm": [
        ("newton", {}, {}, {"model": GLM, "data": A_NUMBER}),
        ("newton", {**FIT, "center": CENTER, "scale": np.ones(5)}, {}, {"model": GLM, "data": A_NUMBER}),
        ("noisy_newton", {}, {"transform": TRANSFORM, "of_budget": 1}, {"model": GLM, "data": A_NUMBER}),
    ],
    "pca": [("noisy_moments", {}, {"d": 4}, {"model": None}), ("transform", PROJECTION, {}, {"model": None})],
    "km": [("leaving", {}, {"ends": [1.0, 2.0], "strata": "hospital"}, {"model": None, "data": GROUPS})],
    "cox": [
        ("count_events", {}, {}, {"model": None, "data": TIMES}),
        ("newton", FIT, {"ties": "efron"}, {"model": COX, "data": TIMES}),
        ("newton_on_grid", {**FIT, "center": np.zeros(5)}, {"bins": BINS, "even": True}, {"model": COX, "data": TIMES}),
    ],
    "gbdt": [
        ("average", {}, {}, {"model": None, "data": A_NUMBER}),
        ("count", {"low": np.full(4, -3.0), "high": np.full(4, 3.0)}, {"max_bin": 8}, {"model": None}),
        ("leaf_sums", {"weights": TREES, "structure": TREES}, {"edges": EDGES}, {"model": ENSEMBLE}),
        ("bin_sums", {"weights": TREES, "structure": TREES}, {"edges": EDGES}, {"model": ENSEMBLE}),
        ("noisy_leaf_sums", {"weights": TREES, "structure": TREES}, {}, {"model": ENSEMBLE}),
    ],
}
