"""Two kubelets behind a link, with the four services and kube-scheduler, on which jobs run."""

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from experiments.kubelets import training
from experiments.kubelets.training import Document
from stromboli.testkit.parts import tools
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.kubernetes import Scheduler
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import KubeletSystem

LINK_RATE = "40mbit"
"""In each direction."""
CONFIGURATION = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins:
  - {name: predicates}
  - {name: nodeorder}
  - {name: task-topology, arguments: {task-topology.weight: 10}}
"""
STALLED_S = 15.0
"""A run ends after this time without a new process or result, if no job trains and no process is
starting: the remaining jobs will never begin."""
POLL_S = 0.2
ALL_FILES = training.TASKS + training.WORKERS
"""Files of a job that has ended: one for each process, and the result of each worker."""
OBJECTS = "jobs.batch.volcano.sh,jobs.batch,pods"
Create = Callable[[str, Path], Sequence[Document]]
"""The objects of a job, from its name and the folder that all nodes mount."""


class Outcome(msgspec.Struct, frozen=True):
    """The results of jobs that were submitted together. ``jcts_s``: of each job that has ended,
    from its submission to the end of its last worker; ``trained_s``: from the first step on.
    ``apart``: the part of the pairs of a parameter server and a worker that are on different nodes,
    over jobs whose pods all had a node. ``link_mb``: the traffic of the link, in both
    directions."""

    jobs: int
    jcts_s: list[float]
    trained_s: list[float]
    apart: float
    link_mb: float


class Cluster:
    """The running system."""

    def __init__(self, system: KubeletSystem, shared: Path) -> None:
        self._system = system
        self._shared = shared
        self._runs = 0

    def run(self, count: int, create: Create) -> Outcome:
        """Submit jobs together and wait until all have ended or none will ever begin."""
        self._runs += 1  # a late process of an earlier run must not write to a later one
        names = [f"training-{self._runs}-{number}" for number in range(count)]
        documents = [each for name in names for each in create(name, self._shared)]
        before, submitted = self._system.network.carried_bytes(), time.time()
        self._system.create(*documents)
        self._wait(names)
        carried = self._system.network.carried_bytes() - before
        ended = [
            results for name in names if len(results := self._results(name)) == training.WORKERS
        ]
        outcome = Outcome(
            jobs=count,
            jcts_s=[max(end for _, end in each) - submitted for each in ended],
            trained_s=[max(end for _, end in each) - min(at for at, _ in each) for each in ended],
            apart=self._part_apart(names),
            link_mb=carried / 1e6,
        )
        self._remove(names)
        return outcome

    def _wait(self, names: Sequence[str]) -> None:
        total, changed_at = -1, time.monotonic()
        while True:
            files = [len(self._files(name)) for name in names]
            if min(files) == ALL_FILES:
                return
            is_training = any(training.TASKS <= count < ALL_FILES for count in files)
            if is_training or sum(files) != total:
                total, changed_at = sum(files), time.monotonic()
            if time.monotonic() - changed_at > STALLED_S and not self._has_starting_pods(names):
                return
            time.sleep(POLL_S)

    def _has_starting_pods(self, names: Sequence[str]) -> bool:
        """Whether a pod is bound, and its process has not begun."""
        bound = [name for name, node in self._nodes().items() if node]
        begun = {
            path.name.partition("-")[2]
            for name in names
            for path in self._files(name)
            if path.name.startswith(("ps-", "worker-"))
        }
        return any(name not in begun for name in bound)

    def _nodes(self) -> dict[str, str]:
        """Pod -> its node; empty before it has one."""
        pods = self._system.get("pods").get("items", [])
        return {it["metadata"]["name"]: it["spec"].get("nodeName", "") for it in pods}

    def _files(self, name: str) -> list[Path]:
        folder = self._shared / name
        return list(folder.glob("[!.]*")) if folder.exists() else []

    def _results(self, name: str) -> list[tuple[float, float]]:
        """Begin and end of each worker that has ended."""
        texts = [path.read_text() for path in self._files(name) if path.name.startswith("done-")]
        return [(float(begin), float(end)) for begin, _, end in (it.partition(" ") for it in texts)]

    def _part_apart(self, names: Sequence[str]) -> float:
        nodes, apart = self._nodes(), []
        for name in names:
            of_role = {
                role: [node for pod, node in nodes.items() if pod.startswith(f"{name}-{role}-")]
                for role in ("ps", "worker")
            }
            pairs = list(itertools.product(of_role["ps"], of_role["worker"]))
            if len(pairs) == training.SERVERS * training.WORKERS and all(map(all, pairs)):
                apart.append(sum(a != b for a, b in pairs) / len(pairs))
        return sum(apart) / len(apart) if apart else 0.0

    def _remove(self, names: Sequence[str]) -> None:
        self._system.kubectl("delete", OBJECTS, "--all")
        pods = ("get", "pods", "--output=name")
        self._system.user.until(lambda: self._system.kubectl(*pods), lambda it: not it)
        for name in names:
            shutil.rmtree(self._shared / name, ignore_errors=True)


@contextlib.contextmanager
def running(state: Path) -> Iterator[Cluster]:
    """The system, while inside. Raises RealPartsMissingError."""
    kubelet_tools, shared = tools.locate_kubelets(), state / "shared"
    shared.mkdir(parents=True)
    configuration = state / "scheduler.yaml"
    configuration.write_text(CONFIGURATION)
    environment = {"STROM_SCHEDULER_CONFIGURATION": str(configuration)}
    images = {training.IMAGE: Path(kubelet_tools.mpi_image)}
    options = KubeletOptions(images=images, link_rate=LINK_RATE)
    with kubelet_system.running(state, tools.locate(), environment, options) as system:
        binder = Scheduler(kubelet_tools.scheduler, state / "kube-scheduler", system.server)
        with system.part(binder):
            yield Cluster(system, shared)
