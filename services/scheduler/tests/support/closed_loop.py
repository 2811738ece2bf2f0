"""A closed loop: the scheduler's core, and an executor that executes the decisions of a session
before the next one starts.

Sessions start as in the service: when a change triggers one, or a requested time is reached. Bound
pods run, evicted pods end (and are created again, if the job does so), enqueued gangs are Inqueue.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stromboli.scheduler.core import policy, schedule
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.config import configuration
from stromboli.shared import envelope, topics
from stromboli.shared.api import batch, core, meta, scheduling
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log

STEP = timedelta(seconds=1)
PRIORITIES = 3
DENIED = 'admission webhook "policy.example.com" denied the request'


class Gang(msgspec.Struct, frozen=True):
    """Pods of ``cpu`` each, or of ``cpus`` if they differ. ``running``: nodes on which some of them
    run. ``waiting``: number of pods that do not run. ``is_inside``: enqueued. ``waits_s``: its
    sla-waiting-time in seconds. ``pod``: arguments of ``make_pod``. ``spec``: fields of the specs
    of its pods. ``topology``: its topology constraint. ``annotations``: of its PodGroup."""

    name: str
    queue: str
    priority: int
    minimum: int
    cpu: int
    running: tuple[str, ...] = ()
    waiting: int = 0
    is_inside: bool = True
    waits_s: int | None = None
    cpus: tuple[int, ...] = ()
    pod: Mapping[str, Any] = {}
    spec: Mapping[str, Any] = {}
    topology: batch.NetworkTopology | None = None
    annotations: Mapping[str, str] = {}

    @property
    def selector(self) -> Mapping[str, str]:
        """The node selector of its pods."""
        found: Mapping[str, str] = self.pod.get("node_selector") or {}
        return found

    @property
    def pods(self) -> int:
        return len(self.running) + self.waiting

    @property
    def least_cpus(self) -> tuple[int, ...]:
        """The requests of its minimum, if its smallest pods form it."""
        return tuple(sorted(self.cpus or (self.cpu,) * self.pods)[: self.minimum])


class Queue(msgspec.Struct, frozen=True):
    """``deserved``: cpus, for the plugin capacity; ``capability``: cpus. ``dequeue_strategy``: for
    queue-policy."""

    name: str
    weight: int = 1
    deserved: int | None = None
    dequeue_strategy: str = ""
    capability: int | None = None


class Loop:
    """The API server's objects, the log, and the scheduler's cache built from it."""

    def __init__(
        self,
        configured: configuration.Configuration,
        nodes: Mapping[str, int],
        queues: Iterable[Queue],
        *,
        comes_back: bool = False,
    ) -> None:
        self.now = builders.NOON + timedelta(hours=1)
        self.nodes: dict[str, int] = {}
        self.labels: dict[str, Mapping[str, str]] = {}
        """Node -> its labels."""
        self.gangs: dict[str, Gang] = {}
        self.pods: dict[str, core.Pod] = {}
        self.groups: dict[str, scheduling.PodGroup] = {}
        self.history: list[str] = []
        self.refused_nodes: set[str] = set()
        """Nodes to which the API server refuses binds."""
        self.refused_pods: set[str] = set()
        """Pods of which the API server refuses binds."""
        self.refused_entries: set[str] = set()
        """Gangs of which the API server refuses to write the phase."""
        self.refuses_evictions = False
        self._comes_back = comes_back
        self._policy = policy.Policy(configured=configured)
        self._cache = cluster_cache.ClusterCache(self._policy.scheduler_names)
        self._cache.sessions_may_evict = bool(
            policy.EVICTING_ACTIONS.intersection(configured.actions)
        )
        self._log = topic_log.TopicLog()
        self._wake_at: datetime | None = None
        self._version = 1
        self._see(
            *(builders.make_priority_class(f"p{at}", at) for at in range(PRIORITIES)),
            *(_queue_object(queue) for queue in queues),
        )
        for name, cpu in nodes.items():
            self.add_node(name, cpu)

    # What happens outside

    def add_node(self, name: str, cpu: int, **fields: Any) -> None:
        """Create or replace the node. ``fields``: arguments of ``make_node``."""
        self.nodes[name] = cpu
        self.labels[name] = fields.get("labels") or {}
        self._see(builders.make_node(name, cpu=str(cpu), version=self._next_version(), **fields))

    def put(self, *objects: meta.Object) -> None:
        """Create or replace objects that the loop does not follow."""
        self._see(*objects)

    def lose(self, gone: meta.Object) -> None:
        """Delete an object that the loop does not follow."""
        self._lose(gone)

    def change_pods(self, gang: Gang) -> None:
        """Replace the gang and its pods that wait."""
        self.gangs[gang.name] = gang
        for key in self.members(gang.name):
            if not self.pods[key].spec.node_name:
                self._show_pod(self._new_pod(gang, self.pods[key].metadata.name, ""))

    def remove_node(self, name: str) -> None:
        node = builders.make_node(name, cpu=str(self.nodes.pop(name)))
        self._lose(node)

    def fail_node(self, name: str) -> None:
        """Delete the node with its pods; their job creates new pods."""
        for key in [key for key, pod in self.pods.items() if pod.spec.node_name == name]:
            gone = self.pods.pop(key)
            self._lose(gone)
            self._show_pod(self._new_pod(self.gangs[_gang_of(gone)], gone.metadata.name, ""))
        self.remove_node(name)

    def make_pod_unreadable(self, key: str) -> None:
        """Append a record of the pod that cannot be decoded."""
        self._cache.apply(self._log.garble(topics.PODS, key))

    def add(self, gang: Gang) -> None:
        """Create the gang and all its pods."""
        self.gangs[gang.name] = gang
        phase = "Running" if gang.running else "Inqueue" if gang.is_inside else "Pending"
        notes = dict(gang.annotations)
        if gang.waits_s is not None:
            notes["volcano.sh/sla-waiting-time"] = f"{gang.waits_s}s"
        group = builders.make_pod_group(
            gang.name,
            gang.minimum,
            queue=gang.queue,
            phase=phase,
            priority_class=f"p{gang.priority}",
            min_resources={"cpu": str(sum(gang.least_cpus))},
            annotations=notes,
            created=self.now,
        )
        spec = msgspec.structs.replace(group.spec, network_topology=gang.topology)
        self._show_group(msgspec.structs.replace(group, spec=spec))
        places = [*gang.running, *[""] * gang.waiting]
        for at, node in enumerate(places):
            self._show_pod(self._new_pod(gang, f"{gang.name}-{at}", node))

    def label_node(self, name: str, **labels: str) -> None:
        """Replace the labels of a node."""
        self.add_node(name, self.nodes[name], labels=labels)

    def create_pods(self, name: str) -> None:
        """Create the minimum of pods of a gang that has none."""
        for at in range(self.gangs[name].minimum):
            self._show_pod(self._new_pod(self.gangs[name], f"{name}-{at}", ""))

    def end(self, name: str) -> None:
        """Delete the gang's pods, which have succeeded, and its PodGroup."""
        for key in self.members(name):
            self._lose(self.pods.pop(key))
        self._lose(self.groups.pop(name))
        del self.gangs[name]

    # Reading

    def members(self, name: str) -> list[str]:
        return [key for key, pod in self.pods.items() if _gang_of(pod) == name]

    def places(self, name: str) -> list[str]:
        """Nodes where the gang's pods run."""
        nodes = [self.pods[key].spec.node_name for key in self.members(name)]
        return [node for node in nodes if node]

    def idle(self) -> list[int]:
        """What each node has left, in cpus."""
        left = dict(self.nodes)
        for pod in self.pods.values():
            if pod.spec.node_name:
                requests = pod.spec.containers[0].resources.requests or {}
                left[pod.spec.node_name] -= int(requests["cpu"])
        return list(left.values())

    def phase(self, name: str) -> str:
        return self.groups[name].status.phase

    def records(self, topic: topics.Topic) -> list[envelope.Record]:
        """The records of a topic, in order."""
        return [each for each in self._log.records if each.topic == topic]

    @property
    def log(self) -> list[envelope.Record]:
        """All records, in order."""
        return self._log.records

    @property
    def memory(self) -> Mapping[str, str]:
        """What the last recorded session remembers."""
        return self._cache.memory

    @property
    def explained(self) -> Mapping[str, messages.PodGroupExplained]:
        """PodGroup -> its current explanation."""
        return self._cache.explained

    @property
    def due_at(self) -> datetime | None:
        """When the next session is due; None for never."""
        return self.now if self._cache.session_cause else self._wake_at

    def is_due_before(self, end: datetime) -> bool:
        """Whether a session is due before this time; moves the clock to it."""
        if not self._cache.session_cause and (self._wake_at is None or self._wake_at > end):
            return False
        return self.now < end and self._is_due()

    # Sessions

    def step(self) -> bool:
        """Run a session and carry out its decisions; return whether there were any."""
        self.now += STEP
        decided = schedule.run_session(self._cache, self.now, self._policy)
        self._wake_at = decided.wake_at
        records: list[envelope.Record] = [
            self._append(topics.DECISIONS, each.pod_group, each) for each in decided.decisions
        ]
        if decided.record is not None:
            self._append(topics.DECISIONS, messages.SESSION_KEY, decided.record)
        for key, explained in decided.explanations.items():
            self._cache.record_explanation(key, explained)
        self._cache.finish_session(is_throttled=decided.is_throttled)
        for record, statement in zip(records, decided.decisions, strict=True):
            self._carry_out(record, statement)
        return bool(decided.decisions)

    def settle(self, most: int) -> int | None:
        """Run sessions while any is due; return how many decided something, None if over ``most``.

        Time passes only when nothing else is left to do.
        """
        deciding = 0
        while self._is_due():
            deciding += self.step()
            if deciding > most:
                return None
        return deciding

    def settle_once(self) -> bool:
        """Run the next session; return whether it decided something."""
        return self._is_due() and self.step()

    def _is_due(self) -> bool:
        if not self._cache.session_cause and self._wake_at is not None:
            self.now = max(self.now, self._wake_at - STEP)
            self._wake_at = None
            self._cache.request_session("time")
        return bool(self._cache.session_cause)

    def restart(self) -> None:
        """Replace the scheduler by one that reads the last record of each object, and decisions and
        outcomes from the offsets in the last session's record.
        """
        self._cache = restarted(self._log.records, self._policy)

    # Carrying out

    def _carry_out(self, record: envelope.Record, statement: messages.StatementDecided) -> None:
        name = statement.pod_group.partition("/")[2]
        self.history.append(_in_words(name, statement))
        is_entering = statement.enqueue and name not in self.refused_entries
        if is_entering:
            self._show_phase(name, "Inqueue")
        refused = {each.uid for each in statement.binds if self._refuses(each)}
        for bind in statement.binds:
            key = f"{bind.namespace}/{bind.pod}"
            if bind.uid in refused:
                continue
            self._show_pod(_placed(self.pods[key], bind.node, self._next_version()))
        if self.refuses_evictions:
            refused |= {each.uid for each in statement.evictions}
        named = [(each.namespace, each.pod, each.uid) for each in statement.binds]
        named += [(each.namespace, each.pod, each.uid) for each in statement.evictions]
        tasks = [
            messages.TaskOutcome(
                namespace=namespace,
                pod=pod,
                uid=uid,
                result="refused" if uid in refused else "executed",
                reason="Forbidden" if uid in refused else "",
                message=DENIED if uid in refused else "",
            )
            for namespace, pod, uid in named
        ]
        answer = messages.DecisionAnswered(
            decision=record.id,
            decision_offset=record.offset,
            pod_group=statement.pod_group,
            enqueue=_entry_result(statement, is_entering=is_entering),
            tasks=tuple(tasks),
        )
        self._append(topics.OUTCOMES, record.id, answer)
        for eviction in () if self.refuses_evictions else statement.evictions:
            gone = self.pods.pop(f"{eviction.namespace}/{eviction.pod}")
            self._lose(gone)
            if self._comes_back:
                gang = self.gangs[_gang_of(gone)]
                self._show_pod(self._new_pod(gang, gone.metadata.name, ""))
        for each in {name, *(_gang_of_name(one.pod) for one in statement.evictions)}:
            self._follow_phase(each)

    def _refuses(self, bind: messages.Bind) -> bool:
        pod = f"{bind.namespace}/{bind.pod}"
        return bind.node in self.refused_nodes or pod in self.refused_pods

    def _follow_phase(self, name: str) -> None:
        """Set the phase as the controller does: a gang with its minimum on nodes is Running."""
        gang, phase = self.gangs[name], self.phase(name)
        running = len(self.places(name))
        if phase == "Inqueue" and running and running >= gang.minimum:
            self._show_phase(name, "Running")

    def _show_phase(self, name: str, phase: str) -> None:
        group = self.groups[name]
        status = msgspec.structs.replace(group.status, phase=phase)
        self._show_group(
            msgspec.structs.replace(
                group, metadata=_renewed(group.metadata, self._next_version()), status=status
            )
        )

    def _new_pod(self, gang: Gang, name: str, node: str) -> core.Pod:
        version = self._next_version()
        pod = builders.make_pod(
            name,
            gang.name,
            cpu=str(gang.cpus[int(name.rpartition("-")[2])] if gang.cpus else gang.cpu),
            memory=None,
            node=node,
            phase="Running" if node else "Pending",
            priority=gang.priority,
            version=version,
            generation=version,
            created=self.now,
            **gang.pod,
        )
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **gang.spec))

    def _show_pod(self, pod: core.Pod) -> None:
        self.pods[pod.metadata.key] = pod
        self._see(pod)

    def _show_group(self, group: scheduling.PodGroup) -> None:
        self.groups[group.metadata.name] = group
        self._see(group)

    # The log

    def _see(self, *objects: meta.Object) -> None:
        for record in self._log.see(*objects):
            assert not self._cache.apply(record)

    def _lose(self, gone: meta.Object) -> None:
        for record in self._log.lose(gone):
            self._cache.apply(record)

    def _append(self, topic: topics.Topic, key: str, message: msgspec.Struct) -> envelope.Record:
        draft = envelope.Draft(topic=topic, key=key, message=message, time=self.now)
        record = self._log.append(draft)
        assert not self._cache.apply(record)
        return record

    def _next_version(self) -> int:
        self._version += 1
        return self._version


