"""Requests to the REST API as ``Call`` values: method, path, body and decoder. Sends nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from stromboli.client import errors
from stromboli.client.responses import (
    Applied,
    BulkResult,
    Explanation,
    Me,
    Page,
    Problem,
    SchedulingInput,
)
from stromboli.shared import decoding
from stromboli.shared.api import batch, core, kinds, meta, scheduling
from stromboli.shared.api.kinds import Kind
from stromboli.shared.api.views.system_health import SystemHealth
from stromboli.shared.api.views.task_history import TaskHistory
from stromboli.shared.messages.node_topology import TopologyObserved

T = TypeVar("T")
Document = Mapping[str, Any]
Submitted = Document | meta.Object
"""A manifest or a Struct of a supported kind."""
JSON = "application/json"
PROBLEM = "application/problem+json"
PAGE_ITEMS = 500
"""Objects per page: some megabytes, and milliseconds to decode."""


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request. ``what`` names the object in errors; ``read`` decodes a successful response and
    raises msgspec.DecodeError. ``is_collection``: a 404 cannot mean that an object does not exist;
    ``is_creation``: a 404 means that the namespace does not exist. ``objects``: how many objects
    the server writes before it responds. ``work_s``: seconds that the server may compute."""

    method: str
    path: str
    what: str
    read: Callable[[bytes], T]
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes = b""
    is_collection: bool = False
    is_creation: bool = False
    objects: int = 1
    work_s: float = 0.0

    def keyed(self, idempotency_key: str) -> "Call[T]":
        """The call with an idempotency key: the server executes it once, and answers a repetition
        with the same response."""
        headers = {**self.headers, "idempotency-key": idempotency_key}
        return msgspec.structs.replace(self, headers=headers)


def answer(call: Call[T], status: int, content_type: str, body: bytes) -> T:
    """Decode the server's response. Raises ResponseError, UnreadableError."""
    kind = content_type.partition(";")[0].strip()
    try:
        if 200 <= status < 300 and (kind == JSON or not body):
            return call.read(body)
        if kind == PROBLEM and not (status == 404 and call.is_collection):
            raise _rejection(call, status, decoding.from_json(body, Problem))
    except msgspec.DecodeError as error:
        raise errors.UnreadableError(call.what, str(error)) from None
    summary = f"{call.method} {call.path} returned status {status} with {kind or 'no content'}"
    raise errors.UnreadableError(call.what, summary)


def _rejection(call: Call[Any], status: int, problem: Problem) -> errors.ResponseError:
    kind = errors.BY_STATUS.get(status, errors.ResponseError)
    reason = problem.detail or problem.title or f"status {status}"
    if reason.lower().startswith(f"{call.what}: ".lower()):  # the server names the object as well
        reason = reason[len(call.what) + 2 :]
    return kind(call.what, reason, status, problem.violations, is_creation=call.is_creation)


# --- any object ----------------------------------------------------------------------------


