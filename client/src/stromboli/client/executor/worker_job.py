"""The job whose pods are an executor's workers. Pure."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stromboli.client import errors

MODULE = "stromboli.client.executor.worker"
ENDED_TTL_S = 600
"""Time after which an ended job is deleted if the executor does not delete it."""
MAX_RETRY = 10_000
"""``maxRetry`` of the job: the restarts of workers are bounded for each call, not for the job."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an executor's pods.

    ``image``: has the caller's minor version of Python, ``stromboli-client[executor]`` and the
    modules of the functions; empty on process nodes, which run this interpreter in this directory.
    ``requests``: each worker's requests, such as ``{"cpu": "1", "nvidia.com/gpu": "1"}``.
    ``secrets``: Secrets whose keys become environment variables, such as an object store's
    credentials. ``volume_claim``: a PersistentVolumeClaim that is mounted at ``storage``.
    ``orphaned_after_s``: seconds without a heartbeat of the executor after which workers remove the
    session and end.
    """

    image: str = ""
    requests: Mapping[str, str] = {}
    queue: str = ""
    namespace: str = "default"
    env: Mapping[str, str] = {}
    secrets: tuple[str, ...] = ()
    volume_claim: str = ""
    priority_class: str = ""
    orphaned_after_s: int = 300


def worker_job(name: str, workers: int, session: str, options: WorkerOptions) -> dict[str, Any]:
    """The manifest of a job of ``workers`` pods that starts as soon as one of them fits.

    ``session``: path or URL of the session's files. A worker that fails or is evicted is replaced.
    Raises InvalidArgumentError.
    """
    if workers < 1:
        raise errors.InvalidArgumentError(
            "executor", f"workers is {workers}; it must be at least 1"
        )
    spec: dict[str, Any] = {
        "minAvailable": 1,
        "maxRetry": MAX_RETRY,
        "ttlSecondsAfterFinished": ENDED_TTL_S,
        "plugins": {"env": []},
        "policies": [{"events": ["PodFailed", "PodEvicted"], "action": "RestartPod"}],
        "tasks": [{"name": "worker", "replicas": workers, "template": _template(session, options)}],
    }
    if options.queue:
        spec["queue"] = options.queue
    if options.priority_class:
        spec["priorityClassName"] = options.priority_class
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": options.namespace},
        "spec": spec,
    }


def _template(session: str, options: WorkerOptions) -> dict[str, Any]:
    python = "python" if options.image else sys.executable
    container: dict[str, Any] = {
        "name": "worker",
        "image": options.image or "process-node",
        "command": [python, "-m", MODULE, session, f"--orphaned-after={options.orphaned_after_s}"],
        "env": _env({"PYTHONUNBUFFERED": "1", **options.env}),
        "resources": {"requests": dict(options.requests)},
    }
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if not options.image:
        container["workingDir"] = os.getcwd()  # modules beside the program are importable
    if options.secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in options.secrets]
    if options.volume_claim:
        folder = session.removeprefix("file://").rpartition("/")[0]
        container["volumeMounts"] = [{"name": "session", "mountPath": folder}]
        claim = {"persistentVolumeClaim": {"claimName": options.volume_claim}}
        spec["volumes"] = [{"name": "session", **claim}]
    return {"spec": spec}


def _env(variables: Mapping[str, str]) -> Sequence[Mapping[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]
