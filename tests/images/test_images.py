"""Services as their images install and start them, on real Kafka and a real API server.

There is no container engine here, so each Dockerfile's own steps are run into a folder, and its
command is started with what it sets in the environment.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from stromboli.shared import keys
from stromboli.testkit import real_system
from stromboli.testkit.parts import ports, tools
from tests.images import image

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
in_one_loop = pytest.mark.asyncio(loop_scope="module")
JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "by-images", "namespace": "default"},
    "spec": {
        "minAvailable": 2,
        "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
        "tasks": [
            {
                "name": "worker",
                "replicas": 2,
                "template": {
                    "metadata": {"annotations": {keys.RUN_SECONDS: "0.1"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [
                            {
                                "name": "main",
                                "image": "busybox",
                                "resources": {"requests": {"cpu": "100m"}},
                            }
                        ],
                    },
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, image.Image]:
    """All four, built one after another."""
    where = tmp_path_factory.mktemp("images")
    try:
        return {name: image.build(name, where / name) for name in real_system.SERVICES}
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error.cmd}\n{error.stdout}\n{error.stderr}", pytrace=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(
    images: dict[str, image.Image],
    real_tools: tools.Tools,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[real_system.RealSystem]:
    """The whole system, its services from their images."""
    commands = {
        name: [
            shutil.which("env") or "/usr/bin/env",
            *(f"{key}={value}" for key, value in each.environment.items()),
            *each.entrypoint,
        ]
        for name, each in images.items()
    }
    state = tmp_path_factory.mktemp("system")
    async with real_system.RealSystem(state, simulated_nodes=2, commands=commands) as running:
        yield running


@in_one_loop
async def test_services_from_their_images_finish_a_job(system: real_system.RealSystem) -> None:
    async with httpx.AsyncClient(base_url=system.url, timeout=30) as client:
        (await client.post("/v1/apply", json={"objects": [JOB]})).raise_for_status()
        async with asyncio.timeout(60):
            phase = ""
            while phase != "Completed":
                answer = await client.get("/v1/namespaces/default/jobs/by-images")
                status = answer.raise_for_status().json().get("status", {})
                phase = status.get("state", {}).get("phase", "")
                await asyncio.sleep(0.2)


@in_one_loop
@pytest.mark.parametrize("name", real_system.SERVICES)
async def test_an_image_asks_for_its_own_health(
    name: str, system: real_system.RealSystem, images: dict[str, image.Image]
) -> None:
    """Its check passes while the service runs, and fails where nobody listens."""
    exposed = next(
        step.value for step in image.dockerfile(name) if step.instruction == "EXPOSE"
    ).split()[0]
    listening = system.services[name].ports[-1]
    check = images[name].healthcheck
    program = images[name].root / "opt/stromboli/bin" / check[0]
    for actual, is_healthy in ((listening, True), (ports.free(1)[0], False)):
        words = [word.replace(f":{exposed}/", f":{actual}/") for word in check[1:]]
        running = await asyncio.create_subprocess_exec(
            program, *words, stderr=asyncio.subprocess.DEVNULL
        )
        assert (await running.wait() == 0) is is_healthy


def test_an_image_holds_nothing_of_the_repository(images: dict[str, image.Image]) -> None:
    """What it runs is installed in it: the folder of this checkout is named nowhere."""
    for each in images.values():
        installed = each.root / "opt/stromboli"
        paths = [path.read_text() for path in installed.rglob("*.pth")]
        assert not any(str(image.ROOT) in text for text in paths)
        assert (installed / "bin/python").resolve() == Path(sys.executable).resolve()
