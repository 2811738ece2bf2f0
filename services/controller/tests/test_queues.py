"""Rules of queues: states, commands, the tree, and what their status tells."""

import contextlib

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.controller.tests.scenes import running, submitted
from services.controller.tests.world import KilledError, World
from stromboli.controller.core.queues import queue_counts, queue_states
from stromboli.shared import keys, topics
from stromboli.shared.api import kinds
from stromboli.testkit.builders import (
    garbled,
    make_command,
    make_job,
    make_pod_group,
    make_queue,
    make_task,
)

MARK = keys.CLOSED_BY_PARENT


def tree() -> World:
    """Below the root ``org``, below that ``team`` and ``other``, below ``team`` a ``leaf``."""
    world = World()
    for name, parent in (("org", "root"), ("team", "org"), ("other", "org"), ("leaf", "team")):
        world.submit(make_queue(name, parent=parent))
    world.settle()
    return world


def order(world: World, action: str, name: str, settle: bool = True) -> None:
    count = sum(1 for kind, _ in world.objects if kind == "commands")
    number = len(world.done) * 10 + count
    world.submit(make_command(f"c{number}", action, world.queue(name)))
    if settle:
        world.settle()


def states(world: World) -> dict[str, str]:
    return {name: world.queue(name).status.state for name in ("org", "team", "other", "leaf")}


def fill(world: World, queue: str, phase: str = "Running", name: str = "g") -> None:
    group = make_pod_group(name, queue=queue, phase=phase)
    world.submit(group)
    world.settle()


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
    world = tree()
    fill(world, "leaf")
    order(world, "CloseQueue", "leaf")
    assert world.queue("leaf").status.state == "Closing"
    body = world.objects["podgroups", "default/g"]
    body["status"]["phase"] = "Completed"
    world.put(kinds.POD_GROUPS, body)
    world.settle()
    assert world.queue("leaf").status.state == "Closed"


def test_a_pod_group_that_cannot_be_read_may_be_in_any_queue() -> None:
    world = tree()
    world.picture.apply(garbled(topics.POD_GROUPS, "default/g"))
    order(world, "CloseQueue", "leaf")
    assert world.queue("leaf").status.state == "Closing"
    fill(world, "other", phase="Completed")
    assert world.queue("leaf").status.state == "Closed", "it can be read, and is elsewhere"


def test_a_word_that_is_no_state_is_left_until_somebody_commands() -> None:
    world = tree()
    body = world.objects["queues", "leaf"]
    body["status"]["state"] = "Ajar"
    world.put(kinds.QUEUES, body)
    world.settle()
    assert world.queue("leaf").status.state == "Ajar"
    order(world, "OpenQueue", "leaf")
    assert world.queue("leaf").status.state == "Open"


def test_a_queue_without_a_parent_is_put_below_the_root() -> None:
    world = World()
    world.submit(make_queue("q", state=""))
    world.settle()
    assert (world.queue("q").spec.parent, world.queue("q").status.state) == ("root", "Open")
    assert world.queue("root").spec.parent == ""


# The tree


def test_closing_goes_down_and_opening_brings_back_what_went_down_with_it() -> None:
    world = tree()
    order(world, "CloseQueue", "org")
    assert set(states(world).values()) == {"Closed"}
    marks = {name: world.queue(name).metadata.annotation(MARK) for name in states(world)}
    assert marks == {"org": None, "team": "true", "other": "true", "leaf": "true"}
    order(world, "OpenQueue", "org")
    assert set(states(world).values()) == {"Open"}
    assert world.queue("leaf").metadata.annotation(MARK) == "false"


@pytest.mark.parametrize("first", ["before", "after"])
def test_what_was_closed_by_its_own_command_stays_closed(first: str) -> None:
    """Whether that came before the parent's or after it."""
    world = tree()
    for name in ("leaf", "org") if first == "before" else ("org", "leaf"):
        order(world, "CloseQueue", name)
    order(world, "OpenQueue", "org")
    assert states(world) == {"org": "Open", "team": "Open", "other": "Open", "leaf": "Closed"}


def test_a_queue_below_a_closed_one_opens_with_it_and_says_so() -> None:
    world = tree()
    order(world, "CloseQueue", "org")
    order(world, "OpenQueue", "team")
    assert world.queue("team").status.state == "Closed"
    said = [it for it in world.events.values() if it.reason == "OpenQueue"]
    assert [(it.type, it.name) for it in said] == [("Warning", "team")]
    assert said[0].message == "it opens with queue 'org' above it, which is Closed"
    order(world, "OpenQueue", "org")
    assert world.queue("team").status.state == "Open"


