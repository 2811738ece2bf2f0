"""Tools beside a running job: what an annotation of the Job asks for, and which there are. Pure.

``stromboli.sh/tools: '[{"tool": "jupyter", "task": "worker"}]'``. The controller runs each in a pod
of its own, on a node where the job runs, with the job's volumes.
"""

from collections.abc import Iterator, Mapping

import msgspec

from stromboli.shared import decoding, keys
from stromboli.shared.api.batch import Job
from stromboli.shared.messages.admission import Violation

PATH = f"metadata.annotations[{keys.TOOLS}]"
TOKEN = "STROM_TOOL_TOKEN"
"""Environment of a tool's container: the secret that it asks people for."""
EXAMPLE = '[{"tool": "jupyter"}]'


class DebugToolRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One tool. ``task``: whose node and volumes, the first task if empty; ``image``: another one
    that has the tool."""

    tool: str
    task: str = ""
    image: str = ""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool is run. ``{folder}`` in its command is the first folder that the job mounts.

    ``variable``: the further name under which it looks for the token. ``asks``: whether it lets
    nobody in without it; one that does not is never shown outside of the cluster.
    """

    image: str
    port: int
    command: tuple[str, ...]
    variable: str = ""
    asks: bool = True


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
        ),
        variable="JUPYTER_TOKEN",
    ),
    "tensorboard": Tool(
        image="tensorflow/tensorflow:2.18.0",
        port=6006,
        command=("tensorboard", "--bind_all", "--port=6006", "--logdir={folder}"),
        asks=False,
    ),
    "code-server": Tool(
        image="codercom/code-server:4.98.2",
        port=8080,
        command=("code-server", "--bind-addr=0.0.0.0:8080", "--auth=password", "{folder}"),
        variable="PASSWORD",
    ),
    "terminal": Tool(
        image="tsl0922/ttyd:1.7.7",
        port=7681,
        command=(
            "ttyd",
            "--port=7681",
            "--writable",
            f"--credential=strom:$({TOKEN})",
            "--cwd={folder}",
            "sh",
        ),
    ),
}

_REQUESTS_DECODER = msgspec.json.Decoder(tuple[DebugToolRequest, ...])


def requested_tools(job: Job) -> tuple[DebugToolRequest, ...]:
    """What the job asks for; nothing where that cannot be read or carried out (``problems``)."""
    if any(violations(job)):
        return ()
    return _read(job)


def violations(job: Job) -> Iterator[Violation]:
    """The violations of the annotation."""
    try:
        found = _read(job)
    except msgspec.DecodeError as error:
        yield Violation(path=PATH, reason=str(error), expected=f"a list such as {EXAMPLE}")
        return
    tasks = [task.name for task in job.spec.tasks]
    seen = set()
    for wish in found:
        if wish.tool not in TOOLS:
            known = ", ".join(TOOLS)
            yield Violation(
                path=PATH, reason=f"tool {wish.tool!r} is unknown", expected=f"one of {known}"
            )
        if wish.tool in seen:
            yield Violation(
                path=PATH, reason=f"tool {wish.tool!r} stands twice", expected="each tool once"
            )
        if wish.task and wish.task not in tasks:
            yield Violation(
                path=PATH,
                reason=f"there is no task {wish.task!r}",
                expected=f"one of {', '.join(tasks)}",
            )
        seen.add(wish.tool)


def encode_annotation(found: tuple[DebugToolRequest, ...]) -> str:
    """The annotation's text."""
    return msgspec.json.encode(found).decode()


def object_name(job: str, tool: str) -> str:
    """The pod, Service, Secret and Ingress of a tool. No pod of a task is called so: those end in
    a number."""
    return f"{job}-tool-{tool}"


def _read(job: Job) -> tuple[DebugToolRequest, ...]:
    text = job.metadata.annotation(keys.TOOLS)
    return decoding.decode(_REQUESTS_DECODER, text) if text else ()
