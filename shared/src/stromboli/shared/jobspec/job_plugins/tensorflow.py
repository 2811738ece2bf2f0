"""Plugin ``tensorflow``: sets ``TF_CONFIG``, from which TensorFlow reads the cluster's
addresses."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec.job_plugins import base, hosts
from stromboli.shared.jobspec.job_plugins.arguments import Value

ROLES = ("ps", "worker", "chief", "evaluator")


class Tensorflow(base.Plugin):
    """Sets ``TF_CONFIG`` in all main containers. Arguments map TensorFlow's roles to tasks."""

    defaults: ClassVar[Mapping[str, Value]] = {**{role: role for role in ROLES}, "port": 2222}
    ports: ClassVar[Sequence[str]] = ("port",)

    def mutate_pod(
        self, pod: base.Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Add ``TF_CONFIG``; no effect for a job with a single pod."""
        if len(job.spec.tasks) == 1 and job.spec.tasks[0].replicas == 1:
            return
        requested = self.argument_values(arguments)
        role_of = {requested[role]: role for role in ROLES}
        cluster: dict[str, list[str]] = {}
        for role in ROLES:
            task_spec = base.task_named(job, requested[role])
            if task_spec is not None and task_spec.replicas:
                cluster[role] = [
                    f"{hosts.address(job, task_spec, each)}:{requested['port']}"
                    for each in range(task_spec.replicas)
                ]
        config: dict[str, Any] = {
            "cluster": cluster,
            "task": {"type": role_of.get(task.name, task.name), "index": index},
        }
        text = msgspec.json.encode(config).decode()
        for container in base.main_containers(pod):
            base.add_env(container, [base.variable("TF_CONFIG", text)])
