"""A training job with two parameter servers and four workers, whose traffic is real.

It does not begin before all six run. In each step every worker computes for a while, sends its
gradients to both parameter servers and receives the parameters. Processes find each other, and
report, by files in a folder that all nodes mount, so that a job does not depend on how its pods
were created.
"""

from pathlib import Path
from typing import Any

import msgspec

from stromboli.shared.api import kinds
from stromboli.testkit.parts.container_images import MPI

IMAGE = MPI
"""An image with Python."""
SERVERS, WORKERS = 2, 4
TASKS = SERVERS + WORKERS
SHARED = "/shared"
AFFINITY = {"volcano.sh/task-topology-affinity": "ps,worker"}
Document = dict[str, Any]

PROGRAM = """
import os, pathlib, socket, sys, threading, time

role, compute_s = sys.argv[1], float(sys.argv[6])
tasks, workers, steps, size = map(int, sys.argv[2:6])
folder = pathlib.Path(os.environ["JOB_FOLDER"])
folder.mkdir(exist_ok=True)
name = os.environ["HOSTNAME"]


def write(file, text):
    partial = folder / ("." + file)
    partial.write_text(text)
    partial.rename(folder / file)


def receive(connection):
    left = size
    while left:
        block = connection.recv(min(left, 65536))
        if not block:
            return False
        left -= len(block)
    return True


def serve(connection):
    while receive(connection):
        connection.sendall(bytes(size))


if role == "ps":
    listening = socket.create_server(("0.0.0.0", 7000))
    write("ps-" + name, os.environ["POD_IP"])
    threads = []
    while len(threads) < workers:
        threads.append(threading.Thread(target=serve, args=(listening.accept()[0],)))
        threads[-1].start()
    for thread in threads:
        thread.join()
else:
    write("worker-" + name, "")
    while True:
        names = [path.name for path in folder.iterdir()]
        if sum(it.startswith(("ps-", "worker-")) for it in names) == tasks:
            break
        time.sleep(0.05)
    addresses = [path.read_text() for path in sorted(folder.glob("ps-*"))]
    connections = [socket.create_connection((each, 7000)) for each in addresses]
    begun = time.time()
    for step in range(steps):
        time.sleep(compute_s)
        for connection in connections:
            connection.sendall(bytes(size))
        for connection in connections:
            receive(connection)
    write("done-" + name, f"{begun} {time.time()}")
"""


class Size(msgspec.Struct, frozen=True):
    """``cpu``: what each pod requests; ``bytes``: what a worker and a parameter server exchange in
    each direction of a step."""

    cpu: str
    steps: int
    bytes: int
    compute_s: float


def of_stromboli(
    name: str, size: Size, shared: Path, annotations: dict[str, str]
) -> list[Document]:
    """The job as users of Volcano write it. ``shared``: the folder that all nodes mount."""
    tasks = [
        {"name": role, "replicas": count, "template": {"spec": _pod(name, role, size, shared)}}
        for role, count in (("ps", SERVERS), ("worker", WORKERS))
    ]
    return [
        {
            "apiVersion": kinds.JOBS.api_version,
            "kind": kinds.JOBS.kind,
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"schedulerName": "volcano", "minAvailable": TASKS, "tasks": tasks},
        }
    ]


def of_kubernetes(name: str, size: Size, shared: Path) -> list[Document]:
    """The same pods in Kubernetes' Jobs, one for each role, whose pods kube-scheduler places."""
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"{name}-{role}", "namespace": "default"},
            "spec": {
                "completions": count,
                "parallelism": count,
                "backoffLimit": 0,
                "template": {"spec": _pod(name, role, size, shared)},
            },
        }
        for role, count in (("ps", SERVERS), ("worker", WORKERS))
    ]


def _pod(name: str, role: str, size: Size, shared: Path) -> Document:
    numbers = (TASKS, WORKERS, size.steps, size.bytes, size.compute_s)
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["python3", "-c", PROGRAM, role, *map(str, numbers)],
        "env": [
            {"name": "JOB_FOLDER", "value": f"{SHARED}/{name}"},
            {"name": "POD_IP", "valueFrom": address},
        ],
        "resources": {"requests": {"cpu": size.cpu}},
        "volumeMounts": [{"name": "shared", "mountPath": SHARED}],
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "shared", "hostPath": {"path": str(shared)}}],
    }
