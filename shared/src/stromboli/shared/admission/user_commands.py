"""What is wrong with a Command: a one-shot wish for a job or a queue.

No webhook of the reference looks at these; one that nobody obeys would just lie there.
"""

from collections.abc import Iterator

from stromboli.shared.admission import policies
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Command
from stromboli.shared.messages.admission import Violation

OF_QUEUES = ("OpenQueue", "CloseQueue")
ACTIONS = {"Job": policies.ACTIONS, "Queue": OF_QUEUES}
"""What may be asked of which kind."""
VERSIONS = {kind.kind: kind.api_version for kind in (kinds.JOBS, kinds.QUEUES)}
"""Kubernetes has Jobs, too, which are not meant."""


def violations(made: Command) -> Iterator[Violation]:
    """Everything wrong with a new command."""
    target = made.target
    if target is None or not target.name:
        yield Violation(path="target", reason="no target", expected="a reference to a job or queue")
        return
    known = ACTIONS.get(target.kind)
    if known is None:
        yield Violation(
            path="target.kind",
            reason=f"nobody obeys commands for a {target.kind}",
            expected="Job or Queue",
        )
    elif target.api_version != VERSIONS[target.kind]:
        yield Violation(
            path="target.apiVersion",
            reason=f"nobody obeys commands for a {target.kind} of {target.api_version!r}",
            expected=VERSIONS[target.kind],
        )
    elif made.action not in known:
        yield Violation(
            path="action",
            reason=f"{made.action!r} is not an action on a {target.kind}",
            expected=f"one of {', '.join(known)}",
        )
