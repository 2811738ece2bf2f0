"""REST routes of watches: server-sent events (WHATWG HTML, section 9.2) of lists and explanations.

A stream begins with all existing objects as ``added``, followed by ``synced``. Events have an id
that a client sends as ``Last-Event-ID`` to resume; browsers do so by themselves. The id is the
version of an object, or identifies an explanation.
"""

import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import FromPath, HeaderParameter, QueryParameter
from litestar.response import Stream
from litestar.types import ControllerRouterHandler

from stromboli.admission import idempotency
from stromboli.admission.auth import authentication
from stromboli.admission.rest import explanations
from stromboli.admission.rest.authorization import many, needs, one
from stromboli.admission.rest.creation import Asked
from stromboli.admission.rest.routes import workloads
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.review.watch_cache import ObjectSelector, WatchEvent
from stromboli.shared import errors, keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port

EVENT_STREAM = "text/event-stream"
MAX_STREAM_S = 24 * 3600
GONE = ".gone"
"""Suffix of the id of an explanation's last event."""
READ_JOB = one("get", kinds.JOBS)
LISTED: tuple[cluster_port.AnyKind, ...] = (
    kinds.JOBS,
    kinds.PODS,
    kinds.POD_GROUPS,
    *workloads.KINDS,
)
"""Namespaced kinds whose lists can be watched."""
LastSeen = Annotated[
    str | None,
    HeaderParameter(name="Last-Event-ID", description="Resume after this event."),
]
LastsS = Annotated[
    float | None,
    QueryParameter(
        name="timeoutSeconds", gt=0, le=MAX_STREAM_S, description="End the stream after this time."
    ),
]


def encode_event(event: WatchEvent) -> bytes:
    """An event as bytes. ``alive`` has an id and no data: clients note the id and report no
    event."""
    mark = event.mark or (str(event.version) if event.version else "")
    lines = [f"id: {mark}".encode()] if mark else []
    if event.type == "alive":
        lines.append(b": alive")
    else:
        # In JSON, a line break occurs only between tokens, where a blank is equivalent.
        data = event.object.replace(b"\n", b" ").replace(b"\r", b" ") or b"{}"
        lines += (f"event: {event.type}".encode(), b"data: " + data)
    return b"\n".join((*lines, b"", b""))


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """All routes below ``/v1/watch``."""

    async def watched(
        request: Asked,
        kind: cluster_port.AnyKind,
        chosen: ObjectSelector,
        last_event_id: str | None,
        lasts_s: float | None,
    ) -> Stream:
        lasts_s = _at_most(request, lasts_s)
        user = request.user.scope
        follow = admission.watch_caches.follow(
            kind, chosen, _version(last_event_id), lasts_s=lasts_s, user=user
        )
        return await _streamed(follow)

    def lists(kind: cluster_port.AnyKind) -> list[ControllerRouterHandler]:
        @get(
            f"/v1/watch/{kind.plural}",
            media_type=EVENT_STREAM,
            opt=needs(many("list", kind), many("watch", kind)),
            summary=f"Changes of {kind.kind}s of all namespaces, as events",
        )
        async def everywhere(
            request: Asked, last_seen: LastSeen = None, lasts_s: LastsS = None
        ) -> Stream:
            return await watched(request, kind, ObjectSelector(), last_seen, lasts_s)

        @get(
            f"/v1/watch/namespaces/{{namespace:str}}/{kind.plural}",
            media_type=EVENT_STREAM,
            opt=needs(many("list", kind), many("watch", kind)),
            summary=f"Changes of a namespace's {kind.kind}s, as events",
        )
        async def here(
            request: Asked,
            namespace: FromPath[str],
            last_seen: LastSeen = None,
            lasts_s: LastsS = None,
        ) -> Stream:
            chosen = ObjectSelector(namespace=namespace)
            return await watched(request, kind, chosen, last_seen, lasts_s)

        return [everywhere, here]

    @get(
        "/v1/watch/namespaces/{namespace:str}/jobs/{name:str}",
        media_type=EVENT_STREAM,
        opt=needs(READ_JOB, one("watch", kinds.JOBS)),
        summary="Changes of a job, which may not exist yet, as events",
    )
    async def job(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        last_seen: LastSeen = None,
        lasts_s: LastsS = None,
    ) -> Stream:
        chosen = ObjectSelector(namespace=namespace, name=name)
        return await watched(request, kinds.JOBS, chosen, last_seen, lasts_s)

    @get(
        "/v1/watch/namespaces/{namespace:str}/jobs/{name:str}/pods",
        media_type=EVENT_STREAM,
        opt=needs(READ_JOB, many("list", kinds.PODS), many("watch", kinds.PODS)),
        summary="Changes of a job's pods, as events",
    )
    async def pods(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        last_seen: LastSeen = None,
        lasts_s: LastsS = None,
    ) -> Stream:
        await cluster.get(kinds.JOBS, namespace, name)
        chosen = ObjectSelector(namespace=namespace, labels={keys.JOB_NAME: name})
        return await watched(request, kinds.PODS, chosen, last_seen, lasts_s)

    @get(
        "/v1/watch/namespaces/{namespace:str}/jobs/{name:str}/explanation",
        media_type=EVENT_STREAM,
        opt=needs(READ_JOB, one("watch", kinds.JOBS)),
        summary="Why a job is pending, sent on every change; ends when the job is deleted",
    )
    async def explanation(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        last_seen: LastSeen = None,
        lasts_s: LastsS = None,
    ) -> Stream:
        last_event_id = last_seen or ""
        if not _is_of_one(last_event_id):
            await cluster.get(kinds.JOBS, namespace, name)
        lasts_s = _at_most(request, lasts_s)
        return await _streamed(
            _explanation_events(admission, namespace, name, last_event_id, lasts_s, request.user)
        )

    @get(
        "/v1/watch/queues",
        media_type=EVENT_STREAM,
        opt=needs(many("list", kinds.QUEUES), many("watch", kinds.QUEUES)),
        summary="Changes of queues, as events",
    )
    async def queues(request: Asked, last_seen: LastSeen = None, lasts_s: LastsS = None) -> Stream:
        return await watched(request, kinds.QUEUES, ObjectSelector(), last_seen, lasts_s)

    followed = [route for kind in LISTED for route in lists(kind)]
    return [*followed, job, pods, explanation, queues]


