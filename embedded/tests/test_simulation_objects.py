"""A simulated job has the objects and phases that the controller's core gives to the same job."""

from datetime import timedelta

import msgspec

from services.controller.tests.support import scenarios
from stromboli.embedded.simulation.core import job_runs, objects, workload
from stromboli.scheduler.core.model import job_builder, requirements
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.formats import durations
from stromboli.testkit import builders

EVICTED = batch.LifecyclePolicy(event="PodEvicted", action="RestartJob")
SIMULATED = workload.Job(
    "j1", 0, 10**7, 3, 2, workload.Resources(2000, 2**30, 1), "default", 0, preemptable=True
)
KEPT = (keys.GROUP_NAME, keys.TASK_SPEC, keys.TASK_INDEX, keys.PREEMPTABLE)
"""Annotations of a pod that the scheduler reads."""


def real_job() -> batch.Job:
    pod_spec = {
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "resources": {
                    "requests": {"cpu": "2", "memory": "1Gi", requirements.GPU: 1},
                    "limits": {requirements.GPU: 1},
                },
            }
        ]
    }
    task = builders.make_task(objects.TASK, 3, min_available=2, pod_spec=pod_spec)
    marks = {keys.PREEMPTABLE: "true"}
    task = msgspec.structs.replace(
        task,
        template=msgspec.structs.replace(
            task.template,
            metadata=msgspec.structs.replace(task.template.metadata, annotations=marks),
        ),
    )
    return builders.make_job(
        tasks=[task], min_available=2, policies=[EVICTED], annotations=marks, max_retry=3
    )


def test_the_pod_group_is_that_of_the_controller() -> None:
    real = scenarios.submitted(real_job()).group()
    simulated = objects.pod_group(SIMULATED, "u", builders.NOON, 2, "Pending")
    assert job_builder.minimum_request(simulated) == job_builder.minimum_request(real)
    spec = msgspec.structs.replace(real.spec, min_resources=simulated.spec.min_resources)
    assert simulated.spec == spec
    assert simulated.status.phase == real.status.phase
    assert simulated.metadata.annotation(keys.PREEMPTABLE) == "true"
    assert real.metadata.annotation(keys.PREEMPTABLE) == "true"


def test_the_run_time_that_a_job_states_is_on_its_pod_group() -> None:
    job = real_job()
    spec = msgspec.structs.replace(job.spec, running_estimate="90s")
    real = scenarios.submitted(msgspec.structs.replace(job, spec=spec)).group()
    stated = msgspec.structs.replace(SIMULATED, estimate_us=90 * 10**6)
    simulated = objects.pod_group(stated, "u", builders.NOON, 2, "Pending")
    texts = [each.metadata.annotation(keys.RUNNING_ESTIMATE) or "" for each in (real, simulated)]
    assert [durations.duration(text) for text in texts] == [timedelta(seconds=90)] * 2


def test_pods_are_those_of_the_controller() -> None:
    harness = scenarios.enqueued(real_job())
    group = harness.group()
    for index, real in enumerate(harness.pods()):
        simulated = objects.pod(SIMULATED, index, "u", builders.NOON)
        expected = {name: real.metadata.annotation(name) for name in KEPT}
        expected[keys.GROUP_NAME] = "j1"
        assert {name: simulated.metadata.annotation(name) for name in KEPT} == expected
        assert real.metadata.annotation(keys.GROUP_NAME) == group.metadata.name
        assert simulated.metadata.name == real.metadata.name
        assert simulated.spec.scheduler_name == real.spec.scheduler_name
        assert requirements.pod_request(simulated.spec) == requirements.pod_request(real.spec)


def test_phases_are_those_of_the_controller_through_an_eviction() -> None:
    """A gang of two of three tasks loses two tasks, is restarted, runs and completes."""
    harness = scenarios.running(real_job())
    for name in ("j1-task-1", "j1-task-2"):
        scenarios.evict(harness, name)
    scenarios.go_on(harness)
    scenarios.go_on(harness)
    scenarios.finish(harness, "Succeeded", "Succeeded", "Succeeded")
    run = job_runs.JobRun(SIMULATED, 0)
    phases = [run.phase]

    def advance() -> None:
        run.advance()
        phases.append(run.phase)

    advance()
    run.running = 3
    advance()
    run.running = 0
    run.restart()
    phases += ["Restarting", run.phase]
    run.running = 3
    advance()
    run.running, run.succeeded = 0, 3
    advance()
    real = [phase for phase in harness.phases_seen() if phase]
    assert [phase for phase in phases if phase] == real
