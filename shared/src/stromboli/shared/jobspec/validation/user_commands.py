"""Validation of Commands: one-time user commands for a job or a queue.

Volcano has no webhook for Commands: there, a Command that no controller executes gets no response.
"""

from collections.abc import Iterator

from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Command
from stromboli.shared.jobspec.validation import policies
from stromboli.shared.jobspec.validation.queueing import queue_tree, queues
from stromboli.shared.messages.admission import Violation

OF_QUEUES = ("OpenQueue", "CloseQueue")
ACTIONS = {"Job": policies.BY_COMMAND, "Queue": OF_QUEUES}
"""Kind -> its actions."""
VERSIONS = {kind.kind: kind.api_version for kind in (kinds.JOBS, kinds.QUEUES)}
"""Kind -> its apiVersion, since Kubernetes' own Jobs cannot be targets."""


def violations(command: Command, known_queues: queues.Queues) -> Iterator[Violation]:
    """All violations of a new command. A queue that is not in the cache is not a violation, since
    it may exist."""
    target = command.target
    if target is None or not target.name:
        yield Violation(path="target", reason="no target", expected="a reference to a job or queue")
        return
    known = ACTIONS.get(target.kind)
    if known is None:
        yield Violation(
            path="target.kind",
            reason=f"no controller executes commands for a {target.kind}",
            expected="Job or Queue",
        )
    elif target.api_version != VERSIONS[target.kind]:
        yield Violation(
            path="target.apiVersion",
            reason=f"no controller executes commands for a {target.kind} of {target.api_version!r}",
            expected=VERSIONS[target.kind],
        )
    elif command.action not in known:
        yield Violation(
            path="action",
            reason=f"{command.action!r} is not an action on a {target.kind}",
            expected=f"one of {', '.join(known)}",
        )
    elif target.kind == kinds.QUEUES.kind:
        yield from _for_queue(command.action, target.name, known_queues)


def _for_queue(action: str, name: str, known: queues.Queues) -> Iterator[Violation]:
    """Violations by a command for a queue that would have no effect."""
    if action == "CloseQueue" and name == queue_tree.ROOT:
        yield Violation(
            path="target.name",
            reason="the root queue cannot be closed",
            expected="close the queues below it",
        )


def warnings(command: Command, known: queues.Queues) -> Iterator[str]:
    """Warnings about an accepted command that has no effect yet."""
    name = "" if command.target is None else command.target.name
    above = known.get(known[name].spec.parent) if name in known else None
    if command.action != "OpenQueue" or above is None or above.metadata.name == queue_tree.ROOT:
        return
    if above.status.state in ("Closed", "Closing"):
        parent = above.metadata.name
        state = above.status.state
        yield f"queue {name} stays closed until its parent queue {parent}, now {state}, is open"
