"""Frameworks between containers on two nodes: OpenMPI's own mpiexec over ssh, in a job as users of
Volcano write it (the image is the only difference to Volcano's example, and the program the ranks
run), and PyTorch's own torchrun with gloo, in a job as docs/pytorch.md describes it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stromboli.shared.api import kinds
from stromboli.testkit.parts.container_images import MPI, TORCH
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import KubeletSystem, requests
from tests.e2e.support.rest_user import Document

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(420)]
MPI_JOB = f"""
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
TRAIN = """
import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
steps = 0
while True:
    total = torch.tensor([rank + 1.0, float(os.environ["STROM_ATTEMPT"] != "1" and steps > 2)])
    dist.all_reduce(total)
    steps += 1
    if steps == 1:
        print("attempt", os.environ["STROM_ATTEMPT"], "pid", os.getpid(), flush=True)
    if total[1] > 0:
        break
    time.sleep(0.2)
print("rank", rank, "of", size, "sum", int(total[0]), flush=True)
"""
"""Its first attempt does not end by itself."""
TORCHRUN = [
    "/bin/sh",
    "-c",
    f"""echo "$MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK"
cat >/tmp/train.py <<'END'
{TRAIN}
END
export PYTHONUNBUFFERED=1
exec torchrun --nnodes $WORLD_SIZE --node_rank $RANK --master_addr $MASTER_ADDR \\
  --master_port $MASTER_PORT --nproc_per_node 1 --redirects 0:1 --tee 0:1 /tmp/train.py""",
]
"""Debian's torch 1.13 cannot parse its defaults of `--redirects` and `--tee` with Python 3.11."""


@pytest.fixture(scope="module")
def system(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletSystem]:
    state = tmp_path_factory.mktemp("kubelets")
    images = {MPI: Path(kubelet_tools.mpi_image), TORCH: Path(kubelet_tools.torch_image)}
    options = KubeletOptions(images=images)
    with kubelet_system.running(state, real_tools, {}, options) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _round(system: KubeletSystem, kubelet_round: int) -> None:
    system.reset()


def test_ranks_on_two_nodes_communicate_and_the_job_ends_with_its_master(
    system: KubeletSystem,
) -> None:
    """The master starts before the workers' names resolve, fails, and is restarted by the kubelet
    until they do. At the end the workers are deleted; the master's pod and its output stay."""
    system.user.submit(yaml.safe_load(MPI_JOB))
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


def torch_job() -> Document:
    """One master and one worker, of more than half a node each."""

    def task(name: str) -> Document:
        container = {"name": "train", "image": TORCH, "command": TORCHRUN, **requests(cpu="600m")}
        brief = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2}
        pod = {**brief, "containers": [container]}
        return {"name": name, "replicas": 1, "template": {"spec": pod}}

    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {
            "minAvailable": 2,
            "plugins": {"pytorch": ["--master=master", "--worker=worker", "--port=23456"]},
            "policies": [{"event": "PodFailed", "action": "RestartJob", "maxRetries": 2}],
            "tasks": [task("master"), task("worker")],
        },
    }


def test_torchrun_trains_on_two_nodes_again_after_a_process_was_killed(
    system: KubeletSystem,
) -> None:
    """torchrun ends with the process that it lost, the pod fails, and the policy restarts both."""
    system.user.submit(torch_job())
    pods = system.user.until(lambda: system.running("train"), lambda found: len(found) == 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"kubelet-0", "kubelet-1"}
    worker = "train-worker-0"
    logs = lambda: system.strom("job", "logs", "train", "--task", "worker", "--no-prefix")  # noqa: E731 - read until it trains
    started = system.user.until(logs, lambda text: "attempt 1 pid" in text)
    assert started.splitlines()[0] == "train-master-0.train 23456 2 1"
    pid = next(line.split()[-1] for line in started.splitlines() if "attempt 1 pid" in line)
    system.kubectl("exec", worker, "--", "sh", "-c", f"kill -9 {pid}")
    system.user.comes_to("train", "Completed")
    output = system.strom("job", "logs", "train", "--no-prefix").splitlines()
    for rank in (0, 1):
        assert any(line.endswith(f"rank {rank} of 2 sum 3") for line in output)
    exits = {(each["task"], each["attempt"]): each["exitCode"] for each in system.tasks("train")}
    assert exits["worker", 1] != 0
    assert exits["master", 2] == exits["worker", 2] == 0
