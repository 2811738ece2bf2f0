"""Containers from image files on a process node: command lines, and pods with a stand-in program.

The stand-in is a program that has Apptainer's command line and runs the command on this machine;
``make test-sif`` runs jobs in real image files with a real one.
"""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from embedded.tests.process_pods import ProcessCluster, phase, state
from stromboli.embedded.cluster import EmbeddedCluster, Kubelet
from stromboli.embedded.processes.core import image_files, unsupported_fields
from stromboli.embedded.processes.core import pod as pods
from stromboli.shared import decoding
from stromboli.shared.cluster import pod_sessions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")
APPTAINER = image_files.ImageRuntime("/usr/bin/apptainer")
STAND_IN = """#!{python}
import json, os, sys
from pathlib import Path
at = next(index for index, each in enumerate(sys.argv) if each.endswith(".sif"))
with Path(__file__).with_name("calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1 : at + 1]) + "\\n")
prefix = "APPTAINERENV_"
own = {{name[len(prefix):]: value for name, value in os.environ.items() if name.startswith(prefix)}}
os.execvpe(sys.argv[at + 1], sys.argv[at + 1 :], {{"PATH": os.environ["PATH"], **own}})
"""


def container(**fields: Any) -> pods.Container:
    return decoding.convert(
        {"name": "main", "image": "file:///shared/train.sif", "command": ["train"], **fields},
        pods.Container,
    )


def options(made: pods.Container, view: str = "root", *mounts: dict[str, Any]) -> list[str]:
    return image_files.options(APPTAINER, made, mounts, "/pods/u/scratch/main", view)


@pytest.mark.parametrize(
    ("image", "path"),
    [
        ("file:///shared/train.sif", "/shared/train.sif"),
        ("/shared/sandbox", "/shared/sandbox"),
        ("python:3.13-slim", ""),
        ("registry.example/file/train.sif", ""),
        ("", ""),
    ],
)
def test_an_image_file_is_named_by_its_absolute_path(image: str, path: str) -> None:
    assert image_files.path_of(image) == path


def test_a_containers_command_runs_in_its_image() -> None:
    made = container(workingDir="/work")
    assert image_files.command_line(APPTAINER, made, options(made), ["train", "-x"]) == [
        *("/usr/bin/apptainer", "--silent", "exec"),
        *("--cleanenv", "--contain", "--ipc", "--no-eval"),
        *("--workdir", "/pods/u/scratch/main", "--cwd", "/work"),
        *("/shared/train.sif", "train", "-x"),
    ]


def test_a_container_without_a_command_runs_the_images_run_script_with_its_arguments() -> None:
    made = container(command=[])
    started = image_files.command_line(APPTAINER, made, options(made), ["--epochs", "3"])
    assert started[2] == "run"
    assert started[-3:] == ["/shared/train.sif", "--epochs", "3"]
    assert image_files.entry(APPTAINER, made, options(made))[2] == "exec"


@pytest.mark.parametrize(
    ("resource", "option"),
    [("nvidia.com/gpu", "--nv"), ("nvidia.com/mig-1g.10gb", "--nv"), ("amd.com/gpu", "--rocm")],
)
def test_a_container_with_gpus_has_their_devices_and_libraries(resource: str, option: str) -> None:
    assert option in options(container(resources={"limits": {resource: "2"}}))
    found = options(container(resources={"limits": {"cpu": "2", "memory": "1Gi"}}))
    assert not {"--nv", "--rocm"} & set(found)


def test_mounts_are_passed_whatever_their_paths_contain() -> None:
    found = options(
        container(),
        "root",
        {"source": "/data/a", "target": "/data", "read_only": True},
        {"source": "/data/b,c", "target": "/more", "read_only": False},
    )
    assert found[-4:] == [
        *("--mount", "type=bind,source=/data/a,destination=/data,ro"),
        *("--mount", 'type=bind,"source=/data/b,c",destination=/more'),
    ]


def test_a_user_that_is_root_in_a_namespace_only_mounts_images_in_a_further_one() -> None:
    assert "--userns" in options(container(), "user")
    assert "--userns" not in options(container(), "root")


def test_root_has_the_capabilities_of_kubernetes_default_in_an_image() -> None:
    """All of them, which the program requests, may be more than the node itself has."""
    root = image_files.ImageRuntime("/usr/bin/apptainer", is_root=True)
    found = image_files.options(root, container(), (), "/scratch", "root")
    kept = found[found.index("--add-caps") + 1].split(",")
    assert "--no-privs" in found
    assert "CAP_SETUID" in kept
    assert "CAP_SYS_ADMIN" not in kept
    assert "--no-privs" not in options(container())


