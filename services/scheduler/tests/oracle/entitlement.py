"""Which waiting gangs are entitled to start, by brute force over small clusters.

A gang is entitled if its minimum fits on the nodes as they are, within what its queue may have, or
would fit without some running pods that every plugin allows to be evicted for it. The rules are
written from the plugins' documentation, for cpus alone, and only ever too strict: what is entitled
here is entitled by any reading of them.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import msgspec

from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue

OVERCOMMIT = 1.2


class Rules(msgspec.Struct, frozen=True):
    """What a configuration permits.

    ``sharing``: proportion, capacity, or empty for neither. ``protects``: the actions for which the
    plugin gang protects each job's minimum. ``whole``: an eviction may end whole jobs (the gang
    actions). ``frees_quota``: victims on any nodes count for the limit of the queue.
    ``overcommits``: the plugin overcommit limits which gangs enter queues.
    """

    sharing: str = ""
    preempts: bool = False
    reclaims: bool = False
    protects: frozenset[str] = frozenset()
    whole: bool = False
    frees_quota: bool = False
    overcommits: bool = True


class Pod(msgspec.Struct, frozen=True):
    """A running pod."""

    name: str
    gang: Gang
    node: str


class View:
    """A cluster as in the API server, in CPUs."""

    def __init__(self, loop: Loop, queues: Iterable[Queue]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.gangs = dict(loop.gangs)
        self.phase = {name: loop.phase(name) for name in loop.gangs}
        self.nodes = dict(loop.nodes)
        self.labels = dict(loop.labels)
        self.running = [
            Pod(loop.pods[key].metadata.name, gang, node)
            for name, gang in loop.gangs.items()
            for key in loop.members(name)
            if (node := loop.pods[key].spec.node_name)
        ]
        self.members = Counter({name: len(loop.members(name)) for name in loop.gangs})
        self.ready = Counter(pod.gang.name for pod in self.running)
        self.held: Counter[str] = Counter()
        for pod in self.running:
            self.held[pod.gang.queue] += pod.gang.cpu

    @property
    def total(self) -> int:
        return sum(self.nodes.values())

    def lacking(self, gang: Gang) -> int:
        """How many pods it needs to start; 0 if it has started, or cannot for want of pods."""
        can_start = self.members[gang.name] >= gang.minimum
        return max(gang.minimum - self.ready[gang.name], 0) if can_start else 0

    def room(self, gang: Gang, gone: Sequence[Pod] = ()) -> int:
        """How many pods of the gang fit if these pods are evicted."""
        idle = dict(self.nodes)
        for pod in self.running:
            idle[pod.node] -= pod.gang.cpu
        for pod in gone:
            idle[pod.node] += pod.gang.cpu
        return sum(
            max(left, 0) // gang.cpu for node, left in idle.items() if self.accepts(node, gang)
        )

    def accepts(self, node: str, gang: Gang) -> bool:
        """Whether the node has the labels that the gang's node selector names."""
        return gang.selector.items() <= self.labels[node].items()

    def can_ever_start(self, gang: Gang) -> bool:
        """Whether the nodes have room for it if nothing else runs."""
        others = [pod for pod in self.running if pod.gang.name != gang.name]
        return self.room(gang, others) >= self.lacking(gang)

    def deserved(self, queue: str, rules: Rules) -> Fraction:
        """What the queue deserves at least, exactly: thirds do not add up in floating point."""
        if rules.sharing == "capacity":
            return Fraction(self.queues[queue].deserved or 0)
        users = {gang.queue for gang in self.gangs.values()}
        weights = sum(self.queues[name].weight for name in users)
        return Fraction(self.queues[queue].weight * self.total, weights)


def entitled(view: View, rules: Rules) -> Iterator[str]:
    """Gangs that wait although they are entitled to start, each with how."""
    for gang in view.gangs.values():
        lacking = view.lacking(gang)
        if lacking and _may_borrow(view, rules, gang) and view.room(gang) >= lacking:
            yield f"{gang.name}: room is idle beyond the share of its queue"
            continue
        if not lacking:
            continue
        if view.phase[gang.name] == "Pending" and not _may_enter(view, rules, gang):
            continue
        for way, victims in _ways(view, rules, gang):
            may_have = _may_have(view, rules, gang, lacking, victims)
            if may_have and view.room(gang, victims) >= lacking:
                names = ", ".join(pod.name for pod in victims)
                yield (
                    f"{gang.name} by {way} of {names}" if victims else f"{gang.name}: room is idle"
                )
                break


