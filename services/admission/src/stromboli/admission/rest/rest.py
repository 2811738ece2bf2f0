"""REST for programs and ``strom``: jobs, queues, manifests, commands, explanations.

Errors are problem+json (RFC 9457) with every violation. Objects are Kubernetes' own JSON.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Litestar, Response, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.types import ControllerRouterHandler

from stromboli.admission import problems, queries
from stromboli.admission.auth import principal
from stromboli.admission.rest import (
    browsers,
    bulk,
    history_routes,
    job_routes,
    logs,
    node_routes,
    openapi,
    pod_routes,
    rights,
    watch_routes,
    workload_routes,
)
from stromboli.admission.rest.creating import Asked, Creator, Document, Key
from stromboli.admission.rest.listing import Continue, Items, Limit, listed
from stromboli.admission.rest.rights import many, needs, one
from stromboli.admission.review.incoming import Applied
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.shared import errors
from stromboli.shared.api import kinds, seen
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import http, runtime

BODY_LIMIT_BYTES = 3 * 1024 * 1024
"""As the webhooks' limit: twice what etcd takes."""
BULK_LIMIT_BYTES = 256 * 1024 * 1024
"""Ten thousand objects of 25 kB; none of it is held."""
BULK = (
    "Each is judged and written by itself: the answer has a result for every line, with every "
    "mistake and its path. A bulk that broke off is sent again as it is: what stands is unchanged, "
    "and with an Idempotency-Key generated names are the same again."
)


class Objects(msgspec.Struct, frozen=True):
    """Manifests to be created or changed, in order."""

    objects: list[Document]


class Seen(msgspec.Struct, frozen=True, rename="camel"):
    """Manifests with nothing but what scheduling looks at, and what cannot be read."""

    items: list[dict[str, Any]]
    unread: list[str]


def routes(door: AdmissionService, cluster: cluster_port.Cluster) -> list[ControllerRouterHandler]:
    """All of ``/v1``."""

    creator = Creator(door)

    @post(
        "/v1/apply",
        status_code=200,
        opt=rights.OF_OBJECTS,
        summary="Create or change objects, all or none",
    )
    async def apply(request: Asked, data: JSONBody[Objects]) -> list[Applied]:
        return await door.submit(data.objects, request.user)

    @post(
        "/v1/check",
        status_code=200,
        opt=rights.OF_OBJECTS,
        summary="What apply would make of objects; writes nothing",
    )
    async def check(request: Asked, data: JSONBody[Objects]) -> list[Applied]:
        return await door.check(data.objects, request.user)

    @post(
        "/v1/bulk",
        status_code=200,
        opt=rights.OF_OBJECTS | browsers.JSON_LINES,
        request_max_body_size=BULK_LIMIT_BYTES,
        summary="Create or change thousands of objects, each by itself",
        description="The body is one JSON object a line (application/x-ndjson). " + BULK,
    )
    async def submit_in_bulk(request: Asked, key: Key = None) -> bulk.BulkAnswer:
        return await bulk.submit(door, request.stream(), key or "", request.user)

    @post("/v1/queues", opt=needs(many("create", kinds.QUEUES)), summary="Create a queue")
    async def create_queue(
        request: Asked, data: JSONBody[Document], key: Key = None
    ) -> Response[msgspec.Raw]:
        return await creator.create(request, key, kinds.QUEUES, "", data)

    @get("/v1/queues", opt=needs(many("list", kinds.QUEUES)), summary="All queues")
    async def queues(limit: Limit = None, after: Continue = None) -> Items:
        return await listed(cluster, kinds.QUEUES, limit=limit, after=after)

    @get("/v1/queues/{name:str}", opt=needs(one("get", kinds.QUEUES)), summary="One queue")
    async def queue(name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kinds.QUEUES, "", name))

    @delete(
        "/v1/queues/{name:str}",
        status_code=204,
        opt=needs(one("delete", kinds.QUEUES)),
        summary="Delete a queue",
    )
    async def delete_queue(request: Asked, name: FromPath[str]) -> None:
        await door.delete_queue(name, request.user.name)

    @get("/v1/nodes", opt=needs(many("list", kinds.NODES)), summary="All nodes")
    async def nodes(limit: Limit = None, after: Continue = None) -> Items:
        return await listed(cluster, kinds.NODES, limit=limit, after=after)

    @get(
        "/v1/podgroups",
        opt=needs(rights.many_by_query("list", kinds.POD_GROUPS)),
        summary="PodGroups of all namespaces, or of one",
    )
    async def pod_groups(
        namespace: FromQuery[str] = "", limit: Limit = None, after: Continue = None
    ) -> Items:
        return await listed(cluster, kinds.POD_GROUPS, namespace, limit=limit, after=after)

    @get(
        "/v1/namespaces/{namespace:str}/podgroups/{name:str}",
        opt=needs(one("get", kinds.POD_GROUPS)),
        summary="One PodGroup",
    )
    async def pod_group(namespace: FromPath[str], name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kinds.POD_GROUPS, namespace, name))

    @get(
        "/v1/scheduling",
        opt=needs(*(many("list", kind) for kind in seen.KINDS)),
        summary="What the scheduler sees of the cluster",
    )
    async def scheduling_input() -> Seen:
        found, unread = [], []
        for kind in seen.KINDS:
            for raw in await _all_of(cluster, kind):
                try:
                    found.append(seen.reduced(kind, raw))
                except msgspec.DecodeError as error:
                    unread.append(f"{kind.kind} {kinds.metadata_of(raw).key}: {error}")
        return Seen(found, unread)

    return [
        apply,
        check,
        submit_in_bulk,
        *job_routes.routes(door, cluster, creator),
        create_queue,
        queues,
        queue,
        delete_queue,
        nodes,
        pod_groups,
        pod_group,
        scheduling_input,
        logs.route(cluster),
        *pod_routes.routes(cluster),
        *workload_routes.routes(cluster),
        *node_routes.routes(door, cluster),
        *watch_routes.routes(door, cluster),
        *history_routes.routes(door, cluster),
    ]


