"""The plugin ``capacity``: queues with stated deserts, flat or as a tree (spec/plugins 6).

A queue may take up to its *real capability*: what is guaranteed to nobody else, within its own
capability, and in a tree within that of every queue above. What it holds beyond what it *deserves*
may be reclaimed by queues below their deserts.

Parted from the field's scheduler: a queue that is in no tree stops only itself and what is below
it, and the shares of inner queues follow what is placed, so that branches take turns.
"""

from collections.abc import Sequence

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.capacity import device_quotas, victims
from stromboli.scheduler.core.queue_accounts import account_tree, accounts, hierarchy, shares


class Plugin:
    """Queue order, allocation, reclaim and admission by capability, guarantee and desert."""

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

    def open(self, within: session.Session) -> None:
        """Open the accounts and register."""
        self._session = within
        within.complaints.extend(self._arguments.complaints)
        if self._is_tree:
            self._open_tree(within)
        else:
            self._open_flat(within)
        for account in self._accounts.values():
            _update_share(account)
        self._victims = victims.Choice(
            within, self._accounts, self._above, self._demands, self._level
        )
        within.add_queue_order(self._compare_queues)
        within.add_gauges(lambda: accounts.gauges(within, self._accounts))
        within.add_standing(lambda queue: accounts.standing(self._accounts.get(queue.name)))
        within.add_allocatable(self._is_allocatable, self._room)
        within.add_preemptive(self._is_preemptive)
        within.add_reclaimable(self._victims.for_task)
        within.add_unified_evictable(self._victims.for_job)
        within.add_reclaim_limit(
            lambda tasks: accounts.beyond_guarantees(within, self._accounts, self._demands, tasks)
        )
        within.add_job_enqueueable(self._vote_enqueueable)
        within.add_job_enqueued(self._note_enqueued)
        within.add_event_handler(self._take, self._give_back)
        limits = [name for queue in within.queues.values() for name in queue.capability]
        if self._counts_devices and device_quotas.is_needed(within, limits):
            self._devices = device_quotas.DeviceUsage(
                within, self._names, with_capacity=self._sums_device_capacity
            )
            within.add_event_handler(self._devices.take_all, self._devices.give_back_all)

    def close(self, within: session.Session) -> None:
        """Nothing stays."""

    def _open_flat(self, within: session.Session) -> None:
        free = accounts.unguaranteed(within)
        self._accounts = {
            name: accounts.opened(within, within.queues[name], free)
            for name in accounts.queues_with_jobs(within)
        }
        for account in self._accounts.values():
            bounded = [
                min(own, top)
                for own, top in zip(account.deserved, account.real_capability, strict=True)
            ]
            account.deserved = _highest(bounded, account.guarantee)
        self._above: dict[str, list[accounts.Account]] = {name: [] for name in self._accounts}
        self._problems: dict[str, str] = {}

    def _open_tree(self, within: session.Session) -> None:
        self._tree = hierarchy.Hierarchy(within.queues)
        self._accounts = account_tree.opened(within, self._tree)
        for account in self._accounts.values():
            account.deserved = _highest(account.deserved, account.guarantee)
        self._above = {
            name: [
                self._accounts[above]
                for above in self._tree.ancestors(name)
                if above in self._accounts
            ]
            for name in self._accounts
        }
        self._problems = dict(self._tree.problems)
        for name in accounts.queues_with_jobs(within):
            if name in self._accounts and not self._tree.is_leaf(name):
                self._problems[name] = f"queue {name} has queues below it: only leaves take jobs"
        within.complaints.extend(
            f"plugin capacity: {self._problems[name]}" for name in sorted(self._problems)
        )
        within.add_victim_queue_order(self._compare_victim_queues)

    # Order ----------------------------------------------------------------------------------

    def _compare_queues(self, left: entities.Queue, right: entities.Queue) -> int:
        if left.priority != right.priority:
            return -1 if left.priority > right.priority else 1
        first, second = left.name, right.name
        if first not in self._accounts or second not in self._accounts:
            return 0
        if self._is_tree:
            is_leaf, is_other_leaf = self._tree.is_leaf(first), self._tree.is_leaf(second)
            if is_leaf != is_other_leaf:
                return -1 if is_leaf else 1
            if is_leaf:
                first, second = self._tree.parting(first, second)
        return _compare(self._accounts[first], self._accounts[second])

    def _compare_victim_queues(
        self, left: entities.Queue, right: entities.Queue, preemptor: entities.Queue
    ) -> int:
        """Relatives of the preemptor give first."""
        if any(queue.name not in self._accounts for queue in (left, right, preemptor)):
            return 0
        depth = self._tree.common_depth(left.name, preemptor.name)
        other = self._tree.common_depth(right.name, preemptor.name)
        return (depth < other) - (depth > other)

    # Gates ----------------------------------------------------------------------------------

    def _chain(self, queue: entities.Queue) -> list[accounts.Account]:
        """The queue's account and those above it; none if nothing may be decided for it."""
        if not queue.is_open or queue.name in self._problems or queue.name not in self._accounts:
            return []
        return [self._accounts[queue.name], *self._above[queue.name]]

    def _names(self, queue: str) -> list[str]:
        """The queue and those above it."""
        return [queue, *(account.queue.name for account in self._above.get(queue, ()))]

    def _is_allocatable(self, queue: entities.Queue, task: entities.Task) -> bool:
        demand = self._demands.of(task)
        chain = self._chain(queue)
        return (
            bool(chain)
            and all(
                shares.fits(account.allocated, demand, account.real_capability) for account in chain
            )
            and (self._devices is None or self._devices.fits(task, queue.name))
        )

    def _room(self, queue: entities.Queue, task: entities.Task, most: int) -> int:
        demand = self._demands.of(task)
        chain = self._chain(queue)
        for account in chain:
            most = shares.room(account.allocated, demand, account.real_capability, most)
        if self._devices is not None:
            # Equal tasks may share their claims: each is asked about by itself.
            most = min(most, int(self._devices.fits(task, queue.name)))
        return most if chain else 0

    def _is_preemptive(self, queue: entities.Queue, tasks: Sequence[entities.Task]) -> bool:
        """The queue can reach it, and it or a queue close above deserves some of it."""
        together = [0] * len(self._session.resources.names)
        for task in tasks:
            shares.add(together, self._demands.of(task))
        demand = shares.asked(shares.pairs(together))
        chain = self._chain(queue)
        if not chain or not shares.fits(chain[0].allocated, demand, chain[0].real_capability):
            return False
        asking = [chain[0]]
        asking += [
            account
            for account in chain[1 : 1 + self._level]
            if account.queue.name != hierarchy.ROOT
        ]
        return any(
            account.allocated[column] + amount <= account.deserved[column]
            for account in asking
            for column, amount in demand
        )

    def _vote_enqueueable(self, job: entities.Job) -> int:
        queue = self._session.queue_of(job)
        chain = self._chain(queue)
        if not chain:
            problem = self._problems.get(queue.name)
            if problem:
                self._session.tell_user(job, problem)
            return extension_points.REJECT
        if self._devices is not None and not self._devices.admits(job):
            self._session.tell_user(
                job, f"queue resource quota insufficient: insufficient {device_quotas.EXCEEDED}"
            )
            return extension_points.REJECT
        return accounts.admit(self._session, job, chain)

    def _note_enqueued(self, job: entities.Job) -> None:
        if job.queue in self._accounts:
            accounts.note_admitted(job, [self._accounts[job.queue], *self._above[job.queue]])
        if self._devices is not None:
            self._devices.note_enqueued(job)

    # Events ---------------------------------------------------------------------------------

    def _take(self, tasks: Sequence[entities.Task]) -> None:
        self._charge(tasks[0], len(tasks))

    def _give_back(self, tasks: Sequence[entities.Task]) -> None:
        self._charge(tasks[0], -len(tasks))

    def _charge(self, like: entities.Task, times: int) -> None:
        job = self._session.job_of(like)
        if job is None or job.queue not in self._accounts:
            return
        demand = self._demands.of(like)
        for account in (self._accounts[job.queue], *self._above[job.queue]):
            account.take(demand, times)
            _update_share(account)


def _update_share(account: accounts.Account) -> None:
    """A queue that deserves nothing has all it deserves: a share of 1."""
    account.share = (
        shares.share(account.allocated, account.deserved) if _deserves_any(account) else 1.0
    )


def _deserves_any(account: accounts.Account) -> bool:
    return any(
        amount > 0 for column, amount in enumerate(account.deserved) if column != requirements.PODS
    )


def _compare(left: accounts.Account, right: accounts.Account) -> int:
    """The smaller share first, of equals the one that deserves anything."""
    if left.share != right.share:
        return -1 if left.share < right.share else 1
    return int(_deserves_any(right)) - int(_deserves_any(left))


def _highest(left: Sequence[float], right: Sequence[int]) -> list[float]:
    return [max(first, second) for first, second in zip(left, right, strict=True)]
