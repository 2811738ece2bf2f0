"""The environment of the examples' programs: variables, host files, names, keys and ports.

The programs rely on exactly these, so the tests fail if a plugin changes them.
"""

import json
from pathlib import Path

import pytest

from tests.examples import manifests
from tests.examples.manifests import files, objects_of, pods_of, ports, variables
from tests.examples.test_programs import containers


@pytest.mark.parametrize("path", manifests.FILES, ids=lambda path: path.stem)
def test_an_example_is_described_and_requests_its_resources(path: Path) -> None:
    """A container without requests would be scheduled on a full node."""
    assert path.read_text().startswith("# ")
    for document in manifests.read(path.stem):
        for container in containers(document):
            assert set(container["resources"]["requests"]) >= {"cpu", "memory"}


def test_mpi_has_a_host_file_of_its_workers_and_keys_to_reach_them() -> None:
    hosts = objects_of("mpi")["ConfigMap", "mpi-svc"]["data"]
    assert hosts["mpiworker.host"].split() == ["mpi-mpiworker-0.mpi", "mpi-mpiworker-1.mpi"]
    for pod in pods_of("mpi"):
        assert files("mpi", pod) == {"/etc/volcano", "/root/.ssh"}
        assert ports("mpi", pod) == {"mpijob-port": 2222}


def test_horovods_master_gets_its_workers_and_their_ssh_key() -> None:
    workers = "horovod-worker-0.horovod,horovod-worker-1.horovod"
    assert variables("horovod", "horovod-master-0")["MPI_HOST"] == workers
    assert "MPI_HOST" not in variables("horovod", "horovod-worker-0")
    for pod in pods_of("horovod"):
        assert files("horovod", pod) == {"/etc/volcano", "/root/.ssh"}
        assert ports("horovod", pod) == {"mpijob-port": 22}
    secret = objects_of("horovod")["Secret", "horovod-ssh"]
    assert set(secret["data"]) == {"config"}  # the controller adds keys when it makes it


@pytest.mark.parametrize(
    ("pod", "rank"),
    [("pytorch-master-0", "0"), ("pytorch-worker-0", "1"), ("pytorch-worker-1", "2")],
)
def test_pytorchs_processes_know_their_rank_and_their_master(pod: str, rank: str) -> None:
    found = variables("pytorch", pod)
    reported = {name: found[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")}
    assert reported == {
        "MASTER_ADDR": "pytorch-master-0.pytorch",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "3",
        "RANK": rank,
    }
    assert ports("pytorch", pod) == {"pytorchjob-port": 23456}


@pytest.mark.parametrize(("role", "index"), [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)])
def test_tensorflows_processes_get_the_cluster_and_their_index(role: str, index: int) -> None:
    pod = f"tensorflow-{role}-{index}"
    assert json.loads(variables("tensorflow", pod)["TF_CONFIG"]) == {
        "cluster": {
            "chief": ["tensorflow-chief-0.tensorflow:2222"],
            "ps": ["tensorflow-ps-0.tensorflow:2222"],
            "worker": [f"tensorflow-worker-{each}.tensorflow:2222" for each in (0, 1)],
        },
        "task": {"type": role, "index": index},
    }
    assert ports("tensorflow", pod) == {"tensorflow": 2222}


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
def test_mxnets_processes_know_their_role_and_how_many_there_are(role: str) -> None:
    found = variables("mxnet", f"mxnet-{role}-0")
    reported = ("DMLC_ROLE", "VC_SCHEDULER_HOSTS", "VC_SERVER_NUM", "VC_WORKER_NUM")
    assert [found[name] for name in reported] == [role, "mxnet-scheduler-0.mxnet", "1", "2"]
    service = objects_of("mxnet")["Service", "mxnet"]["spec"]
    assert service["publishNotReadyAddresses"] is True


@pytest.mark.parametrize("index", [0, 1])
def test_paddles_trainers_know_each_other_and_their_number(index: int) -> None:
    found = variables("paddle", f"paddle-trainer-{index}")
    assert found["VC_TRAINER_HOSTS"] == "paddle-trainer-0.paddle,paddle-trainer-1.paddle"
    assert found["VC_TASK_INDEX"] == str(index)


def test_rays_head_and_workers_start_ray_and_the_driver_finds_the_head() -> None:
    (head,) = manifests.containers(pods_of("ray")["ray-head-0"])
    assert head["command"][2].startswith("ray start --head --block")
    assert ports("ray", "ray-head-0") == {"gcs": 6379, "dashboard": 8265, "client-server": 10001}
    (worker,) = manifests.containers(pods_of("ray")["ray-worker-1"])
    assert worker["command"][2] == "ray start --block --address=ray-head-0.ray:6379"
    assert variables("ray", "ray-driver-0")["VC_HEAD_HOSTS"] == "ray-head-0.ray"
    service = objects_of("ray")["Service", "ray-head-svc"]["spec"]
    assert [port["port"] for port in service["ports"]] == [6379, 8265, 10001]


def test_sparks_pods_name_our_scheduler_and_one_group_of_all_of_them() -> None:
    group, service, *pods = manifests.read("spark")
    assert group["spec"]["minMember"] == len(pods) == 3
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "volcano"
        annotations = pod["metadata"]["annotations"]
        assert annotations == {"scheduling.k8s.io/group-name": group["metadata"]["name"]}
        assert pod["spec"]["subdomain"] == service["metadata"]["name"]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_arenas_job_is_valid_and_restarts_its_pods() -> None:
    """Its chart sets no restart policy, and no default is added."""
    job = manifests.job("arena")
    assert (job.spec.scheduler_name, job.spec.queue, job.spec.min_available) == (
        "volcano",
        "default",
        2,
    )
    assert all("restartPolicy" not in pod["spec"] for pod in pods_of("arena").values())
    assert ports("arena", "demo-web-0") == {"job-port-0": 80}


def test_the_pods_of_an_array_get_their_index_and_run_in_a_window() -> None:
    assert len(pods_of("array")) == 20
    assert variables("array", "sweep-point-7")["STROM_ARRAY_INDEX"] == "7"
    assert variables("array", "sweep-point-7")["STROM_ARRAY_SIZE"] == "100"


def test_an_elastic_jobs_pods_know_how_many_they_are() -> None:
    job = manifests.job("elastic")
    assert (len(pods_of("elastic")), job.spec.min_available) == (10, 5)
    found = variables("elastic", "elastic-worker-9")
    assert (found["VC_TASK_INDEX"], found["VC_WORKER_NUM"]) == ("9", "10")


def test_a_gangs_members_are_listed_by_task() -> None:
    found = variables("gang", "gang-worker-0")
    assert found["VC_PS_HOSTS"] == "gang-ps-0.gang,gang-ps-1.gang"
    assert found["VC_WORKER_NUM"] == "4"
    assert files("gang", "gang-ps-0") == {"/etc/volcano"}


def test_the_processes_of_the_ring_get_their_rank() -> None:
    assert variables("ring", "ring-worker-3")["VC_TASK_INDEX"] == "3"
    assert len(variables("ring", "ring-worker-3")["VC_WORKER_HOSTS"].split(",")) == 4