def _version(last_event_id: str | None) -> int:
    """The version in an event id; 0 without an id. An id of another format counts as a very old
    version: the reader gets ``reset``."""
    if not last_event_id:
        return 0
    return int(last_event_id) if last_event_id.isdecimal() and len(last_event_id) < 20 else -1


def _at_most(request: Asked, lasts_s: float | None) -> float:
    return min(lasts_s or MAX_STREAM_S, request.user.streams_last_s)


def _is_of_one(last_event_id: str) -> bool:
    """Whether a reader has received events of a job, but not its deletion."""
    return last_event_id.find(".") > 0 and not last_event_id.endswith(GONE)


async def _explanation_events(
    admission: AdmissionService,
    namespace: str,
    name: str,
    last_event_id: str,
    lasts_s: float,
    principal: authentication.Principal,
) -> AsyncGenerator[WatchEvent, None]:
    """The events of one explanation. An id consists of a job's uid and the digest of the
    explanation. After a reconnect, the explanation is sent again only if it has changed. If the
    name belongs to another job by then, the deletion of the first job is sent, and the stream ends.
    """
    chosen = ObjectSelector(namespace=namespace, name=name)
    is_again = _is_of_one(last_event_id)
    uid, sent_mark = (last_event_id.partition(".")[0], last_event_id) if is_again else ("", "")
    body = msgspec.json.encode(explanations.of_deleted_job(f"{namespace}/{name}", uid))
    job: Any = None
    follow = admission.watch_caches.follow(
        kinds.JOBS,
        chosen,
        lasts_s=lasts_s,
        explanations_changed=admission.watch_caches.explanations_changed,
        user=principal.scope,
    )
    async for event in follow:
        if event.type == "reset":
            job = None  # it is read again, or was deleted
            continue
        if event.object:
            job = kinds.JOBS.decode(event.object)
            uid = uid or job.metadata.uid
        if uid and (job is None or event.type == "deleted" or job.metadata.uid != uid):
            yield WatchEvent("deleted", object=body, mark=uid + GONE)
            return
        if job is not None:
            body = msgspec.json.encode(await explanations.of(admission, job, principal))
            mark = f"{uid}.{idempotency.digest(body)}"
            if mark != sent_mark:
                yield WatchEvent("modified" if sent_mark else "added", object=body, mark=mark)
                sent_mark = mark
        if event.type == "synced" and is_again:
            is_again = False
            yield WatchEvent("alive")
        elif event.type in ("synced", "alive"):
            yield WatchEvent(event.type)


async def _streamed(follow: AsyncGenerator[WatchEvent, None]) -> Stream:
    """A response of events. An error before the first event becomes a problem response; a later one
    ends the stream, and clients reconnect.
    """
    first = await anext(follow, None)

    async def chunks() -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(follow):
            if first is not None:
                yield encode_event(first)
            with contextlib.suppress(errors.ExternalError):
                async for event in follow:
                    yield encode_event(event)

    # Proxies such as nginx would buffer events otherwise.
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return Stream(chunks(), media_type=EVENT_STREAM, headers=headers)
