"""``strom explain``: why a job waits, with numbers. ``render`` is pure and others show it too."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from stromboli.cli import options, output, timeline
from stromboli.cli.errors import CommandError
from stromboli.client.answers import Explanation
from stromboli.client.phases import PHASES
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
    "unknown": "something that the scheduler must know of it cannot be read",
}
"""What blocks a job, in words."""
WAITS = "WaitsForJob"
"""The one reason of a Normal Event that says what a job waits for: others come first."""
FRONT_SHOWN = 5
"""Names in front that fit on a line; the position says how many more."""
_UID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_BINARY = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def explain(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    output_format: options.Shape = output.Shape.TABLE,
    server: options.Server = None,
) -> None:
    """Why a job waits: what blocks it, by how much, and who is in front."""
    with options.client(server) as client:
        answer = client.explanation(namespace, name)
        is_shown = output_format is output.Shape.TABLE
        held = held_back(client, namespace, name, answer) if is_shown else None
    if is_shown:
        output.show_lines(render(answer, held))
    else:
        output.show_document(output_format, msgspec.to_builtins(answer))


def held_back(
    client: "Client", namespace: str, name: str, explanation: Explanation
) -> timeline.Event | None:
    """What the controller said that keeps a job's pods from being made; None if it said nothing,
    or if Events are not the asker's to read."""
    if explanation.phase != "Pending":
        return None
    with contextlib.suppress(CommandError):
        return held_by(
            msgspec.json.decode(raw, type=timeline.Event) for raw in client.events(namespace, name)
        )
    return None


def held_by(events: Iterable[timeline.Event]) -> timeline.Event | None:
    """The last of a job's Events that tells of an obstacle, unless it has gone on since. Pure.

    What keeps pods from being made (a quota, another job that comes first) never reaches the
    scheduler, so its explanation cannot have it. Pending alone is no progress: it is where a job
    stands from its first moment.
    """
    about = (one for one in events if one.involved_object.kind == "Job" and one.at is not None)
    obstacle = None
    for event in sorted(about, key=lambda one: (one.at, one.metadata.version)):
        if event.type == "Warning" or event.reason == WAITS:
            obstacle = event
        elif event.reason in PHASES[1:]:
            obstacle = None
    return obstacle


def render(explanation: Explanation, held: timeline.Event | None = None) -> list[str]:
    """The explanation as lines of text: a headline, then a fact a line."""
    explained = explanation.explained
    said = [f"  controller {held.reason}: {held.message.strip()}"] if held else []
    if explained is None:
        if said:
            return [f"{explanation.job} waits: not all of its pods are made.", *said]
        if explanation.phase == "Pending":
            return [
                f"{explanation.job} is Pending, with nothing in its way: its pods are on theirs."
            ]
        return [f"{explanation.job} does not wait: it is {explanation.phase}."]
    facts = [
        ("queue", _place(explained.queue, explanation.in_front)),
        ("gang", _gang(explained)),
        *(("short of", line) for line in _shortages(explained.shortages)),
        *(("nodes", f"{refused.nodes} out: {refused.reason}") for refused in explained.refusals),
    ]
    if explained.message:
        facts.append(("scheduler", explained.message))
    headline = f"{explanation.job} waits: {TIERS[explained.tier]}."
    told = [f"  {label:<10} {text}" for label, text in _without_repeats(facts)]
    return [headline, *told, *said]


def human(resource: str, amount: int) -> str:
    """An amount in a resource's unit as people say it: ``1.5`` cpu, ``15.6Gi``, ``8`` GPUs."""
    if resource == "memory":
        return _bytes(amount)
    if resource.endswith("storage") or resource.startswith("hugepages-"):
        return _bytes(amount / 1000)
    if resource == "pods" or resource.startswith("count/"):
        return str(amount)
    return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")


def job_name(pod_group: str) -> str:
    """The job of a PodGroup by its name: a job's PodGroup is called ``<job>-<uid>``."""
    return _UID.sub("", pod_group)


def _place(queue: str, in_front: tuple[str, ...] | None) -> str:
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
            human(one.resource, value) for value in (one.needed, one.free, one.total)
        )
        missing = one.needed - one.free
        if missing > 0:
            end = f"{human(one.resource, missing)} too little"
        elif one.allocated is not None:
            end = "enough, but not for its queue now"
        else:
            end = "enough in sum, but scattered over the nodes"
        lines.append(f"{one.resource}: needs {needed}, free {free} of {total}: {end}")
        if one.allocated is not None:
            lines.append(f"{one.resource} of the queue: {_part(one)}")
    return lines


def _part(one: Shortage) -> str:
    """What the queue holds of a resource and what it may."""
    amounts = (
        ("holds", one.allocated),
        ("is promised", one.promised or None),
        ("deserves", one.deserved),
        ("may have", one.capability),
    )
    return ", ".join(
        f"{word} {human(one.resource, amount)}" for word, amount in amounts if amount is not None
    )


def _without_repeats(facts: list[tuple[str, str]]) -> list[tuple[str, str]]:
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
