"""The REST API for programs and ``strom``: jobs, queues, manifests, commands, explanations.

Errors are problem+json (RFC 9457) with every violation. Objects are Kubernetes' own JSON.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Litestar, Response, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.types import ControllerRouterHandler

from stromboli.admission import problems, query_parameters
from stromboli.admission.auth import authentication
from stromboli.admission.rest import authorization, bulk, cross_site, openapi
from stromboli.admission.rest.authorization import many, needs, one
from stromboli.admission.rest.creation import Asked, Document, Key, ObjectCreator
from stromboli.admission.rest.pagination import Continue, Items, Limit, list_page
from stromboli.admission.rest.routes import (
    accounting,
    forecasts,
    history,
    jobs,
    logs,
    nodes,
    pods,
    watches,
    what_ifs,
    workloads,
)
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.review.submitted_objects import Applied
from stromboli.admission.settings import AdmissionSettings
from stromboli.shared import errors
from stromboli.shared.api import kinds, scheduling_view
from stromboli.shared.api.views.system_health import SystemHealth
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import http, runtime
from stromboli.shared.token_buckets import TokenBuckets

BODY_LIMIT_BYTES = 3 * 1024 * 1024
"""The webhooks' limit: twice etcd's limit of an object."""
BULK_LIMIT_BYTES = 256 * 1024 * 1024
"""Ten thousand objects of 25 kB; the body is streamed, not held in memory."""
BULK = (
    "Each object is validated and written separately: the response has a result for every line, "
    "with every violation and its path. Send an interrupted request again as it is: existing "
    "objects are unchanged, and with an Idempotency-Key generated names are the same."
)


class Objects(msgspec.Struct, frozen=True):
    """Manifests to create or change, in order."""

    objects: list[Document]


class Me(msgspec.Struct, frozen=True):
    """The user of a request, as recorded on the objects that the user submits. ``name`` is empty on
    a server without accounts, which records no user."""

    name: str
    groups: tuple[str, ...] = ()


class PodSessionServer(msgspec.Struct, frozen=True):
    """The server for sessions in pods (exec, port-forward). ``url``: a URL with the paths of an API
    server; if empty, clients use the API server itself with the user's own kubeconfig."""

    url: str


class SchedulingInput(msgspec.Struct, frozen=True, rename="camel"):
    """Manifests reduced to scheduling fields, and objects that cannot be decoded."""

    items: list[dict[str, Any]]
    unread: list[str]


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """All routes below ``/v1``."""

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
        summary="Show what apply would store; writes nothing",
    )
    async def check(request: Asked, data: JSONBody[Objects]) -> list[Applied]:
        return await admission.check(data.objects, request.user)

    @post(
        "/v1/bulk",
        status_code=200,
        opt=authorization.OF_OBJECTS | cross_site.JSON_LINES,
        request_max_body_size=BULK_LIMIT_BYTES,
        summary="Create or change thousands of objects independently",
        description="The body is one JSON object per line (application/x-ndjson). " + BULK,
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
        summary="The cluster as the scheduler reads it",
    )
    async def scheduling_input() -> SchedulingInput:
        manifests, unread = [], []
        for kind in scheduling_view.SCHEDULING_KINDS:
            for raw in await _all_of(cluster, kind):
                try:
                    manifests.append(scheduling_view.reduce_manifest(kind, raw))
                except msgspec.DecodeError as error:
                    unread.append(f"{kind.kind} {kinds.metadata_of(raw).key}: {error}")
        return SchedulingInput(manifests, unread)

    @get(
        "/v1/health",
        opt=needs(many("list", kinds.NODES), many("list", kinds.JOBS), many("list", kinds.PODS)),
        summary="The services as the log shows them: leaders, newest records, lag, dead letters",
    )
    async def health() -> SystemHealth:
        if admission.log_status is None:
            raise errors.UnavailableError("system health", "this server does not read the log yet")
        return msgspec.structs.replace(await admission.log_status(), sessions=admission.sessions)

    @get("/v1/me", opt=authorization.OF_OBJECTS, summary="The user of this request")
    async def me(request: Asked) -> Me:
        if isinstance(request.user, authentication.LocalPrincipal):
            return Me("")
        return Me(request.user.name, tuple(request.user.groups))

    @get(
        "/v1/pod-sessions",
        opt=authorization.OF_OBJECTS,
        summary="The server for commands in pods and connections to their ports",
    )
    async def pod_sessions() -> PodSessionServer:
        return PodSessionServer(admission.pod_sessions_url)

    return [
        health,
        me,
        pod_sessions,
        apply,
        check,
        submit_in_bulk,
        *jobs.routes(admission, cluster, creator),
        create_queue,
        queues,
        queue,
        delete_queue,
        pod_groups,
        pod_group,
        scheduling_input,
        logs.route(cluster),
        *pods.routes(cluster),
        *workloads.routes(admission, cluster),
        *nodes.routes(admission, cluster),
        *watches.routes(admission, cluster),
        *history.routes(admission, cluster),
        *forecasts.routes(admission),
        *what_ifs.routes(admission, cluster),
        *accounting.routes(lambda: admission.history),
    ]


def app(
    handlers: list[ControllerRouterHandler],
    guard: authorization.Guard = authorization.allow_local,
    hosts: Sequence[str] = (),
) -> Litestar:
    """The application with problem+json errors and the OpenAPI page at ``/schema``. ``guard``
    authenticates clients and checks the rights of routes; ``hosts``: see ``cross_site``.
    """
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
    """The REST application. Without accounts, it serves the holder of ``token`` or, without a
    token, every client. With accounts it serves no metrics, which are for the operator.
    """
    own = http.health_routes(healths) if authenticator is None else http.probe_routes(healths)
    guard = guard_of(settings, authenticator, token)
    return app([*own, *routes(admission, cluster)], guard, hosts)


def guard_of(
    settings: AdmissionSettings, authenticator: authentication.Authenticator | None, token: str = ""
) -> authorization.Guard:
    """The guard that ``rest_application`` describes."""
    if authenticator is None:
        return authorization.require_token(token) if token else authorization.allow_local
    limits = TokenBuckets(settings.requests_per_second, settings.request_burst)
    return authorization.require_rights(authenticator, settings.rest_audiences, limits)


def application_for_openapi() -> Litestar:
    """An application without a backend, from which the OpenAPI description is generated."""
    no_cluster: Any = None
    admission = AdmissionService(AdmissionSettings(), no_cluster, runtime.utc_now)
    return app(routes(admission, no_cluster))


async def _all_of(cluster: cluster_port.Cluster, kind: kinds.Kind[Any]) -> tuple[bytes, ...]:
    """All objects of a kind; none of an optional kind that the API server does not serve."""
    try:
        return (await cluster.list(kind)).items
    except errors.NotFoundError:
        if kind in kinds.OPTIONAL:
            return ()
        raise
