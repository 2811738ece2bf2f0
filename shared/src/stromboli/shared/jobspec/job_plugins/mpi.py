"""Plugin ``mpi``: gives the master the addresses of its workers, to which it logs in by the plugin
``ssh``.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec.job_plugins import base, hosts
from stromboli.shared.jobspec.job_plugins.arguments import Value

PORT_NAME = "mpijob-port"


class Mpi(base.Plugin):
    """Sets ``MPI_HOST`` in the master's containers and opens the ssh port in all."""

    defaults: ClassVar[Mapping[str, Value]] = {"master": "master", "worker": "worker", "port": 22}
    ports: ClassVar[Sequence[str]] = ("port",)

    def job_problem(self, job: Job, arguments: Sequence[str]) -> str:
        """Why no pod can be created: the job has no master task to start the workers."""
        master = self.argument_values(arguments)["master"]
        if base.task_named(job, master) is not None:
            return ""
        return f"there is no task {master!r} for the master; name one with --master=<task>"

    def mutate_pod(
        self, pod: base.Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Declare the ssh port in all containers, and set ``MPI_HOST`` in those of the master."""
        requested = self.argument_values(arguments)
        worker = base.task_named(job, requested["worker"])
        worker_addresses = [] if worker is None else hosts.addresses(job, worker)
        for container in base.containers(pod):
            base.open_port(container, PORT_NAME, requested["port"])
            if task.name == requested["master"]:
                base.add_env(container, [base.variable("MPI_HOST", ",".join(worker_addresses))])
