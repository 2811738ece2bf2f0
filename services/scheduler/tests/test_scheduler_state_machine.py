"""The life of a scheduler, step by step and in any order: gangs are created, decisions are answered
late, twice or not at all, nodes and pods are deleted. After each step no node holds more than it
has. At the end three caches are equal: the one that lived through it, one that read the topics in
another order, and one that a restart builds from compacted topics and from the offsets in the last
session's record. Every session, replayed from its record and the log, decides the same byte for
byte. Gangs with a plan have no pods until a decision creates them with their nodes, or their job
creates them without. Pods may claim volumes and devices, which Kubernetes' controllers deallocate
after their pods, and a pod may be unreadable for a while.
"""

from datetime import timedelta

import msgspec
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.scheduler.tests.support import (
    claimed_objects,
    device_claims,
    lives,
    volume_objects,
)
from services.scheduler.tests.support.harness import POLICY, SchedulerHarness, draft, fold
from stromboli.scheduler.core import schedule
from stromboli.scheduler.core.cache import pod_plans
from stromboli.scheduler.core.replay import session_replay
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import core, scheduling
from stromboli.shared.messages import plans
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log
from stromboli.testkit.oracle import scheduler
from stromboli.testkit.strategies import depth

CPUS = ("1", "2", "3")
NODE_NAMES = ("n1", "n2", "n3")


