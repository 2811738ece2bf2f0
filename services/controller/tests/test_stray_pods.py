"""Rules of pods that belong to no job of ours: Deployments, operators, pods by themselves."""

import contextlib
import copy
import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from services.controller.tests.world import KilledError, World
from stromboli.controller.core import commands
from stromboli.controller.core.store import unmanaged_pod_index
from stromboli.shared import keys, topics
from stromboli.shared.api import core, kinds, meta, scheduling
from stromboli.testkit import builders
from stromboli.testkit.builders import garbled, make_pod, make_queue

SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set-1"}
G = "default/podgroup-set-1"
LABEL = {keys.QUEUE_NAME: "q"}


def add_set(world: World, **annotations: str) -> None:
    """A ReplicaSet, as its Deployment made or changed it."""
    add_labelled_set(world, {}, annotations)


def add_labelled_set(world: World, labels: dict[str, str], annotations: dict[str, str]) -> None:
    """The same with labels of its own."""
    metadata = {"name": "web", "namespace": "default", "uid": "set-1"}
    world.put(
        kinds.REPLICA_SETS, {"metadata": {**metadata, "labels": labels, "annotations": annotations}}
    )


def add(world: World, name: str = "web-a", owner: dict[str, Any] | None = SET, **pod: Any) -> str:
    """A pod; by itself without an owner."""
    made = make_pod(name, **pod)
    body = msgspec.json.decode(msgspec.json.encode(made))
    del body["metadata"]["uid"]
    if owner is not None:
        if ("replicasets", "default/web") not in world.objects:
            add_set(world)  # whatever its kind: it lives
        body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    world.put(kinds.PODS, body)
    return f"default/{name}"


def group(world: World, key: str = G) -> scheduling.PodGroup:
    return world.get(kinds.POD_GROUPS, key)


def said(world: World) -> list[commands.RecordEvent]:
    return list(world.events.values())


def told(world: World) -> dict[str, str | None]:
    return {it.metadata.name: it.metadata.annotation(keys.GROUP_NAME) for it in world.pods()}


def test_pods_of_one_owner_share_its_pod_group() -> None:
    world = World()
    add_set(world)
    for name in ("web-a", "web-b"):
        add(world, name)
    world.settle()
    found = group(world)
    assert (found.spec.min_member, found.spec.queue, found.status.phase) == (
        1,
        "default",
        "Pending",
    )
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("ReplicaSet", "set-1", True)
    assert told(world) == {"web-a": "podgroup-set-1", "web-b": "podgroup-set-1"}
    assert (found.spec.min_resources or {})["cpu"] == "1"


def test_a_pod_by_itself_owns_its_pod_group() -> None:
    world = World()
    add(world, "alone", owner=None)
    world.settle()
    (pod,) = world.pods()
    found = group(world, f"default/podgroup-{pod.metadata.uid}")
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.uid) == ("Pod", pod.metadata.uid)
    assert told(world) == {"alone": found.metadata.name}


def test_pods_of_others_are_left_alone() -> None:
    """Those of other schedulers, and those whose maker names a PodGroup."""
    world = World()
    add(world, "theirs", scheduler="default-scheduler")
    add(world, "spark-driver", group="made-by-the-operator")
    world.settle()
    assert world.groups() == []
    assert told(world) == {"theirs": None, "spark-driver": "made-by-the-operator"}


def test_the_owner_says_how_many_run_together_and_hands_on_its_annotations() -> None:
    world = World()
    add_set(
        world,
        **{keys.GROUP_MIN_MEMBER: "3", "volcano.sh/sla-waiting-time": "1h", "other.io/x": "no"},
    )
    add(world, labels={keys.PREEMPTABLE: "true"}, annotations={keys.PREEMPTABLE: "false"})
    world.settle()
    found = group(world)
    assert found.spec.min_member == 3
    assert (found.spec.min_resources or {})["cpu"] == "3"
    assert found.metadata.annotation("volcano.sh/sla-waiting-time") == "1h"
    assert found.metadata.annotation("other.io/x") is None
    assert found.metadata.annotation(keys.PREEMPTABLE) == "true", "the label counts"


