"""JupyterLab and TensorBoard beside a job, in real containers and in Chromium, without kubectl."""

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stromboli.shared.jobspec import debug_tools
from stromboli.testkit.parts.container_images import DEBUG_TOOLS
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import browser, kubelet_system
from tests.e2e.support.kubelet_system import FOREVER, KubeletSystem, job, requests, shell
from tests.e2e.support.polling import until
from tests.e2e.support.rest_user import STROM, Document

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(900)]
WITHIN_S = 300.0
AS_USER = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}
IDLE_WITHIN_S = 400.0
"""A minute of idleness, which JupyterLab looks for once a minute, on a busy machine."""
CURVES = "/curves"
WRITES = f"""
import sys; sys.path.insert(0, "/opt/wheels")
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("{CURVES}/first")
for step in range(10):
    value = summary_pb2.Summary.Value(tag="loss", simple_value=1 / (step + 1))
    summary = summary_pb2.Summary(value=[value])
    writer.add_event(event_pb2.Event(step=step, wall_time=step, summary=summary))
writer.close()
"""
TYPED = """
new Promise((done, fail) => {
  const socket = new WebSocket(`ws://${location.host}/terminals/websocket/NAME?token=TOKEN`);
  let output = "";
  socket.onopen = () => socket.send(JSON.stringify(["stdin", "echo $((6*7))-$(id -u)\\r"]));
  socket.onmessage = message => {
    const [kind, text] = JSON.parse(message.data);
    output += kind === "stdout" ? text : "";
    if (output.includes("42-1000")) { socket.close(); done(output); }
  };
  socket.onclose = () => fail(new Error(`closed: ${output}`));
})
"""


@pytest.fixture(scope="module")
def system(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletSystem]:
    images = {DEBUG_TOOLS: Path(kubelet_tools.debug_tools_image)}
    options = KubeletOptions(images=images)
    folder = tmp_path_factory.mktemp("kubelets")
    with kubelet_system.running(folder, real_tools, {}, options) as opened:
        curves = folder / "curves"
        curves.mkdir(mode=0o777)
        curves.chmod(0o777)
        mounts = {"volumeMounts": [{"name": "curves", "mountPath": CURVES}]}
        volumes = {"volumes": [{"name": "curves", "hostPath": {"path": str(curves)}}]}
        fields: Document = {
            "container": {**requests(cpu="100m"), **mounts},
            "pod": {**AS_USER, **volumes},
        }
        opened.user.submit(job("debugged", shell(FOREVER), **fields))
        opened.user.comes_to("debugged", "Running")
        yield opened


def attach(system: KubeletSystem, *more: str, tool: str = "jupyter") -> None:
    words = ("--tool", tool, "--image", DEBUG_TOOLS, "--timeout", f"{WITHIN_S:.0f}s")
    system.strom("job", "attach", "debugged", *words, *more)


@contextlib.contextmanager
def forwarded(system: KubeletSystem, tool: str = "jupyter") -> Iterator[str]:
    """The local address of the tool, by `strom job port-forward`."""
    port = debug_tools.TOOLS[tool].port
    words = [
        str(STROM),
        "job",
        "port-forward",
        "debugged",
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


def objects(system: KubeletSystem, tool: str = "jupyter") -> list[str]:
    """What exists for the tool."""
    found = json.loads(system.kubectl("get", "pods,services,secrets,ingresses", "--output", "json"))
    return sorted(
        item["kind"] for item in found["items"] if item["metadata"]["name"].endswith(f"tool-{tool}")
    )


def test_a_notebook_and_its_terminal_open_in_a_browser_with_the_token_alone(
    system: KubeletSystem, tmp_path: Path
) -> None:
    attach(system, "--cpu", "50m", "--memory", "300Mi")
    read = ("--tool", "jupyter", "--", "printenv", debug_tools.TOKEN)
    token = system.strom("job", "exec", "debugged", *read).strip()
    with forwarded(system) as address, httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/api/terminals").status_code == 403
        known = {"Authorization": f"token {token}"}
        name = client.post("/api/terminals", headers=known).raise_for_status().json()["name"]
        script = TYPED.replace("NAME", name).replace("TOKEN", token)
        assert "42-1000" in asyncio.run(
            in_browser(f"{address}/lab?token={token}", "#jp-main-dock-panel", script, tmp_path)
        )
    assert objects(system) == ["Pod", "Secret", "Service"]


async def in_browser(url: str, element: str, script: str, folder: Path) -> str:
    """What a script returns once the page has an element."""
    async with browser.opened(url, folder, WITHIN_S) as page:
        await page.until(f"!!document.querySelector('{element}')", WITHIN_S)
        return str(await page.run(script))


def test_the_curves_of_a_job_are_shown_while_it_runs(system: KubeletSystem, tmp_path: Path) -> None:
    """From the folder that the job mounts, which the tool mounts, too."""
    attach(system, tool="tensorboard")
    write = ("--tool", "tensorboard", "--", "python3", "-c", WRITES)
    system.strom("job", "exec", "debugged", *write)
    with forwarded(system, "tensorboard") as address, httpx.Client(base_url=address) as client:
        read = functools.partial(client.get, "/data/plugin/scalars/tags")
        until(lambda: read().json().get("first", {}), lambda found: "loss" in found, WITHIN_S)
        shown = "document.querySelector('tb-webapp').innerText"
        assert "loss" in asyncio.run(
            in_browser(f"{address}/#timeseries", "tb-webapp card-view", shown, tmp_path)
        )
    assert objects(system, "tensorboard") == ["Pod", "Secret", "Service"]
    system.strom("job", "detach", "debugged", "--tool", "tensorboard")
    until(lambda: objects(system, "tensorboard"), lambda found: not found, WITHIN_S)


def test_the_node_accounts_for_the_requests_of_a_tool(system: KubeletSystem) -> None:
    attach(system, "--cpu", "50m", "--memory", "300Mi")
    (node,) = {pod["spec"]["nodeName"] for pod in system.user.pods("debugged")}
    shown = system.kubectl("describe", "node", node)
    (line,) = [line for line in shown.splitlines() if "debugged-tool-jupyter" in line]
    assert line.split()[2] == "50m"
    assert "300Mi" in line


def test_an_idle_tool_ends_and_leaves_nothing(system: KubeletSystem) -> None:
    system.strom("job", "detach", "debugged")
    until(lambda: objects(system), lambda found: not found, WITHIN_S)
    attach(system, "--idle", "1m")
    until(lambda: objects(system), lambda found: not found, IDLE_WITHIN_S)
    assert system.user.phase("debugged") == "Running"
    assert "ToolEnded" in system.kubectl("get", "events")


def test_a_deleted_job_leaves_nothing_of_its_tools(system: KubeletSystem) -> None:
    attach(system)
    assert objects(system) == ["Pod", "Secret", "Service"]
    system.user.delete("debugged")
    until(lambda: objects(system), lambda found: not found, WITHIN_S)
