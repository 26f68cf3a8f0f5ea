"""Rounds of FedAvg by pfl-research: ``torchrun --nproc-per-node 2 pfl_rounds.py FOLDER MODEL ROUNDS``."""

import json
import sys
import time
from itertools import pairwise
from typing import Any

import networks
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import get_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn import functional

folder, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(1)
clients, test = networks.rows(folder)


class Trained(nn.Module):
    """A network with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.network = networks.network(name)

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.network(X), y)

    def metrics(self, X: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return {"accuracy": Weighted(float((self.network(X).argmax(1) == y).sum()), len(y))}


class Clock(TrainingProcessCallback):
    """The time at the end of each round."""

    def __init__(self) -> None:
        self.ends = [time.perf_counter()]
        self.accuracy = 0.0

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.ends.append(time.perf_counter())
        self.accuracy = next(float(v) for k, v in aggregate_metrics.to_simple_dict().items() if k.endswith("accuracy"))
        return False, Metrics()


module = Trained()
model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
data = FederatedDataset(
    lambda k: PyTorchTensorDataset(clients[k], user_id=str(k)), get_user_sampler("random", range(len(clients)))
)
clock = Clock()
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=rounds,
        evaluation_frequency=rounds + 1,  # none of the clients' rows after the first round, which is not counted
        train_cohort_size=networks.CLIENTS,
        val_cohort_size=0,
    ),
    SimulatedBackend(training_data=data, val_data=data),
    model,
    NNTrainHyperParams(local_num_epochs=1, local_learning_rate=networks.LR, local_batch_size=networks.BATCH),
    NNEvalHyperParams(local_batch_size=500),
    [CentralEvaluationCallback(PyTorchTensorDataset(test), NNEvalHyperParams(local_batch_size=500)), clock],
)
if get_ops().distributed.global_rank == 0:
    seconds = [after - before for before, after in pairwise(clock.ends)]
    print(json.dumps({"seconds": seconds, "accuracy": clock.accuracy}))
if torch.distributed.is_initialized():
    torch.distributed.barrier()  # a process that ends early takes the other one with it
    torch.distributed.destroy_process_group()
