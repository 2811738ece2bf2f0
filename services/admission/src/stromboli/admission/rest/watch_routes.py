"""REST for watching: server-sent events (WHATWG HTML, section 9.2) of lists and of reasons.

A stream begins with everything that is, as ``added``, then says ``synced``. Events have an id that
a client sends back as ``Last-Event-ID`` to go on from there; browsers do so by themselves. It is
the version of an object, or says whose explanation it was and which.
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
from stromboli.admission.rest import explanations, workload_routes
from stromboli.admission.rest.authorization import many, needs, one
from stromboli.admission.rest.creation import Asked
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.review.watch_cache import ObjectSelector, WatchEvent
from stromboli.shared import errors, keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port

EVENT_STREAM = "text/event-stream"
MAX_STREAM_S = 24 * 3600
GONE = ".gone"
"""Ends the id of an explanation's last event."""
LAST_EVENT_ID = one("get", kinds.JOBS)
LISTED: tuple[cluster_port.AnyKind, ...] = (
    kinds.JOBS,
    kinds.PODS,
    kinds.POD_GROUPS,
    *workload_routes.KINDS,
)
"""Kinds with namespaces whose lists can be followed."""
LastSeen = Annotated[
    str | None,
    HeaderParameter(name="Last-Event-ID", description="Resume behind this event."),
]
LastsS = Annotated[
    float | None,
    QueryParameter(
        name="timeoutSeconds", gt=0, le=MAX_STREAM_S, description="End the stream after so long."
    ),
]


def encode_event(told: WatchEvent) -> bytes:
    """An event as bytes. ``alive`` carries an id and no data, so that no client sees it."""
    mark = told.mark or (str(told.version) if told.version else "")
    lines = [f"id: {mark}".encode()] if mark else []
    if told.type == "alive":
        lines.append(b": alive")
    else:
        # A line break can only stand between the tokens of JSON, where a blank does as well.
        data = told.object.replace(b"\n", b" ").replace(b"\r", b" ") or b"{}"
        lines += (f"event: {told.type}".encode(), b"data: " + data)
    return b"\n".join((*lines, b"", b""))


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """All of ``/v1/watch``."""

    async def watched(
        request: Asked,
        kind: cluster_port.AnyKind,
        chosen: ObjectSelector,
        seen: str | None,
        lasts_s: float | None,
    ) -> Stream:
        lasts_s = _at_most(request, lasts_s)
        user = request.user.scope
        follow = admission.watch_caches.follow(
            kind, chosen, _version(seen), lasts_s=lasts_s, user=user
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
        opt=needs(LAST_EVENT_ID, one("watch", kinds.JOBS)),
        summary="Changes of a job that is or may come, as events",
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
        opt=needs(LAST_EVENT_ID, many("list", kinds.PODS), many("watch", kinds.PODS)),
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
        opt=needs(LAST_EVENT_ID, one("watch", kinds.JOBS)),
        summary="Why a job waits, again whenever that changes; ends when the job is gone",
    )
    async def explanation(
        request: Asked,
        namespace: FromPath[str],
        name: FromPath[str],
        last_seen: LastSeen = None,
        lasts_s: LastsS = None,
    ) -> Stream:
        seen = last_seen or ""
        if not _is_of_one(seen):
            await cluster.get(kinds.JOBS, namespace, name)
        lasts_s = _at_most(request, lasts_s)
        return await _streamed(
            _explanation_events(admission, namespace, name, seen, lasts_s, request.user)
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


def _version(seen: str | None) -> int:
    """The version that an id stands for, 0 without one. Behind an id that is none of ours nothing
    is known, so it stands for one of long ago: the reader is told to begin again."""
    if not seen:
        return 0
    return int(seen) if seen.isdecimal() and len(seen) < 20 else -1


def _at_most(request: Asked, lasts_s: float | None) -> float:
    return min(lasts_s or MAX_STREAM_S, request.user.streams_last_s)


def _is_of_one(seen: str) -> bool:
    """Whether a reader was told of a job, and not yet that it is gone."""
    return seen.find(".") > 0 and not seen.endswith(GONE)


async def _explanation_events(
    admission: AdmissionService,
    namespace: str,
    name: str,
    seen: str,
    lasts_s: float,
    principal: authentication.Principal,
) -> AsyncGenerator[WatchEvent, None]:
    """The state of one explanation. An id is a job's uid and the digest of what was said, so that
    after a break it comes again only if it is another, and of another job not at all: that the one
    asked about is gone is told first."""
    chosen = ObjectSelector(namespace=namespace, name=name)
    is_again = _is_of_one(seen)
    uid, said = (seen.partition(".")[0], seen) if is_again else ("", "")
    body = msgspec.json.encode(explanations.of_deleted_job(f"{namespace}/{name}", uid))
    job: Any = None
    follow = admission.watch_caches.follow(
        kinds.JOBS,
        chosen,
        lasts_s=lasts_s,
        explanations_changed=admission.watch_caches.explanations_changed,
        user=principal.scope,
    )
    async for told in follow:
        if told.type == "reset":
            job = None  # it comes again, or is gone
            continue
        if told.object:
            job = kinds.JOBS.decode(told.object)
            uid = uid or job.metadata.uid
        if uid and (job is None or told.type == "deleted" or job.metadata.uid != uid):
            yield WatchEvent("deleted", object=body, mark=uid + GONE)
            return
        if job is not None:
            body = msgspec.json.encode(await explanations.of(admission, job, principal))
            mark = f"{uid}.{idempotency.digest(body)}"
            if mark != said:
                yield WatchEvent("modified" if said else "added", object=body, mark=mark)
                said = mark
        if told.type == "synced" and is_again:
            is_again = False
            yield WatchEvent("alive")
        elif told.type in ("synced", "alive"):
            yield WatchEvent(told.type)


async def _streamed(follow: AsyncGenerator[WatchEvent, None]) -> Stream:
    """A response of what is told. What goes wrong before the first of it is a problem, not a
    stream; what goes wrong later ends the stream, and clients come back."""
    first = await anext(follow, None)

    async def chunks() -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(follow):
            if first is not None:
                yield encode_event(first)
            with contextlib.suppress(errors.ExternalError):
                async for told in follow:
                    yield encode_event(told)

    # Proxies of the nginx kind would hold events back until they have enough of them.
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return Stream(chunks(), media_type=EVENT_STREAM, headers=headers)