def test_pods_of_an_operator_may_say_it_themselves() -> None:
    """The operator's kind is none that we could read."""
    world = World()
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "t", "uid": "set-1"}
    asked = {
        keys.GROUP_MIN_MEMBER: "2",
        keys.GROUP_MIN_RESOURCES: json.dumps({"cpu": "4", "nvidia.com/gpu": 2}),
    }
    add(world, owner=owner, annotations=asked)
    world.settle()
    spec = group(world).spec
    assert (spec.min_member, spec.min_resources) == (2, {"cpu": "4", "nvidia.com/gpu": 2})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (keys.GROUP_MIN_MEMBER, "many"),
        (keys.GROUP_MIN_MEMBER, "-1"),
        (keys.GROUP_MIN_RESOURCES, "cpu=1"),
        (keys.GROUP_MIN_RESOURCES, '{"cpu": "lots"}'),
    ],
)
def test_what_cannot_be_read_is_said_and_the_pod_itself_counts(key: str, value: str) -> None:
    world = World()
    add_set(world, **{key: value})
    add(world)
    world.settle()
    assert (group(world).spec.min_member, (group(world).spec.min_resources or {})["cpu"]) == (
        1,
        "1",
    )
    (said,) = world.events.values()
    assert (said.type, said.reason, said.name) == ("Warning", "PodGroupError", "web-a")
    assert key in said.message


@pytest.mark.parametrize(
    ("annotations", "labels", "namespace", "queue"),
    [
        ({keys.NAMESPACE_QUEUE: "a"}, LABEL, "n", "a"),
        ({}, LABEL, "n", "q"),
        ({keys.QUEUE_NAME: "b"}, {}, "n", "b"),
        ({}, {}, "n", "n"),
        ({}, {}, "", "default"),
    ],
)
def test_the_queue_is_said_by_the_pod_else_by_its_namespace(
    annotations: dict[str, str], labels: dict[str, str], namespace: str, queue: str
) -> None:
    world = World()
    metadata: dict[str, Any] = {"name": "default"}
    if namespace:
        metadata["annotations"] = {keys.NAMESPACE_QUEUE: namespace}
    world.put(kinds.NAMESPACES, {"metadata": metadata})
    add(world, annotations=annotations, labels=labels)
    world.settle()
    assert group(world).spec.queue == queue


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [({keys.NAMESPACE_QUEUE: "o"}, {}), ({}, {keys.QUEUE_NAME: "o"}), ({keys.QUEUE_NAME: "o"}, {})],
)
def test_an_owner_may_say_the_queue_for_pods_that_name_none(
    annotations: dict[str, str], labels: dict[str, str]
) -> None:
    world = World()
    metadata = {"name": "default", "annotations": {keys.NAMESPACE_QUEUE: "n"}}
    world.put(kinds.NAMESPACES, {"metadata": metadata})
    add_labelled_set(world, labels, annotations)
    add(world)
    world.settle()
    assert group(world).spec.queue == "o"


# What is said later


def test_what_the_owner_says_later_holds() -> None:
    world = World()
    add_set(world, **{keys.GROUP_MIN_MEMBER: "5", "volcano.sh/sla-waiting-time": "1h"})
    add(world)
    world.settle()
    add_set(world, **{keys.GROUP_MIN_MEMBER: "2", keys.JDB_MIN_AVAILABLE: "1"})
    world.settle()
    found = group(world)
    assert (found.spec.min_member, (found.spec.min_resources or {})["cpu"]) == (2, "2")
    assert found.metadata.annotation(keys.JDB_MIN_AVAILABLE) == "1"
    assert found.metadata.annotation("volcano.sh/sla-waiting-time") is None
    assert found.status.phase == "Pending"


def test_it_holds_also_for_pods_that_run_and_what_cannot_be_read_leaves_the_gang_as_it_is() -> None:
    world = World()
    add_set(world, **{keys.GROUP_MIN_MEMBER: "1"})
    add(world)
    world.settle()
    world.enqueue(G)
    world.run("web-a")
    add_set(world, **{keys.PREEMPTABLE: "true", keys.GROUP_MIN_MEMBER: "2"})
    world.settle()
    assert group(world).metadata.annotation(keys.PREEMPTABLE) == "true"
    assert group(world).spec.min_member == 2
    add_set(world, **{keys.PREEMPTABLE: "true", keys.GROUP_MIN_MEMBER: "two"})
    world.settle()
    assert group(world).spec.min_member == 2
    assert any("'two' is no count of pods; 2 is taken" in it.message for it in said(world))