def test_a_queue_that_was_closed_by_itself_opens_with_the_one_above_once_it_was_asked_to() -> None:
    world = tree()
    order(world, "CloseQueue", "team")
    order(world, "CloseQueue", "org")
    order(world, "OpenQueue", "team")
    assert world.queue("team").status.state == "Closed"
    order(world, "OpenQueue", "org")
    assert world.queue("team").status.state == "Open"


def test_a_queue_made_below_a_closed_one_is_closed_with_it() -> None:
    world = tree()
    order(world, "CloseQueue", "team")
    world.submit(make_queue("late", parent="team", state=""))
    world.settle()
    assert world.queue("late").status.state == "Closed"
    order(world, "OpenQueue", "team")
    assert world.queue("late").status.state == "Open"


def test_queues_in_a_circle_end_no_step() -> None:
    world = tree()
    for name, parent in (("team", "leaf"), ("org", "other")):
        body = world.objects["queues", name]
        body["spec"]["parent"] = parent
        world.put(kinds.QUEUES, body)
    world.settle()
    order(world, "CloseQueue", "team")
    assert world.queue("leaf").status.state == "Closed"


# Commands


def test_a_command_is_carried_out_once_told_and_deleted() -> None:
    world = tree()
    order(world, "CloseQueue", "leaf")
    order(world, "CloseQueue", "leaf")
    order(world, "SyncQueue", "leaf")
    assert not any(kind == "commands" for kind, _ in world.objects)
    assert world.reasons() == ["CloseQueue", "SyncQueue"]


def test_commands_are_carried_out_in_their_order() -> None:
    world = tree()
    order(world, "CloseQueue", "leaf", settle=False)
    order(world, "OpenQueue", "leaf", settle=False)
    world.settle()
    assert world.queue("leaf").status.state == "Open"


@pytest.mark.parametrize(
    ("name", "action", "reason", "words"),
    [
        ("root", "CloseQueue", "CloseQueue", "never closed"),
        ("leaf", "AbortJob", "CommandRefused", "OpenQueue, CloseQueue, SyncQueue"),
    ],
)
def test_what_is_not_carried_out_is_said_on_the_queue(
    name: str, action: str, reason: str, words: str
) -> None:
    world = tree()
    order(world, action, name)
    (said,) = world.events.values()
    assert (said.type, said.reason) == ("Warning", reason)
    assert words in said.message
    assert not any(kind == "commands" for kind, _ in world.objects)
    assert world.queue(name).status.state == "Open"


def test_a_command_for_an_earlier_queue_of_the_name_does_nothing() -> None:
    world = tree()
    earlier = world.queue("leaf")
    world.delete(kinds.QUEUES, "leaf")
    world.submit(make_queue("leaf", parent="team"))
    world.submit(make_command("c1", "CloseQueue", earlier))
    world.settle()
    assert world.queue("leaf").status.state == "Open"
    (said,) = world.events.values()
    assert "earlier queue" in said.message


def test_a_command_waits_a_little_for_its_queue_then_it_is_refused() -> None:
    world = tree()
    world.submit(make_command("c1", "CloseQueue", make_queue("nowhere")))
    world.settle()
    assert ("commands", "default/c1") in world.objects
    world.wait(31)
    world.settle()
    assert ("commands", "default/c1") not in world.objects
    assert world.reasons() == ["CommandRefused"]


# What the status tells


def test_pod_groups_are_counted_by_phase_in_their_own_queue() -> None:
    world = tree()
    for number, phase in enumerate(("Pending", "Inqueue", "Running", "Running", "Unknown")):
        fill(world, "leaf", phase, f"g{number}")
    fill(world, "leaf", "Completed", "g9")
    status = world.queue("leaf").status
    counts = (status.pending, status.inqueue, status.running, status.unknown, status.completed)
    assert counts == (1, 1, 2, 1, 1)
    assert world.queue("team").status.running == 0
    world.delete(kinds.POD_GROUPS, "default/g2")
    world.settle()
    assert world.queue("leaf").status.running == 1