class Life(RuleBasedStateMachine):
    """The world outside: ``pods`` and ``groups`` as the API server has them."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = SchedulerHarness()
        self.version = 1
        self.pods: dict[str, core.Pod] = {}
        self.groups: dict[str, scheduling.PodGroup] = {}
        self.plans: dict[str, plans.PodsPlanned] = {}
        self.had: set[str] = set()
        """Names of planned pods that were used."""
        self.has: dict[str, core.Node] = {}
        self.unseen: list[str] = []
        self.answered: set[int] = set()
        self.bound_by: dict[str, str] = {}
        self.claimed = claimed_objects.ClaimedObjects(self.next_version, self.unseen.append)
        self.unreadable: set[str] = set()
        self.knows_all = True
        """False after a restart that could not read a pod: the log alone has it from before."""
        self.now = builders.NOON
        self.mix: list[int] = []

    @initialize(mix=st.lists(st.integers(0, 9), min_size=1, max_size=12))
    def begin(self, mix: list[int]) -> None:
        self.mix = mix
        classes = volume_objects.storage_class(), device_claims.device_class()
        self.harness.see(builders.make_queue(), *classes)
        self.harness.see(*(device_claims.devices(name, 1) for name in NODE_NAMES[:2]))
        for name in ("v1", "v2"):
            self.claimed.create_volume(name)
        self.harness.see(*self.claimed.volumes.values())
        self.node_comes("n1", "4")

    # The cluster

    @rule(name=st.sampled_from(NODE_NAMES), cpu=st.sampled_from(("3", "4")))
    def node_comes(self, name: str, cpu: str) -> None:
        if name not in self.has and self.used(name) <= int(cpu) * 1000:
            version = self.next_version()
            self.has[name] = builders.make_node(name, cpu=cpu, version=version, generation=version)
            self.harness.see(self.has[name])

    @rule(name=st.sampled_from(NODE_NAMES))
    def node_goes(self, name: str) -> None:
        if name in self.has:
            self.harness.apply(*self.harness.log.lose(self.has.pop(name)))

    @rule(name=st.sampled_from(NODE_NAMES))
    def node_cannot_be_read_for_a_while(self, name: str) -> None:
        if name in self.has:
            self.harness.apply(self.harness.log.garble(topics.NODES, name))

    @rule(name=st.sampled_from(NODE_NAMES))
    def node_is_seen_again(self, name: str) -> None:
        if name in self.has:
            metadata = msgspec.structs.replace(
                self.has[name].metadata, resource_version=str(self.next_version())
            )
            self.has[name] = msgspec.structs.replace(self.has[name], metadata=metadata)
            self.harness.see(self.has[name])

    @rule(
        minimum=st.integers(1, 3),
        cpus=st.lists(st.sampled_from(CPUS), min_size=1, max_size=4),
        phase=st.sampled_from(("Pending", "Inqueue")),
        claims=st.sampled_from(claimed_objects.CLAIMED),
    )
    def gang_comes(self, minimum: int, cpus: list[str], phase: str, claims: str) -> None:
        version = self.next_version()
        name = f"g{version}"
        group = builders.make_pod_group(name, minimum, phase=phase, version=version)
        self.groups[group.metadata.key] = group
        members = [
            builders.make_pod(f"{name}-w-{at}", name, cpu=cpu, version=version)
            for at, cpu in enumerate(cpus)
        ]
        members = self.claimed.claiming(name, members, claims)
        self.harness.see(*self.claimed.of(f"{name}-c"))
        self.pods |= {pod.metadata.key: pod for pod in members}
        self.monitor_reads(len(self.unseen), with_claims=False)
        self.harness.see(group, *members)

    @precondition(lambda self: self.claimed.device_claims)
    @rule()
    def devices_of_ended_pods_are_deallocated(self) -> None:
        """Possibly before the monitor has read that they were allocated."""
        for key in sorted(self.claimed.device_claims):
            self.claimed.deallocate(key, {pod.metadata.uid for pod in self.pods.values()})

    @precondition(lambda self: self.unused_claims())
    @rule(data=st.data())
    def claim_goes(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.unused_claims()))
        self.monitor_reads(len(self.unseen))
        gone = self.claimed.remove(key)
        if gone is not None:
            self.harness.apply(*self.harness.log.lose(gone))
            self.monitor_reads(len(self.unseen))

    def unused_claims(self) -> list[str]:
        """Claims that no pod names."""
        used = {key for pod in self.pods.values() for key in lives.claims_of(pod)}
        claims = self.claimed.volume_claims.keys() | self.claimed.device_claims.keys()
        return sorted(claims - used)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def pod_cannot_be_read_for_a_while(self, data: st.DataObject) -> None:
        """The monitor reads no more of it than its node."""
        pod = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        self.monitor_reads(len(self.unseen))
        stub = lives.unreadable(pod)
        self.unreadable.add(pod.metadata.key)
        self.harness.apply(self.harness.log.append(draft(topics.PODS, pod.metadata.key, stub)))

    @precondition(lambda self: self.unreadable)
    @rule()
    def pods_can_be_read_again(self) -> None:
        for key in sorted(self.unreadable):
            pod = self.pods[key]
            version = str(self.next_version())
            metadata = msgspec.structs.replace(pod.metadata, resource_version=version)
            self.pods[key] = msgspec.structs.replace(pod, metadata=metadata)
            self.unseen.append(key)
        self.monitor_reads(len(self.unseen))

    @rule(
        minimum=st.integers(1, 3),
        more=st.integers(0, 1),
        cpu=st.sampled_from(CPUS),
        is_late=st.booleans(),
    )
    def planned_gang_comes(self, minimum: int, more: int, cpu: str, is_late: bool) -> None:
        """Its plan is published before its PodGroup, and may be read after it."""
        name = f"g{self.next_version()}"
        group, plan = lives.planned_gang(name, self.version, minimum, minimum + more, cpu)
        self.groups[group.metadata.key] = group
        self.plans[group.metadata.key] = plan
        published = self.harness.log.append(draft(topics.BATCH_PLANS, plan.pod_group, plan))
        observed = self.harness.log.see(group)
        self.harness.apply(*([*observed, published] if is_late else [published, *observed]))

    @precondition(lambda self: self.entered_plans())
    @rule(at=st.integers(0, 2))
    def job_creates_its_missing_pods_without_nodes(self, at: int) -> None:
        """Also while a decision creates them: a new leader reads the decision after it acts."""
        entered = self.entered_plans()
        plan = self.plans[entered[min(at, len(entered) - 1)]]
        for _, _, pod in pod_plans.pods_of(plan):
            if pod.metadata.key not in self.pods:
                self.create(pod, "", "")

    @precondition(lambda self: self.plans)
    @rule(at=st.integers(0, 2))
    def plan_is_withdrawn(self, at: int) -> None:
        """Once no decision about its pods is open."""
        key = sorted(self.plans)[min(at, len(self.plans) - 1)]
        members = [pod.metadata.key for _, _, pod in pod_plans.pods_of(self.plans[key])]
        if not any(self.harness.cache.assumed.bind_of(member) for member in members):
            gone = msgspec.structs.replace(
                draft(topics.BATCH_PLANS, key, self.plans.pop(key)),
                message=None,
                object_uid="job",
                object_version="0",
            )
            self.harness.apply(self.harness.log.append(gone))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), comes_back=st.booleans(), frees_devices=st.booleans())
    def pod_goes(self, data: st.DataObject, comes_back: bool, frees_devices: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.pods)))
        self.monitor_reads(len(self.unseen), with_claims=False)
        gone = self.pods.pop(key)
        self.unreadable.discard(key)
        self.harness.apply(*self.harness.log.lose(gone))
        if frees_devices:
            self.devices_of_ended_pods_are_deallocated()
        if comes_back:
            metadata = msgspec.structs.replace(
                gone.metadata,
                uid=gone.metadata.uid + "+",
                resource_version=str(self.next_version()),
            )
            spec = msgspec.structs.replace(gone.spec, node_name="")
            self.pods[key] = msgspec.structs.replace(gone, metadata=metadata, spec=spec)
            self.harness.see(self.pods[key])

    # The scheduler and the controller

    @rule(twice=st.booleans())
    def session(self, twice: bool) -> None:
        expected = schedule.run_session(fold(self.harness.log.records), builders.NOON, POLICY)
        decided = self.harness.session()
        binds = [bind for each in decided.decisions for bind in each.binds]
        event(f"planned pods bound: {sum(bind.is_planned for bind in binds)}")
        event(f"claims written: {any(bind.volumes or bind.devices for bind in binds)}")
        event(f"gangs parked: {min(len(self.harness.cache.unschedulable_gangs.jobs), 2)}")
        assert not self.knows_all or lives.by_content(decided) == lives.by_content(expected)
        for statement in decided.decisions:
            group = self.groups[statement.pod_group]
            assert self.members_with_place(group) >= group.spec.min_member or not statement.binds
            if twice:
                again = draft(topics.DECISIONS, statement.pod_group, statement)
                self.harness.apply(self.harness.log.append(again))
        assert self.harness.cache.session_cause or self.harness.session().decisions == ()

    @rule()
    def scheduler_restarts(self) -> None:
        """It reads what compaction left, and the log from the offsets in the last record."""
        self.knows_all = self.knows_all and not self.unreadable
        records = lives.remembered(self.harness.log.records)
        self.harness.cache = fold(topic_log.interleave(records, self.mix))

    @rule()
    def decisions_without_an_end_are_published_again(self) -> None:
        """Including those with an outcome in flight, or of which a part was refused."""
        assumed = self.harness.cache.assumed
        for _ in range(2):
            self.now += timedelta(hours=1)
            for statement in assumed.overdue(self.now):
                again = draft(topics.DECISIONS, statement.pod_group, statement)
                self.harness.apply(self.harness.log.append(again))

    @precondition(lambda self: self.open_publications())
    @rule(refuse=st.sets(st.integers(0, 3)), at=st.integers(0, 2))
    def decision_is_answered(self, refuse: set[int], at: int) -> None:
        """A publication that was replaced by a later one may be answered before that one is, and
        not after it."""
        waiting = self.open_publications()
        record = waiting[min(at, len(waiting) - 1)]
        self.answered.add(record.offset)
        statement = envelope.decode(record)
        assert isinstance(statement, messages.StatementDecided)
        decision = statement.decision or record.id
        outcomes = []
        is_prepared = self.prepare(statement)
        for number, bind in enumerate(statement.binds):
            key = f"{bind.namespace}/{bind.pod}"
            pod = self.pods.get(key)
            is_there = pod is not None and pod.metadata.uid == bind.uid
            result: messages.Result = "refused"
            created_version = 0
            if bind.is_planned:
                created_version = self.create_planned(bind, statement, decision, number in refuse)
                result = "executed" if created_version else "refused"
            elif is_there and pod is not None and pod.spec.node_name:
                result = "executed" if self.bound_by.get(key) == decision else "refused"
            elif is_there and pod is not None and is_prepared and number not in refuse:
                result = "executed"
                self.bind(key, pod, bind.node)
                self.bound_by[key] = decision
            if result == "refused" and not (is_there and pod is not None and pod.spec.node_name):
                self.claimed.release(bind)
            outcomes.append(
                messages.TaskOutcome(
                    namespace=bind.namespace,
                    pod=bind.pod,
                    uid=bind.uid,
                    result=result,
                    created_version=created_version,
                )
            )
        entered_version = self.show(statement.pod_group, "Inqueue") if statement.enqueue else 0
        answer = messages.DecisionAnswered(
            decision=decision,
            decision_offset=record.offset,
            pod_group=statement.pod_group,
            enqueue="executed" if statement.enqueue else None,
            enqueued_version=entered_version,
            tasks=tuple(outcomes),
            claims=self.claimed.outcomes(
                statement.binds, {it.uid for it in outcomes if it.result == "executed"}
            ),
        )
        self.harness.apply(self.harness.log.append(draft(topics.OUTCOMES, record.id, answer)))

    @precondition(lambda self: self.entered())
    @rule(at=st.integers(0, 2))
    def gang_is_sent_back(self, at: int) -> None:
        """Possibly before its entry into the queue was observed."""
        entered = self.entered()
        self.show(entered[min(at, len(entered) - 1)], "Pending")

    @precondition(lambda self: self.unseen)
    @rule()
    def monitor_sees_what_was_carried_out(self) -> None:
        self.monitor_reads(1)

    def monitor_reads(self, count: int, *, with_claims: bool = True) -> None:
        """The monitor publishes objects in the order of their versions; claims may be late."""
        claims = self.claimed.all()
        objects = {**self.groups, **self.pods, **(claims if with_claims else {})}
        unseen = sorted(
            (objects[key] for key in set(self.unseen) if key in objects),
            key=lambda obj: obj.metadata.version,
        )
        late = [key for key in self.unseen if key in claims.keys() - objects.keys()]
        self.unseen[:] = late + [obj.metadata.key for obj in unseen[count:]]
        self.unreadable -= {obj.metadata.key for obj in unseen[:count]}
        self.harness.see(*unseen[:count])

    # What must hold

    @invariant()
    def no_node_holds_more_than_it_has(self) -> None:
        for name, node in self.has.items():
            assert self.used(name) <= int(str((node.status.allocatable or {})["cpu"])) * 1000

    @invariant()
    def no_device_is_allocated_twice(self) -> None:
        devices = self.claimed.allocated()
        assert len(devices) == len(set(devices))

    def teardown(self) -> None:
        if self.unreadable:
            self.pods_can_be_read_again()
        self.compare()
        while self.open_publications():
            self.decision_is_answered(set(), 0)
        self.monitor_reads(len(self.unseen))
        lives.settled(self.harness.cache)
        assert len(self.harness.cache.assumed) == 0, "all outcomes and their effects have been read"

    def compare(self) -> None:
        lived = lives.settled(self.harness.cache)
        records = self.harness.log.records
        mixed = lives.settled(fold(topic_log.interleave(records, self.mix)))
        kept = topic_log.interleave(lives.remembered(records), self.mix)
        restarted = lives.settled(fold(kept))
        assert lives.seen_in(mixed) == lives.seen_in(lived)
        assert lives.seen_in(restarted) == lives.seen_in(lived)
        decided = lives.decided_on(lived)
        assert lives.decided_on(mixed) == decided
        assert lives.decided_on(restarted) == decided
        again = list(session_replay.replay_sessions(records, [POLICY.configured], POLICY))
        assert not self.knows_all or [each for each in again if not each.is_same] == []

    # Means

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def prepare(self, statement: messages.StatementDecided) -> bool:
        """Whether the claims of all pods that are not bound yet could be written."""
        found = []
        for bind in statement.binds:
            pod = self.pods.get(f"{bind.namespace}/{bind.pod}")
            if pod is None or pod.metadata.uid != bind.uid or not pod.spec.node_name:
                found.append(self.claimed.prepare(bind))
        return all(found)

    def bind(self, key: str, pod: core.Pod, node: str) -> None:
        metadata = msgspec.structs.replace(pod.metadata, resource_version=str(self.next_version()))
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        self.pods[key] = msgspec.structs.replace(pod, metadata=metadata, spec=spec)
        self.unseen.append(key)

    def create_planned(
        self,
        bind: messages.Bind,
        statement: messages.StatementDecided,
        decision: str,
        is_refused: bool,
    ) -> int:
        """The version of the pod that the decision has created, now or before; 0 if it has not."""
        key = f"{bind.namespace}/{bind.pod}"
        pod = self.pods.get(key)
        if pod is not None:
            return pod.metadata.version if self.bound_by.get(key) == decision else 0
        plan = self.plans.get(statement.pod_group)
        if is_refused or plan is None or key in self.had:
            return 0  # a name is used once
        planned = {it.metadata.key: it for _, _, it in pod_plans.pods_of(plan)}[key]
        self.create(planned, bind.node, decision)
        return self.version

    def create(self, pod: core.Pod, node: str, decision: str) -> None:
        key, version = pod.metadata.key, self.next_version()
        marks = {
            **(pod.metadata.annotations or {}),
            **({keys.DECISION: decision} if decision else {}),
        }
        metadata = msgspec.structs.replace(
            pod.metadata, uid=f"{key}-{version}", resource_version=str(version), annotations=marks
        )
        self.had.add(key)
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        self.pods[key] = msgspec.structs.replace(pod, metadata=metadata, spec=spec)
        self.unseen.append(key)
        if decision:
            self.bound_by[key] = decision

    def entered_plans(self) -> list[str]:
        return [key for key in self.entered() if key in self.plans]

    def entered(self) -> list[str]:
        return [key for key, group in self.groups.items() if group.status.phase == "Inqueue"]

    def show(self, key: str, phase: str) -> int:
        group = self.groups[key]
        metadata = msgspec.structs.replace(
            group.metadata, resource_version=str(self.next_version())
        )
        status = scheduling.PodGroupStatus(phase=phase)
        self.groups[key] = msgspec.structs.replace(group, metadata=metadata, status=status)
        self.unseen.append(key)
        return self.version

    def open_publications(self) -> list[envelope.Record]:
        last: dict[str, int] = {}
        for record in self.harness.statements:
            if record.offset in self.answered:
                last[lives.decision_of(record)] = record.offset
        return [
            it for it in self.harness.statements if it.offset > last.get(lives.decision_of(it), -1)
        ]

    def unanswered(self) -> list[envelope.Record]:
        """The newest publication of each decision, unless it is answered."""
        newest = {lives.decision_of(record): record for record in self.harness.statements}
        return [it for it in newest.values() if it.offset not in self.answered]

    def in_flight(self) -> dict[str, str]:
        """Pod key -> node, of open binds that can still be executed."""
        flights: dict[str, str] = {}
        for record in self.unanswered():
            statement = envelope.decode(record)
            assert isinstance(statement, messages.StatementDecided)
            for bind in statement.binds:
                key = f"{bind.namespace}/{bind.pod}"
                pod = self.pods.get(key)
                if pod and pod.metadata.uid == bind.uid and not pod.spec.node_name:
                    flights[key] = bind.node
                if bind.is_planned and key not in self.had and statement.pod_group in self.plans:
                    flights[key] = bind.node
        return flights

    def used(self, name: str) -> int:
        flights = self.in_flight()
        planned = {
            pod.metadata.key: pod
            for plan in self.plans.values()
            for _, _, pod in pod_plans.pods_of(plan)
        }
        return sum(
            scheduler.request(pod)["cpu"]
            for key, pod in (planned | self.pods).items()
            if name in (pod.spec.node_name, flights.get(key))
        )

    def members_with_place(self, group: scheduling.PodGroup) -> int:
        flights = self.in_flight()
        prefix = f"{group.metadata.key}-w-"
        placed = {key for key, pod in self.pods.items() if pod.spec.node_name} | flights.keys()
        return sum(key.startswith(prefix) for key in placed)


TestLife = Life.TestCase
TestLife.settings = settings(depth.examples(25), stateful_step_count=40)
