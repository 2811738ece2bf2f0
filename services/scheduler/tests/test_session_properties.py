"""Whatever the cluster, the queues and the jobs: what no session may break.

Sums are taken from the objects and the decisions, not from the session's own books.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import configurations
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.shared.formats import units
from stromboli.testkit.strategies import depth, shared_clusters

EXAMPLES = 40
ROUNDS = 30


@st.composite
def settings_and_cluster(
    draw: st.DrawFn, names: Sequence[str]
) -> tuple[str, shared_clusters.SharedCluster]:
    """One of the combinations, and a cluster with queues as it expects them."""
    name = draw(st.sampled_from(names))
    return name, draw(shared_clusters.shared_clusters(tree=name in configurations.TREES))


EVERY = settings_and_cluster(sorted(configurations.ALL))
EVICTING = settings_and_cluster(configurations.EVICTING)
WITH_BOOKS = settings_and_cluster(
    [name for name in sorted(configurations.ALL) if "drf" not in name]
)
PROTECTED = settings_and_cluster(configurations.PROTECTED)
EVICTING_WITH_BOOKS = settings_and_cluster(
    [name for name in configurations.EVICTING if "drf" not in name]
)
Case = tuple[str, shared_clusters.SharedCluster]


def cluster_of(shared_cluster: shared_clusters.SharedCluster) -> cluster_objects.Cluster:
    return cluster_objects.Cluster(
        now=shared_clusters.NOW,
        nodes=shared_cluster.nodes,
        pods=shared_cluster.pods,
        pod_groups=shared_cluster.pod_groups,
        queues=shared_cluster.queues,
        priority_classes=shared_cluster.priority_classes,
    )


def run(name: str, shared_cluster: shared_clusters.SharedCluster) -> session.Session:
    return simulate.run(configurations.ALL[name], cluster_of(shared_cluster))


class Seen:
    """A cluster, what was decided about it, and the sums of both."""

    def __init__(
        self, shared_cluster: shared_clusters.SharedCluster, decided: session.Session
    ) -> None:
        self.given = shared_cluster
        self.decided = decided
        self.outcome = simulate.summarize("", decided)
        self.pods = {pod.metadata.key: pod for pod in shared_cluster.pods}
        self.binds = self.outcome.binds
        self.evicted = set(self.outcome.evictions)
        self.promised = {
            pod: node for nodes in self.outcome.pipelined.values() for pod, node in nodes.items()
        }
        self.running = {key: pod for key, pod in self.pods.items() if pod.spec.node_name}
        self.groups = {group.metadata.key: group for group in shared_cluster.pod_groups}
        self.queues = {queue.metadata.name: queue for queue in shared_cluster.queues}

    def group_of(self, pod: str) -> str:
        return decided_group(self.pods[pod])

    def queue_of(self, pod: str) -> str:
        return self.groups[self.group_of(pod)].spec.queue

    def chain(self, queue: str) -> list[str]:
        """The queue and those above it."""
        found = []
        while queue in self.queues:
            found.append(queue)
            queue = self.queues[queue].spec.parent or ("root" if self.given.is_tree else "")
            if queue in found:
                break
        return found

    def held(self, pods: Iterable[str]) -> dict[str, units.Amounts]:
        """Queue -> what these pods hold of it and of those below it."""
        total: dict[str, units.Amounts] = defaultdict(dict)
        for pod in pods:
            for queue in self.chain(self.queue_of(pod)):
                total[queue] = units.add(total[queue], request(self.pods[pod]))
        return total


def decided_group(pod: core.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.annotation(keys.GROUP_NAME)}"


def request(pod: core.Pod) -> units.Amounts:
    return requirements.pod_request(pod.spec)


def fits(amounts: Mapping[str, int], limit: Mapping[str, int]) -> bool:
    return all(amount <= limit.get(name, 0) for name, amount in amounts.items())


def loads(seen: Seen, pods: Mapping[str, str]) -> dict[str, units.Amounts]:
    found: dict[str, units.Amounts] = defaultdict(dict)
    for pod, node in pods.items():
        found[node] = units.add(found[node], request(seen.pods[pod]))
    return found


@depth.examples(EXAMPLES)
@given(EVERY)
def test_no_node_holds_more_than_it_has(case: Case) -> None:
    """Neither now, with those that are to go still there, nor once promises are kept."""
    name, shared_cluster = case
    seen = Seen(shared_cluster, run(name, shared_cluster))
    there = {key: pod.spec.node_name for key, pod in seen.running.items()}
    now = loads(seen, {**there, **seen.binds})
    stay = {key: node for key, node in there.items() if key not in seen.evicted}
    later = loads(seen, {**stay, **seen.binds, **seen.promised})
    for node in shared_cluster.nodes:
        allocatable = units.amounts(node.status.allocatable or {})
        assert fits(now[node.metadata.name], allocatable)
        assert fits(later[node.metadata.name], allocatable)


@depth.examples(EXAMPLES)
@given(EVERY)
def test_a_gang_starts_completely_or_not_at_all(case: Case) -> None:
    """The bound pods complete its job's minimum, together with running pods and pods without
    requests.
    """
    name, shared_cluster = case
    seen = Seen(shared_cluster, run(name, shared_cluster))
    of_group: Counter[str] = Counter()
    bound = {seen.group_of(pod) for pod in seen.binds}
    for key, pod in seen.pods.items():
        is_placed = key in seen.running or key in seen.binds
        of_group[seen.group_of(key)] += is_placed or not units_asked(request(pod))
    for group in bound:
        assert of_group[group] >= seen.groups[group].spec.min_member


def units_asked(amounts: Mapping[str, int]) -> bool:
    return any(amount for each, amount in amounts.items() if each != "pods")


@depth.examples(EXAMPLES)
@given(PROTECTED)
def test_no_gang_is_cut_in_half(case: Case) -> None:
    """A job that loses tasks keeps its minimum, or loses all that may be taken from it."""
    name, shared_cluster = case
    seen = Seen(shared_cluster, run(name, shared_cluster))
    for group in {seen.group_of(pod) for pod in seen.evicted}:
        members = [pod for pod in seen.running if seen.group_of(pod) == group]
        left = [pod for pod in members if pod not in seen.evicted]
        bound = [pod for pod in seen.binds if seen.group_of(pod) == group]
        least = seen.groups[group].spec.min_member
        if len(left) + len(bound) < least:
            assert "gangs" in name, "only these actions may end a job"
            assert not left


@depth.examples(EXAMPLES)
@given(WITH_BOOKS)
def test_no_queue_is_given_more_than_it_may_have(case: Case) -> None:
    """What a queue gets stays within its capability, and within what is not guaranteed to others,
    in each requested resource.
    """
    name, shared_cluster = case
    seen = Seen(shared_cluster, run(name, shared_cluster))
    placed = {**seen.binds, **seen.promised}
    stay = [pod for pod in seen.running if pod not in seen.evicted]
    total = seen.held([*stay, *placed])
    limits = ceilings(seen)
    for pod in placed:
        requested = {each for each, amount in request(seen.pods[pod]).items() if amount} - {"pods"}
        for queue in seen.chain(seen.queue_of(pod)):
            for each in requested & limits[queue].keys():
                assert total[queue].get(each, 0) <= limits[queue][each], (queue, each)


def ceilings(seen: Seen) -> dict[str, units.Amounts]:
    """Queue -> what it may reach of each resource that anything limits."""
    cluster_total: units.Amounts = {}
    for node in seen.given.nodes:
        cluster_total = units.add(cluster_total, units.amounts(node.status.allocatable or {}))
    found: dict[str, units.Amounts] = {}

    def own(queue: str) -> units.Amounts:
        capability = units.amounts(seen.queues[queue].spec.capability or {})
        return {
            each: amount
            for each, amount in capability.items()
            if amount > 0 or each not in ("cpu", "memory")
        }

    def guarantee(queue: str) -> units.Amounts:
        return units.amounts(seen.queues[queue].spec.guarantee.resource or {})

    def limit(queues: list[str], above: units.Amounts) -> None:
        promised: units.Amounts = {}
        for queue in queues:
            promised = units.add(promised, guarantee(queue))
        for queue in queues:
            reach = {
                each: max(amount - promised.get(each, 0), 0) + guarantee(queue).get(each, 0)
                for each, amount in above.items()
            }
            for each, amount in own(queue).items():
                reach[each] = min(amount, reach.get(each, amount))
            found[queue] = reach
            limit([name for name in seen.queues if parent(name) == queue], reach)

    def parent(queue: str) -> str:
        above = seen.queues[queue].spec.parent
        return above or ("root" if seen.given.is_tree and queue != "root" else "")

    if seen.given.is_tree:
        limit(["root"], {})
    else:
        limit(list(seen.queues), cluster_total)
    return found


@depth.examples(EXAMPLES)
@given(EVICTING_WITH_BOOKS)
def test_reclaiming_leaves_every_queue_its_guarantee(case: Case) -> None:
    """What a queue had of its guarantee it has afterwards, unless it took it from itself."""
    name, shared_cluster = case
    decided = run(name, shared_cluster)
    seen = Seen(shared_cluster, decided)
    reclaimed = {each.task for each in decided.decisions.evictions if "reclaim" in each.reason}
    before, after = seen.held(seen.running), seen.held(set(seen.running) - reclaimed)
    for queue, each in seen.queues.items():
        for resource, least in units.amounts(each.spec.guarantee.resource or {}).items():
            had, has = before[queue].get(resource, 0), after[queue].get(resource, 0)
            assert has >= min(had, least), (queue, resource)


@depth.examples(EXAMPLES)
@given(EVICTING)
def test_no_pod_is_evicted_in_vain(case: Case) -> None:
    """Each eviction is for a job that then has its minimum, promised or bound."""
    name, shared_cluster = case
    decided = run(name, shared_cluster)
    for eviction in decided.decisions.evictions:
        job = decided.jobs[eviction.job]
        assert job.waiting or job.count(entities.Status.BINDING)
        assert job.is_pipelined


@depth.examples(EXAMPLES)
@given(EVICTING)
def test_no_pod_is_evicted_that_could_stay(case: Case) -> None:
    """With any one victim back, or any job that went as a whole, some promise of its node or of a
    queue could not be kept."""
    name, shared_cluster = case
    decided = run(name, shared_cluster)
    seen = Seen(shared_cluster, decided)
    for group in groups_of_victims(seen):
        back = [
            decided.jobs[seen.group_of(pod)].tasks[seen.pods[pod].metadata.uid] for pod in group
        ]
        assert not could_stay(decided, back), group


def groups_of_victims(seen: Seen) -> list[list[str]]:
    of_job: dict[str, list[str]] = defaultdict(list)
    for pod in sorted(seen.evicted):
        of_job[seen.group_of(pod)].append(pod)
    groups = []
    for group, pods in of_job.items():
        ready = sum(seen.group_of(pod) == group for pod in seen.running)
        if ready - len(pods) < seen.groups[group].spec.min_member:
            groups.append(pods)
        else:
            groups += [[pod] for pod in pods]
    return groups


def could_stay(decided: session.Session, back: list[entities.Task]) -> bool:
    """Whether every promise could be kept all the same."""
    promised = [
        task for job in decided.jobs.values() for task in job.with_status(entities.Status.PIPELINED)
    ]
    trial = decided.statement()
    places = [(task, task.node) for task in promised]
    for task, node in places:
        decided.change(task, entities.Status.PENDING, node)
        decided.notify_deallocated((task,))
    for task in back:
        decided.change(task, entities.Status.RUNNING, task.node)
        decided.notify_allocated((task,))
    can = True
    for task, node in places:
        row = decided.nodes.rows[node]
        can = (
            can
            and decided.allocatable(decided.queue_of(decided.jobs[task.job]), task)
            and bool(decided.finder.filter_result(task).passed[row])
            and bool(decided.finder.fits_future(task)[row])
        )
        trial.pipeline(task, node)
    for task in back:
        decided.change(task, entities.Status.RELEASING, task.node)
        decided.notify_deallocated((task,))
    return can


@depth.examples(EXAMPLES)
@given(EVERY)
def test_a_sessions_books_are_the_sums_of_what_is_placed(case: Case) -> None:
    """Of nodes, jobs and queues, when all is decided."""
    name, shared_cluster = case
    decided = run(name, shared_cluster)
    table = decided.nodes
    for row, tasks in enumerate(table.tasks):
        for status, column in ((entities.Status.RELEASING, table.releasing), (None, table.used)):
            held = [
                task.request
                for task in tasks.values()
                if task.status is not entities.Status.PIPELINED
                and (status is None or task.status is status)
            ]
            assert (column[:, row] == sum(held)).all()
        promised = [
            each.request for each in tasks.values() if each.status is entities.Status.PIPELINED
        ]
        assert (table.pipelined[:, row] == sum(promised)).all()
        assert (table.idle[:, row] == table.allocatable[:, row] - table.used[:, row]).all()
    for job in decided.jobs.values():
        held = [task.request for task in job.with_status(*entities.ALLOCATED)]
        assert (job.allocated == sum(held)).all()


@depth.examples(EXAMPLES)
@given(EVICTING)
def test_decisions_come_to_an_end(case: Case) -> None:
    """With decisions executed again and again and evicted pods created again, decisions come to an
    end if the plugin that limits evictions is enabled: reclaim alone follows Volcano, where queues
    may reclaim from each other alternately.
    """
    name, shared_cluster = case
    configured = configurations.limited(name)
    memory: Mapping[str, str] = {}
    evicted: list[set[str]] = []
    for at in range(ROUNDS):
        now = shared_clusters.NOW + timedelta(minutes=at)
        objects = msgspec.structs.replace(cluster_of(shared_cluster), now=now, memory=memory)
        decided = simulate.run(configured, objects)
        seen, memory = Seen(shared_cluster, decided), decided.remember
        if not seen.evicted and not seen.binds:
            return
        evicted.append(seen.evicted)
        phases = seen.outcome.pod_group_phases
        shared_cluster = shared_clusters.after_decisions(
            shared_cluster, seen.binds, seen.evicted, phases, at
        )
    pytest.fail(f"evicted round by round: {evicted}")


@depth.examples(EXAMPLES)
@given(EVERY, st.randoms(use_true_random=False))
def test_the_order_of_objects_decides_nothing(case: Case, chance: random.Random) -> None:
    """Sessions over the same objects decide the same, in whatever order the objects arrive."""
    name, shared_cluster = case
    shuffled = {
        field: tuple(chance.sample(list(found), len(found)))
        for field in ("nodes", "pods", "pod_groups", "queues")
        if (found := getattr(shared_cluster, field))
    }
    other = run(name, msgspec.structs.replace(shared_cluster, **shuffled))
    assert simulate.summarize("", run(name, shared_cluster)) == simulate.summarize("", other)