def _ways(view: View, rules: Rules, gang: Gang) -> Iterator[tuple[str, Sequence[Pod]]]:
    yield "nothing", ()
    if rules.preempts:
        lower = [
            pod
            for pod in view.running
            if pod.gang.queue == gang.queue and pod.gang.priority < gang.priority
        ]
        for victims in _subsets(lower):
            if _keeps_gangs(view, rules, "preempt", victims):
                yield "preemption", victims
    if rules.reclaims and _may_reclaim(view, rules, gang):
        others = [pod for pod in view.running if pod.gang.queue != gang.queue]
        for victims in _subsets(others):
            if _keeps_gangs(view, rules, "reclaim", victims) and _is_beyond(view, rules, victims):
                yield "reclaim", victims


def _subsets(pods: Sequence[Pod]) -> Iterator[Sequence[Pod]]:
    for size in range(1, len(pods) + 1):
        yield from itertools.combinations(pods, size)


def _keeps_gangs(view: View, rules: Rules, action: str, victims: Sequence[Pod]) -> bool:
    """No job loses pods of its minimum if those are protected; whole jobs may end."""
    lost = Counter(pod.gang.name for pod in victims)
    kept = all(
        view.ready[name] - count >= view.gangs[name].minimum
        or (rules.whole and count == view.ready[name])
        for name, count in lost.items()
    )
    return kept if rules.whole or action in rules.protects else True


def _is_beyond(view: View, rules: Rules, victims: Sequence[Pod]) -> bool:
    """Each queue holds more than it deserves until its last victim is evicted."""
    lost: Mapping[str, list[int]] = defaultdict(list)
    for pod in victims:
        lost[pod.gang.queue].append(pod.gang.cpu)
    return all(
        view.held[queue] - (sum(sizes) - max(sizes)) > _most_deserved(view, queue, rules)
        for queue, sizes in lost.items()
    )


def _most_deserved(view: View, queue: str, rules: Rules) -> Fraction:
    """The maximum that the queue can deserve: shares grow by what others do not request."""
    if rules.sharing == "capacity":
        return view.deserved(queue, rules)
    wanted: Counter[str] = Counter()
    for gang in view.gangs.values():
        wanted[gang.queue] += view.members[gang.name] * gang.cpu
    spare = sum(
        max(view.deserved(name, rules) - wanted[name], Fraction(0))
        for name in wanted
        if name != queue
    )
    return view.deserved(queue, rules) + spare


def _may_reclaim(view: View, rules: Rules, gang: Gang) -> bool:
    """The gang actions place all pending tasks, the others task by task up to the minimum."""
    waiting = view.members[gang.name] - view.ready[gang.name]
    needed = (waiting if rules.whole else view.lacking(gang)) * gang.cpu
    return view.held[gang.queue] + needed <= view.deserved(gang.queue, rules)


def _may_have(view: View, rules: Rules, gang: Gang, lacking: int, victims: Iterable[Pod]) -> bool:
    """What the queue would hold without the victims is within what proportion gives it; capacity
    sets no limit here."""
    if rules.sharing != "proportion":
        return True
    own = [pod for pod in victims if pod.gang.queue == gang.queue]
    freed = sum(pod.gang.cpu for pod in own) if rules.frees_quota else 0
    needed = view.held[gang.queue] - freed + lacking * gang.cpu
    return needed <= view.deserved(gang.queue, rules)


def _may_borrow(view: View, rules: Rules, gang: Gang) -> bool:
    """It is inside a queue that holds nothing, so only the size of the gang exceeds the share."""
    is_inside = view.phase[gang.name] != "Pending"
    return rules.sharing == "proportion" and is_inside and not view.held[gang.queue]


def _may_enter(view: View, rules: Rules, gang: Gang) -> bool:
    """It may enter its queue: the pending gangs inside leave enough of the cluster. Those that no
    end of others lets start keep no room.
    """
    inside = [
        max(other.minimum - view.ready[other.name], 0) * other.cpu
        for other in view.gangs.values()
        if other.name != gang.name
        and view.phase[other.name] != "Pending"
        and view.can_ever_start(other)
    ]
    needed = sum(inside) + gang.minimum * gang.cpu
    held = sum(view.held.values())
    factor = OVERCOMMIT if rules.overcommits else 1.0
    return needed <= view.total * factor - held and needed + held <= view.total


def can_hold(idle: Sequence[int], cpus: Sequence[int]) -> bool:
    """Pods with these CPUs fit on nodes with this idle capacity: all placements are tried."""
    return any(
        all(
            sum(cpu for cpu, row in zip(cpus, rows, strict=True) if row == node) <= left
            for node, left in enumerate(idle)
        )
        for rows in itertools.product(range(len(idle)), repeat=len(cpus))
    )
