"""An MPI job as users of Volcano write it: OpenMPI's own mpiexec over ssh between containers on
two nodes. The image is the only difference to Volcano's example, and the program the ranks run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stromboli.testkit.parts.container_images import MPI
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import KubeletSystem

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(420)]
JOB = f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  name: lm-mpi-job
  namespace: default
  labels:
    volcano.sh/job-type: MPI
spec:
  minAvailable: 3
  schedulerName: volcano
  plugins:
    ssh: []
    svc: []
  policies:
  - event: PodEvicted
    action: RestartJob
  tasks:
  - replicas: 1
    name: mpimaster
    policies:
    - event: TaskCompleted
      action: CompleteJob
    template:
      spec:
        containers:
        - command:
          - /bin/sh
          - -c
          - |
            MPI_HOST=`cat /etc/volcano/mpiworker.host | tr "\\n" ","`;
            mkdir -p /var/run/sshd; /usr/sbin/sshd;
            mpiexec --allow-run-as-root --host ${{MPI_HOST}} -np 2 python3 -c '
            from mpi4py import MPI
            world = MPI.COMM_WORLD
            total = world.allreduce(world.rank + 1)
            print("rank", world.rank, "of", world.size, "sum", total, MPI.Get_processor_name())
            ';
          image: {MPI}
          name: mpimaster
          ports:
          - containerPort: 22
            name: mpijob-port
          workingDir: /home
          resources:
            requests: {{cpu: 100m}}
        restartPolicy: OnFailure
  - replicas: 2
    name: mpiworker
    template:
      spec:
        containers:
        - command:
          - /bin/sh
          - -c
          - |
            mkdir -p /var/run/sshd; /usr/sbin/sshd -D;
          image: {MPI}
          name: mpiworker
          ports:
          - containerPort: 22
            name: mpijob-port
          workingDir: /home
          resources:
            requests: {{cpu: 600m}}
        restartPolicy: OnFailure
"""


@pytest.fixture(scope="module")
def system(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletSystem]:
    state = tmp_path_factory.mktemp("kubelets")
    images = {MPI: Path(kubelet_tools.mpi_image)}
    with kubelet_system.running(state, real_tools, {}, images) as opened:
        yield opened


def test_ranks_on_two_nodes_communicate_and_the_job_ends_with_its_master(
    system: KubeletSystem,
) -> None:
    """The master starts before the workers' names resolve, fails, and is restarted by the kubelet
    until they do. At the end the workers are deleted; the master's pod and its output stay."""
    system.user.submit(yaml.safe_load(JOB))
    workers = system.user.until(
        lambda: [
            pod for pod in system.running("lm-mpi-job") if "worker" in pod["metadata"]["name"]
        ],
        lambda found: len(found) == 2,
    )
    assert {pod["spec"]["nodeName"] for pod in workers} == {"kubelet-0", "kubelet-1"}
    system.user.comes_to("lm-mpi-job", "Completed")
    left = system.user.until(lambda: system.user.pods("lm-mpi-job"), lambda pods: len(pods) == 1)
    assert left[0]["metadata"]["name"] == "lm-mpi-job-mpimaster-0"
    output = system.strom("job", "logs", "lm-mpi-job", "--no-prefix")
    ranks = sorted(line for line in output.splitlines() if line.startswith("rank"))
    assert ranks == [
        "rank 0 of 2 sum 3 lm-mpi-job-mpiworker-0",
        "rank 1 of 2 sum 3 lm-mpi-job-mpiworker-1",
    ]