def test_what_pods_hold_counts_for_their_queue_and_all_above() -> None:
    world = submitted(make_job(queue="leaf", tasks=[make_task(replicas=2, cpu="500m")]))
    for name, parent in (("org", "root"), ("leaf", "org")):
        world.submit(make_queue(name, parent=parent))
    world.enqueue(world.group_key())
    world.settle()
    assert not world.queue("leaf").status.allocated, "a pod without a node holds nothing"
    world.run()
    world.settle()
    for name in ("leaf", "org", "root"):
        held = world.queue(name).status.allocated or {}
        assert (held["cpu"], held["pods"]) == ("1", "2")
    world.run(phase="Succeeded")
    world.settle()
    for name in ("leaf", "org", "root"):
        assert world.queue(name).status.allocated == {}


def test_a_sum_beyond_what_one_quantity_may_be_is_written_once() -> None:
    """Read again it is less than it was, and would be written for ever."""
    world = running(make_job(tasks=[make_task(replicas=3, memory="3Ei")]))
    assert (world.queue("default").status.allocated or {})["memory"] == f"{9 * 2**20}Ti"
    assert not queue_counts.reconcile(world.picture, "default", world.now)


def test_a_pod_that_is_going_or_cannot_be_read_holds_what_it_held() -> None:
    world = running(make_job(tasks=[make_task(replicas=2, cpu="1")]))
    one, two = world.pods()
    world.delete(kinds.PODS, one.metadata.key)
    world.settle()
    world.picture.apply(garbled(topics.PODS, two.metadata.key, 10**6))
    world.settle()
    assert (world.queue("default").status.allocated or {})["cpu"] == "2"
    world.reap(one.metadata.key)
    world.settle()
    assert (world.queue("default").status.allocated or {})["cpu"] == "1"


def test_a_queue_that_changes_its_parent_takes_what_it_holds_along() -> None:
    world = tree()
    world.submit(make_job(queue="leaf", tasks=[make_task(replicas=1, cpu="1")]))
    world.settle()
    world.enqueue(world.group_key())
    world.settle()
    world.run()
    world.settle()
    body = world.objects["queues", "leaf"]
    body["spec"]["parent"] = "other"
    world.put(kinds.QUEUES, body)
    world.settle()
    assert not world.queue("team").status.allocated
    assert (world.queue("other").status.allocated or {})["cpu"] == "1"


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
        self.world = tree()
        self.number = 0

    @rule(name=QUEUES, action=st.sampled_from(["OpenQueue", "CloseQueue"]))
    def command(self, name: str, action: str) -> None:
        self.number += 1
        self.world.submit(make_command(f"c{self.number}", action, self.world.queue(name)))

    @rule(name=QUEUES, phase=st.sampled_from(["Pending", "Running", "Completed"]))
    def fill(self, name: str, phase: str) -> None:
        self.number += 1
        self.world.submit(make_pod_group(f"g{self.number}", queue=name, phase=phase))

    @rule(number=st.integers(1, 20))
    def empty(self, number: int) -> None:
        self.world.delete(kinds.POD_GROUPS, f"default/g{number}")

    @rule(name=st.sampled_from(["other", "leaf"]), parent=st.sampled_from(["root", "org", "team"]))
    def move(self, name: str, parent: str) -> None:
        body = self.world.objects["queues", name]
        self.world.put(kinds.QUEUES, body | {"spec": body["spec"] | {"parent": parent}})

    @rule(topic=TOPICS)
    def see(self, topic: str) -> None:
        self.world.see_one(topic)

    @rule(topic=TOPICS)
    def see_again(self, topic: str) -> None:
        self.world.see_again(topic)

    @precondition(lambda self: self.world.dirty)
    @rule()
    def step(self) -> None:
        self.world.step(next(iter(self.world.dirty)))

    @rule(commands=st.integers(0, 6))
    def kill(self, commands: int) -> None:
        self.world.commands_left = commands
        with contextlib.suppress(KilledError):
            self.world.settle()
        self.world.restart()

    @rule()
    def settle(self) -> None:
        self.world.settle()
        queues = {name: self.world.queue(name) for name in NAMES}
        groups = self.world.groups()
        assert not any(kind == "commands" for kind, _ in self.world.objects), "none is forgotten"
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
        assert self.world.queue("root").status.state == "Open"


TestTree = Tree.TestCase
TestTree.settings = settings(
    max_examples=60, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
