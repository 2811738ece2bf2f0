"""The controller's cache: the newest of the snapshots and our own write responses.

Pure. Applying a record costs O(1) and returns the keys that may need a reconcile. Indexes map a job
to its pods and a PodGroup to its members. The order of records across topics does not matter."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from stromboli.controller.core import commands
from stromboli.controller.core.store import (
    complete_specs,
    event_history,
    eviction_cycles,
    explanations,
    hardware_index,
    job_plans,
    job_relations,
    pod_group_members,
    queue_accounting,
    recorded_events,
    topology_index,
    topology_sources,
    unmanaged_pod_index,
)
from stromboli.shared import cluster_clock, envelope, errors, keys, snapshot, topics
from stromboli.shared.api import batch, core, kinds, meta, scheduling
from stromboli.shared.jobspec import data_sets, job_plugins, redaction
from stromboli.shared.jobspec.validation.queueing import queues as rules
from stromboli.shared.messages import batch as batch_messages
from stromboli.shared.messages import cluster

T = TypeVar("T")


ReconcileKey = job_relations.ReconcileKey
group_of = job_relations.group_of
job_of = job_relations.job_of
target_of = job_relations.target_of


class ApplyResult(msgspec.Struct, frozen=True):
    """The keys to reconcile after a record, and why it could not be decoded (empty if it could)."""

    items: tuple[ReconcileKey, ...] = ()
    undecodable: str = ""


class ProbeResult(msgspec.Struct, frozen=True):
    """The last result of a probe, and its time."""

    passed: bool
    at: datetime


class ControllerCache:
    """The objects of the snapshot topics and of our own write responses, with their indexes."""

    def __init__(
        self,
        scheduler_names: Iterable[str],
        published: event_history.EventHistory,
        plugins: job_plugins.Plugins = job_plugins.BUILT_IN,
        tools_domain: str = "",
        max_queue_depth: int = rules.MAX_DEPTH,
        data_root: str = data_sets.DEFAULT_ROOT,
    ) -> None:
        names = tuple(scheduler_names)
        self.scheduler_names = frozenset(names)
        self.usual_scheduler = names[0] if names else ""
        self.plugins, self.published = plugins, published
        self.tools_domain, self.data_root = tools_domain, data_root
        self.sync, self._objects = snapshot.Sync(), snapshot.Snapshot()
        self._specs = complete_specs.CompleteSpecs()
        self._explanations = explanations.Explanations()
        self._pods_of: dict[tuple[str, str], set[str]] = {}
        self.group_members = pod_group_members.GroupMembers()
        self._user_commands: dict[ReconcileKey, set[str]] = {}
        self._job_relations = job_relations.JobRelations()
        self._answers: dict[str, dict[commands.ProbeRequest, ProbeResult]] = {}
        self._unreadable: dict[str, set[str]] = {}
        self.queue_usage = queue_accounting.QueueAccounting(max_queue_depth)
        self.topology_index = topology_index.TopologyIndex()
        self.hardware = hardware_index.HardwareIndex()
        self.discovery: Mapping[str, topology_sources.Source] = {}
        """The sources of HyperNodes that the operator configured, by name."""
        self.unmanaged_pods = unmanaged_pod_index.UnmanagedPodIndex(self.scheduler_names)
        self.derived: dict[tuple[str, str], Any] = {}
        self.blockers: dict[tuple[str, str], tuple[batch.Job, tuple[Any, ...]]] = {}
        """By namespace and uid of a job: its ``JobPods``; the job with its ``pods.Blocker``s."""
        self._changed: dict[tuple[str, str], set[str]] = {}
        self._deleting, self._enqueuing = set[str](), set[str]()
        self._recorded = recorded_events.RecordedEvents()
        self.plans = job_plans.JobPlans()
        self.api_clock = cluster_clock.ClusterClock()
        self.eviction_cycles = eviction_cycles.EvictionCycles()

    # Reads

    def job(self, key: str) -> batch.Job | None:
        """The job, if it exists and is readable."""
        return self._objects.get(kinds.JOBS, key)

    def jobs(self) -> Iterator[batch.Job]:
        """All readable jobs."""
        return self._objects.objects(kinds.JOBS)

    def pod_group(self, key: str) -> scheduling.PodGroup | None:
        """The PodGroup, if it exists and is readable."""
        return self._objects.get(kinds.POD_GROUPS, key)

    def pod(self, key: str) -> core.Pod | None:
        """The pod, if it exists and is readable."""
        return self._objects.get(kinds.PODS, key)

    def queue(self, name: str) -> scheduling.Queue | None:
        """The queue, if it exists and is readable."""
        return self._objects.get(kinds.QUEUES, name)

    def command(self, key: str) -> batch.Command | None:
        """A user command, if it exists and is readable."""
        return self._objects.get(kinds.COMMANDS, key)

    def get(self, kind: kinds.Kind[snapshot.T], key: str) -> snapshot.T | None:
        """Any object, if it exists and is readable."""
        return self._objects.get(kind, key)

    def is_complete(self, obj: meta.Object) -> bool:
        """Whether the object has the values that the topics leave out."""
        return self._specs.has(obj) or not redaction.is_redacted(obj)

    def children(self, owner: meta.Object) -> list[batch.Job]:
        """Jobs that a flow or cron manages, by name."""
        return self._jobs(self._job_relations.of("maker", "/".join(owner.metadata.owner_key)))

    def made_from(self, template: str) -> list[batch.Job]:
        """Jobs that flows created from a template, by name."""
        return self._jobs(self._job_relations.of("template", template))

    def answer(self, pod_uid: str, question: commands.ProbeRequest) -> ProbeResult | None:
        """The last result of a probe of the pod."""
        return self._answers.get(pod_uid, {}).get(question)

    def state(self, kind: kinds.Kind[Any], key: str) -> snapshot.State:
        """The object, ``Unknown`` if it is unreadable, None if it is absent."""
        return self._objects.state(kind, key)

    def objects(self, kind: kinds.Kind[snapshot.T]) -> Iterator[snapshot.T]:
        """All readable objects of a kind."""
        return self._objects.objects(kind)

    def unknown_reason(self, job: str) -> str:
        """Why the job cannot be decoded; empty if it can or is absent."""
        state = self.state(kinds.JOBS, job)
        return state.reason if isinstance(state, snapshot.Unknown) else ""

    def unreadable(self, kind: kinds.Kind[Any]) -> Collection[str]:
        """Keys of objects of a kind that cannot be read."""
        return self._unreadable.get(kind.plural, ())

    def unknown_pods(self) -> Collection[str]:
        """Keys of pods that cannot be read."""
        return self.unreadable(kinds.PODS)

    def pods_of(self, job: batch.Job) -> list[core.Pod]:
        """Pods that a job manages, by name."""
        return self._pods(self._pods_of.get(job.metadata.owner_key, ()))

    def members(self, pod_group: str) -> list[core.Pod]:
        """Members of the PodGroup: pods that name it, by name."""
        return self._pods(self.group_members.of(pod_group))

    def take_changed(self, job: batch.Job) -> set[str]:
        """Keys of a job's pods that changed since the previous call, for a job in ``derived``."""
        return self._changed.pop(job.metadata.owner_key, set())

    def user_commands_for(self, item: ReconcileKey) -> list[batch.Command]:
        """Pending user commands for a job or queue, oldest first."""
        user_commands = (self.command(key) for key in self._user_commands.get(item, ()))
        waiting = [it for it in user_commands if it is not None and not self.is_terminating(it)]
        return sorted(waiting, key=lambda it: (it.metadata.version, it.metadata.name))

    def explained(self, pod_group: scheduling.PodGroup) -> explanations.Explanation | None:
        """Why the PodGroup (of this uid) is pending; None if there is no explanation."""
        return self._explanations.of(pod_group)

    def is_ours(self, job: batch.Job) -> bool:
        """Whether the job names one of our schedulers, so that this controller manages it."""
        return job.spec.scheduler_name in self.scheduler_names

    def is_terminating(self, obj: meta.Object) -> bool:
        """Whether the object is being deleted, even if no topic shows the deletion yet."""
        return obj.metadata.deletion_timestamp is not None or obj.metadata.uid in self._deleting

    def is_enqueued(self, pod_group: scheduling.PodGroup) -> bool:
        """Whether the PodGroup's pods may be created: it is, or is being, admitted to its queue."""
        return (
            pod_group.status.phase not in ("", "Pending")
            or pod_group.metadata.uid in self._enqueuing
        )

    def is_enqueuing(self, pod_group: scheduling.PodGroup) -> bool:
        """Whether the execution of a decision is writing the PodGroup's phase."""
        return pod_group.metadata.uid in self._enqueuing

    def is_recorded(self, command: commands.Command) -> bool:
        """Whether the command is a Kubernetes Event that was recorded already."""
        return isinstance(command, commands.RecordEvent) and self._recorded.has(command)

    def items(self) -> Iterator[ReconcileKey]:
        """All keys to reconcile after a start."""
        yield from (ReconcileKey("queue", key) for key in ("root", "default"))
        for queue in self.objects(kinds.QUEUES):
            yield ReconcileKey("queue", queue.metadata.name)
            yield ReconcileKey("queue counts", queue.metadata.name)
            yield ReconcileKey("queue rules", queue.metadata.name)
        yield from (ReconcileKey("job", job.metadata.key) for job in self.jobs())
        yield from (
            ReconcileKey("job", key)
            for key in self.published.jobs
            if self.state(kinds.JOBS, key) is None
        )
        groups = {group.metadata.key for group in self.objects(kinds.POD_GROUPS)}
        groups |= set(self.group_members.groups())
        yield from (ReconcileKey("podgroup", key) for key in sorted(groups))
        unmanaged = sorted(self.unmanaged_pods.groups())
        yield from (ReconcileKey("unmanaged pods", key) for key in unmanaged)
        yield from (ReconcileKey("command", it.metadata.key) for it in self.objects(kinds.COMMANDS))
        for kind, item in job_relations.MAKERS.items():
            yield from (ReconcileKey(item, it.metadata.key) for it in self.objects(kind))
        yield from self.hardware.items()
        yield topology_index.STATUS
        yield from (ReconcileKey("discovery", source) for source in job_relations.SOURCES)

    # Updates

    def apply(self, record: envelope.Record, after_s: float = -math.inf) -> ApplyResult:
        """Apply a record of a topic in ``FOLDED``. ``after_s``: see ``snapshot.Sync``."""
        if record.topic == topics.EXPLANATIONS:
            is_any, undecodable = self._explanations.apply(record)
            item = ReconcileKey("podgroup", record.key)
            return ApplyResult((item,) if is_any else (), undecodable)
        if record.topic == topics.TOPOLOGY:
            return ApplyResult(*self.hardware.apply(record))
        if record.topic == topics.BATCH_PLANS:
            return ApplyResult(undecodable=self.plans.apply(record))
        if record.topic == topics.SYNC:
            claimed = self.sync.claimed
            self.sync.apply(record, after_s)
            return ApplyResult(tuple(self.items()) if self.sync.claimed != claimed else ())
        change = self._specs.apply(self._objects, record)
        if change is None:
            return ApplyResult()
        unreadable = change.after if isinstance(change.after, snapshot.Unknown) else None
        is_garbled = unreadable is not None and record.type != cluster.UNREADABLE
        reason = unreadable.reason if unreadable and is_garbled else ""
        try:
            return ApplyResult(self._follow(change), reason)
        except errors.InvariantError:
            raise
        except Exception as error:  # one object must not stop all others
            return self._isolate(change, error)

    def _isolate(self, change: snapshot.Change, error: Exception) -> ApplyResult:
        """Mark an object that cannot be indexed as unreadable: its state is unknown."""
        why = f"internal error: {type(error).__name__}: {error}"
        unknown = self._objects.mark_unknown(change.kind, change.key, why)
        return ApplyResult(self._follow(unknown), why)

    def load(self, message: msgspec.Struct) -> None:
        """Apply an event of a previous leader, before this controller acts. An object whose
        deletion was published is deleted, even if a snapshot topic still contains it."""
        self.published.load(message)
        match message:
            case batch_messages.JobDeleted():
                self.forget(kinds.JOBS, message.job, message.uid)
            case batch_messages.TaskChanged(after=event_history.GONE):
                namespace, _, _ = message.job.partition("/")
                self.forget(kinds.PODS, f"{namespace}/{message.pod}", message.pod_uid)

    def observe(self, kind: kinds.Kind[Any], written: meta.Object) -> tuple[ReconcileKey, ...]:
        """Apply a write response, or an object that was just read, ahead of the topics."""
        if kind not in topics.SNAPSHOTS:
            return ()
        change = self._specs.observe(self._objects, kind, written)
        return () if change is None else self._follow(change)

    def forget(self, kind: kinds.Kind[Any], key: str, uid: str) -> tuple[ReconcileKey, ...]:
        """Remove an object: a request to the API server showed that it is deleted."""
        self._deleting.discard(uid)
        if kind not in topics.SNAPSHOTS:
            return ()
        change = self._objects.forget(kind, key, uid)
        return () if change is None else self._follow(change)

    def mark_deleting(self, kind: kinds.Kind[Any], key: str, uid: str) -> tuple[ReconcileKey, ...]:
        """Note that the API server acknowledged our deletion of the object."""
        state = self.state(kind, key) if kind in topics.SNAPSHOTS else None
        if not isinstance(state, meta.Object) or state.metadata.uid != uid:
            return ()
        self._deleting.add(uid)
        if isinstance(state, core.Pod):
            self._index(key, state)
        return self._touched(kind, key, state)

    def mark_recorded(self, event: commands.RecordEvent) -> None:
        """Note that the Event was handed to the recorder."""
        self._recorded.mark(event)

    def note_answer(
        self, requested: commands.RunProbe, answer: ProbeResult
    ) -> tuple[ReconcileKey, ...]:
        """Note the result of a probe."""
        pod = self.pod(requested.pod)
        if pod is None or pod.metadata.uid != requested.pod_uid:
            return ()  # The pod is deleted, so its result is irrelevant.
        self._answers.setdefault(requested.pod_uid, {})[requested.question] = answer
        return (ReconcileKey("flow", requested.flow),) if answer.passed else ()

    def note_caught_up(self, read: commands.CatchUp, *, is_there: bool) -> tuple[ReconcileKey, ...]:
        """Note that an object of a previous leader's event was read, or that it does not exist."""
        gone = () if is_there else self.forget(read.kind, read.key, read.uid)
        self.published.mark_looked_for(read.job, read.uid)
        return (*gone, ReconcileKey("job", read.job))

    def waiting_for(self, key: str) -> list[batch.Job]:
        """Jobs that depend on this one."""
        return self._jobs(self._job_relations.of("before", key))

    def mark_enqueuing(self, pod_group_uid: str) -> None:
        """Note that a decision admits the PodGroup, while its phase is being written."""
        self._enqueuing.add(pod_group_uid)

    def unmark_enqueuing(self, pod_group_uid: str) -> None:
        """Note that the phase was written or rejected."""
        self._enqueuing.discard(pod_group_uid)

    def note_owner(
        self, namespace: str, uid: str, read: meta.ObjectMeta | None
    ) -> tuple[ReconcileKey, ...]:
        """Note the metadata of an owner of pods, or None if it is deleted."""
        return tuple(
            ReconcileKey("unmanaged pods", it)
            for it in self.unmanaged_pods.note_owner(namespace, uid, read)
        )

    # Indexes

    def _follow(self, change: snapshot.Change) -> tuple[ReconcileKey, ...]:
        before, after = change.before, change.after
        if isinstance(before, meta.Object):
            self.blockers.pop(before.metadata.owner_key, None)  # it would keep an old job alive
            if not isinstance(after, meta.Object) or after.metadata.uid != before.metadata.uid:
                self._deleting.discard(before.metadata.uid)
                self._specs.forget(before.metadata.uid)
                self._recorded.forget(before.metadata.uid)
                self._enqueuing.discard(before.metadata.uid)
                self.plans.forget(before.metadata.uid)
                self._answers.pop(before.metadata.uid, None)
                self.derived.pop(before.metadata.owner_key, None)
                self._changed.pop(before.metadata.owner_key, None)
                self.published.note_departure(job_of(before), before)
            if isinstance(before, core.Pod):
                self._unindex(change.key, before)
        if isinstance(after, core.Pod):
            self._index(change.key, after)
        if change.kind is kinds.JOBS:
            self._job_relations.follow(change.key, before, after)
        if change.kind is kinds.COMMANDS:
            self._index_user_commands(change.key, before, after)
        if isinstance(after, snapshot.Unknown):
            self._unreadable.setdefault(change.kind.plural, set()).add(change.key)
        else:
            _discard(self._unreadable, change.kind.plural, change.key)
        items = dict.fromkeys(self._touched(change.kind, change.key, before))
        items |= dict.fromkeys(self._touched(change.kind, change.key, after))
        group = group_of(after) if isinstance(after, core.Pod) else None
        items |= dict.fromkeys(_items(self.queue_usage.follow(change, group)))
        unmanaged = self.unmanaged_pods.follow(change)
        items |= dict.fromkeys(ReconcileKey("unmanaged pods", key) for key in unmanaged)
        items |= dict.fromkeys((*self.topology_index.follow(change), *self.hardware.follow(change)))
        return tuple(items)

    def _touched(
        self, kind: kinds.Kind[Any], key: str, state: snapshot.State
    ) -> tuple[ReconcileKey, ...]:
        if kind is kinds.PODS:
            return self._touched_by_pod(key, state)
        if kind is kinds.POD_GROUPS:
            owner = job_of(state) if isinstance(state, meta.Object) else None
            job = () if owner is None else (ReconcileKey("job", owner),)
            return (*job, ReconcileKey("podgroup", key))
        if kind is kinds.JOBS:
            others = (*self._job_relations.of("before", key), *job_relations.dependencies(state))
            return (
                ReconcileKey("job", key),
                *_items(job_relations.creators(state)),
                *(ReconcileKey("job", other) for other in others),
                *_items(job_relations.flows_of_name(self._objects, key)),
            )
        if kind in job_relations.MAKERS:
            return (
                ReconcileKey(job_relations.MAKERS[kind], key),
                *self._flows_of(kind, key),
                *self._waiting_for(state),
            )
        if kind is kinds.QUEUES:
            return (ReconcileKey("queue", key),)
        if kind is kinds.COMMANDS:
            target = target_of(state) if isinstance(state, batch.Command) else None
            return (ReconcileKey("command", key), *(() if target is None else (target,)))
        return ()

    def _touched_by_pod(self, key: str, state: snapshot.State) -> tuple[ReconcileKey, ...]:
        owner = job_of(state) if isinstance(state, meta.Object) else None
        if owner is not None:
            job = self.job(owner)
            items = [
                ReconcileKey("job", owner),
                *(it for it in _items(job_relations.creators(job)) if it.kind == "flow"),
            ]
        elif state is None:
            items = []
        else:
            # A pod of another owner, or an unreadable one, may have a name that our jobs need.
            owners = (it for it in job_relations.prefixes(key) if self.job(it) is not None)
            items = [ReconcileKey("job", owner) for owner in owners]
        group = group_of(state) if isinstance(state, core.Pod) else None
        return (*items, ReconcileKey("podgroup", group)) if group else tuple(items)

    def _flows_of(self, kind: kinds.Kind[Any], key: str) -> Iterator[ReconcileKey]:
        """Flows that wait for the template."""
        if kind is not kinds.JOB_TEMPLATES:
            return
        namespace, _, name = key.partition("/")
        for flow in self.objects(kinds.JOB_FLOWS):
            if flow.metadata.namespace == namespace and any(
                entry.name == name for entry in flow.spec.flows
            ):
                yield ReconcileKey("flow", flow.metadata.key)

    def _waiting_for(self, maker: snapshot.State) -> Iterator[ReconcileKey]:
        """Finished jobs that may be deleted once the status of their flow or cron records their
        end."""
        if isinstance(maker, meta.Object):
            for job in self.children(maker):
                if job.spec.ttl_seconds_after_finished is not None:
                    yield ReconcileKey("job", job.metadata.key)

    def _jobs(self, job_keys: Iterable[str]) -> list[batch.Job]:
        jobs = (self.job(key) for key in sorted(job_keys))
        return [job for job in jobs if job is not None]

    def _index(self, key: str, pod: core.Pod) -> None:
        owner = pod.metadata.controller_key
        if owner is not None and pod.metadata.label(keys.TOOL) is None:
            self._pods_of.setdefault(owner, set()).add(key)
            self._note_changed(owner, key)
        if (group := group_of(pod)) is not None:
            is_terminating = self.is_terminating(pod)
            state = pod_group_members.member_state_of(pod, is_terminating=is_terminating)
            self.group_members.put(key, group, state)

    def _unindex(self, key: str, pod: core.Pod) -> None:
        owner = pod.metadata.controller_key
        if owner is not None:
            _discard(self._pods_of, owner, key)
            self._note_changed(owner, key)
        self.group_members.remove(key)

    def _note_changed(self, owner: tuple[str, str], key: str) -> None:
        if owner in self.derived:
            self._changed.setdefault(owner, set()).add(key)

    def _index_user_commands(self, key: str, before: snapshot.State, after: snapshot.State) -> None:
        was = target_of(before) if isinstance(before, batch.Command) else None
        target = target_of(after) if isinstance(after, batch.Command) else None
        if was is not None:
            _discard(self._user_commands, was, key)
        if target is not None:
            self._user_commands.setdefault(target, set()).add(key)

    def _pods(self, pod_keys: Iterable[str]) -> list[core.Pod]:
        pods = (self._objects.get(kinds.PODS, key) for key in sorted(pod_keys))
        return [pod for pod in pods if pod is not None]


def _items(items: Iterable[tuple[job_relations.ItemKind, str]]) -> Iterator[ReconcileKey]:
    return (ReconcileKey(*it) for it in items)


def _discard(index: dict[T, set[str]], of: T, key: str) -> None:
    entry_keys = index.get(of)
    if entry_keys is not None:
        entry_keys.discard(key)
        if not entry_keys:
            del index[of]
