"""Kubernetes, as far as a node of vantage6 5 uses it: a job is one container of the Docker engine.

It stands in for the calls of ``kubernetes.client`` and ``kubernetes.watch`` that ``vantage6.node`` makes. The image,
its mounts and its environment are real. Nothing else is: there are no namespaces, no limits, no network policies (a
container reaches whatever the engine lets it reach), and no second try of a job that failed. A real cluster would wait
ten seconds before it tries again, and by then the node has seen the failure and deleted the job.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import docker
import kubernetes
from docker.errors import APIError, ImageNotFound, NotFound
from docker.types import Mount
from kubernetes import client, watch
from kubernetes.client.rest import ApiException

LOOK_SECONDS = 0.05
LABEL = "v6-federated.network"
SCOPE = os.environ["V6_FEDERATED_SCOPE"]  # begins the names of this node's containers
NETWORK = os.environ["V6_FEDERATED_NETWORK"]  # the local network's name
DOCKER_NETWORK = os.environ["V6_FEDERATED_DOCKER_NETWORK"]

engine = docker.DockerClient.from_env(timeout=None)  # a job may be silent for hours
jobs: dict[str, client.V1Job] = {}
pods: dict[str, client.V1Pod] = {}
secrets: dict[str, dict[str, str]] = {}


def install() -> None:
    """Put it in Kubernetes' place. What an earlier life of this node has left running is removed."""
    for container in engine.containers.list(all=True, filters={"label": f"{LABEL}.scope={SCOPE}"}):
        _remove(container.name)
    kubernetes.config.load_incluster_config = lambda: None
    client.CoreV1Api, client.BatchV1Api, watch.Watch = Core, Batch, Watch


class Core:
    """The calls of ``CoreV1Api``."""

    def read_namespace(self, name: str) -> client.V1Namespace:
        return client.V1Namespace(metadata=client.V1ObjectMeta(name=name))

    def create_namespaced_pod(self, namespace: str, body: client.V1Pod) -> None:
        """Pods without a job try out the cluster: whether it takes pods, and whether they reach the internet.

        They are not started. The answer is that they do reach it, since nothing here keeps algorithms from it.
        """
        pods[body.metadata.name] = body
        _tell(body.metadata.name, "Succeeded", terminated=client.V1ContainerStateTerminated(exit_code=0))

    def read_namespaced_pod(self, name: str, namespace: str) -> client.V1Pod:
        return _known(pods, name)

    def list_namespaced_pod(self, namespace: str, label_selector: str) -> client.V1PodList:
        key, _, value = label_selector.partition("=")
        return client.V1PodList(
            items=[pod for pod in list(pods.values()) if (pod.metadata.labels or {}).get(key) == value]
        )

    def delete_namespaced_pod(self, name: str, namespace: str, **options: Any) -> None:
        _known(pods, name)
        del pods[name]
        _remove(f"{SCOPE}-{name}")

    def read_namespaced_pod_log(self, name: str, namespace: str, **options: Any) -> str:
        _known(pods, name)
        try:
            return engine.containers.get(f"{SCOPE}-{name}").logs().decode(errors="replace")
        except NotFound as error:
            raise ApiException(status=400, reason="the container has not started") from error

    def create_namespaced_secret(self, namespace: str, body: client.V1Secret) -> None:
        secrets[body.metadata.name] = body.string_data

    def delete_namespaced_secret(self, name: str, namespace: str) -> None:
        _known(secrets, name)
        del secrets[name]


class Batch:
    """The calls of ``BatchV1Api``."""

    def create_namespaced_job(self, namespace: str, body: client.V1Job) -> None:
        name, template = body.metadata.name, body.spec.template
        pod = f"{name}-1"
        body.status = client.V1JobStatus()
        labels = {**template.metadata.labels, "job-name": name}
        jobs[name] = body
        pods[pod] = client.V1Pod(metadata=client.V1ObjectMeta(name=pod, labels=labels), spec=template.spec)
        _tell(pod, "Pending", waiting=client.V1ContainerStateWaiting(reason="ContainerCreating"))
        threading.Thread(target=_run, args=(body, pod), daemon=True).start()

    def read_namespaced_job(self, name: str, namespace: str) -> client.V1Job:
        return _known(jobs, name)

    def list_namespaced_job(self, namespace: str, label_selector: str) -> client.V1JobList:
        return client.V1JobList(items=list(jobs.values()))  # all are this node's

    def delete_namespaced_job(self, name: str, namespace: str) -> None:
        _known(jobs, name)
        del jobs[name]


