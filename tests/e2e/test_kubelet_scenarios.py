"""What users run, in real containers: job plugins, elasticity, arrays, flows, crons, and failures
of images and nodes. The last test kills a node."""

import json
from collections.abc import Iterator

import pytest

from stromboli.shared.api import kinds
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import FOREVER, KubeletSystem, job, requests, shell, spec
from tests.e2e.support.rest_user import Document

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(300)]
ONE_SECOND = {"terminationGracePeriodSeconds": 1}
SMALL = requests(cpu="100m")
PORT = 9000
FLOW = "flow.volcano.sh/v1alpha1"


@pytest.fixture(scope="module")
def system(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletSystem]:
    with kubelet_system.running(tmp_path_factory.mktemp("kubelets"), real_tools, {}) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _round(system: KubeletSystem, kubelet_round: int) -> None:
    system.reset()


def template(name: str, content: Document) -> Document:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": FLOW, "kind": "JobTemplate", "metadata": metadata, "spec": content}


def names(system: KubeletSystem, prefix: str) -> list[str]:
    return [name for name in system.user.names() if name.startswith(prefix)]


def test_a_gang_of_eight_knows_its_members_by_files_and_variables(system: KubeletSystem) -> None:
    """The plugins `svc` and `env`: each container reads the same list of hosts, and its index. The
    gang needs both nodes."""
    script = 'echo "$VC_TASK_INDEX:$VC_WORK_NUM:$(hostname):$(cat /etc/volcano/work.host)"'
    plugins: Document = {"svc": [], "env": []}
    fields = {"container": requests(cpu="150m"), "plugins": plugins}
    system.user.submit(job("eight", shell(script), pods=8, **fields))
    system.user.comes_to("eight", "Completed")
    output = system.strom("job", "logs", "eight", "--no-prefix")
    hosts = [f"eight-work-{index}.eight" for index in range(8)]
    assert all(host in output for host in hosts)
    first = {line for line in output.splitlines() if ":8:" in line}
    assert {line.split(":")[0] for line in first} == {str(index) for index in range(8)}
    assert {line.split(":")[2] for line in first} == {host.split(".")[0] for host in hosts}
    assert {pod["spec"]["nodeName"] for pod in system.user.pods("eight")} == {
        "kubelet-0",
        "kubelet-1",
    }


def test_logs_and_exec_of_strom_reach_the_container(system: KubeletSystem) -> None:
    script = f"echo the answer is 42; {FOREVER}"
    system.user.submit(job("talks", shell(script), pod=ONE_SECOND))
    (pod,) = system.user.until(lambda: system.running("talks"), bool)
    assert "the answer is 42" in system.user.until(
        lambda: system.strom("job", "logs", "talks"), bool
    )
    assert system.strom("job", "exec", "talks", "--", "hostname").strip() == pod["metadata"]["name"]
    system.user.delete("talks")


def test_an_elastic_job_grows_and_shrinks_while_it_runs(system: KubeletSystem) -> None:
    """Four halves of a CPU have room; those above the minimum go first when it is scaled down."""
    fields = {"minAvailable": 2, "pod": ONE_SECOND, "container": requests(cpu="400m")}
    system.user.submit(job("elastic", shell(FOREVER), pods=2, **fields))
    system.user.until(lambda: system.running("elastic"), lambda pods: len(pods) == 2)
    system.strom("job", "scale", "elastic", "--replicas", "4")
    before = system.user.until(lambda: system.running("elastic"), lambda pods: len(pods) == 4)
    system.strom("job", "scale", "elastic", "--replicas", "2")
    after = system.user.until(lambda: system.running("elastic"), lambda pods: len(pods) == 2)
    kept = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in before}
    assert {pod["metadata"]["name"] for pod in after} == {"elastic-work-0", "elastic-work-1"}
    assert all(kept[pod["metadata"]["name"]] == pod["metadata"]["uid"] for pod in after)
    system.user.delete("elastic")


def test_a_finished_job_is_deleted_with_its_pods_after_its_time_to_live(
    system: KubeletSystem,
) -> None:
    system.user.submit(job("brief", shell("echo done"), ttlSecondsAfterFinished=1))
    system.user.until(system.user.names, lambda found: "brief" in found)
    system.user.until(system.user.names, lambda found: "brief" not in found)
    left = lambda: system.kubectl("get", "pods", "--output=name")  # noqa: E731 - read twice
    system.user.until(left, lambda found: "pod/brief-" not in found)


def test_an_array_runs_each_index_once_and_retries_those_that_fail(system: KubeletSystem) -> None:
    """Index 3 always fails; the others print their result."""
    script = 'i=$STROM_ARRAY_INDEX; test $i != 3 && echo "result $i:$((i * i))"'
    array = {"indexes": "0-5", "maxRetries": 1}
    system.user.submit(
        job("squares", shell(script), pods=3, minAvailable=0, container=SMALL, array=array)
    )
    status = system.user.until(
        lambda: system.user.status("squares"),
        lambda found: found.get("state", {}).get("phase") in ("Completed", "Failed"),
    )
    assert status["state"]["phase"] == "Failed"
    assert status["array"] == {"succeeded": "0-2,4-5", "failed": "3"}
    output = system.strom("job", "logs", "squares", "--no-prefix")
    wanted = {f"result {index}:{index * index}" for index in (0, 1, 2, 4, 5)}
    assert {line for line in output.splitlines() if "result" in line} == wanted
    ended = system.user.until(
        lambda: system.tasks("squares"),
        lambda found: all(each.get("exitCode") is not None for each in found),
    )
    exits = sorted((each["index"], each["exitCode"]) for each in ended)
    assert exits == [(0, 0), (1, 0), (2, 0), (3, 1), (3, 1), (4, 0), (5, 0)]


