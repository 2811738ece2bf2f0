"""Validation of JobFlows.

A flow may have the same name twice: as in Volcano, the last one counts.
"""

from collections.abc import Iterator

from stromboli.shared.api.flow import JobFlow
from stromboli.shared.jobspec import dependency_cycles
from stromboli.shared.jobspec.validation import naming
from stromboli.shared.messages.admission import Violation


def violations(job_flow: JobFlow) -> Iterator[Violation]:
    """Violations in a flow's dependencies, unknown targets and cycles, and in its jobs' names."""
    flows = job_flow.spec.flows
    targets = {
        flow.name: flow.depends_on.targets if flow.depends_on is not None else () for flow in flows
    }
    known = sorted(targets)
    name = job_flow.metadata.name
    has_usable_name = naming.is_label(name)
    if flows and not has_usable_name:
        yield Violation(
            path="metadata.name",
            reason=f"no job can be named {name}-{flows[0].name}",
            expected=naming.LABEL_EXPECTED,
        )
    for index, flow in enumerate(flows):
        job_name = f"{name}-{flow.name}"
        if has_usable_name and not naming.is_label(job_name):
            yield Violation(
                path=f"spec.flows[{index}].name",
                reason=f"{job_name!r} is not a valid job name",
                expected=naming.LABEL_EXPECTED,
            )
        for number, target in enumerate(flow.depends_on.targets if flow.depends_on else ()):
            if target not in targets:
                yield Violation(
                    path=f"spec.flows[{index}].dependsOn.targets[{number}]",
                    reason=f"there is no flow {target!r}",
                    expected=f"one of {naming.join_limited(known, flow.name) or 'none'}",
                )
    waiting = dependency_cycles.members_of_cycles(targets)
    if waiting:
        yield Violation(
            path="spec.flows",
            reason=f"flows wait for each other: {naming.join_limited(sorted(waiting))}",
            expected="remove a dependency from the cycle",
        )
