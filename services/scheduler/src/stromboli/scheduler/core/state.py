"""The scheduler's picture of the cluster: a fold over topics, whatever their interleaving.

What a record cannot say for lack of another one is parked, not guessed: a pod before its node sits
in the node's row, a pod before its PodGroup in its gang, an answer before its decision waits.
Unknown is a state: an unreadable node, or one with an unreadable pod, is excluded; a gang with an
unreadable PodGroup, member, queue or priority class is frozen. Our own decisions are part of the
fold (see ``decided``), so that a restart knows the binds in flight.

``due`` names the first record since the last session that one could act on; it is no part of the
picture. A change of what is only told (conditions, counts) and a gang that still lacks pods do not
call for a session.
"""

from collections.abc import Mapping

import msgspec

from stromboli.scheduler.core import columns, constraints, decided, gangs, promises, shapes
from stromboli.shared import envelope, errors, snapshot, topics, units
from stromboli.shared.api import core, kinds, scheduling
from stromboli.shared.messages import base, cluster
from stromboli.shared.messages import scheduling as messages

FOLDED: tuple[topics.Topic, ...] = (
    topics.NODES,
    topics.PODS,
    topics.POD_GROUPS,
    topics.QUEUES,
    topics.PRIORITY_CLASSES,
    topics.DECISIONS,
    topics.OUTCOMES,
    topics.EXPLANATIONS,
)
"""The topics this picture is made of."""

KINDS = (
    kinds.NODES,
    kinds.PODS,
    kinds.POD_GROUPS,
    kinds.QUEUES,
    kinds.PRIORITY_CLASSES,
)
"""What the monitor must have seen before anything is decided."""

_UNREADABLE = base.type_name(cluster.Unreadable)


class _Placed(msgspec.Struct, frozen=True):
    """What a pod contributes to a node's row. Without a shape, it blocks the node."""

    node: str
    shape: shapes.Shape | None


