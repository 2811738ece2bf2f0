"""Flows and crons with changes in any order: each job is created once, and the end is the same.

Records are applied late, twice or by the next controller, which may start with an outdated cache;
the clock jumps both ways; jobs have a long time to live, or none.
"""

from datetime import datetime

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.controller.tests.support.core_harness import CoreHarness, KilledError, TopicKey
from stromboli.controller.core import lifecycle
from stromboli.shared import envelope, topics
from stromboli.shared.api import flow, kinds
from stromboli.testkit.builders import make_cron, make_flow, make_job, make_template
from stromboli.testkit.strategies import depth

ENTRIES: dict[str, list[str]] = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
FLOW, CRON = "default/f", "default/n"
MAKERS = (topics.JOB_FLOWS.name, topics.CRON_JOBS.name)
SEEN = (*MAKERS, topics.JOB_TEMPLATES.name, topics.JOBS.name, topics.POD_GROUPS.name)
OVER = ("Succeeded", "Failed")


class MakersInAnyOrder(RuleBasedStateMachine):
    """A flow in the shape of a diamond and a cron, with their jobs and a controller."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = CoreHarness()
        self.failed: set[str] = set()
        self.old: dict[TopicKey, envelope.Record] = {}
        self.served: datetime | None = None

    @initialize(
        ttl=st.sampled_from([None, 0, 60]),
        retain=st.sampled_from(["retain", "delete"]),
        policy=st.sampled_from(["Allow", "Forbid", "Replace"]),
        order=st.permutations([*ENTRIES, "flow", "cron"]),
    )
    def submit(self, ttl: int | None, retain: str, policy: str, order: list[str]) -> None:
        job = make_job(ttl_seconds_after_finished=ttl)
        for name in order:
            if name == "flow":
                self.harness.submit(make_flow("f", ENTRIES, retain=retain))
            elif name == "cron":
                self.harness.submit(make_cron("n", "*/5 * * * *", job, concurrency_policy=policy))
            else:
                self.harness.submit(make_template(name, job))

    # Jobs end

    @rule(data=st.data())
    def enqueue(self, data: st.DataObject) -> None:
        waiting = [
            key
            for (plural, key), body in self.harness.objects.items()
            if plural == "podgroups" and body["status"]["phase"] == "Pending"
        ]
        if waiting:
            self.harness.enqueue(data.draw(st.sampled_from(waiting)))

    @rule(data=st.data(), phase=st.sampled_from(["Running", "Succeeded", "Succeeded", "Failed"]))
    def run_pod(self, data: st.DataObject, phase: str) -> None:
        alive = [pod.metadata for pod in self.harness.pods() if pod.status.phase not in OVER]
        if alive:
            pod = data.draw(st.sampled_from(alive))
            if phase == "Failed":
                self.failed.add(pod.name.removesuffix("-worker-0"))
            self.harness.change_pod(pod.key, phase, "n1", None if phase == "Running" else 1)

    @rule()
    def jobs_run_ahead_of_their_makers(self) -> None:
        """Jobs finish and expire while flows are not reconciled."""
        for _ in range(4):
            self.harness.see()
            self.finish_all()
            self.harness.see()
            for item in [it for it in self.harness.dirty if it.kind in ("job", "podgroup")]:
                self.harness.step(item)

    def finish_all(self) -> None:
        """PodGroups are enqueued, pods succeed or are deleted."""
        for (plural, key), body in list(self.harness.objects.items()):
            if plural == "podgroups" and body["status"]["phase"] == "Pending":
                self.harness.enqueue(key)
        for pod in self.harness.pods():
            if pod.metadata.deletion_timestamp is not None:
                self.harness.reap(pod.metadata.key)
            elif pod.status.phase not in OVER:
                self.harness.change_pod(pod.metadata.key, "Succeeded", "n1")

    @rule(seconds=st.integers(-400, 700))
    def wait(self, seconds: int) -> None:
        self.harness.wait(seconds)

    # The controller

    @rule(topic=st.sampled_from((*SEEN, topics.PODS.name)))
    def see_one(self, topic: str) -> None:
        self.harness.see_one(topic)

    @rule(topic=st.sampled_from(SEEN))
    def see_again(self, topic: str) -> None:
        self.harness.see_again(topic)

    @rule()
    def settle(self) -> None:
        self.harness.settle()

    @precondition(lambda self: self.harness.dirty)
    @rule(data=st.data(), most=st.none() | st.integers(0, 4))
    def step(self, data: st.DataObject, most: int | None) -> None:
        item = data.draw(st.sampled_from(sorted(self.harness.dirty, key=str)))
        self.harness.commands_left = most
        try:
            self.harness.step(item)
        except KilledError:
            self.harness.restart()
        self.harness.commands_left = None

    @rule()
    def step_on_what_was_seen(self) -> None:
        for _ in range(200):
            if not self.harness.dirty:
                break
            self.harness.step(next(iter(self.harness.dirty)))

    @rule()
    def remember(self) -> None:
        for topic in MAKERS:
            self.old |= self.harness.shown(topic)

    @rule()
    def start_from_an_old_cache(self) -> None:
        self.harness.restart(old=self.old)

    # What always holds

    @invariant()
    def no_job_is_made_twice(self) -> None:
        assert all(len(uids) == 1 for uids in self.harness.made.values())

    @invariant()
    def the_time_that_was_served_last_never_goes_back(self) -> None:
        if ("cronjobs", CRON) in self.harness.objects:
            served = self.harness.get(kinds.CRON_JOBS, CRON).status.last_schedule_time
            assert self.served is None or (served is not None and served >= self.served)
            self.served = served

    @invariant()
    def no_job_of_the_flow_is_there_before_its_targets_completed(self) -> None:
        for name, targets in ENTRIES.items():
            if f"default/f-{name}" in self.harness.made:
                for target in targets:
                    (uid,) = self.harness.made[f"default/f-{target}"]
                    assert self.harness.phases[uid][-1].state.phase == "Completed"

    def teardown(self) -> None:
        """Without further changes, and with every remaining pod succeeding, the flow ends as in
        order, and another reconcile finds nothing to do.
        """
        harness = self.harness
        for _ in range(12):
            harness.settle()
            self.finish_all()
        # The clock may have gone back since the last reconcile: this is reported once.
        harness.dirty = dict.fromkeys(harness.cache.items())
        harness.settle()
        done = len(harness.done)
        harness.dirty = dict.fromkeys(harness.cache.items())
        harness.settle()
        assert harness.done[done:] == []
        if ("jobflows", FLOW) in harness.objects:
            self._check_the_flow(harness.get(kinds.JOB_FLOWS, FLOW).status)

    def _check_the_flow(self, status: flow.JobFlowStatus) -> None:
        failed = {name for name in ENTRIES if f"f-{name}" in self.failed}
        assert status.state.phase == ("Failed" if failed else "Succeed")
        assert status.failed_jobs == tuple(f"f-{name}" for name in ENTRIES if name in failed)
        if not failed:
            assert status.completed_jobs == tuple(f"f-{name}" for name in ENTRIES)
        assert all(it.state in lifecycle.FINISHED for it in status.job_status_list)


TestMakersInAnyOrder = pytest.mark.timeout(300 * depth.FACTOR)(MakersInAnyOrder.TestCase)
TestMakersInAnyOrder.settings = settings(
    depth.examples(60),
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow],
)
