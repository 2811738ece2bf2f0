"""The scheduler without two of its rules: that a gang is bound as a whole, and that a node has no
more than is allocatable. Run as a process of its own in the scheduler's place.

Of each gang it binds the first pod alone, and it counts the CPUs of each node four times.
"""

from collections.abc import Iterator

import msgspec

from stromboli.scheduler import __main__ as scheduler
from stromboli.scheduler.core import schedule
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import requirements
from stromboli.scheduler.settings import Settings
from stromboli.shared import process
from stromboli.shared.api import core
from stromboli.shared.formats import units
from stromboli.shared.messages import scheduling as messages

SIZE = 4
whole_statements = schedule._statements
true_allocatable = requirements.node_allocatable


def split_statements(closed: session.Session, number: int) -> Iterator[messages.StatementDecided]:
    """The statements, each with the bind of its first pod alone."""
    for statement in whole_statements(closed, number):
        binds = tuple(bind for bind in statement.binds if bind.index == 0)
        if binds or statement.enqueue or statement.evictions:
            yield msgspec.structs.replace(statement, binds=binds)


def enlarged(node: core.Node) -> units.Amounts:
    """What a node with four times the CPUs has."""
    found = true_allocatable(node)
    return {**found, "cpu": SIZE * found["cpu"]}


if __name__ == "__main__":
    schedule._statements = split_statements
    requirements.node_allocatable = enlarged
    process.start("scheduler", Settings, scheduler.main)
