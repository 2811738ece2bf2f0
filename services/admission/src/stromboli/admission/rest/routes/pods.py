"""REST routes of pods, of jobs and of debug tools, and of a job's Kubernetes Events."""

import re
from typing import Any

import msgspec
from litestar import get
from litestar.params import FromPath, FromQuery
from litestar.types import ControllerRouterHandler

from stromboli.admission.rest import authorization
from stromboli.admission.rest.authorization import many, needs, one
from stromboli.shared import decoding, keys
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job
from stromboli.shared.cluster import port as cluster_port


class AllItems(msgspec.Struct, frozen=True):
    """The response of a list: all objects as JSON."""

    items: list[msgspec.Raw]


class _InvolvedObject(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    involved_object: _InvolvedObject = _InvolvedObject()


_EVENT = decoding.decoder_of(_Event)


def is_about(event: bytes, job: Job) -> bool:
    """Whether an Event is about the job, its PodGroup or one of its pods, including deleted
    ones.
    """
    about = decoding.decode(_EVENT, event).involved_object
    name = job.metadata.name
    if about.kind == kinds.JOBS.kind:
        return about.uid == job.metadata.uid
    if about.kind == kinds.POD_GROUPS.kind:
        return about.name == f"{name}-{job.metadata.uid}"
    tasks = "|".join(re.escape(task.name) for task in job.spec.tasks)
    return (
        about.kind == kinds.PODS.kind
        and re.fullmatch(rf"{re.escape(name)}-(?:{tasks})-\d+", about.name) is not None
    )


def routes(cluster: cluster_port.Cluster) -> list[ControllerRouterHandler]:
    """The REST routes of pods and Events."""

    @get(
        "/v1/pods",
        opt=needs(authorization.many_by_query("list", kinds.PODS)),
        summary="Pods of all namespaces, or of one",
    )
    async def pods(namespace: FromQuery[str] = "") -> AllItems:
        listing = await cluster.list(kinds.PODS, namespace)
        return AllItems([msgspec.Raw(item) for item in listing.items])

    @get(
        "/v1/namespaces/{namespace:str}/jobs/{name:str}/events",
        opt=needs(one("get", kinds.JOBS), many("list", kinds.EVENTS)),
        summary="Kubernetes' Events about a job, its PodGroup and its pods",
    )
    async def events(namespace: FromPath[str], name: FromPath[str]) -> AllItems:
        job = kinds.JOBS.decode(await cluster.get(kinds.JOBS, namespace, name))
        listing: Any = await cluster.list(kinds.EVENTS, namespace)
        return AllItems([msgspec.Raw(item) for item in listing.items if is_about(item, job)])

    @get(
        "/v1/namespaces/{namespace:str}/jobs/{name:str}/tools",
        opt=needs(one("get", kinds.JOBS), many("list", kinds.PODS)),
        summary="The pods of a job's debug tools",
    )
    async def tools(namespace: FromPath[str], name: FromPath[str]) -> AllItems:
        await cluster.get(kinds.JOBS, namespace, name)
        listing = await cluster.list(kinds.PODS, namespace, {keys.TOOL_OF: name})
        return AllItems([msgspec.Raw(item) for item in listing.items])

    @get(
        "/v1/namespaces/{namespace:str}/pods/{name:str}",
        opt=needs(one("get", kinds.PODS)),
        summary="One pod",
    )
    async def pod(namespace: FromPath[str], name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kinds.PODS, namespace, name))

    @get(
        "/v1/namespaces/{namespace:str}/pods/{name:str}/events",
        opt=needs(one("get", kinds.PODS), many("list", kinds.EVENTS)),
        summary="Kubernetes' Events about a pod",
    )
    async def pod_events(namespace: FromPath[str], name: FromPath[str]) -> AllItems:
        uid = kinds.metadata_of(await cluster.get(kinds.PODS, namespace, name)).uid
        listing: Any = await cluster.list(kinds.EVENTS, namespace)
        about = [
            item
            for item in listing.items
            if decoding.decode(_EVENT, item).involved_object.uid == uid
        ]
        return AllItems([msgspec.Raw(item) for item in about])

    return [pods, pod, pod_events, events, tools]
