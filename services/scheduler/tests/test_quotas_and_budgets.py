"""Quotas and disruption budgets of the cluster in the running service, read from the log."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions
from services.scheduler.tests.support.service_driver import (
    SETTINGS,
    OtherServices,
    at_least,
    serving,
)
from stromboli.shared import envelope, topics
from stromboli.shared.api import core, meta
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: pdb
  - name: resourcequota
  - name: predicates
"""
NODES = [builders.make_node("n1", cpu="4")]
ADMISSION = builders.make_pod_group("door", 1, phase="Pending", min_resources={"cpu": "2"})


def quota(hard: str, used: str = "0", version: int = 1) -> core.ResourceQuota:
    return core.ResourceQuota(
        metadata=builders.make_meta("quota", "team", "default", version=version),
        spec=core.ResourceQuotaSpec(hard={"cpu": hard}),
        status=core.ResourceQuotaStatus(hard={"cpu": hard}, used={"cpu": used}),
    )


def budget(allowed: int, version: int = 1) -> core.PodDisruptionBudget:
    return core.PodDisruptionBudget(
        metadata=builders.make_meta("pdb", "keep", "default", version=version),
        spec=core.PodDisruptionBudgetSpec(selector=core.LabelSelector(match_labels={"app": "low"})),
        status=core.PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def configured(tmp_path: Path, actions: str) -> Any:
    path = tmp_path / "c.yaml"
    path.write_text(f'actions: "{actions}"{TIERS}')
    return msgspec.structs.replace(SETTINGS, configuration=str(path))


async def explained(other_services: OtherServices, number: int = 1) -> messages.PodGroupExplained:
    records = await other_services.until(
        topics.EXPLANATIONS,
        lambda records: sum(record.key == "default/door" for record in records) >= number,
    )
    message = envelope.decode([record for record in records if record.key == "default/door"][-1])
    assert isinstance(message, messages.PodGroupExplained)
    return message


async def test_a_full_quota_keeps_a_job_outside_until_it_has_room(
    other_services: OtherServices, tmp_path: Path
) -> None:
    await other_services.see(builders.make_queue(), *NODES, quota("4", used="3"), ADMISSION)
    await other_services.sync()
    async with serving(other_services.bus, configured(tmp_path, "enqueue, allocate")):
        why = await explained(other_services)
        assert (why.tier, "resource quota insufficient" in why.message) == ("enqueue", True)
        await other_services.see(quota("4", used="1", version=2))
        decisions = await other_services.until(topics.DECISIONS, at_least(1))
    statement = envelope.decode(decisions[0])
    assert isinstance(statement, messages.StatementDecided)
    assert statement.enqueue


async def test_an_unreadable_quota_enqueues_no_gang_of_its_namespace(
    other_services: OtherServices, tmp_path: Path
) -> None:
    """Gangs of another namespace continue."""
    other = builders.make_pod_group(
        "free", 1, namespace="other", phase="Pending", min_resources={"cpu": "1"}
    )
    await other_services.see(builders.make_queue(), *NODES, ADMISSION, other)
    await other_services.append_undecodable(topics.RESOURCE_QUOTAS, "default/team")
    await other_services.sync()
    async with serving(other_services.bus, configured(tmp_path, "enqueue, allocate")):
        why = await explained(other_services)
        decisions = await other_services.until(topics.DECISIONS, at_least(1))
    assert "ResourceQuota default/team cannot be read" in why.message
    assert decisions[0].key == "other/free"


@pytest.mark.parametrize(("allowed", "goes"), [(0, 0), (1, 1)])
async def test_a_budget_protects_pods_from_eviction(
    other_services: OtherServices, tmp_path: Path, allowed: int, goes: int
) -> None:
    await other_services.see(*preempting(), budget(allowed))
    await other_services.sync()
    async with serving(other_services.bus, configured(tmp_path, "allocate, preempt")):
        assert len(await evicted(other_services, goes)) == goes


async def test_a_budget_that_cannot_be_read_protects_all_of_its_namespace(
    other_services: OtherServices, tmp_path: Path
) -> None:
    await other_services.see(*preempting())
    await other_services.append_undecodable(topics.DISRUPTION_BUDGETS, "default/keep")
    await other_services.sync()
    async with serving(other_services.bus, configured(tmp_path, "allocate, preempt")):
        assert await evicted(other_services, 0) == []


def preempting() -> list[meta.Object]:
    """A node full of pods that a gang of higher priority could have."""
    return [
        builders.make_queue(),
        *NODES,
        builders.make_priority_class("urgent", 100),
        *default_sessions.gang("low", 4, node="n1", min_member=1, labels={"app": "low"}),
        builders.make_pod_group("door", 1, priority_class="urgent"),
        builders.make_pod("door-0", "door", cpu="1"),
    ]


async def evicted(other_services: OtherServices, number: int) -> list[str]:
    """Pods that the first session evicts; where it evicts none, it has explained why it waits."""
    if not number:
        await explained(other_services)
        return []
    (first, *_) = await other_services.until(topics.DECISIONS, at_least(1))
    statement = envelope.decode(first)
    assert isinstance(statement, messages.StatementDecided)
    return [eviction.pod for eviction in statement.evictions]
