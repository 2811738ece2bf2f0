"""JupyterLab and TensorBoard beside a job, in real containers and in Chromium, without kubectl."""

import asyncio
import functools
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stromboli.testkit.parts.container_images import DEBUG_TOOLS
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_debug_tools
from tests.e2e.support.kubelet_debug_tools import (
    FOLDER,
    IDLE_WITHIN_S,
    JOB,
    WITHIN_S,
    forwarded,
    in_browser,
    objects,
)
from tests.e2e.support.kubelet_system import KubeletSystem
from tests.e2e.support.polling import until

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(900)]
JUPYTER, TENSORBOARD = "jupyter", "tensorboard"
WRITES = f"""
import sys; sys.path.insert(0, "/opt/wheels")
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("{FOLDER}/first")
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
    images = {DEBUG_TOOLS: kubelet_tools.debug_tools_image}
    folder = tmp_path_factory.mktemp("kubelets")
    with kubelet_debug_tools.running(folder, real_tools, images) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _round(
    system: KubeletSystem, kubelet_round: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kubelet_debug_tools.start_job(system, tmp_path_factory.mktemp("shared"))


def attach(system: KubeletSystem, *more: str, tool: str = JUPYTER) -> None:
    kubelet_debug_tools.attach(system, tool, DEBUG_TOOLS, *more)


def test_a_notebook_and_its_terminal_open_in_a_browser_with_the_token_alone(
    system: KubeletSystem, tmp_path: Path
) -> None:
    attach(system, "--cpu", "50m", "--memory", "300Mi")
    token = kubelet_debug_tools.token(system, JUPYTER)
    with (
        forwarded(system, JUPYTER) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        assert client.get("/api/terminals").status_code == 403
        known = {"Authorization": f"token {token}"}
        name = client.post("/api/terminals", headers=known).raise_for_status().json()["name"]
        script = TYPED.replace("NAME", name).replace("TOKEN", token)
        assert "42-1000" in asyncio.run(
            in_browser(f"{address}/lab?token={token}", "#jp-main-dock-panel", script, tmp_path)
        )
    assert objects(system, JUPYTER) == ["Pod", "Secret", "Service"]


def test_the_curves_of_a_job_are_shown_while_it_runs(system: KubeletSystem, tmp_path: Path) -> None:
    """From the folder that the job mounts, which the tool mounts, too."""
    attach(system, tool=TENSORBOARD)
    write = ("--tool", TENSORBOARD, "--", "python3", "-c", WRITES)
    system.strom("job", "exec", JOB, *write)
    with forwarded(system, TENSORBOARD) as address, httpx.Client(base_url=address) as client:
        read = functools.partial(client.get, "/data/plugin/scalars/tags")
        until(lambda: read().json().get("first", {}), lambda found: "loss" in found, WITHIN_S)
        shown = "document.querySelector('tb-webapp').innerText"
        assert "loss" in asyncio.run(
            in_browser(f"{address}/#timeseries", "tb-webapp card-view", shown, tmp_path)
        )
    assert objects(system, TENSORBOARD) == ["Pod", "Secret", "Service"]
    system.strom("job", "detach", JOB, "--tool", TENSORBOARD)
    until(lambda: objects(system, TENSORBOARD), lambda found: not found, WITHIN_S)


def test_the_node_accounts_for_the_requests_of_a_tool(system: KubeletSystem) -> None:
    attach(system, "--cpu", "50m", "--memory", "300Mi")
    (node,) = {pod["spec"]["nodeName"] for pod in system.user.pods(JOB)}
    shown = system.kubectl("describe", "node", node)
    (line,) = [line for line in shown.splitlines() if "debugged-tool-jupyter" in line]
    assert line.split()[2] == "50m"
    assert "300Mi" in line


def test_an_idle_tool_ends_and_leaves_nothing(system: KubeletSystem) -> None:
    system.strom("job", "detach", JOB)
    until(lambda: objects(system, JUPYTER), lambda found: not found, WITHIN_S)
    attach(system, "--idle", "1m")
    until(lambda: objects(system, JUPYTER), lambda found: not found, IDLE_WITHIN_S)
    assert system.user.phase(JOB) == "Running"
    assert "ToolEnded" in system.kubectl("get", "events")


def test_a_deleted_job_leaves_nothing_of_its_tools(system: KubeletSystem) -> None:
    attach(system)
    assert objects(system, JUPYTER) == ["Pod", "Secret", "Service"]
    system.user.delete(JOB)
    until(lambda: objects(system, JUPYTER), lambda found: not found, WITHIN_S)