def test_a_change_after_a_restart_is_followed_too() -> None:
    world = World()
    add_set(world)
    add(world)
    world.settle()
    world.restart()
    world.settle()
    add_set(world, **{keys.GROUP_MIN_MEMBER: "2"})
    world.settle()
    assert group(world).spec.min_member == 2


def test_an_owner_that_is_gone_takes_nothing_back() -> None:
    world = World()
    add_set(world, **{keys.GROUP_MIN_MEMBER: "2"})
    add(world)
    world.settle()
    world.restart()
    world.picture.note_owner("default", "set-1", None)
    world.see()
    world.settle()
    assert group(world).spec.min_member == 2


def test_old_news_of_an_owner_changes_nothing() -> None:
    world = World()
    add(world)
    world.settle()

    def read(version: int, least: str) -> meta.ObjectMeta:
        return meta.ObjectMeta(
            name="web",
            uid="set-1",
            resource_version=str(version),
            annotations={keys.GROUP_MIN_MEMBER: least},
        )

    assert world.picture.note_owner("default", "set-1", read(10**6, "3"))
    assert not world.picture.note_owner("default", "set-1", read(10**6 - 1, "2"))
    assert not world.picture.note_owner("default", "set-1", read(10**6 + 1, "3")), "nothing new"
    assert not world.picture.note_owner("default", "set-9", read(10**6, "3")), "of nobody's pods"


def test_a_queue_is_followed_until_it_was_entered() -> None:
    world = World()
    add(world)
    namespace: dict[str, Any] = {"name": "default", "annotations": {keys.NAMESPACE_QUEUE: "n"}}
    world.settle()
    assert group(world).spec.queue == "default"
    world.put(kinds.NAMESPACES, {"metadata": namespace})
    world.settle()
    assert group(world).spec.queue == "n"
    world.picture.apply(garbled(topics.NAMESPACES, "default", 10**6))
    world.dirty |= dict.fromkeys(world.picture.items())
    world.settle()
    assert group(world).spec.queue == "n", "a namespace that cannot be read takes nothing back"
    world.enqueue(G)
    world.settle()
    add_labelled_set(world, {keys.QUEUE_NAME: "o"}, {keys.JDB_MIN_AVAILABLE: "1"})
    world.settle()
    assert group(world).spec.queue == "n"
    assert group(world).metadata.annotation(keys.JDB_MIN_AVAILABLE) == "1"


def test_the_newest_pod_speaks_for_all() -> None:
    """A change of the template is being rolled out."""
    world = World()
    add(world, "web-a", cpu="1")
    world.settle()
    world.now += timedelta(seconds=1)
    add(world, "web-b", cpu="3")
    world.settle()
    assert (group(world).spec.min_resources or {})["cpu"] == "3"


def test_what_a_user_changed_on_the_pod_group_stays_until_something_else_is_said() -> None:
    world = World()
    add_set(world, **{keys.GROUP_MIN_MEMBER: "3"})
    add(world)
    world.settle()
    body = copy.deepcopy(world.objects["podgroups", G])
    body["spec"]["minMember"] = 1
    world.put(kinds.POD_GROUPS, body)
    world.settle()
    add(world, "web-b")
    add_set(world, **{keys.GROUP_MIN_MEMBER: "3", keys.JDB_MIN_AVAILABLE: "1"})
    world.settle()
    assert group(world).spec.min_member == 1
    add_set(world, **{keys.GROUP_MIN_MEMBER: "2"})
    world.settle()
    assert group(world).spec.min_member == 2


def test_what_is_as_it_was_is_written_once() -> None:
    world = World()
    add_set(world, **{keys.GROUP_MIN_MEMBER: "2"})
    add(world)
    world.settle()
    world.done.clear()
    add_set(world, **{keys.GROUP_MIN_MEMBER: "2", "other.io/revision": "2"})
    world.restart()
    world.settle()
    assert [it for it in world.done if isinstance(it, commands.Patch)] == []


def test_the_pod_group_goes_with_the_last_pod_and_comes_with_the_next() -> None:
    world = World()
    add_set(world)
    first = add(world, "web-a")
    add(world, "web-b")
    world.settle()
    for name in ("web-a", "web-b"):
        assert ("podgroups", G) in world.objects
        world.delete(kinds.PODS, f"default/{name}")
        world.settle()
        assert ("podgroups", G) in world.objects, "a pod that is going is there"
        world.reap(f"default/{name}")
        world.settle()
    assert world.groups() == []
    assert first
    add(world, "web-c")
    world.settle()
    assert told(world) == {"web-c": "podgroup-set-1"}


