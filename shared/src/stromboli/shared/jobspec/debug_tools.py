"""Debug tools for a running job: parses the Job's annotation, and defines the known tools. Pure.

``stromboli.sh/tools: '[{"tool": "jupyter", "task": "worker"}]'``. The controller runs each tool in
its own pod, on a node where the job runs, with the job's volumes.
"""

from collections.abc import Iterator, Mapping

import msgspec

from stromboli.shared import decoding, keys
from stromboli.shared.api.batch import Job
from stromboli.shared.formats import durations, units
from stromboli.shared.messages.admission import Violation

PATH = f"metadata.annotations[{keys.TOOLS}]"
TOKEN = "STROM_TOOL_TOKEN"
"""Environment variable of a tool's container with the secret that users must enter."""
USER = "strom"
"""The user name of tools that require one in addition to the token."""
IDLE = "1h"
"""The default time that a tool may be idle."""
LONGEST_S = 12 * 3600
"""Seconds after which a tool ends even if it is in use, since not all tools can detect that they
are idle."""
EXAMPLE = '[{"tool": "jupyter"}]'


class DebugToolRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One requested tool. ``task``: the task whose node and volumes it uses, the first one if
    empty; ``image``: a custom image that contains the tool. ``cpu``, ``memory``: its requests,
    instead of the tool's defaults; ``idle``: the time without use after which it ends (``1h``), if
    the tool can detect that.
    """

    tool: str
    task: str = ""
    image: str = ""
    cpu: str = ""
    memory: str = ""
    idle: str = ""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a tool. ``{folder}`` in its command is the first folder that the job mounts,
    ``{idle_s}`` the seconds of ``idle``.

    ``variable``: a further environment variable in which it expects the token. ``asks``: whether it
    requires users to enter the token; a tool that does not is never exposed outside the cluster.
    ``idle_variable``: an environment variable in which it expects the seconds of ``idle``.
    ``user``: the user name to enter with the token.
    """

    image: str
    port: int
    command: tuple[str, ...]
    memory: str
    cpu: str = "100m"
    variable: str = ""
    asks: bool = True
    idle_variable: str = ""
    user: str = ""


TOOLS: Mapping[str, Tool] = {
    "jupyter": Tool(
        image="quay.io/jupyter/base-notebook:2025-03-14",
        port=8888,
        command=(
            "jupyter",
            "lab",
            "--ip=0.0.0.0",
            "--port=8888",
            "--no-browser",
            "--ServerApp.root_dir={folder}",
            # The server ends once no kernel or terminal is left, so idle ones are ended, too.
            "--ServerApp.shutdown_no_activity_timeout={idle_s}",
            "--MappingKernelManager.cull_idle_timeout={idle_s}",
            "--TerminalManager.cull_inactive_timeout={idle_s}",
        ),
        variable="JUPYTER_TOKEN",
        memory="512Mi",
    ),
    "tensorboard": Tool(
        image="tensorflow/tensorflow:2.18.0",
        port=6006,
        command=("tensorboard", "--bind_all", "--port=6006", "--logdir={folder}"),
        asks=False,
        memory="512Mi",
    ),
    "code-server": Tool(
        image="codercom/code-server:4.98.2",
        port=8080,
        command=("code-server", "--bind-addr=0.0.0.0:8080", "--auth=password", "{folder}"),
        variable="PASSWORD",
        memory="512Mi",
    ),
    "terminal": Tool(
        image="tsl0922/ttyd:1.7.7",
        port=7681,
        command=(
            "ttyd",
            "--port=7681",
            "--writable",
            f"--credential={USER}:$({TOKEN})",
            "--cwd={folder}",
            "--exit-no-conn",
            # bash ends when it is idle for TMOUT seconds, and so does busybox's sh; dash does not.
            "sh",
            "-c",
            "command -v bash >/dev/null && exec bash; exec sh",
        ),
        memory="64Mi",
        idle_variable="TMOUT",
        user=USER,
    ),
}

_REQUESTS_DECODER = decoding.decoder_of(tuple[DebugToolRequest, ...])


def requested_tools(job: Job) -> tuple[DebugToolRequest, ...]:
    """The tools that the job requests; empty if the annotation is invalid (see ``violations``)."""
    if any(violations(job)):
        return ()
    return _read(job)


def violations(job: Job) -> Iterator[Violation]:
    """The violations of the annotation."""
    try:
        debug_tool_requests = _read(job)
    except msgspec.DecodeError as error:
        yield Violation(path=PATH, reason=str(error), expected=f"a list such as {EXAMPLE}")
        return
    tasks = [task.name for task in job.spec.tasks]
    earlier_tools = set()
    for request in debug_tool_requests:
        if request.tool not in TOOLS:
            known = ", ".join(TOOLS)
            yield Violation(
                path=PATH, reason=f"tool {request.tool!r} is unknown", expected=f"one of {known}"
            )
        if request.tool in earlier_tools:
            yield Violation(
                path=PATH, reason=f"tool {request.tool!r} is duplicate", expected="each tool once"
            )
        if request.task and request.task not in tasks:
            yield Violation(
                path=PATH,
                reason=f"there is no task {request.task!r}",
                expected=f"one of {', '.join(tasks)}",
            )
        yield from _invalid_values(request)
        earlier_tools.add(request.tool)


def _invalid_values(request: DebugToolRequest) -> Iterator[Violation]:
    for name, text in (("cpu", request.cpu), ("memory", request.memory)):
        try:
            is_valid = not text or units.quantity(text) > 0
        except ValueError:
            is_valid = False
        if not is_valid:
            reason = f"{name} {text!r} is not a positive quantity"
            yield Violation(path=PATH, reason=reason, expected="a quantity such as 500m or 2Gi")
    try:
        idle_s(request)
    except ValueError as error:
        yield Violation(path=PATH, reason=f"idle: {error}", expected="a duration such as 30m")


def idle_s(request: DebugToolRequest) -> int:
    """The number of idle seconds after which the tool ends: at least 60, since tools check once a
    minute. Raises ValueError."""
    return max(int(durations.duration(request.idle or IDLE).total_seconds()), 60)


def encode_annotation(debug_tool_requests: tuple[DebugToolRequest, ...]) -> str:
    """The annotation's value."""
    return msgspec.json.encode(debug_tool_requests).decode()


def object_name(job: str, tool: str) -> str:
    """The name of a tool's pod, Service, Secret and Ingress. It never equals a task's pod name,
    which ends in a number.
    """
    return f"{job}-tool-{tool}"


def _read(job: Job) -> tuple[DebugToolRequest, ...]:
    text = job.metadata.annotation(keys.TOOLS)
    return decoding.decode(_REQUESTS_DECODER, text) if text else ()
