"""Why a job is pending, as lines of text with numbers, and the texts of reason codes."""

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from stromboli.cli.render import pod_status, start_view
from stromboli.client.responses import Explanation
from stromboli.shared.formats.counts import counted
from stromboli.shared.messages.scheduling import PodGroupExplained, Shortage, Tier

TIERS: Mapping[Tier, str] = {
    "invalid": "its spec is invalid for the scheduler",
    "queue-closed": "its queue is closed or does not exist",
    "enqueue": "insufficient resources to admit it to its queue",
    "gang": "fewer than minAvailable of its pods can be placed",
    "resources": "no node has enough free resources for its next pod",
    "predicates": "nodes with enough resources reject its pods",
    "share": "its queue has reached its share",
    "fragmentation": "the free resources suffice in total, but not on any node",
    "order": "jobs before it in its queue are scheduled first",
    "releasing": "it is nominated to resources that terminating pods still hold",
    "topology": "no topology domain has enough free resources for it",
    "never-fits": "it can never fit into the cluster or its queue as they are",
    "refused": "the API server refused its binds or the evictions for it; they are retried",
    "unknown": "an object that the scheduler needs for it cannot be read",
}
"""The reason code of a pending job -> its text."""
NO_SCHEDULER = "NoScheduler"
"""The start of the message about a job that no Stromboli scheduler handles."""
DEPENDENCIES = {
    "WaitsForJob": "it waits for another job",
    "NeverBegins": "it can never start, as its dependency is not met",
}
"""The controller's reason for a job with dependencies -> its text."""
SUSPENDED = ("Aborting", "Aborted")
"""Phases of a job that was suspended, which Slurm calls held."""
FRONT_SHOWN = 5
"""Maximum names of jobs in front that are listed; the position counts all of them."""
_UID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_BINARY = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


class WaitingPods(msgspec.Struct, frozen=True):
    """Pods that are bound and not running.

    ``failing``: pods that cannot start on their nodes. ``nodes``: a line per node whose kubelet
    has not acknowledged its pods or does not respond. ``untaken``: how many pods no kubelet has
    acknowledged. ``bound``: how many of all pods have a node. ``data``: lines about data sets that
    nodes fetch for them.
    """

    failing: tuple[pod_status.Pod, ...] = ()
    nodes: tuple[str, ...] = ()
    untaken: int = 0
    bound: int = 0
    data: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.failing or self.nodes or self.data)


def render(
    explanation: Explanation,
    waiting: WaitingPods | None = None,
    *,
    now: datetime | None = None,
    verbose: bool = False,
    position: str = "position unknown",
) -> list[str]:
    """The explanation as lines of text: a headline, then one fact per line.

    ``now`` adds the expected start of the job. ``verbose`` adds the message of the PodGroup's
    condition, which is Volcano's text. ``position``: the text if the PodGroups in front are not
    known.
    """
    waiting = WaitingPods() if waiting is None else waiting
    explained = explanation.explained
    message_lines = _unscheduled(explanation.held) + _kubelet_messages(waiting)
    if explained is None:
        headline = f"{explanation.job} {_headline(explanation, waiting)}."
        return [headline, *message_lines, *_release(explanation)]
    facts = [
        *_expected_start(explanation, now),
        ("queue", _queue_position(explained.queue, explanation.in_front, position)),
        ("gang", _gang(explained)),
        *(("short of", line) for line in _shortages(explained.shortages)),
        *(
            ("nodes", f"{refused.nodes} rejected: {refused.reason}")
            for refused in explained.refusals
        ),
    ]
    # The message is Volcano's condition, except for reasons that Volcano does not have.
    if explained.message and (verbose or explained.tier in ("never-fits", "refused")):
        facts.append(("scheduler", explained.message))
    headline = f"{explanation.job} is pending: {TIERS[explained.tier]}."
    if explanation.held and explained.tier == "gang":  # caused by what the controller reports
        headline = f"{explanation.job} {_held_headline(explanation)}."
    output_lines = [f"  {label:<10} {text}" for label, text in _collapse_labels(facts)]
    return [headline, *output_lines, *message_lines]


def _expected_start(explanation: Explanation, now: datetime | None) -> list[tuple[str, str]]:
    if explanation.expected is None or now is None:
        return []
    return [("starts", start_view.sentence(explanation.expected, now))]


def _headline(explanation: Explanation, waiting: WaitingPods) -> str:
    """The headline of a job without an explanation of the scheduler."""
    if explanation.held.startswith(NO_SCHEDULER):
        return "is pending: no scheduler of Stromboli handles its pods"
    if explanation.held:
        return _held_headline(explanation)
    if waiting.failing:
        state = "pending" if explanation.phase == "Pending" else explanation.phase
        return f"is {state}: {len(waiting.failing)} of its pods cannot start on their nodes"
    if waiting.untaken and explanation.phase == "Pending":
        return "is pending: its pods are bound, and kubelets have not acknowledged all of them"
    if waiting.data and explanation.phase == "Pending":
        return "is pending: its pods are bound and wait for their data sets"
    if explanation.phase == "Pending" and waiting.bound:
        return "is pending: its pods are bound and about to start"
    if explanation.phase == "Pending":
        return "is pending: the scheduler has not explained it yet; ask again in a few seconds"
    if explanation.phase in SUSPENDED:
        return "is suspended (held)"
    return f"is not pending: it is {explanation.phase}"