def test_a_pod_group_of_somebody_else_is_never_removed() -> None:
    world = World()
    world.submit(builders.make_pod_group("podgroup-set-1"))
    key = add(world)
    world.settle()
    assert told(world) == {"web-a": "podgroup-set-1"}, "it is the one that is meant"
    world.delete(kinds.PODS, key)
    world.settle()
    world.reap(key)
    world.settle()
    assert ("podgroups", G) in world.objects


def test_a_pod_that_cannot_be_read_may_be_the_last_one() -> None:
    world = World()
    add_set(world)
    add(world, "web-a")
    key = add(world, "web-b")
    world.settle()
    world.picture.apply(garbled(topics.PODS, key, 10**6))
    world.delete(kinds.PODS, "default/web-a")
    world.settle()
    world.reap("default/web-a")
    world.settle()
    assert ("podgroups", G) in world.objects


def test_they_are_counted_in_their_queue_and_their_status_is_kept() -> None:
    world = World()
    world.submit(make_queue("q", parent="root"))
    add(world, labels=LABEL)
    world.settle()
    world.enqueue(G)
    world.run("web-a")
    world.settle()
    assert group(world).status.phase == "Running"
    assert world.queue("q").status.running == 1
    assert (world.queue("q").status.allocated or {})["cpu"] == "1"


class Strays(RuleBasedStateMachine):
    """Pods come, run and go; the controller is late and is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        add_set(self.world)
        self.number = 0

    @rule(owned=st.booleans())
    def come(self, owned: bool) -> None:
        self.number += 1
        add(self.world, f"p{self.number}", owner=SET if owned else None)

    @precondition(lambda self: self.world.pods())
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.world.pods()))
        if pod.metadata.deletion_timestamp is None:
            self.world.delete(kinds.PODS, pod.metadata.key)
        else:
            self.world.reap(pod.metadata.key)

    @precondition(lambda self: self.world.groups())
    @rule(data=st.data())
    def lose_group(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(self.world.groups()))
        self.world.delete(kinds.POD_GROUPS, found.metadata.key)

    @rule(topic=st.sampled_from([topics.PODS.name, topics.POD_GROUPS.name]))
    def see(self, topic: str) -> None:
        self.world.see_one(topic)

    @rule(topic=st.sampled_from([topics.PODS.name, topics.POD_GROUPS.name]))
    def see_again(self, topic: str) -> None:
        self.world.see_again(topic)

    @rule(commands=st.integers(0, 5))
    def kill(self, commands: int) -> None:
        self.world.commands_left = commands
        with contextlib.suppress(KilledError):
            self.world.settle()
        self.world.restart()

    @rule()
    def settle(self) -> None:
        self.world.settle()
        pods: list[core.Pod] = self.world.pods()
        wanted = {unmanaged_pod_index.group_name(it) for it in pods}
        groups = {it.metadata.name for it in self.world.groups()}
        assert groups <= wanted, "none without a pod"
        for pod in pods:
            if pod.metadata.deletion_timestamp is None:
                assert pod.metadata.annotation(keys.GROUP_NAME) in groups


TestStrays = Strays.TestCase
TestStrays.settings = settings(
    max_examples=60, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)


def test_a_restricted_queue_is_used_from_its_namespaces_alone() -> None:
    """Whoever created the pods: that is a controller for most of them. Once the list grows, they
    get their PodGroup."""
    world = World()

    def restrict(namespaces: str) -> None:
        noted = {keys.ALLOWED_NAMESPACES: namespaces, keys.ALLOWED_USERS: "ann"}
        metadata = {"name": "gold", "uid": "gold-1", "annotations": noted}
        world.put(kinds.QUEUES, {"metadata": metadata, "spec": {}})

    restrict("elsewhere")
    add(world, labels={keys.QUEUE_NAME: "gold"})
    world.settle()
    assert world.names(kinds.POD_GROUPS) == []
    told = [event.message for event in said(world)]
    assert "queue gold is not open to pods of namespace 'default'" in told
    restrict("elsewhere,default")
    world.settle()
    assert group(world).spec.queue == "gold"
    restrict("elsewhere")
    world.settle()
    assert group(world).spec.queue == "gold"
