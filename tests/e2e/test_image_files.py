"""Jobs whose containers run in image files, with a real program for them, on process nodes.

The image has one static program, busybox, so it is built in a second and without a registry.
"""

import platform
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.client import server
from stromboli.testkit.parts.tools import ImageFileTools
from tests.e2e.conftest import embedded
from tests.e2e.support import polling

pytestmark = [pytest.mark.sif, pytest.mark.timeout(300)]

WITHIN_S = 120.0
MACHINE = platform.machine()
ARCHITECTURES = {"x86_64": 2, "aarch64": 4}
"""Numbers of architectures in SIF files."""
FINAL = ("Completed", "Failed", "Aborted", "Terminated")
APPLETS = ("sh", "cat", "echo", "hostname", "id", "ls", "nc", "sleep", "stat", "touch", "true")
RUN_SCRIPT = "#!/bin/sh\necho run script of $*\n"
Document = dict[str, Any]


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
    built, files = sandbox.with_name("train.sif"), sandbox.with_name("files")
    tool = [image_file_tools.singularity, "sif"]
    # `singularity build` does the same and more: it asks a server of keys.
    partition = {"datatype": 4, "parttype": 2, "partfs": 1, "partarch": ARCHITECTURES[MACHINE]}
    options = [f"--{name}={value}" for name, value in {**partition, "groupid": 1}.items()]
    for command in (
        [image_file_tools.mksquashfs, str(sandbox), str(files), "-noappend", "-quiet"],
        [*tool, "new", str(built)],
        [*tool, "add", *options, str(built), str(files)],
    ):
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    return built


class User:
    """A user with a REST client."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(**server.httpx_options(url, 30))

    def apply(self, manifest: Document) -> None:
        answer = self.http.post("/v1/apply", json={"objects": [manifest]})
        assert answer.is_success, answer.text

    def phase(self, job: str) -> str:
        found = self.http.get(f"/v1/namespaces/default/jobs/{job}").raise_for_status().json()
        return str(found.get("status", {}).get("state", {}).get("phase", ""))

    def over(self, job: str) -> str:
        """The job's final phase."""
        return str(self.until(lambda: self.phase(job), lambda phase: phase in FINAL))

    def until(self, read: Callable[[], Any], wanted: Callable[[Any], object]) -> Any:
        return polling.until(read, wanted, WITHIN_S)

    def state(self, job: str) -> Document:
        """The state of the only container of the job's only pod."""
        answer = self.http.get(f"/v1/namespaces/default/jobs/{job}/pods").raise_for_status()
        statuses = [it.get("status", {}).get("containerStatuses") for it in answer.json()["items"]]
        return dict(statuses[0][0]["state"]) if statuses and statuses[0] else {}

    def nodes(self, job: str) -> set[str]:
        answer = self.http.get(f"/v1/namespaces/default/jobs/{job}/pods").raise_for_status()
        return {str(each["spec"].get("nodeName")) for each in answer.json()["items"]}

    def log(self, pod: str) -> str:
        answer = self.http.get(f"/v1/namespaces/default/pods/{pod}/log")
        assert answer.is_success, answer.text
        return answer.text


@pytest.fixture(scope="module")
def user(
    image_file_tools: ImageFileTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[User]:
    """A system with two process nodes, which find the program on their PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(image_file_tools.singularity).parent), prepend=":")
        state = tmp_path_factory.mktemp("image-files")
        with embedded(state, "--process-nodes", "2", "--cpu", "2") as running:
            made = User(running.url)
            yield made
            made.http.close()


def job(name: str, image: str, script: str, replicas: int = 1, **more: Any) -> Document:
    """A gang whose pods run a script in an image."""
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "1", "memory": "32Mi"}},
        **more.pop("container", {}),
    }
    spec = {"restartPolicy": "Never", "containers": [container], **more.pop("pod", {})}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "minAvailable": replicas,
            "plugins": {"env": [], "svc": [], "ssh": []},
            "tasks": [{"name": "work", "replicas": replicas, "template": {"spec": spec}}],
            **more,
        },
    }


def test_a_job_runs_in_a_sif_file_with_its_variables_volumes_and_names(
    user: User, sif: Path
) -> None:
    mounts = [{"name": "scratch", "mountPath": "/no/such/folder/in/the/image"}]
    script = (
        "cat /etc/only-in-the-image; echo $MINE; hostname; cd /no/such/folder/in/the/image; "
        "touch file && ls; ls /work 2>&1 | cat; touch /tmp/file && ls /tmp; echo done > /dev/null"
    )
    container = {"env": [{"name": "MINE", "value": "a, $$b"}], "volumeMounts": mounts}
    pod = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    user.apply(job("inside", f"file://{sif}", script, container=container, pod=pod))
    assert user.over("inside") == "Completed", user.log("inside-work-0")
    assert user.log("inside-work-0").splitlines() == [
        *("of the image", "a, $b", "inside-work-0", "file"),
        "ls: /work: No such file or directory",
        "file",
    ]


def test_a_container_without_a_command_runs_the_run_script_of_a_sandbox_directory(
    user: User, sandbox: Path
) -> None:
    container = {"command": [], "args": ["these", "arguments"]}
    user.apply(job("script", str(sandbox), "", container=container))
    assert user.over("script") == "Completed", user.log("script-work-0")
    assert user.log("script-work-0") == "run script of these arguments\n"


def test_an_exit_code_of_a_command_in_an_image_is_the_containers(user: User, sif: Path) -> None:
    user.apply(job("failing", str(sif), "exit 7"))
    assert user.over("failing") == "Failed"
    assert user.state("failing")["terminated"]["exitCode"] == 7


def test_a_command_in_an_image_gets_sigterm_and_time_to_end(user: User, sif: Path) -> None:
    """Its log is kept by the node when the pod is deleted."""
    script = "trap 'echo saved; exit 3' TERM; echo on; while true; do sleep 0.1; done"
    user.apply(job("trap", str(sif), script, pod={"activeDeadlineSeconds": 8}))
    assert user.over("trap") == "Failed"
    assert user.log("trap-work-0") == "on\nsaved\n"


def test_a_container_above_its_memory_limit_is_killed_and_says_so(user: User, sif: Path) -> None:
    limits = {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "48Mi"}}}
    script = "x=0123456789abcdef; while true; do x=$x$x; done"
    user.apply(job("large", str(sif), script, container=limits))
    assert user.over("large") == "Failed"
    assert user.state("large")["terminated"]["reason"] == "OOMKilled"


def test_a_gang_in_a_sif_file_on_two_nodes_finds_its_peers_by_name(user: User, sif: Path) -> None:
    script = (
        "if [ $VC_TASK_INDEX = 0 ]; then nc -l -s $POD_IP -p 7777; "
        "else until echo from $HOSTNAME | nc peers-work-0.peers 7777; do sleep 0.1; done; fi"
    )
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    resources = {"requests": {"cpu": "2", "memory": "32Mi"}}
    container = {"env": [address], "resources": resources}
    user.apply(job("peers", str(sif), script, replicas=2, container=container))
    assert user.over("peers") == "Completed", user.log("peers-work-0")
    assert user.log("peers-work-0") == "from peers-work-1\n"
    assert len(user.nodes("peers")) == 2
