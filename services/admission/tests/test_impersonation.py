"""With impersonation, every write over REST has the user's name; reads are our own."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from stromboli.admission.auth import authentication
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import kinds
from stromboli.shared.cluster import accounts
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.contracts.accounts import AUDIENCE, Scene
from stromboli.testkit.doubles import authorized_admission, shared_rest

SETTINGS = AdmissionSettings()
JSON = {"content-type": "application/json"}


class AllRights:
    """The users of the scene, each with every right: routes differ in what they write only."""

    def __init__(self, known: accounts.Accounts) -> None:
        self._known = known

    async def authenticate(
        self, token: str, audiences: Sequence[str]
    ) -> accounts.User | accounts.UnknownToken:
        """As the accounts have it."""
        return await self._known.authenticate(token, audiences)

    async def is_allowed(self, user: accounts.User, right: accounts.Right) -> bool:
        """Always."""
        return True

    async def own_username(self) -> str:
        """As the accounts have it."""
        return await self._known.own_username()


class ClusterOf:
    """The cluster as one user reaches it: records writes as (user, verb, kind)."""

    def __init__(
        self, cluster: EmbeddedCluster, user: str, written: list[tuple[str, str, str]]
    ) -> None:
        self._cluster, self._user, self._written = cluster, user, written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def create(self, kind: kinds.Kind[Any], *rest: Any) -> bytes:
        """Record and create."""
        self._written.append((self._user, "create", kind.kind))
        return await self._cluster.create(kind, *rest)

    async def patch(self, kind: kinds.Kind[Any], *rest: Any, **options: Any) -> bytes:
        """Record and patch."""
        self._written.append((self._user, "patch", kind.kind))
        return await self._cluster.patch(kind, *rest, **options)

    async def delete(self, kind: kinds.Kind[Any], *rest: Any, **options: Any) -> None:
        """Record and delete."""
        self._written.append((self._user, "delete", kind.kind))
        await self._cluster.delete(kind, *rest, **options)

    async def evict(self, *rest: Any, **options: Any) -> None:
        """Record and evict."""
        self._written.append((self._user, "evict", "Pod"))
        await self._cluster.evict(*rest, **options)


class Impersonations:
    """Our own cluster and those of impersonated users, which record writes in one list."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.written: list[tuple[str, str, str]] = []
        self.groups: list[Sequence[str]] = []
        self.own: Any = ClusterOf(cluster, "ourselves", self.written)

    def __call__(self, user: str, groups: Sequence[str]) -> Any:
        self.groups.append(groups)
        return ClusterOf(self._cluster, user, self.written)


Served = tuple[authorized_admission.AuthorizedAdmission, Impersonations]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with authorized_admission.open_admission(tmp_path, Scene()) as server:
        impersonations = Impersonations(server.cluster)
        authenticator = authentication.Authenticator(
            AllRights(server.accounts), 10.0, lambda: server.now, streams_last_s=0.05
        )
        server.admission = AdmissionService(
            SETTINGS, impersonations.own, runtime.utc_now, authenticator, impersonations
        )
        for document in existing(server.scene.blue):
            kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
            namespace = server.scene.blue if kind.namespaced else ""
            await server.cluster.create(kind, namespace, msgspec.json.encode(document))
        with shared_rest.rest_of(
            server.admission,
            impersonations.own,
            runtime.Health("admission"),
            authenticator,
            SETTINGS,
        ) as server.app:
            yield server, impersonations


def existing(namespace: str) -> list[dict[str, Any]]:
    """One object for each route that needs one; the embedded API server knows no policies."""
    elastic = manifests.job(name="there", minAvailable=1)
    elastic["spec"]["tasks"][0]["minAvailable"] = 1
    found = [
        elastic,
        manifests.cron(name="there"),
        manifests.bare_object(kinds.JOB_FLOWS, "there", spec={"flows": []}),
        manifests.bare_object(kinds.JOB_TEMPLATES, "there", spec=manifests.job()["spec"]),
        manifests.bare_object(kinds.RESOURCE_CLAIMS, "there", spec={}),
        manifests.bare_object(kinds.RESOURCE_CLAIM_TEMPLATES, "there", spec={"spec": {}}),
        objects.read(objects.pod("there")),
        manifests.reservation("there", users=["ann"]),
        manifests.queue("there"),
        manifests.bare_object(kinds.NODES, "there", spec={}),
    ]
    for each in found[:-3]:
        each["metadata"]["namespace"] = namespace
    found[-2]["status"] = {"state": "Closed"}
    return found


def new_job(namespace: str) -> dict[str, Any]:
    found = manifests.job()
    found["metadata"]["namespace"] = namespace
    return found


