"""The controller without one of its rules: that a pod's name is derived from its job, task and
index.

It runs as a process in place of the controller. Each start of the process gives pods new names, as
``generateName`` would. The difference appears after a restart: the new process does not recognise
the pods by their names and creates each one again.
"""

import secrets

from stromboli.controller import __main__ as controller
from stromboli.controller.core.tasks import tasks
from stromboli.controller.settings import Settings
from stromboli.shared import process

SUFFIX = f"-{secrets.token_hex(3)}"


class Members(tasks.Members):
    """The pods that a spec requests, with names that only this process knows."""

    def of(self, name: str) -> tasks.Member | None:
        """Pods with a name of this process; all others are none of the job's."""
        member = super().of(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None
        return None if member is None else tasks.Member(member.task, member.index, name)

    def member(self, task: str, index: int) -> tasks.Member:
        """The pod, under a name of this process."""
        member = super().member(task, index)
        return tasks.Member(member.task, member.index, f"{member.name}{SUFFIX}")


if __name__ == "__main__":
    tasks.Members = Members  # type: ignore[misc]  # the rule that this process lacks
    process.start("controller", Settings, controller.main)
