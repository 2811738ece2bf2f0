"""Whatever happens in whatever order, seen late, twice or by the next controller: the rules hold.

``World`` checks at every write of a job's status: only moves of the table, a finished job stays
finished with its counts, retries stay within their budget, versions never go back.
"""

import copy

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from services.controller.tests.support import invariants, strategies
from services.controller.tests.support.core_harness import (
    KINDS,
    CoreHarness,
    KilledError,
    TopicKey,
)
from services.controller.tests.support.scenarios import edit
from stromboli.controller.core import commands, lifecycle, termination_causes
from stromboli.controller.core.pods import pods
from stromboli.controller.core.tasks import tasks
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import batch, kinds
from stromboli.shared.jobspec.validation import jobs as jobs_rules
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import make_command
from stromboli.testkit.strategies import depth

NAMES = st.sampled_from(["a", "b"])
OOM = strategies.OOM
PREEMPTION = {
    "type": termination_causes.DISRUPTED,
    "status": "True",
    "reason": termination_causes.PREEMPTION,
}
SEEN = (topics.JOBS.name, topics.POD_GROUPS.name, topics.PODS.name, topics.COMMANDS.name)


class AnyOrder(RuleBasedStateMachine):
    """Users, scheduler, kubelets, the log and the controller, each at its own pace."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = CoreHarness()
        self.commands = 0
        self.checked = 0
        self.old: dict[TopicKey, envelope.Record] = {}

    # Users

    @initialize(job=strategies.jobs("a"))
    def begin(self, job: batch.Job) -> None:
        self.harness.submit(job)

    @rule(data=st.data(), name=NAMES)
    def submit(self, data: st.DataObject, name: str) -> None:
        if ("jobs", f"default/{name}") not in self.harness.objects:
            self.harness.submit(data.draw(strategies.jobs(name)))

    @rule(name=NAMES, luck=st.integers(0, 9))
    def delete_job(self, name: str, luck: int) -> None:
        if not luck:
            self.harness.delete(kinds.JOBS, f"default/{name}")

    @rule(name=NAMES, replicas=st.integers(0, 3))
    def scale(self, name: str, replicas: int) -> None:
        """Valid for admission, which rejects a gang beyond its replicas."""
        found = self.harness.objects.get(("jobs", f"default/{name}"))
        if found is not None:
            rest = sum(task.get("replicas", 0) for task in found["spec"]["tasks"][1:])
            least = found["spec"]["tasks"][0].get("minAvailable", 0)
            if least <= replicas and found["spec"].get("minAvailable", 0) <= replicas + rest:
                self.harness.scale(f"default/{name}", 0, replicas)

    @rule(name=NAMES, queue=st.sampled_from(["default", "other"]))
    def change_queue(self, name: str, queue: str) -> None:
        """Valid for admission, which rejects it unless the job waits."""
        key = f"default/{name}"
        if ("jobs", key) in self.harness.objects and self.harness.phase(key) in jobs_rules.WAITS:
            edit(self.harness, key, queue=queue)

    @rule(name=NAMES, indexes=st.sampled_from(["0", "1", ""]))
    def cancel(self, name: str, indexes: str) -> None:
        found = self.harness.objects.get(("jobs", f"default/{name}"))
        if found is not None and found["spec"].get("array"):
            edit(self.harness, f"default/{name}", array={"cancelled": indexes})

    @rule(
        name=NAMES,
        action=st.sampled_from((*lifecycle.ACTIONS, "SyncJob", "Nonsense")),
        is_repeated=st.booleans(),
    )
    def command(self, name: str, action: str, *, is_repeated: bool) -> None:
        if ("jobs", f"default/{name}") in self.harness.objects:
            self.commands += 1
            job = self.harness.job(f"default/{name}")
            for copy_of in range(1 + is_repeated):
                self.harness.submit(make_command(f"c{self.commands}-{copy_of}", action, job))

    # Scheduler and kubelets

    @rule(data=st.data())
    def enqueue(self, data: st.DataObject) -> None:
        waiting = self.waiting_groups()
        if waiting:
            self.harness.enqueue(data.draw(st.sampled_from(waiting)))

    @rule()
    def everything_goes_on(self) -> None:
        """Terminating objects are deleted, gangs are enqueued, pods run; the controller reads all
        of it.
        """
        harness = self.harness
        for key in self.going():
            harness.reap(key)
        harness.settle()
        for key in self.waiting_groups():
            harness.enqueue(key)
        harness.settle()
        for pod in harness.pods():
            if pod.status.phase == "Pending" and pod.metadata.deletion_timestamp is None:
                harness.change_pod(pod.metadata.key, "Running", "n1")
        harness.settle()

    def waiting_groups(self) -> list[str]:
        return [
            key
            for (plural, key), body in self.harness.objects.items()
            if plural == "podgroups" and body["status"]["phase"] == "Pending"
        ]

    @rule(
        data=st.data(),
        phase=st.sampled_from(["Running", "Succeeded", "Failed", "Failed", "Unknown"]),
        code=st.sampled_from([1, OOM]),
    )
    def change_pod(self, data: st.DataObject, phase: str, code: int) -> None:
        alive = [
            pod.metadata.key
            for pod in self.harness.pods()
            if pod.status.phase not in ("Succeeded", "Failed")
        ]
        if alive:
            key = data.draw(st.sampled_from(alive))
            ended = {"Succeeded": 0, "Failed": code}.get(phase)
            self.harness.change_pod(key, phase, "n1", ended, "OOMKilled" if ended == OOM else "")

    @rule(data=st.data(), code=st.sampled_from([1, OOM]))
    def a_pod_fails_and_everything_goes_on(self, data: st.DataObject, code: int) -> None:
        running = [it.metadata.key for it in self.harness.pods() if it.status.phase == "Running"]
        if running:
            key = data.draw(st.sampled_from(running))
            self.harness.change_pod(key, "Failed", "n1", code, "OOMKilled" if code == OOM else "")
            self.everything_goes_on()

    @rule(phase=st.sampled_from(["Succeeded", "Succeeded", "Failed"]))
    def all_pods_end(self, phase: str) -> None:
        for pod in self.harness.pods():
            if pod.status.phase == "Running":
                code = int(phase == "Failed") * 2
                self.harness.change_pod(pod.metadata.key, phase, "n1", code)

    @rule(data=st.data(), times=st.integers(1, 3))
    def restart_containers(self, data: st.DataObject, times: int) -> None:
        running = [it.metadata.key for it in self.harness.pods() if it.status.phase == "Running"]
        if running:
            status = {"name": "main", "restartCount": times, "ready": True}
            self.harness.change_pod(data.draw(st.sampled_from(running)), containerStatuses=[status])

    @rule(data=st.data())
    def delete_pod(self, data: st.DataObject) -> None:
        pods = [pod.metadata.key for pod in self.harness.pods()]
        if pods:
            self.harness.delete(kinds.PODS, data.draw(st.sampled_from(pods)))

    @rule(data=st.data(), is_reported=st.booleans())
    def preempt(self, data: st.DataObject, is_reported: bool) -> None:
        """With notice a pod runs on until ``delete_pod`` finds it."""
        running = [it for it in self.harness.pods() if it.status.phase == "Running"]
        if running:
            key = data.draw(st.sampled_from(running)).metadata.key
            if is_reported:
                body = copy.deepcopy(self.harness.objects["pods", key])
                body["metadata"]["annotations"][keys.EVICTED_AT] = self.harness.now.isoformat()
                self.harness.put(kinds.PODS, body)
            else:
                self.harness.change_pod(key, conditions=[PREEMPTION])
                self.harness.delete(kinds.PODS, key)

    @rule(
        data=st.data(),
        phase=st.sampled_from(["Succeeded", "Succeeded", "Failed"]),
        commands_before=st.none() | st.integers(0, 3),
        is_killed=st.booleans(),
    )
    def a_pod_ends_and_is_collected(
        self, data: st.DataObject, phase: str, commands_before: int | None, *, is_killed: bool
    ) -> None:
        """Its node is drained, or finished pods are garbage collected. ``commands_before``: None
        if no controller observes the end before."""
        self.everything_goes_on()
        running = [it.metadata.key for it in self.harness.pods() if it.status.phase == "Running"]
        if not running:
            return
        key = data.draw(st.sampled_from(running))
        self.harness.change_pod(key, phase, "n1", int(phase == "Failed"))
        if commands_before is not None:
            self.harness.see()
            self.carry_out(commands_before)
        self.harness.reap(key)
        if is_killed:
            self.kill()
        self.harness.settle()

    @rule(data=st.data(), plural=st.sampled_from(["podgroups", "services", "configmaps"]))
    def delete_object(self, data: st.DataObject, plural: str) -> None:
        """A user deletes an object of a job, whether a controller runs or not."""
        object_keys = [key for kind, key in self.harness.objects if kind == plural]
        if object_keys:
            self.harness.delete(KINDS[plural], data.draw(st.sampled_from(object_keys)))

    @rule(data=st.data())
    def reap(self, data: st.DataObject) -> None:
        going = self.going()
        if going:
            self.harness.reap(data.draw(st.sampled_from(going)))

    def going(self) -> list[str]:
        return [
            pod.metadata.key
            for pod in self.harness.pods()
            if pod.metadata.deletion_timestamp is not None
        ]

    @rule(seconds=st.sampled_from([1, 19, 20, 60, 400]))
    def wait(self, seconds: int) -> None:
        self.harness.wait(seconds)

    # The controller

    @rule(topic=st.sampled_from(SEEN))
    def see_one(self, topic: str) -> None:
        self.harness.see_one(topic)

    @rule(topic=st.sampled_from(SEEN))
    def see_again(self, topic: str) -> None:
        self.harness.see_again(topic)

    @precondition(lambda self: self.harness.dirty)
    @rule(data=st.data(), most=st.none() | st.integers(0, 4))
    def step(self, data: st.DataObject, most: int | None) -> None:
        item = data.draw(st.sampled_from(sorted(self.harness.dirty, key=str)))
        self.harness.commands_left = most
        try:
            self.harness.step(item)
        except KilledError:
            self.kill()
        self.harness.commands_left = None

    def carry_out(self, most: int) -> None:
        """The controller executes at most so many commands, then it is killed."""
        self.harness.commands_left = most
        try:
            for item in list(self.harness.dirty):
                self.harness.step(item)
        except KilledError:
            self.kill()
        self.harness.commands_left = None

    @rule()
    def settle(self) -> None:
        self.harness.settle()

    @rule()
    def kill(self) -> None:
        """The next controller reads the pods' topic before compaction removes records."""
        self.harness.read_first = tuple(self.harness.pod_log)
        self.harness.restart()
        self.harness.read_first = ()

    @rule()
    def remember(self) -> None:
        shown = map(self.harness.shown, SEEN)
        self.old = {at: record for topic in shown for at, record in topic.items()}

    @rule()
    def act_on_an_old_cache(self) -> None:
        ended = self.harness.past.ended.values()
        self.harness.past.hidden |= {uid for pods_of_job in ended for uid in pods_of_job}
        self.harness.restart(old=self.old)
        for _ in range(20):
            if self.harness.dirty:
                self.harness.step(next(iter(self.harness.dirty)))

    # What always holds

    @invariant()
    def no_pod_is_made_twice_or_beyond_its_replicas(self) -> None:
        for command in self.harness.done[self.checked :]:
            if isinstance(command, commands.Create) and command.kind is kinds.PODS:
                assert command.version is not None
        self.checked = len(self.harness.done)
        for pod in self.harness.pods():
            task = pod.metadata.annotation(keys.TASK_SPEC)
            index = pod.metadata.annotation(keys.TASK_INDEX)
            owner = pod.metadata.controller
            assert owner is not None
            assert pod.metadata.name == f"{owner.name}-{task}-{index}"
            assert int(index or 0) < 7

    @invariant()
    def every_phase_is_reported_in_order(self) -> None:
        last: dict[str, tuple[str, int]] = {}
        for _, message in self.harness.sent:
            if isinstance(message, messages.JobPhaseChanged):
                phase, version = last.get(message.uid, ("", 0))
                assert message.before == phase
                assert message.object_version >= version, "told backwards"
                last[message.uid] = message.after, message.object_version

    def teardown(self) -> None:
        """Without further changes everything comes to rest, and another reconcile finds nothing to
        do.
        """
        harness = self.harness
        for _ in range(8):
            harness.settle()
            for key in self.going():
                harness.reap(key)
            harness.wait(400)
        harness.settle()
        harness.dirty = dict.fromkeys(harness.cache.items())
        harness.settle()  # unchanged conditions are written again after a while
        done = len(harness.done)
        harness.dirty = dict.fromkeys(harness.cache.items())
        harness.settle()
        assert harness.done[done:] == [], harness.done[done:]
        for (plural, key), body in harness.objects.items():
            if plural != "jobs":
                continue
            job = harness.job(key)
            sent = harness.phases_seen(key)
            assert sent[-1] == job.status.state.phase
            if job.status.state.phase in lifecycle.FINISHED:
                status = job.status
                assert (status.pending, status.running, status.terminating) == (0, 0, 0)
            elif any(pods.blockers(job)):
                assert job.metadata.annotation(keys.HELD), "it waits without a reason"
            else:
                mine = harness.past.of(job.metadata.uid)
                invariants.check_counts(job, mine)
                if job.spec.array is not None or job.status.state.phase == "Aborted":
                    # Pods with a result are kept for inspection.
                    mine = [it for it in mine if not tasks.has_finished(it)]
                assert len(mine) <= sum(task.replicas for task in job.spec.tasks)
            assert body["metadata"]["uid"] in harness.phases
        self.check_end()
        self.check_deletion()

    def check_deletion(self) -> None:
        """With a job all its objects are deleted."""
        for name in ("a", "b"):
            self.harness.delete(kinds.JOBS, f"default/{name}")
        self.harness.settle()
        for key in self.going():
            self.harness.reap(key)
        self.harness.settle()
        assert {plural for plural, _ in self.harness.objects} <= {"queues"}, self.harness.objects

    def check_end(self) -> None:
        """If gangs are enqueued and pods run and succeed, every job ends."""
        harness = self.harness
        for _ in range(40):
            if not self.unended():
                return
            self.everything_goes_on()
            for pod in harness.pods():
                if pod.status.phase in ("Running", "Unknown"):
                    harness.change_pod(pod.metadata.key, "Succeeded", "n1", 0)
            harness.wait(400)
            harness.settle()
        raise AssertionError(self.unended())

    def unended(self) -> list[batch.Job]:
        """Jobs that have not ended and wait for no user."""
        found = [self.harness.job(key) for plural, key in self.harness.objects if plural == "jobs"]
        return [
            job
            for job in found
            if job.status.state.phase not in {*lifecycle.FINISHED, "Aborted"}
            and not any(pods.blockers(job))
            and any(task.replicas for task in job.spec.tasks)
        ]


TestAnyOrder = pytest.mark.timeout(300 * depth.FACTOR)(AnyOrder.TestCase)
TestAnyOrder.settings = settings(
    depth.examples(50),
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow],
)
