"""Whatever happens in whatever order, seen late, twice or by the next controller: the rules hold.

``World`` checks at every write of a job's status: only moves of the table, a finished job stays
finished with its counts, retries stay within their budget, versions never go back.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.controller.tests.world import KilledError, World
from stromboli.controller.core import commands, lifecycle
from stromboli.shared import keys, topics
from stromboli.shared.api import batch, kinds
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import make_command, make_job, make_task

NAMES = st.sampled_from(["a", "b"])
ACTIONS = ("RestartJob", "AbortJob", "TerminateJob", "CompleteJob", "ResumeJob", "RestartTask")
EVENTS = ("PodFailed", "PodEvicted", "TaskCompleted", "*")
POLICIES = st.lists(
    st.builds(
        batch.LifecyclePolicy,
        action=st.sampled_from(ACTIONS),
        event=st.sampled_from(EVENTS),
    ),
    max_size=2,
)
TASKS = st.builds(
    make_task,
    st.sampled_from(["w", "v"]),
    st.integers(0, 3),
    min_available=st.none() | st.integers(0, 2),
    policies=POLICIES,
)
SEEN = (topics.JOBS.name, topics.POD_GROUPS.name, topics.PODS.name, topics.COMMANDS.name)


class AnyOrder(RuleBasedStateMachine):
    """Users, scheduler, kubelets, the log and the controller, each at its own pace."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.made: dict[str, int] = {}
        self.commands = 0
        self.checked = 0

    # Users

    @rule(
        name=NAMES,
        tasks=st.lists(TASKS, min_size=1, max_size=2, unique_by=lambda task: task.name),
        policies=POLICIES,
        min_success=st.none() | st.integers(1, 2),
        retries=st.integers(1, 3),
        plugins=st.sampled_from([None, {"svc": ()}]),
        gang=st.integers(0, 3),
    )
    def submit(self, name, tasks, policies, min_success, retries, plugins, gang) -> None:  # type: ignore[no-untyped-def]
        if ("jobs", f"default/{name}") in self.world.objects:
            return
        asked = sum(task.replicas for task in tasks)
        job = make_job(
            name,
            tasks=tasks,
            policies=policies,
            min_success=min_success,
            max_retry=retries,
            plugins=plugins,
            min_available=min(gang, asked),
        )
        self.world.submit(job)

    @rule(name=NAMES)
    def delete_job(self, name: str) -> None:
        self.world.delete(kinds.JOBS, f"default/{name}")

    @rule(name=NAMES, replicas=st.integers(0, 3))
    def scale(self, name: str, replicas: int) -> None:
        if ("jobs", f"default/{name}") in self.world.objects:
            self.world.scale(f"default/{name}", 0, replicas)

    @rule(name=NAMES, action=st.sampled_from((*ACTIONS, "SyncJob")))
    def command(self, name: str, action: str) -> None:
        if ("jobs", f"default/{name}") in self.world.objects:
            self.commands += 1
            job = self.world.job(f"default/{name}")
            self.world.submit(make_command(f"c{self.commands}", action, job))

    # Scheduler and kubelets

    @rule(data=st.data())
    def enqueue(self, data: st.DataObject) -> None:
        waiting = [
            key
            for (plural, key), body in self.world.objects.items()
            if plural == "podgroups" and body["status"]["phase"] == "Pending"
        ]
        if waiting:
            self.world.enqueue(data.draw(st.sampled_from(waiting)))

    @rule(data=st.data(), phase=st.sampled_from(["Running", "Succeeded", "Failed"]))
    def run_pod(self, data: st.DataObject, phase: str) -> None:
        alive = [
            pod.metadata.key
            for pod in self.world.pods()
            if pod.status.phase not in ("Succeeded", "Failed")
        ]
        if alive:
            key = data.draw(st.sampled_from(alive))
            self.world.change_pod(key, phase, "n1", None if phase == "Running" else 1)

    @rule(data=st.data())
    def delete_pod(self, data: st.DataObject) -> None:
        pods = [pod.metadata.key for pod in self.world.pods()]
        if pods:
            self.world.delete(kinds.PODS, data.draw(st.sampled_from(pods)))

    @rule(data=st.data())
    def reap(self, data: st.DataObject) -> None:
        going = self.going()
        if going:
            self.world.reap(data.draw(st.sampled_from(going)))

    def going(self) -> list[str]:
        return [
            pod.metadata.key
            for pod in self.world.pods()
            if pod.metadata.deletion_timestamp is not None
        ]

    # The controller

    @rule(topic=st.sampled_from(SEEN))
    def see_one(self, topic: str) -> None:
        self.world.see_one(topic)

    @rule(topic=st.sampled_from(SEEN))
    def see_again(self, topic: str) -> None:
        self.world.see_again(topic)

    @precondition(lambda self: self.world.dirty)
    @rule(data=st.data(), most=st.none() | st.integers(0, 4))
    def step(self, data: st.DataObject, most: int | None) -> None:
        item = data.draw(st.sampled_from(sorted(self.world.dirty, key=str)))
        self.world.commands_left = most
        try:
            self.world.step(item)
        except KilledError:
            self.world.restart()
        self.world.commands_left = None

    @rule()
    def kill(self) -> None:
        self.world.restart()

    # What always holds

    @invariant()
    def no_pod_is_made_twice_or_beyond_its_replicas(self) -> None:
        for command in self.world.done[self.checked :]:
            if isinstance(command, commands.Create) and command.kind is kinds.PODS:
                assert command.version is not None
        self.checked = len(self.world.done)
        for pod in self.world.pods():
            task = pod.metadata.annotation(keys.TASK_SPEC)
            index = pod.metadata.annotation(keys.TASK_INDEX)
            owner = pod.metadata.controller
            assert owner is not None
            assert pod.metadata.name == f"{owner.name}-{task}-{index}"
            assert int(index or 0) < 3

    @invariant()
    def every_phase_is_told_in_order(self) -> None:
        last: dict[str, str] = {}
        for _, message in self.world.told:
            if isinstance(message, messages.JobPhaseChanged):
                assert message.before == last.get(message.uid, "")
                last[message.uid] = message.after

    def teardown(self) -> None:
        """Left alone, everything comes to rest, and a second look finds nothing to do."""
        world = self.world
        for _ in range(8):
            world.settle()
            for key in self.going():
                world.reap(key)
            world.see()
        world.settle()
        done = len(world.done)
        world.dirty = dict.fromkeys(world.picture.items())
        world.settle()
        assert len(world.done) == done
        for (plural, key), body in world.objects.items():
            if plural != "jobs":
                continue
            job = world.job(key)
            told = world.phases_told(key)
            assert told[-1] == job.status.state.phase
            if job.status.state.phase in lifecycle.FINISHED:
                status = job.status
                assert (status.pending, status.running, status.terminating) == (0, 0, 0)
            assert body["metadata"]["uid"] in world.phases


TestAnyOrder = pytest.mark.timeout(300)(AnyOrder.TestCase)
TestAnyOrder.settings = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
