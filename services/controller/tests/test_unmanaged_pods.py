"""Rules of pods without a job: of Deployments, of operators, single pods."""

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

from services.controller.tests.support.core_harness import CoreHarness, KilledError
from stromboli.controller.core import commands
from stromboli.controller.core.store import unmanaged_pod_index
from stromboli.shared import keys, topics
from stromboli.shared.api import core, kinds, meta, scheduling
from stromboli.testkit import builders
from stromboli.testkit.builders import make_pod, make_queue, undecodable_record

SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set-1"}
G = "default/podgroup-set-1"
LABEL = {keys.QUEUE_NAME: "q"}


def add_set(harness: CoreHarness, **annotations: str) -> None:
    """A ReplicaSet, as its Deployment made or changed it."""
    add_labelled_set(harness, {}, annotations)


def add_labelled_set(
    harness: CoreHarness, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    """The same with labels of its own."""
    metadata = {"name": "web", "namespace": "default", "uid": "set-1"}
    harness.put(
        kinds.REPLICA_SETS, {"metadata": {**metadata, "labels": labels, "annotations": annotations}}
    )


def add(
    harness: CoreHarness, name: str = "web-a", owner: dict[str, Any] | None = SET, **pod: Any
) -> str:
    """A pod; by itself without an owner."""
    made = make_pod(name, **pod)
    body = msgspec.json.decode(msgspec.json.encode(made))
    del body["metadata"]["uid"]
    if owner is not None:
        if ("replicasets", "default/web") not in harness.objects:
            add_set(harness)  # whatever its kind: it lives
        body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    harness.put(kinds.PODS, body)
    return f"default/{name}"


def group(harness: CoreHarness, key: str = G) -> scheduling.PodGroup:
    return harness.get(kinds.POD_GROUPS, key)


def said(harness: CoreHarness) -> list[commands.RecordEvent]:
    return list(harness.events.values())


def sent(harness: CoreHarness) -> dict[str, str | None]:
    return {it.metadata.name: it.metadata.annotation(keys.GROUP_NAME) for it in harness.pods()}


def test_pods_of_one_owner_share_its_pod_group() -> None:
    harness = CoreHarness()
    add_set(harness)
    for name in ("web-a", "web-b"):
        add(harness, name)
    harness.settle()
    found = group(harness)
    assert (found.spec.min_member, found.spec.queue, found.status.phase) == (
        1,
        "default",
        "Pending",
    )
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("ReplicaSet", "set-1", True)
    assert sent(harness) == {"web-a": "podgroup-set-1", "web-b": "podgroup-set-1"}
    assert (found.spec.min_resources or {})["cpu"] == "1"


def test_a_pod_by_itself_owns_its_pod_group() -> None:
    harness = CoreHarness()
    add(harness, "alone", owner=None)
    harness.settle()
    (pod,) = harness.pods()
    found = group(harness, f"default/podgroup-{pod.metadata.uid}")
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.uid) == ("Pod", pod.metadata.uid)
    assert sent(harness) == {"alone": found.metadata.name}


def test_unmanaged_pods_are_not_changed() -> None:
    """Those of other schedulers, and those whose creator names a PodGroup."""
    harness = CoreHarness()
    add(harness, "theirs", scheduler="default-scheduler")
    add(harness, "spark-driver", group="made-by-the-operator")
    harness.settle()
    assert harness.groups() == []
    assert sent(harness) == {"theirs": None, "spark-driver": "made-by-the-operator"}


def test_the_owner_sets_the_minimum_and_passes_its_annotations() -> None:
    harness = CoreHarness()
    add_set(
        harness,
        **{keys.GROUP_MIN_MEMBER: "3", "volcano.sh/sla-waiting-time": "1h", "other.io/x": "no"},
    )
    add(harness, labels={keys.PREEMPTABLE: "true"}, annotations={keys.PREEMPTABLE: "false"})
    harness.settle()
    found = group(harness)
    assert found.spec.min_member == 3
    assert (found.spec.min_resources or {})["cpu"] == "3"
    assert found.metadata.annotation("volcano.sh/sla-waiting-time") == "1h"
    assert found.metadata.annotation("other.io/x") is None
    assert found.metadata.annotation(keys.PREEMPTABLE) == "true", "the label counts"


