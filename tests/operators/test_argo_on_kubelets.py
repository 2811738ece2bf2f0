"""Argo Workflows with steps in real containers: its controller, and its executor in each pod."""

import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from stromboli.testkit.parts.container_images import BUSYBOX
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.tools import KubeletTools, OperatorTool, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import KubeletSystem
from tests.operators.support.operator_processes import ArgoWorkflows

Document = dict[str, Any]
pytestmark = [pytest.mark.operators, pytest.mark.kubelet, pytest.mark.timeout(420)]
ENDED = ("Succeeded", "Failed", "Error")
SWEEP = f"""
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata:
  name: sweep
  namespace: default
spec:
  entrypoint: all
  schedulerName: volcano
  podMetadata:
    labels:
      volcano.sh/queue-name: research
    annotations:
      scheduling.volcano.sh/group-min-member: "2"
  templates:
  - name: all
    steps:
    - - name: trial
        template: trial
        withItems: [a, b]
  - name: trial
    container:
      image: {BUSYBOX}
      command: [sh, -c, "echo trial; sleep 2"]
      resources: {{requests: {{cpu: 600m}}}}
"""
"""The pattern of docs/operators.md: steps that start together, each too big to share a node."""
TRAIN = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata:
  name: NAME
  namespace: default
spec:
  entrypoint: train
  schedulerName: volcano
  templates:
  - name: train
    resource:
      action: create
      setOwnerReference: true
      successCondition: status.state.phase == Completed
      failureCondition: status.state.phase in (Failed, Aborted, Terminated)
      manifest: |
        apiVersion: batch.volcano.sh/v1alpha1
        kind: Job
        metadata:
          name: NAME
        spec:
          minAvailable: 2
          tasks:
          - name: worker
            replicas: 2
            template:
              spec:
                restartPolicy: Never
                containers:
                - name: main
                  image: IMAGE
                  command: [sh, -c, "sleep 1; exit EXIT"]
                  resources: {requests: {cpu: 100m}}
"""
JOBS_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: stromboli-jobs
  namespace: default
rules:
- apiGroups: [batch.volcano.sh]
  resources: [jobs]
  verbs: [create, get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: stromboli-jobs
  namespace: default
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: stromboli-jobs}
subjects:
- {kind: ServiceAccount, name: default, namespace: default}
"""
QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: research
spec:
  weight: 1
"""


@pytest.fixture(scope="module")
def system(
    real_tools: Tools,
    kubelet_tools: KubeletTools,
    operator_tools: dict[str, OperatorTool],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubeletSystem]:
    """A system with two nodes that have the executor's image, and Argo's controller."""
    tool = operator_tools["argo-workflows"]
    image = tmp_path_factory.mktemp("image") / "argoexec.tar"
    with tarfile.open(image, "w") as root:
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        root.addfile(folder)
        root.add(tool.directory / "argoexec", "bin/argoexec")
    options = KubeletOptions(images={ArgoWorkflows.EXECUTOR: image})
    state = tmp_path_factory.mktemp("kubelets")
    with (
        kubelet_system.running(state, real_tools, {}, options) as opened,
        opened.part(ArgoWorkflows(tool, tmp_path_factory.mktemp("argo"), opened.server)),
    ):
        opened.create(*yaml.safe_load_all(JOBS_ROLE))
        yield opened


def ended(system: KubeletSystem, workflow: str) -> Document:
    """The status of a workflow when it has ended."""
    found: Document = system.user.until(
        lambda: system.get("workflows.argoproj.io", workflow).get("status", {}),
        lambda status: status.get("phase") in ENDED,
    )
    return found


def test_steps_of_a_workflow_start_as_a_gang_in_the_queue_that_it_names(
    system: KubeletSystem,
) -> None:
    system.create(*yaml.safe_load_all(QUEUE))
    system.create(*yaml.safe_load_all(SWEEP))
    assert ended(system, "sweep")["phase"] == "Succeeded"
    (group,) = (
        each
        for each in system.get("podgroups.scheduling.volcano.sh")["items"]
        if each["metadata"]["ownerReferences"][0]["name"] == "sweep"
    )
    pods = system.get("pods", "--selector=workflows.argoproj.io/workflow=sweep")["items"]
    assert group["spec"]["minMember"] == 2
    assert group["spec"]["queue"] == "research"
    assert {pod["spec"]["nodeName"] for pod in pods} == {"kubelet-0", "kubelet-1"}
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded", "Succeeded"]


@pytest.mark.parametrize(
    ("name", "exit_code", "workflow", "job"),
    [("train", 0, "Succeeded", "Completed"), ("broken", 3, "Failed", "Failed")],
)
def test_a_step_that_creates_a_job_ends_as_the_job_ends(
    system: KubeletSystem, name: str, exit_code: int, workflow: str, job: str
) -> None:
    text = TRAIN.replace("NAME", name).replace("EXIT", str(exit_code)).replace("IMAGE", BUSYBOX)
    system.create(*yaml.safe_load_all(text))
    assert ended(system, name)["phase"] == workflow
    found = system.get("jobs.batch.volcano.sh", name)
    assert found["status"]["state"]["phase"] == job
    assert found["metadata"]["ownerReferences"][0]["kind"] == "Workflow"