class Watch:
    """A stream of what happens to pods, or of the lines of a pod's log."""

    def stream(
        self, func: Callable[..., Any], namespace: str, timeout_seconds: float = float("inf"), **which: str
    ) -> Iterator[Any]:
        if "label_selector" not in which:
            yield from _lines(which["name"])
            return
        until = time.monotonic() + timeout_seconds
        while time.monotonic() < until:
            for pod in func(namespace=namespace, **which).items:
                yield {"type": "MODIFIED", "object": pod}
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Nothing is left open."""


def _run(job: client.V1Job, pod: str) -> None:
    """Run a job's container, and keep the states of its pod and of itself up to date."""
    spec = job.spec.template.spec
    container = spec.containers[0]
    environment = {one.name: one.value for one in container.env}
    for source in container.env_from or ():
        environment |= secrets[source.secret_ref.name]
    paths = {volume.name: volume.host_path.path for volume in spec.volumes}
    mounts = [
        Mount(it.mount_path, paths[it.name], type="bind", read_only=bool(it.read_only))
        for it in container.volume_mounts
    ]
    try:
        _have(container.image, container.image_pull_policy == "Always")
    except (APIError, ImageNotFound) as error:
        reason = client.V1ContainerStateWaiting(reason="ErrImagePull", message=str(error))
        return _tell(pod, "Pending", waiting=reason)
    try:
        running = engine.containers.run(
            container.image,
            name=f"{SCOPE}-{pod}",
            labels={LABEL: NETWORK, f"{LABEL}.scope": SCOPE},
            environment=environment,
            mounts=mounts,
            network=DOCKER_NETWORK,
            tty=bool(container.tty),
            detach=True,
        )
    except APIError as error:
        reason = client.V1ContainerStateWaiting(reason="RunContainerError", message=str(error))
        _tell(pod, "Pending", waiting=reason)
        job.status = client.V1JobStatus(failed=1)
        return None
    if pod not in pods:  # the job was killed before its container was there
        return _remove(running.name)
    _tell(pod, "Running", running=client.V1ContainerStateRunning())
    try:
        code = running.wait()["StatusCode"]
    except NotFound:  # the job was killed
        code = 137
    ended = client.V1ContainerStateTerminated(exit_code=code)
    _tell(pod, "Failed" if code else "Succeeded", terminated=ended)
    job.status = client.V1JobStatus(failed=1) if code else client.V1JobStatus(succeeded=1)
    return None


def _have(image: str, pull: bool) -> None:
    """Have an image here: the one that is, unless the node demands that of its registry."""
    try:
        if pull:
            raise ImageNotFound(image)
        engine.images.get(image)
    except ImageNotFound:
        engine.images.pull(image, None if ":" in image.rpartition("/")[2] else "latest")


def _lines(pod: str) -> Iterator[str]:
    """The lines that a pod prints, as they come."""
    rest = b""
    try:
        for part in engine.containers.get(f"{SCOPE}-{pod}").logs(stream=True, follow=True):
            *lines, rest = (rest + part).split(b"\n")
            yield from (line.decode(errors="replace").rstrip("\r") for line in lines)
    except NotFound:  # removed while it was read
        return
    if rest:
        yield rest.decode(errors="replace")


def _tell(pod: str, phase: str, **state: Any) -> None:
    if pod in pods:
        status = client.V1ContainerStatus(
            name=pod,
            image="",
            image_id="",
            ready=phase == "Running",
            restart_count=0,
            state=client.V1ContainerState(**state),
        )
        pods[pod].status = client.V1PodStatus(phase=phase, container_statuses=[status])


def _known(things: dict[str, Any], name: str) -> Any:
    if name not in things:
        raise ApiException(status=404, reason="Not Found")
    return things[name]


def _remove(container: str) -> None:
    try:
        engine.containers.get(container).remove(force=True, v=True)
    except (NotFound, APIError):  # gone, or going
        return
