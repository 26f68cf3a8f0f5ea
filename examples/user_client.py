# %% [markdown]
# # A federated training by hand
# What `v6-federated submit` does, cell by cell, with vantage6's own `UserClient`. Bring up a network to try it on:
#
# `make images && v6-federated network up --nodes 3 --data digits --partition iid`

# %%
import json
import os
import time
from pathlib import Path

from matplotlib import pyplot as plt
from vantage6.client import UserClient

from v6_workbench.network import local
from v6_workbench.reporting.export import save

# %% [markdown]
# Where: the local network's address and researcher. At a hospital's server, write your own in their place.

# %%
there = local.load(os.environ.get("V6_FEDERATED_NETWORK", "default"))

client = UserClient(there.url, there.port, there.api_path, log_level="warn")
client.authenticate(there.username, there.password)
client.setup_collaboration(there.collaboration)
client.setup_encryption(there.private_key)  # a path, or None where the collaboration is not encrypted

# %% [markdown]
# Who: the organizations of the collaboration, and whether their nodes are online.

# %%
for node in client.node.list()["data"]:
    print(node["organization"]["id"], node["name"], node["status"])

# %% [markdown]
# What: the central function of a method, with its settings by name. It runs at one organization and asks the others.

# %%
task = client.task.create(
    collaboration=there.collaboration,
    organizations=[1],
    name="fedavg by hand",
    description="three rounds of logistic regression",
    image="v6-fedavg",
    input_={
        "method": "central",
        "kwargs": {"rounds": 3, "model": "logreg", "lr": 0.1, "seed": 1, "organizations": [1, 2, 3]},
    },
    databases=[{"label": there.label}],
)
print("task", task["id"])

# %% [markdown]
# Wait. `client.wait_for_results` would look less and less often; the status alone is a small message.

# %%
while (status := client.request(f"task/{task['id']}/status")["status"]) in ("pending", "initializing", "active"):
    time.sleep(1)
print(status)

# %% [markdown]
# The result, or why there is none: the log of central's run ends with what went wrong, and at which organization.

# %%
[answer] = client.result.from_task(task["id"])["data"]
if not answer["result"]:
    [run] = client.run.from_task(task["id"])["data"]
    raise SystemExit(f"{run['status']}: {run['log']}")
result = json.loads(answer["result"])
for row in result["history"]:
    print(f"round {row['round']}: accuracy {row['accuracy']:.3f}, loss {row['loss']:.3f}, {row['bytes_up']} bytes up")

# %% [markdown]
# The curve, and the model: `coef` and `intercept` as scikit-learn has them.

# %%
plt.plot([row["round"] for row in result["history"]], [row["accuracy"] for row in result["history"]])
plt.xlabel("round")
plt.ylabel("accuracy on held-out rows")
plt.show()

save(result, Path("model.npz"))
