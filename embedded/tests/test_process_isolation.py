"""Pods on a process node whose containers are isolated."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from embedded.tests.process_pods import ProcessCluster, phase, state
from stromboli.embedded.cluster import EmbeddedCluster, Kubelet
from stromboli.embedded.processes import machine
from stromboli.embedded.processes.core import isolation, pod
from stromboli.shared import decoding


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    view, reason = await machine.view()
    if view == "plain":
        pytest.skip(f"this machine allows no namespaces: {reason}")
    kubelets: dict[str, Kubelet] = {}
    visible = await machine.isolating(view, reason, [])
    async with EmbeddedCluster(tmp_path / "cluster.db", kubelets=kubelets) as cluster:
        process_cluster = ProcessCluster(cluster, kubelets, view, visible=visible)
        await process_cluster.start(tmp_path / "pods")
        try:
            yield process_cluster
        finally:
            await process_cluster.stop()


async def test_a_pod_starts_in_its_own_home_and_leaves_nothing_on_the_machine(
    node: ProcessCluster, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    home = isolation.home_of(os.environ)
    script = (
        f"pwd; echo $HOME; test -e {tmp_path}/file || echo hidden; ls -A; "
        "touch strom-a /tmp/strom-b /run/strom-c"
    )
    await node.run("p", "sh", "-c", script)
    assert phase(await node.over("p")) == "Succeeded"
    first, second, third, *listed = (await node.log("p")).splitlines()
    assert (first, second, third) == (home, home, "hidden")
    visible = await machine.isolating(node.view, "", [])
    below = [path.removeprefix(f"{home}/") for path in visible if path.startswith(f"{home}/")]
    assert set(listed) == {path.partition("/")[0] for path in below}
    assert not any(map(os.path.exists, (f"{home}/strom-a", "/tmp/strom-b", "/run/strom-c")))


async def test_containers_of_a_pod_share_its_volumes_and_not_their_own_folders(
    node: ProcessCluster,
) -> None:
    mounts = [{"name": "e", "mountPath": "/shared"}]
    first = {
        "name": "first",
        "image": "none",
        "command": ["sh", "-c", "echo one > /tmp/file; echo two > /shared/file"],
        "volumeMounts": mounts,
    }
    container = {"args": ["cat /tmp/file; cat /shared/file"], "volumeMounts": mounts}
    volumes = [{"name": "e", "emptyDir": {}}]
    await node.run("p", "sh", "-c", container=container, initContainers=[first], volumes=volumes)
    assert phase(await node.over("p")) == "Succeeded"
    assert (await node.log("p", "main")).splitlines() == [
        "cat: /tmp/file: No such file or directory",
        "two",
    ]


async def test_a_container_that_restarts_begins_with_empty_folders(node: ProcessCluster) -> None:
    script = (
        "test ! -e /tmp/earlier || echo kept; touch /tmp/earlier; "
        "test -e /shared/second || { touch /shared/second; exit 1; }"
    )
    await node.run(
        "p",
        "sh",
        "-c",
        script,
        restartPolicy="OnFailure",
        container={"volumeMounts": [{"name": "e", "mountPath": "/shared"}]},
        volumes=[{"name": "e", "emptyDir": {}}],
    )
    assert phase(await node.over("p")) == "Succeeded"
    assert await node.log("p") == ""


async def test_a_volume_replaces_an_own_folder(node: ProcessCluster, tmp_path: Path) -> None:
    """As a home folder on a file system that all nodes share."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "file").write_text("text\n")
    home = isolation.home_of(os.environ)
    volumes = [{"name": "h", "hostPath": {"path": str(tmp_path / "shared")}}]
    container = {"volumeMounts": [{"name": "h", "mountPath": home}]}
    await node.run("p", "sh", "-c", "cat file; echo x > made", container=container, volumes=volumes)
    assert phase(await node.over("p")) == "Succeeded"
    assert await node.log("p") == "text\n"
    assert (tmp_path / "shared" / "made").read_text() == "x\n"


async def test_a_command_beside_an_isolated_container_is_isolated_too(
    node: ProcessCluster,
) -> None:
    asks = {"exec": {"command": ["sh", "-c", "test -e /tmp/ready && ! touch /usr/x"]}}
    container = {"readinessProbe": {**asks, "periodSeconds": 1}}
    await node.run("p", "sh", "-c", "touch /tmp/ready; exec sleep 987", container=container)
    found = await node.until("p", lambda it: phase(it) == "Running" and is_ready(it))
    assert "running" in state(found)


def is_ready(found: dict[str, object]) -> bool:
    status = found["status"]
    assert isinstance(status, dict)
    return all(each["ready"] for each in status["containerStatuses"])


@pytest.mark.parametrize(
    ("resources", "devices"),
    [
        ({"requests": {"cpu": "1"}}, []),
        ({"limits": {"nvidia.com/gpu": "1"}}, ["/dev/nvidia*", "/dev/dri"]),
        ({"requests": {"rdma/hca": "1"}}, ["/dev/infiniband"]),
    ],
    ids=["no device", "GPU", "RDMA"],
)
def test_containers_see_the_devices_of_the_resources_that_they_request(
    resources: dict[str, dict[str, str]], devices: list[str]
) -> None:
    container = decoding.convert({"name": "c", "resources": resources}, pod.Container)
    assert isolation.devices(container) == devices


@pytest.mark.parametrize(
    ("home", "found"),
    [("/home/ann/", "/home/ann"), ("", "/root"), ("/", "/root"), ("relative", "/root")],
)
def test_the_home_folder_is_never_the_root(home: str, found: str) -> None:
    assert isolation.home_of({"HOME": home}) == found


@pytest.mark.parametrize("view", ["plain", "user"])
def test_a_machine_that_cannot_isolate_says_why(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs without isolation if it was asked for."""
    monkeypatch.setattr(machine, "VISIBLE", ())  # then no command is visible
    with pytest.raises(machine.UnsupportedMachineError, match=r"isolated here \(.+\): allow user"):
        asyncio.run(machine.isolating(view, "not permitted", []))


def test_the_limits_of_isolation_are_printed() -> None:
    (line,) = machine.describe_isolation("user", "", isolated=True)
    assert "each with its own files; network" in line
