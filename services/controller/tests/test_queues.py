"""Queues: states, commands, the tree, and counts in their status."""

import contextlib

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.controller.tests.support.core_harness import CoreHarness, KilledError
from services.controller.tests.support.scenarios import running, submitted
from stromboli.controller.core.queues import queue_counts, queue_states
from stromboli.shared import keys, topics
from stromboli.shared.api import kinds
from stromboli.testkit.builders import (
    make_command,
    make_job,
    make_pod_group,
    make_queue,
    make_task,
    undecodable_record,
)

MARK = keys.CLOSED_BY_PARENT


def tree() -> CoreHarness:
    """Below the root ``org``, below that ``team`` and ``other``, below ``team`` a ``leaf``."""
    harness = CoreHarness()
    for name, parent in (("org", "root"), ("team", "org"), ("other", "org"), ("leaf", "team")):
        harness.submit(make_queue(name, parent=parent))
    harness.settle()
    return harness


def order(harness: CoreHarness, action: str, name: str, settle: bool = True) -> None:
    count = sum(1 for kind, _ in harness.objects if kind == "commands")
    number = len(harness.done) * 10 + count
    harness.submit(make_command(f"c{number}", action, harness.queue(name)))
    if settle:
        harness.settle()


def states(harness: CoreHarness) -> dict[str, str]:
    return {name: harness.queue(name).status.state for name in ("org", "team", "other", "leaf")}


def fill(harness: CoreHarness, queue: str, phase: str = "Running", name: str = "g") -> None:
    group = make_pod_group(name, queue=queue, phase=phase)
    harness.submit(group)
    harness.settle()


# States


@pytest.mark.parametrize("action", queue_states.ACTIONS)
@pytest.mark.parametrize("state", queue_states.STATES)
def test_every_state_has_every_action(
    state: queue_states.State, action: queue_states.Action
) -> None:
    for is_empty in (True, False):
        after = queue_states.after(state, action, is_empty=is_empty)
        assert after in queue_states.STATES
        if action == "OpenQueue":
            assert after == "Open"
        if action == "CloseQueue":
            assert after in queue_states.SHUT
        if after == "Closed":
            assert is_empty or state == "Closed", "what works is let finish"


def test_a_closed_queue_that_holds_work_is_closing_until_that_has_ended() -> None:
    harness = tree()
    fill(harness, "leaf")
    order(harness, "CloseQueue", "leaf")
    assert harness.queue("leaf").status.state == "Closing"
    body = harness.objects["podgroups", "default/g"]
    body["status"]["phase"] = "Completed"
    harness.put(kinds.POD_GROUPS, body)
    harness.settle()
    assert harness.queue("leaf").status.state == "Closed"


def test_a_pod_group_that_cannot_be_read_may_be_in_any_queue() -> None:
    harness = tree()
    harness.cache.apply(undecodable_record(topics.POD_GROUPS, "default/g"))
    order(harness, "CloseQueue", "leaf")
    assert harness.queue("leaf").status.state == "Closing"
    fill(harness, "other", phase="Completed")
    assert harness.queue("leaf").status.state == "Closed", "it can be read, and is elsewhere"


def test_an_unknown_state_is_kept_until_a_command() -> None:
    harness = tree()
    body = harness.objects["queues", "leaf"]
    body["status"]["state"] = "Ajar"
    harness.put(kinds.QUEUES, body)
    harness.settle()
    assert harness.queue("leaf").status.state == "Ajar"
    order(harness, "OpenQueue", "leaf")
    assert harness.queue("leaf").status.state == "Open"


def test_a_queue_without_a_parent_is_put_below_the_root() -> None:
    harness = CoreHarness()
    harness.submit(make_queue("q", state=""))
    harness.settle()
    assert (harness.queue("q").spec.parent, harness.queue("q").status.state) == ("root", "Open")
    assert harness.queue("root").spec.parent == ""


# The tree


def test_closing_goes_down_and_opening_brings_back_what_went_down_with_it() -> None:
    harness = tree()
    order(harness, "CloseQueue", "org")
    assert set(states(harness).values()) == {"Closed"}
    marks = {name: harness.queue(name).metadata.annotation(MARK) for name in states(harness)}
    assert marks == {"org": None, "team": "true", "other": "true", "leaf": "true"}
    order(harness, "OpenQueue", "org")
    assert set(states(harness).values()) == {"Open"}
    assert harness.queue("leaf").metadata.annotation(MARK) == "false"


@pytest.mark.parametrize("first", ["before", "after"])
def test_what_was_closed_by_its_own_command_stays_closed(first: str) -> None:
    """Whether it was closed before its parent or after it."""
    harness = tree()
    for name in ("leaf", "org") if first == "before" else ("org", "leaf"):
        order(harness, "CloseQueue", name)
    order(harness, "OpenQueue", "org")
    assert states(harness) == {"org": "Open", "team": "Open", "other": "Open", "leaf": "Closed"}


