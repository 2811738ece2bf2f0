"""OpenMPI's own mpiexec over ssh between two process nodes, whose containers are one SIF file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stromboli.client import Client
from stromboli.testkit.parts import sif_files
from stromboli.testkit.parts.tools import ImageFileTools
from tests.e2e.conftest import Embedded

pytestmark = [pytest.mark.sif, pytest.mark.timeout(600)]

ENDED_WITHIN_S = 240.0
SSHD = "/usr/sbin/sshd -p 2222 -o ListenAddress=$POD_IP"
"""Containers share the machine's network, so each one listens at its own address."""
PROGRAM = """
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print("rank", world.rank, "of", world.size, "sum", total, flush=True)
"""
JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: sif-mpi}
spec:
  minAvailable: 3
  plugins:
    ssh: ["--ssh-port=2222"]
    mpi: ["--master=master", "--worker=worker", "--port=2222"]
  tasks:
    - name: master
      replicas: 1
      policies: [{event: TaskCompleted, action: CompleteJob}]
      template:
        spec:
          restartPolicy: OnFailure
          containers:
            - name: main
              image: IMAGE
              command: [sh, -c, MASTER]
              env: ENV
              resources: {requests: {cpu: 100m}}
    - name: worker
      replicas: 2
      template:
        spec:
          restartPolicy: OnFailure
          containers:
            - name: main
              image: IMAGE
              command: [sh, -c, WORKER]
              env: ENV
              resources: {requests: {cpu: 3}}
              volumeMounts: [{name: run, mountPath: /run/sshd}]
          volumes: [{name: run, emptyDir: {}}]
"""


@pytest.fixture(scope="module")
def mpi_sif(image_file_tools: ImageFileTools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SIF file with OpenMPI and sshd."""
    built = tmp_path_factory.mktemp("mpi") / "mpi.sif"
    sif_files.write(image_file_tools, Path(image_file_tools.mpi_image), built)
    return built


@pytest.fixture
def system(
    image_file_tools: ImageFileTools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Embedded]:
    """``strom up`` with two process nodes and the program for image files on its PATH."""
    folder = str(Path(image_file_tools.singularity).parent)
    monkeypatch.setenv("PATH", folder + os.pathsep + os.environ["PATH"])
    system = Embedded(tmp_path, "--process-nodes", "2", "--cpu", "4")
    system.start()
    try:
        yield system
    finally:
        system.stop()


def manifest(image: Path) -> dict[str, object]:
    """The job with this image."""
    environment = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        *(
            {"name": f"OMPI_MCA_{name}_if_include", "value": "lo"}
            for name in ("btl_tcp", "oob_tcp")
        ),
    ]
    master = f"mpiexec --allow-run-as-root --host $MPI_HOST -np 2 python3 -c '{PROGRAM}'"
    values = {
        "IMAGE": str(image),
        "MASTER": master,
        "WORKER": f"chmod 755 /run/sshd; {SSHD} -D",
        "ENV": environment,
    }

    def filled(value: object) -> object:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return values.get(value, value) if isinstance(value, str) else value

    job = filled(yaml.safe_load(JOB))
    assert isinstance(job, dict)
    return job


def test_ranks_on_two_process_nodes_add_up_their_numbers(system: Embedded, mpi_sif: Path) -> None:
    with Client(system.url) as client:
        client.submit(manifest(mpi_sif))
        job = client.wait("sif-mpi", timeout_s=ENDED_WITHIN_S)
        lines = [line.text for line in client.logs("sif-mpi", task="master")]
        tasks = client.tasks("sif-mpi").tasks
    nodes = {it.node for it in tasks if it.task == "worker"}
    assert job.status.state.phase == "Completed", lines
    assert sorted(line for line in lines if line.startswith("rank")) == [
        "rank 0 of 2 sum 3",
        "rank 1 of 2 sum 3",
    ]
    assert len(nodes) == 2
