"""Containers in image files on a process node, run by a real program for them.

The image has one static program, busybox, so it is built in a second and without a registry.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from embedded.tests.process_pods import Document, ProcessCluster, phase, state
from stromboli.embedded.cluster import EmbeddedCluster, Kubelet
from stromboli.embedded.processes.core import image_files
from stromboli.shared.cluster import pod_sessions
from stromboli.testkit.parts import ports, sif_files
from stromboli.testkit.parts.tools import ImageFileTools

pytestmark = [pytest.mark.sif, pytest.mark.timeout(300)]

APPLETS = ("sh", "cat", "echo", "hostname", "id", "ls", "nc", "sleep", "stat", "touch", "true")
RUN_SCRIPT = "#!/bin/sh\necho run script of $*\n"


@pytest.fixture(scope="session")
def sandbox(image_file_tools: ImageFileTools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sandbox directory: a root file system with busybox and a run script."""
    root = tmp_path_factory.mktemp("images") / "sandbox"
    for folder in ("bin", "etc", "proc", "sys", "dev", "tmp", "var/tmp", "root", ".singularity.d"):
        (root / folder).mkdir(parents=True)
    program = root / "bin" / "busybox"
    program.write_bytes(Path(image_file_tools.busybox).read_bytes())
    program.chmod(0o755)
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    (root / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    (root / "etc" / "only-in-the-image").write_text("of the image\n")
    script = root / ".singularity.d" / "runscript"
    script.write_text(RUN_SCRIPT)
    script.chmod(0o755)
    return root


@pytest.fixture(scope="session")
def sif(image_file_tools: ImageFileTools, sandbox: Path) -> Path:
    """The same as a SIF file."""
    built = sandbox.with_name("train.sif")
    sif_files.write(image_file_tools, sandbox, built)
    return built


@pytest.fixture
async def process_cluster(
    tmp_path: Path, view: str, image_file_tools: ImageFileTools
) -> AsyncIterator[ProcessCluster]:
    """A process node with the program, in each view of the machine."""
    kubelets: dict[str, Kubelet] = {}
    async with EmbeddedCluster(tmp_path / "cluster.db", kubelets=kubelets) as cluster:
        is_root = os.getuid() == 0
        runtime = image_files.ImageRuntime(image_file_tools.singularity, is_root=is_root)
        made = ProcessCluster(cluster, kubelets, view, runtime)
        await made.start(tmp_path / "pods")
        try:
            yield made
        finally:
            await made.stop()


async def ended(cluster: ProcessCluster, name: str) -> Document:
    """How the only container of a pod ended."""
    found: Document = state(await cluster.over(name))["terminated"]
    return found


async def test_a_pod_runs_in_a_sif_file_with_its_variables_volumes_and_temporary_files(
    process_cluster: ProcessCluster, sif: Path
) -> None:
    script = (
        "cat /etc/only-in-the-image; echo $MINE; pwd; touch file && ls; ls /work 2>&1 | cat; "
        "touch /tmp/file && ls /tmp; touch /file 2> /dev/null || echo read-only; echo > /dev/null"
    )
    folder = "/no/such/folder/in/the/image"
    fields = {
        "image": f"file://{sif}",
        "workingDir": folder,
        "env": [{"name": "MINE", "value": "a, $$b"}],
        "volumeMounts": [{"name": "scratch", "mountPath": folder}],
    }
    volumes = [{"name": "scratch", "emptyDir": {}}]
    await process_cluster.run("p", "sh", "-c", script, container=fields, volumes=volumes)
    code = (await ended(process_cluster, "p"))["exitCode"]
    said = await process_cluster.log("p")
    assert (code, said.splitlines()) == (
        0,
        [
            *("of the image", "a, $b", folder, "file"),
            *("ls: /work: No such file or directory", "file", "read-only"),
        ],
    )


async def test_a_container_without_a_command_runs_the_run_script_of_a_sandbox_directory(
    process_cluster: ProcessCluster, sandbox: Path
) -> None:
    fields = {"image": str(sandbox), "args": ["these", "arguments"]}
    await process_cluster.run("p", container=fields)
    assert (await ended(process_cluster, "p"))["exitCode"] == 0
    assert await process_cluster.log("p") == "run script of these arguments\n"


async def test_a_command_in_an_image_gets_sigterm_and_its_exit_code_is_the_containers(
    process_cluster: ProcessCluster, sif: Path
) -> None:
    script = "trap 'echo saved; exit 3' TERM; echo on; while true; do sleep 0.1; done"
    fields = {"image": str(sif)}
    await process_cluster.run("p", "sh", "-c", script, container=fields, activeDeadlineSeconds=15)
    assert (await ended(process_cluster, "p"))["exitCode"] == 3
    assert await process_cluster.log("p") == "on\nsaved\n"


async def test_a_container_above_its_memory_limit_is_killed_and_says_so(
    process_cluster: ProcessCluster, sif: Path
) -> None:
    fields = {"image": str(sif), "resources": {"limits": {"memory": "64Mi"}}}
    script = "x=0123456789abcdef; while true; do x=$x$x; done"
    await process_cluster.run("p", "sh", "-c", script, container=fields)
    assert (await ended(process_cluster, "p"))["reason"] == "OOMKilled"


async def test_a_session_beside_a_container_is_in_its_image_with_its_files(
    process_cluster: ProcessCluster, sif: Path
) -> None:
    script = "echo first > /tmp/file; while true; do sleep 0.1; done"
    await process_cluster.run("p", "sh", "-c", script, container={"image": str(sif)})
    pod = await process_cluster.until("p", lambda it: phase(it) == "Running")
    look = "until cat /tmp/file 2> /dev/null; do sleep 0.1; done; cat /etc/only-in-the-image"
    request = pod_sessions.ExecRequest(command=("sh", "-c", look), container="main")
    async with process_cluster.node_agent.exec(pod["metadata"]["uid"], request) as session:
        said = b"".join([chunk.data async for chunk in session.output()])
        assert (said, session.exit_code()) == (b"first\nof the image\n", 0)


async def test_pods_in_a_sif_file_reach_each_other_by_name(
    process_cluster: ProcessCluster, sif: Path
) -> None:
    (port,) = ports.free_ports(1)
    listen = f"nc -l -p {port}"
    send = f"until echo from $HOSTNAME | nc one.peers {port}; do sleep 0.1; done"
    for name, script in (("one", listen), ("two", send)):
        await process_cluster.run(
            name, "sh", "-c", script, container={"image": str(sif)}, subdomain="peers"
        )
    assert (await ended(process_cluster, "one"))["exitCode"] == 0
    assert await process_cluster.log("one") == "from two\n"
