"""Plugin ``env``: sets environment variables with the task index in every container."""

from collections.abc import Sequence

from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec.job_plugins import base

TASK_INDEX = ("VK_TASK_INDEX", "VC_TASK_INDEX")


class Env(base.Plugin):
    """Sets ``VK_TASK_INDEX`` and ``VC_TASK_INDEX`` to the index of the pod in its task, in all
    containers and init containers."""

    def problem(self, arguments: Sequence[str]) -> str:
        """Always empty: the plugin has no arguments and ignores any."""
        return ""

    def mutate_pod(
        self, pod: base.Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Add both variables to all containers and init containers."""
        variables = [base.variable(name, index) for name in TASK_INDEX]
        for container in base.containers(pod):
            base.add_env(container, variables)
