"""Each topic is deleted and recreated once on a broker, with two replicas of each service whose
clocks differ by 20 minutes: each gang ends at its first attempt, each pod is bound once.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import aiokafka.errors as kafka_errors
import pytest
from aiokafka import admin

from stromboli.shared import topics
from stromboli.shared.bus import kafka
from stromboli.shared.bus.kafka import topic_metadata
from stromboli.testkit.checkers import invariants
from stromboli.testkit.parts import tools
from stromboli.testkit.real_system import SERVICES, RealSystem, Service
from tests.faults.support import api_history, workload

pytestmark = pytest.mark.real

AHEAD_S = {"active": 600, "standby": -600}
NAMESPACE = "recreated"
ENDED_WITHIN_S = 120.0


def skewed(service: str, ahead_s: int) -> list[str]:
    """The command of a service whose wall clock is ahead by this time."""
    module = f"stromboli.{service}"
    return [sys.executable, "-m", "stromboli.testkit.skewed_clock", str(ahead_s), module]


@contextlib.asynccontextmanager
async def two_of_each(state: Path) -> AsyncIterator[RealSystem]:
    """The system on real parts, with a second replica of every service."""
    commands = {name: skewed(name, AHEAD_S["active"]) for name in SERVICES}
    size = ("--cpu", str(workload.CPUS))
    system = RealSystem(state, simulated_nodes=workload.NODES, node_options=size, commands=commands)
    async with system:
        standbys = [
            Service(
                name,
                state / f"{name}-standby",
                system.services[name].given,
                skewed(name, AHEAD_S["standby"]),
            )
            for name in SERVICES
        ]
        try:
            await asyncio.gather(*(standby.start() for standby in standbys))
            yield system
        finally:
            await asyncio.gather(*(standby.stop() for standby in standbys))


async def recreate(bootstrap: str, topic: topics.Topic) -> None:
    """Delete a topic; return when it exists again, created by this function or by a service."""
    settings = kafka.KafkaSettings(bootstrap=(bootstrap,))
    name = topic.full_name(settings.cluster_name)
    client = admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        before = await topic_metadata.fetch_topic_ids(client._client, [name])
        await client.delete_topics([name])
        async with asyncio.timeout(60.0):
            while await topic_metadata.fetch_topic_ids(client._client, [name]) in ({}, before):
                with contextlib.suppress(kafka_errors.KafkaError):
                    async with kafka.KafkaBus(settings):
                        pass
    finally:
        await client.close()


def bound_pods(history: api_history.ApiHistory) -> dict[tuple[str, str, str], set[str]]:
    """(job uid, task, index) -> uids of its pods that were ever bound to a node."""
    bound = defaultdict(set)
    for event in history.events:
        pod = event["object"]
        if pod["kind"] == "Pod" and pod["spec"].get("nodeName"):
            annotations = pod["metadata"]["annotations"]
            task = annotations[invariants.TASK], annotations[invariants.INDEX]
            bound[invariants.job_of(pod), *task].add(pod["metadata"]["uid"])
    return bound


@pytest.mark.timeout(600)
async def test_each_topic_is_recreated_once_and_each_pod_is_bound_once(
    real_tools: tools.Tools, tmp_path: Path
) -> None:
    """A gang is under way each time: what was on the topic is void, what was decided is not."""
    async with (
        two_of_each(tmp_path) as system,
        api_history.ApiHistory(system.parts).recording() as history,
    ):
        async with system.parts.client() as api:
            await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for number, topic in enumerate(topics.ALL):
            name = f"gang-{number:02d}"
            await workload.submit(system.url, NAMESPACE, [workload.short_job(name)])
            await recreate(system.parts.kafka_bootstrap, topic)
            await _ended(history, number + 1, topic)
        retried = [
            job["metadata"]["name"]
            for job in history.objects("Job", NAMESPACE)
            if job["status"].get("retryCount")
        ]
        bound = bound_pods(history)
        assert retried == []
        assert len(bound) == 2 * len(topics.ALL)
        assert [task for task, pods in bound.items() if len(pods) > 1] == []
        assert invariants.violations(history.ordered(frozenset({NAMESPACE}))) == []


async def _ended(history: api_history.ApiHistory, count: int, topic: topics.Topic) -> None:
    """Return when this number of jobs have ended as expected."""

    def are_ended() -> bool:
        jobs = history.objects("Job", NAMESPACE)
        return len(workload.ended_as_expected(jobs)) >= count

    try:
        await history.until(are_ended, ENDED_WITHIN_S)
    except TimeoutError:
        phases = {
            job["metadata"]["name"]: workload.phase(job)
            for job in history.objects("Job", NAMESPACE)
        }
        raise AssertionError(f"after {topic.name} was recreated: {phases}") from None
