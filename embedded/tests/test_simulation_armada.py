"""The cases of Armada's scheduler simulator, where the semantics agree.

Source: armadaproject/armada, ``internal/scheduler/simulator/simulator_test.go``, restated as data.
Events are compared in order as *(event, queue)* with counts. A simulation here has no cycle of
10 s, so events follow each other immediately; their order is the same. An evicted job waits from
its eviction on, so it is submitted again before the job that displaced it starts; these two events
are swapped in the expectation.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from embedded.tests import simulations
from stromboli.embedded.simulation.core import job_runs, kernel, workload

DATA = Path(__file__).parents[3] / "shared" / "data" / "armada-sim" / "expectations.json"
SHAPES = {"job32": (32, 256), "job1": (1, 10)}
PRIORITIES = {"priority-0": 0, "priority-2": 2, "priority-3": 3}
GIB = 2**30
CONFIGURED = simulations.configured(
    "enqueue, allocate, preempt, reclaim",
    ("priority", "gang", "conformance", "predicates", "proportion"),
    enablePreemptable=False,
    enableReclaimable=False,
)
"""Gangs may lose members: losing one evicts the whole gang, as in Armada."""
SKIPPED = {
    "Home-away preemption": "a job of Volcano has one priority, whatever its node",
    "Job template dependencies": "the lines of a list of jobs do not depend on each other",
}
"""Case -> why the semantics do not agree."""


def cases() -> dict[str, Any]:
    if not DATA.is_file():
        pytest.skip(f"{DATA} is absent: Armada's simulator cases are not part of the repository")
    return {case["name"]: case for case in json.loads(DATA.read_text())["cases"]}


def jobs_of(case: dict[str, Any]) -> list[workload.Job]:
    """The jobs of a case; a gang of Armada's jobs is one job with so many tasks."""
    jobs = [
        _job(f"g{number}-{at}", group)
        for number, group in enumerate(case["jobs"])
        for at in range(group["count"] // group.get("gang_size", 1))
    ]
    return sorted(jobs, key=lambda job: job.submit_us)


def _job(name: str, group: dict[str, Any]) -> workload.Job:
    cpu, memory = SHAPES[group["shape"]]
    size = group.get("gang_size", 1)
    return workload.Job(
        name,
        group.get("arrives_s", 0) * simulations.SECOND,
        60 * simulations.SECOND,
        size,
        size,
        workload.Resources(cpu * 1000, memory * GIB),
        group["queue"],
        PRIORITIES[group["class"]],
        preemptable=group["class"] != "priority-3",
    )


class Recorder:
    """Runs a case and notes events of single Armada jobs: tasks of ours."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.events: list[tuple[str, str]] = []
        self._runs: dict[str, job_runs.JobRun] = {}
        self._before: dict[str, tuple[int, int]] = {}
        count = case["nodes"]["node32"]
        cluster = (workload.NodeGroup("n", count, workload.Resources(32000, 256 * GIB)),)
        options = msgspec.structs.replace(
            workload.Options(),
            configured=CONFIGURED,
            until_us=case["limit_s"] * simulations.SECOND,
        )
        scenario = workload.Scenario(cluster, jobs_of(case), options=options)
        self.kernel = kernel.Simulation(scenario, self._finished)
        while self.kernel.step():
            self._look()

    def _finished(self, run: job_runs.JobRun) -> None:
        self._add("success", run.job.tasks, run.job.queue)

    def _look(self) -> None:
        """Compare every job with what it was at the last event."""
        runs = sorted(self.kernel.runs.items())
        for name, run in runs:
            if name not in self._before:
                self._add("submit", run.job.tasks, run.job.queue)
                self._before[name] = (0, 0)
        for name, run in runs:
            if run.evictions > self._before[name][0]:
                self._add("preempted", run.job.tasks, run.job.queue)
                self._add("submit", run.job.tasks, run.job.queue)
                self._before[name] = (run.evictions, 0)
        for name, run in runs:
            evictions, running = self._before[name]
            self._add("start", run.running - running, run.job.queue)
            self._before[name] = (evictions, run.running)

    def _add(self, event: str, count: int, queue: str) -> None:
        self.events += [(event, queue)] * count


def expected(case: dict[str, Any]) -> list[tuple[str, str]]:
    """The events of a case, with the submission that follows an eviction right behind it."""
    if case["name"] == "10 jobs in sequence":
        return [("submit", "A")] * 10 + [("start", "A"), ("success", "A")] * 10
    found: list[tuple[str, str, int]] = [(each[0], each[2], each[1]) for each in case["events"]]
    for at, (event, queue, count) in enumerate(found):
        if event == "preempted":
            again = found.index(("submit", queue, count), at)
            found.insert(at + 1, found.pop(again))
    return [(event, queue) for event, queue, count in found for _ in range(count)]


NAMES = (
    "Two jobs in parallel",
    "Two jobs in sequence",
    "10 jobs in sequence",
    "Multiple clusters",
    "Preemption (fair share between equal queues)",
    "No preemption cascade",
    "Gang job",
    "Preempted gang job",
)


@pytest.mark.parametrize("name", NAMES)
def test_events_come_in_the_order_of_armada(name: str) -> None:
    case = cases()[name]
    assert Recorder(case).events == expected(case)


def test_consistent_job_ordering_ends_in_time() -> None:
    """64 small jobs, and two of a whole node that arrive after 30 minutes: all end."""
    case = cases()["Consistent job ordering"]
    recorder = Recorder(case)
    assert not recorder.kernel.runs
    assert recorder.kernel.stopped == ""


def test_every_case_is_compared_or_explained() -> None:
    compared = {*NAMES, "Consistent job ordering"}
    assert cases().keys() == compared | SKIPPED.keys()
    assert not compared & SKIPPED.keys()
