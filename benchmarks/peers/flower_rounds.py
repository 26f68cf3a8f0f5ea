"""Rounds of FedAvg by Flower's simulation: ``PYTHONPATH=. python flower_rounds.py FOLDER MODEL ROUNDS``."""

import json
import sys
import time
from itertools import pairwise

import networks
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional

folder, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
client, server = ClientApp(), ServerApp()
ends: list[float] = []
accuracies: list[float] = []


@client.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    clients, _ = networks.rows(folder)
    X, y = clients[int(context.node_config["partition-id"])]
    network = networks.network(name)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=networks.LR)
    for batch in torch.randperm(len(y)).split(networks.BATCH):
        optimizer.zero_grad()
        functional.cross_entropy(network(X[batch]), y[batch]).backward()
        optimizer.step()
    content = {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(content), reply_to=message)


def evaluate(round_: int, arrays: ArrayRecord) -> MetricRecord:
    _, (X, y) = networks.rows(folder)
    network = networks.network(name)
    network.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        right = sum(int((network(X[i : i + 500]).argmax(1) == y[i : i + 500]).sum()) for i in range(0, len(y), 500))
    ends.append(time.perf_counter())
    accuracies.append(right / len(y))
    return MetricRecord({"accuracy": right / len(y)})


@server.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(1)
    strategy = FedAvg(fraction_train=networks.CLIENTS / 100, fraction_evaluate=0.0)
    strategy.start(grid, ArrayRecord(networks.network(name).state_dict()), rounds, evaluate_fn=evaluate)


if __name__ == "__main__":
    run_simulation(
        server,
        client,
        num_supernodes=100,
        backend_config={"init_args": {"num_cpus": 2}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    seconds = [after - before for before, after in pairwise(ends)]
    print(json.dumps({"seconds": seconds, "accuracy": accuracies[-1]}))