def test_pods_of_an_operator_may_say_it_themselves() -> None:
    """The operator's kind is none that we could read."""
    harness = CoreHarness()
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "t", "uid": "set-1"}
    requested = {
        keys.GROUP_MIN_MEMBER: "2",
        keys.GROUP_MIN_RESOURCES: json.dumps({"cpu": "4", "nvidia.com/gpu": 2}),
    }
    add(harness, owner=owner, annotations=requested)
    harness.settle()
    spec = group(harness).spec
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
def test_an_unreadable_value_is_reported_and_the_pod_itself_counts(key: str, value: str) -> None:
    harness = CoreHarness()
    add_set(harness, **{key: value})
    add(harness)
    harness.settle()
    assert (group(harness).spec.min_member, (group(harness).spec.min_resources or {})["cpu"]) == (
        1,
        "1",
    )
    (event,) = harness.events.values()
    assert (event.type, event.reason, event.name) == ("Warning", "PodGroupError", "web-a")
    assert key in event.message


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
def test_the_queue_is_reported_by_the_pod_else_by_its_namespace(
    annotations: dict[str, str], labels: dict[str, str], namespace: str, queue: str
) -> None:
    harness = CoreHarness()
    metadata: dict[str, Any] = {"name": "default"}
    if namespace:
        metadata["annotations"] = {keys.NAMESPACE_QUEUE: namespace}
    harness.put(kinds.NAMESPACES, {"metadata": metadata})
    add(harness, annotations=annotations, labels=labels)
    harness.settle()
    assert group(harness).spec.queue == queue


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [({keys.NAMESPACE_QUEUE: "o"}, {}), ({}, {keys.QUEUE_NAME: "o"}), ({keys.QUEUE_NAME: "o"}, {})],
)
def test_an_owner_may_say_the_queue_for_pods_that_name_none(
    annotations: dict[str, str], labels: dict[str, str]
) -> None:
    harness = CoreHarness()
    metadata = {"name": "default", "annotations": {keys.NAMESPACE_QUEUE: "n"}}
    harness.put(kinds.NAMESPACES, {"metadata": metadata})
    add_labelled_set(harness, labels, annotations)
    add(harness)
    harness.settle()
    assert group(harness).spec.queue == "o"


# Later changes


def test_what_the_owner_reports_later_holds() -> None:
    harness = CoreHarness()
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "5", "volcano.sh/sla-waiting-time": "1h"})
    add(harness)
    harness.settle()
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "2", keys.JDB_MIN_AVAILABLE: "1"})
    harness.settle()
    found = group(harness)
    assert (found.spec.min_member, (found.spec.min_resources or {})["cpu"]) == (2, "2")
    assert found.metadata.annotation(keys.JDB_MIN_AVAILABLE) == "1"
    assert found.metadata.annotation("volcano.sh/sla-waiting-time") is None
    assert found.status.phase == "Pending"


def test_it_holds_also_for_pods_that_run_and_an_unreadable_value_leaves_the_gang_as_it_is() -> None:
    harness = CoreHarness()
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "1"})
    add(harness)
    harness.settle()
    harness.enqueue(G)
    harness.run("web-a")
    add_set(harness, **{keys.PREEMPTABLE: "true", keys.GROUP_MIN_MEMBER: "2"})
    harness.settle()
    assert group(harness).metadata.annotation(keys.PREEMPTABLE) == "true"
    assert group(harness).spec.min_member == 2
    add_set(harness, **{keys.PREEMPTABLE: "true", keys.GROUP_MIN_MEMBER: "two"})
    harness.settle()
    assert group(harness).spec.min_member == 2
    assert any("'two' is not a number of pods; 2 is used" in it.message for it in said(harness))


def test_a_change_after_a_restart_is_followed_too() -> None:
    harness = CoreHarness()
    add_set(harness)
    add(harness)
    harness.settle()
    harness.restart()
    harness.settle()
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "2"})
    harness.settle()
    assert group(harness).spec.min_member == 2


def test_an_owner_that_is_deleted_takes_nothing_back() -> None:
    harness = CoreHarness()
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "2"})
    add(harness)
    harness.settle()
    harness.restart()
    harness.cache.note_owner("default", "set-1", None)
    harness.see()
    harness.settle()
    assert group(harness).spec.min_member == 2


