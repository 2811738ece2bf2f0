"""Jobs in real containers: two real kubelets with containerd and the four services.

Simulated nodes report what an annotation contains; here exit codes, signals, the OOM killer, logs
and exec are those of the kernel, containerd and the kubelet.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import FOREVER, NODES, KubeletSystem, job, moment, shell

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(300)]
GRACE_S = 120
ENDING_S = 2.0
"""How long the preempted container takes to end after SIGTERM: far less than its grace period."""


@pytest.fixture(scope="module")
def system(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletSystem]:
    state = tmp_path_factory.mktemp("kubelets")
    environment = kubelet_system.preempting(state)
    with kubelet_system.running(state, real_tools, environment) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _round(system: KubeletSystem, kubelet_round: int) -> None:
    system.reset()


def test_a_gang_of_three_runs_at_the_same_time_and_completes(system: KubeletSystem) -> None:
    """Three halves of a CPU need both nodes."""
    system.user.submit(job("gang", shell("sleep 4; echo done"), pods=3))
    system.user.comes_to("gang", "Completed")
    pods = system.user.pods("gang")
    assert {pod["spec"]["nodeName"] for pod in pods} == {"kubelet-0", "kubelet-1"}
    ended = [system.container(pod)["state"]["terminated"] for pod in pods]
    assert [each["exitCode"] for each in ended] == [0, 0, 0]
    assert max(moment(each["startedAt"]) for each in ended) < min(
        moment(each["finishedAt"]) for each in ended
    )


def test_a_gang_that_fits_is_created_on_its_nodes_and_looks_as_if_it_were_bound(
    system: KubeletSystem,
) -> None:
    """One write for each pod: no Binding. The kubelets set the condition `PodScheduled`, and the
    controller writes the `Scheduled` Events, as after a Binding."""
    before = system.bindings()
    system.user.submit(job("created-bound", shell("sleep 1"), pods=3))
    system.user.comes_to("created-bound", "Completed")
    assert system.bindings() == before
    for pod in system.user.pods("created-bound"):
        assert keys.DECISION in pod["metadata"]["annotations"]
        conditions = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
        assert conditions["PodScheduled"] == "True"
    found = system.user.until(
        lambda: system.kubectl("get", "events", "--field-selector=reason=Scheduled", "-o=name"),
        lambda names: names.count("created-bound-work-") >= 3,
    )
    assert found


def test_a_gang_that_waits_has_pending_pods_and_is_bound_when_there_is_room(
    system: KubeletSystem,
) -> None:
    """Autoscalers and users see what waits."""
    brief = {"terminationGracePeriodSeconds": 1}
    more = {"resources": {"requests": {"cpu": "600m"}}}
    system.user.submit(job("holds", shell(FOREVER), pods=NODES, pod=brief, container=more))
    system.user.comes_to("holds", "Running")
    # Within the queue's share of both nodes, but 400m are free on each.
    system.user.submit(job("waits", shell("sleep 1")))
    (waiting,) = system.user.until(lambda: system.user.pods("waits"), bool)
    assert "nodeName" not in waiting["spec"]
    assert waiting["status"]["phase"] == "Pending"
    before = system.bindings()
    system.user.delete("holds")
    system.user.comes_to("waits", "Completed")
    assert system.bindings() == before + 1


def test_logs_and_exec_reach_the_container(system: KubeletSystem) -> None:
    """Through the API server, which authenticates at the kubelet with its client certificate."""
    brief = {"terminationGracePeriodSeconds": 1}
    system.user.submit(job("talks", shell(f"echo the answer is 42; {FOREVER}"), pod=brief))
    system.user.comes_to("talks", "Running")
    (pod,) = system.user.pods("talks")
    name = pod["metadata"]["name"]
    lines = system.user.until(lambda: system.user.strom("job", "logs", "talks"), bool)
    assert "the answer is 42" in lines
    assert system.kubectl("exec", name, "--", "hostname").strip() == name
    assert system.strom("job", "exec", "talks", "--", "hostname").strip() == name
    system.user.delete("talks")


def test_an_exit_code_policy_acts_on_the_containers_exit_code(system: KubeletSystem) -> None:
    policies = [
        {"exitCode": 7, "action": "CompleteJob"},
        {"event": "PodFailed", "action": "TerminateJob"},
    ]
    system.user.submit(job("known-code", shell("sleep 1; exit 7"), policies=policies))
    system.user.submit(job("other-code", shell("sleep 1; exit 8"), policies=policies))
    system.user.comes_to("known-code", "Completed")
    system.user.comes_to("other-code", "Terminated")


def test_a_container_over_its_memory_limit_is_oom_killed_and_its_policy_applies(
    system: KubeletSystem,
) -> None:
    """The kernel kills it, containerd reports it, and the job's policy names the event."""
    dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"]
    limits = {"resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "24Mi"}}}
    policies = [
        {"event": "OOMKilled", "action": "RestartPod", "maxRetries": 1},
        {"event": "PodFailed", "action": "TerminateJob"},
    ]
    system.user.submit(job("hungry", dd, container=limits, policies=policies))
    system.user.comes_to("hungry", "Terminated")
    # The job's phase is read from the API server, attempts from the log.
    found = system.user.until(
        lambda: system.tasks("hungry"), lambda tasks: all(each["reason"] for each in tasks)
    )
    assert [(each["attempt"], each["reason"]) for each in found] == [
        (1, "OOMKilled"),
        (2, "OOMKilled"),
    ]
    assert [each["exitCode"] for each in found] == [137, 137]


def test_a_preempted_container_gets_sigterm_and_its_grace_period(system: KubeletSystem) -> None:
    """It ends by its own handler, before the grace period is over. Its job needs one pod of two:
    a gang is never preempted below its minimum."""
    system.user.apply(
        {
            "apiVersion": kinds.PRIORITY_CLASSES.api_version,
            "kind": kinds.PRIORITY_CLASSES.kind,
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
    )
    script = f"trap 'sleep {ENDING_S}; exit 0' TERM; {FOREVER}"
    grace = {"terminationGracePeriodSeconds": GRACE_S}
    whole = {"resources": {"requests": {"cpu": "1"}}}
    ends = [{"event": "PodEvicted", "action": "TerminateJob"}]
    fields: dict[str, Any] = {"pod": grace, "container": whole, "policies": ends}
    system.user.submit(job("victim", shell(script), pods=NODES, minAvailable=1, **fields))
    system.user.until(
        lambda: [pod["status"].get("phase") for pod in system.user.pods("victim")],
        lambda phases: phases == ["Running"] * NODES,
    )
    # Within the factor 1.2 of the cluster's CPUs up to which the plugin overcommit enqueues gangs.
    small = {"resources": {"requests": {"cpu": "300m"}}}
    urgent = job("urgent", shell("sleep 1"), container=small, priorityClassName="urgent")
    before = time.monotonic()
    system.user.submit(urgent)
    system.user.comes_to("urgent", "Completed")
    assert time.monotonic() - before > ENDING_S
    attempts = system.user.until(
        lambda: [it for it in system.tasks("victim") if it["reason"] == "Preempted"], bool
    )
    assert [it["exitCode"] for it in attempts] == [0], "that of its handler, not of SIGKILL"
    assert keys.DECISION in system.user.pods("urgent")[0]["metadata"]["annotations"]


def test_nodes_leave_nothing_behind_outside_of_them(system: KubeletSystem) -> None:
    """Mounts and processes are in namespaces of their own."""
    assert "kubelet-0" in system.user.nodes()
    mounts = Path("/proc/self/mounts").read_text()
    assert "/kubelet-0/" not in mounts
    assert "kube-api-access" not in mounts