def test_a_child_of_a_closed_queue_opens_with_it_and_is_reported() -> None:
    harness = tree()
    order(harness, "CloseQueue", "org")
    order(harness, "OpenQueue", "team")
    assert harness.queue("team").status.state == "Closed"
    events = [it for it in harness.events.values() if it.reason == "OpenQueue"]
    assert [(it.type, it.name) for it in events] == [("Warning", "team")]
    assert events[0].message == "the parent queue 'org' is Closed; open it first"
    order(harness, "OpenQueue", "org")
    assert harness.queue("team").status.state == "Open"


def test_a_queue_that_was_closed_by_itself_opens_with_the_one_above_once_it_was_asked_to() -> None:
    harness = tree()
    order(harness, "CloseQueue", "team")
    order(harness, "CloseQueue", "org")
    order(harness, "OpenQueue", "team")
    assert harness.queue("team").status.state == "Closed"
    order(harness, "OpenQueue", "org")
    assert harness.queue("team").status.state == "Open"


def test_a_queue_made_below_a_closed_one_is_closed_with_it() -> None:
    harness = tree()
    order(harness, "CloseQueue", "team")
    harness.submit(make_queue("late", parent="team", state=""))
    harness.settle()
    assert harness.queue("late").status.state == "Closed"
    order(harness, "OpenQueue", "team")
    assert harness.queue("late").status.state == "Open"


def test_queues_in_a_circle_end_no_step() -> None:
    harness = tree()
    for name, parent in (("team", "leaf"), ("org", "other")):
        body = harness.objects["queues", name]
        body["spec"]["parent"] = parent
        harness.put(kinds.QUEUES, body)
    harness.settle()
    order(harness, "CloseQueue", "team")
    assert harness.queue("leaf").status.state == "Closed"


# Commands


def test_a_command_is_executed_once_reported_and_deleted() -> None:
    harness = tree()
    order(harness, "CloseQueue", "leaf")
    order(harness, "CloseQueue", "leaf")
    order(harness, "SyncQueue", "leaf")
    assert not any(kind == "commands" for kind, _ in harness.objects)
    assert harness.reasons() == ["CloseQueue", "SyncQueue"]


def test_commands_are_executed_in_their_order() -> None:
    harness = tree()
    order(harness, "CloseQueue", "leaf", settle=False)
    order(harness, "OpenQueue", "leaf", settle=False)
    harness.settle()
    assert harness.queue("leaf").status.state == "Open"


@pytest.mark.parametrize(
    ("name", "action", "reason", "words"),
    [
        ("root", "CloseQueue", "CloseQueue", "cannot be closed"),
        ("leaf", "AbortJob", "CommandRefused", "OpenQueue, CloseQueue, SyncQueue"),
    ],
)
def test_a_rejected_command_is_reported_on_the_queue(
    name: str, action: str, reason: str, words: str
) -> None:
    harness = tree()
    order(harness, action, name)
    (event,) = harness.events.values()
    assert (event.type, event.reason) == ("Warning", reason)
    assert words in event.message
    assert not any(kind == "commands" for kind, _ in harness.objects)
    assert harness.queue(name).status.state == "Open"


def test_a_command_for_an_earlier_queue_of_the_name_does_nothing() -> None:
    harness = tree()
    earlier = harness.queue("leaf")
    harness.delete(kinds.QUEUES, "leaf")
    harness.submit(make_queue("leaf", parent="team"))
    harness.submit(make_command("c1", "CloseQueue", earlier))
    harness.settle()
    assert harness.queue("leaf").status.state == "Open"
    (event,) = harness.events.values()
    assert "earlier queue" in event.message


def test_a_command_waits_a_little_for_its_queue_then_it_is_refused() -> None:
    harness = tree()
    harness.submit(make_command("c1", "CloseQueue", make_queue("nowhere")))
    harness.settle()
    assert ("commands", "default/c1") in harness.objects
    harness.wait(31)
    harness.settle()
    assert ("commands", "default/c1") not in harness.objects
    assert harness.reasons() == ["CommandRefused"]


# Contents of the status


def test_pod_groups_are_counted_by_phase_in_their_own_queue() -> None:
    harness = tree()
    for number, phase in enumerate(("Pending", "Inqueue", "Running", "Running", "Unknown")):
        fill(harness, "leaf", phase, f"g{number}")
    fill(harness, "leaf", "Completed", "g9")
    status = harness.queue("leaf").status
    counts = (status.pending, status.inqueue, status.running, status.unknown, status.completed)
    assert counts == (1, 1, 2, 1, 1)
    assert harness.queue("team").status.running == 0
    harness.delete(kinds.POD_GROUPS, "default/g2")
    harness.settle()
    assert harness.queue("leaf").status.running == 1


def test_what_pods_hold_counts_for_their_queue_and_all_above() -> None:
    harness = submitted(make_job(queue="leaf", tasks=[make_task(replicas=2, cpu="500m")]))
    for name, parent in (("org", "root"), ("leaf", "org")):
        harness.submit(make_queue(name, parent=parent))
    harness.enqueue(harness.group_key())
    harness.settle()
    assert not harness.queue("leaf").status.allocated, "a pod without a node holds nothing"
    harness.run()
    harness.settle()
    for name in ("leaf", "org", "root"):
        held = harness.queue(name).status.allocated or {}
        assert (held["cpu"], held["pods"]) == ("1", "2")
    harness.run(phase="Succeeded")
    harness.settle()
    for name in ("leaf", "org", "root"):
        assert harness.queue(name).status.allocated == {}


