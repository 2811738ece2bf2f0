"""Before a pod is bound its claims are; a gang whose claims cannot be had is not begun in part."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.controller.tests import claims
from services.controller.tests import stage as stages
from services.controller.tests.stage import Stage
from stromboli.local import volumes
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit import builders, objects

DONE = ("executed", "")


@pytest.fixture(params=[None, stages.SEED], ids=["in order", "disorder"])
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """With who makes and binds volumes."""
    async with stages.set_up(tmp_path, request.param) as made:
        await made.submit(builders.make_node())
        making = asyncio.create_task(volumes.Volumes(made.cluster).run())
        yield made
        making.cancel()


async def node_of(stage: Stage, pod: str) -> str:
    found = kinds.PODS.decode(await stage.cluster.get(kinds.PODS, "default", pod))
    return found.spec.node_name


async def test_a_volume_is_made_for_the_node_and_then_the_pod_is_bound(stage: Stage) -> None:
    await claims.late_class(stage, "late", "disks.example.com")
    claim = await claims.volume_claim(stage, "c", "late")
    async with stage.controller():
        one, two = await claims.pods(stage, "g-0", "g-1")
        step = claims.to_volume(claim)
        answers = await claims.decide(stage, claims.bind(one, step), claims.bind(two, step))
    assert answers == [DONE, DONE]
    found = await stage.until(kinds.PERSISTENT_VOLUME_CLAIMS, "default/c", lambda _: True)
    assert found.status.phase == "Bound"
    assert found.metadata.annotation(keys.SELECTED_NODE) == "n1"
    assert await node_of(stage, "g-0") == "n1"


async def test_a_volume_that_there_is_gets_bound_to_its_claim(stage: Stage) -> None:
    await claims.late_class(stage, "late", "kubernetes.io/no-provisioner")
    claim = await claims.volume_claim(stage, "c", "late")
    await claims.volume(stage, "v", "late")
    async with stage.controller():
        (pod,) = await claims.pods(stage, "g-0")
        assert await claims.decide(stage, claims.bind(pod, claims.to_volume(claim, "v"))) == [DONE]
    found = await stage.until(kinds.PERSISTENT_VOLUMES, "v", lambda _: True)
    assert found.spec.claim_ref is not None
    assert found.spec.claim_ref.uid == claim.metadata.uid


async def test_a_claim_that_cannot_be_had_keeps_the_whole_gang_unbound(stage: Stage) -> None:
    """Its volume is another's by now. Devices that were written for its peers are free again."""
    await claims.late_class(stage, "late", "kubernetes.io/no-provisioner")
    claim = await claims.volume_claim(stage, "c", "late")
    other = await claims.volume_claim(stage, "other", "late")
    await claims.volume(stage, "v", "late")
    device = await claims.device_claim(stage, "d")
    async with stage.controller():
        one, two, three = await claims.pods(stage, "g-0", "g-1", "g-2")
        first = await claims.decide(stage, claims.bind(three, claims.to_volume(other, "v")))
        answers = await claims.decide(
            stage,
            claims.bind(one, claims.to_volume(claim, "v")),
            claims.bind(two, claims.to_devices(device, claims.allocation())),
        )
    assert first == [DONE]
    assert answers == [("refused", "VolumeTaken"), ("refused", "GangNotPrepared")]
    assert await node_of(stage, "g-1") == ""
    found = await stage.until(kinds.RESOURCE_CLAIMS, "default/d", lambda _: True)
    assert (found.status.allocation, found.status.reserved_for) == (None, ())


async def test_devices_are_written_for_each_pod_that_uses_them(stage: Stage) -> None:
    """The first brings them, the second is put down beside it, in whatever order they come."""
    claim = await claims.device_claim(stage, "d")
    async with stage.controller():
        one, two = await claims.pods(stage, "g-0", "g-1")
        answers = await claims.decide(
            stage,
            claims.bind(two, claims.to_devices(claim)),
            claims.bind(one, claims.to_devices(claim, claims.allocation())),
        )
        assert answers == [DONE, DONE]
        found = await stage.until(kinds.RESOURCE_CLAIMS, "default/d", lambda _: True)
        assert found.status.allocation == claims.allocation()
        assert {each.name for each in found.status.reserved_for} == {"g-0", "g-1"}
        assert found.metadata.finalizers
        (three,) = await claims.pods(stage, "g-2")
        others = claims.to_devices(claim, claims.allocation("gpu-1"))
        assert await claims.decide(stage, claims.bind(three, others)) == [
            ("refused", "ClaimAllocated")
        ]


async def test_what_is_waited_for_goes_on_in_the_next_process(stage: Stage) -> None:
    """A decision that waits for a volume holds up no other, and comes again after a restart."""
    await claims.late_class(stage, "late", "kubernetes.io/no-provisioner")
    claim = await claims.volume_claim(stage, "c", "late")
    async with stage.controller():
        one, two = await claims.pods(stage, "g-0", "g-1")
        waiting = await stage.decide(
            pod_group="default/g",
            pod_group_uid="g",
            binds=(claims.bind(one, claims.to_volume(claim)),),
        )
        await stage.until(
            kinds.PERSISTENT_VOLUME_CLAIMS,
            "default/c",
            lambda it: it.metadata.annotation(keys.SELECTED_NODE) == "n1",
        )
        assert await claims.decide(stage, claims.bind(two)) == [DONE]
    async with stage.controller():
        reference = {"namespace": "default", "name": "c"}
        await claims.volume(stage, "v", "late")
        patch = objects.merge(spec={"claimRef": reference})
        await stage.cluster.patch(kinds.PERSISTENT_VOLUMES, "", "v", patch, patch_type="merge")
        answer = await stage.answer(waiting)
    assert [task.result for task in answer.tasks] == ["executed"]


async def test_a_provisioner_that_gives_up_is_a_refusal(stage: Stage) -> None:
    """It takes the node's name from the claim: another node may do."""
    await claims.late_class(stage, "late", "kubernetes.io/no-provisioner")
    claim = await claims.volume_claim(stage, "c", "late")
    async with stage.controller():
        (pod,) = await claims.pods(stage, "g-0")
        deciding = asyncio.create_task(
            claims.decide(stage, claims.bind(pod, claims.to_volume(claim)))
        )
        patch = objects.merge(metadata={"annotations": {keys.SELECTED_NODE: None}})
        while not deciding.done():
            asked = asyncio.create_task(
                stage.until(
                    kinds.PERSISTENT_VOLUME_CLAIMS,
                    "default/c",
                    lambda it: it.metadata.annotation(keys.SELECTED_NODE) is not None,
                )
            )
            await asyncio.wait([deciding, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            await stage.cluster.patch(
                kinds.PERSISTENT_VOLUME_CLAIMS, "default", "c", patch, patch_type="merge"
            )
        assert await deciding == [("refused", "ProvisioningFailed")]