def test_cancelled_indexes_of_an_array_end_and_the_others_run_on(system: KubeletSystem) -> None:
    """Index 3 runs when it is cancelled; 7 to 9 wait, and never start. The first four indexes run
    until the test has written a file in their containers."""
    script = (
        "trap 'exit 5' TERM; i=$STROM_ARRAY_INDEX; "
        "until test $i -gt 3 -o -e /tmp/go; do sleep 0.2; done; echo result $i"
    )
    array = {"indexes": "0-9"}
    system.user.submit(
        job("sweep", shell(script), pods=4, minAvailable=0, container=SMALL, array=array)
    )
    system.user.until(lambda: system.running("sweep"), lambda pods: len(pods) == 4)
    system.strom("job", "cancel", "sweep[3,7-9]")
    system.user.until(
        lambda: system.user.status("sweep").get("array", {}).get("succeeded"),
        lambda found: found == "4-6",
    )
    for index in range(3):
        system.strom("job", "exec", f"sweep[{index}]", "--", "sh", "-c", "echo >/tmp/go")
    assert system.user.comes_to("sweep", "Completed")["array"] == {"succeeded": "0-2,4-6"}
    found = {each["index"]: each for each in system.tasks("sweep")}
    assert found.keys() == set(range(7))
    assert found[3]["reason"] == "Cancelled"
    assert "result 5" in system.strom("job", "logs", "sweep[5]")


def test_a_flow_starts_a_job_when_the_port_of_the_one_before_takes_connections(
    system: KubeletSystem,
) -> None:
    """The controller connects to the address that the container has on its node's network."""
    listen = f"sleep 2; while true; do nc -l -p {PORT} </dev/null; done"
    probe = {"tcpSocketList": [{"taskName": "work", "port": PORT}]}
    flows = [
        {"name": "serve"},
        {"name": "use", "dependsOn": {"targets": ["serve"], "probe": probe}},
    ]
    flow = {
        "apiVersion": FLOW,
        "kind": "JobFlow",
        "metadata": {"name": "night", "namespace": "default"},
        "spec": {"flows": flows, "jobRetainPolicy": "retain"},
    }
    server = spec(shell(listen), container=SMALL, pod=ONE_SECOND)
    client = spec(shell("echo used"), container=SMALL)
    system.user.apply(template("serve", server), template("use", client), flow)
    system.user.until(lambda: names(system, "night-"), lambda found: "night-use" in found)
    system.user.comes_to("night-use", "Completed")
    (serving,) = system.running("night-serve")
    (used,) = system.user.pods("night-use")
    started = kubelet_system.moment(system.container(serving)["state"]["running"]["startedAt"])
    created = kubelet_system.moment(used["metadata"]["creationTimestamp"])
    assert (created - started).total_seconds() >= 1
    system.kubectl("delete", "jobflows.flow.volcano.sh", "night")
    system.user.until(lambda: names(system, "night-"), lambda found: not found)


def test_a_cron_runs_a_job_at_each_of_its_times(system: KubeletSystem) -> None:
    cron = {
        "apiVersion": kinds.JOBS.api_version,
        "kind": "CronJob",
        "metadata": {"name": "often", "namespace": "default"},
        "spec": {
            "schedule": "@every 4s",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": spec(shell("echo ran"), container=SMALL)},
        },
    }
    system.user.apply(cron)
    completed = lambda: [  # noqa: E731 - read until two
        name for name in names(system, "often-") if system.user.phase(name) == "Completed"
    ]
    done = system.user.until(completed, lambda found: len(found) >= 2)
    assert "ran" in system.strom("job", "logs", done[0])
    system.kubectl("delete", "cronjobs.batch.volcano.sh", "often")


def test_an_image_that_cannot_be_pulled_is_named_as_the_reason(system: KubeletSystem) -> None:
    """The job waits, and says what for; its deletion ends the attempts to pull."""
    absent = {"image": "localhost:1/stromboli/absent:1"}
    system.user.submit(job("absent", shell("true"), container=absent, pod=ONE_SECOND))
    shown = system.user.until(
        lambda: system.strom("explain", "absent"),
        lambda found: "ErrImagePull" in found or "ImagePullBackOff" in found,
    )
    assert "localhost:1/stromboli/absent:1" in shown
    system.user.delete("absent")
    system.user.until(system.user.names, lambda found: "absent" not in found)


def test_a_job_is_restarted_when_its_lost_node_is_back(system: KubeletSystem) -> None:
    """While the node is away, it is unknown whether its container still runs: the pod is deleted,
    stays, and no second one starts beside it."""
    key = "node.kubernetes.io/unreachable"
    tolerated = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    pod = {"tolerations": [tolerated], **ONE_SECOND}
    policies = [{"event": "NodeLost", "action": "RestartJob"}]
    system.user.submit(job("survivor", shell(FOREVER), pod=pod, policies=policies))
    (first,) = system.user.until(lambda: system.running("survivor"), bool)
    node = first["spec"]["nodeName"]
    system.kill_node(node)
    going = lambda: json.loads(  # noqa: E731 - polled
        system.kubectl("get", "pod", first["metadata"]["name"], "--output=json")
    )["metadata"]
    deleted = system.user.until(going, lambda found: "deletionTimestamp" in found)
    assert deleted["uid"] == first["metadata"]["uid"]
    assert system.user.pods("survivor") == []
    system.start_node(node)
    system.user.until(
        lambda: [pod["metadata"]["uid"] for pod in system.running("survivor")],
        lambda uids: uids and uids != [first["metadata"]["uid"]],
    )
    reasons = [each["reason"] for each in system.tasks("survivor")]
    assert "NodeLost" in reasons
    system.user.delete("survivor")
