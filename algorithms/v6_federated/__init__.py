"""Federated learning methods for hospitals: what a method imports, and all that runs at a hospital.

A method is a function decorated with ``central``, which is given a ``Federation``, and functions decorated with
``partial``, which are given a ``Node``. Every method also offers ``describe``, ``fit_step`` and ``forget``, and every
method that trains a model ``evaluate`` and ``keep_steps``.
"""

from typing import TYPE_CHECKING

from v6_federated.base import lazy

if TYPE_CHECKING:
    from v6_federated import models
    from v6_federated.base.errors import SafeError
    from v6_federated.base.vantage6_api import CollectResultsError, UserInputError
    from v6_federated.base.version import __version__
    from v6_federated.central import newton
    from v6_federated.central.answer import Answer
    from v6_federated.central.answers import Answers
    from v6_federated.central.bins_of_time import Grid, bins_of_time, check_grid, mixed_bins
    from v6_federated.central.federation import Federation
    from v6_federated.central.method import Result
    from v6_federated.central.noise_plan import training_plan
    from v6_federated.central.server import central
    from v6_federated.data import affine, inference, pca, statistics, times
    from v6_federated.data.columns import check_scale
    from v6_federated.data.source import Rows
    from v6_federated.gate.call import partial
    from v6_federated.gate.extraction import extract
    from v6_federated.gate.questions import (
        confirm,
        count_events,
        count_rows,
        describe,
        evaluate,
        fit_step,
        forget,
        keep_steps,
    )
    from v6_federated.masks import exact
    from v6_federated.masks.summands import Count, Loss, Mean, Sum, Truth, of_the_model
    from v6_federated.messages import codec
    from v6_federated.messages.common import (
        Common,
        EvaluatedWithNoise,
        Fraction,
        HeldOut,
        Holdout,
        NoClasses,
        Rounds,
        Training,
        TrainingWithNoise,
        WithNoise,
    )
    from v6_federated.messages.local_sgd import (
        ONE_STEP,
        RISK_SETS,
        BatchSize,
        Epochs,
        LearningRate,
        LocalSGD,
        PlainSGD,
        of_gradients,
        of_steps,
        one_step,
    )
    from v6_federated.messages.relations import Excludes, Needs
    from v6_federated.messages.settings import LARGE, Number, Record, Role, changed
    from v6_federated.models import Vector
    from v6_federated.models.layouts import Asked
    from v6_federated.node.node import Node
    from v6_federated.noise.bounded import ROW, bounded_reach, bounded_rows, bounded_sum
    from v6_federated.noise.plan import Plan
    from v6_federated.rules.environment import number_of_threads

__all__ = [
    "LARGE",
    "ONE_STEP",
    "RISK_SETS",
    "ROW",
    "Answer",
    "Answers",
    "Asked",
    "BatchSize",
    "CollectResultsError",
    "Common",
    "Count",
    "Epochs",
    "EvaluatedWithNoise",
    "Excludes",
    "Federation",
    "Fraction",
    "Grid",
    "HeldOut",
    "Holdout",
    "LearningRate",
    "LocalSGD",
    "Loss",
    "Mean",
    "Needs",
    "NoClasses",
    "Node",
    "Number",
    "PlainSGD",
    "Plan",
    "Record",
    "Result",
    "Role",
    "Rounds",
    "Rows",
    "SafeError",
    "Sum",
    "Training",
    "TrainingWithNoise",
    "Truth",
    "UserInputError",
    "Vector",
    "WithNoise",
    "__version__",
    "affine",
    "bins_of_time",
    "bounded_reach",
    "bounded_rows",
    "bounded_sum",
    "central",
    "changed",
    "check_grid",
    "check_scale",
    "codec",
    "confirm",
    "count_events",
    "count_rows",
    "describe",
    "evaluate",
    "exact",
    "extract",
    "fit_step",
    "forget",
    "inference",
    "keep_steps",
    "mixed_bins",
    "models",
    "newton",
    "number_of_threads",
    "of_gradients",
    "of_steps",
    "of_the_model",
    "one_step",
    "partial",
    "pca",
    "statistics",
    "times",
    "training_plan",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy.names_of(__name__)
