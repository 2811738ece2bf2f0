"""Permissions of queues and priority classes without webhooks, on a real API server."""

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
from stromboli.shared.jobspec import policies
from stromboli.shared.jobspec.validation.queueing import permissions
from stromboli.shared.runtime import runtime
from stromboli.testkit import crds, records
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.parts import real
from tests.contract.test_policies_kubernetes import POLICIES

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

MARK = {"test.example/judged": "by-permissions"}
"""Objects with this label are validated: other tests share the server."""
KINDS = (kinds.JOBS, kinds.CRON_JOBS, kinds.POD_GROUPS)
USED: tuple[tuple[kinds.Kind[Any], dict[str, Any]], ...] = (
    (kinds.QUEUES, {"spec": {}}),
    (kinds.PRIORITY_CLASSES, {"value": 1}),
)
MINE, OTHERS, OPEN, HERE = "perm-mine", "perm-others", "perm-open", "perm-here"
"""Queues and priority classes: for the user of this test, for another one, for all, for this
namespace."""


class Server:
    """A server with the policies in force, and the user of the test."""

    def __init__(self, cluster: port.Cluster, user: str) -> None:
        self.cluster, self.user = cluster, user

    async def refusal(self, kind: kinds.Kind[Any], **document: Any) -> str:
        """The server's message against creating an object; empty if the object is accepted."""
        try:
            await self.cluster.create(kind, "default", made(kind, **document))
        except (errors.InvalidError, errors.ForbiddenError) as error:
            return str(error)
        await self.remove(kind)
        return ""

    async def remove(self, kind: kinds.Kind[Any]) -> None:
        await self.cluster.delete(kind, "default", "perm")


def made(kind: kinds.Kind[Any], queue: str = OPEN, priority: str = "", **noted: str) -> bytes:
    """An object of a kind that uses a queue and a priority class."""
    job = manifests.job(queue=queue)["spec"]
    if priority:
        job["tasks"][0]["template"]["spec"]["priorityClassName"] = priority
    spec: dict[str, Any] = {"minMember": 1, "queue": queue}
    spec |= {"priorityClassName": priority} if priority else {}
    if kind == kinds.JOBS:
        spec = job
    elif kind == kinds.JOB_FLOWS:
        spec = {"flows": [{"name": "a"}]}
    elif kind == kinds.CRON_JOBS:
        spec = {"schedule": "@yearly", "jobTemplate": {"spec": job}}
    document = manifests.bare_object(kind, "perm", spec=spec)
    document["metadata"] |= {"labels": MARK, "annotations": noted, "namespace": "default"}
    return msgspec.json.encode(document)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(real_parts: real.RealParts) -> AsyncIterator[Server]:
    kubernetes_settings = KubernetesSettings(kubeconfig=str(real_parts.kubeconfig))
    async with KubernetesCluster(kubernetes_settings) as cluster:
        await crds.apply_crds(cluster)
        user = await KubernetesAccounts(cluster).own_username()
        installed: list[tuple[kinds.Kind[Any], str]] = []

        async def install(kind: kinds.Kind[Any], document: dict[str, Any]) -> None:
            await cluster.create(kind, "", msgspec.json.encode(document))
            installed.append((kind, document["metadata"]["name"]))

        allowed = {
            MINE: {keys.ALLOWED_USERS: f"x, {user}"},
            OTHERS: {keys.ALLOWED_USERS: "somebody", keys.ALLOWED_GROUPS: "a-group\nb,c"},
            OPEN: {},
            HERE: {keys.ALLOWED_NAMESPACES: "default"},
        }
        for name, noted in allowed.items():
            metadata = {"name": name, "annotations": noted}
            for each, rest in USED:
                head = {"apiVersion": each.api_version, "kind": each.kind}
                await install(each, {**head, "metadata": metadata, **rest})
        for kind in permissions.SUBMITTER_KINDS:
            for document in policies.documents(kind.plural):
                if document["kind"].endswith("Binding"):
                    document["spec"]["matchResources"] = {"objectSelector": {"matchLabels": MARK}}
                await install(POLICIES[document["kind"]], document)
        found = Server(cluster, user)
        pauses = runtime.Backoff()
        async with asyncio.timeout(records.DEADLINE_S):
            for kind in KINDS:
                for wrong in ({"queue": OTHERS}, {"priority": OTHERS}, {keys.USER: "boss"}):
                    while not await found.refusal(kind, **wrong):  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(pauses.next_s())
        yield found
        for kind, name in reversed(installed):
            await cluster.delete(kind, "", name)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
async def test_queues_and_priorities_take_those_they_name(
    server: Server, kind: kinds.Kind[Any]
) -> None:
    for name in (MINE, OPEN, HERE):
        assert await server.refusal(kind, queue=name, priority=name) == ""
    assert f"queue {OTHERS} is not open to user" in await server.refusal(kind, queue=OTHERS)
    said = await server.refusal(kind, priority=OTHERS)
    assert f"priority class {OTHERS} is not open to user" in said


@pytest.mark.parametrize("kind", permissions.SUBMITTER_KINDS, ids=lambda kind: kind.kind)
async def test_no_name_is_forged(server: Server, kind: kinds.Kind[Any]) -> None:
    assert await server.refusal(kind, **{keys.USER: server.user}) == ""
    for forged in ({keys.USER: "boss"}, {keys.USER_GROUPS: "a-group-of-others"}):
        assert "records who submitted" in await server.refusal(kind, **forged)
    await server.cluster.create(kind, "default", made(kind))
    try:
        later = msgspec.json.encode({"metadata": {"annotations": {keys.USER: "boss"}}})
        with pytest.raises(errors.ExternalError, match="records who submitted"):
            await server.cluster.patch(kind, "default", "perm", later, patch_type="merge")
    finally:
        await server.remove(kind)


async def test_a_pod_group_cannot_move_to_a_queue_without_permission(server: Server) -> None:
    kind = kinds.POD_GROUPS
    await server.cluster.create(kind, "default", made(kind))
    try:
        later = msgspec.json.encode({"spec": {"queue": OTHERS}})
        with pytest.raises(errors.ExternalError, match="not open to user"):
            await server.cluster.patch(kind, "default", "perm", later, patch_type="merge")
    finally:
        await server.remove(kind)
