"""The controller without one of its rules: that a pod's name follows from its job, task and index.

Run as a process of its own in the controller's place. Here every start of the process gives pods
new names, as ``generateName`` would. Until the process ends nobody sees a difference; the one that
is started after it does not know the pods by their names and makes every one again.
"""

import secrets
from collections.abc import Set

from stromboli.controller import __main__ as controller
from stromboli.controller.core.jobs import job_pods
from stromboli.controller.core.ordered_set import LeastFirst
from stromboli.controller.core.tasks import tasks
from stromboli.controller.settings import Settings
from stromboli.shared import process

SUFFIX = f"-{secrets.token_hex(3)}"
_first_missing = job_pods.JobPods.missing


class Members(tasks.Members):
    """The pods that a spec asks for, with names that only this process knows."""

    def of(self, name: str) -> tasks.Member | None:
        """Pods with a name of this process; all others are none of the job's."""
        found = super().of(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None
        return None if found is None else tasks.Member(found.task, found.index, name)

    def missing(self, prefix: str, there: Set[str]) -> dict[str, LeastFirst[tuple[int]]]:  # type: ignore[override]  # the rule's only caller has a set
        """Of pods with names of another process all are missing."""
        return super().missing(
            prefix, {name.removesuffix(SUFFIX) for name in there if name.endswith(SUFFIX)}
        )


def missing(pods: job_pods.JobPods, task: str, most: int) -> list[tasks.Member]:
    """The first missing pods of a task, each to be created under a name of this process."""
    return [
        tasks.Member(member.task, member.index, f"{member.name}{SUFFIX}")
        for member in _first_missing(pods, task, most)
    ]


if __name__ == "__main__":
    tasks.Members = Members  # type: ignore[misc]  # the rule that this process lacks
    job_pods.JobPods.missing = missing  # type: ignore[assignment, method-assign]  # it names pods, too
    process.start("controller", Settings, controller.main)
