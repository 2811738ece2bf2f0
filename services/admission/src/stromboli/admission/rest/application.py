"""REST for programs and ``strom``: jobs, queues, manifests, commands, explanations.

Errors are problem+json (RFC 9457) with every violation. Objects are Kubernetes' own JSON.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Litestar, Response, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.types import ControllerRouterHandler

from stromboli.admission import problems
from stromboli.admission.auth import authentication
from stromboli.admission.core import rate_limit
from stromboli.admission.rest import (
    authorization,
    bulk,
    cross_site,
    history_routes,
    job_routes,
    log_routes,
    node_routes,
    openapi,
    pod_routes,
    query_parameters,
    watch_routes,
    workload_routes,
)
from stromboli.admission.rest.authorization import many, needs, one
from stromboli.admission.rest.creation import Asked, Document, Key, ObjectCreator
from stromboli.admission.rest.pagination import Continue, Items, Limit, list_page
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.review.submitted_objects import Applied
from stromboli.admission.settings import AdmissionSettings
from stromboli.shared import errors
from stromboli.shared.api import kinds, scheduling_view
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


class SchedulingInput(msgspec.Struct, frozen=True, rename="camel"):
    """Manifests with nothing but what scheduling looks at, and what cannot be read."""

    items: list[dict[str, Any]]
    unread: list[str]


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """All of ``/v1``."""

    creator = ObjectCreator(admission)

    @post(
        "/v1/apply",
        status_code=200,
        opt=authorization.OF_OBJECTS,
        summary="Create or change objects, all or none",
    )
    async def apply(request: Asked, data: JSONBody[Objects]) -> list[Applied]:
        return await admission.submit(data.objects, request.user)

    @post(
        "/v1/check",
        status_code=200,
        opt=authorization.OF_OBJECTS,
        summary="What apply would make of objects; writes nothing",
    )
    async def check(request: Asked, data: JSONBody[Objects]) -> list[Applied]:
        return await admission.check(data.objects, request.user)

    @post(
        "/v1/bulk",
        status_code=200,
        opt=authorization.OF_OBJECTS | cross_site.JSON_LINES,
        request_max_body_size=BULK_LIMIT_BYTES,
        summary="Create or change thousands of objects, each by itself",
        description="The body is one JSON object a line (application/x-ndjson). " + BULK,
    )
    async def submit_in_bulk(request: Asked, key: Key = None) -> bulk.BulkResult:
        return await bulk.submit(admission, request.stream(), key or "", request.user)

    @post("/v1/queues", opt=needs(many("create", kinds.QUEUES)), summary="Create a queue")
    async def create_queue(
        request: Asked, data: JSONBody[Document], key: Key = None
    ) -> Response[msgspec.Raw]:
        return await creator.create(request, key, kinds.QUEUES, "", data)

    @get("/v1/queues", opt=needs(many("list", kinds.QUEUES)), summary="All queues")
    async def queues(limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kinds.QUEUES, limit=limit, after=after)

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
        await admission.delete_queue(name, request.user)

    @get("/v1/nodes", opt=needs(many("list", kinds.NODES)), summary="All nodes")
    async def nodes(limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kinds.NODES, limit=limit, after=after)

    @get(
        "/v1/podgroups",
        opt=needs(authorization.many_by_query("list", kinds.POD_GROUPS)),
        summary="PodGroups of all namespaces, or of one",
    )
    async def pod_groups(
        namespace: FromQuery[str] = "", limit: Limit = None, after: Continue = None
    ) -> Items:
        return await list_page(cluster, kinds.POD_GROUPS, namespace, limit=limit, after=after)

    @get(
        "/v1/namespaces/{namespace:str}/podgroups/{name:str}",
        opt=needs(one("get", kinds.POD_GROUPS)),
        summary="One PodGroup",
    )
    async def pod_group(namespace: FromPath[str], name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kinds.POD_GROUPS, namespace, name))

    @get(
        "/v1/scheduling",
        opt=needs(*(many("list", kind) for kind in scheduling_view.SCHEDULING_KINDS)),
        summary="What the scheduler sees of the cluster",
    )
    async def scheduling_input() -> SchedulingInput:
        found, unread = [], []
        for kind in scheduling_view.SCHEDULING_KINDS:
            for raw in await _all_of(cluster, kind):
                try:
                    found.append(scheduling_view.reduce_manifest(kind, raw))
                except msgspec.DecodeError as error:
                    unread.append(f"{kind.kind} {kinds.metadata_of(raw).key}: {error}")
        return SchedulingInput(found, unread)

    return [
        apply,
        check,
        submit_in_bulk,
        *job_routes.routes(admission, cluster, creator),
        create_queue,
        queues,
        queue,
        delete_queue,
        nodes,
        pod_groups,
        pod_group,
        scheduling_input,
        log_routes.route(cluster),
        *pod_routes.routes(cluster),
        *workload_routes.routes(admission, cluster),
        *node_routes.routes(admission, cluster),
        *watch_routes.routes(admission, cluster),
        *history_routes.routes(admission, cluster),
    ]


def app(
    handlers: list[ControllerRouterHandler],
    guard: authorization.Guard = authorization.allow_local,
    hosts: Sequence[str] = (),
) -> Litestar:
    """The application with problem+json errors and the OpenAPI page at ``/schema``. ``guard`` says
    who asks, and asks for what the routes need; ``hosts``: see ``browsers``."""
    return Litestar(
        handlers,
        guards=[cross_site.guard(hosts), guard, query_parameters.guard],
        exception_handlers=problems.HANDLERS,
        openapi_config=openapi.CONFIG,
        request_max_body_size=BODY_LIMIT_BYTES,
        logging_config=None,
    )


def rest_application(
    admission: AdmissionService,
    cluster: cluster_port.Cluster,
    settings: AdmissionSettings,
    healths: Sequence[runtime.Health],
    authenticator: authentication.Authenticator | None,
    *,
    token: str = "",
    hosts: Sequence[str] = (),
) -> Litestar:
    """All that REST serves: for accounts, or else for the holder of ``token``; without one for
    every client that reaches it. Accounts find no metrics here, which are the operator's."""
    if authenticator is None:
        guard = authorization.require_token(token) if token else authorization.allow_local
        return app([*http.health_routes(healths), *routes(admission, cluster)], guard, hosts)
    limits = rate_limit.TokenBuckets(settings.requests_per_second, settings.request_burst)
    guard = authorization.require_rights(authenticator, settings.rest_audiences, limits)
    return app([*http.probe_routes(healths), *routes(admission, cluster)], guard, hosts)


def application_for_openapi() -> Litestar:
    """The application that is only asked for its description: there is nothing behind it."""
    no_cluster: Any = None
    admission = AdmissionService(AdmissionSettings(), no_cluster, runtime.utc_now)
    return app(routes(admission, no_cluster))


async def _all_of(cluster: cluster_port.Cluster, kind: kinds.Kind[Any]) -> tuple[bytes, ...]:
    """All objects of a kind; none of one that the API server need not serve and does not."""
    try:
        return (await cluster.list(kind)).items
    except errors.NotFoundError:
        if kind in kinds.OPTIONAL:
            return ()
        raise
