"""Laws that hold for every method of federated learning."""

from collections.abc import Mapping
from typing import get_args

import numpy as np

from v6_federated import models
from v6_federated.base.randomness import generator
from v6_federated.data import source
from v6_workbench.conformance import tables
from v6_workbench.conformance.case import RATE, Arrays, MethodCase, Pooled
from v6_workbench.conformance.jobs import learned, run
from v6_workbench.conformance.outcome import CheckFailed, NotApplicable, require

NUMBER = 16 / 3  # bytes of a float32 in base64
JSON = 1500  # bytes of a message that do not grow with the model, at most
STEPS = ["impute:median", "impute:most_frequent", "onehot", "clip:0.05", "standardize", "pca:4"]
SHARE = 0.25  # of rows that are held out


def one_node_equals_centralized_training(case: MethodCase) -> None:
    """If one node holds all rows, the method trains as if there were no federation."""
    rounds, seed = 6, 4
    reference = case.centralized or gradient_descent
    for model in case.trained_models():
        only_two = case.regression or not case.supervised or case.most_classes < 3
        for classes in (2,) if only_two else (2, 3):
            rows = case.rows(tables.table(40, classes=classes))
            result = run(case, {1: rows}, **case.values(model=model, rounds=rounds, seed=seed, **case.all_rows))
            built = models.build(result["model"]) if case.supervised else None
            pooled = Pooled(
                X=rows.iloc[:, :-1].to_numpy(np.float32),
                y=rows["label"].to_numpy(),
                rounds=rounds,
                settings=result["settings"],
                model=built,
                weights=None if built is None else built.init(generator(seed, "init")),
            )
            _near(learned(result), reference(pooled), 2e-6, f"{model or 'one node'}, {classes} classes")


def gradient_descent(pooled: Pooled) -> np.ndarray:
    """The model (d,) after a step of gradient descent on all rows in each round."""
    if pooled.model is None or pooled.model.size is None:
        raise NotApplicable(
            "its model is no vector of fixed length; MethodCase(centralized=...) says what it must equal"
        )
    assert pooled.weights is not None
    w = pooled.weights
    for _ in range(pooled.rounds):
        w = w - np.float32(RATE) * pooled.model.loss_and_gradient(w, pooled.X, pooled.y)[1]
    return w


def order_of_nodes_changes_nothing(case: MethodCase) -> None:
    """The model has the same bits, whichever organization is listed first and runs central."""
    nodes = case.nodes(tables.three())
    for model in case.trained_models():
        values = case.values(model=model, rounds=3, seed=1)
        one, other = (run(case, {k: nodes[k] for k in order}, **values) for order in ([3, 5, 8], [8, 3, 5]))
        require(one["weights"] == other["weights"], f"{model or 'it'}: another order of nodes gives other bits")


def equal_nodes_equal_one(case: MethodCase) -> None:
    """Three nodes with the same rows learn what one of them alone learns."""
    rows = case.rows(tables.table(60))
    for model in case.trained_models():
        values = case.values(model=model, rounds=4, **case.all_rows)
        one, many = (run(case, dict.fromkeys(ids, rows), **values) for ids in ([1], [1, 2, 3]))
        _near(learned(many), learned(one), 1e-6, f"{model or 'it'}: three equal nodes against one")


def rate_zero_changes_nothing(case: MethodCase) -> None:
    """With all rates of local steps at 0, the model stays as it is at the start."""
    if not case.rates:
        raise NotApplicable("no setting is the rate of a local step")
    nodes, still = case.nodes(tables.three()), dict.fromkeys(case.rates, 0.0)
    for name in case.trained_models():
        first, last = (run(case, nodes, **case.values(model=name, rounds=t, seed=7) | still) for t in (1, 3))
        model = models.build(last["model"])
        if model.size is not None:
            unchanged = np.array_equal(learned(last)["weights"], model.init(generator(7, "init")))
        else:  # a model that grows
            X = nodes[3].iloc[:, :-1].to_numpy(np.float32)
            unchanged = np.array_equal(*(model.scores(learned(result)["weights"], X) for result in (first, last)))
        require(unchanged, f"{name}: the model changes at a rate of 0")


def rows_held_out_are_not_trained_on(case: MethodCase) -> None:
    """Spoiling the rows that are held out changes their evaluation, and no bit of the model."""
    if not case.supervised:
        raise NotApplicable("it holds no rows out")
    nodes, spoiled = case.nodes(tables.three()), {}
    for organization, rows in nodes.items():
        _, held = source.split(len(rows), SHARE, organization)
        spoiled[organization] = rows.copy()
        spoiled[organization].iloc[held, :-1] = 100.0
    values = case.values(rounds=2, holdout=SHARE, seed=2)
    good, bad = (run(case, each, **values) for each in (nodes, spoiled))
    require(good["weights"] == bad["weights"], "the model depends on rows that are held out")
    require(good["final"]["loss"] != bad["final"]["loss"], "the rows that are held out are not evaluated")


