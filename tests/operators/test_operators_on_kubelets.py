"""Operators of others whose pods run in real containers: an MPIJob with OpenMPI's own mpirun over
ssh, and workflows of Argo whose pods and jobs are ours to schedule."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stromboli.shared import keys
from stromboli.testkit.parts.container_images import BUSYBOX, MPI
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.tools import KubeletTools, OperatorTool, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import KubeletSystem
from tests.e2e.support.rest_user import Document
from tests.operators.support.operator_processes import ArgoWorkflows, MpiOperator
from tests.operators.support.operator_system import condition

pytestmark = [pytest.mark.operators, pytest.mark.kubelet, pytest.mark.timeout(420)]
EXECUTOR = "localhost/argoproj/argoexec:1"
NODES = {"kubelet-0", "kubelet-1"}
GUIDE = Path(__file__).parents[2] / "docs" / "operators.md"
MPI_JOB = f"""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: ring
  namespace: default
spec:
  slotsPerWorker: 1
  runPolicy:
    cleanPodPolicy: Running
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: launcher
            image: {MPI}
            command:
            - mpirun
            - --allow-run-as-root
            - --mca
            - plm_rsh_args
            - -o StrictHostKeyChecking=no -o ConnectionAttempts=10
            - -n
            - "2"
            - python3
            - -c
            - |
              import time
              from mpi4py import MPI
              time.sleep(3)
              world = MPI.COMM_WORLD
              total = world.allreduce(world.rank + 1)
              print("rank", world.rank, "of", world.size, "sum", total, MPI.Get_processor_name())
            resources: {{requests: {{cpu: 100m}}}}
    Worker:
      replicas: 2
      template:
        spec:
          terminationGracePeriodSeconds: 1
          containers:
          - name: worker
            image: {MPI}
            command: [sh, -c, "mkdir -p /run/sshd && exec /usr/sbin/sshd -De -o StrictModes=no"]
            resources: {{requests: {{cpu: 600m}}}}
"""
"""As the operator's users write it: the keys, the list of hosts and the names are the operator's.
What its base images have in their files, options of ssh and sshd have here."""


@pytest.fixture(scope="module")
def executor_image(
    operator_tools: dict[str, OperatorTool], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The root file system of Argo's executor: its program and a folder for its files."""
    tar = tmp_path_factory.mktemp("executor") / "argoexec.tar"
    with tarfile.open(tar, "w") as layer:
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        layer.addfile(folder)
        program = operator_tools["argo-workflows"].directory / "argoexec"
        layer.add(program, "bin/argoexec")
    return tar


@pytest.fixture(scope="module")
def system(
    real_tools: Tools,
    kubelet_tools: KubeletTools,
    executor_image: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubeletSystem]:
    """A system with two nodes that have the images."""
    options = KubeletOptions(images={MPI: Path(kubelet_tools.mpi_image), EXECUTOR: executor_image})
    state = tmp_path_factory.mktemp("kubelets")
    with kubelet_system.running(state, real_tools, {}, options) as opened:
        yield opened


