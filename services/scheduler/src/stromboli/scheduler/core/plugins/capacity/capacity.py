"""The plugin ``capacity``: queues with stated deserved amounts, flat or as a tree.

A queue may use up to its *real capability*: what is not guaranteed to other queues, within its own
capability and those of its ancestors. What it holds above its *deserved* amount can be reclaimed by
queues that hold less than they deserve.

Differences from Volcano: a queue that is not connected to the root affects only itself and its
descendants, and the shares of inner queues are updated after each placement, so that branches
alternate.
"""

from collections.abc import Hashable, Sequence
from typing import Any

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.capacity import device_quotas, victims
from stromboli.scheduler.core.queue_quota import hierarchy, quota_tree, quotas, shares


class Plugin:
    """Orders queues, limits allocation and enqueueing, and reclaims, by capability, guarantee and
    deserved amounts."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._is_tree = options.is_enabled("enableHierarchy")
        self._arguments = options.typed()
        self._level = max(self._arguments.integer("ancestorReclaimLevel", 0), 0)
        self._counts_devices = self._arguments.boolean(
            "capacity.DynamicResourceAllocationEnable", default=True
        )
        self._sums_device_capacity = self._arguments.boolean(
            "capacity.DRAConsumableCapacityEnable", default=False
        )
        self._demands = shares.Demands()
        self._devices: device_quotas.DeviceUsage | None = None

    def open(self, ssn: session.Session) -> None:
        """Open the quotas of queues, and register."""
        self._session = ssn
        ssn.complaints.extend(self._arguments.complaints)
        if self._is_tree:
            self._open_tree(ssn)
        else:
            self._open_flat(ssn)
        for quota in self._accounts.values():
            _update_share(quota)
        self._victims = victims.VictimChooser(
            ssn, self._accounts, self._above, self._demands, self._level
        )
        if self._is_tree:
            ssn.add_queue_order(self._compare_queues, siblings=self._siblings)
        else:
            ssn.add_queue_order(key=self._queue_key)
        ssn.add_gauges(lambda: quotas.quota_gauges(ssn, self._accounts))
        ssn.add_queue_share(lambda queue: quotas.queue_status(self._accounts.get(queue.name)))
        ssn.add_allocatable(self._count_allocatable)
        ssn.add_preemptive(self._is_preemptive)
        ssn.add_reclaimable(self._victims.for_task)
        ssn.add_unified_evictable(self._victims.for_job)
        ssn.add_reclaim_limit(
            lambda tasks: quotas.beyond_guarantees(ssn, self._accounts, self._demands, tasks)
        )
        ssn.add_job_enqueued(self._note_enqueued)
        ssn.add_event_handler(self._on_allocate, self._on_deallocate)
        limits = [name for queue in ssn.queues.values() for name in queue.capability]
        if self._counts_devices and device_quotas.is_needed(ssn, limits):
            self._devices = device_quotas.DeviceUsage(
                ssn, self._names, with_capacity=self._sums_device_capacity
            )
            ssn.add_event_handler(self._devices.on_allocate, self._devices.on_deallocate)
        # Device claims belong to pods and are not part of the minimum request.
        ssn.add_room_vote(self._vote_enqueueable, by_request=self._devices is None)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _open_flat(self, ssn: session.Session) -> None:
        free = quotas.unguaranteed(ssn)
        self._accounts = {
            name: quotas.open_quota(ssn, ssn.queues[name], free)
            for name in quotas.queues_with_jobs(ssn)
        }
        for quota in self._accounts.values():
            bounded = [
                min(own, top)
                for own, top in zip(quota.deserved, quota.real_capability, strict=True)
            ]
            quota.deserved = _highest(bounded, quota.guarantee)
        self._above: dict[str, list[quotas.QueueQuota]] = {name: [] for name in self._accounts}
        self._problems: dict[str, str] = {}

    def _open_tree(self, ssn: session.Session) -> None:
        self._tree = hierarchy.Hierarchy(ssn.queues)
        self._accounts = quota_tree.open_quotas(ssn, self._tree)
        for quota in self._accounts.values():
            quota.deserved = _highest(quota.deserved, quota.guarantee)
        self._above = {
            name: [
                self._accounts[above]
                for above in self._tree.ancestors(name)
                if above in self._accounts
            ]
            for name in self._accounts
        }
        self._problems = dict(self._tree.problems)
        for name in quotas.queues_with_jobs(ssn):
            if name in self._accounts and not self._tree.is_leaf(name):
                self._problems[name] = (
                    f"queue {name} has child queues: only leaf queues accept jobs"
                )
        ssn.complaints.extend(
            f"plugin capacity: {self._problems[name]}" for name in sorted(self._problems)
        )
        ssn.add_victim_queue_order(self._compare_victim_queues)

    # Order ----------------------------------------------------------------------------------

    def _queue_key(self, queue: entities.Queue) -> tuple[int, float, bool]:
        quota = self._accounts.get(queue.name)
        share, deserves = (quota.share, _deserves_any(quota)) if quota else (0.0, True)
        return -queue.priority, share, not deserves

    def _compare_queues(self, left: entities.Queue, right: entities.Queue) -> int:
        """Compare leaves by the shares of their ancestors, which other leaves change, too."""
        if left.priority != right.priority:
            return -1 if left.priority > right.priority else 1
        first, second = left.name, right.name
        if first not in self._accounts or second not in self._accounts:
            return 0
        is_leaf, is_other_leaf = self._tree.is_leaf(first), self._tree.is_leaf(second)
        if is_leaf != is_other_leaf:
            return -1 if is_leaf else 1
        if is_leaf:
            first, second = self._tree.diverging_ancestors(first, second)
        return _compare(self._accounts[first], self._accounts[second])

    def _siblings(self, queue: entities.Queue) -> tuple[Hashable, Any]:
        """Return the queue's group, whose order no queue outside of it affects, and a sort key:
        leaves of one parent are ordered by their own shares alone."""
        quota = self._accounts.get(queue.name)
        if quota is None or not self._tree.is_leaf(queue.name):
            return (queue.name, None), ()
        key = (-queue.priority, quota.share, not _deserves_any(quota))
        return (self._tree.ancestors(queue.name)[0], "leaves"), key

    def _compare_victim_queues(
        self, left: entities.Queue, right: entities.Queue, preemptor: entities.Queue
    ) -> int:
        """Order victims: queues close to the preemptor in the tree come first."""
        if any(queue.name not in self._accounts for queue in (left, right, preemptor)):
            return 0
        depth = self._tree.common_depth(left.name, preemptor.name)
        other = self._tree.common_depth(right.name, preemptor.name)
        return (depth < other) - (depth > other)

    # Quota checks ---------------------------------------------------------------------------

    def _chain(self, queue: entities.Queue) -> list[quotas.QueueQuota]:
        """Return the quotas of the queue and its ancestors; none if nothing may be decided for the
        queue."""
        if not queue.is_open or queue.name in self._problems or queue.name not in self._accounts:
            return []
        return [self._accounts[queue.name], *self._above[queue.name]]

    def _names(self, queue: str) -> list[str]:
        """Return the names of the queue and its ancestors."""
        return [queue, *(quota.queue.name for quota in self._above.get(queue, ()))]

    def _count_allocatable(self, queue: entities.Queue, task: entities.Task, most: int) -> int:
        demand = self._demands.of(task)
        chain = self._chain(queue)
        for quota in chain:
            most = shares.count_fitting(quota.allocated, demand, quota.real_capability, most)
        if self._devices is not None:
            # Equal tasks may share their claims: check each one by itself.
            most = min(most, int(self._devices.fits(task, queue.name)))
        return most if chain else 0

    def _is_preemptive(self, queue: entities.Queue, tasks: Sequence[entities.Task]) -> bool:
        """Return whether the queue can hold the tasks, and it or an ancestor within the reclaim
        level deserves some of them."""
        together = [0] * len(self._session.resources.names)
        for task in tasks:
            shares.add(together, self._demands.of(task))
        demand = shares.quota_relevant(shares.pairs(together))
        chain = self._chain(queue)
        if not chain or not shares.fits(chain[0].allocated, demand, chain[0].real_capability):
            return False
        asking = [chain[0]]
        asking += [
            quota for quota in chain[1 : 1 + self._level] if quota.queue.name != hierarchy.ROOT
        ]
        return any(
            quota.allocated[column] + amount <= quota.deserved[column]
            for quota in asking
            for column, amount in demand
        )

    def _vote_enqueueable(self, job: entities.Job) -> int:
        queue = self._session.queue_of(job)
        chain = self._chain(queue)
        if not chain:
            problem = self._problems.get(queue.name)
            if problem:
                self._session.emit_event(job, problem)
            return extension_points.REJECT
        if self._devices is not None and not self._devices.admits(job):
            self._session.emit_event(
                job, f"queue resource quota insufficient: insufficient {device_quotas.EXCEEDED}"
            )
            return extension_points.REJECT
        return quotas.vote_enqueueable(self._session, job, chain)

    def _note_enqueued(self, job: entities.Job) -> None:
        if job.queue in self._accounts:
            quotas.note_enqueued(job, [self._accounts[job.queue], *self._above[job.queue]])
        if self._devices is not None:
            self._devices.note_enqueued(job)

    # Events ---------------------------------------------------------------------------------

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        self._add_usage(tasks[0], len(tasks))

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        self._add_usage(tasks[0], -len(tasks))

    def _add_usage(self, like: entities.Task, times: int) -> None:
        job = self._session.job_of(like)
        if job is None or job.queue not in self._accounts:
            return
        demand = self._demands.of(like)
        for quota in (self._accounts[job.queue], *self._above[job.queue]):
            quota.charge(demand, times)
            _update_share(quota)


def _update_share(quota: quotas.QueueQuota) -> None:
    """Update the share; a queue that deserves nothing has a share of 1."""
    quota.share = (
        shares.dominant_share(quota.allocated, quota.deserved) if _deserves_any(quota) else 1.0
    )


def _deserves_any(quota: quotas.QueueQuota) -> bool:
    return any(
        amount > 0 for column, amount in enumerate(quota.deserved) if column != requirements.PODS
    )


def _compare(left: quotas.QueueQuota, right: quotas.QueueQuota) -> int:
    """Order by share; with equal shares, a queue with a deserved amount comes first."""
    if left.share != right.share:
        return -1 if left.share < right.share else 1
    return int(_deserves_any(right)) - int(_deserves_any(left))


def _highest(left: Sequence[float], right: Sequence[int]) -> list[float]:
    return [max(first, second) for first, second in zip(left, right, strict=True)]
