"""Kubeflow's mpi-operator with pods in real containers: OpenMPI's own mpirun over ssh."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stromboli.testkit.parts.container_images import MPI
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.tools import KubeletTools, OperatorTool, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import KubeletSystem
from tests.operators.support.operator_processes import MpiOperator
from tests.operators.support.operator_system import condition

pytestmark = [pytest.mark.operators, pytest.mark.kubelet, pytest.mark.timeout(420)]
NODES = {"kubelet-0", "kubelet-1"}
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
def system(
    real_tools: Tools,
    kubelet_tools: KubeletTools,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubeletSystem]:
    """A system with two nodes that have the images."""
    options = KubeletOptions(images={MPI: Path(kubelet_tools.mpi_image)})
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


def test_mpirun_of_an_mpijob_reaches_its_workers_on_two_nodes(
    system: KubeletSystem, mpi_operator: None
) -> None:
    """The launcher is restarted until the names of the workers resolve. At its end the operator
    deletes the workers and the PodGroup."""
    system.create(yaml.safe_load(MPI_JOB))
    group = system.user.until(
        lambda: system.get("podgroups.scheduling.volcano.sh", "ring"),
        lambda found: found.get("status", {}).get("phase") == "Running",
    )
    workers = system.get("pods", "--selector=training.kubeflow.org/job-role=worker")["items"]
    assert group["spec"]["minMember"] == 3
    assert {pod["spec"]["nodeName"] for pod in workers} == NODES
    system.user.until(
        lambda: system.get("mpijobs.kubeflow.org", "ring"),
        lambda found: condition(found, "Succeeded"),
    )
    output = system.kubectl("logs", "--selector=training.kubeflow.org/job-role=launcher")
    ranks = sorted(line for line in output.splitlines() if line.startswith("rank"))
    assert ranks == ["rank 0 of 2 sum 3 ring-worker-0", "rank 1 of 2 sum 3 ring-worker-1"]
    workers = ("pods", "--selector=training.kubeflow.org/job-role=worker")
    system.user.until(lambda: system.get(*workers).get("items"), lambda found: not found)
    system.user.until(
        lambda: system.get("podgroups.scheduling.volcano.sh", "ring"), lambda found: not found
    )
