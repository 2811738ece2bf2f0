"""Jobs with real commands: through all services, to processes of this machine and back.

A test uses the system only over REST and identifies its processes by their mark.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from stromboli.client import server
from stromboli.embedded.processes import launcher_client
from stromboli.shared.formats import documents
from tests.e2e.support import polling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN_S = 120.0
FINAL = ("Completed", "Failed", "Aborted", "Terminated")
Document = dict[str, Any]


class KillableSystem(Protocol):
    """A system that a test may kill."""

    url: str

    def kill_controller(self) -> None: ...


class User:
    """A user with a REST client."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(**server.httpx_options(url, 30))

    def apply(self, *manifests: Document) -> None:
        answer = self.http.post("/v1/apply", json={"objects": manifests})
        assert answer.is_success, answer.text

    def until(self, read: Callable[[], Any], wanted: Callable[[Any], object]) -> Any:
        """See ``polling.until``."""
        return polling.until(read, wanted, WITHIN_S)

    def phase(self, job: str) -> str:
        found = self.http.get(f"/v1/namespaces/default/jobs/{job}").raise_for_status().json()
        return str(found.get("status", {}).get("state", {}).get("phase", ""))

    def over(self, job: str) -> str:
        """The job's final phase."""
        return str(self.until(lambda: self.phase(job), lambda phase: phase in FINAL))

    def pods(self, job: str) -> list[Document]:
        answer = self.http.get(f"/v1/namespaces/default/jobs/{job}/pods").raise_for_status()
        items: list[Document] = answer.json()["items"]
        return items

    def status(self, job: str) -> Document:
        """The status of the only container of the job's only pod."""
        (pod,) = self.pods(job)
        (found,) = pod.get("status", {}).get("containerStatuses") or [{}]
        return dict(found)

    def log(self, pod: str, **query: Any) -> str:
        answer = self.http.get(f"/v1/namespaces/default/pods/{pod}/log", params=query)
        assert answer.is_success, answer.text
        return answer.text


@pytest.fixture
def user(process_base_url: str) -> Iterator[User]:
    made = User(process_base_url)
    yield made
    made.http.close()


def job(name: str, script: str, replicas: int = 1, **more: Any) -> Document:
    """A job of one task whose pods run a script in a shell."""
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}},
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


def test_a_command_runs_in_its_environment_and_its_output_can_be_read(user: User) -> None:
    env = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "BOTH", "value": "$(POD) of $(VC_WORK_NUM)"},
        {"name": "MINE", "value": "$(POD) and $$"},
    ]
    script = "echo $VC_TASK_INDEX $VC_WORK_HOSTS; echo $MINE >&2"
    user.apply(job("environment", script, replicas=2, container={"env": env}))
    assert user.over("environment") == "Completed"
    hosts = "environment-work-0.environment,environment-work-1.environment"
    for index in (0, 1):
        pod = f"environment-work-{index}"
        assert user.log(pod) == f"{index} {hosts}\n{pod} and $\n"
        assert user.log(pod, tailLines=1) == f"{pod} and $\n"


def test_a_log_is_read_with_times_and_from_a_time_on(user: User) -> None:
    """Through an API server, too, whose kubelet is then a process node."""
    user.apply(job("timed", "echo first; sleep 1.5; echo second"))
    assert user.over("timed") == "Completed"
    lines = user.log("timed-work-0", timestamps="true").splitlines()
    times, texts = zip(*(line.split(" ", 1) for line in lines), strict=True)
    assert texts == ("first", "second")
    assert user.log("timed-work-0", sinceTime=times[1]) == "second\n"