def test_an_old_version_of_an_owner_changes_nothing() -> None:
    harness = CoreHarness()
    add(harness)
    harness.settle()

    def read(version: int, least: str) -> meta.ObjectMeta:
        return meta.ObjectMeta(
            name="web",
            uid="set-1",
            resource_version=str(version),
            annotations={keys.GROUP_MIN_MEMBER: least},
        )

    assert harness.cache.note_owner("default", "set-1", read(10**6, "3"))
    assert not harness.cache.note_owner("default", "set-1", read(10**6 - 1, "2"))
    assert not harness.cache.note_owner("default", "set-1", read(10**6 + 1, "3")), "nothing new"
    assert not harness.cache.note_owner("default", "set-9", read(10**6, "3")), "of nobody's pods"


def test_a_queue_is_followed_until_it_was_entered() -> None:
    harness = CoreHarness()
    add(harness)
    namespace: dict[str, Any] = {"name": "default", "annotations": {keys.NAMESPACE_QUEUE: "n"}}
    harness.settle()
    assert group(harness).spec.queue == "default"
    harness.put(kinds.NAMESPACES, {"metadata": namespace})
    harness.settle()
    assert group(harness).spec.queue == "n"
    harness.cache.apply(undecodable_record(topics.NAMESPACES, "default", 10**6))
    harness.dirty |= dict.fromkeys(harness.cache.items())
    harness.settle()
    assert group(harness).spec.queue == "n", "a namespace that cannot be read takes nothing back"
    harness.enqueue(G)
    harness.settle()
    add_labelled_set(harness, {keys.QUEUE_NAME: "o"}, {keys.JDB_MIN_AVAILABLE: "1"})
    harness.settle()
    assert group(harness).spec.queue == "n"
    assert group(harness).metadata.annotation(keys.JDB_MIN_AVAILABLE) == "1"


def test_the_newest_pod_speaks_for_all() -> None:
    """A change of the template is being rolled out."""
    harness = CoreHarness()
    add(harness, "web-a", cpu="1")
    harness.settle()
    harness.now += timedelta(seconds=1)
    add(harness, "web-b", cpu="3")
    harness.settle()
    assert (group(harness).spec.min_resources or {})["cpu"] == "3"


def test_changes_of_a_user_on_the_pod_group_are_kept_until_the_source_changes() -> None:
    harness = CoreHarness()
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "3"})
    add(harness)
    harness.settle()
    body = copy.deepcopy(harness.objects["podgroups", G])
    body["spec"]["minMember"] = 1
    harness.put(kinds.POD_GROUPS, body)
    harness.settle()
    add(harness, "web-b")
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "3", keys.JDB_MIN_AVAILABLE: "1"})
    harness.settle()
    assert group(harness).spec.min_member == 1
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "2"})
    harness.settle()
    assert group(harness).spec.min_member == 2


def test_what_is_as_it_was_is_written_once() -> None:
    harness = CoreHarness()
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "2"})
    add(harness)
    harness.settle()
    harness.done.clear()
    add_set(harness, **{keys.GROUP_MIN_MEMBER: "2", "other.io/revision": "2"})
    harness.restart()
    harness.settle()
    assert [it for it in harness.done if isinstance(it, commands.Patch)] == []


def test_the_pod_group_is_deleted_with_the_last_pod_and_comes_with_the_next() -> None:
    harness = CoreHarness()
    add_set(harness)
    first = add(harness, "web-a")
    add(harness, "web-b")
    harness.settle()
    for name in ("web-a", "web-b"):
        assert ("podgroups", G) in harness.objects
        harness.delete(kinds.PODS, f"default/{name}")
        harness.settle()
        assert ("podgroups", G) in harness.objects, "a pod that is going is there"
        harness.reap(f"default/{name}")
        harness.settle()
    assert harness.groups() == []
    assert first
    add(harness, "web-c")
    harness.settle()
    assert sent(harness) == {"web-c": "podgroup-set-1"}


def test_a_pod_group_of_another_owner_is_never_removed() -> None:
    harness = CoreHarness()
    harness.submit(builders.make_pod_group("podgroup-set-1"))
    key = add(harness)
    harness.settle()
    assert sent(harness) == {"web-a": "podgroup-set-1"}, "it is the one that is meant"
    harness.delete(kinds.PODS, key)
    harness.settle()
    harness.reap(key)
    harness.settle()
    assert ("podgroups", G) in harness.objects