NAMESPACE = "/v1/namespaces/{namespace}"
ROUTES: dict[tuple[str, str], tuple[Any, list[tuple[str, str]]]] = {
    ("POST", "/v1/apply"): (lambda ns: {"objects": [new_job(ns)]}, [("create", "Job")]),
    ("POST", "/v1/bulk"): (new_job, [("create", "Job")]),
    ("POST", "/v1/check"): (lambda ns: {"objects": [new_job(ns)]}, []),
    ("POST", "/v1/queues"): (lambda _: manifests.queue("new"), [("create", "Queue")]),
    ("DELETE", "/v1/queues/{name}"): (None, [("delete", "Queue")]),
    ("DELETE", "/v1/advancereservations/{name}"): (None, [("delete", "AdvanceReservation")]),
    ("POST", f"{NAMESPACE}/jobs"): (new_job, [("create", "Job")]),
    ("DELETE", f"{NAMESPACE}/jobs/{{name}}"): (None, [("delete", "Job")]),
    ("POST", f"{NAMESPACE}/jobs/{{name}}/commands"): (
        lambda _: {"action": "RestartJob"},
        [("create", "Command")],
    ),
    ("POST", f"{NAMESPACE}/jobs/{{name}}/suspend"): (None, [("create", "Command")]),
    ("POST", f"{NAMESPACE}/jobs/{{name}}/resume"): (None, [("create", "Command")]),
    ("POST", f"{NAMESPACE}/jobs/{{name}}/scale"): (
        lambda _: {"replicas": 3, "minAvailable": 1},
        [("patch", "Job")],
    ),
    ("POST", f"{NAMESPACE}/jobs/{{name}}/what-if"): (lambda _: {"nodes": 1}, []),
    ("PATCH", f"{NAMESPACE}/jobs/{{name}}"): (
        lambda _: {"replicas": {"work": 3}, "minAvailable": 1},
        [("patch", "Job")],
    ),
    ("PATCH", "/v1/nodes/{name}"): (lambda _: {"unschedulable": True}, [("patch", "Node")]),
    ("POST", f"{NAMESPACE}/pods/{{name}}/eviction"): (lambda _: {"uid": ""}, [("evict", "Pod")]),
    ("DELETE", f"{NAMESPACE}/cronjobs/{{name}}"): (None, [("delete", "CronJob")]),
    ("DELETE", f"{NAMESPACE}/jobflows/{{name}}"): (None, [("delete", "JobFlow")]),
    ("DELETE", f"{NAMESPACE}/jobtemplates/{{name}}"): (None, [("delete", "JobTemplate")]),
    ("DELETE", f"{NAMESPACE}/resourceclaims/{{name}}"): (None, [("delete", "ResourceClaim")]),
    ("DELETE", f"{NAMESPACE}/resourceclaimtemplates/{{name}}"): (
        None,
        [("delete", "ResourceClaimTemplate")],
    ),
}
"""Method and path of each route that may write -> its body, and what it writes."""


async def right(ann: httpx.AsyncClient, method: str, path: str, namespace: str) -> httpx.Response:
    body, _ = ROUTES[method, path]
    url = path.format(namespace=namespace, name="there")
    document = None if body is None else msgspec.json.encode(body(namespace))
    answer = await ann.request(method, url, content=document, headers=JSON)
    assert answer.status_code < 300, answer.text
    return answer


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=" ".join)
async def test_every_write_over_rest_is_the_users(served: Served, method: str, path: str) -> None:
    server, impersonations = served
    async with server.as_("ann") as ann:
        await right(ann, method, path, server.scene.blue)
    _, writes = ROUTES[method, path]
    assert impersonations.written == [(server.scene.user("ann"), *write) for write in writes]


def test_no_route_that_writes_is_missing_here() -> None:
    schema = msgspec.json.decode(Path("docs/openapi.json").read_bytes())
    writing = {
        (method.upper(), path)
        for path, methods in schema["paths"].items()
        for method in methods
        if method in ("post", "put", "patch", "delete")
    }
    assert writing == ROUTES.keys()


async def test_a_user_is_impersonated_with_all_groups(served: Served) -> None:
    server, impersonations = served
    async with server.as_("ann") as ann:
        await right(ann, "DELETE", f"{NAMESPACE}/jobs/{{name}}", server.scene.blue)
    principal = await server.authenticator.authenticate(
        authorized_admission.token_of("ann"), (AUDIENCE,)
    )
    assert impersonations.groups == [principal.groups]


async def test_reads_name_no_user(served: Served) -> None:
    server, impersonations = served
    async with server.as_("ann") as ann:
        await ann.get(f"/v1/namespaces/{server.scene.blue}/{kinds.JOBS.plural}")
    assert not impersonations.groups
