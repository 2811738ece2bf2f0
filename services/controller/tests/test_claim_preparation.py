"""Claims are bound before their pods; a gang with an unavailable claim is not started in part."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.controller.tests.support import claims, service_harness
from services.controller.tests.support.service_harness import Harness
from stromboli.embedded import volume_controller
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import errors, keys
from stromboli.shared.api import kinds
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, objects

DONE = ("executed", "")


@pytest.fixture(params=[None, service_harness.SEED], ids=["in order", "disorder"])
async def harness(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    """With who makes and binds volumes."""
    async with service_harness.set_up(tmp_path, request.param) as made:
        await made.submit(builders.make_node())
        making = asyncio.create_task(volume_controller.VolumeController(made.cluster).run())
        yield made
        making.cancel()


async def node_of(harness: Harness, pod: str) -> str:
    found = kinds.PODS.decode(await harness.cluster.get(kinds.PODS, "default", pod))
    return found.spec.node_name


async def test_a_volume_is_created_for_the_node_and_then_the_pod_is_bound(harness: Harness) -> None:
    await claims.late_class(harness, "late", "disks.example.com")
    claim = await claims.volume_claim(harness, "c", "late")
    async with harness.controller():
        one, two = await claims.pods(harness, "g-0", "g-1")
        step = claims.to_volume(claim)
        answers = await claims.decide(harness, claims.bind(one, step), claims.bind(two, step))
    assert answers == [DONE, DONE]
    persistent_volume_claim = await harness.until(
        kinds.PERSISTENT_VOLUME_CLAIMS, "default/c", lambda _: True
    )
    assert persistent_volume_claim.status.phase == "Bound"
    assert persistent_volume_claim.metadata.annotation(keys.SELECTED_NODE) == "n1"
    assert await node_of(harness, "g-0") == "n1"


async def test_a_volume_that_there_is_gets_bound_to_its_claim(harness: Harness) -> None:
    await claims.late_class(harness, "late", "kubernetes.io/no-provisioner")
    claim = await claims.volume_claim(harness, "c", "late")
    await claims.volume(harness, "v", "late")
    async with harness.controller():
        (pod,) = await claims.pods(harness, "g-0")
        assert await claims.decide(harness, claims.bind(pod, claims.to_volume(claim, "v"))) == [
            DONE
        ]
    persistent_volume = await harness.until(kinds.PERSISTENT_VOLUMES, "v", lambda _: True)
    assert persistent_volume.spec.claim_ref is not None
    assert persistent_volume.spec.claim_ref.uid == claim.metadata.uid


async def test_a_claim_that_cannot_be_had_keeps_the_whole_gang_unbound(harness: Harness) -> None:
    """Its volume is another's by now. Devices that were written for its peers are free again."""
    await claims.late_class(harness, "late", "kubernetes.io/no-provisioner")
    claim = await claims.volume_claim(harness, "c", "late")
    other = await claims.volume_claim(harness, "other", "late")
    await claims.volume(harness, "v", "late")
    device = await claims.device_claim(harness, "d")
    async with harness.controller():
        one, two, three = await claims.pods(harness, "g-0", "g-1", "g-2")
        first = await claims.decide(harness, claims.bind(three, claims.to_volume(other, "v")))
        answers = await claims.decide(
            harness,
            claims.bind(one, claims.to_volume(claim, "v")),
            claims.bind(two, claims.to_devices(device, claims.allocation())),
        )
    assert first == [DONE]
    assert answers == [("refused", "VolumeTaken"), ("refused", "GangNotPrepared")]
    assert await node_of(harness, "g-1") == ""
    found = await harness.until(kinds.RESOURCE_CLAIMS, "default/d", lambda _: True)
    assert (found.status.allocation, found.status.reserved_for) == (None, ())


