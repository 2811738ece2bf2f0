"""Plugin ``env``: every container learns which replica of its task it is."""

from collections.abc import Sequence

from stromboli.controller.core import commands, tasks
from stromboli.controller.core.plugins import base
from stromboli.shared.api.batch import Job

TASK_INDEX = ("VK_TASK_INDEX", "VC_TASK_INDEX")


class Env:
    """Sets both names of the task index in containers and init containers."""

    def problem(self, arguments: Sequence[str]) -> str:
        """It takes no arguments and minds none."""
        return ""

    def resources(self, job: Job, arguments: Sequence[str]) -> tuple[commands.Create, ...]:
        """None."""
        return ()

    def removals(self, job: Job) -> tuple[commands.Delete, ...]:
        """None."""
        return ()

    def digest(self, job: Job) -> str:
        """It has no resources that change."""
        return ""

    def shape(
        self, spec: base.PodSpec, job: Job, member: tasks.Member, arguments: Sequence[str]
    ) -> None:
        """Add the index."""
        variables = [{"name": name, "value": str(member.index)} for name in TASK_INDEX]
        for container in base.containers(spec):
            base.add_env(container, variables)
