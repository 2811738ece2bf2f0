"""Spark on Kubernetes as it is: spark-submit creates the driver, the driver its executors, and all
of them name our scheduler and one PodGroup. The containers are Spark's own, on two kubelets."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit.parts.container_images import SPARK
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.kubernetes import API_SERVICE_ADDRESS, API_SERVICE_PORT
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import FOREVER, KubeletSystem, job, requests, shell
from tests.e2e.support.rest_user import Document

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(900)]
SERVER = f"k8s://https://{API_SERVICE_ADDRESS}:{API_SERVICE_PORT}"
"""By address, since no kube-proxy runs and the tests' name server knows pods alone."""
CPU = "200m"
ACCOUNT = "spark"
RIGHTS = f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {ACCOUNT}, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {ACCOUNT}, namespace: default}}
rules:
- apiGroups: [""]
  resources: [pods, services, configmaps, persistentvolumeclaims]
  verbs: [create, get, list, watch, update, patch, delete, deletecollection]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {ACCOUNT}, namespace: default}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {ACCOUNT}}}
subjects:
- {{kind: ServiceAccount, name: {ACCOUNT}, namespace: default}}
"""
PI = "local:///opt/wheels/pyspark/examples/src/main/python/pi.py"
SLOW = """
import sys, time
from pyspark.sql import SparkSession

def work(number):
    time.sleep(1)
    return number

spark = SparkSession.builder.getOrCreate()
total = spark.sparkContext.parallelize(range(int(sys.argv[1])), int(sys.argv[1])).map(work).sum()
print("total", total, flush=True)
spark.stop()
"""


@pytest.fixture(scope="module")
def system(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletSystem]:
    state = tmp_path_factory.mktemp("kubelets")
    environment = kubelet_system.preempting(state)
    options = KubeletOptions(images={SPARK: Path(kubelet_tools.spark_image)})
    with kubelet_system.running(state, real_tools, environment, options) as opened:
        rights = state / "rights.yaml"
        rights.write_text(RIGHTS)
        opened.kubectl("apply", "--filename", str(rights))
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _round(system: KubeletSystem, kubelet_round: int) -> None:
    system.kubectl("delete", "pods,podgroups.scheduling.volcano.sh", "--all")
    system.reset()


def pod_group(name: str, cpu: str) -> Document:
    """What Spark's own support for Volcano creates: room for all, a gang of the driver alone, since
    the driver creates the executors only once it runs."""
    return {
        "apiVersion": kinds.POD_GROUPS.api_version,
        "kind": kinds.POD_GROUPS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": 1, "minResources": {"cpu": cpu}, "queue": "default"},
    }


def submit(system: KubeletSystem, name: str, program: str, *more: str, executors: int = 2) -> None:
    """Run spark-submit in the cluster, as a job of ours; it ends when the driver exists."""
    settings = {
        "spark.kubernetes.container.image": SPARK,
        "spark.kubernetes.driver.pod.name": f"{name}-driver",
        "spark.kubernetes.authenticate.driver.serviceAccountName": ACCOUNT,
        "spark.kubernetes.driver.master": SERVER.removeprefix("k8s://"),
        "spark.kubernetes.scheduler.name": "volcano",
        "spark.kubernetes.driver.annotation." + keys.GROUP_NAME: name,
        "spark.kubernetes.executor.annotation." + keys.GROUP_NAME: name,
        "spark.kubernetes.driver.request.cores": CPU,
        "spark.kubernetes.executor.request.cores": CPU,
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": str(executors),
    }
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    mode = ["spark-submit", "--master", SERVER, "--deploy-mode", "cluster", "--name", name]
    fields: Document = {
        "container": {"image": SPARK, "args": [*mode, *words, *more[:-1], program, *more[-1:]]},
        "pod": {"serviceAccountName": ACCOUNT},
    }
    submitting = job(f"{name}-submit", [], **fields)
    (task,) = submitting["spec"]["tasks"]
    (container,) = task["template"]["spec"]["containers"]
    del container["command"]
    container.update(requests(cpu=CPU))
    system.user.submit(submitting)
    ended = ("Completed", "Failed")
    phase = system.user.until(
        lambda: system.user.phase(submitting["metadata"]["name"]), lambda found: found in ended
    )
    assert phase == "Completed", system.strom("job", "logs", submitting["metadata"]["name"])


def pods(system: KubeletSystem, group: str, role: str) -> list[Document]:
    """The pods of Spark in a PodGroup."""
    found = system.kubectl("get", "pods", f"--selector=spark-role={role}", "--output=json")
    return [
        pod
        for pod in json.loads(found)["items"]
        if pod["metadata"]["annotations"].get(keys.GROUP_NAME) == group
    ]


def phase(system: KubeletSystem, pod: str) -> str:
    """A pod's phase."""
    return system.kubectl("get", "pod", pod, "--output=jsonpath={.status.phase}")


