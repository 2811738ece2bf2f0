"""A scheduler that starts on a log with records that it has to isolate: it decides for all others.

What cannot be read counts as unknown, never as absent: a pod may run, a node may be full, a queue
may be at its limit.
"""

from collections.abc import Callable

import msgspec
import pytest
from structlog import testing

from services.scheduler.tests.support.service_driver import (
    OtherServices,
    at_least,
    bound,
    gang,
    is_ready,
    serving,
)
from stromboli.shared import envelope, topics
from stromboli.shared.api import core
from stromboli.shared.leader_election import LeaseSettings
from stromboli.shared.messages import cluster, log
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

UNREADABLE = {
    "cluster.nodes": "n3",
    "cluster.pods": "default/runs",
    "cluster.queues": "closed",
    "cluster.podgroups": "default/odd",
}
"""Topic -> key of the record that cannot be decoded."""


def running(name: str, node: str) -> core.Pod:
    return builders.make_pod(name, cpu="4", node=node, phase="Running")


async def publish_cluster(services: OtherServices) -> None:
    """n1 has a pod whose newest record cannot be decoded, n2 is free, n3 cannot be decoded, and n4
    has a pod that the monitor could not read. The gangs ``waits`` and ``odd`` name what cannot be
    decoded, ``late`` has no room, ``fine`` has it on n2."""
    nodes = [builders.make_node(name, cpu="4") for name in ("n1", "n2", "n3", "n4")]
    await services.see(builders.make_queue(), builders.make_queue("closed"), *nodes)
    await services.see(running("runs", "n1"))
    fine, waits, odd, late = (gang(4, name) for name in ("fine", "waits", "odd", "late"))
    closed = builders.make_pod_group("waits", 4, queue="closed", phase="Inqueue")
    await services.see(closed, *waits[1:], *odd)
    for name, key in UNREADABLE.items():
        topic = next(it for it in topics.ALL if it.name == name)
        await services.append_undecodable(topic, key)
    await services.append_unreadable(
        "default/huge", cluster.Unreadable(uid="u", resource_version="1", reason="x", node="n4")
    )
    await services.see(*fine)
    await services.sync()
    await services.see(*late)


@pytest.mark.parametrize("lease", [None, LeaseSettings()], ids=["alone", "elected"])
async def test_a_start_on_isolated_records_leads_and_decides_for_the_others(
    services_of_each_log: OtherServices,
    lease: LeaseSettings | None,
) -> None:
    """So does the next start, which reads the same records and the decisions of the first one."""
    services = services_of_each_log
    await publish_cluster(services)
    async with serving(services.bus, lease=lease) as health:
        await is_ready(health)
        letters = await services.until(topics.DEAD_LETTERS, at_least(len(UNREADABLE)))
        await services.until(topics.DECISIONS, lambda it: len(bound(it)) >= 4)
        explained = await services.until(topics.EXPLANATIONS, explain("waits", "odd", "late"))
    assert isolated(letters) == UNREADABLE
    reasons = explanations(explained)
    assert "queue closed" in reasons["default/waits"]
    assert "does not belong on this topic" in reasons["default/odd"]
    await services.see(*gang(1, "more"))
    with testing.capture_logs() as logs:
        async with serving(services.bus, lease=lease) as health:
            await is_ready(health)
            await services.until(topics.EXPLANATIONS, explain("more"))
            letters = await services.until(topics.DEAD_LETTERS, at_least(2 * len(UNREADABLE)))
            decisions = await services.until(topics.DECISIONS, at_least(1))
    assert isolated(letters[len(UNREADABLE) :]) == UNREADABLE
    assert nodes_of(decisions) == {f"fine-w-{index}": "n2" for index in range(4)}
    excluded = [list(it["nodes"]) for it in logs if it["event"] == "nodes or pods excluded"]
    assert [sorted(nodes) for nodes in excluded] == [["n1", "n3", "n4"]]


def isolated(records: list[envelope.Record]) -> dict[str, str]:
    """Topic -> key of dead letters."""
    letters = [envelope.decode(record) for record in records]
    assert all(isinstance(it, log.DeadLetter) and it.reported_by == "scheduler" for it in letters)
    return {it.topic: it.key for it in letters if isinstance(it, log.DeadLetter)}


def nodes_of(records: list[envelope.Record]) -> dict[str, str]:
    """Pod -> node of all binds."""
    statements = [envelope.decode(record) for record in records]
    binds = [it.binds for it in statements if isinstance(it, messages.StatementDecided)]
    return {bind.pod: bind.node for each in binds for bind in each}


def explanations(records: list[envelope.Record]) -> dict[str, str]:
    """PodGroup -> the text of its newest explanation."""
    found: dict[str, str] = {}
    for record in records:
        message = envelope.decode(record) if record.value else None
        if isinstance(message, messages.PodGroupExplained):
            found[record.key] = msgspec.json.encode(message).decode()
    return found


def explain(*groups: str) -> Callable[[list[envelope.Record]], bool]:
    """Whether these gangs are explained."""
    keys = {f"default/{name}" for name in groups}
    return lambda records: keys <= explanations(records).keys()
