"""Hypothesis strategies: small clusters in which gangs compete for scarce resources."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from stromboli.shared.api import core, scheduling
from stromboli.testkit import builders
from stromboli.testkit.oracle import scheduler

_ZONES = ("a", "b")
_TAINT = core.Taint(key="dedicated", value="batch", effect="NoSchedule")
_PREFERENCE = core.Taint(key="dedicated", value="batch", effect="PreferNoSchedule")
_TOLERATIONS = (
    core.Toleration(key="dedicated", value="batch"),
    core.Toleration(key="dedicated", operator="Exists", effect="NoSchedule"),
    core.Toleration(operator="Exists"),
)
_EXPRESSIONS = (
    core.SelectorRequirement(key="zone", operator="In", values=("a",)),
    core.SelectorRequirement(key="zone", operator="NotIn", values=("a",)),
    core.SelectorRequirement(key="zone", operator="Exists"),
    core.SelectorRequirement(key="zone", operator="DoesNotExist"),
    core.SelectorRequirement(key="rack", operator="Gt", values=("1",)),
    core.SelectorRequirement(key="rack", operator="Lt", values=("1",)),
)
_CPUS = ("1", "500m", "0", "2", "3")
_MEMORIES = ("1Gi", None, "3Gi")


@st.composite
def nodes(draw: st.DrawFn, name: str) -> core.Node:
    """A node of a few cores; one in three has a taint or another property that rejects pods."""
    is_plain = draw(st.integers(0, 2)) > 0
    labels = {}
    if draw(st.booleans()):
        labels["zone"] = draw(st.sampled_from(_ZONES))
    if draw(st.booleans()):
        labels["rack"] = draw(st.sampled_from(("0", "1", "2", "x")))
    return builders.make_node(
        name,
        cpu=draw(st.sampled_from(("4", "7", "2", "1", "0"))),
        memory=draw(st.sampled_from(("9Gi", "4Gi", "2Gi"))),
        pods=110 if is_plain else draw(st.sampled_from((1, 3))),
        extra=draw(st.sampled_from((None, {"nvidia.com/gpu": 2}))),
        labels=labels,
        taints=() if is_plain else draw(st.sampled_from(((), (_TAINT,), (_PREFERENCE,)))),
        unschedulable=not is_plain and draw(st.booleans()),
    )


def _affinity() -> st.SearchStrategy[core.Affinity | None]:
    terms = st.lists(
        st.lists(st.sampled_from(_EXPRESSIONS), max_size=2).map(
            lambda wanted: core.NodeSelectorTerm(match_expressions=tuple(wanted))
        ),
        min_size=1,
        max_size=2,
    )
    selectors = terms.map(
        lambda node_selector_terms: core.NodeSelector(
            node_selector_terms=tuple(node_selector_terms)
        )
    )
    affinities = selectors.map(
        lambda selector: core.Affinity(
            node_affinity=core.NodeAffinity(
                required_during_scheduling_ignored_during_execution=selector
            )
        )
    )
    return st.none() | affinities


@st.composite
def pods(draw: st.DrawFn, name: str, group: str | None, placed_on: tuple[str, ...]) -> core.Pod:
    """A pod of a gang or, if ``group`` is None, of another scheduler; one in four has unusual
    fields."""
    index = int(name.rpartition("-")[2])
    request: dict[str, Any] = {
        "cpu": draw(st.sampled_from(_CPUS)),
        "memory": draw(st.sampled_from(_MEMORIES)),
        "task": draw(st.sampled_from(("ps", "worker"))),
        "index": draw(st.sampled_from((index, None))),
        "scheduler": "volcano" if group else "default-scheduler",
    }
    if group and draw(st.integers(0, 3)) > 0:
        return builders.make_pod(name, group, **request)
    node = draw(st.sampled_from(("", *placed_on)))
    phases = ("Pending", "Running", "Succeeded", "Failed") if node else ("Pending",)
    sidecar = builders.make_container("500m", restart_policy="Always")
    return builders.make_pod(
        name,
        group,
        **request,
        extra=draw(st.sampled_from((None, {"nvidia.com/gpu": 1}))),
        init_containers=draw(st.sampled_from(((), (builders.make_container("2"),), (sidecar,)))),
        overhead=draw(st.sampled_from((None, {"cpu": "100m"}))),
        node=node,
        phase=draw(st.sampled_from(phases)),
        priority=draw(st.sampled_from((None, 5))),
        node_selector=draw(st.sampled_from((None, {"zone": "a"}))),
        affinity=draw(_affinity()),
        tolerations=draw(st.lists(st.sampled_from(_TOLERATIONS), max_size=1)),
        gates=draw(st.sampled_from(((), (), ("gate",)))),
        deleting=draw(st.sampled_from((None, None, builders.NOON))),
    )


@st.composite
def pod_groups(draw: st.DrawFn, name: str, pods_there: int) -> scheduling.PodGroup:
    """A gang, mostly with a minimum of at most its number of pods; one in four has unusual
    fields."""
    minimum = draw(st.integers(0, pods_there))
    created = builders.NOON + timedelta(seconds=draw(st.integers(0, 1)))
    phase = draw(st.sampled_from(("Inqueue", "Pending", "Running", "")))
    resources = draw(st.sampled_from((None, {"cpu": "2"}, {"cpu": "3", "memory": "2Gi"})))
    priority = draw(st.sampled_from(("", "high", "absent")))
    if draw(st.integers(0, 3)) > 0:
        return builders.make_pod_group(
            name,
            minimum,
            phase=phase,
            min_resources=resources,
            priority_class=priority,
            created=created,
        )
    return builders.make_pod_group(
        name,
        minimum + 1,
        queue=draw(st.sampled_from(("default", "closed", "absent"))),
        phase=phase,
        min_resources=resources,
        min_task_member=draw(st.sampled_from((None, {"ps": 1, "worker": 1}))),
        created=created,
    )


@st.composite
def scarce_clusters(draw: st.DrawFn) -> scheduler.ClusterObjects:
    """Up to five nodes, five gangs, and pods of other schedulers."""
    names = tuple(f"n{at}" for at in range(draw(st.integers(1, 5))))
    groups: list[scheduling.PodGroup] = []
    found: list[core.Pod] = []
    for number in range(draw(st.integers(1, 5))):
        name, members = f"g{number}", draw(st.integers(0, 5))
        groups.append(draw(pod_groups(name, members)))
        found += [draw(pods(f"{name}-task-{at}", name, names)) for at in range(members)]
    found += [draw(pods(f"other-{at}", None, names)) for at in range(draw(st.integers(0, 2)))]
    return scheduler.ClusterObjects(
        nodes=[draw(nodes(name)) for name in names],
        pods=found,
        pod_groups=groups,
        queues=[builders.make_queue(), builders.make_queue("closed", state="Closed")],
        priority_classes=[
            builders.make_priority_class("high", 10),
            builders.make_priority_class("usual", 3, is_default=draw(st.booleans())),
        ],
    )