def test_driver_and_executors_run_when_there_is_room_for_all_of_them(
    system: KubeletSystem,
) -> None:
    """The driver waits as long as its executors would find no room, so it does not hold a CPU for
    nothing."""
    more = {"resources": {"requests": {"cpu": "500m"}}}
    brief = {"terminationGracePeriodSeconds": 1}
    system.user.submit(job("holds", shell(FOREVER), pods=3, pod=brief, container=more))
    system.user.comes_to("holds", "Running")
    system.user.apply(pod_group("pi", "600m"))
    submit(system, "pi", PI, "20")
    system.user.until(
        lambda: system.kubectl("get", "pod", "pi-driver", "--output=json"),
        lambda found: "PodScheduled" in found,
    )
    assert phase(system, "pi-driver") == "Pending"
    system.user.delete("holds")
    system.user.until(lambda: pods(system, "pi", "executor"), lambda found: len(found) == 2)
    assert {pod["spec"]["schedulerName"] for pod in pods(system, "pi", "executor")} == {"volcano"}
    system.user.until(lambda: phase(system, "pi-driver"), lambda found: found == "Succeeded")
    assert "Pi is roughly 3.1" in system.kubectl("logs", "pi-driver")
    assert all(
        keys.DECISION in pod["metadata"]["annotations"] for pod in pods(system, "pi", "driver")
    )


def test_an_application_with_dynamic_allocation_survives_a_preempted_executor(
    system: KubeletSystem, tmp_path: Path
) -> None:
    """An urgent gang takes the room of an executor; Spark runs its tasks elsewhere."""
    system.user.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        },
        pod_group("slow", "200m"),
    )
    (tmp_path / "slow.py").write_text(SLOW)
    volume = "spark.kubernetes.driver.volumes.hostPath.program"
    dynamic = {
        f"{volume}.mount.path": "/program",
        f"{volume}.options.path": str(tmp_path),
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "3",
        "spark.kubernetes.executor.request.cores": "500m",
    }
    words = [word for key, value in dynamic.items() for word in ("--conf", f"{key}={value}")]
    submit(system, "slow", "local:///program/slow.py", *words, "60", executors=1)
    running = system.user.until(
        lambda: [
            pod for pod in pods(system, "slow", "executor") if pod["status"]["phase"] == "Running"
        ],
        lambda found: len(found) == 3,
    )
    more = {"resources": {"requests": {"cpu": "500m"}}}
    system.user.submit(job("urgent", shell("sleep 3"), container=more, priorityClassName="urgent"))
    system.user.comes_to("urgent", "Completed")
    names = {pod["metadata"]["name"] for pod in running}
    left = {pod["metadata"]["name"] for pod in pods(system, "slow", "executor")}
    assert names - left, "no executor was preempted"
    system.user.until(lambda: phase(system, "slow-driver"), lambda found: found == "Succeeded")
    assert f"total {sum(range(60))}" in system.kubectl("logs", "slow-driver")
