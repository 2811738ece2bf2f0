"""Plugin ``ray``: starts a Ray cluster from a head task and a worker task."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec.job_plugins import base, hosts
from stromboli.shared.jobspec.job_plugins.arguments import Value

PORTS = {"port": "gcs", "dashboardPort": "dashboard", "clientPort": "client-server"}
"""Argument -> port name, on the head's container and on its Service."""


class Ray(base.Plugin):
    """Sets the commands that start Ray, and creates a Service for its head."""

    defaults: ClassVar[Mapping[str, Value]] = {
        "head": "head",
        "headContainer": "head",
        "worker": "worker",
        "workerContainer": "worker",
        "port": 6379,
        "dashboardPort": 8265,
        "clientPort": 10001,
    }
    ports: ClassVar[Sequence[str]] = tuple(PORTS)

    def job_problem(self, job: Job, arguments: Sequence[str]) -> str:
        """Why no pod can be created: the job has no head task, so workers would have no cluster to
        join, or the head cannot have a Service."""
        head = self.argument_values(arguments)["head"]
        if base.task_named(job, head) is not None:
            return base.service_name_problem(_service_name(job))
        return f"there is no task {head!r} for the head; name one with --head=<task>"

    def objects(self, job: Job, arguments: Sequence[str]) -> Iterator[base.PluginObject]:
        """The Service ``<job>-head-svc``."""
        requested = self.argument_values(arguments)
        ports = [
            {"name": name, "port": requested[flag], "targetPort": name, "protocol": "TCP"}
            for flag, name in PORTS.items()
        ]
        selector = {**base.pods_of(job), keys.TASK_SPEC: requested["head"]}
        yield base.PluginObject(
            kind=kinds.SERVICES,
            name=_service_name(job),
            content={"spec": {"selector": selector, "ports": ports}},
        )

    def mutate_pod(
        self, pod: base.Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Replace the command of the Ray container in head and workers."""
        requested = self.argument_values(arguments)
        head = base.task_named(job, requested["head"])
        if head is None:
            return
        for container in base.main_containers(pod):
            role = (task.name, container.get("name"))
            if role == (requested["head"], requested["headContainer"]):
                for flag, name in PORTS.items():
                    _expose(container, name, requested[flag])
                start = (
                    "ray start --head --block --dashboard-host=0.0.0.0"
                    f" --port={requested['port']} --dashboard-port={requested['dashboardPort']}"
                    f" --ray-client-server-port={requested['clientPort']}"
                )
                container["command"] = ["sh", "-c", start]
            elif role == (requested["worker"], requested["workerContainer"]):
                where = f"{hosts.address(job, head, 0)}:{requested['port']}"
                container["command"] = ["sh", "-c", f"ray start --block --address={where}"]


def _service_name(job: Job) -> str:
    return f"{job.metadata.name}-head-svc"


def _expose(container: dict[str, Any], name: str, port: int) -> None:
    """Add a port with the name that the Service refers to, even if the number already has other
    names."""
    wanted = {"name": name, "containerPort": port}
    others = [it for it in container.get("ports") or () if it.get("name") != name]
    matching_ports = [it for it in container.get("ports") or () if wanted.items() <= it.items()]
    container["ports"] = [*others, *(matching_ports or [wanted])]
