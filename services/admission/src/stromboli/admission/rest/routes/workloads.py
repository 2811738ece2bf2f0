"""REST routes that several kinds have: read, delete, events. ``apply`` creates the objects.

They are the kinds that create jobs, the device claims that jobs use, and reservations of nodes.
"""

from typing import Any

import msgspec
from litestar import delete, get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.admission.rest.authorization import many, needs, one
from stromboli.admission.rest.creation import Asked
from stromboli.admission.rest.pagination import Continue, Items, Limit, list_page
from stromboli.admission.review.service import AdmissionService
from stromboli.shared import decoding
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import port as cluster_port

KINDS: tuple[Kind[Any], ...] = (
    kinds.JOB_FLOWS,
    kinds.JOB_TEMPLATES,
    kinds.CRON_JOBS,
    kinds.RESOURCE_CLAIMS,
    kinds.RESOURCE_CLAIM_TEMPLATES,
)


class _InvolvedObject(msgspec.Struct, frozen=True):
    uid: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    involved_object: _InvolvedObject = _InvolvedObject()


_ABOUT = decoding.decoder_of(_Event)


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """The REST routes of all these kinds."""
    in_namespaces = [route for kind in KINDS for route in _of(kind, admission, cluster)]
    return [*in_namespaces, *_of_cluster(kinds.ADVANCE_RESERVATIONS, admission, cluster)]


def _of_cluster(
    kind: Kind[Any], admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """The routes of a kind without namespaces, and without Events."""
    path = f"/v1/{kind.plural}"

    @get(path, opt=needs(many("list", kind)), summary=f"All {kind.kind}s")
    async def everything(limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kind, limit=limit, after=after)

    @get(f"{path}/{{name:str}}", opt=needs(one("get", kind)), summary=f"One {kind.kind}")
    async def single(name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kind, "", name))

    @delete(
        f"{path}/{{name:str}}",
        status_code=204,
        opt=needs(one("delete", kind)),
        summary=f"Delete a {kind.kind}",
    )
    async def remove(request: Asked, name: FromPath[str]) -> None:
        await admission.writes_as(request.user).delete(kind, "", name)

    return [everything, single, remove]


def _of(
    kind: Kind[Any], admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    in_namespace = f"/v1/namespaces/{{namespace:str}}/{kind.plural}"

    @get(
        f"/v1/{kind.plural}",
        opt=needs(many("list", kind)),
        summary=f"{kind.kind}s of all namespaces",
    )
    async def everywhere(limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kind, limit=limit, after=after)

    @get(in_namespace, opt=needs(many("list", kind)), summary=f"{kind.kind}s of a namespace")
    async def here(namespace: FromPath[str], limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kind, namespace, limit=limit, after=after)

    @get(f"{in_namespace}/{{name:str}}", opt=needs(one("get", kind)), summary=f"One {kind.kind}")
    async def maker(namespace: FromPath[str], name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kind, namespace, name))

    @delete(
        f"{in_namespace}/{{name:str}}",
        status_code=204,
        opt=needs(one("delete", kind)),
        summary=f"Delete a {kind.kind} and its child objects",
    )
    async def remove(request: Asked, namespace: FromPath[str], name: FromPath[str]) -> None:
        writer = admission.writes_as(request.user)
        await writer.delete(kind, namespace, name, propagation="Background")

    @get(
        f"{in_namespace}/{{name:str}}/events",
        opt=needs(one("get", kind), many("list", kinds.EVENTS)),
        summary=f"Kubernetes' Events about a {kind.kind}",
    )
    async def events(namespace: FromPath[str], name: FromPath[str]) -> Items:
        uid = kinds.metadata_of(await cluster.get(kind, namespace, name)).uid
        listing: Any = await cluster.list(kinds.EVENTS, namespace)
        about = [
            item
            for item in listing.items
            if decoding.decode(_ABOUT, item).involved_object.uid == uid
        ]
        return Items([msgspec.Raw(item) for item in about], listing.resource_version)

    return [everywhere, here, maker, remove, events]