def test_a_sum_beyond_what_one_quantity_may_be_is_written_once() -> None:
    """Parsed again it is smaller, and would be written indefinitely."""
    harness = running(make_job(tasks=[make_task(replicas=3, memory="3Ei")]))
    assert (harness.queue("default").status.allocated or {})["memory"] == f"{9 * 2**20}Ti"
    assert not queue_counts.reconcile(harness.cache, "default", harness.now)


def test_a_terminating_or_unreadable_pod_keeps_its_usage() -> None:
    harness = running(make_job(tasks=[make_task(replicas=2, cpu="1")]))
    one, two = harness.pods()
    harness.delete(kinds.PODS, one.metadata.key)
    harness.settle()
    harness.cache.apply(undecodable_record(topics.PODS, two.metadata.key, 10**6))
    harness.settle()
    assert (harness.queue("default").status.allocated or {})["cpu"] == "2"
    harness.reap(one.metadata.key)
    harness.settle()
    assert (harness.queue("default").status.allocated or {})["cpu"] == "1"


def test_a_queue_that_changes_its_parent_takes_what_it_holds_along() -> None:
    harness = tree()
    harness.submit(make_job(queue="leaf", tasks=[make_task(replicas=1, cpu="1")]))
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    harness.run()
    harness.settle()
    body = harness.objects["queues", "leaf"]
    body["spec"]["parent"] = "other"
    harness.put(kinds.QUEUES, body)
    harness.settle()
    assert not harness.queue("team").status.allocated
    assert (harness.queue("other").status.allocated or {})["cpu"] == "1"


# In any order

NAMES = ("org", "team", "other", "leaf")
QUEUES = st.sampled_from(NAMES)
TOPICS = st.sampled_from(
    [topics.QUEUES.name, topics.POD_GROUPS.name, topics.PODS.name, topics.COMMANDS.name]
)


class Tree(RuleBasedStateMachine):
    """Users open, close and move queues and fill them; the controller is late and is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = tree()
        self.number = 0

    @rule(name=QUEUES, action=st.sampled_from(["OpenQueue", "CloseQueue"]))
    def command(self, name: str, action: str) -> None:
        self.number += 1
        self.harness.submit(make_command(f"c{self.number}", action, self.harness.queue(name)))

    @rule(name=QUEUES, phase=st.sampled_from(["Pending", "Running", "Completed"]))
    def fill(self, name: str, phase: str) -> None:
        self.number += 1
        self.harness.submit(make_pod_group(f"g{self.number}", queue=name, phase=phase))

    @rule(number=st.integers(1, 20))
    def empty(self, number: int) -> None:
        self.harness.delete(kinds.POD_GROUPS, f"default/g{number}")

    @rule(name=st.sampled_from(["other", "leaf"]), parent=st.sampled_from(["root", "org", "team"]))
    def move(self, name: str, parent: str) -> None:
        body = self.harness.objects["queues", name]
        self.harness.put(kinds.QUEUES, body | {"spec": body["spec"] | {"parent": parent}})

    @rule(topic=TOPICS)
    def see(self, topic: str) -> None:
        self.harness.see_one(topic)

    @rule(topic=TOPICS)
    def see_again(self, topic: str) -> None:
        self.harness.see_again(topic)

    @precondition(lambda self: self.harness.dirty)
    @rule()
    def step(self) -> None:
        self.harness.step(next(iter(self.harness.dirty)))

    @rule(commands=st.integers(0, 6))
    def kill(self, commands: int) -> None:
        self.harness.commands_left = commands
        with contextlib.suppress(KilledError):
            self.harness.settle()
        self.harness.restart()

    @rule()
    def settle(self) -> None:
        self.harness.settle()
        queues = {name: self.harness.queue(name) for name in NAMES}
        groups = self.harness.groups()
        assert not any(kind == "commands" for kind, _ in self.harness.objects), "none is forgotten"
        for name, queue in queues.items():
            parent = queues.get(queue.spec.parent)
            if parent is not None and parent.status.state in queue_states.SHUT:
                assert queue.status.state in queue_states.SHUT, "nothing is open below a shut one"
            mine = [it.status.phase for it in groups if it.spec.queue == name]
            if queue.status.state == "Closing":
                assert set(mine) - {"Completed"}, "an empty queue does not wait"
            assert queue.status.running == mine.count("Running")
            assert queue.status.pending == mine.count("Pending")
            is_marked = queue.metadata.annotation(MARK) == "true"
            if is_marked:
                assert parent is not None
                assert parent.status.state in queue_states.SHUT, "it opens with its parent"

    @invariant()
    def the_root_stays_open(self) -> None:
        assert self.harness.queue("root").status.state == "Open"


TestTree = Tree.TestCase
TestTree.settings = settings(
    max_examples=60, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
