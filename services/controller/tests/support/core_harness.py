"""A cluster, a log and a controller in plain values, one command at a time.

It does what the shell does with the real ones: executes commands, answers conflicts, puts the
responses into the cache. Tests decide what the controller reads and when, and where it is killed.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from services.controller.tests.oracle import job_pods
from services.controller.tests.support import invariants
from services.controller.tests.support.patches import copied, generation_of, json_patch, merged
from stromboli.controller.core import commands, manifests, reconcilers
from stromboli.controller.core.queues import queues
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared import envelope, topics
from stromboli.shared.api import batch, core, kinds, meta, scheduling
from stromboli.shared.jobspec import redaction
from stromboli.shared.messages import batch as messages
from stromboli.testkit import builders

Body = dict[str, Any]
TopicKey = tuple[str, str]
Obj = TypeVar("Obj", bound=meta.Object)
SCHEDULERS = ("volcano", "stromboli")


class KilledError(Exception):
    """The controller was killed before this command."""


class RefusedError(Exception):
    """The cluster did not take the command as it is: the step is taken again."""


class CoreHarness:
    """Everything outside the core, and the core's cache of it."""

    def __init__(self) -> None:
        self.now = builders.NOON
        self.objects: dict[tuple[str, str], Body] = {}
        self.sent: list[tuple[str, msgspec.Struct]] = []
        self.events: dict[str, commands.RecordEvent] = {}
        self.phases: dict[str, list[batch.JobStatus]] = {}
        self.done: list[commands.Command] = []
        self.unseen: dict[str, deque[envelope.Record]] = {}
        self._last: dict[TopicKey, envelope.Record] = {}
        self._numbers = itertools.count(1)
        self.dirty: dict[controller_cache.ReconcileKey, None] = {}
        self.cache = controller_cache.ControllerCache(SCHEDULERS, event_history.EventHistory())
        self.cache.published.finish_loading()
        self.commands_left: int | None = None
        self.answering: set[tuple[str, commands.ProbeRequest]] = set()
        self.past = invariants.JobTimeline()
        self.made: dict[str, list[str]] = {}  # key of a job -> uids of all that ever were
        self.read_first: tuple[envelope.Record, ...] = ()  # by a new controller, before all events
        self.pod_log: list[envelope.Record] = []  # of the pods' topic, since all was handled
        self.counts_wait = False  # whether counts are delayed, as they are while many change
        for name in queues.ALWAYS:
            self.submit(builders.make_queue(name))

    # The controller

    def restart(
        self, without: str = "", old: Mapping[TopicKey, envelope.Record] | None = None
    ) -> None:
        """Start a new controller process, which has only the contents of the topics.

        ``without``: a topic on which the monitor lags far behind. ``old``: the records that the
        topics end with; newer ones are applied later.
        """
        self.cache = controller_cache.ControllerCache(SCHEDULERS, event_history.EventHistory())
        for record in self.read_first:
            self.cache.apply(record)
        for _, message in self.sent:
            self.cache.load(message)
        self.cache.published.finish_loading()
        self.commands_left = None
        for queue in self.unseen.values():
            queue.clear()
        for at, record in self._last.items():
            if old and at in old:
                self.unseen.setdefault(record.topic.name, deque()).append(record)
            elif record.topic.name != without:
                self.cache.apply(record)
        for at, record in (old or {}).items():
            self.cache.apply(record)
            if at not in self._last:
                was = envelope.decode(record)
                assert isinstance(was, meta.Object)
                tombstone = builders.make_record(builders.tombstone_of(was), next(self._numbers))
                self.unseen.setdefault(record.topic.name, deque()).append(tombstone)
        self.dirty = dict.fromkeys(self.cache.items())

    def shown(self, topic: str) -> dict[TopicKey, envelope.Record]:
        """The newest record of each key of a topic."""
        return {at: record for at, record in self._last.items() if at[0] == topic}

    def see(self, topic: str | None = None) -> None:
        """The controller folds what is new on one topic, or on all."""
        for name, queue in self.unseen.items():
            while queue and topic in (None, name):
                self._apply(queue.popleft())

    def see_one(self, topic: str) -> None:
        """The controller folds the next record of a topic."""
        queue = self.unseen.get(topic)
        if queue:
            self._apply(queue.popleft())

    def see_again(self, topic: str) -> None:
        """The controller reads the last record of each key of the topic once more."""
        for (name, _), record in list(self._last.items()):
            if name == topic and record not in self.unseen.get(name, ()):
                self._apply(record)

    def _apply(self, record: envelope.Record) -> None:
        self.dirty |= dict.fromkeys(self.cache.apply(record).items)

    def plan(self, item: controller_cache.ReconcileKey) -> commands.Plan:
        job_pods.check(self.cache, item)
        found = reconcilers.plan(self.cache, item, self.now)
        return commands.without_counts(found) if self.counts_wait else found

    def step(self, item: controller_cache.ReconcileKey) -> bool:
        """One step of an item; whether there was anything to do."""
        self.dirty.pop(item, None)
        plan = self.plan(item)
        try:
            for stage in plan:
                for command in stage:
                    self.do(command)
        except RefusedError:
            self.see()
            self.dirty[item] = None
        return bool(plan)

    def settle(self, most: int = 2000) -> None:
        """Everything is seen and every step taken, until nothing is left to do."""
        for _ in range(most):
            self.collect()
            self.see()
            if not self.dirty:
                invariants.check_timers(self.cache, self.now)
                self.pod_log.clear()
                return
            self.step(next(iter(self.dirty)))
        raise AssertionError(f"not quiet after {most} steps: {list(self.dirty)}")

    def do(self, command: commands.Command) -> None:
        """Carry out one command. Raises Killed or Refused."""
        if self.commands_left is not None:
            if self.commands_left == 0:
                raise KilledError
            self.commands_left -= 1
        self.done.append(command)
        match command:
            case commands.Create():
                self._create(command)
            case commands.Patch():
                self._patch(command)
            case commands.PatchJobStatus():
                meta_ = command.job.metadata
                self._patch(
                    commands.Patch(
                        kind=kinds.JOBS,
                        namespace=meta_.namespace,
                        name=meta_.name,
                        uid=meta_.uid,
                        patch=manifests.job_status_patch(command),
                        subresource="status",
                    )
                )
            case commands.Delete():
                self._delete(command)
            case commands.RecordEvent():
                self.events[command.event_name] = command
                self.cache.mark_recorded(command)
            case commands.Publish():
                self.past.see_published(self.objects, command.message)
                self.sent.append((command.job, command.message))
                self.cache.published.observe(command.message)
            case commands.ReadOwner():
                owner = self._look(command)
                read = None if owner is None else kinds.metadata_of(msgspec.json.encode(owner))
                reconcile_keys = self.cache.note_owner(command.namespace, command.uid, read)
                self.dirty |= dict.fromkeys(reconcile_keys)
            case commands.ReadSpec():
                self._take_in(command.kind, command.key)
            case commands.CatchUp():
                self._take_in(command.kind, command.key)
                is_there = self._look(command) is not None
                reconcile_keys = self.cache.note_caught_up(command, is_there=is_there)
                self.dirty |= dict.fromkeys(reconcile_keys)
            case commands.RunProbe():
                passed = (command.host, command.question) in self.answering
                answer = controller_cache.ProbeResult(passed, self.now)
                self.dirty |= dict.fromkeys(self.cache.note_answer(command, answer))

    def _look(self, command: commands.ReadOwner | commands.CatchUp) -> Body | None:
        found = self.objects.get((command.kind.plural, f"{command.namespace}/{command.name}"))
        return found if found and found["metadata"]["uid"] == command.uid else None

    def _create(self, command: commands.Create) -> None:
        found = self.objects.get((command.kind.plural, command.key))
        if found is None:
            body = msgspec.json.decode(command.body)
            self._check_gang(command.kind, body)
            if command.kind is kinds.PODS:
                invariants.check_place(self.cache, self.past, kinds.PODS.decode(command.body))
            self.put(command.kind, body)
            self._take_in(command.kind, command.key)
            return
        self._take_in(command.kind, command.key)
        owners = found["metadata"].get("ownerReferences", [])
        is_ours = any(owner["uid"] == command.owner_uid for owner in owners)
        if command.owner_uid and not is_ours:
            raise RefusedError
        if "deletionTimestamp" in found["metadata"]:
            raise RefusedError
        version = found["metadata"].get("annotations", {}).get("volcano.sh/job-version")
        if command.version is not None and version != str(command.version):
            raise RefusedError
        if command.update:
            found.update(msgspec.json.decode(command.update))

    def _patch(self, command: commands.Patch) -> None:
        at = (command.kind.plural, command.key)
        found = self.objects.get(at)
        if found is None:
            self.dirty |= dict.fromkeys(self.cache.forget(command.kind, command.key, command.uid))
            raise RefusedError
        patch = msgspec.json.decode(command.patch)
        if command.patch_type == "merge":
            version = patch.get("metadata", {}).get("resourceVersion")
            if version not in (None, found["metadata"]["resourceVersion"]):
                self._take_in(command.kind, command.key)
                raise RefusedError
            changed = merged(found, patch)
        else:
            try:
                changed = json_patch(found, patch)
            except (KeyError, IndexError, ValueError):
                self._take_in(command.kind, command.key)
                raise RefusedError from None
        if changed != found:
            if changed.get("spec") != found.get("spec"):
                self._check_gang(command.kind, changed)
            self.put(command.kind, changed)
        self._take_in(command.kind, command.key)

    def _delete(self, command: commands.Delete) -> None:
        found = self.objects.get((command.kind.plural, command.key))
        if found is None:
            self.past.hidden.add(command.uid)
            self.dirty |= dict.fromkeys(self.cache.forget(command.kind, command.key, command.uid))
            return
        if command.uid and found["metadata"]["uid"] != command.uid:
            self._take_in(command.kind, command.key)
            return
        self.delete(command.kind, command.key)
        self.dirty |= dict.fromkeys(
            self.cache.mark_deleting(command.kind, command.key, found["metadata"]["uid"])
        )

    def _take_in(self, kind: kinds.Kind[Any], key: str) -> None:
        found = self.objects.get((kind.plural, key))
        if found is not None:
            written = kind.decode(msgspec.json.encode(found))
            self.dirty |= dict.fromkeys(self.cache.observe(kind, written))

    # The cluster

    def submit(self, obj: meta.Object) -> str:
        """A user's object; returns its key."""
        kind = builders.kind_of(obj)
        body = msgspec.json.decode(msgspec.json.encode(obj))
        body["metadata"].pop("uid")
        self.put(kind, body)
        return obj.metadata.key

    def put(self, kind: kinds.Kind[Any], body: Body) -> None:
        """Store an object with the next version, and publish it."""
        body = copied(body)
        number = next(self._numbers)
        metadata = body["metadata"]
        metadata.setdefault("uid", f"uid-{number}")
        metadata.setdefault("creationTimestamp", self.now.isoformat())
        metadata["resourceVersion"] = str(number)
        if kind is kinds.PODS:
            body.setdefault("status", {}).setdefault("phase", "Pending")
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        key = f"{namespace}/{name}" if namespace else name
        metadata["generation"] = generation_of(body, self.objects.get((kind.plural, key)))
        stored = kind.decode(msgspec.json.encode(body))
        self.objects[kind.plural, key] = body
        if kind in topics.SNAPSHOTS:
            self.show(builders.snapshot_of(redaction.without_values(stored)))
        elif kind in kinds.WORKLOADS and self.cache.unmanaged_pods.has_owners(kind):
            owner = stored.metadata
            reconcile_keys = self.cache.note_owner(owner.namespace, owner.uid, owner)
            self.dirty |= dict.fromkeys(reconcile_keys)
        if isinstance(stored, batch.Job):
            self._check_life(stored)
        elif isinstance(stored, core.Pod):
            self.past.see_pod(stored)

    def _check_life(self, job: batch.Job) -> None:
        if job.metadata.uid not in (made := self.made.setdefault(job.metadata.key, [])):
            made.append(job.metadata.uid)
        past = self.phases.setdefault(job.metadata.uid, [])
        invariants.check_life(past[-1] if past else batch.JobStatus(), job)
        past.append(job.status)
        self.past.see_job(job)

    def _check_gang(self, kind: kinds.Kind[Any], body: Body) -> None:
        if kind is kinds.POD_GROUPS:
            group = kinds.POD_GROUPS.decode(msgspec.json.encode(body))
            invariants.check_gang(self.cache, self.past, group)

    def delete(self, kind: kinds.Kind[Any], key: str) -> None:
        """Delete like a user: pods terminate slowly, other objects immediately with dependents."""
        body = self.objects.get((kind.plural, key))
        if body is None:
            return
        if kind is kinds.PODS:
            if "deletionTimestamp" not in body["metadata"]:
                changed = copied(body)
                changed["metadata"]["deletionTimestamp"] = self.now.isoformat()
                self.put(kind, changed)
            return
        self._remove(kind, key)
        if kind is kinds.JOBS:
            self.collect()

    def collect(self) -> None:
        """Kubernetes' garbage collector: delete the dependents of deleted objects."""
        alive = {body["metadata"]["uid"] for body in self.objects.values()}
        for (plural, key), body in list(self.objects.items()):
            owners = body["metadata"].get("ownerReferences", [])
            if owners and all(owner["uid"] not in alive for owner in owners):
                self.delete(KINDS[plural], key)

    def reap(self, key: str) -> None:
        """A terminating pod is deleted."""
        self._remove(kinds.PODS, key)

    def _remove(self, kind: kinds.Kind[Any], key: str) -> None:
        body = self.objects.pop((kind.plural, key))
        self.past.forget_pod(body["metadata"]["uid"])
        if kind in topics.SNAPSHOTS:
            self.show(builders.tombstone_of(kind.decode(msgspec.json.encode(body))))

    def show(self, draft: envelope.Draft) -> None:
        """A record of the monitor or of another service."""
        record = builders.make_record(draft, next(self._numbers))
        if draft.message is None:
            self._last.pop((draft.topic.name, draft.key), None)
        else:
            self._last[draft.topic.name, draft.key] = record
        self.unseen.setdefault(draft.topic.name, deque()).append(record)
        if draft.topic == topics.PODS:
            self.pod_log.append(record)

    # What others do

    def enqueue(self, key: str) -> None:
        """The scheduler enqueues a PodGroup."""
        body = copied(self.objects["podgroups", key])
        body["status"]["phase"] = "Inqueue"
        self.put(kinds.POD_GROUPS, body)

    def change_pod(
        self,
        key: str,
        phase: str | None = None,
        node: str = "",
        exit_code: int | None = None,
        end: str = "",
        **status: Any,
    ) -> None:
        """The scheduler binds a pod, or a kubelet reports on it. ``end``: the word for how its
        container ended; ``status``: further fields of the pod's."""
        body = copied(self.objects["pods", key])
        body.setdefault("status", {})
        if node:
            body["spec"]["nodeName"] = node
        if phase is not None:
            body["status"]["phase"] = phase
        if exit_code is not None:
            ended = {"state": {"terminated": {"exitCode": exit_code, "reason": end}}}
            body["status"]["containerStatuses"] = [{"name": "main", **ended}]
        body["status"] |= status
        self.put(kinds.PODS, body)

    def run(self, *names: str, phase: str = "Running") -> None:
        """Pods of namespace ``default`` are bound and in this phase; without names: all."""
        for name in names or [pod.metadata.name for pod in self.pods()]:
            self.change_pod(f"default/{name}", phase, "n1")

    def scale(self, key: str, task: int, replicas: int) -> None:
        """A user changes how many replicas a task has."""
        body = copied(self.objects["jobs", key])
        body["spec"]["tasks"][task]["replicas"] = replicas
        self.put(kinds.JOBS, body)

    def wait(self, seconds: float) -> None:
        """Advance the time and reconcile due keys; all of them if the clock goes back."""
        before = {item: self.due(item) for item in self.cache.items()}
        self.now += timedelta(seconds=seconds)
        for item, at in before.items():
            if at is not None and (at <= self.now or seconds < 0):
                self.dirty[item] = None

    def due(self, item: controller_cache.ReconcileKey) -> datetime | None:
        """When a key must be reconciled without a change."""
        return reconcilers.due(self.cache, item, self.now)

    # What is

    def job(self, key: str = "default/j1") -> batch.Job:
        return self.get(kinds.JOBS, key)

    def phase(self, key: str = "default/j1") -> str:
        return self.job(key).status.state.phase

    def group(self, key: str = "default/j1") -> scheduling.PodGroup:
        return kinds.POD_GROUPS.decode(msgspec.json.encode(self.body("podgroups", key)))

    def group_key(self, key: str = "default/j1") -> str:
        return f"{key}-{self.job(key).metadata.uid}"

    def body(self, plural: str, job: str = "default/j1") -> Body:
        """The PodGroup of a job as stored."""
        return self.objects[plural, self.group_key(job)]

    def get(self, kind: kinds.Kind[Obj], key: str) -> Obj:
        """Any object as stored."""
        return kind.decode(msgspec.json.encode(self.objects[kind.plural, key]))

    def names(self, kind: kinds.Kind[Any]) -> list[str]:
        """Names of all objects of a kind."""
        return sorted(
            body["metadata"]["name"]
            for (plural, _), body in self.objects.items()
            if plural == kind.plural
        )

    def queue(self, name: str) -> scheduling.Queue:
        return self.get(kinds.QUEUES, name)

    def groups(self) -> list[scheduling.PodGroup]:
        return self._all(kinds.POD_GROUPS)

    def pods(self) -> list[core.Pod]:
        return self._all(kinds.PODS)

    def _all(self, kind: kinds.Kind[Obj]) -> list[Obj]:
        return [
            self.get(kind, key) for plural, key in sorted(self.objects) if plural == kind.plural
        ]

    def pod_names(self) -> list[str]:
        return [pod.metadata.name for pod in self.pods()]

    def phases_seen(self, key: str = "default/j1") -> list[str]:
        return [
            message.after
            for job, message in self.sent
            if job == key and isinstance(message, messages.JobPhaseChanged)
        ]

    def tasks_seen(self, key: str = "default/j1") -> list[tuple[str, str]]:
        """(pod, state) of every task event."""
        return [
            (message.pod, message.after)
            for job, message in self.sent
            if job == key and isinstance(message, messages.TaskChanged)
        ]

    def reasons(self) -> list[str]:
        """Reasons of the Kubernetes Events."""
        return sorted(event.reason for event in self.events.values())

    def requests(self) -> Iterator[commands.Command]:
        """Commands that were writes to the cluster, other than Events and about queues."""
        others = commands.Publish | commands.RecordEvent | commands.RunProbe | commands.CatchUp
        for command in (it for it in self.done if not isinstance(it, others)):
            if getattr(command, "kind", None) is not kinds.QUEUES:
                yield command


KINDS: dict[str, kinds.Kind[Any]] = {
    kind.plural: kind for kind in (*kinds.WATCHED, *kinds.WRITTEN, kinds.REPLICA_SETS)
}