def app(
    handlers: list[ControllerRouterHandler],
    guard: rights.Guard = rights.of_anyone,
    hosts: Sequence[str] = (),
) -> Litestar:
    """The application with problem+json errors and the OpenAPI page at ``/schema``. ``guard`` says
    who asks, and asks for what the routes need; ``hosts``: see ``browsers``."""
    return Litestar(
        handlers,
        guards=[browsers.guard(hosts), guard, queries.guard],
        exception_handlers=problems.HANDLERS,
        openapi_config=openapi.CONFIG,
        request_max_body_size=BODY_LIMIT_BYTES,
        logging_config=None,
    )


def front(
    door: AdmissionService,
    cluster: cluster_port.Cluster,
    settings: AdmissionSettings,
    healths: Sequence[runtime.Health],
    askers: principal.Authenticator | None,
    *,
    token: str = "",
    hosts: Sequence[str] = (),
) -> Litestar:
    """All that REST serves: for accounts, or else for the holder of ``token``; without one for
    every client that reaches it. Accounts find no metrics here, which are the operator's."""
    if askers is None:
        guard = rights.of_token(token) if token else rights.of_anyone
        return app([*http.health_routes(healths), *routes(door, cluster)], guard, hosts)
    guard = rights.of_accounts(askers, settings.rest_audiences)
    return app([*http.probe_routes(healths), *routes(door, cluster)], guard, hosts)


def described() -> Litestar:
    """The application that is only asked for its description: there is nothing behind it."""
    nobody: Any = None
    return app(routes(AdmissionService(AdmissionSettings(), nobody, runtime.utc_now), nobody))


async def _all_of(cluster: cluster_port.Cluster, kind: kinds.Kind[Any]) -> tuple[bytes, ...]:
    """All objects of a kind; none of one that the API server need not serve and does not."""
    try:
        return (await cluster.list(kind)).items
    except errors.NotFoundError:
        if kind in kinds.OPTIONAL:
            return ()
        raise
