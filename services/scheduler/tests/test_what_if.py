"""Rules of what-if: the present and the changed cluster are simulated with the same run times."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import config_reader
from stromboli.scheduler.core.forecast import expected_starts, run_times, what_if
from stromboli.shared import keys
from stromboli.shared.api import batch, core, scheduling
from stromboli.shared.messages import what_if as messages
from stromboli.testkit import builders

GPU = "nvidia.com/gpu"
DOCUMENT = {
    "actions": "enqueue, allocate",
    "tiers": [
        {"plugins": [{"name": name} for name in ("priority", "gang", "predicates", "overcommit")]}
    ],
}
CONFIGURED = config_reader.read_configuration(DOCUMENT, actions.NAMES, plugins.NAMES)
UNTIL = builders.NOON + timedelta(minutes=1)


def make_spec(cpu: str, gpus: int = 0, selector: dict[str, str] | None = None) -> core.PodSpec:
    requests: dict[str, core.Quantity] = {"cpu": cpu}
    if gpus:
        requests[GPU] = gpus
    resources = core.ResourceRequirements(requests=requests)
    return core.PodSpec(
        scheduler_name=builders.SCHEDULER,
        node_selector=selector,
        containers=(core.Container(name="main", resources=resources),),
    )


def make_gang(
    size: int = 1,
    cpu: str = "1",
    queue: str = "default",
    priority_class: str = "",
    gpus: int = 0,
    selector: dict[str, str] | None = None,
) -> messages.Gang:
    """A gang of one task that needs all its pods."""
    total = {"cpu": str(size * int(cpu))} | ({GPU: str(size * gpus)} if gpus else {})
    return messages.Gang(
        queue=queue,
        priority_class_name=priority_class,
        min_member=size,
        min_task_member={"w": size},
        min_resources=total,
        tasks=(messages.GangTask(name="w", replicas=size, spec=make_spec(cpu, gpus, selector)),),
    )


def waiting(
    name: str,
    at_s: int,
    size: int = 1,
    cpu: str = "1",
    estimate: str = "1h",
    phase: str = "Pending",
) -> scheduling.PodGroup:
    return builders.make_pod_group(
        name,
        size,
        phase=phase,
        min_resources={"cpu": str(size * int(cpu))},
        annotations={keys.RUNNING_ESTIMATE: estimate},
        created=builders.NOON + timedelta(seconds=at_s),
    )


def make_cluster(
    *groups: scheduling.PodGroup, pods: Sequence[core.Pod] = (), nodes: Sequence[core.Node] = ()
) -> cluster_objects.Cluster:
    """A node of one CPU that a job uses for ten minutes, and two queues."""
    runs = waiting("runs", -60, estimate="11m", phase="Running")
    used = builders.make_pod("runs-0", "runs", cpu="1", node="n1", phase="Running")
    started = msgspec.structs.replace(used.status, start_time=builders.NOON - timedelta(seconds=60))
    return cluster_objects.Cluster(
        now=builders.NOON,
        nodes=tuple(nodes) or (builders.make_node("n1", cpu="1"),),
        pods=(msgspec.structs.replace(used, status=started), *pods),
        pod_groups=(runs, *groups),
        queues=(builders.make_queue(), builders.make_queue("b")),
        priority_classes=(builders.make_priority_class("high", 1000),),
    )


def ask(
    cluster: cluster_objects.Cluster, changed: messages.Gang | None, **more: Any
) -> what_if.Answer:
    requested = messages.WhatIfAsked(
        pod_group="default/me", present=make_gang(), changed=changed, until=UNTIL, **more
    )
    options = expected_starts.Options(configured=CONFIGURED, find=plugins.find)
    draw = run_times.RunTimeEstimator().draw
    return what_if.answer(cluster, requested, options, draw, [[0.5] * len(cluster.pod_groups)])


def test_a_higher_priority_starts_the_job_before_those_in_front() -> None:
    answer = ask(
        make_cluster(waiting("first", 1), waiting("me", 2)), make_gang(priority_class="high")
    )
    assert (answer.present.p50_s, answer.changed.p50_s) == (600 + 3600, 600)
    assert answer.notes == ()


def test_a_job_that_is_submitted_again_loses_its_place() -> None:
    """Its queue and its requests cannot change."""
    at_front = make_cluster(waiting("other", -5), waiting("me", -10))
    answer = ask(at_front, make_gang(), is_new=True)
    assert (answer.present.p50_s, answer.changed.p50_s) == (600, 600 + 3600)
    (note,) = answer.notes
    assert "submitted again now" in note


def test_more_nodes_start_the_job_at_once() -> None:
    answer = ask(make_cluster(waiting("first", 1), waiting("me", 2)), None, nodes=2)
    assert (answer.present.p50_s, answer.changed.p50_s) == (4200, 0)
    (note,) = answer.notes
    assert note == "2 empty nodes with 1 cpu, 32Gi memory, like 1 of the cluster's nodes"


def test_a_gang_whose_plan_is_announced_starts_as_any_other() -> None:
    """No controller publishes its plan in virtual time, so no session may wait for it."""
    group = waiting("me", 1)
    announced = {**(group.metadata.annotations or {}), keys.PLAN_FOLLOWS: "1"}
    metadata = msgspec.structs.replace(group.metadata, annotations=announced)
    answer = ask(make_cluster(msgspec.structs.replace(group, metadata=metadata)), None, nodes=1)
    assert (answer.present.p50_s, answer.changed.p50_s) == (600, 0)


def test_added_nodes_are_of_the_kind_that_takes_the_pods() -> None:
    nodes = [
        builders.make_node("n1", cpu="1"),
        builders.make_node("n2", cpu="1"),
        builders.make_node("gpu-1", cpu="2", extra={GPU: "4"}, labels={"pool": "gpu"}),
        builders.make_node("gpu-2", cpu="2", extra={GPU: "4"}, unschedulable=True),
    ]
    gang = make_gang(gpus=4, selector={"pool": "gpu"})
    requested = messages.WhatIfAsked(pod_group="default/me", present=gang, nodes=1, until=UNTIL)
    case = what_if.changed_case(make_cluster(waiting("me", 2), nodes=nodes), requested)
    assert [node.metadata.labels for node in case.cluster.nodes][4:] == [{"pool": "gpu"}]
    assert case.notes[0].startswith(
        "1 empty node with 2 cpu, 32Gi memory, 4 nvidia.com/gpu, like 1"
    )


def test_a_request_beyond_every_node_can_never_fit() -> None:
    answer = ask(make_cluster(waiting("me", 2)), make_gang(cpu="2"), is_new=True)
    assert (answer.present.answer, answer.changed.answer) == ("starts", "can-never-fit")
    assert "cpu" in answer.changed.reason


def test_members_that_exist_are_kept_and_others_are_built_from_the_template() -> None:
    group = waiting("me", 2, size=1, phase="Inqueue")
    pod = builders.make_pod("me-w-0", "me", cpu="1", task="w")
    requested = messages.WhatIfAsked(
        pod_group="default/me",
        present=make_gang(),
        changed=make_gang(3),
        sizes_change=True,
        until=UNTIL,
    )
    case = what_if.changed_case(make_cluster(group, pods=[pod]), requested)
    members = [each for each in case.cluster.pods if each.metadata.name.startswith("me")]
    assert members[0] == pod
    assert [each.metadata.name for each in members] == ["me-w-0", "me-w-1", "me-w-2"]
    assert case.members == {}
    fewer = msgspec.structs.replace(requested, changed=make_gang(0))
    assert not what_if.changed_case(make_cluster(group, pods=[pod]), fewer).cluster.pods[1:]


def test_fewer_pods_start_where_all_of_them_would_wait() -> None:
    """The gang of two does not fit on the node of one CPU."""
    two = make_cluster(waiting("me", 2, size=2))
    requested = messages.WhatIfAsked(
        pod_group="default/me",
        present=make_gang(2),
        changed=make_gang(1),
        sizes_change=True,
        until=UNTIL,
    )
    options = expected_starts.Options(configured=CONFIGURED, find=plugins.find)
    draw = run_times.RunTimeEstimator().draw
    answer = what_if.answer(two, requested, options, draw, [[0.5] * 2])
    assert answer.present.answer == "can-never-fit"
    assert answer.changed.p50_s == 600


def test_pods_on_nodes_are_not_taken_away() -> None:
    group = waiting("me", 2, size=2, phase="Inqueue")
    pods = [
        builders.make_pod("me-w-0", "me", task="w", node="n1", phase="Running"),
        builders.make_pod("me-w-1", "me", task="w"),
    ]
    with pytest.raises(
        what_if.CannotTellError, match="delete pods that have nodes already: 1 of 2 pods"
    ):
        ask(make_cluster(group, pods=pods), make_gang(2, queue="b"), is_new=True)


def test_a_job_that_has_started_has_no_answer() -> None:
    group = waiting("me", 2, phase="Inqueue")
    pod = builders.make_pod("me-w-0", "me", task="w", node="n1", phase="Running")
    with pytest.raises(what_if.CannotTellError, match="it has started"):
        ask(make_cluster(group, pods=[pod]), make_gang(priority_class="high"))


def test_an_unknown_job_has_no_answer() -> None:
    with pytest.raises(what_if.CannotTellError, match="does not know the job yet"):
        ask(make_cluster(), make_gang())


def test_nodes_of_unknown_domains_have_no_answer() -> None:
    group = waiting("me", 2)
    topology = batch.NetworkTopology(mode="hard", highest_tier_allowed=1)
    spec = msgspec.structs.replace(group.spec, network_topology=topology)
    bound = msgspec.structs.replace(group, spec=spec)
    with pytest.raises(what_if.CannotTellError, match="topology domain"):
        ask(make_cluster(bound), None, nodes=1)


def test_nodes_that_would_not_take_its_pods_are_not_added() -> None:
    gang = make_gang(selector={"pool": "gpu"})
    requested = messages.WhatIfAsked(pod_group="default/me", present=gang, nodes=1, until=UNTIL)
    with pytest.raises(what_if.CannotTellError, match="no node of the cluster would take"):
        what_if.changed_case(make_cluster(waiting("me", 2)), requested)


def test_time_that_is_over_ends_the_draws_but_not_the_first_pair() -> None:
    cluster = make_cluster(waiting("first", 1), waiting("me", 2))
    requested = messages.WhatIfAsked(
        pod_group="default/me", present=make_gang(), changed=make_gang(), until=UNTIL
    )
    options = expected_starts.Options(configured=CONFIGURED, find=plugins.find)
    draw = run_times.RunTimeEstimator().draw
    answer = what_if.answer(cluster, requested, options, draw, [[0.5] * 3] * 9, lambda: False)
    assert answer.draws == 1

    def pause() -> None:
        raise what_if.OutOfTimeError

    halted = msgspec.structs.replace(options, pause=pause)
    with pytest.raises(what_if.OutOfTimeError):
        what_if.answer(cluster, requested, halted, draw, [[0.5] * 3])
