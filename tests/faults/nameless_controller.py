"""The controller without one of its rules: that a pod's name follows from its job, task and index.

Run as a process of its own in the controller's place. Here every start of the process gives pods
new names, as ``generateName`` would. Until the process ends nobody sees a difference; the one that
is started after it does not know the pods by their names and makes every one again.
"""

import secrets
from collections.abc import Iterator

from stromboli.controller import __main__ as controller
from stromboli.controller.core import tasks
from stromboli.controller.settings import Settings
from stromboli.shared import process
from stromboli.shared.api import batch

SUFFIX = secrets.token_hex(3)
_named_by_the_rule = tasks.members


def members(job: batch.Job) -> Iterator[tasks.Member]:
    """The pods that the spec asks for, with names that only this process knows."""
    for member in _named_by_the_rule(job):
        yield tasks.Member(member.task, member.index, f"{member.name}-{SUFFIX}")


if __name__ == "__main__":
    tasks.members = members
    process.start("controller", Settings, controller.main)
