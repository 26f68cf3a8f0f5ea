"""The central function: ``rounds`` times, one task for all organisations, and their answers by organisation."""

import time

from vantage6.algorithm.client import AlgorithmClient
from vantage6.algorithm.tools.decorators import algorithm_client


@algorithm_client
def central(client: AlgorithmClient, method: str = "nothing", rounds: int = 1, **arguments) -> dict:
    """{"answers": {organisation: answer of the last round}, "seconds": [a round, ...]}."""
    organizations = [organization["id"] for organization in client.organization.list()]
    seconds = []
    for _ in range(rounds):
        start = time.monotonic()
        task = client.task.create(
            input_={"method": method, "kwargs": arguments}, organizations=organizations, name=method, description=""
        )
        while client.request(f"task/{task['id']}/status")["status"] not in ("completed", "failed", "crashed"):
            time.sleep(0.2)
        answers = client.result.from_task(task["id"])
        seconds.append(time.monotonic() - start)
    return {"answers": {answer["organization_id"]: answer for answer in answers}, "seconds": seconds}
