"""``strom explain``: why a job waits, with numbers. ``render`` is pure and others show it too."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from stromboli.cli import options
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output, pod_status
from stromboli.client.responses import Explanation
from stromboli.shared.messages.scheduling import PodGroupExplained, Shortage, Tier

if TYPE_CHECKING:
    from stromboli.cli.client import Client

TIERS: Mapping[Tier, str] = {
    "invalid": "the scheduler cannot place it as it is written",
    "queue-closed": "its queue is closed, or gone",
    "enqueue": "there is no room yet to let it into its queue",
    "gang": "its gang cannot start as a whole yet",
    "resources": "no node has enough free for its next pod",
    "predicates": "nodes with room do not accept its pods",
    "share": "its queue may not hold more now",
    "fragmentation": "there is enough in sum, but no node has it free",
    "order": "its queue waits for the job in front of it",
    "releasing": "it is promised room that is still being freed",
    "topology": "no part of the network that is near enough has room for it",
    "never-fits": "it can never fit into the cluster or its queue as they are",
    "unknown": "something that the scheduler must know of it cannot be read",
}
"""What blocks a job, in words."""
NO_SCHEDULER = "NoScheduler"
"""Begins what is said of a job that no scheduler here takes."""
FRONT_SHOWN = 5
"""Names in front that fit on a line; the position says how many more."""
_UID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_BINARY = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def explain(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    output_format: options.DocumentFormat = output.DocumentFormat.TABLE,
    server: options.Server = None,
) -> None:
    """Why a job waits: what blocks it, by how much, and who is in front."""
    with options.client(server) as client:
        answer = client.explanation(namespace, name)
        is_shown = output_format is output.DocumentFormat.TABLE
        pods = pods_failing_to_start(client, namespace, name) if is_shown else []
    if is_shown:
        output.show_lines(render(answer, pods))
    else:
        output.show_document(output_format, msgspec.to_builtins(answer))


def pods_failing_to_start(client: "Client", namespace: str, name: str) -> list[pod_status.Pod]:
    """A job's pods that have a node and cannot start there; none if they are not the asker's to
    see."""
    with contextlib.suppress(CommandError):
        pods = map(pod_status.decode, client.pods(namespace, name))
        return [pod for pod in pods if pod_status.start_error(pod) is not None]
    return []


def render(explanation: Explanation, pods: Sequence[pod_status.Pod] = ()) -> list[str]:
    """The explanation as lines of text: a headline, then a fact a line. ``pods``: those that cannot
    start on their nodes."""
    explained = explanation.explained
    said = _unscheduled(explanation.held) + _kubelet_messages(pods)
    if explained is None:
        return [f"{explanation.job} {_headline(explanation, pods)}.", *said]
    facts = [
        ("queue", _queue_position(explained.queue, explanation.in_front)),
        ("gang", _gang(explained)),
        *(("short of", line) for line in _shortages(explained.shortages)),
        *(("nodes", f"{refused.nodes} out: {refused.reason}") for refused in explained.refusals),
    ]
    if explained.message:
        facts.append(("scheduler", explained.message))
    headline = f"{explanation.job} waits: {TIERS[explained.tier]}."
    told = [f"  {label:<10} {text}" for label, text in _collapse_labels(facts)]
    return [headline, *told, *said]


def _headline(explanation: Explanation, pods: Sequence[pod_status.Pod]) -> str:
    """Of a job of which the scheduler says nothing."""
    if explanation.held.startswith(NO_SCHEDULER):
        return "waits: nobody here places its pods"
    if explanation.held:
        return "waits: not all of its pods are made"
    if pods:
        return f"waits: {len(pods)} of its pods cannot start on their nodes yet"
    if explanation.phase == "Pending":
        return "is Pending, with nothing in its way: its pods are on theirs"
    return f"does not wait: it is {explanation.phase}"


def _unscheduled(held: str) -> list[str]:
    who = "scheduler" if held.startswith(NO_SCHEDULER) else "controller"
    return [f"  {who:<10} {held.strip()}"] if held else []


def _kubelet_messages(pods: Sequence[pod_status.Pod]) -> list[str]:
    """What nodes say of pods that cannot start there, each obstacle once."""
    counts: dict[str, int] = {}
    for pod in pods:
        found = pod_status.start_error(pod)
        if found is not None:
            said = ": ".join(filter(None, (found.reason, found.message.strip())))
            counts[said] = counts.get(said, 0) + 1
    facts = [("node", f"{count} pod{'s' * (count > 1)}: {said}") for said, count in counts.items()]
    return [f"  {label:<10} {text}" for label, text in _collapse_labels(facts)]


def format_amount(resource: str, amount: int) -> str:
    """An amount in a resource's unit as people say it: ``1.5`` cpu, ``15.6Gi``, ``8`` GPUs."""
    if resource == "memory":
        return _bytes(amount)
    if resource.endswith("storage") or resource.startswith("hugepages-"):
        return _bytes(amount / 1000)
    if resource == "pods" or resource.startswith("count/"):
        return str(amount)
    return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")


def job_name(pod_group: str) -> str:
    """The job of a PodGroup by its name: a job's PodGroup is called ``<job>-<uid>``. Those that
    are made for pods of others are ``podgroup-<uid>``, of which no part alone says anything."""
    job = _UID.sub("", pod_group)
    return pod_group if job.endswith("/podgroup") or job == "podgroup" else job


def _queue_position(queue: str, in_front: tuple[str, ...] | None) -> str:
    if in_front is None:
        return f"{queue}, its place in line is not known"
    if not in_front:
        return f"{queue}, first in line"
    names = [job_name(name) for name in in_front[:FRONT_SHOWN]]
    more = len(in_front) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more else "")
    return f"{queue}, number {len(in_front) + 1} in line; in front: {listed}"


def _gang(explained: PodGroupExplained) -> str:
    """There are no members before the PodGroup is let in: its pods are made then."""
    least, members = explained.min_member, explained.members
    pods = f"{least} of {members} pods" if members > least else f"{least} pods"
    need = f"{pods} must run together" if (least, members) != (1, 1) else "a single pod"
    state = f"{explained.running} run, {explained.placeable} more would fit now"
    return f"{need}: {state}" if members else need


def _shortages(shortages: tuple[Shortage, ...]) -> list[str]:
    """One line per resource. What is free in sum but not enough on any node is said."""
    lines = []
    for one in shortages:
        needed, free, total = (
            format_amount(one.resource, value) for value in (one.needed, one.free, one.total)
        )
        missing = one.needed - one.free
        if missing > 0:
            end = f"{format_amount(one.resource, missing)} too little"
        elif one.allocated is not None:
            end = "enough, but not for its queue now"
        else:
            end = "enough in sum, but scattered over the nodes"
        lines.append(f"{one.resource}: needs {needed}, free {free} of {total}: {end}")
        if one.allocated is not None:
            lines.append(f"{one.resource} of the queue: {_queue_shortage(one)}")
    return lines


def _queue_shortage(one: Shortage) -> str:
    """What the queue holds of a resource and what it may."""
    amounts = (
        ("holds", one.allocated),
        ("is promised", one.promised or None),
        ("deserves", one.deserved),
        ("may have", one.capability),
    )
    return ", ".join(
        f"{word} {format_amount(one.resource, amount)}"
        for word, amount in amounts
        if amount is not None
    )


def _collapse_labels(facts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """A label stands on the first of its lines only."""
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
