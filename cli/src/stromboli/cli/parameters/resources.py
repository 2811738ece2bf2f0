"""The kinds that ``strom get``, ``delete`` and ``diff`` read and delete, in one table."""

from collections.abc import Callable
from typing import Any

import msgspec

from stromboli.client.operations import calls, workload_calls
from stromboli.client.responses import Page
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind


class Resource(msgspec.Struct, frozen=True):
    """A kind: its name in commands, and its requests by namespace (empty for all) and name.
    ``delete`` is None for kinds that are deleted with their owners."""

    word: str
    kind: Kind[Any]
    get: Callable[[str, str], calls.Call[bytes]]
    list: Callable[[str], calls.Call[Page]]
    delete: Callable[[str, str], calls.Call[None]] | None = None


def _workload(kind: Kind[Any], word: str) -> Resource:
    return Resource(
        word,
        kind,
        lambda namespace, name: workload_calls.workload(kind, namespace, name),
        lambda namespace: workload_calls.workloads(kind, namespace),
        lambda namespace, name: workload_calls.delete_workload(kind, namespace, name),
    )


RESOURCES = (
    Resource("job", kinds.JOBS, calls.job, calls.jobs, calls.delete_job),
    Resource(
        "queue",
        kinds.QUEUES,
        lambda _, name: calls.queue(name),
        lambda _: calls.queues(),
        lambda _, name: calls.delete_queue(name),
    ),
    Resource("pod", kinds.PODS, calls.pod, calls.pods),
    Resource("podgroup", kinds.POD_GROUPS, calls.pod_group, calls.pod_groups),
    Resource("node", kinds.NODES, lambda _, name: calls.node(name), lambda _: calls.nodes()),
    Resource(
        "reservation",
        kinds.ADVANCE_RESERVATIONS,
        lambda _, name: workload_calls.reservation(name),
        lambda _: workload_calls.reservations(),
        lambda _, name: workload_calls.delete_reservation(name),
    ),
    *(_workload(kind, word) for kind, word in workload_calls.WORKLOADS.items()),
)
BY_KIND = {each.kind: each for each in RESOURCES}


def named(word: str) -> Resource | None:
    """The kind with this name: ``job``, ``jobs``, ``cronjob``, ``crons`` or ``CronJob``; None if
    there is none."""
    wanted = word.lower()
    for each in RESOURCES:
        if wanted in (each.word, f"{each.word}s", each.kind.kind.lower(), each.kind.plural):
            return each
    return None