def document(submitted: Submitted, namespace: str) -> Document:
    """An object as a manifest; a Struct without a namespace gets ``namespace``. Raises TypeError
    for a Struct of an unsupported kind."""
    if not isinstance(submitted, meta.Object):
        return submitted
    kind = _KINDS.get(type(submitted))
    if kind is None:
        known = ", ".join(sorted(each.__name__ for each in _KINDS))
        raise TypeError(f"{type(submitted).__name__} is not a supported kind: use {known}")
    fields = decoding.from_json(msgspec.json.encode(submitted), dict[str, Any])
    place = {"namespace": namespace} if kind.namespaced else {}
    metadata = {**place, **fields.get("metadata", {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, **fields, "metadata": metadata}


_KINDS: Mapping[type[meta.Object], Kind[Any]] = {
    kind.struct: kind for kind in kinds.SUBMITTED if kind.struct is not meta.Object
}


def _named(documents: Sequence[Document]) -> str:
    """A text that names the objects: kind and name of a single one, else ``manifests``."""
    metadata = documents[0].get("metadata") if len(documents) == 1 else None
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        return "manifests"
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    return f"{str(documents[0].get('kind', 'object')).lower()} {name}"


def apply(objects: Sequence[Submitted], namespace: str = "default") -> Call[list[Applied]]:
    """Create or change objects, all or none. Structs without a namespace get ``namespace``."""
    documents = [document(each, namespace) for each in objects]
    return Call(
        method="POST",
        path="/v1/apply",
        what=_named(documents),
        read=decoding.decoder_of(list[Applied]).decode,
        body=msgspec.json.encode({"objects": documents}),
        is_creation=True,
        objects=len(documents),
    )


def check(objects: Sequence[Submitted], namespace: str = "default") -> Call[list[Applied]]:
    """The objects as ``apply`` would store them; writes nothing."""
    return msgspec.structs.replace(apply(objects, namespace), path="/v1/check")


def bulk(documents: Iterable[Document]) -> Call[BulkResult]:
    """Create or change thousands of objects independently; each has apiVersion and kind."""
    body = msgspec.json.Encoder().encode_lines(documents)
    return Call(
        method="POST",
        path="/v1/bulk",
        what="objects",
        read=decoding.decoder_of(BulkResult).decode,
        headers={"content-type": "application/x-ndjson"},
        body=body,
        is_creation=True,
        objects=body.count(b"\n"),
    )


# --- jobs ----------------------------------------------------------------------------------


def create_job(namespace: str, job: batch.Job | Document) -> Call[bytes]:
    """Create a job; the response is the job as stored. Raises InvalidArgumentError for an argument
    that is not a job."""
    return Call(
        method="POST",
        path=_jobs(namespace),
        what=f"job {namespace}/{_job_name(job)}",
        read=bytes,
        body=msgspec.json.encode(job),
        is_creation=True,
    )


def _job_name(job: object) -> str:
    if isinstance(job, batch.Job):
        return job.metadata.name
    if not isinstance(job, Mapping):
        reason = f"a job is a batch.Job or a dictionary, not {type(job).__name__}"
        raise errors.InvalidArgumentError("job", reason)
    metadata = job.get("metadata")
    if not isinstance(metadata, Mapping):
        reason = "it has no metadata: a job is {'metadata': {'name': ...}, 'spec': {...}}"
        raise errors.InvalidArgumentError("job", reason)
    return str(metadata.get("name", ""))


def jobs(namespace: str = "", *, limit: int = 0, continue_: str = "") -> Call[Page]:
    """List the jobs of a namespace, or all."""
    path = _jobs(namespace) if namespace else "/v1/jobs"
    return list_page(path, "jobs", limit, continue_)


def job(namespace: str, name: str) -> Call[bytes]:
    """Read one job."""
    return _job_call("GET", namespace, name, "", bytes)


def delete_job(namespace: str, name: str) -> Call[None]:
    """Delete a job and its child objects."""
    return _job_call("DELETE", namespace, name, "", no_content)


def job_pods(namespace: str, name: str) -> Call[Page]:
    """List a job's pods."""
    return _job_call("GET", namespace, name, "/pods", PAGE)


def job_events(namespace: str, name: str) -> Call[Page]:
    """List Kubernetes' Events about a job, its PodGroup and its pods."""
    return _job_call("GET", namespace, name, "/events", PAGE)


def tasks(namespace: str, name: str, uid: str = "") -> Call[TaskHistory]:
    """Every attempt of a job's tasks, also of a deleted job; ``uid`` names an earlier job."""
    call = _job_call("GET", namespace, name, "/tasks", decoding.decoder_of(TaskHistory).decode)
    return msgspec.structs.replace(call, query={"history": "true"} | ({"uid": uid} if uid else {}))


def job_tools(namespace: str, name: str) -> Call[Page]:
    """List the pods of a job's debug tools."""
    return _job_call("GET", namespace, name, "/tools", PAGE)


def explanation(namespace: str, name: str) -> Call[Explanation]:
    """Read why a job is pending."""
    return _job_call(
        "GET", namespace, name, "/explanation", decoding.decoder_of(Explanation).decode
    )


def command(namespace: str, name: str, action: str) -> Call[bytes]:
    """Execute an action on a job, such as ``AbortJob``; the response is the Command."""
    body = msgspec.json.encode({"action": action})
    return _job_call("POST", namespace, name, "/commands", bytes, body)


def scale(
    namespace: str, name: str, replicas: int, task: str = "", min_available: int | None = None
) -> Call[Applied]:
    """Scale a task of a job. ``task`` may be omitted if the job has only one; without
    ``min_available`` a gang that needs all its pods continues to need all."""
    requested: dict[str, object] = {"replicas": replicas}
    requested |= {"task": task} if task else {}
    requested |= {} if min_available is None else {"minAvailable": min_available}
    read = decoding.decoder_of(Applied).decode
    return _job_call("POST", namespace, name, "/scale", read, msgspec.json.encode(requested))


# --- queues and the cluster ----------------------------------------------------------------


def create_queue(queue: scheduling.Queue | Document) -> Call[bytes]:
    """Create a queue; the response is the queue as stored."""
    manifest = document(queue, "")
    return Call(
        method="POST",
        path="/v1/queues",
        what=f"queue {manifest['metadata']['name']}",
        read=bytes,
        body=msgspec.json.encode(manifest),
        is_creation=True,
    )


def queues(*, limit: int = 0, continue_: str = "") -> Call[Page]:
    """List all queues."""
    return list_page("/v1/queues", "queues", limit, continue_)


def queue(name: str) -> Call[bytes]:
    """Read one queue."""
    return Call(method="GET", path=_queue(name), what=f"queue {name}", read=bytes)


def delete_queue(name: str) -> Call[None]:
    """Delete a queue."""
    return Call(method="DELETE", path=_queue(name), what=f"queue {name}", read=no_content)


def nodes(*, limit: int = 0, continue_: str = "") -> Call[Page]:
    """List all nodes."""
    return list_page("/v1/nodes", "nodes", limit, continue_)


def node(name: str) -> Call[bytes]:
    """Read one node."""
    return Call(method="GET", path=_node(name), what=f"node {name}", read=bytes)


def node_lease(name: str) -> Call[bytes]:
    """Read the lease that a node's kubelet renews."""
    path = f"{_node(name)}/lease"
    return Call(method="GET", path=path, what=f"lease of node {name}", read=bytes)


def node_leases() -> Call[Page]:
    """List the leases that the kubelets of all nodes renew."""
    return _list_call("/v1/nodeleases", "leases", {})


def system_health() -> Call[SystemHealth]:
    """Read the state of the services."""
    return Call(
        method="GET",
        path="/v1/health",
        what="system health",
        read=decoding.decoder_of(SystemHealth).decode,
    )


def hyper_nodes(*, limit: int = 0, continue_: str = "") -> Call[Page]:
    """List all HyperNodes."""
    return list_page("/v1/hypernodes", "HyperNodes", limit, continue_)


def node_topology(name: str) -> Call[TopologyObserved]:
    """Read the reported hardware of a node, and its allocations."""
    return Call(
        method="GET",
        path=f"{_node(name)}/topology",
        what=f"node {name}",
        read=decoding.decoder_of(TopologyObserved).decode,
    )


def pod_groups(namespace: str = "") -> Call[Page]:
    """List the PodGroups of a namespace, or all."""
    return _namespaced_path("/v1/podgroups", "pod groups", namespace)


def pod_group(namespace: str, name: str) -> Call[bytes]:
    """Read one PodGroup."""
    return Call(
        method="GET",
        path=f"/v1/namespaces/{path_segment(namespace)}/podgroups/{path_segment(name)}",
        what=f"podgroup {namespace}/{name}",
        read=bytes,
    )


def pods(namespace: str = "") -> Call[Page]:
    """List the pods of a namespace, or all."""
    return _namespaced_path("/v1/pods", "pods", namespace)


def pod(namespace: str, name: str) -> Call[bytes]:
    """Read one pod."""
    return Call(
        method="GET", path=_pod(namespace, name), what=f"pod {namespace}/{name}", read=bytes
    )


def pod_events(namespace: str, name: str) -> Call[Page]:
    """List Kubernetes' Events about a pod."""
    path = f"{_pod(namespace, name)}/events"
    return Call(method="GET", path=path, what=f"pod {namespace}/{name}", read=PAGE)


def me() -> Call[Me]:
    """Read the user of this client, as it is recorded on submitted objects."""
    read = decoding.decoder_of(Me).decode
    return Call(method="GET", path="/v1/me", what="the user", read=read)


def scheduling_input() -> Call[SchedulingInput]:
    """Read the objects of the cluster that the scheduler reads."""
    return Call(
        method="GET",
        path="/v1/scheduling",
        what="the cluster",
        read=decoding.decoder_of(SchedulingInput).decode,
        is_collection=True,
    )


def readiness() -> Call[dict[str, dict[str, str]]]:
    """Read the readiness: service -> fact -> its problem (with status 503) or warning."""
    return Call(
        method="GET",
        path="/readyz",
        what="the server",
        read=decoding.decoder_of(dict[str, dict[str, str]]).decode,
    )


# --- watching: the response is a stream of events; ``read`` decodes the object of each -------


def watch_jobs(namespace: str = "") -> Call[batch.Job]:
    """Watch the jobs of a namespace, or all."""
    return watch_call(watch_path(kinds.JOBS, namespace), "jobs", kinds.JOBS.decode)


def watch_job(namespace: str, name: str) -> Call[batch.Job]:
    """Watch a job, which may not exist yet."""
    return _watch_of_job(namespace, name, "", kinds.JOBS.decode)


def watch_job_pods(namespace: str, name: str) -> Call[core.Pod]:
    """Watch a job's pods."""
    return _watch_of_job(namespace, name, "/pods", kinds.PODS.decode)


def watch_explanation(namespace: str, name: str) -> Call[Explanation]:
    """Watch why a job is pending: the explanation after every change."""
    read = decoding.decoder_of(Explanation).decode
    return _watch_of_job(namespace, name, "/explanation", read)


def watch_pods(namespace: str = "") -> Call[core.Pod]:
    """Watch the pods of a namespace, or all."""
    return watch_call(watch_path(kinds.PODS, namespace), "pods", kinds.PODS.decode)


def watch_pod_groups(namespace: str = "") -> Call[scheduling.PodGroup]:
    """Watch the PodGroups of a namespace, or all."""
    path = watch_path(kinds.POD_GROUPS, namespace)
    return watch_call(path, "pod groups", kinds.POD_GROUPS.decode)


def watch_queues() -> Call[scheduling.Queue]:
    """Watch queues."""
    return watch_call("/v1/watch/queues", "queues", kinds.QUEUES.decode)


def watch_path(kind: Kind[Any], namespace: str) -> str:
    """The path of a watch of a kind, in a namespace or in all."""
    inside = f"namespaces/{path_segment(namespace)}/" if namespace else ""
    return f"/v1/watch/{inside}{kind.plural}"


def watch_call(path: str, what: str, read: Callable[[bytes], T]) -> Call[T]:
    """A watch whose objects are decoded by ``read``."""
    return Call(method="GET", path=path, what=what, read=read, is_collection=True)


def _watch_of_job(namespace: str, name: str, below: str, read: Callable[[bytes], T]) -> Call[T]:
    path = f"/v1/watch{_jobs(namespace)[3:]}/{path_segment(name)}{below}"
    return Call(method="GET", path=path, what=f"job {namespace}/{name}", read=read)


# --- parts ---------------------------------------------------------------------------------

PAGE = decoding.decoder_of(Page).decode


def no_content(_: bytes) -> None:
    """Decode an empty response."""
    return


def list_page(path: str, what: str, limit: int, continue_: str) -> Call[Page]:
    """A page of a collection; all of it without a limit."""
    query = {"limit": str(limit)} if limit else {}
    return _list_call(path, what, query | ({"continue": continue_} if continue_ else {}))


def _namespaced_path(path: str, what: str, namespace: str) -> Call[Page]:
    return _list_call(path, what, {"namespace": namespace} if namespace else {})


def _list_call(path: str, what: str, query: dict[str, str]) -> Call[Page]:
    return Call(method="GET", path=path, what=what, read=PAGE, query=query, is_collection=True)


def _job_call(
    method: str,
    namespace: str,
    name: str,
    below: str,
    read: Callable[[bytes], T],
    body: bytes = b"",
) -> Call[T]:
    return Call(
        method=method,
        path=f"{_jobs(namespace)}/{path_segment(name)}{below}",
        what=f"job {namespace}/{name}",
        read=read,
        body=body,
    )


def _jobs(namespace: str) -> str:
    return f"/v1/namespaces/{path_segment(namespace)}/jobs"


def _node(name: str) -> str:
    return f"/v1/nodes/{path_segment(name)}"


def _pod(namespace: str, name: str) -> str:
    return f"/v1/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}"


def _queue(name: str) -> str:
    return f"/v1/queues/{path_segment(name)}"


def path_segment(name: str) -> str:
    """A name, escaped for a path. An empty name gives an empty segment; such a path is never
    sent."""
    return quote(name, safe="")