def test_a_pod_that_cannot_be_read_may_be_the_last_one() -> None:
    harness = CoreHarness()
    add_set(harness)
    add(harness, "web-a")
    key = add(harness, "web-b")
    harness.settle()
    harness.cache.apply(undecodable_record(topics.PODS, key, 10**6))
    harness.delete(kinds.PODS, "default/web-a")
    harness.settle()
    harness.reap("default/web-a")
    harness.settle()
    assert ("podgroups", G) in harness.objects


def test_they_are_counted_in_their_queue_and_their_status_is_kept() -> None:
    harness = CoreHarness()
    harness.submit(make_queue("q", parent="root"))
    add(harness, labels=LABEL)
    harness.settle()
    harness.enqueue(G)
    harness.run("web-a")
    harness.settle()
    assert group(harness).status.phase == "Running"
    assert harness.queue("q").status.running == 1
    assert (harness.queue("q").status.allocated or {})["cpu"] == "1"


class UnmanagedPods(RuleBasedStateMachine):
    """Pods are created, run and are deleted; the controller lags behind and is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = CoreHarness()
        add_set(self.harness)
        self.number = 0

    @rule(owned=st.booleans())
    def come(self, owned: bool) -> None:
        self.number += 1
        add(self.harness, f"p{self.number}", owner=SET if owned else None)

    @precondition(lambda self: self.harness.pods())
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.harness.pods()))
        if pod.metadata.deletion_timestamp is None:
            self.harness.delete(kinds.PODS, pod.metadata.key)
        else:
            self.harness.reap(pod.metadata.key)

    @precondition(lambda self: self.harness.groups())
    @rule(data=st.data())
    def lose_group(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(self.harness.groups()))
        self.harness.delete(kinds.POD_GROUPS, found.metadata.key)

    @rule(topic=st.sampled_from([topics.PODS.name, topics.POD_GROUPS.name]))
    def see(self, topic: str) -> None:
        self.harness.see_one(topic)

    @rule(topic=st.sampled_from([topics.PODS.name, topics.POD_GROUPS.name]))
    def see_again(self, topic: str) -> None:
        self.harness.see_again(topic)

    @rule(commands=st.integers(0, 5))
    def kill(self, commands: int) -> None:
        self.harness.commands_left = commands
        with contextlib.suppress(KilledError):
            self.harness.settle()
        self.harness.restart()

    @rule()
    def settle(self) -> None:
        self.harness.settle()
        pods: list[core.Pod] = self.harness.pods()
        wanted = {unmanaged_pod_index.group_name(it) for it in pods}
        groups = {it.metadata.name for it in self.harness.groups()}
        assert groups <= wanted, "none without a pod"
        for pod in pods:
            if pod.metadata.deletion_timestamp is None:
                assert pod.metadata.annotation(keys.GROUP_NAME) in groups


TestUnmanagedPods = UnmanagedPods.TestCase
TestUnmanagedPods.settings = settings(
    max_examples=60, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)


def test_a_restricted_queue_is_used_from_its_namespaces_alone() -> None:
    """Independent of the pods' creator, which is a controller for most of them. Once the list
    grows, they get their PodGroup."""
    harness = CoreHarness()

    def restrict(namespaces: str) -> None:
        noted = {keys.ALLOWED_NAMESPACES: namespaces, keys.ALLOWED_USERS: "ann"}
        metadata = {"name": "gold", "uid": "gold-1", "annotations": noted}
        harness.put(kinds.QUEUES, {"metadata": metadata, "spec": {}})

    restrict("elsewhere")
    add(harness, labels={keys.QUEUE_NAME: "gold"})
    harness.settle()
    assert harness.names(kinds.POD_GROUPS) == []
    sent = [event.message for event in said(harness)]
    assert "queue gold is not open to pods of namespace 'default'" in sent
    restrict("elsewhere,default")
    harness.settle()
    assert group(harness).spec.queue == "gold"
    restrict("elsewhere")
    harness.settle()
    assert group(harness).spec.queue == "gold"
