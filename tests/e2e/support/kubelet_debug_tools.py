"""A job on kubelets whose debug tools are opened as users open them: by `strom job attach` and
`strom job port-forward`, in Chromium, without kubectl."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from stromboli.shared.jobspec import debug_tools
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.tools import Tools
from tests.e2e.support import browser, kubelet_system
from tests.e2e.support.kubelet_system import FOREVER, KubeletSystem, job, requests, shell
from tests.e2e.support.rest_user import STROM, Document

WITHIN_S = 300.0
IDLE_WITHIN_S = 400.0
"""A minute of idleness, which tools look for once a minute, on a busy machine."""
AS_USER = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}
JOB = "debugged"
FOLDER = "/curves"
"""The folder that the job mounts, and with it each of its tools."""


@contextlib.contextmanager
def running(folder: Path, tools: Tools, images: Mapping[str, str]) -> Iterator[KubeletSystem]:
    """A system without jobs. ``images``: name -> tar of its root file system."""
    options = KubeletOptions(images={name: Path(tar) for name, tar in images.items()})
    with kubelet_system.running(folder, tools, {}, options) as system:
        yield system


def start_job(system: KubeletSystem, shared: Path) -> None:
    """Delete what earlier tests left, and run the job as an ordinary user. ``shared``: the new
    folder that it mounts."""
    system.reset()
    shared.chmod(0o777)
    mounts = {"volumeMounts": [{"name": "shared", "mountPath": FOLDER}]}
    volumes = {"volumes": [{"name": "shared", "hostPath": {"path": str(shared)}}]}
    fields: Document = {
        "container": {**requests(cpu="100m"), **mounts},
        "pod": {**AS_USER, **volumes},
    }
    system.user.submit(job(JOB, shell(FOREVER), **fields))
    system.user.comes_to(JOB, "Running")


def attach(system: KubeletSystem, tool: str, image: str, *more: str) -> None:
    """Start a tool; returns when it is ready."""
    words = ("--tool", tool, "--image", image, "--timeout", f"{WITHIN_S:.0f}s")
    system.strom("job", "attach", JOB, *words, *more)


def token(system: KubeletSystem, tool: str) -> str:
    """What the tool asks for, as its container has it."""
    read = ("--tool", tool, "--", "printenv", debug_tools.TOKEN)
    return system.strom("job", "exec", JOB, *read).strip()


@contextlib.contextmanager
def forwarded(system: KubeletSystem, tool: str) -> Iterator[str]:
    """The local address of the tool, by `strom job port-forward`."""
    port = debug_tools.TOOLS[tool].port
    words = [
        str(STROM),
        "job",
        "port-forward",
        JOB,
        f":{port}",
        *("--tool", tool),
        "--server",
        system.url,
    ]
    environment = {**os.environ, "KUBECONFIG": str(system.kubeconfig)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as called:
        assert called.stdout is not None
        try:
            yield "http://" + called.stdout.readline().split()[0]
        finally:
            called.send_signal(signal.SIGINT)
            called.wait(WITHIN_S)


def objects(system: KubeletSystem, tool: str) -> list[str]:
    """What exists for the tool."""
    found = json.loads(system.kubectl("get", "pods,services,secrets,ingresses", "--output", "json"))
    return sorted(
        item["kind"] for item in found["items"] if item["metadata"]["name"].endswith(f"tool-{tool}")
    )


async def in_browser(url: str, element: str, script: str, folder: Path) -> str:
    """What a script returns once the page has an element."""
    async with browser.opened(url, folder, WITHIN_S) as page:
        await page.until(f"!!document.querySelector('{element}')", WITHIN_S)
        return str(await page.run(script))
