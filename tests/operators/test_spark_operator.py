"""Kubeflow's Spark operator with its support for Volcano, installed by its own chart on two
kubelets: it creates a PodGroup for each application and runs spark-submit, whose driver creates the
executors."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.shared import keys
from stromboli.testkit.parts.container_images import SPARK
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.kubernetes import API_SERVICE_ADDRESS, API_SERVICE_PORT
from stromboli.testkit.parts.tools import KubeletTools, OperatorTool, Tools
from tests.charts.support import helm
from tests.e2e.support import kubelet_system, polling
from tests.e2e.support.kubelet_system import FOREVER, KubeletSystem, job, requests, shell
from tests.e2e.support.rest_user import Document, queue
from tests.operators.support import operator_processes

pytestmark = [pytest.mark.operators, pytest.mark.kubelet, pytest.mark.timeout(1200)]
CPU = "200m"
WITHIN_S = 300.0
HOME = "/opt/wheels/pyspark"
PI = f"local://{HOME}/examples/src/main/python/pi.py"
APPLICATION = "spark-pi-volcano"
ACCOUNT = "spark-spark-operator-spark"
"""The driver's, of the operator's chart."""
RESOURCE = "sparkapplications.sparkoperator.k8s.io"
SETTINGS = {
    # The operator's webhook would set it, which needs a Service that the API server reaches.
    "spark.kubernetes.scheduler.name": "volcano",
    # By address, since no kube-proxy runs and the tests' name server knows pods alone.
    "spark.kubernetes.driver.master": f"https://{API_SERVICE_ADDRESS}:{API_SERVICE_PORT}",
}


@pytest.fixture(scope="module")
def tool(operator_tools: dict[str, OperatorTool]) -> OperatorTool:
    """The built operator."""
    return operator_tools["spark-operator"]


@pytest.fixture(scope="module")
def system(
    real_tools: Tools,
    kubelet_tools: KubeletTools,
    tool: OperatorTool,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubeletSystem]:
    """A system with the operator, ready."""
    state = tmp_path_factory.mktemp("kubelets")
    options = KubeletOptions(images={SPARK: Path(kubelet_tools.spark_image)})
    controllers = ("deployment-controller", "replicaset-controller")
    with kubelet_system.running(state, real_tools, {}, options, controllers) as opened:
        opened.create(*installation(tool))
        opened.kubectl("rollout", "status", "deployment", "--timeout=180s")
        opened.user.apply(queue("spark"))
        yield opened


def installation(tool: OperatorTool) -> list[Document]:
    """The objects of the operator's chart. Its program is mounted from the machine into an image
    that has Spark, as its released image has both."""
    chart = tool.directory / "charts" / "spark-operator-chart"
    options = ("webhook.enable=false", "controller.batchScheduler.enable=true")
    words = [word for option in options for word in ("--set", option)]
    text = helm.run("template", "spark", str(chart), "--namespace", "default", *words)
    objects = [document for document in yaml.safe_load_all(text) if document]
    pod = helm.the_only(objects, "Deployment")["spec"]["template"]["spec"]
    pod["schedulerName"] = "volcano"
    # Spark needs a user with a name, and the image has root alone.
    pod["securityContext"] = {**pod.get("securityContext", {}), "runAsUser": 0}
    (container,) = pod["containers"]
    container["image"], container["command"] = SPARK, [f"/operator/{Path(tool.program).name}"]
    container["securityContext"]["runAsNonRoot"] = False
    settings = {"SPARK_HOME": HOME, "SPARK_SUBMIT_OPTS": "-Duser.home=/tmp"}
    container["env"] = [{"name": name, "value": value} for name, value in settings.items()]
    mount = {"name": "operator", "mountPath": "/operator", "readOnly": True}
    container.setdefault("volumeMounts", []).append(mount)
    volume = {"name": "operator", "hostPath": {"path": str(Path(tool.program).parent)}}
    pod.setdefault("volumes", []).append(volume)
    definitions = tool.files("charts/spark-operator-chart/crds")
    return [
        *(each for path in definitions for each in operator_processes.documents(path)),
        *objects,
    ]


def application(tool: OperatorTool, name: str) -> Document:
    """The operator's own example for Volcano, with our image, small requests and a queue."""
    (found,) = operator_processes.documents(tool.directory / "examples" / f"{APPLICATION}.yaml")
    assert found["spec"]["batchScheduler"] == "volcano"
    found["metadata"]["name"] = name
    spec = found["spec"]
    del spec["mainClass"]
    program = {"type": "Python", "pythonVersion": "3", "mainApplicationFile": PI}
    spec |= {**program, "image": SPARK, "sparkVersion": "3.5.9", "arguments": ["20"]}
    spec |= {"sparkConf": SETTINGS, "batchSchedulerOptions": {"queue": "spark"}}
    for role in ("driver", "executor"):
        del spec[role]["securityContext"]
        spec[role]["coreRequest"] = CPU
    spec["driver"]["serviceAccount"] = ACCOUNT
    document: Document = found
    return document