def _release(explanation: Explanation) -> list[str]:
    """The command that lets a suspended job start."""
    if explanation.phase not in SUSPENDED:
        return []
    namespace, _, name = explanation.job.rpartition("/")
    return [f"  {'next':<10} strom job release {name} -n {namespace}"]


def _held_headline(explanation: Explanation) -> str:
    """The headline of a job if the controller cannot create all of its pods."""
    if explanation.phase == "Running":
        return "is Running: not all of its pods are created"
    reason = explanation.held.partition(":")[0]
    return f"is pending: {DEPENDENCIES.get(reason, 'not all of its pods are created')}"


def _unscheduled(hold_reason: str) -> list[str]:
    component = "scheduler" if hold_reason.startswith(NO_SCHEDULER) else "controller"
    return [f"  {component:<10} {hold_reason.strip()}"] if hold_reason else []


def _kubelet_messages(waiting: WaitingPods) -> list[str]:
    """Lines with the kubelets' errors about pods that cannot start, each error once, and with the
    kubelets that have not acknowledged their pods."""
    counts: dict[str, int] = {}
    for pod in waiting.failing:
        kubelet_error = pod_status.start_error(pod)
        if kubelet_error is not None:
            error_text = ": ".join(
                filter(None, (kubelet_error.reason, kubelet_error.message.strip()))
            )
            counts[error_text] = counts.get(error_text, 0) + 1
    facts = [
        ("node", f"{counted(count, 'pod')}: {error_text}") for error_text, count in counts.items()
    ]
    facts += [("node", line) for line in waiting.nodes]
    facts += [("data", line) for line in waiting.data]
    return [f"  {label:<10} {text}" for label, text in _collapse_labels(facts)]


def format_amounts(amounts: Mapping[str, int]) -> str:
    """Amounts by resource, in their order: ``cpu=1.5,memory=1Gi``."""
    return ",".join(f"{name}={format_amount(name, amount)}" for name, amount in amounts.items())


def format_amount(resource: str, amount: int) -> str:
    """An amount of a resource in readable form: ``1.5`` cpu, ``15.6Gi``, ``8`` GPUs."""
    if resource == "memory":
        return _bytes(amount)
    if resource.endswith("storage") or resource.startswith("hugepages-"):
        return _bytes(amount / 1000)
    if resource == "pods" or resource.startswith("count/"):
        return str(amount)
    return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")


def job_name(pod_group: str) -> str:
    """The job's name from the name of its PodGroup, ``<job>-<uid>``.

    PodGroups of pods of other controllers are ``podgroup-<uid>`` and keep their whole name.
    """
    job = _UID.sub("", pod_group)
    return pod_group if job.endswith("/podgroup") or job == "podgroup" else job


def _queue_position(queue: str, in_front: tuple[str, ...] | None, unknown: str) -> str:
    if in_front is None:
        return f"{queue}, {unknown}"
    if not in_front:
        return f"{queue}, position 1"
    names = [job_name(name) for name in in_front[:FRONT_SHOWN]]
    more = len(in_front) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more else "")
    return f"{queue}, position {len(in_front) + 1}; in front: {listed}"


def _gang(explained: PodGroupExplained) -> str:
    """The gang as text. A PodGroup has no members before it is admitted to its queue."""
    least, members = explained.min_member, explained.members
    pods = f"{least} of {members} pods" if members > least else f"{least} pods"
    need = f"{pods} must start together" if max(least, members) > 1 else "1 pod must start"
    state = f"{explained.running} running, {explained.placeable} more can be placed now"
    return f"{need}: {state}" if members else need


def _shortages(shortages: tuple[Shortage, ...]) -> list[str]:
    """A line per resource, and one about the queue if its share is the limit."""
    lines = []
    for one in shortages:
        needed, free, total = (
            format_amount(one.resource, value) for value in (one.needed, one.free, one.total)
        )
        missing = one.needed - one.free
        if missing > 0:
            end = f"short by {format_amount(one.resource, missing)}"
        elif one.promised and one.needed + one.promised > one.free:
            reserved = format_amount(one.resource, one.promised)
            end = f"enough, but {reserved} reserved for admitted gangs that have not started"
        elif one.allocated is not None:
            end = "enough, but not within the share of its queue"
        else:
            end = "enough in total, but not on any node"
        lines.append(f"{one.resource}: needs {needed}, free {free} of {total}: {end}")
        if one.allocated is not None:
            lines.append(f"{one.resource} of the queue: {_queue_shortage(one)}")
    return lines


def _queue_shortage(one: Shortage) -> str:
    """The usage and the limits of the queue."""
    amounts = (
        ("allocated", one.allocated),
        ("inqueue", one.promised or None),
        ("deserved", one.deserved),
        ("capability", one.capability),
    )
    return ", ".join(
        f"{word} {format_amount(one.resource, amount)}"
        for word, amount in amounts
        if amount is not None
    )


def _collapse_labels(facts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The facts with each label on the first of its lines only."""
    labels = [""] + [label for label, _ in facts]
    return [
        ("" if label == before else label, text)
        for before, (label, text) in zip(labels, facts, strict=False)
    ]


def _bytes(amount: float) -> str:
    for size, suffix in _BINARY:
        if abs(amount) >= size:
            return f"{amount / size:.1f}".removesuffix(".0") + suffix
    return f"{amount:.0f}"