def bytes_equal_the_formula(case: MethodCase) -> None:
    """The bytes of a node's first round are those that the case declares.

    It sends and is sent ``vectors_up`` and ``vectors_down`` times 16/3 bytes a parameter, and JSON that does not grow
    with the model.
    """
    case.needs_a_vector()
    nodes, overhead = case.nodes(tables.three()), []
    for hidden in (5, 50):
        result = run(case, nodes, **case.values(rounds=1, model=f"fnn:hidden={hidden}"))
        size = models.build(result["model"]).size
        assert size is not None
        for k in nodes:
            rows = [row for row in result["per_node"] if row["organization_id"] == k]
            up, down = (sum(row[name] for row in rows) for name in ("bytes_up", "bytes_down"))
            overhead.append((up - case.vectors_up * size * NUMBER, down - case.vectors_down * size * NUMBER))
    growth = np.ptp(overhead, axis=0)
    require(
        np.max(overhead) < JSON and growth.max() < 30,  # numbers with more or fewer digits
        f"without {case.vectors_up} vector(s) up and {case.vectors_down} down, {np.max(overhead):.0f} bytes are left, "
        f"and these grow by {growth[0]:.0f} bytes up and {growth[1]:.0f} down with the model",
    )


def half_precision_halves_the_bytes(case: MethodCase) -> None:
    """With ``precision=float16`` nodes send about half as many bytes."""
    case.needs_a_vector()
    if len(get_args(case.schema.model_fields["precision"].annotation)) < 2:
        raise NotApplicable("the setting precision offers no choice")
    full, half = (
        run(case, case.nodes(tables.three()), **case.values(rounds=1, model="fnn:hidden=200", precision=precision))
        for precision in ("float32", "float16")
    )
    share = half["history"][0]["bytes_up"] / full["history"][0]["bytes_up"]
    require(0.45 < share < 0.6, f"with float16 nodes send {share:.2f} of the bytes of float32")


def history_names_who_took_part(case: MethodCase) -> None:
    """Participants, and the rows of single nodes, carry the organizations' ids."""
    nodes = case.nodes(tables.three())
    result = run(case, nodes, **case.values(rounds=3))
    for what, found in (
        ("participants", {k for row in result["history"] for k in row["participants"]}),
        ("rows of single nodes", {row["organization_id"] for row in result["per_node"]}),
    ):
        require(found == {*nodes}, f"the {what} of the history are {sorted(found)}; expected {sorted(nodes)}")


def as_many_rounds_as_a_node_allows(case: MethodCase) -> None:
    """A job with as many rounds as nodes allow comes to its end, and its last model is evaluated."""
    environment = {"V6_FEDERATED_MAXIMUM_ROUNDS": "3"}
    result = run(case, case.nodes(tables.three()), environment, **case.values(rounds=3))
    require(not case.supervised or bool(result["final"]["evaluated"]), "the last model is not evaluated")


def preprocessing_comes_first(case: MethodCase) -> None:
    """The method runs on rows that all kinds of steps were applied to."""
    if case.without_features:
        raise NotApplicable("it has no features")
    steps = STEPS if case.supervised else STEPS[:-1]
    result = run(case, case.nodes(tables.clinics()), **case.values(rounds=2, preprocess=steps))
    done = [step["step"] for step in result["data"]["preprocess"]]
    require(done == [step.partition(":")[0] for step in steps], f"the fitted steps are {done}; expected {steps}")
    if case.supervised:
        features = result["model"]["features"]
        require(features == 4, f"the model has {features} features; expected the 4 components of the last step")
        require(result["final"]["loss"] is not None, "the model was not evaluated on rows after the steps")


def _near(found: Mapping[str, np.ndarray], expected: Arrays, tolerance: float, what: str) -> None:
    """Raise CheckFailed unless each array that is expected was found, equal within an absolute tolerance."""
    for name, array in ({"weights": expected} if isinstance(expected, np.ndarray) else expected).items():
        if name not in found or found[name].shape != array.shape:
            shape = found[name].shape if name in found else "none"
            raise CheckFailed(f"{what}: {name} of shape {shape}; expected {array.shape}")
        off = float(np.abs(found[name] - array).max(initial=0))
        require(off <= tolerance * max(1.0, float(np.abs(array).max(initial=0))), f"{what}: {name} is off by {off:.2g}")
