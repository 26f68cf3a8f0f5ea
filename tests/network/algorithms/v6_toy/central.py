"""The central function: ``rounds`` times, one task for all organisations, and their answers by organisation."""

import time

from vantage6.algorithm.client import AlgorithmClient
from vantage6.algorithm.tools.decorators import algorithm_client

from v6_federated.base import vantage6_api


@algorithm_client
def central(client: AlgorithmClient, method: str = "nothing", rounds: int = 1, **arguments) -> dict:
    """{"answers": {organisation: answer of the last round}, "seconds": [a round, ...]}.

    It sends, waits and collects as the methods do, so that the difference to a method is the method's own.
    """
    organizations = vantage6_api.organizations(client)
    seconds = []
    for _ in range(rounds):
        start = time.monotonic()
        task = vantage6_api.create_task(client, {"method": method, "kwargs": arguments}, organizations, method)
        vantage6_api.wait_for_any(client, [task])
        answers = list(vantage6_api.results(client, task))
        seconds.append(time.monotonic() - start)
    return {"answers": {answer["organization_id"]: answer for answer in answers}, "seconds": seconds}