def test_variables_are_passed_under_the_programs_prefix() -> None:
    singularity = image_files.ImageRuntime("/opt/bin/singularity")
    assert image_files.variables(APPTAINER, {"X": "a,b"}) == {"APPTAINERENV_X": "a,b"}
    assert image_files.variables(singularity, {"X": "1"}) == {"SINGULARITYENV_X": "1"}


def test_volumes_of_an_image_file_are_at_their_paths_also_without_namespaces() -> None:
    mounts = [{"name": "e", "mountPath": "/e"}]
    containers = [
        {"name": "a", "image": "/a.sif", "volumeMounts": mounts},
        {"name": "b", "image": "b:1", "volumeMounts": mounts},
    ]
    found = unsupported_fields.unsupported_paths(
        {"spec": {"containers": containers}}, at_true_paths=False
    )
    assert [each.partition(" ")[0] for each in found] == ["spec.containers[1].volumeMounts"]


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    return program


@pytest.fixture
async def image_cluster(tmp_path: Path, view: str, stand_in: Path) -> AsyncIterator[ProcessCluster]:
    kubelets: dict[str, Kubelet] = {}
    async with EmbeddedCluster(tmp_path / "cluster.db", kubelets=kubelets) as cluster:
        runtime = image_files.ImageRuntime(str(stand_in))
        process_cluster = ProcessCluster(cluster, kubelets, view, runtime)
        await process_cluster.start(tmp_path / "pods")
        try:
            yield process_cluster
        finally:
            await process_cluster.stop()


async def test_a_pod_runs_in_its_image_file_with_its_variables_mounts_and_exit_code(
    image_cluster: ProcessCluster, stand_in: Path, tmp_path: Path
) -> None:
    image = tmp_path / "train.sif"
    image.touch()
    fields = {
        "image": f"file://{image}",
        "env": [{"name": "GREETING", "value": "one, two"}],
        "volumeMounts": [{"name": "e", "mountPath": "/e"}],
    }
    script = 'echo "$GREETING $HOSTNAME"; exit 7'
    volumes = [{"name": "e", "emptyDir": {}}]
    await image_cluster.run("p", "sh", "-c", script, container=fields, volumes=volumes)
    pod = await image_cluster.over("p")
    assert state(pod)["terminated"]["exitCode"] == 7
    assert await image_cluster.log("p") == "one, two p\n"
    (call,) = [json.loads(line) for line in stand_in.with_name("calls").read_text().splitlines()]
    assert call[1] == "exec"
    assert call[-1] == str(image)
    targets = [each.rpartition("destination=")[2] for each in call if "type=bind" in each]
    assert {"/e", "/etc/hosts"} <= set(targets)
    assert "/dev/termination-log" not in targets


async def test_a_session_beside_a_container_enters_its_image(
    image_cluster: ProcessCluster, tmp_path: Path
) -> None:
    """The variable is set by the program for image files only."""
    image = tmp_path / "train.sif"
    image.touch()
    fields = {"image": str(image), "env": [{"name": "X", "value": "1"}]}
    await image_cluster.run("p", "sleep", "60", container=fields)
    pod = await image_cluster.until("p", lambda it: phase(it) == "Running")
    agent = image_cluster.node_agent
    request = pod_sessions.ExecRequest(command=("sh", "-c", "echo $X"), container="main")
    async with agent.exec(pod["metadata"]["uid"], request) as session:
        said = b"".join([chunk.data async for chunk in session.output()])
        assert (said, session.exit_code()) == (b"1\n", 0)


async def test_a_missing_image_file_is_a_reason_to_wait_and_the_pod_starts_once_it_exists(
    image_cluster: ProcessCluster, tmp_path: Path
) -> None:
    image = tmp_path / "train.sif"
    await image_cluster.run("p", "true", container={"image": str(image)})
    pod = await image_cluster.until("p", lambda it: "ErrImagePull" in str(it.get("status")))
    assert f"image file {image} does not exist on node" in state(pod)["waiting"]["message"]
    image.touch()
    assert phase(await image_cluster.over("p")) == "Succeeded"


async def test_a_pod_with_an_image_file_fails_where_no_program_for_it_is_installed(
    process_cluster: ProcessCluster,
) -> None:
    await process_cluster.run("p", "true", container={"image": "/shared/train.sif"})
    pod = await process_cluster.over("p")
    assert pod["status"]["reason"] == "NotSupported"
    assert "install Apptainer" in pod["status"]["message"]