class State:
    """Everything a session decides on. Applying a record costs O(1), a node's O(resources)."""

    def __init__(self, scheduler_names: tuple[str, ...]) -> None:
        self.snapshot = snapshot.Snapshot()
        self.resources = shapes.Resources()
        self.nodes = columns.Nodes(self.resources)
        self.checks = constraints.Checks(self.nodes)
        self.decided = decided.Decided()
        self.promises = promises.Promises()
        self.gangs: dict[str, gangs.Gang] = {}
        self.waiting: set[str] = set()
        self.explained: dict[str, messages.PodGroupExplained] = {}
        self.ordered: dict[str, messages.QueueOrdered] = {}
        self.offsets: dict[str, int] = {}
        self.sessions = 0
        self.due = ""
        self._scheduler_names = scheduler_names
        self._shapes = shapes.Shapes(self.resources)
        self._placed: dict[str, _Placed] = {}
        self._group_of: dict[str, str] = {}
        self._lost: dict[str, core.Pod] = {}
        self._frozen_by_log: dict[str, str] = {}
        self._is_throttled = False
        self._cause = ""

    # Folding

    def apply(self, record: envelope.Record) -> str:
        """Fold one record; a record of another topic changes nothing.

        Returns why the record cannot be read, for the dead letters; empty if it can.
        """
        name = record.topic.name
        self.offsets[name] = max(record.offset + 1, self.offsets.get(name, 0))
        self._cause = record.id or record.topic.name
        if record.topic in (topics.DECISIONS, topics.OUTCOMES, topics.EXPLANATIONS):
            try:
                self._apply_message(record, envelope.decode(record))
            except errors.UndecodableError as error:
                if record.topic == topics.DECISIONS:
                    self._frozen_by_log[record.key] = f"a decision of ours: {error.reason}"
                return error.reason
            return ""
        change = self.snapshot.apply(record)
        if change is None:
            return ""
        self._apply_change(change)
        if isinstance(change.after, snapshot.Unknown) and record.type != _UNREADABLE:
            return change.after.reason
        return ""

    def advance(self, positions: Mapping[str, int]) -> None:
        """The folds stand here, records or not."""
        self.offsets.update(positions)

    def assume(self, id_: str, offset: int, statement: messages.StatementDecided) -> None:
        """Take in a decision of ours; its record, when it comes back, changes nothing.

        It calls for no session: the one that decided it has looked at everything.
        """
        self._cause = ""
        self.sessions = max(self.sessions, statement.session)
        if self.decided.put(id_, offset, statement):
            self._refresh_statement(statement)

    def record_explanation(self, key: str, message: msgspec.Struct | None) -> None:
        """What stands on the explanations topic from now on."""
        match message:
            case messages.PodGroupExplained():
                self.explained[key] = message
            case messages.QueueOrdered():
                self.ordered[message.queue] = message
            case _:
                self.explained.pop(key, None)

    def wake(self, cause: str) -> None:
        """Look at everything anew, because of ``cause``."""
        self.due = self.due or cause

    def rest(self, *, is_throttled: bool) -> None:
        """A session has looked at everything, the folds being caught up.

        ``is_throttled``: it placed less than it could, for the binds in flight; an answer then
        calls for the next one.
        """
        self.due = ""
        self._is_throttled = is_throttled
        self.decided.prune(self._is_confirmed, self._has_entered)

    # Reading

    def priority(self, group: scheduling.PodGroup) -> int | snapshot.Unknown:
        """The PodGroup's priority: its class, else the global default, else 0."""
        name = group.spec.priority_class_name
        found = self.snapshot.state(kinds.PRIORITY_CLASSES, name) if name else None
        if isinstance(found, core.PriorityClass):
            return found.value
        if isinstance(found, snapshot.Unknown):
            return found
        classes = self.snapshot.objects(kinds.PRIORITY_CLASSES)
        return max((known.value for known in classes if known.global_default), default=0)

    def queue(self, group: scheduling.PodGroup) -> scheduling.Queue | snapshot.Unknown | None:
        """The PodGroup's queue."""
        found = self.snapshot.state(kinds.QUEUES, queue_of(group))
        return found if isinstance(found, (scheduling.Queue, snapshot.Unknown)) else None

    def is_enqueued(self, group: scheduling.PodGroup) -> bool:
        """The PodGroup is past its queue's door, as seen or as decided and not refused."""
        return has_entered(group) or self.decided.is_enqueued(group.metadata.uid)

    def frozen(self, gang: gangs.Gang) -> str:
        """What of the gang cannot be read; empty if all can."""
        group = gang.pod_group
        if isinstance(group, snapshot.Unknown):
            return f"the PodGroup cannot be read: {group.reason}"
        if gang.unknown_pods:
            return f"pods cannot be read: {', '.join(sorted(gang.unknown_pods))}"
        if gang.key in self._frozen_by_log:
            return f"the log cannot be read: {self._frozen_by_log[gang.key]}"
        if group is not None:
            for found in (self.queue(group), self.priority(group)):
                if isinstance(found, snapshot.Unknown):
                    return f"its queue or priority class cannot be read: {found.reason}"
        return ""

    def unanswered_binds(self) -> int:
        """Binds decided, neither answered nor seen. O(open decisions)."""
        return self.decided.unanswered(self._is_confirmed)

    def restart_from(self) -> tuple[int, int]:
        """Offsets of decisions and outcomes from which a restart finds all that is open."""
        return self.decided.restart_from(
            self.offsets.get(topics.DECISIONS.name, 0), self.offsets.get(topics.OUTCOMES.name, 0)
        )

    def unplaced_unknown_pods(self) -> tuple[str, ...]:
        """Unreadable pods of which we never knew the node: nothing can be excluded for them."""
        unknowns = self.snapshot.unknowns(kinds.PODS)
        return tuple(sorted(key for key in unknowns if key not in self._placed))

    # Messages

    def _apply_message(self, record: envelope.Record, message: msgspec.Struct | None) -> None:
        match message:
            case messages.StatementDecided():
                self.assume(record.id, record.offset, message)
            case messages.SessionRecorded():
                self.sessions = max(self.sessions, message.session)
            case messages.DecisionAnswered():
                statement = self.decided.answer(message, record.offset)
                if statement is not None:
                    self._refresh_statement(statement)
                    if self._is_throttled:
                        self._wake()
            case _ if record.topic == topics.EXPLANATIONS:
                self.record_explanation(record.key, message)
            case _:
                pass

    def _refresh_statement(self, statement: messages.StatementDecided) -> None:
        for bind in statement.binds:
            self._refresh_pod(f"{bind.namespace}/{bind.pod}")
        self._review(statement.pod_group)

    # Snapshots

    def _apply_change(self, change: snapshot.Change) -> None:
        match change.kind:
            case kinds.NODES:
                self._node(change)
                self._wake_for_waiting()
            case kinds.QUEUES | kinds.PRIORITY_CLASSES:
                self._wake_for_waiting()
            case kinds.PODS:
                if isinstance(change.after, snapshot.Unknown):
                    if isinstance(change.before, core.Pod):
                        self._lost[change.key] = change.before
                else:
                    self._lost.pop(change.key, None)
                self._refresh_pod(change.key)
            case kinds.POD_GROUPS:
                self._pod_group(change)
            case _:
                pass

    def _node(self, change: snapshot.Change) -> None:
        match change.after:
            case core.Node():
                self.nodes.put(change.after)
            case snapshot.Unknown(reason=reason):
                self.nodes.unknown(change.key, reason)
            case _:
                self.nodes.remove(change.key)

    def _pod_group(self, change: snapshot.Change) -> None:
        gang = self._gang(change.key)
        before, after = change.before, change.after
        if isinstance(after, (scheduling.PodGroup, snapshot.Unknown)):
            gang.pod_group = after
        else:
            gang.pod_group = None
            self._frozen_by_log.pop(change.key, None)
        if (
            isinstance(before, scheduling.PodGroup)
            and isinstance(after, scheduling.PodGroup)
            and _as_decided_on(before) == _as_decided_on(after)
        ):
            return
        self._review(change.key)

    def _refresh_pod(self, key: str) -> None:
        """Bring the pod's node and gang up to date with the snapshot and our decisions."""
        found = self.snapshot.state(kinds.PODS, key)
        pod = self._lost.get(key) if isinstance(found, snapshot.Unknown) else found
        shape, problem, assumed, group = None, "", "", ""
        if isinstance(pod, core.Pod):
            shape, problem = self._shape(pod)
            if not pod.spec.node_name:
                assumed = self.decided.node_of(key, pod.metadata.uid)
            if pod.spec.scheduler_name in self._scheduler_names:
                group = gangs.group_of(pod)
        elif found is not None:
            assumed = self.decided.node_of(key)
        is_readable = isinstance(found, core.Pod)
        self._place(key, _placement(pod, assumed, shape if is_readable else None, found))
        self._leave_group(key, group)
        if group:
            self._group_of[key] = group
            gang = self._gang(group)
            if isinstance(found, core.Pod):
                gang.put(gangs.task(found, assumed, shape, problem))
            else:
                gang.unknown_pods.add(key)
            self._review(group)

    def _leave_group(self, key: str, after: str) -> None:
        before = self._group_of.pop(key, "")
        if before:
            gang = self.gangs[before]
            gang.drop(key)
            gang.unknown_pods.discard(key)
            if before != after:
                self._review(before)

    def _shape(self, pod: core.Pod) -> tuple[shapes.Shape | None, str]:
        try:
            shape = self._shapes.of(pod.spec)
        except ValueError as error:
            return None, str(error)
        self.nodes.fit_resources()
        return shape, ""

    def _place(self, key: str, after: _Placed | None) -> None:
        before = self._placed.pop(key, None)
        if after is not None:
            self._placed[key] = after
            if after.shape is None:
                self.nodes.block(after.node)
            else:
                self.nodes.take(after.node, after.shape)
        if before is not None:
            if before.shape is None:
                self.nodes.unblock(before.node)
            else:
                self.nodes.give_back(before.node, before.shape)
            if before != after:
                self._wake_for_waiting()

    def _gang(self, key: str) -> gangs.Gang:
        if key not in self.gangs:
            self.gangs[key] = gangs.Gang(key)
        return self.gangs[key]

    # Waiting and waking

    def _review(self, key: str) -> None:
        """Whether the gang waits, and whether a session can do something about it."""
        gang = self.gangs.get(key)
        if gang is None:
            return
        if self.promises.put(key, self._promise(gang)):
            self._wake_for_waiting()
        was_waiting, is_waiting = key in self.waiting, self._is_waiting(gang)
        if is_waiting:
            self.waiting.add(key)
            if self._can_act(gang):
                self._wake()
        elif was_waiting:
            self.waiting.discard(key)
            if key in self.explained:
                self._wake()
        if gang.is_empty:
            del self.gangs[key]

    def _promise(self, gang: gangs.Gang) -> units.Amounts:
        group = gang.pod_group
        if not isinstance(group, scheduling.PodGroup) or not self.is_enqueued(group):
            return {}
        return promises.outstanding(gang, group)

    def _is_waiting(self, gang: gangs.Gang) -> bool:
        group = gang.pod_group
        if not isinstance(group, scheduling.PodGroup):
            return group is not None
        if group.metadata.deletion_timestamp is not None:
            return False
        if gang.unknown_pods or gang.pending or not self.is_enqueued(group):
            return True
        return group.status.phase != "Completed" and not gangs.is_ready(gang, group)

    def _can_act(self, gang: gangs.Gang) -> bool:
        group = gang.pod_group
        if not isinstance(group, scheduling.PodGroup) or gang.unknown_pods:
            return True
        if not self.is_enqueued(group) or not gangs.invalidity(gang, group):
            return True
        told = self.explained.get(gang.key)
        return told is not None and told.tier != "gang"

    def _wake(self) -> None:
        self.wake(self._cause)  # without a cause, nothing has changed from outside

    def _wake_for_waiting(self) -> None:
        if self.waiting:
            self._wake()

    def _is_confirmed(self, hold: decided.Hold) -> bool:
        pod = self.snapshot.state(kinds.PODS, hold.pod)
        if not isinstance(pod, core.Pod):
            return pod is None
        return pod.metadata.uid != hold.uid or bool(pod.spec.node_name)

    def _has_entered(self, key: str, uid: str) -> bool:
        group = self.snapshot.state(kinds.POD_GROUPS, key)
        if not isinstance(group, scheduling.PodGroup):
            return group is None
        return group.metadata.uid != uid or has_entered(group)


def has_entered(group: scheduling.PodGroup) -> bool:
    """The PodGroup's phase says that it is past its queue's door."""
    return group.status.phase not in ("", "Pending")


def queue_of(group: scheduling.PodGroup) -> str:
    """The name of the PodGroup's queue."""
    return group.spec.queue or "default"


def _as_decided_on(group: scheduling.PodGroup) -> tuple[object, ...]:
    """What of a PodGroup a session looks at."""
    metadata = group.metadata
    return (metadata.uid, metadata.deletion_timestamp is None, group.spec, group.status.phase)


def _placement(
    pod: snapshot.State, assumed: str, shape: shapes.Shape | None, found: snapshot.State
) -> _Placed | None:
    """What the pod contributes to which node. ``pod``: as last read, ``found``: as it stands."""
    node = assumed
    if isinstance(pod, core.Pod):
        node = pod.spec.node_name or assumed
        if isinstance(found, core.Pod) and pod.status.phase in ("Succeeded", "Failed"):
            return None
    return _Placed(node, shape) if node else None