def test_a_nonzero_exit_code_fails_the_job(user: User) -> None:
    user.apply(job("failing", "exit 7"))
    assert user.over("failing") == "Failed"
    ended = user.status("failing")["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (7, "Error")


def test_files_of_plugins_and_volumes_are_mounted(user: User) -> None:
    """At their true paths; below ``$STROM_POD_ROOT`` where there are no namespaces."""
    mounts = [{"name": "scratch", "mountPath": "/strom-scratch"}]
    init = {
        "name": "prepare",
        "image": "busybox",
        "command": ["sh", "-c", "echo prepared > $STROM_POD_ROOT/strom-scratch/file"],
        "volumeMounts": mounts,
    }
    script = "cd $STROM_POD_ROOT/; cat strom-scratch/file etc/volcano/work.host; echo; ls root/.ssh"
    pod = {"initContainers": [init], "volumes": [{"name": "scratch", "emptyDir": {}}]}
    user.apply(job("files", script, pod=pod, container={"volumeMounts": mounts}))
    assert user.over("files") == "Completed"
    assert user.log("files-work-0").split() == [
        "prepared",
        "files-work-0.files",
        "authorized_keys",
        "config",
        "id_rsa",
        "id_rsa.pub",
    ]


@pytest.mark.parametrize("name", ["ring", "mpi", "pytorch"])
def test_an_example_finds_its_peers_by_name_and_finishes(user: User, name: str) -> None:
    said = {"ring": "sums are right", "mpi": "collected 2 ranks", "pytorch": "y = 3.00 x"}
    pod = {"ring": "ring-worker-3", "mpi": "mpi-mpimaster-0", "pytorch": "pytorch-worker-1"}
    user.apply(*(each for each, _ in documents.read((EXAMPLES / f"{name}.yaml").read_text())))
    assert user.over(name) == "Completed"
    assert said[name] in user.log(pod[name])


def test_a_container_restarts_in_its_pod_according_to_its_policy(user: User) -> None:
    mounts = [{"name": "scratch", "mountPath": "/strom-scratch"}]
    script = (
        "cd $STROM_POD_ROOT/strom-scratch; [ -e once ] && exec echo second; "
        "touch once; echo first; exit 1"
    )
    pod = {"restartPolicy": "OnFailure", "volumes": [{"name": "scratch", "emptyDir": {}}]}
    user.apply(job("again", script, pod=pod, container={"volumeMounts": mounts}))
    assert user.over("again") == "Completed"
    assert user.status("again")["restartCount"] == 1
    assert user.log("again-work-0") == "second\n"
    assert user.log("again-work-0", previous="true") == "first\n"


STUBBORN = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 987' &); echo on; sleep 987"


def test_a_stopped_job_leaves_no_process_behind(user: User) -> None:
    """Nor forks in sessions of their own, which ignore SIGTERM."""
    user.apply(job("stubborn", STUBBORN, pod={"terminationGracePeriodSeconds": 1}))
    user.until(lambda: user.phase("stubborn"), lambda phase: phase == "Running")
    (pod,) = user.pods("stubborn")
    path = f"/v1/namespaces/default/pods/{pod['metadata']['name']}/log"
    with user.http.stream("GET", path, params={"follow": "true"}) as answer:
        chunks = answer.iter_text()
        assert next(chunks) == "on\n"
        assert alive(pod) != []
        command = {"action": "AbortJob"}
        user.http.post("/v1/namespaces/default/jobs/stubborn/commands", json=command)
        assert "".join(chunks) == ""
    assert user.over("stubborn") == "Aborted"
    user.until(lambda: alive(pod), lambda found: found == [])


def test_a_command_can_handle_the_termination_signal(user: User) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo on; while sleep 0.1; do :; done"
    user.apply(job("polite", script))
    user.until(lambda: user.phase("polite"), lambda phase: phase == "Running")
    path = "/v1/namespaces/default/pods/polite-work-0/log"
    with user.http.stream("GET", path, params={"follow": "true"}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "on"
        user.http.delete("/v1/namespaces/default/jobs/polite").raise_for_status()
        assert list(lines) == ["bye"]


def test_a_container_over_its_memory_limit_is_killed_for_it(user: User) -> None:
    hungry = (
        f"exec {sys.executable} -S -c 'kept = bytearray(200 << 20); import time; time.sleep(987)'"
    )
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    user.apply(job("hungry", hungry, container=limits))
    assert user.over("hungry") == "Failed"
    assert user.status("hungry")["state"]["terminated"]["reason"] == "OOMKilled"


def test_ignored_fields_are_reported_on_the_pod(user: User) -> None:
    user.apply(job("asking", "true", pod={"hostPID": True}))
    assert user.over("asking") == "Completed"
    (pod,) = user.pods("asking")
    said = {each["type"]: each for each in pod["status"]["conditions"]}
    assert "spec.hostPID" in said["stromboli.sh/Unheeded"]["message"]


def test_a_killed_node_ends_its_processes_and_its_jobs_are_retried(
    killable_system: KillableSystem,
) -> None:
    """Also with ``kill -9``, after which it cannot do anything any more."""
    user = User(killable_system.url)
    mounts = [{"name": "scratch", "mountPath": "/strom-scratch"}]
    script = f"cd $STROM_POD_ROOT/strom-scratch; [ -e once ] && exit 0; touch once; {STUBBORN}"
    pod = {"restartPolicy": "OnFailure", "volumes": [{"name": "scratch", "emptyDir": {}}]}
    user.apply(job("lasting", script, pod=pod, container={"volumeMounts": mounts}))
    path = "/v1/namespaces/default/pods/lasting-work-0/log"
    user.until(lambda: user.http.get(path).text, lambda text: text == "on\n")
    (before,) = user.pods("lasting")
    assert alive(before) != []
    killable_system.kill_controller()
    user.until(lambda: alive(before), lambda found: found == [])
    assert user.over("lasting") == "Completed"
    assert user.status("lasting")["restartCount"] == 1
    user.http.close()


def alive(pod: Document) -> list[int]:
    return launcher_client.processes_of(pod["metadata"]["uid"])