async def test_devices_are_written_for_each_pod_that_uses_them(harness: Harness) -> None:
    """The first one allocates them, later ones are added to `reservedFor`, in any order."""
    claim = await claims.device_claim(harness, "d")
    async with harness.controller():
        one, two = await claims.pods(harness, "g-0", "g-1")
        answers = await claims.decide(
            harness,
            claims.bind(two, claims.to_devices(claim)),
            claims.bind(one, claims.to_devices(claim, claims.allocation())),
        )
        assert answers == [DONE, DONE]
        found = await harness.until(kinds.RESOURCE_CLAIMS, "default/d", lambda _: True)
        assert found.status.allocation == claims.allocation()
        assert {each.name for each in found.status.reserved_for} == {"g-0", "g-1"}
        assert found.metadata.finalizers
        (three,) = await claims.pods(harness, "g-2")
        others = claims.to_devices(claim, claims.allocation("gpu-1"))
        assert await claims.decide(harness, claims.bind(three, others)) == [
            ("refused", "ClaimAllocated")
        ]


async def test_a_pod_does_not_wait_for_a_claim_that_no_bind_allocates(harness: Harness) -> None:
    """It was deallocated since the decision. Nor for one whose bind was given up."""
    await claims.late_class(harness, "late", "kubernetes.io/no-provisioner")
    absent = await claims.volume_claim(harness, "c", "late")
    gone, shared = [await claims.device_claim(harness, name) for name in ("d", "e")]
    async with harness.controller():
        one, two, three = await claims.pods(harness, "g-0", "g-1", "g-2")
        alone = await claims.decide(harness, claims.bind(one, claims.to_devices(gone)))
        given_up = claims.to_volume(absent, "none"), claims.to_devices(shared, claims.allocation())
        together = await claims.decide(
            harness,
            claims.bind(two, claims.to_devices(shared)),
            claims.bind(three, *given_up),
        )
    assert alone == [("refused", "ClaimDeallocated")]
    assert sorted(together) == [("refused", "ClaimDeallocated"), ("refused", "VolumeGone")]


class UnreadableClaims(EmbeddedCluster):
    """An API server that lets nobody read a ResourceClaim."""

    async def get(self, kind: Any, namespace: str, name: str) -> bytes:
        if kind is kinds.RESOURCE_CLAIMS:
            raise errors.ForbiddenError(f"GET ResourceClaim {name}", "no right")
        return await super().get(kind, namespace, name)


async def test_a_claim_that_cannot_be_read_may_have_its_devices(tmp_path: Path) -> None:
    """Neither the roll-back of a refused bind nor its outcome can tell: unknown is not free."""
    async with service_harness.set_up(tmp_path, None, UnreadableClaims) as harness:
        await harness.submit(builders.make_node())
        claim = await claims.device_claim(harness, "d")
        async with harness.controller():
            (pod,) = await claims.pods(harness, "g-0")
            step = claims.to_devices(claim, claims.allocation())
            answer = await harness.answer(await decide(harness, claims.bind(pod, step)))
    assert [task.result for task in answer.tasks] == ["refused"]
    assert [(each.claim, each.version) for each in answer.claims] == [("d", 0)]


async def claim_versions(harness: Harness, decision: str) -> dict[str, int]:
    answer = await harness.answer(decision)
    return {each.claim: each.version for each in answer.claims}


async def decide(harness: Harness, *binds: messages.Bind) -> str:
    return await harness.decide(pod_group="default/g", pod_group_uid="g", binds=binds)


