"""The service writes what a real API server takes: objects, patches with tests, Events."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from services.controller.tests.support import claims
from services.controller.tests.support.service_harness import Harness
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import keys
from stromboli.shared.api import kinds, scheduling
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.testkit import crds, objects
from stromboli.testkit.builders import (
    make_command,
    make_explanation,
    make_job,
    make_queue,
    make_task,
)
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]


@pytest.fixture
async def harness(real_parts: real.RealParts, tmp_path: Path) -> AsyncIterator[Harness]:
    """A controller on the real API server, with the log of a single process."""
    kubeconfig = str(real_parts.api_server.kubeconfig("admin"))
    settings = KubernetesSettings(kubeconfig=kubeconfig)
    async with EmbeddedBus(tmp_path / "log.db") as bus, KubernetesCluster(settings) as cluster:
        await crds.apply_crds(cluster)
        made = Harness(bus, cluster)
        async with asyncio.TaskGroup() as tasks:
            helpers = [tasks.create_task(made.relay()), tasks.create_task(made.follow())]
            async with made.controller():
                yield made
            for helper in helpers:
                helper.cancel()


async def enqueued(harness: Harness, name: str, replicas: int, **job: object) -> str:
    key = f"default/{name}"
    await harness.submit(make_job(name, tasks=[make_task(replicas=replicas)], **job))  # type: ignore[arg-type]
    answer = await harness.answer(await harness.enqueue(await harness.group(key)))
    assert answer.enqueue == "executed"
    return key


async def test_a_job_with_plugins_goes_through_its_life_cycle(harness: Harness) -> None:
    name = objects.unique("way")
    key = await enqueued(harness, name, 2, plugins={"svc": (), "env": ()})
    await harness.until(kinds.JOBS, key, lambda job: job.status.pending == 2)
    for kind, made in (
        (kinds.CONFIG_MAPS, f"{name}-svc"),
        (kinds.SERVICES, name),
        (kinds.NETWORK_POLICIES, name),
    ):
        await harness.cluster.get(kind, "default", made)
    pods = [await harness.until(kinds.PODS, f"{key}-worker-{i}", lambda _: True) for i in range(2)]
    group = await harness.group(key)
    await explain(harness, group.metadata.key, group.metadata.uid)
    for pod in pods:
        await harness.until(kinds.PODS, pod.metadata.key, lambda it: len(it.status.conditions) == 1)
    placed = await harness.answer(await harness.place(group, pods))
    assert [it.result for it in placed.tasks] == ["executed", "executed"]
    for phase in ("Running", "Succeeded"):
        for pod in pods:
            await harness.report(pod, phase)
        await harness.job(key, {"Succeeded": "Completed"}.get(phase, phase))
    done = await harness.until(kinds.JOBS, key, lambda job: not job.status.controlled_resources)
    assert done.status.succeeded == 2
    await recorded(harness, name, "Pending", "Running", "Completed")


async def test_a_command_stops_a_job_whose_status_another_controller_wrote(
    harness: Harness,
) -> None:
    """Its status has no version: Volcano leaves out zeros."""
    key = await enqueued(harness, objects.unique("taken"), 1)
    job = await harness.job(key, "Pending")
    status = msgspec.json.encode({"status": {"version": None}})
    await harness.cluster.patch(
        kinds.JOBS,
        "default",
        job.metadata.name,
        status,
        patch_type="merge",
        subresource="status",
    )
    await harness.submit(make_command(objects.unique("stop"), "TerminateJob", job))
    await harness.job(key, "Terminated")


async def test_a_queue_created_past_admission_has_a_warning_until_corrected(
    harness: Harness,
) -> None:
    """Creating the parent fixes it; Events show both, on a cluster scoped object."""
    org, team = objects.unique("org"), objects.unique("team")
    await harness.submit(make_queue(team, parent=org, state=""))
    sent = await harness.until(kinds.QUEUES, team, lambda it: bool(violations(it)))
    assert violations(sent).startswith(f"spec.parent: queue '{org}' does not exist; ")
    await harness.submit(make_queue(org, parent="root", state=""))
    await harness.until(kinds.QUEUES, team, lambda it: not violations(it))
    await recorded(harness, team, "Refused", "Accepted")


async def test_volumes_and_devices_are_written_as_kubernetes_takes_them(harness: Harness) -> None:
    """Its volume controller binds the volume whose claimRef was set, and its validation accepts the
    allocation.
    """
    late = objects.unique("late")
    await claims.late_class(harness, late, "kubernetes.io/no-provisioner")
    claim = await claims.volume_claim(harness, objects.unique("c"), late)
    disk = await claims.volume(harness, objects.unique("v"), late)
    device = await claims.device_claim(harness, objects.unique("d"))
    one, two = await claims.pods(harness, objects.unique("g"), objects.unique("g"))
    answers = await claims.decide(
        harness,
        claims.bind(one, claims.to_volume(claim, disk.metadata.name)),
        claims.bind(two, claims.to_devices(device, claims.allocation())),
    )
    assert answers == [("executed", ""), ("executed", "")]
    bound = await harness.until(kinds.PERSISTENT_VOLUME_CLAIMS, claim.metadata.key, lambda _: True)
    assert (bound.spec.volume_name, bound.status.phase) == (disk.metadata.name, "Bound")
    given = await harness.until(kinds.RESOURCE_CLAIMS, device.metadata.key, lambda _: True)
    assert given.status.allocation == claims.allocation()
    # A bind that the API server refuses gives the devices back.
    other = await claims.device_claim(harness, objects.unique("d"))
    gone = msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, name=objects.unique("gone"))
    )
    refused = claims.bind(gone, claims.to_devices(other, claims.allocation("gpu-1")))
    assert await claims.decide(harness, refused) == [("refused", "PodGone")]
    free = await harness.until(kinds.RESOURCE_CLAIMS, other.metadata.key, lambda _: True)
    assert (free.status.allocation, free.status.reserved_for) == (None, ())


def violations(queue: scheduling.Queue) -> str:
    return queue.metadata.annotation(keys.VIOLATIONS) or ""


async def explain(harness: Harness, key: str, uid: str) -> None:
    message = make_explanation(
        key,
        uid,
        2,
        phase="Inqueue",
        tier="resources",
        message="2/2 tasks in gang unschedulable",
    )
    await harness.explain(message)


async def recorded(harness: Harness, name: str, *reasons: str) -> None:
    """Wait until an object has Events of these reasons: they are written behind everything else."""
    while True:
        listing = await harness.cluster.list(kinds.EVENTS, "default")
        events = [msgspec.json.decode(raw) for raw in listing.items]
        if {it["reason"] for it in events if it["involvedObject"]["name"] == name} >= {*reasons}:
            return
        await harness.change(kinds.EVENTS, listing.resource_version)
