"""REST for programs and ``strom``: jobs, queues, manifests, commands, explanations.

Errors are problem+json (RFC 9457) with every violation. Objects are Kubernetes' own JSON.
"""

from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, delete, get, post
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.types import ControllerRouterHandler

from stromboli.admission import explanations, logs, rest_pods, rest_watch
from stromboli.admission.door import Applied, Door, RefusedError
from stromboli.shared import errors, keys
from stromboli.shared.admission.policies import ACTIONS
from stromboli.shared.api import kinds, seen
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages.admission import Violation

USER = "rest"
"""Who reviews say it was: REST on loopback knows no accounts."""
BODY_LIMIT_BYTES = 3 * 1024 * 1024
"""As the webhooks' limit: twice what etcd takes."""
Document = dict[str, Any]


class Objects(msgspec.Struct, frozen=True):
    """Manifests to be created or changed, in order."""

    objects: list[Document]


class Seen(msgspec.Struct, frozen=True, rename="camel"):
    """Manifests with nothing but what scheduling looks at, and what cannot be read."""

    items: list[dict[str, Any]]
    unread: list[str]


class Items(msgspec.Struct, frozen=True, rename="camel"):
    """A collection as of a version."""

    items: list[msgspec.Raw]
    resource_version: str


class CommandRequest(msgspec.Struct, frozen=True):
    """What to do with a job."""

    action: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """RFC 9457."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    violations: tuple[Violation, ...] = ()


def problem(
    status: HTTPStatus, detail: str, violations: tuple[Violation, ...] = ()
) -> Response[Problem]:
    """A problem+json response."""
    body = Problem(title=status.phrase, status=status.value, detail=detail, violations=violations)
    return Response(body, status_code=status.value, media_type="application/problem+json")


def _of_refusal(_: Request[Any, Any, Any], error: RefusedError) -> Response[Problem]:
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), error.violations)


_STATUS: tuple[tuple[type[errors.OutsideError], HTTPStatus], ...] = (
    (errors.NotFoundError, HTTPStatus.NOT_FOUND),
    (errors.ConflictError, HTTPStatus.CONFLICT),
    (errors.InvalidError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.ForbiddenError, HTTPStatus.FORBIDDEN),
    (errors.TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.UnsupportedError, HTTPStatus.NOT_IMPLEMENTED),
    (errors.TransientError, HTTPStatus.SERVICE_UNAVAILABLE),
)


def _of_outside(_: Request[Any, Any, Any], error: errors.OutsideError) -> Response[Problem]:
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return problem(status, str(error))
    return problem(HTTPStatus.BAD_GATEWAY, str(error))


def _of_http(_: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    return problem(HTTPStatus(error.status_code), error.detail)


def routes(door: Door, cluster: cluster_port.Cluster) -> list[ControllerRouterHandler]:
    """All of ``/v1``."""

    async def create(kind: Kind[Any], namespace: str, document: Document) -> Response[msgspec.Raw]:
        named = {"apiVersion": kind.api_version, "kind": kind.kind, **document}
        metadata = dict(named.get("metadata") or {})
        if namespace and metadata.setdefault("namespace", namespace) != namespace:
            refusal = Violation(
                path="metadata.namespace",
                reason=f"{metadata['namespace']!r} is not the namespace asked for",
                expected=repr(namespace),
            )
            raise RefusedError((refusal,))
        named["metadata"] = metadata
        if (named["apiVersion"], named["kind"]) != (kind.api_version, kind.kind):
            refusal = Violation(
                path="kind",
                reason=f"{named['apiVersion']} {named['kind']} cannot be created here",
                expected=f"{kind.api_version} {kind.kind}",
            )
            raise RefusedError((refusal,))
        if name := metadata.get("name"):
            try:
                await cluster.get(kind, namespace, name)
            except errors.NotFoundError:
                pass
            else:
                what = f"{kind.kind} {namespace}/{name}" if namespace else f"{kind.kind} {name}"
                raise errors.AlreadyExistsError(what, "exists already; delete it or apply a change")
        (applied,) = await door.submit([named], USER)
        return Response(applied.object, status_code=201)

    async def listed(kind: Kind[Any], namespace: str = "", **labels: str) -> Items:
        listing = await cluster.list(kind, namespace, labels or None)
        return Items([msgspec.Raw(item) for item in listing.items], listing.resource_version)

    @post("/v1/apply", status_code=200, summary="Create or change objects, all or none")
    async def apply(data: JSONBody[Objects]) -> list[Applied]:
        return await door.submit(data.objects, USER)

    @post("/v1/check", status_code=200, summary="What apply would make of objects; writes nothing")
    async def check(data: JSONBody[Objects]) -> list[Applied]:
        return await door.check(data.objects, USER)

    @post("/v1/namespaces/{namespace:str}/jobs", summary="Create a job")
    async def create_job(
        namespace: FromPath[str], data: JSONBody[Document]
    ) -> Response[msgspec.Raw]:
        return await create(kinds.JOBS, namespace, data)

    @get("/v1/jobs", summary="Jobs of all namespaces")
    async def all_jobs() -> Items:
        return await listed(kinds.JOBS)

    @get("/v1/namespaces/{namespace:str}/jobs", summary="Jobs of a namespace")
    async def jobs(namespace: FromPath[str]) -> Items:
        return await listed(kinds.JOBS, namespace)

    @get("/v1/namespaces/{namespace:str}/jobs/{name:str}", summary="One job")
    async def job(namespace: FromPath[str], name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kinds.JOBS, namespace, name))

    @delete(
        "/v1/namespaces/{namespace:str}/jobs/{name:str}",
        status_code=204,
        summary="Delete a job and all that is its own",
    )
    async def delete_job(namespace: FromPath[str], name: FromPath[str]) -> None:
        await cluster.delete(kinds.JOBS, namespace, name, propagation="Background")

    @get("/v1/namespaces/{namespace:str}/jobs/{name:str}/pods", summary="A job's pods")
    async def job_pods(namespace: FromPath[str], name: FromPath[str]) -> Items:
        await cluster.get(kinds.JOBS, namespace, name)
        return await listed(kinds.PODS, namespace, **{keys.JOB_NAME: name})

    @get(
        "/v1/namespaces/{namespace:str}/jobs/{name:str}/explanation",
        summary="Why a job waits, and what is in front of it",
    )
    async def explanation(
        namespace: FromPath[str], name: FromPath[str]
    ) -> explanations.Explanation:
        return explanations.of(
            door, kinds.JOBS.decode(await cluster.get(kinds.JOBS, namespace, name))
        )

    @post(
        "/v1/namespaces/{namespace:str}/jobs/{name:str}/commands",
        status_code=202,
        summary="Ask for an action on a job",
    )
    async def command(
        namespace: FromPath[str], name: FromPath[str], data: JSONBody[CommandRequest]
    ) -> Response[msgspec.Raw]:
        if data.action not in ACTIONS:
            refusal = Violation(
                path="action",
                reason=f"{data.action!r} is not an action",
                expected=f"one of {', '.join(ACTIONS)}",
            )
            raise RefusedError((refusal,))
        target = kinds.metadata_of(await cluster.get(kinds.JOBS, namespace, name))
        reference = {
            "apiVersion": kinds.JOBS.api_version,
            "kind": "Job",
            "name": name,
            "uid": target.uid,
            "controller": True,
        }
        document = {
            "apiVersion": kinds.COMMANDS.api_version,
            "kind": "Command",
            "metadata": {
                "generateName": f"{name}-{data.action.lower()}-",
                "namespace": namespace,
                "ownerReferences": [reference],
            },
            "action": data.action,
            "target": reference,
        }
        stored = await cluster.create(kinds.COMMANDS, namespace, msgspec.json.encode(document))
        return Response(msgspec.Raw(stored), status_code=202)

    @post("/v1/queues", summary="Create a queue")
    async def create_queue(data: JSONBody[Document]) -> Response[msgspec.Raw]:
        return await create(kinds.QUEUES, "", data)

    @get("/v1/queues", summary="All queues")
    async def queues() -> Items:
        return await listed(kinds.QUEUES)

    @get("/v1/queues/{name:str}", summary="One queue")
    async def queue(name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kinds.QUEUES, "", name))

    @delete("/v1/queues/{name:str}", status_code=204, summary="Delete a queue")
    async def delete_queue(name: FromPath[str]) -> None:
        await door.delete_queue(name, USER)

    @get("/v1/nodes", summary="All nodes")
    async def nodes() -> Items:
        return await listed(kinds.NODES)

    @get("/v1/podgroups", summary="PodGroups of all namespaces, or of one")
    async def pod_groups(namespace: FromQuery[str] = "") -> Items:
        return await listed(kinds.POD_GROUPS, namespace)

    @get("/v1/scheduling", summary="What the scheduler sees of the cluster")
    async def scheduling_input() -> Seen:
        found, unread = [], []
        for kind in seen.KINDS:
            for raw in (await cluster.list(kind)).items:
                try:
                    found.append(seen.reduced(kind, raw))
                except msgspec.DecodeError as error:
                    unread.append(f"{kind.kind} {kinds.metadata_of(raw).key}: {error}")
        return Seen(found, unread)

    return [
        apply,
        check,
        create_job,
        all_jobs,
        jobs,
        job,
        delete_job,
        job_pods,
        explanation,
        command,
        create_queue,
        queues,
        queue,
        delete_queue,
        nodes,
        pod_groups,
        scheduling_input,
        logs.route(cluster),
        *rest_pods.routes(cluster),
        *rest_watch.routes(door, cluster),
    ]


def app(handlers: list[ControllerRouterHandler]) -> Litestar:
    """The application with problem+json errors and the OpenAPI page at ``/schema``."""
    return Litestar(
        handlers,
        exception_handlers={
            RefusedError: _of_refusal,
            errors.OutsideError: _of_outside,
            HTTPException: _of_http,
        },
        openapi_config=OpenAPIConfig(title="Stromboli", version="v1"),
        request_max_body_size=BODY_LIMIT_BYTES,
        logging_config=None,
    )