async def test_an_outcome_names_a_version_of_each_claim_that_the_decision_allocated(
    harness: Harness,
) -> None:
    """The scheduler may read the claim only after it was deallocated. So does the outcome of a
    repeated publication, which executes nothing."""
    claim = await claims.device_claim(harness, "d")
    await claims.device_claim(harness, "other")
    async with harness.controller():
        one, two = await claims.pods(harness, "g-0", "g-1")
        step = claims.to_devices(claim, claims.allocation())
        decision = await decide(harness, claims.bind(one, step), claims.bind(two, step))
        versions = await claim_versions(harness, decision)
        found = await harness.until(kinds.RESOURCE_CLAIMS, "default/d", lambda _: True)
        assert versions == {"d": found.metadata.version}
        emptied = objects.merge(status={"allocation": None, "reservedFor": None})
        await harness.cluster.patch(
            kinds.RESOURCE_CLAIMS,
            "default",
            "d",
            emptied,
            patch_type="merge",
            subresource="status",
        )
        again = await harness.answer_at(await harness.republish(decision))
        assert [it.result for it in again.tasks] == ["executed", "executed"]
        assert [each.version >= versions["d"] for each in again.claims] == [True]


async def test_an_outcome_names_a_claim_of_a_refused_pod_only_while_other_pods_use_it(
    harness: Harness,
) -> None:
    claim = await claims.device_claim(harness, "d")
    step = claims.to_devices(claim, claims.allocation())
    async with harness.controller():
        one, two = await claims.pods(harness, "g-0", "g-1")
        gone = msgspec.structs.replace(claims.bind(one, step), uid="gone")
        alone = await decide(harness, gone)
        assert await claim_versions(harness, alone) == {}
        assert await claims.decide(harness, claims.bind(two, step)) == [DONE]
        shared = await decide(harness, gone)
        assert [it.result for it in (await harness.answer(shared)).tasks] == ["refused"]
        found = await harness.until(kinds.RESOURCE_CLAIMS, "default/d", lambda _: True)
        assert await claim_versions(harness, shared) == {"d": found.metadata.version}


async def test_a_waiting_decision_continues_in_the_next_process(harness: Harness) -> None:
    """A decision that waits for a volume does not block others, and is executed after a restart."""
    await claims.late_class(harness, "late", "kubernetes.io/no-provisioner")
    claim = await claims.volume_claim(harness, "c", "late")
    async with harness.controller():
        one, two = await claims.pods(harness, "g-0", "g-1")
        waiting = await harness.decide(
            pod_group="default/g",
            pod_group_uid="g",
            binds=(claims.bind(one, claims.to_volume(claim)),),
        )
        await harness.until(
            kinds.PERSISTENT_VOLUME_CLAIMS,
            "default/c",
            lambda it: it.metadata.annotation(keys.SELECTED_NODE) == "n1",
        )
        assert await claims.decide(harness, claims.bind(two)) == [DONE]
    async with harness.controller():
        reference = {"namespace": "default", "name": "c"}
        await claims.volume(harness, "v", "late")
        patch = objects.merge(spec={"claimRef": reference})
        await harness.cluster.patch(kinds.PERSISTENT_VOLUMES, "", "v", patch, patch_type="merge")
        answer = await harness.answer(waiting)
    assert [task.result for task in answer.tasks] == ["executed"]


async def test_a_provisioner_that_gives_up_is_a_refusal(harness: Harness) -> None:
    """It takes the node's name from the claim: another node may do."""
    await claims.late_class(harness, "late", "kubernetes.io/no-provisioner")
    claim = await claims.volume_claim(harness, "c", "late")
    async with harness.controller():
        (pod,) = await claims.pods(harness, "g-0")
        deciding = asyncio.create_task(
            claims.decide(harness, claims.bind(pod, claims.to_volume(claim)))
        )
        patch = objects.merge(metadata={"annotations": {keys.SELECTED_NODE: None}})
        while not deciding.done():
            requested = asyncio.create_task(
                harness.until(
                    kinds.PERSISTENT_VOLUME_CLAIMS,
                    "default/c",
                    lambda it: it.metadata.annotation(keys.SELECTED_NODE) is not None,
                )
            )
            await asyncio.wait([deciding, requested], return_when=asyncio.FIRST_COMPLETED)
            requested.cancel()
            await harness.cluster.patch(
                kinds.PERSISTENT_VOLUME_CLAIMS, "default", "c", patch, patch_type="merge"
            )
        assert await deciding == [("refused", "ProvisioningFailed")]
