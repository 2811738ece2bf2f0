"""Only accounts with the right write the annotations of decisions, on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from stromboli.shared import errors, keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.jobspec.policies import pod_annotations
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects, records
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]
MINE = {keys.DECISION: "scheduler/1/2"}
REFUSED = (errors.ForbiddenError, errors.InvalidError)
RBAC = "rbac.authorization.k8s.io"
ROOT = f"/apis/{RBAC}/v1"
PODS = {"apiGroups": [""], "resources": ["pods", "pods/binding", "pods/status"], "verbs": ["*"]}
ROLES = {"tenant": [PODS], "another-controller": [PODS, pod_annotations.RIGHT]}
"""User -> what it may do."""


def pod(**annotations: str) -> bytes:
    metadata = {"name": objects.unique("annotated"), "annotations": annotations}
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "volcano"}
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ours(real_parts: real.RealParts) -> AsyncIterator[KubernetesCluster]:
    """A connection as an account with all rights, while the policy is in force."""
    kubernetes_settings = KubernetesSettings(kubeconfig=str(real_parts.kubeconfig))
    async with KubernetesCluster(kubernetes_settings) as cluster, real_parts.client() as api:
        for user, rules in ROLES.items():
            metadata = {"name": f"annotations-{user}"}
            await api.create(f"{ROOT}/clusterroles", {"metadata": metadata, "rules": rules})
            subject = {"apiGroup": RBAC, "kind": "User", "name": user}
            role = {"apiGroup": RBAC, "kind": "ClusterRole", **metadata}
            bound = {"metadata": metadata, "subjects": [subject], "roleRef": role}
            await api.create(f"{ROOT}/clusterrolebindings", bound)
        made = pod_annotations.documents()
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
    """A connection as an account with all rights on pods."""
    return cluster.impersonating("tenant", ("system:authenticated",))


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


async def test_every_account_with_the_right_writes_them(ours: KubernetesCluster) -> None:
    """So several installations can have one policy."""
    controller = ours.impersonating("another-controller", ("system:authenticated",))
    assert await refusal_of_create(controller, **MINE) == ""


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
