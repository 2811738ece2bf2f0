"""Debug tools of a running job: a pod for each, with its Service, its Secret and, with a domain, an
Ingress.

The pod runs on a node with a pod of the job, since a volume may be reachable only there. The
controller binds it without the scheduler, and its requests count: a node without enough free
resources rejects the pod, which is created again after ``AGAIN_AFTER``. The pod is deleted when the
job's pods leave its node, when the tool is no longer requested, and with the job; while the tool is
requested, a deleted pod is created again. When a tool ends because it was idle or its time was
over, the request for it is removed from the job. The pod does not count as a pod of the job: its
end is not an event of the job. ``status.controlledResources`` has ``tool-<name>`` from before the
other objects are created (without a value until they exist) until they are deleted: they are in no
topic, so a controller that takes over knows only from the status which tools may have some.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.pods import data_volumes, pods
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import core, kinds
from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec import debug_tools
from stromboli.shared.jobspec.policy_event_names import DEADLINE_EXCEEDED

CONTROLLED = "tool-"
"""Prefix of the keys of debug tools in ``controlledResources``."""
COPIED = (
    "imagePullSecrets",
    "nodeSelector",
    "securityContext",
    "serviceAccountName",
    "tolerations",
    "volumes",
)
"""Fields that a tool's pod copies from its task's template, to run on the same node and read the
same files."""
_LONGEST_LABEL = 63
AGAIN_AFTER = timedelta(seconds=30)
"""Minimum time between the creation of a failed pod and the creation of its replacement."""


def carried_out(
    cache: controller_cache.ControllerCache,
    job: Job,
    own_pods: Callable[[], Sequence[core.Pod]],
    now: datetime,
) -> Iterator[commands.Command]:
    """Create the pods of requested tools if they are missing, delete other tool pods, and remove
    the requests for tools that ended. O(pods) for each tool."""
    wanted = debug_tools.requested_tools(job)
    yield from removals(job, tuple(request.tool for request in wanted))
    for name in debug_tools.TOOLS:
        if name not in {request.tool for request in wanted}:
            yield from _removed(cache, job, name)
    ended = tuple(request for request in wanted if _has_ended(cache, job, request.tool))
    if ended:
        yield from _withdrawn(job, wanted, ended, now)
    for request in wanted:
        if request not in ended and _is_named(job, request):
            yield from _pod(cache, job, request, own_pods(), now)


def due(cache: controller_cache.ControllerCache, job: Job) -> datetime | None:
    """The time at which the next failed pod of a tool is replaced. O(tools)."""
    tool_pods = [_found(cache, job, request.tool) for request in debug_tools.requested_tools(job)]
    times = [
        _again_at(cache, pod) for pod in tool_pods if pod is not None and tasks.has_finished(pod)
    ]
    return min((at for at in times if at is not None), default=None)


def _again_at(cache: controller_cache.ControllerCache, pod: core.Pod) -> datetime | None:
    created = pod.metadata.creation_timestamp
    return None if created is None else cache.api_clock.host_time(created + AGAIN_AFTER)


def _has_ended(cache: controller_cache.ControllerCache, job: Job, tool: str) -> bool:
    """Whether the tool ended because it was idle or its time was over."""
    pod = _found(cache, job, tool)
    if pod is None or cache.is_terminating(pod):
        return False
    return pod.status.phase == "Succeeded" or pod.status.reason == DEADLINE_EXCEEDED


def _withdrawn(
    job: Job,
    wanted: tuple[debug_tools.DebugToolRequest, ...],
    ended: tuple[debug_tools.DebugToolRequest, ...],
    now: datetime,
) -> Iterator[commands.Command]:
    """Remove the requests from the job, unless a user has changed them meanwhile."""
    left = tuple(request for request in wanted if request not in ended)
    path = manifests.annotation_path(keys.TOOLS)
    precondition = manifests.test(path, job.metadata.annotation(keys.TOOLS))
    change = manifests.put(path, debug_tools.encode_annotation(left))
    for request in ended:
        text = f"{request.tool} was idle or its time was over; strom job attach starts it again"
        yield commands.event_about(kinds.JOBS, job, "Normal", "ToolEnded", text, now, recurs=True)
    yield manifests.json_patch(kinds.JOBS, job, precondition, change)


def creations(cache: controller_cache.ControllerCache, job: Job) -> Iterator[commands.Create]:
    """The commands that create the objects, other than pods, of those requested tools that the
    status names."""
    for request in debug_tools.requested_tools(job):
        if _is_named(job, request):
            yield from _objects(cache, job, request)


def stopped(cache: controller_cache.ControllerCache, job: Job) -> Iterator[commands.Delete]:
    """Delete the tools' pods when the job's pods are deleted."""
    for name in debug_tools.TOOLS:
        yield from _removed(cache, job, name)


def removals(job: Job, wanted: Sequence[str]) -> Iterator[commands.Delete]:
    """Delete the other objects of tools that are not requested."""
    for key in sorted(job.status.controlled_resources):
        name = key.removeprefix(CONTROLLED)
        if not key.startswith(CONTROLLED) or name in wanted:
            continue
        for kind in (kinds.INGRESSES, kinds.SERVICES, kinds.SECRETS):
            yield commands.Delete(
                kind=kind,
                namespace=job.metadata.namespace,
                name=debug_tools.object_name(job.metadata.name, name),
                owner_uid=job.metadata.uid,
            )


def controlled(job: Job) -> dict[str, str]:
    """The entries of ``controlledResources`` once the commands of ``creations`` are executed. The
    value is empty for a tool that the status does not name yet."""
    return {
        CONTROLLED + request.tool: request.tool if _is_named(job, request) else ""
        for request in debug_tools.requested_tools(job)
    }


def without(resources: dict[str, str]) -> dict[str, str]:
    """The entries of ``controlledResources`` without the entries of debug tools."""
    return {key: value for key, value in resources.items() if not key.startswith(CONTROLLED)}


def _is_named(job: Job, request: debug_tools.DebugToolRequest) -> bool:
    """Whether the status names the tool, so that its objects may be created."""
    return CONTROLLED + request.tool in job.status.controlled_resources


def host(job: Job, name: str, tool: str, domain: str) -> str:
    """The DNS name of a tool. Each label has at most 63 characters."""
    label = f"{tool}-{name}-{job.metadata.namespace}"
    if len(label) > _LONGEST_LABEL:
        digest = hashlib.sha256(label.encode()).hexdigest()[:8]
        label = f"{label[: _LONGEST_LABEL - 9].rstrip('-')}-{digest}"
    return f"{label}.{domain}"


def _pod(
    cache: controller_cache.ControllerCache,
    job: Job,
    request: debug_tools.DebugToolRequest,
    own_pods: Sequence[core.Pod],
    now: datetime,
) -> Iterator[commands.Command]:
    task = _task(job, request)
    nodes = sorted(
        (manifests.number(pod.metadata.annotation(keys.TASK_INDEX)), pod.spec.node_name)
        for pod in own_pods
        if pod.status.phase == "Running"
        and not cache.is_terminating(pod)
        and tasks.task_of(pod) == task.name
    )
    tool_pod = _found(cache, job, request.tool)
    if tool_pod is not None:
        is_misplaced = tool_pod.spec.node_name not in {node for _, node in nodes}
        is_other = tool_pod.metadata.annotation(keys.TOOL_REQUEST) != _digest(request)
        again_at = _again_at(cache, tool_pod) if tasks.has_finished(tool_pod) else None
        is_due = again_at is not None and again_at <= now
        if (is_misplaced or is_other or is_due) and not cache.is_terminating(tool_pod):
            yield _deletion(tool_pod)
    elif nodes and cache.state(kinds.PODS, _key(job, request.tool)) is None:
        yield _create(job, request, task, nodes[0][1], cache.data_root)


def _create(
    job: Job,
    request: debug_tools.DebugToolRequest,
    task: TaskSpec,
    node: str,
    data_root: str,
) -> commands.Create:
    tool, name = (
        debug_tools.TOOLS[request.tool],
        debug_tools.object_name(job.metadata.name, request.tool),
    )
    template: dict[str, Any] = msgspec.json.decode(task.template.spec) or {}
    first = (template.get("containers") or [{}])[0]
    container: dict[str, Any] = {
        "name": request.tool,
        "image": request.image or tool.image,
        "env": [
            _token(name, variable) for variable in (debug_tools.TOKEN, tool.variable) if variable
        ],
        # No limits: under memory pressure the kubelet first evicts pods that exceed their requests.
        "resources": {
            "requests": {
                "cpu": request.cpu or tool.cpu,
                "memory": request.memory or tool.memory,
            }
        },
        "ports": [{"name": "http", "containerPort": tool.port}],
        "readinessProbe": {"tcpSocket": {"port": tool.port}},
        "volumeMounts": list(first.get("volumeMounts") or ()),
    }
    spec = {key: template[key] for key in COPIED if key in template}
    spec |= {
        "nodeName": node,
        "restartPolicy": "OnFailure",
        "activeDeadlineSeconds": debug_tools.LONGEST_S,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
    }
    pods.mount(spec, job, data_root)
    mounts = container["volumeMounts"]
    folder = mounts[0]["mountPath"] if mounts else "/"
    idle_s = str(debug_tools.idle_s(request))
    container["command"] = [
        word.replace("{folder}", folder).replace("{idle_s}", idle_s) for word in tool.command
    ]
    if tool.idle_variable:
        container["env"].append({"name": tool.idle_variable, "value": idle_s})
    metadata = {
        "name": name,
        "labels": _labels(job, request.tool),
        "annotations": {
            keys.TOOL_REQUEST: _digest(request),
            **data_volumes.annotations(job),
        },
    }
    return commands.Create(
        kind=kinds.PODS,
        namespace=job.metadata.namespace,
        name=name,
        body=manifests.body(kinds.PODS, job, name, metadata=metadata, spec=spec),
        owner_uid=job.metadata.uid,
    )


def _objects(
    cache: controller_cache.ControllerCache, job: Job, request: debug_tools.DebugToolRequest
) -> Iterator[commands.Create]:
    tool, name = (
        debug_tools.TOOLS[request.tool],
        debug_tools.object_name(job.metadata.name, request.tool),
    )
    port = {"name": "http", "port": tool.port, "targetPort": "http"}
    service = {"selector": _labels(job, request.tool), "ports": [port]}
    yield _made(job, kinds.SECRETS, name, "token", type="Opaque")
    yield _made(job, kinds.SERVICES, name, spec=service)
    if cache.tools_domain and tool.asks:
        backend = {"service": {"name": name, "port": {"name": "http"}}}
        path = {"path": "/", "pathType": "Prefix", "backend": backend}
        named = host(job, job.metadata.name, request.tool, cache.tools_domain)
        rule = {"host": named, "http": {"paths": [path]}}
        yield _made(job, kinds.INGRESSES, name, spec={"rules": [rule]})


def _made(
    job: Job, kind: kinds.Kind[Any], name: str, secret: Any = "", **content: Any
) -> commands.Create:
    return commands.Create(
        kind=kind,
        namespace=job.metadata.namespace,
        name=name,
        body=manifests.body(kind, job, name, **content),
        owner_uid=job.metadata.uid,
        secret=secret,
    )


def _removed(
    cache: controller_cache.ControllerCache, job: Job, tool: str
) -> Iterator[commands.Delete]:
    pod = _found(cache, job, tool)
    if pod is not None and not cache.is_terminating(pod):
        yield _deletion(pod)


def _deletion(pod: core.Pod) -> commands.Delete:
    return commands.Delete(
        kind=kinds.PODS,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
    )


def _found(cache: controller_cache.ControllerCache, job: Job, tool: str) -> core.Pod | None:
    """The tool's pod, if it exists and belongs to this job; an unreadable pod is left unchanged."""
    pod = cache.pod(_key(job, tool))
    return pod if pod is not None and manifests.is_owned(pod, job.metadata.uid) else None


def _key(job: Job, tool: str) -> str:
    return f"{job.metadata.namespace}/{debug_tools.object_name(job.metadata.name, tool)}"


def _task(job: Job, request: debug_tools.DebugToolRequest) -> TaskSpec:
    specs = tasks.specs(job)
    return next((task for task in specs if task.name == request.task), specs[0])


def _labels(job: Job, tool: str) -> dict[str, str]:
    return {keys.TOOL: tool, keys.TOOL_OF: job.metadata.name}


def _token(secret: str, variable: str) -> dict[str, Any]:
    source = {"secretKeyRef": {"name": secret, "key": "token"}}
    return {"name": variable, "valueFrom": source}


def _digest(request: debug_tools.DebugToolRequest) -> str:
    return hashlib.sha256(manifests.encode(request)).hexdigest()[:12]
