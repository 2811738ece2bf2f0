"""Only our service accounts write the annotations of decisions, on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from stromboli.shared import errors, keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import (
    KubernetesAccounts,
    KubernetesCluster,
    KubernetesSettings,
)
from stromboli.shared.jobspec.policies import pod_annotations
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects, records
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]
MINE = {keys.DECISION: "scheduler/1/2"}
REFUSED = (errors.ForbiddenError, errors.InvalidError)


def pod(**annotations: str) -> bytes:
    metadata = {"name": objects.unique("annotated"), "annotations": annotations}
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "volcano"}
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ours(real_parts: real.RealParts) -> AsyncIterator[KubernetesCluster]:
    """A connection as the account that the policy in force spares."""
    given = KubernetesSettings(kubeconfig=str(real_parts.kubeconfig))
    async with KubernetesCluster(given) as cluster:
        account = await KubernetesAccounts(cluster).own_username()
        made = pod_annotations.documents([account])
        for document in made:
            kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
            await cluster.create(kind, "", msgspec.json.encode(document))
        pauses = runtime.Backoff()
        async with asyncio.timeout(records.DEADLINE_S):
            while not await refusal_of_create(others(cluster), **MINE):  # noqa: ASYNC110 - polled
                await asyncio.sleep(pauses.next_s())
        yield cluster
        for document in made:
            kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
            await cluster.delete(kind, "", pod_annotations.NAME)


def others(cluster: KubernetesCluster) -> port.Cluster:
    """A connection as another account with all rights."""
    return cluster.impersonating("tenant", ("system:masters", "system:authenticated"))


async def refusal_of_create(cluster: port.Cluster, **annotations: str) -> str:
    try:
        await cluster.create(kinds.PODS, "default", pod(**annotations), dry_run=True)
    except REFUSED as error:
        return str(error)
    return ""


@pytest.mark.parametrize("key", pod_annotations.RESERVED)
async def test_others_create_no_pod_with_an_annotation_of_ours(
    ours: KubernetesCluster, key: str
) -> None:
    assert key in await refusal_of_create(others(ours), **{key: "1"})
    assert await refusal_of_create(ours, **{key: "1"}) == ""
    assert await refusal_of_create(others(ours), **{"example.org/a": "1"}) == ""


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize("value", ["scheduler/9/9", None], ids=["changed", "removed"])
async def test_others_change_no_annotation_of_ours(
    ours: KubernetesCluster, subresource: Any, value: str | None
) -> None:
    name = kinds.name_of(await ours.create(kinds.PODS, "default", pod(**MINE)))
    forged, harmless = (
        msgspec.json.encode({"metadata": {"annotations": annotations}})
        for annotations in ({keys.DECISION: value}, {"example.org/a": "1"})
    )
    where = {"patch_type": "merge", "subresource": subresource}
    with pytest.raises(REFUSED, match="only Stromboli"):
        await others(ours).patch(kinds.PODS, "default", name, forged, **where)
    await others(ours).patch(kinds.PODS, "default", name, harmless, **where)
    await ours.patch(kinds.PODS, "default", name, forged, **where)
    await ours.delete(kinds.PODS, "default", name, grace_seconds=0)


async def test_others_bind_no_pod_with_an_annotation_of_ours(ours: KubernetesCluster) -> None:
    made = kinds.PODS.decode(await ours.create(kinds.PODS, "default", pod()))
    of = {"uid": made.metadata.uid, "node": "n1"}
    with pytest.raises(REFUSED, match="only Stromboli"):
        await others(ours).bind("default", made.metadata.name, **of, annotations=MINE)
    await ours.bind("default", made.metadata.name, **of, annotations=MINE)
    await ours.delete(kinds.PODS, "default", made.metadata.name, grace_seconds=0)


async def test_the_installed_policy_is_recognized(ours: KubernetesCluster) -> None:
    served = [
        msgspec.json.decode(await ours.get(kind, "", pod_annotations.NAME))
        for kind in (kinds.VALIDATING_POLICIES, kinds.VALIDATING_POLICY_BINDINGS)
    ]
    assert pod_annotations.shortcoming(served[0], served[1]) == ""
