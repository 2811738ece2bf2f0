"""Plugin ``pytorch``: sets the variables by which ``torch.distributed`` finds its master."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec.job_plugins import base, hosts
from stromboli.shared.jobspec.job_plugins.arguments import Value

PORT_NAME = "pytorchjob-port"


class Pytorch(base.Plugin):
    """Sets ``MASTER_ADDR``, ``MASTER_PORT``, ``WORLD_SIZE`` and ``RANK``; optionally, workers wait
    for the master.
    """

    defaults: ClassVar[Mapping[str, Value]] = {
        "master": "master",
        "worker": "worker",
        "port": 23456,
        "wait-master-enabled": False,
        "wait-master-timeout": 300,
        "wait-master-image": "busybox:1.36.1",
    }
    ports: ClassVar[Sequence[str]] = ("port",)

    def mutate_pod(
        self, pod: base.Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Add the port and the variables to the main containers of every task; no effect without a
        master task."""
        requested = self.argument_values(arguments)
        master = base.task_named(job, requested["master"])
        if master is None:
            return
        address = hosts.address(job, master, 0)
        roles = (requested["master"], requested["worker"])
        size = sum(it.replicas for it in job.spec.tasks if it.name in roles)
        variables = [
            base.variable("MASTER_ADDR", address),
            base.variable("MASTER_PORT", requested["port"]),
            base.variable("WORLD_SIZE", size),
        ]
        if task.name in roles:
            # Ranks are 0 to size-1, each used once: all masters come before the workers.
            before = 0 if task.name == requested["master"] else master.replicas
            variables.append(base.variable("RANK", before + index))
        for container in base.main_containers(pod):
            base.open_port(container, PORT_NAME, requested["port"])
            base.add_env(container, variables)
        if requested["wait-master-enabled"] and task.name == requested["worker"]:
            waiting = _wait(address, requested)
            pod["spec"]["initContainers"] = [*(pod["spec"].get("initContainers") or ()), waiting]


def _wait(address: str, requested: dict[str, Any] | Any) -> dict[str, Any]:
    """An init container that succeeds when the master's port is open, and fails after the
    timeout.
    """
    script = (
        f"end=$(($(date +%s) + {requested['wait-master-timeout']})); "
        f"until nc -z -w 2 {address} {requested['port']}; do "
        '[ "$(date +%s)" -lt "$end" ] || { echo "the master does not answer" >&2; exit 1; }; '
        "sleep 2; done"
    )
    return {
        "name": "wait-for-master",
        "image": requested["wait-master-image"],
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