def until(read: Callable[[], Any], wanted: Callable[[Any], object]) -> Any:
    """Poll until the value is as wanted: a Java machine starts for each submission, driver and
    executor, on a part of a CPU."""
    return polling.until(read, wanted, WITHIN_S)


def state(system: KubeletSystem, name: str) -> str:
    """The state of an application; empty before the operator has seen it."""
    status = system.get(RESOURCE, name).get("status", {})
    found: str = status.get("applicationState", {}).get("state", "")
    return found


def pods(system: KubeletSystem, name: str, role: str) -> list[Document]:
    """The pods of an application in a role."""
    selector = f"sparkoperator.k8s.io/app-name={name},spark-role={role}"
    found: list[Document] = system.get("pods", f"--selector={selector}").get("items", [])
    return found


def groups(system: KubeletSystem, application: str) -> list[Document]:
    """The PodGroups that an application owns."""
    found = system.get("podgroups.scheduling.volcano.sh").get("items", [])
    return [
        it
        for it in found
        if [owner["name"] for owner in it["metadata"].get("ownerReferences", [])] == [application]
    ]


def test_an_application_of_the_operator_runs_in_the_queue_that_it_names(
    system: KubeletSystem, tool: OperatorTool
) -> None:
    """The operator deletes the PodGroup at its end."""
    system.create(application(tool, "pi"))
    (group,) = until(
        lambda: groups(system, "pi"),
        lambda found: [it["status"].get("phase") for it in found] == ["Running"],
    )
    assert group["spec"]["queue"] == "spark"
    assert group["spec"]["minMember"] == 1
    executors = until(lambda: pods(system, "pi", "executor"), lambda found: len(found) == 2)
    (driver,) = pods(system, "pi", "driver")
    for pod in (driver, *executors):
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"][keys.GROUP_NAME] == group["metadata"]["name"]
    until(lambda: state(system, "pi"), lambda found: found == "COMPLETED")
    assert "Pi is roughly 3.1" in system.kubectl("logs", driver["metadata"]["name"])
    until(lambda: groups(system, "pi"), lambda found: not found)


def test_an_application_waits_until_driver_and_executors_have_room(
    system: KubeletSystem, tool: OperatorTool
) -> None:
    """The operator's PodGroup asks for room for all, so the driver alone does not start."""
    brief = {"terminationGracePeriodSeconds": 1}
    holds = job("holds", shell(FOREVER), pods=3, pod=brief, container=requests(cpu="500m"))
    system.user.submit(holds)
    system.user.comes_to("holds", "Running")
    system.create(application(tool, "waits"))
    (driver,) = until(lambda: pods(system, "waits", "driver"), bool)
    conditions = until(
        lambda: system.get("pod", driver["metadata"]["name"])["status"].get("conditions", []),
        bool,
    )
    assert [(it["type"], it["status"]) for it in conditions] == [("PodScheduled", "False")]
    assert pods(system, "waits", "executor") == []
    system.user.delete("holds")
    until(lambda: state(system, "waits"), lambda found: found == "COMPLETED")
