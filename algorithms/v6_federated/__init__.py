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
    from v6_federated.central.job import Result, central
    from v6_federated.central.privacy import training_plan
    from v6_federated.data import affine, inference, pca, pooling, times
    from v6_federated.data.columns import check_scale
    from v6_federated.data.source import Rows
    from v6_federated.messages import codec
    from v6_federated.messages.common import Common, EvaluatedWithNoise, Fraction, Rounds, TrainingWithNoise, WithNoise
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
    from v6_federated.messages.settings import LARGE, Number, Record, Role, changed
    from v6_federated.models import Vector
    from v6_federated.models.questions import Asked
    from v6_federated.node.extraction import extract
    from v6_federated.node.functions import (
        confirm,
        count_events,
        count_rows,
        describe,
        evaluate,
        fit_step,
        forget,
        keep_steps,
    )
    from v6_federated.node.node import Node
    from v6_federated.node.task import partial
    from v6_federated.privacy import exact
    from v6_federated.privacy.dp.bounded import ROW, bounded_reach, bounded_rows, bounded_sum
    from v6_federated.privacy.dp.plan import Plan
    from v6_federated.privacy.environment import number_of_threads
    from v6_federated.privacy.summands import Count, Loss, Mean, Sum, Truth, of_the_model

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
    "Federation",
    "Fraction",
    "Grid",
    "LearningRate",
    "LocalSGD",
    "Loss",
    "Mean",
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
    "pooling",
    "times",
    "training_plan",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy.names_of(__name__)
