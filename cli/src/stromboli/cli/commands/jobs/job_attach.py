"""``strom job attach`` and ``detach``: debug tools beside a running job.

A debug tool is a notebook, TensorBoard, an editor or a terminal. The commands change an annotation
of the Job; the controller creates the pod, its Service and its secret token, and deletes them with
the job.
"""

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stromboli.cli import options
from stromboli.cli.errors import CommandError, TimedOutError
from stromboli.cli.render import output, pod_status
from stromboli.client import phases
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.jobspec import debug_tools

if TYPE_CHECKING:
    from stromboli.cli.client import Client

POLL_EVERY_S = 0.5
CANNOT_START = ("StartError", "ContainerCannotRun")
"""Reasons of containers whose program could not be started; Docker reports the second."""


class ToolName(StrEnum):
    """The available tools."""

    JUPYTER = "jupyter"
    TENSORBOARD = "tensorboard"
    CODE_SERVER = "code-server"
    TERMINAL = "terminal"


Tool = Annotated[ToolName, typer.Option("--tool", "-t", help="The tool.")]


def attach(
    name: options.JobName,
    tool: Tool,
    task: Annotated[
        str,
        typer.Option(
            "--task",
            metavar="NAME",
            help="The task whose node and volumes the tool uses. [default: the first]",
        ),
    ] = "",
    image: Annotated[
        str,
        typer.Option(
            "--image", "-i", help="An image that contains the tool. [default: the public one]"
        ),
    ] = "",
    cpu: Annotated[
        str,
        typer.Option(
            "--cpu", metavar="CPU", help="CPUs that the tool requests. [default: by tool]"
        ),
    ] = "",
    memory: Annotated[
        str,
        typer.Option(
            "--memory", metavar="SIZE", help="Memory that the tool requests. [default: by tool]"
        ),
    ] = "",
    idle: Annotated[
        str,
        typer.Option(
            "--idle",
            metavar="TIME",
            help="End the tool after this time without use. [default: 1h]",
        ),
    ] = "",
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long to wait until the tool is ready.")
    ] = "5m",
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Start a debug tool beside a job.

    The tool runs on a node of the job with the volumes of the job. It is removed with the job, by
    strom job detach, when it is idle, and after 12 hours.
    """
    request = debug_tools.DebugToolRequest(
        tool=tool.value, task=task, image=image, cpu=cpu, memory=memory, idle=idle
    )
    timeout_s = options.duration_s(timeout, "--timeout") or 0.0
    with options.client(server) as client:
        job = client.decode(kinds.JOBS, client.job(namespace, name))
        if phases.phase_of(job) in phases.ENDS:
            raise CommandError(
                f"job {namespace}/{name}",
                f"it is {phases.phase_of(job)}, and debug tools need a running job",
                "submit it again",
            )
        _update_tools(client, job, with_tool(debug_tools.requested_tools(job), request))
        pod = _wait_until_ready(client, namespace, name, request, timeout_s)
    output.show_lines(access_instructions(namespace, name, request.tool, pod.spec.node_name))


def detach(
    name: options.JobName,
    tool: Annotated[
        ToolName | None, typer.Option("--tool", "-t", help="The tool. [default: all]")
    ] = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Remove debug tools from a job."""
    with options.client(server) as client:
        job = client.decode(kinds.JOBS, client.job(namespace, name))
        there = debug_tools.requested_tools(job)
        left = without_tool(there, tool and tool.value)
        gone = [each.tool for each in there if each not in left]
        if not gone:
            beside = ", ".join(each.tool for each in there) or "none"
            raise CommandError(
                f"job {namespace}/{name}",
                f"it has no {tool.value if tool else 'debug tool'}",
                f"debug tools of the job: {beside}",
            )
        _update_tools(client, job, left)
    output.show_lines([f"{output.title(kinds.JOBS, name)} detach requested: {', '.join(gone)}"])


def with_tool(
    there: tuple[debug_tools.DebugToolRequest, ...], request: debug_tools.DebugToolRequest
) -> tuple[debug_tools.DebugToolRequest, ...]:
    """The requested tools with this one, which replaces a request for the same tool."""
    return (*(each for each in there if each.tool != request.tool), request)


