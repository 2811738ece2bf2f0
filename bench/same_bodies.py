"""The request bodies that the controller sends for a job, for raw clients.

The controller's core plans a job that the API server has returned, as after its submission; the
bodies are those of its commands. They name another scheduler, so that the services ignore the
objects that a client creates from them.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec

from bench import large_job
from stromboli.controller.core import commands, reconcilers
from stromboli.controller.core.store import controller_cache
from stromboli.shared.api import batch, kinds

SCHEDULER = "foreign"
"""The name of a scheduler that does not exist, with as many characters as Stromboli's."""


class Bodies(NamedTuple):
    """The objects of one job, as JSON documents."""

    pod_group: dict[str, Any]
    pods: list[dict[str, Any]]


def captured(served: bytes) -> Bodies:
    """The bodies for a job as the API server returns it."""
    job = kinds.JOBS.decode(served)
    cluster = _Recording()
    cluster.submit(msgspec.structs.replace(job, status=batch.JobStatus()))
    key = f"{job.metadata.namespace}/{job.metadata.name}"
    pods = sum(task.replicas for task in job.spec.tasks)
    cluster.follow(controller_cache.ReconcileKey("job", key), pods)
    return cluster.bodies()


class _Recording(large_job.Cluster):
    """Records the bodies of the objects that the controller creates."""

    def __init__(self) -> None:
        super().__init__()
        self._created: list[commands.Create] = []

    def follow(self, item: controller_cache.ReconcileKey, pods: int) -> None:
        """Reconcile until the pods exist; the PodGroup is enqueued when it exists."""
        while len(self.pods) < pods:
            plan = reconcilers.plan(self.cache, item, self.now)
            for command in (each for stage in plan for each in stage):
                if isinstance(command, commands.Create):
                    self._created.append(command)
                self._carry_out(command)
            for group in list(self.cache.objects(kinds.POD_GROUPS)):
                if group.status.phase in ("", "Pending"):
                    status = msgspec.structs.replace(group.status, phase="Inqueue")
                    self.observe(kinds.POD_GROUPS, msgspec.structs.replace(group, status=status))

    def bodies(self) -> Bodies:
        """The bodies of the created objects."""
        made: dict[str, list[dict[str, Any]]] = {}
        for command in self._created:
            made.setdefault(command.kind.plural, []).append(json.loads(command.body))
        (pod_group,) = made[kinds.POD_GROUPS.plural]
        # A session would admit a pending PodGroup. Its status is written with it.
        pod_group["status"] = {"phase": "Running"}
        pods = made[kinds.PODS.plural]
        for pod in pods:
            pod["spec"]["schedulerName"] = SCHEDULER
        return Bodies(pod_group, pods)