def restarted(log: Sequence[envelope.Record], by: policy.Policy) -> cluster_cache.ClusterCache:
    """The cache of a scheduler that starts on this log."""
    records = [envelope.decode(it) for it in log if it.key == messages.SESSION_KEY]
    last = records[-1]
    assert isinstance(last, messages.SessionRecorded)
    starts = {
        topics.DECISIONS.name: last.unconfirmed_from,
        topics.OUTCOMES.name: last.outcomes_from,
    }
    cache = cluster_cache.ClusterCache(by.scheduler_names)
    cache.sessions_may_evict = bool(policy.EVICTING_ACTIONS.intersection(by.configured.actions))
    for record in log:
        if record.offset >= starts.get(record.topic.name, 0):
            assert not cache.apply(record)
    return cache


def _queue_object(queue: Queue) -> scheduling.Queue:
    made = builders.make_queue(queue.name, weight=queue.weight)
    spec = msgspec.structs.replace(made.spec, dequeue_strategy=queue.dequeue_strategy)
    made = msgspec.structs.replace(made, spec=spec)
    spec = msgspec.structs.replace(
        made.spec, deserved=_cpus(queue.deserved), capability=_cpus(queue.capability)
    )
    return msgspec.structs.replace(made, spec=spec)


def _cpus(count: int | None) -> dict[str, core.Quantity] | None:
    return None if count is None else {"cpu": str(count)}


def _entry_result(
    statement: messages.StatementDecided, *, is_entering: bool
) -> messages.Result | None:
    if not statement.enqueue:
        return None
    return "executed" if is_entering else "refused"


def _gang_of(pod: core.Pod) -> str:
    return _gang_of_name(pod.metadata.name)


def _gang_of_name(pod: str) -> str:
    return pod.rpartition("-")[0]


def _renewed(metadata: meta.ObjectMeta, version: int) -> meta.ObjectMeta:
    return msgspec.structs.replace(metadata, resource_version=str(version))


def _placed(pod: core.Pod, node: str, version: int) -> core.Pod:
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    status = msgspec.structs.replace(pod.status, phase="Running")
    return msgspec.structs.replace(
        pod, metadata=_renewed(pod.metadata, version), spec=spec, status=status
    )


def _in_words(name: str, statement: messages.StatementDecided) -> str:
    parts = ["enters"] if statement.enqueue else []
    parts += [f"{bind.pod} on {bind.node}" for bind in statement.binds]
    parts += [f"{each.reason}s {each.pod}" for each in statement.evictions]
    return f"{name}: {', '.join(parts)}"