def without_tool(
    there: tuple[debug_tools.DebugToolRequest, ...], tool: str | None
) -> tuple[debug_tools.DebugToolRequest, ...]:
    """The requested tools without this one; none if ``tool`` is None."""
    return tuple(each for each in there if tool is not None and each.tool != tool)


def access_instructions(namespace: str, job: str, tool: str, node: str) -> list[str]:
    """Lines with the commands that connect to a ready tool and stop it."""
    tool_spec, which = debug_tools.TOOLS[tool], f"{job} -n {namespace} --tool {tool}"
    lines = [
        f"{tool} of {namespace}/{job} is ready on {node}.",
        f"  connect    strom job port-forward {which}",
        f"             then open http://127.0.0.1:{tool_spec.port}",
    ]
    if tool_spec.user:
        lines.append(f"  user       {tool_spec.user}")
    if tool_spec.asks:
        lines.append(f"  token      strom job exec {which} -- printenv {debug_tools.TOKEN}")
    return [*lines, f"  stop       strom job detach {which}"]


def _update_tools(
    client: "Client", job: batch.Job, wanted: tuple[debug_tools.DebugToolRequest, ...]
) -> None:
    """Write the requested tools. The resource version detects concurrent changes."""
    metadata: dict[str, Any] = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "uid": job.metadata.uid,
        "resourceVersion": job.metadata.resource_version,
        "annotations": {keys.TOOLS: debug_tools.encode_annotation(wanted)},
    }
    document = {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": metadata,
    }
    client.apply([document])


def _wait_until_ready(
    client: "Client",
    namespace: str,
    name: str,
    request: debug_tools.DebugToolRequest,
    timeout_s: float,
) -> pod_status.Pod:
    """The tool's pod once it is ready. Raises TimedOutError with the state of the pod, and
    CommandError if it can never become ready."""
    deadline = time.monotonic() + timeout_s
    detail = ""
    while True:
        state = ""
        for raw in client.tools(namespace, name):
            pod = pod_status.decode(raw)
            if pod.metadata.label(keys.TOOL) != request.tool or pod.metadata.deletion_timestamp:
                continue
            if _is_ready(pod):
                return pod
            state = tool_state(pod)
            if cannot_start(pod):
                raise CommandError(
                    f"job {namespace}/{name}",
                    f"{request.tool} cannot start: {state}",
                    "install it in the image, or choose another one with --image; remove the tool: "
                    f"strom job detach {name} -n {namespace} --tool {request.tool}",
                )
        state = state or _absent_state(client.decode(kinds.JOBS, client.job(namespace, name)))
        if state != detail:
            output.show_note(f"{request.tool}: {state}")
            detail = state
        if time.monotonic() >= deadline:
            raise TimedOutError(
                f"job {namespace}/{name}",
                f"{request.tool} is not ready after {timeout_s:g} s: {state}",
                f"see why: strom job describe {name} -n {namespace}; "
                "it starts when its pod can run",
            )
        time.sleep(POLL_EVERY_S)


def _absent_state(job: batch.Job) -> str:
    """The state of a tool without a pod, with the reason."""
    if phases.phase_of(job) != "Running":
        return "no pod of the job runs yet"
    hold_reason = job.metadata.annotation(keys.HELD)
    return f"its pod: {hold_reason}" if hold_reason else "its pod is not created yet"


def tool_state(pod: pod_status.Pod) -> str:
    """The state of a tool's pod, and its container's message if it could not start."""
    messages = [
        detail.message.strip()
        for one in pod.status.container_statuses
        for detail in (one.state.terminated, one.last_state.terminated, one.state.waiting)
        if detail is not None and detail.message
    ]
    return ": ".join((f"its pod is {pod_status.status(pod)}", *messages[:1]))


def cannot_start(pod: pod_status.Pod) -> bool:
    """Whether a container's program does not exist or cannot be executed. Restarts do not help, but
    ``restartPolicy`` repeats them without end."""
    return any(
        detail is not None and detail.reason in CANNOT_START
        for one in pod.status.container_statuses
        for detail in (one.state.terminated, one.last_state.terminated)
    )


def _is_ready(pod: pod_status.Pod) -> bool:
    conditions = [one for one in pod.status.conditions if one.type == "Ready"]
    is_ready = all(one.status == "True" for one in conditions)
    return pod.status.phase == "Running" and is_ready
