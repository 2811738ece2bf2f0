"""Validation of life-cycle policies.

Unlike Volcano, it reports all invalid policies, and also rejects an unknown action in policies for
exit codes.
"""

from collections.abc import Iterator, Sequence

from stromboli.shared.api.batch import LifecyclePolicy
from stromboli.shared.jobspec import policy_event_names
from stromboli.shared.messages.admission import Violation

ACTIONS = (
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "ResumeJob",
)
OF_PARTS = ("RestartTask", "RestartPod", "RestartPartition")
"""Actions on a part of a job. Only policies may use them: a policy derives the part from the event,
a command cannot."""
BY_COMMAND = tuple(it for it in ACTIONS if it not in OF_PARTS)


def violations(policies: Sequence[LifecyclePolicy], path: str) -> Iterator[Violation]:
    """All violations of the policies at ``path``."""
    seen_events: dict[str, int] = {}
    seen_codes: dict[int, int] = {}
    for index, policy in enumerate(policies):
        at = f"{path}[{index}]"
        events = _events(policy)
        yield from _of_one(policy, events, at)
        for event in events:
            first = seen_events.setdefault(event, index)
            if first != index:
                yield Violation(
                    path=at,
                    reason=f"event {event} has policy {path}[{first}] already",
                    expected="at most one policy per event",
                )
        if policy.exit_code:
            first = seen_codes.setdefault(policy.exit_code, index)
            if first != index:
                yield Violation(
                    path=f"{at}.exitCode",
                    reason=f"exit code {policy.exit_code} has policy {path}[{first}] already",
                    expected="at most one policy per exit code",
                )
    if policy_event_names.ANY in seen_events and len(seen_events) > 1:
        yield Violation(
            path=f"{path}[{seen_events[policy_event_names.ANY]}]",
            reason="event * together with other events",
            expected="either * alone or the events by name",
        )


def _events(policy: LifecyclePolicy) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*((policy.event,) if policy.event else ()), *policy.events)))


def _of_one(policy: LifecyclePolicy, events: tuple[str, ...], at: str) -> Iterator[Violation]:
    if events and policy.exit_code is not None:
        yield Violation(
            path=at, reason="both events and exitCode", expected="either events or an exitCode"
        )
    if not events and policy.exit_code is None:
        yield Violation(
            path=at, reason="neither event nor exitCode", expected="an event, events or an exitCode"
        )
    if policy.exit_code == 0:
        yield Violation(
            path=f"{at}.exitCode",
            reason="exit code 0 is success",
            expected="another number; for success use event TaskCompleted",
        )
    for event in events:
        if event not in policy_event_names.ACCEPTED:
            yield Violation(
                path=f"{at}.event",
                reason=f"{event!r} is not a policy event",
                expected=f"one of {', '.join(policy_event_names.ACCEPTED)}",
            )
    if policy.action not in ACTIONS:
        yield Violation(
            path=f"{at}.action",
            reason=f"{policy.action!r} is not an action",
            expected=f"one of {', '.join(ACTIONS)}",
        )