@pytest.fixture(scope="module")
def mpi_operator(
    system: KubeletSystem,
    operator_tools: dict[str, OperatorTool],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    state = tmp_path_factory.mktemp("mpi-operator")
    with system.part(MpiOperator(operator_tools["mpi-operator"], state, system.server)):
        yield


@pytest.fixture(scope="module")
def argo(
    system: KubeletSystem,
    operator_tools: dict[str, OperatorTool],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Argo's controller, and the rights of workflows as the guide and Argo's manifests have
    them."""
    tool = operator_tools["argo-workflows"]
    state = tmp_path_factory.mktemp("argo")
    with system.part(ArgoWorkflows(tool, state, system.server, EXECUTOR)):
        for file in tool.files("manifests/quick-start/base/executor"):
            system.kubectl("create", f"--filename={file}")
        grant(system, "executor")
        create(system, state, *(it for it in guide() if it["kind"] == "Role"))
        grant(system, "stromboli-jobs")
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
        create(system, state, {**queue, "metadata": {"name": "research"}})
        yield


def grant(system: KubeletSystem, role: str) -> None:
    """Give the account of workflows a role."""
    words = (f"--role={role}", "--serviceaccount=default:default")
    system.kubectl("create", "rolebinding", role, *words)


def create(system: KubeletSystem, folder: Path, *documents: Document) -> None:
    """Create objects."""
    file = folder / "objects.json"
    items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    file.write_text(json.dumps(items))
    system.kubectl("create", f"--filename={file}")


def guide() -> list[Document]:
    """The manifests of the guide's section on Argo."""
    section = GUIDE.read_text().split("\n## Argo Workflows\n")[1].split("\n## ")[0]
    blocks = [block.split("\n```")[0] for block in section.split("```yaml\n")[1:]]
    return [document for block in blocks for document in yaml.safe_load_all(block) if document]


def of_guide(name: str, script: str) -> Document:
    """A workflow of the guide whose containers run a script in an image that is on the nodes, with
    requests that fit."""
    (found,) = (
        it
        for it in guide()
        if name in (it["metadata"].get("name"), it["metadata"].get("generateName"))
    )
    for template in found["spec"]["templates"]:
        if "container" in template:
            template["container"] |= small(script)
        if "resource" in template:
            job = yaml.safe_load(template["resource"]["manifest"])
            (container,) = job["spec"]["tasks"][0]["template"]["spec"]["containers"]
            container |= small(script)
            template["resource"]["manifest"] = yaml.safe_dump(job)
    return found


def small(script: str) -> Document:
    """Fields of a container that runs a script."""
    requests = {"requests": {"cpu": "100m"}}
    return {"image": BUSYBOX, "command": ["sh", "-c", script], "resources": requests}


def get(system: KubeletSystem, *words: str) -> Document:
    """What ``kubectl get`` finds; empty if it does not exist."""
    text = system.kubectl("get", "--ignore-not-found", *words, "--output=json")
    found: Document = json.loads(text or "{}")
    return found


def phase_of(system: KubeletSystem, name: str) -> str:
    """The phase of a workflow with what it says about it."""
    status = get(system, "workflows.argoproj.io", name).get("status", {})
    return f"{status.get('phase', '')} {status.get('message', '')}".strip()


def pods_of(system: KubeletSystem, workflow: str) -> list[Document]:
    """The pods of a workflow."""
    items: list[Document] = get(
        system, "pods", f"--selector=workflows.argoproj.io/workflow={workflow}"
    )["items"]
    return items


def test_mpirun_of_an_mpijob_reaches_its_workers_on_two_nodes(
    system: KubeletSystem, mpi_operator: None, tmp_path: Path
) -> None:
    """The launcher is restarted until the names of the workers resolve. At its end the operator
    deletes the workers and the PodGroup."""
    create(system, tmp_path, yaml.safe_load(MPI_JOB))
    group = system.user.until(
        lambda: get(system, "podgroups.scheduling.volcano.sh", "ring"),
        lambda found: found.get("status", {}).get("phase") == "Running",
    )
    workers = get(system, "pods", "--selector=training.kubeflow.org/job-role=worker")["items"]
    assert group["spec"]["minMember"] == 3
    assert {pod["spec"]["nodeName"] for pod in workers} == NODES
    system.user.until(
        lambda: get(system, "mpijobs.kubeflow.org", "ring"),
        lambda found: condition(found, "Succeeded"),
    )
    output = system.kubectl("logs", "--selector=training.kubeflow.org/job-role=launcher")
    ranks = sorted(line for line in output.splitlines() if line.startswith("rank"))
    assert ranks == ["rank 0 of 2 sum 3 ring-worker-0", "rank 1 of 2 sum 3 ring-worker-1"]
    system.user.until(
        lambda: get(system, "pods", "--selector=training.kubeflow.org/job-role=worker")["items"],
        lambda found: not found,
    )
    system.user.until(
        lambda: get(system, "podgroups.scheduling.volcano.sh", "ring"), lambda found: not found
    )


def test_the_pods_of_a_workflow_are_a_gang_in_its_queue(
    system: KubeletSystem, argo: None, tmp_path: Path
) -> None:
    """The guide's workflow: its two pods start together."""
    create(system, tmp_path, of_guide("sweep", "sleep 2; echo trained"))
    phase = system.user.until(
        lambda: phase_of(system, "sweep"),
        lambda found: found.split()[:1] not in ([], ["Pending"], ["Running"]),
    )
    assert phase == "Succeeded"
    pods = pods_of(system, "sweep")
    assert len(pods) == 2
    groups = {pod["metadata"]["annotations"][keys.GROUP_NAME] for pod in pods}
    (name,) = groups
    group = get(system, "podgroups.scheduling.volcano.sh", name)
    assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("research", 2)
    ended = [
        status["state"]["terminated"]
        for pod in pods
        for status in pod["status"]["containerStatuses"]
        if status["name"] == "main"
    ]
    assert max(it["startedAt"] for it in ended) < min(it["finishedAt"] for it in ended)


def test_steps_of_a_workflow_that_follow_each_other_are_scheduled(
    system: KubeletSystem, argo: None, tmp_path: Path
) -> None:
    """All pods of a workflow share a PodGroup, which has completed when the next step starts."""
    workflow = of_guide("sweep", "echo done")
    workflow["metadata"]["name"] = "chain"
    del workflow["spec"]["podMetadata"]["annotations"]
    first, second = ({"name": name, "template": "trial"} for name in ("first", "second"))
    workflow["spec"]["templates"][0]["steps"] = [[first], [second]]
    create(system, tmp_path, workflow)
    phase = system.user.until(
        lambda: phase_of(system, "chain"),
        lambda found: found.split()[:1] not in ([], ["Pending"], ["Running"]),
    )
    assert phase == "Succeeded"
    assert len(pods_of(system, "chain")) == 2


@pytest.mark.parametrize(("script", "phase"), [("echo trained", "Succeeded"), ("exit 3", "Failed")])
def test_a_step_that_creates_a_job_ends_as_the_job_does(
    system: KubeletSystem, argo: None, tmp_path: Path, script: str, phase: str
) -> None:
    """The guide's workflow: the job is a gang of four, and the workflow owns it."""
    workflow = of_guide("train-", script)
    name = f"train-{phase.lower()}"
    workflow["metadata"] = {"name": name}
    resource = workflow["spec"]["templates"][0]["resource"]
    job = yaml.safe_load(resource["manifest"])
    job["metadata"] = {"name": name}
    job["spec"]["policies"] = [{"event": "PodFailed", "action": "TerminateJob"}]
    resource["manifest"] = yaml.safe_dump(job)
    create(system, tmp_path, workflow)
    ended = system.user.until(
        lambda: phase_of(system, name),
        lambda found: found.split()[:1] not in ([], ["Pending"], ["Running"]),
    )
    assert ended.split()[0] == phase
    made = get(system, "jobs.batch.volcano.sh", name)
    assert made["metadata"]["ownerReferences"][0]["name"] == name
    assert made["spec"]["minAvailable"] == 4
    system.kubectl("delete", "workflows.argoproj.io", name)
    system.user.until(lambda: get(system, "jobs.batch.volcano.sh", name), lambda found: not found)
